//! The sessions that are known here, and the messages that wait for what the coordinator says of one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use cell_fabric::ConnectionId;
use cell_protocol::RequestHeader;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{IdMap, SessionId};

use super::stream_table::StreamKey;
use crate::pairs::waiting_bytes;

/// How often idle sessions are looked for.
const SWEEP_NS: u64 = 5_000_000_000;

/// A session that is used here is spoken for by this node, so that no other ends it: that is renewed after
/// this part of the time for which it may be idle.
const KEEP_PART: u64 = 4;

/// When a session was last used here, and when the coordinator last said that this node speaks for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionUse {
    used_ns: u64,
    pub(super) kept_ns: u64,
    /// Nothing speaks against its being open.
    pub(super) confirmed: bool,
}

impl SessionUse {
    pub(super) fn new(now_ns: u64) -> SessionUse {
        SessionUse { used_ns: now_ns, kept_ns: now_ns, confirmed: true }
    }
}

/// Messages that wait until the coordinator has said whether their session is open, in their order.
#[derive(Debug, Default)]
struct AskingSession {
    messages: Vec<(ConnectionId, Vec<u8>)>,
    /// The streams of which messages are among them.
    streams: Vec<StreamKey>,
}

/// The sessions that may write, and when each last did anything. A session lives in the coordinator: one that
/// is not known here is asked for there before it is refused.
#[derive(Debug, Default)]
pub(super) struct SessionTable {
    pub(super) known: IdMap<SessionId, SessionUse>,
    /// By ids that clients name as they like, also such as would fall together in an [`IdMap`].
    asking: HashMap<SessionId, AskingSession>,
    /// For which of those sessions messages of a stream wait: each message of any stream asks for that.
    asking_streams: HashMap<StreamKey, SessionId>,
    pub(super) asking_bytes: usize,
    /// The coordinator said that it is not open; while what waited for that is answered.
    pub(super) denied: Option<SessionId>,
    swept_ns: u64,
}

impl SessionTable {
    pub(super) fn open(&mut self, session: SessionId, now_ns: u64) {
        self.known.insert(session, SessionUse::new(now_ns));
    }

    /// Notes a use; false if it is not known that there is such a session.
    pub(super) fn touch(&mut self, session: SessionId, now_ns: u64) -> bool {
        self.known.get_mut(&session).is_some_and(|of| {
            of.used_ns = now_ns;
            of.confirmed
        })
    }

    /// Every session counts as used at this time.
    pub(super) fn touch_all(&mut self, now_ns: u64) {
        self.known.values_mut().for_each(|of| of.used_ns = now_ns);
    }

    /// A pair comes whose recovery found these sessions open, ascending, and forgot all others. What is known
    /// of those others may be older, so they are asked for before they write again:
    ///
    /// 1. a session that is known here writes to a pair that is elsewhere, and its client ends it there;
    /// 2. that pair's owner dies, and its recovery, which sees the end, forgets what the write ended as;
    /// 3. the pair comes here, where the end was not known yet;
    /// 4. a copy of the write that was long under way comes here: nobody would know that it was carried out.
    pub(super) fn confirm(&mut self, open: &[SessionId]) {
        if planted(Mutant::EndedSessionsKnown) {
            return;
        }
        for (session, of) in &mut self.known {
            of.confirmed &= open.binary_search(session).is_ok();
        }
    }

    /// Whether what the coordinator would say of a session is known.
    pub(super) fn is_settled(&self, session: SessionId) -> bool {
        self.known.get(&session).is_some_and(|of| of.confirmed) || self.denied == Some(session)
    }

