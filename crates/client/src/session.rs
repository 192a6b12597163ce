//! The client's side of exactly-once: its session, the numbers of its writes, and its floor.
//!
//! A write gets its number when it is first sent and keeps it in every repeat. The floor is the lowest number
//! whose result the client still waits for. A write that was given up counts as no longer waited for: the
//! floor passes it, and once a later write has carried that floor to the pair, a delayed copy of the
//! abandoned one is refused there.

use std::collections::VecDeque;

use cell_terms::{OperationNumber, SessionId};

/// The session, if one is open, and the state of its opening.
#[derive(Debug, Default)]
pub(crate) struct Session {
    open: Option<Numbers>,
    opening: bool,
}

/// An open session.
#[derive(Debug)]
struct Numbers {
    session: SessionId,
    /// The lowest number still waited for, or the next one.
    floor: u64,
    /// From the floor on: whether the number is still waited for.
    waited: VecDeque<bool>,
    idle_ns: u64,
    used_ns: u64,
}

impl Session {
    pub(crate) fn id(&self) -> Option<SessionId> {
        self.open.as_ref().map(|open| open.session)
    }

    /// Whether an open-session request is on its way.
    pub(crate) fn is_opening(&self) -> bool {
        self.opening
    }

    /// Whether an open-session request should be sent; it is noted as sent.
    pub(crate) fn begin_opening(&mut self) -> bool {
        let begin = self.open.is_none() && !self.opening;
        self.opening |= begin;
        begin
    }

    /// The request's answer is no session, or will not come.
    pub(crate) fn opening_failed(&mut self) {
        self.opening = false;
    }

    pub(crate) fn opened(&mut self, session: SessionId, idle_ms: u32, now_ns: u64) {
        let idle_ns = u64::from(idle_ms) * 1_000_000;
        self.opening = false;
        self.open = Some(Numbers { session, floor: 1, waited: VecDeque::new(), idle_ns, used_ns: now_ns });
    }

    /// The server does not know the session any more. Nothing happens if it is not the current one.
    pub(crate) fn ended(&mut self, session: SessionId) {
        if self.id() == Some(session) {
            self.open = None;
        }
    }

    /// The next number, waited for from now on; none without a session.
    pub(crate) fn number(&mut self) -> Option<(SessionId, OperationNumber)> {
        let open = self.open.as_mut()?;
        let number = open.floor + open.waited.len() as u64;
        open.waited.push_back(true);
        Some((open.session, OperationNumber(number)))
    }

    /// The floor to send with a write of this session. A write of an ended one says that nothing is given up.
    pub(crate) fn floor(&self, session: SessionId) -> OperationNumber {
        let open = self.open.as_ref().filter(|open| open.session == session);
        OperationNumber(open.map_or(1, |open| open.floor))
    }

    /// A write's result is known, or nobody waits for it any more.
    pub(crate) fn end_number(&mut self, session: SessionId, number: OperationNumber) {
        let Some(open) = self.open.as_mut().filter(|open| open.session == session) else { return };
        let index = number.0.checked_sub(open.floor).and_then(|index| usize::try_from(index).ok());
        if let Some(waited) = index.and_then(|index| open.waited.get_mut(index)) {
            *waited = false;
        }
        while open.waited.front() == Some(&false) {
            open.waited.pop_front();
            open.floor += 1;
        }
    }

    /// The session was named in a message.
    pub(crate) fn used(&mut self, now_ns: u64) {
        if let Some(open) = &mut self.open {
            open.used_ns = now_ns;
        }
    }

    /// When the server should hear of the session, if it would end it for silence: three times in that time.
    pub(crate) fn keep_alive_due_ns(&self) -> Option<u64> {
        let open = self.open.as_ref().filter(|open| open.idle_ns > 0)?;
        Some(open.used_ns.saturating_add(open.idle_ns / 3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn end_number_out_of_order_moves_the_floor_over_the_ended() {
        let mut session = Session::default();
        assert_eq!(session.number(), None);
        session.opened(SessionId(9), 0, 0);
        let numbers: Vec<_> = (0..4).map(|_| session.number().unwrap().1).collect();
        assert_eq!(numbers.iter().map(|n| n.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
        session.end_number(SessionId(9), numbers[1]);
        assert_eq!(session.floor(SessionId(9)).0, 1);
        session.end_number(SessionId(9), numbers[0]);
        assert_eq!(session.floor(SessionId(9)).0, 3);
        session.end_number(SessionId(8), numbers[2]);
        session.end_number(SessionId(9), numbers[0]);
        assert_eq!(session.floor(SessionId(9)).0, 3);
    }

    #[test]
    fn ended_another_session_keeps_the_current_one() {
        let mut session = Session::default();
        assert!(session.begin_opening());
        assert!(!session.begin_opening());
        session.opened(SessionId(2), 30, 0);
        session.ended(SessionId(1));
        assert_eq!(session.id(), Some(SessionId(2)));
        assert_eq!(session.keep_alive_due_ns(), Some(10_000_000));
        session.ended(SessionId(2));
        assert_eq!(session.floor(SessionId(2)).0, 1);
        assert!(session.begin_opening());
    }

    proptest! {
        #[test]
        fn floor_is_the_lowest_waited_for_number(ended in proptest::collection::vec(1u64..60, 0..100)) {
            let mut session = Session::default();
            session.opened(SessionId(1), 0, 0);
            let mut waited: std::collections::BTreeSet<u64> = (1..60).collect();
            waited.iter().for_each(|&number| assert_eq!(session.number().unwrap().1.0, number));
            for number in ended {
                session.end_number(SessionId(1), OperationNumber(number));
                waited.remove(&number);
                let lowest = waited.first().copied().unwrap_or(60);
                prop_assert_eq!(session.floor(SessionId(1)).0, lowest);
            }
        }
    }
}
