//! When one flush of a disk makes the writes of many logs durable: the rule alone, without clocks and files.
//! [`crate::flusher::Flusher`] and the simulated disk step it.
//!
//! A plain write past the page cache is in the disk's cache when it completes. A flush puts on stable storage
//! what had completed before it *began*. What completes while it is under way may be too late for it:
//!
//! 1. A completed write belongs to the first flush that begins after it was seen to complete.
//! 2. One flush at a time. It begins once something has completed and no write is on its way that is waited
//!    for.
//! 3. When it has ended well, what belongs to it is durable, and what belongs to earlier ones.
//! 4. One that fails is the last. All that belongs to it, or would belong to a later one, fails: what the
//!    disk still has of it nobody knows, and a later flush would be believed in vain.
//!
//! So a batch, whose two writes are each held back until their flush has ended, is durable when a flush is in
//! that began after both had completed.
//!
//! Why (2) waits for what is on its way: pairs that write side by side share a flush that way, and stay in
//! step, because all of them write again when it ends. Without it, one pair's flush would begin while the
//! others' writes are under way, and they would wait for two. It cannot wait for ever: who has a write that
//! belongs to no flush yet sends nothing more, so each log is waited for once. A write of many bytes, which
//! may take as long as a flush, is not waited for.

use std::collections::VecDeque;

use crate::device::LogEvent;
use crate::error::Errno;
use crate::mutant::{Mutant, planted};

/// Of a write that flushes wait for, at most.
pub const AWAITED_BYTES_MAX: usize = 512 << 10;

/// The number of a flush; they count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlushNumber(u64);

/// See the module's text.
#[derive(Debug, Default)]
pub struct FlushRounds {
    /// Writes on their way that the next flush waits for.
    awaited: usize,
    /// Completed writes that belong to a flush which has not started.
    gathered: usize,
    /// Flushes that have started.
    started: u64,
    /// Flushes that have ended well.
    ended: u64,
    failed: Option<Errno>,
}

impl FlushRounds {
    /// A write of so many bytes is on its way.
    pub fn sent(&mut self, bytes: usize) {
        self.awaited += usize::from(is_awaited(bytes));
    }

    /// It has completed, whole and without an error. It is durable when this flush has ended well.
    pub fn completed(&mut self, bytes: usize) -> FlushNumber {
        self.given_up(bytes);
        self.gathered += 1;
        let under_way = self.is_under_way() && planted(Mutant::FlushBegunEarly);
        FlushNumber(self.started + u64::from(!under_way))
    }

    /// A write that was on its way is not any more: it failed, or its device is gone.
    ///
    /// # Panics
    /// If nothing was on its way: the device's defect.
    pub fn given_up(&mut self, bytes: usize) {
        if is_awaited(bytes) {
            self.awaited = self.awaited.checked_sub(1).expect("what ends was sent");
        }
    }

    /// Whether a flush is due; if so it counts as started, and is to be sent now.
    #[must_use]
    pub fn begin(&mut self) -> bool {
        let is_due = self.failed.is_none() && !self.is_under_way() && self.awaited == 0 && self.gathered > 0;
        if is_due {
            self.started += 1;
            self.gathered = 0;
        }
        is_due
    }

    /// The flush that is under way has ended.
    ///
    /// # Panics
    /// If none is.
    pub fn end(&mut self, result: Result<(), Errno>) {
        assert!(self.is_under_way(), "a flush ends that has started");
        match result {
            Ok(()) => self.ended = self.started,
            Err(errno) => self.failed = Some(errno),
        }
    }

    /// What became of a flush; none while it has not ended.
    #[must_use]
    pub fn outcome(&self, number: FlushNumber) -> Option<Result<(), Errno>> {
        if number.0 <= self.ended { Some(Ok(())) } else { self.failed.map(Err) }
    }

    /// Whether a flush has started and not ended.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
        self.started > self.ended && self.failed.is_none()
    }
}

const fn is_awaited(bytes: usize) -> bool {
    bytes <= AWAITED_BYTES_MAX
}

/// One device's completed writes, each with the flush that it belongs to, in the order of completion.
#[derive(Debug, Default)]
pub(crate) struct HeldWrites(VecDeque<(FlushNumber, LogEvent)>);

