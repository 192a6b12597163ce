//! Replies on their way out, and the ones that wait for the log.
//!
//! A reply that depends on a CSN above the watermark must not leave before a batch that covers it is durable:
//! an
//! acknowledgement, but just as well a read that saw the new entry, a failed condition, a delete that found
//! nothing.
//! Batches become durable in order, so two waiting lists are enough: one for the batch in flight, one for the
//! batch
//! that fills.

use cell_fabric::ConnectionId;
use cell_terms::Csn;

/// Replies in one arena, in order: no allocation a reply once the arena has grown.
#[derive(Debug, Default)]
pub struct ReplyList {
    bytes: Vec<u8>,
    ends: Vec<(ConnectionId, usize)>,
}

impl ReplyList {
    /// Appends a reply that `write` encodes.
    pub(crate) fn push(&mut self, connection: ConnectionId, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push((connection, self.bytes.len()));
    }

    /// Each reply with its connection, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ConnectionId, &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |(connection, end)| {
            let reply = &self.bytes[start..*end];
            start = *end;
            (*connection, reply)
        })
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Each reply's bytes, to be completed before they leave.
    pub(crate) fn for_each_mut(&mut self, mut complete: impl FnMut(&mut [u8])) {
        let mut start = 0;
        for (_, end) in &self.ends {
            complete(&mut self.bytes[start..*end]);
            start = *end;
        }
    }

    fn append(&mut self, other: &mut ReplyList) {
        if self.is_empty() {
            std::mem::swap(self, other);
            return;
        }
        let base = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|(connection, end)| (*connection, base + end)));
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

/// All replies of a worker that have not been handed to the fabric.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    ready: ReplyList,
    in_flight: ReplyList,
    filling: ReplyList,
    visible: Csn,
    in_flight_last: Csn,
    /// The highest CSN that a reply in `filling` depends on.
    filling_last: Csn,
}

impl Outbox {
    /// An outbox of a pair whose log is durable up to `visible`.
    pub(crate) fn new(visible: Csn) -> Outbox {
        Outbox { visible, in_flight_last: visible, ..Outbox::default() }
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

    /// The list for a reply that depends on `csn`.
    pub(crate) fn list(&mut self, csn: Csn) -> &mut ReplyList {
        match self.release(csn) {
            Release::Now => &mut self.ready,
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

    /// Everything up to `visible` may be seen.
    pub(crate) fn raise(&mut self, visible: Csn) {
        self.visible = self.visible.max(visible);
        if self.visible >= self.in_flight_last {
            self.ready.append(&mut self.in_flight);
            self.in_flight_last = self.visible;
        }
        // A submission that waited for a rotation takes along what was appended meanwhile.
        if self.visible >= self.filling_last {
            self.ready.append(&mut self.filling);
        }
    }

    /// Replies that may leave.
    pub(crate) fn ready(&self) -> &ReplyList {
        &self.ready
    }

    /// Replies that may leave, to be completed.
    pub(crate) fn ready_mut(&mut self) -> &mut ReplyList {
        &mut self.ready
    }

    /// Forgets the replies that have left.
    pub(crate) fn sent(&mut self) {
        self.ready.clear();
    }

    /// Replies that wait for the log.
    pub(crate) fn held(&self) -> usize {
        self.in_flight.len() + self.filling.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(outbox: &mut Outbox, csn: u64, name: &str) {
        outbox.list(Csn(csn)).push(connection(), |bytes| bytes.extend_from_slice(name.as_bytes()));
    }

    fn connection() -> ConnectionId {
        ConnectionId::from_number(1)
    }

    fn ready(outbox: &Outbox) -> Vec<String> {
        outbox.ready().iter().map(|(_, reply)| String::from_utf8(reply.to_vec()).unwrap()).collect()
    }

    #[test]
    fn reply_above_the_watermark_waits_for_its_batch() {
        let mut outbox = Outbox::new(Csn(10));
        push(&mut outbox, 10, "old");
        push(&mut outbox, 12, "first");
        outbox.submitted(Csn(12));
        push(&mut outbox, 11, "reads-in-flight");
        push(&mut outbox, 14, "second");
        assert_eq!(ready(&outbox), ["old"]);
        outbox.sent();
        outbox.raise(Csn(12));
        assert_eq!(ready(&outbox), ["first", "reads-in-flight"]);
        outbox.sent();
        assert_eq!(outbox.held(), 1);
        outbox.submitted(Csn(14));
        outbox.raise(Csn(14));
        assert_eq!(ready(&outbox), ["second"]);
    }

    #[test]
    fn raise_past_the_submitted_batch_releases_what_went_along() {
        let mut outbox = Outbox::new(Csn(0));
        push(&mut outbox, 1, "submitted");
        outbox.submitted(Csn(1));
        push(&mut outbox, 2, "appended-during-rotation");
        push(&mut outbox, 3, "later");
        outbox.raise(Csn(2));
        assert_eq!(ready(&outbox), ["submitted"], "what depends on 3 holds back its list");
        outbox.raise(Csn(3));
        assert_eq!(ready(&outbox), ["submitted", "appended-during-rotation", "later"]);
    }

    #[test]
    fn raise_keeps_the_order_of_replies_that_are_ready() {
        let mut outbox = Outbox::new(Csn(0));
        push(&mut outbox, 1, "a");
        outbox.submitted(Csn(1));
        push(&mut outbox, 0, "b");
        outbox.raise(Csn(1));
        assert_eq!(ready(&outbox), ["b", "a"]);
    }
}
