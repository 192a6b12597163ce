//! The client's side of exactly-once: its session, the numbers of its writes, its floor, and the writes that
//! wait for a session.
//!
//! A write gets its number when it is first sent and keeps it in every repeat. The floor is the lowest number
//! whose result the client still waits for. A write that was given up counts as no longer waited for: the
//! floor passes it, and once a later write has carried that floor to the pair, a delayed copy of the
//! abandoned one is refused there.

use std::collections::VecDeque;

use cell_random::Random;
use cell_terms::{OperationNumber, SessionId};

use crate::backoff::Backoff;
use crate::error::AttemptError;
use crate::link_id::LinkId;
use crate::mutant::{Mutant, planted};
use crate::operation::OperationSlot;

/// The session, if one is open, and the state of its opening and closing.
#[derive(Debug, Default)]
pub(crate) struct Session {
    open: Option<Numbers>,
    is_opening: bool,
    is_closing: bool,
    /// By which connection the session is kept alive.
    home: LinkId,
    /// Writes that wait for a session.
    waiting: VecDeque<OperationSlot>,
    /// A session could not be opened; the next try is due then.
    not_before_ns: u64,
    failed_count: u32,
    /// Why the last question was refused, for the writes that wait.
    refused: Option<AttemptError>,
    /// The server talked on until the connection was given up, and left the question unanswered.
    is_passed_over: bool,
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

    /// A write waits for a session.
    pub(crate) fn wait(&mut self, slot: OperationSlot) {
        self.waiting.push_back(slot);
    }

    /// A write does not wait any more.
    pub(crate) fn stop_waiting(&mut self, slot: OperationSlot) {
        self.waiting.retain(|&listed| listed != slot);
        if self.waiting.is_empty() {
            (self.refused, self.is_passed_over) = (None, false);
        }
    }

    /// Why writes wait, as far as that is known: the last question was refused, or has had no answer.
    pub(crate) fn failure(&self) -> Option<AttemptError> {
        let is_awaited = self.is_opening || self.is_passed_over;
        self.refused.or(is_awaited.then_some(AttemptError::SessionAwaited))
    }

    /// The youngest write that waits, which does not wait any more.
    pub(crate) fn pop_waiting(&mut self) -> Option<OperationSlot> {
        self.waiting.pop_back()
    }

    /// Whether a session is to be asked for by this connection, because writes wait for one. It is noted as
    /// asked for.
    pub(crate) fn begin_opening(&mut self, link: LinkId, now_ns: u64) -> bool {
        let is_wanted = !self.waiting.is_empty() && now_ns >= self.not_before_ns;
        let begins = is_wanted && self.open.is_none() && !self.is_opening;
        if begins {
            self.is_opening = true;
            self.home = link;
        }
        begins
    }

    /// When a session is to be asked for, if writes wait for one.
    pub(crate) fn opening_due_ns(&self) -> Option<u64> {
        (!self.waiting.is_empty() && !self.is_opening).then_some(self.not_before_ns)
    }

    /// The question for a session will not be answered.
    pub(crate) fn opening_lost(&mut self) {
        (self.is_opening, self.refused) = (false, None);
    }

    /// A connection is lost, and with it the question for a session, if it was asked there.
    pub(crate) fn on_connection_lost(&mut self, link: LinkId, asked: bool, why: AttemptError) {
        self.is_opening &= !asked;
        if link == self.home {
            self.is_passed_over = asked && matches!(why, AttemptError::PassedOver { .. });
            // A node that is there and silent may be so because of its coordinator.
            if matches!(why, AttemptError::Closed(_)) {
                self.refused = None;
            }
        }
    }

    /// The question for a session was refused: the next one waits, longer each time.
    pub(crate) fn opening_refused(
        &mut self,
        why: AttemptError,
        now_ns: u64,
        backoff: &Backoff,
        random: &mut Random,
    ) {
        (self.refused, self.is_passed_over) = (Some(why), false);
        self.is_opening = false;
        self.failed_count += 1;
        self.not_before_ns = now_ns.saturating_add(backoff.wait_ns(self.failed_count, random));
    }

    /// As [`crate::connection::Connection::shorten_wait`], of the question for a session.
    pub(crate) fn shorten_wait(
        &mut self,
        now_ns: u64,
        failed_max: u32,
        backoff: &Backoff,
        random: &mut Random,
    ) {
        if self.not_before_ns > now_ns {
            let wait_ns = backoff.wait_ns(self.failed_count.min(failed_max), random);
            self.not_before_ns = now_ns.saturating_add(wait_ns).min(self.not_before_ns);
        }
    }

