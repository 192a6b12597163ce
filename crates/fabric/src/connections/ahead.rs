//! Which connection is read before the kernel is asked who has something.
//!
//! Where one connection talks and the others are silent, the answer to that question is known: it is this
//! connection, or nobody. So a connection that was the only answer several times in a row is read without the
//! question, which saves one call a message. The kernel is asked all the same each few polls, so that nobody
//! waits for longer than those, whatever the one does.

use std::collections::VecDeque;

use crate::endpoint::ConnectionId;

/// A connection is read ahead once it was the only answer so often.
const ANSWERS: u32 = 4;
/// Polls in a row that do not ask the kernel, at most.
const POLLS_MAX: u32 = 8;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// Who was the only answer, the last time that there was any.
    last: Option<ConnectionId>,
    /// How often in a row.
    answers: u32,
    /// Polls since the kernel was asked.
    polls: u32,
}

impl ReadAhead {
    /// Who is read by this poll, which does not ask the kernel; none: it is to be asked.
    pub(super) fn next(&mut self) -> Option<ConnectionId> {
        let id = self.last.filter(|_| self.answers >= ANSWERS && self.polls < POLLS_MAX)?;
        self.polls += 1;
        Some(id)
    }

    /// The kernel was asked; these are to be served.
    pub(super) fn asked(&mut self, ready: &VecDeque<ConnectionId>) {
        self.polls = 0;
        let Some(first) = ready.front() else { return };
        let only = Some(*first).filter(|_| ready.len() == 1);
        self.answers = if only.is_some() && only == self.last { self.answers.saturating_add(1) } else { 1 };
        self.last = only;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(ahead: &mut ReadAhead, ready: &[u64]) {
        ahead.asked(&ready.iter().map(|number| ConnectionId(*number)).collect());
    }

    fn ahead_of(id: u64) -> ReadAhead {
        let mut ahead = ReadAhead::default();
        (0..ANSWERS).for_each(|_| asked(&mut ahead, &[id]));
        ahead
    }

    #[test]
    fn next_is_who_was_the_only_answer_several_times_in_a_row() {
        let mut ahead = ReadAhead::default();
        for _ in 1..ANSWERS {
            asked(&mut ahead, &[1]);
            assert_eq!(ahead.next(), None);
        }
        asked(&mut ahead, &[]);
        asked(&mut ahead, &[1]);
        assert_eq!(ahead.next(), Some(ConnectionId(1)));
    }

    #[test]
    fn next_is_nobody_once_others_have_something() {
        for others in [&[2][..], &[1, 2], &[2, 1]] {
            let mut ahead = ahead_of(1);
            asked(&mut ahead, others);
            assert_eq!(ahead.next(), None, "{others:?}");
        }
        let mut ahead = ReadAhead::default();
        for turn in 0..100 {
            asked(&mut ahead, &[turn % 2]);
            assert_eq!(ahead.next(), None);
        }
    }

    #[test]
    fn kernel_is_asked_each_few_polls() {
        let mut ahead = ahead_of(1);
        for _ in 0..3 {
            let polls = (0..100).take_while(|_| ahead.next().is_some()).count();
            assert_eq!(u32::try_from(polls), Ok(POLLS_MAX));
            asked(&mut ahead, &[1]);
        }
    }
}