    pub(super) fn end(&mut self, session: SessionId) {
        self.known.remove(&session);
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Bytes of messages that wait for the coordinator.
    pub(super) fn asking_bytes(&self) -> usize {
        self.asking_bytes
    }

    /// Whether messages wait for what the coordinator says of a session.
    pub(super) fn is_asked_about(&self, session: SessionId) -> bool {
        self.asking.contains_key(&session)
    }

    /// The session for which messages of a stream wait, if some do.
    pub(super) fn awaited_by(&self, stream: StreamKey) -> Option<SessionId> {
        self.asking_streams.get(&stream).copied()
    }

    /// Keeps a message, which may be one of a stream, until the coordinator has said whether its session is
    /// open.
    pub(super) fn keep(
        &mut self,
        session: SessionId,
        stream: Option<StreamKey>,
        (connection, message): (ConnectionId, &[u8]),
    ) {
        self.asking_bytes += waiting_bytes(message);
        let asking = self.asking.entry(session).or_default();
        asking.messages.push((connection, message.to_vec()));
        if let Some(stream) = stream
            && let Entry::Vacant(place) = self.asking_streams.entry(stream)
        {
            place.insert(session);
            asking.streams.push(stream);
        }
    }

    /// Takes out what waits for a session. Its bytes count until each is taken off.
    pub(super) fn take_asking(&mut self, session: SessionId) -> Option<Vec<(ConnectionId, Vec<u8>)>> {
        let AskingSession { messages, streams } = self.asking.remove(&session)?;
        for stream in &streams {
            self.asking_streams.remove(stream);
        }
        Some(messages)
    }

    /// Drops what waits of a stream.
    pub(super) fn forget_stream(&mut self, stream: StreamKey) {
        let Some(session) = self.asking_streams.remove(&stream) else { return };
        let Some(asking) = self.asking.get_mut(&session) else { return };
        asking.streams.retain(|of| *of != stream);
        asking.messages.retain(|(connection, message)| {
            let id = RequestHeader::peek(message).map(|header| header.id);
            let goes = (*connection, id) == (stream.0, Some(stream.1));
            self.asking_bytes -= if goes { waiting_bytes(message) } else { 0 };
            !goes
        });
    }

    /// Sessions that nobody uses, and those in use that are to be spoken for again.
    pub(super) fn sweep(&mut self, now_ns: u64, idle_ns: u64) -> (Vec<SessionId>, Vec<SessionId>) {
        if now_ns.saturating_sub(self.swept_ns) < SWEEP_NS {
            return Default::default();
        }
        self.swept_ns = now_ns;
        let (mut idle, mut kept) = (Vec::new(), Vec::new());
        for (session, of) in &self.known {
            if now_ns.saturating_sub(of.used_ns) >= idle_ns {
                idle.push(*session);
            } else if of.used_ns > of.kept_ns && now_ns - of.kept_ns >= idle_ns / KEEP_PART {
                kept.push(*session);
            }
        }
        idle.sort_unstable(); // a core's order follows from its input alone
        kept.sort_unstable();
        (idle, kept)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::hash::BuildHasher;

    use cell_protocol::{Request, RequestId};
    use cell_terms::PairId;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const IDLE_NS: u64 = 100 * SECOND;
    const ONE: ConnectionId = ConnectionId::from_number(1);
    const OTHER: ConnectionId = ConnectionId::from_number(2);
    const NONE: [Vec<u64>; 2] = [Vec::new(), Vec::new()];

    fn table_of(sessions: &[u64]) -> SessionTable {
        let mut table = SessionTable::default();
        sessions.iter().for_each(|session| table.open(SessionId(*session), 0));
        table
    }

    fn swept(table: &mut SessionTable, seconds: u64) -> [Vec<u64>; 2] {
        let (idle, kept) = table.sweep(seconds * SECOND, IDLE_NS);
        [idle, kept].map(|sessions| sessions.into_iter().map(|session| session.0).collect())
    }

    /// The lower halves of what ids are hashed to.
    fn places(hasher: &impl BuildHasher, ids: &[SessionId]) -> BTreeSet<u64> {
        ids.iter().map(|id| hasher.hash_one(id) & u64::from(u32::MAX)).collect()
    }

    /// A client that named such sessions had each of its messages compared with all that waited.
    #[test]
    fn sessions_that_a_client_makes_up_to_fall_together_do_not_where_they_are_asked_for() {
        // It undoes the multiplication by which ids of our own are spread.
        let inverse = 0xF1DE_83E1_9937_733D_u64;
        let made_up: Vec<SessionId> =
            (1..=64_u64).map(|half| SessionId((half << 32 | half).wrapping_mul(inverse))).collect();
        let table = SessionTable::default();
        assert_eq!(places(table.known.hasher(), &made_up).len(), 1, "they do where none of them is kept");
        assert!(places(table.asking.hasher(), &made_up).len() > 1);
    }

    /// What is not kept in time another node ends; what is kept for ever nobody ends.
    #[test]
    fn sweep_names_what_is_idle_and_what_is_used_and_was_long_not_spoken_for() {
        let mut table = table_of(&[1, 2, 3]);
        table.touch(SessionId(2), SECOND);
        assert_eq!(swept(&mut table, 20), NONE);
        assert_eq!(swept(&mut table, 25), [vec![], vec![2]], "the others were not used since");
        assert_eq!(swept(&mut table, 29), NONE, "so soon nobody looks again");
        let of = table.known.get_mut(&SessionId(2)).unwrap();
        of.kept_ns = 25 * SECOND;
        table.touch(SessionId(2), 40 * SECOND);
        assert_eq!(swept(&mut table, 45), NONE);
        assert_eq!(swept(&mut table, 50), [vec![], vec![2]]);
        table.touch(SessionId(3), 99 * SECOND);
        assert_eq!(swept(&mut table, 100), [vec![1], vec![2, 3]]);
        table.touch_all(120 * SECOND);
        assert_eq!(swept(&mut table, 200), [vec![], vec![1, 2, 3]]);
    }

    #[test]
    fn confirm_leaves_the_sessions_that_a_recovery_found_open() {
        let mut table = table_of(&[1, 2]);
        table.confirm(&[SessionId(1), SessionId(9)]);
        assert_eq!([1, 2, 9].map(|session| table.is_settled(SessionId(session))), [true, false, false]);
        assert_eq!([1, 2, 9].map(|session| table.touch(SessionId(session), 1)), [true, false, false]);
    }

    /// A stream that is turned away is dropped with all that waits of it, and with nothing else.
    #[test]
    fn forget_stream_drops_its_messages_and_no_other_ones() {
        let message = |id| {
            let (mut message, header) = (Vec::new(), RequestHeader { id: RequestId(id), pair: PairId(0) });
            Request::KeepAlive { session: None }.encode(header, &mut message).unwrap();
            message
        };
        let mut table = SessionTable::default();
        let (session, stream) = (SessionId(1), |of| (of, RequestId(7)));
        for of in [ONE, ONE, OTHER] {
            table.keep(session, Some(stream(of)), (of, &message(7)));
        }
        table.keep(session, None, (ONE, &message(8)));
        table.keep(SessionId(2), None, (ONE, &message(9)));
        table.forget_stream(stream(ONE));
        assert_eq!([ONE, OTHER].map(|of| table.awaited_by(stream(of))), [None, Some(session)]);
        assert_eq!(table.asking_bytes(), 3 * waiting_bytes(&message(7)));
        assert_eq!(table.take_asking(session), Some(vec![(OTHER, message(7)), (ONE, message(8))]));
        assert_eq!((table.awaited_by(stream(OTHER)), table.is_asked_about(session)), (None, false));
        assert!(table.is_asked_about(SessionId(2)));
    }
}
