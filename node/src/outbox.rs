//! Replies on their way out, and the ones that wait for the logs.
//!
//! A reply that depends on a CSN above its pair's watermark must not leave before a batch that covers it is
//! durable: an acknowledgement, but just as well a read that saw the new entry, a failed condition, a delete
//! that found nothing. A pair's batches become durable in order, so two waiting lists a pair are enough
//! ([`Held`]): one for the batch in flight, one for the batch that fills. What is ready leaves in one list,
//! whichever pair it is of.

use cell_fabric::ConnectionId;
use cell_terms::Csn;

use crate::latency::Arrival;

/// Bytes that an arena keeps however little is needed of them.
const KEPT_BYTES: usize = 1 << 20;

/// A pair's place among those that a worker owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PairAt(pub(crate) u16);

impl PairAt {
    /// That of no pair.
    pub(crate) const NONE: PairAt = PairAt(u16::MAX);

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

#[derive(Clone, Copy, Debug)]
struct End {
    connection: ConnectionId,
    end: usize,
    pair: PairAt,
    arrival: Arrival,
}

/// Replies in one arena, in order: no allocation a reply once the arena has grown.
#[derive(Debug, Default)]
pub struct ReplyList {
    bytes: Vec<u8>,
    ends: Vec<End>,
    /// The most bytes that were in it since the last trim.
    longest: usize,
}

/// None at all.
pub(crate) static NO_REPLIES: ReplyList = ReplyList { bytes: Vec::new(), ends: Vec::new(), longest: 0 };

impl ReplyList {
    /// Appends a reply of a pair that `write` encodes; `arrival` is that of its request.
    pub(crate) fn push(
        &mut self,
        connection: ConnectionId,
        pair: PairAt,
        arrival: Arrival,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        write(&mut self.bytes);
        self.ends.push(End { connection, end: self.bytes.len(), pair, arrival });
    }

    /// Each reply with its connection, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ConnectionId, &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let reply = &self.bytes[start..end.end];
            start = end.end;
            (end.connection, reply)
        })
    }

    /// Whether there are replies of a pair.
    pub(crate) fn has_any_of(&self, pair: PairAt) -> bool {
        self.ends.iter().any(|end| end.pair == pair)
    }

    pub(crate) fn clear(&mut self) {
        self.longest = self.longest.max(self.bytes.len());
        self.bytes.clear();
        self.ends.clear();
    }

    /// Gives memory back that was not needed since the last call: values in chunks may be tens of MiB.
    pub(crate) fn trim(&mut self) {
        let needed = self.longest.max(self.bytes.len()).max(KEPT_BYTES);
        if self.bytes.capacity() / 2 > needed {
            self.bytes.shrink_to(needed);
        }
        self.longest = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Each reply's bytes with the pair that it is of and its request's arrival, to be completed before they
    /// leave.
    pub(crate) fn for_each_mut(&mut self, mut complete: impl FnMut(PairAt, Arrival, &mut [u8])) {
        let mut start = 0;
        for end in &self.ends {
            complete(end.pair, end.arrival, &mut self.bytes[start..end.end]);
            start = end.end;
        }
    }

    fn append(&mut self, other: &mut ReplyList) {
        if self.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        let base = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| End { end: base + end.end, ..*end }));
        other.clear();
    }
}

/// What a reply has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// Nothing: the watermark covers it.
    Now,
    /// The batch in flight.
    InFlight,
    /// The batch that fills.
    Filling,
}

/// Replies of one pair that wait for its log.
#[derive(Debug, Default)]
pub(crate) struct Held {
    in_flight: ReplyList,
    filling: ReplyList,
    visible: Csn,
    in_flight_last: Csn,
    /// The highest CSN that a reply in `filling` depends on.
    filling_last: Csn,
}

impl Held {
    /// Nothing waits; the pair's log is durable up to `visible`.
    pub(crate) fn new(visible: Csn) -> Held {
        Held { visible, in_flight_last: visible, ..Held::default() }
    }

    /// What a reply that depends on `csn` waits for.
    pub(crate) fn release(&self, csn: Csn) -> Release {
        if csn <= self.visible {
            Release::Now
        } else if csn <= self.in_flight_last {
            Release::InFlight
        } else {
            Release::Filling
        }
    }

    /// The list for a reply that depends on `csn`: `ready`, if it need not wait.
    pub(crate) fn list<'a>(&'a mut self, csn: Csn, ready: &'a mut ReplyList) -> &'a mut ReplyList {
        match self.release(csn) {
            Release::Now => ready,
            Release::InFlight => &mut self.in_flight,
            Release::Filling => {
                self.filling_last = self.filling_last.max(csn);
                &mut self.filling
            }
        }
    }