impl HeldWrites {
    /// Keeps a write's event back.
    pub(crate) fn hold(&mut self, number: FlushNumber, event: LogEvent) {
        self.0.push_back((number, event));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports the writes whose flush has ended, or has failed.
    pub(crate) fn release(&mut self, rounds: &FlushRounds, events: &mut Vec<LogEvent>) {
        while let Some(outcome) = self.0.front().and_then(|(number, _)| rounds.outcome(*number)) {
            let Some((_, event)) = self.0.pop_front() else { return };
            events.push(ended(event, outcome));
        }
    }

    /// Reports all of them as failed.
    pub(crate) fn fail(&mut self, errno: Errno, events: &mut Vec<LogEvent>) {
        events.extend(self.0.drain(..).map(|(_, event)| ended(event, Err(errno))));
    }
}

fn ended(mut event: LogEvent, outcome: Result<(), Errno>) -> LogEvent {
    if let LogEvent::Written { result, .. } = &mut event {
        *result = outcome;
    }
    event
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: usize = 4096;

    fn begin(rounds: &mut FlushRounds) -> &mut FlushRounds {
        assert!(rounds.begin());
        rounds
    }

    #[test]
    fn write_that_completes_while_a_flush_is_under_way_belongs_to_the_next() {
        let mut rounds = FlushRounds::default();
        rounds.sent(BYTES);
        let first = rounds.completed(BYTES);
        begin(&mut rounds);
        rounds.sent(BYTES);
        let late = rounds.completed(BYTES);
        assert!(!rounds.begin(), "one at a time");
        rounds.end(Ok(()));
        assert_eq!((rounds.outcome(first), rounds.outcome(late)), (Some(Ok(())), None));
        begin(&mut rounds).end(Ok(()));
        assert_eq!(rounds.outcome(late), Some(Ok(())));
        assert!(!rounds.begin(), "there is nothing to flush");
    }

    #[test]
    fn flush_begins_when_no_short_write_is_on_its_way() {
        let mut rounds = FlushRounds::default();
        assert!(!rounds.begin(), "nothing has completed");
        rounds.sent(BYTES);
        rounds.sent(BYTES);
        rounds.sent(AWAITED_BYTES_MAX + 1);
        let first = rounds.completed(BYTES);
        assert!(!rounds.begin(), "the other write is on its way");
        rounds.given_up(BYTES);
        begin(&mut rounds).end(Ok(()));
        assert_eq!(rounds.outcome(first), Some(Ok(())));
        let long = rounds.completed(AWAITED_BYTES_MAX + 1);
        assert_eq!(rounds.outcome(long), None);
        begin(&mut rounds).end(Ok(()));
        assert_eq!(rounds.outcome(long), Some(Ok(())));
    }

    #[test]
    fn failed_flush_fails_what_waits_for_it_and_all_that_comes() {
        let mut rounds = FlushRounds::default();
        rounds.sent(BYTES);
        let durable = rounds.completed(BYTES);
        begin(&mut rounds).end(Ok(()));
        rounds.sent(BYTES);
        let lost = rounds.completed(BYTES);
        begin(&mut rounds);
        rounds.sent(BYTES);
        let next = rounds.completed(BYTES);
        rounds.end(Err(Errno::EIO));
        rounds.sent(BYTES);
        let later = rounds.completed(BYTES);
        assert!(!rounds.begin(), "no flush is tried again");
        for number in [lost, next, later] {
            assert_eq!(rounds.outcome(number), Some(Err(Errno::EIO)));
        }
        assert_eq!(rounds.outcome(durable), Some(Ok(())), "that was durable before");
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Send(usize),
        Complete(usize),
        GiveUp(usize),
        Flush,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let bytes = || prop_oneof![Just(BYTES), Just(AWAITED_BYTES_MAX + 1)];
        let step = prop_oneof![
            3 => bytes().prop_map(Step::Send),
            3 => (0..8_usize).prop_map(Step::Complete),
            1 => (0..8_usize).prop_map(Step::GiveUp),
            3 => Just(Step::Flush),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        /// Beside a disk that keeps what had completed when a flush began: nothing else is ever called
        /// durable, and in the end everything is.
        #[test]
        fn nothing_is_durable_that_completed_after_its_flush_began(steps in steps()) {
            let mut rounds = FlushRounds::default();
            let mut on_way: Vec<usize> = Vec::new();
            let mut completed: Vec<FlushNumber> = Vec::new();
            // How many had completed when the flush began that is under way, and the last that has ended.
            let (mut covers, mut stable) = (None, 0);
            for step in steps {
                match step {
                    Step::Send(bytes) => {
                        rounds.sent(bytes);
                        on_way.push(bytes);
                    }
                    Step::Complete(at) if at < on_way.len() => {
                        completed.push(rounds.completed(on_way.swap_remove(at)));
                    }
                    Step::GiveUp(at) if at < on_way.len() => rounds.given_up(on_way.swap_remove(at)),
                    Step::Complete(_) | Step::GiveUp(_) => {}
                    Step::Flush => match covers.take() {
                        Some(count) => {
                            rounds.end(Ok(()));
                            stable = count;
                        }
                        None => covers = rounds.begin().then_some(completed.len()),
                    },
                }
                let durable = completed.iter().filter(|number| rounds.outcome(**number).is_some()).count();
                prop_assert_eq!(durable, stable, "neither more nor fewer than the disk has");
            }
            on_way.drain(..).for_each(|bytes| completed.push(rounds.completed(bytes)));
            if covers.is_some() {
                rounds.end(Ok(()));
            }
            if rounds.begin() {
                rounds.end(Ok(()));
            }
            prop_assert!(completed.iter().all(|number| rounds.outcome(*number) == Some(Ok(()))));
        }
    }
}