    pub(crate) fn opened(&mut self, session: SessionId, idle_ms: u32, now_ns: u64) {
        let idle_ns = u64::from(idle_ms) * 1_000_000;
        self.is_opening = false;
        (self.refused, self.is_passed_over) = (None, false);
        self.failed_count = 0;
        self.open = Some(Numbers { session, floor: 1, waited: VecDeque::new(), idle_ns, used_ns: now_ns });
    }

    /// Whether the server is to be asked to end the session. It is noted as asked.
    pub(crate) fn begin_closing(&mut self) -> bool {
        let begins = self.open.is_some() && !self.is_closing;
        self.is_closing |= begins;
        begins
    }

    /// The question to end the session will not be answered.
    pub(crate) fn closing_lost(&mut self) {
        self.is_closing = false;
    }

    /// The server has ended the session, as it was asked to.
    pub(crate) fn closed(&mut self) {
        self.is_closing = false;
        self.open = None;
    }

    /// By which connection the session is kept alive.
    pub(crate) fn home(&self) -> LinkId {
        self.home
    }

    /// Another connection is to keep the session alive.
    pub(crate) fn set_home(&mut self, link: LinkId) {
        self.home = link;
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
        let is_its = |open: &&Numbers| open.session == session || planted(Mutant::ForeignFloorSent);
        let open = self.open.as_ref().filter(is_its);
        OperationNumber(open.map_or(1, |open| open.floor))
    }

    /// A write's result is known, or it is not waited for any more.
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

    /// When the server should get a message of the session, if it would end it for silence: three times in
    /// that time.
    pub(crate) fn keep_alive_due_ns(&self) -> Option<u64> {
        let open = self.open.as_ref().filter(|open| open.idle_ns > 0)?;
        Some(open.used_ns.saturating_add(open.idle_ns / 3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_fabric::CloseReason;
    use cell_protocol::Refusal;
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
        assert!(!session.begin_opening(LinkId(1), 0), "nobody waits for one");
        session.wait(5);
        assert!(session.begin_opening(LinkId(1), 0));
        assert!(!session.begin_opening(LinkId(1), 0));
        session.opened(SessionId(2), 30, 0);
        session.ended(SessionId(1));
        assert_eq!(session.id(), Some(SessionId(2)));
        assert_eq!(session.keep_alive_due_ns(), Some(10_000_000));
        session.ended(SessionId(2));
        assert_eq!(session.floor(SessionId(2)).0, 1);
        assert!(session.begin_opening(LinkId(1), 0));
    }

    /// Who had been refused by a node that died then got the deadline of the coordinator.
    #[test]
    fn refusal_is_why_writes_wait_until_its_connection_is_closed() {
        let (backoff, mut random) = (Backoff::new(1, 1), Random::new(1));
        let refused = AttemptError::Refused(Refusal::CoordinatorAway);
        let closed = AttemptError::Closed(CloseReason::PeerClosed);
        let mut session = Session::default();
        session.wait(5);
        assert!(session.begin_opening(LinkId(1), 0));
        session.opening_refused(refused, 0, &backoff, &mut random);
        session.on_connection_lost(LinkId(2), false, closed);
        session.on_connection_lost(LinkId(1), false, AttemptError::Silent { silence_ms: 1 });
        assert_eq!(session.failure(), Some(refused));
        session.on_connection_lost(LinkId(1), false, closed);
        assert_eq!(session.failure(), None);
        session.opening_refused(refused, 0, &backoff, &mut random);
        session.opening_lost();
        assert_eq!(session.failure(), None);
    }

    /// A repeat of a write of a session that has ended: the next one's floor would turn it away where it was
    /// carried out.
    fn floor_of_an_ended_session_gives_nothing_up() {
        let mut session = Session::default();
        session.opened(SessionId(1), 0, 0);
        session.number().expect("a session is open");
        session.ended(SessionId(1));
        session.opened(SessionId(2), 0, 0);
        let (_, number) = session.number().expect("a session is open");
        session.end_number(SessionId(2), number);
        assert_eq!((session.floor(SessionId(1)).0, session.floor(SessionId(2)).0), (1, 2));
    }

    #[test]
    fn floor_of_a_session_is_its_own() {
        floor_of_an_ended_session_gives_nothing_up();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_foreign_floor_sent_is_caught() {
        use crate::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::ForeignFloorSent));
            let passed = std::panic::catch_unwind(floor_of_an_ended_session_gives_nothing_up).is_ok();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-client's session", Mutant::ForeignFloorSent.name());
        });
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