    /// The filling batch, up to `last`, has been submitted.
    pub(crate) fn submitted(&mut self, last: Csn) {
        assert!(self.in_flight.is_empty(), "a pair has at most one batch in flight");
        std::mem::swap(&mut self.in_flight, &mut self.filling);
        self.in_flight_last = last;
    }

    /// Everything up to `visible` may be seen: what waited for it goes to `ready`.
    pub(crate) fn raise(&mut self, visible: Csn, ready: &mut ReplyList) {
        self.visible = self.visible.max(visible);
        if self.visible >= self.in_flight_last {
            ready.append(&mut self.in_flight);
            self.in_flight_last = self.visible;
        }
        // A submission that waited for a rotation takes along what was appended meanwhile.
        if self.visible >= self.filling_last {
            ready.append(&mut self.filling);
        }
    }

    /// See [`ReplyList::trim`].
    pub(crate) fn trim(&mut self) {
        self.in_flight.trim();
        self.filling.trim();
    }

    /// Replies that wait for the log.
    pub(crate) fn len(&self) -> usize {
        self.in_flight.len() + self.filling.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Outbox {
        held: Held,
        ready: ReplyList,
    }

    fn outbox(visible: u64) -> Outbox {
        Outbox { held: Held::new(Csn(visible)), ready: ReplyList::default() }
    }

    impl Outbox {
        fn push(&mut self, csn: u64, name: &str) {
            let list = self.held.list(Csn(csn), &mut self.ready);
            list.push(ConnectionId::from_number(1), PairAt(0), Arrival::default(), |bytes| {
                bytes.extend_from_slice(name.as_bytes());
            });
        }

        fn raise(&mut self, visible: u64) {
            self.held.raise(Csn(visible), &mut self.ready);
        }

        fn ready(&self) -> Vec<String> {
            self.ready.iter().map(|(_, reply)| String::from_utf8(reply.to_vec()).unwrap()).collect()
        }
    }

    #[test]
    fn reply_above_the_watermark_waits_for_its_batch() {
        let mut outbox = outbox(10);
        outbox.push(10, "old");
        outbox.push(12, "first");
        outbox.held.submitted(Csn(12));
        outbox.push(11, "reads-in-flight");
        outbox.push(14, "second");
        assert_eq!(outbox.ready(), ["old"]);
        outbox.ready.clear();
        outbox.raise(12);
        assert_eq!(outbox.ready(), ["first", "reads-in-flight"]);
        outbox.ready.clear();
        assert_eq!(outbox.held.len(), 1);
        outbox.held.submitted(Csn(14));
        outbox.raise(14);
        assert_eq!(outbox.ready(), ["second"]);
    }

    #[test]
    fn trim_keeps_what_was_needed_since_the_last_one() {
        let mut list = ReplyList::default();
        let push = |list: &mut ReplyList, count: usize| {
            let large = |bytes: &mut Vec<u8>| bytes.resize(bytes.len() + KEPT_BYTES, 7);
            let connection = ConnectionId::from_number(1);
            (0..count).for_each(|_| list.push(connection, PairAt(0), Arrival::default(), large));
        };
        push(&mut list, 8);
        list.clear();
        list.trim();
        assert!(list.bytes.capacity() >= 8 * KEPT_BYTES, "needed just now");
        push(&mut list, 2);
        list.trim();
        let kept = list.bytes.capacity();
        assert!((2 * KEPT_BYTES..4 * KEPT_BYTES).contains(&kept), "{kept}");
        assert!(list.iter().all(|(_, reply)| reply.iter().all(|byte| *byte == 7)));
        list.clear();
        list.trim();
        list.trim();
        assert_eq!(list.bytes.capacity(), 2 * KEPT_BYTES, "little is not worth it");
    }

    #[test]
    fn raise_past_the_submitted_batch_releases_what_went_along() {
        let mut outbox = outbox(0);
        outbox.push(1, "submitted");
        outbox.held.submitted(Csn(1));
        outbox.push(2, "appended-during-rotation");
        outbox.push(3, "later");
        outbox.raise(2);
        assert_eq!(outbox.ready(), ["submitted"], "what depends on 3 holds back its list");
        outbox.raise(3);
        assert_eq!(outbox.ready(), ["submitted", "appended-during-rotation", "later"]);
    }

    #[test]
    fn raise_keeps_the_order_of_replies_that_are_ready() {
        let mut outbox = outbox(0);
        outbox.push(1, "a");
        outbox.held.submitted(Csn(1));
        outbox.push(0, "b");
        outbox.raise(1);
        assert_eq!(outbox.ready(), ["b", "a"]);
    }
}
