//! The operations that a client holds: one slot each, reused with its buffers; and the completions that
//! wait to be taken.
//!
//! A request id names the slot and the attempt, `attempt << 16 | slot`, so a reply finds its operation
//! without a search and a reply to an earlier attempt, or to an operation that is gone, finds none.
//!
//! The `slotmap` crate drops what a slot held, buffers included, so that taking and freeing one would take
//! 94 ns in place of 12; and its keys count the uses of a slot, where a request id counts attempts.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use cell_protocol::{Refusal, RequestId, RequestKind};
use cell_terms::{OperationNumber, SessionId};
use cell_tree::Aim;

use crate::error::AttemptError;
use crate::join::Join;
use crate::link_id::LinkId;
use crate::onesided::BatchedRead;
use crate::operation::{KeySpan, OperationSlot, Prepared, RoutingKey, encode_keys};
use crate::stream::{Download, Upload};
use crate::{ClientError, Completion, Operation, Output, Ticket};

/// No operation has this slot: requests of the client's own (hello, sessions, signs of life).
pub(crate) const SLOT_OF_CONTROL: OperationSlot = OperationSlot::MAX;

const SLOT_BITS: u32 = OperationSlot::BITS;

/// Larger buffers are given back when their operation ends.
const BUFFER_KEPT_BYTES: usize = 4096;

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingState {
    /// The slot is free.
    Free,
    /// In the list of those to be sent.
    Ready,
    /// A write that waits for a session.
    WaitsForSession,
    /// A streamed put that waits for another one to end.
    WaitsForStream,
    /// Refused for now; goes on at this time.
    BacksOff { due_ns: u64 },
    /// On its way; an answer is due.
    Sent,
    /// A read that the client does itself: see `onesided`.
    OneSided,
    /// A multi-get over several nodes, whose parts are under way.
    Joins,
}

#[derive(Debug)]
pub(crate) struct PendingOperation {
    pub(crate) ticket: Ticket,
    pub(crate) state: PendingState,
    pub(crate) kind: RequestKind,
    routing_key: RoutingKey,
    /// Where the keys of a multi-get stand in the encoded request.
    keys: Vec<KeySpan>,
    /// By which connection it goes.
    pub(crate) link: LinkId,
    /// Hints followed since its last wait.
    pub(crate) hops: u8,
    /// Of which operation it is which part.
    pub(crate) part_of: Option<(OperationSlot, u16)>,
    /// What its parts have found.
    pub(crate) join: Option<Box<Join>>,
    /// The encoded request; id and name are stamped in with each attempt.
    pub(crate) message: Vec<u8>,
    /// The value of a streamed put.
    pub(crate) value: Vec<u8>,
    /// The current attempt.
    pub(crate) id: RequestId,
    /// A write's name, from its first attempt on.
    pub(crate) name: Option<(SessionId, OperationNumber)>,
    /// A copy was sent whose answer never came.
    pub(crate) fate_open: bool,
    /// Times that it was sent, hints that were followed at once not counted.
    pub(crate) attempts: u32,
    /// Times that it was backed off.
    pub(crate) backoffs: u32,
    pub(crate) submitted_ns: u64,
    /// Before the current attempt left.
    pub(crate) sent_ns: u64,
    pub(crate) deadline_ns: u64,
    pub(crate) last: Option<AttemptError>,
    pub(crate) upload: Option<Upload>,
    pub(crate) download: Option<Download>,
}

impl PendingOperation {
    fn free() -> PendingOperation {
        PendingOperation {
            ticket: Ticket(0),
            state: PendingState::Free,
            kind: RequestKind::Status,
            routing_key: RoutingKey::Node,
            keys: Vec::new(),
            link: LinkId::BOOTSTRAP,
            hops: 0,
            part_of: None,
            join: None,
            message: Vec::new(),
            value: Vec::new(),
            id: RequestId(0),
            name: None,
            fate_open: false,
            attempts: 0,
            backoffs: 0,
            submitted_ns: 0,
            sent_ns: 0,
            deadline_ns: 0,
            last: None,
            upload: None,
            download: None,
        }
    }

    /// The keys of a multi-get, in order.
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.keys.iter().map(|&span| self.key(span))
    }

    fn key(&self, (begin, end): KeySpan) -> &[u8] {
        self.message.get(begin as usize..end as usize).unwrap_or_default()
    }

    /// Which keys it is about; none if it is about a node, or about many keys.
    pub(crate) fn aim(&self) -> Option<Aim<'_>> {
        match self.routing_key {
            RoutingKey::Node | RoutingKey::Many => None,
            RoutingKey::First => Some(Aim::First),
            RoutingKey::At(span) => Some(Aim::At(self.key(span))),
            RoutingKey::Below(span) => Some(Aim::Below(self.key(span))),
            RoutingKey::Last => Some(Aim::Last),
        }
    }

    /// Whether it stays with the node that it was for.
    pub(crate) fn is_about_node(&self) -> bool {
        self.routing_key == RoutingKey::Node
    }

    /// Whether it backs off until a node owns its keys.
    pub(crate) fn waits_for_owner(&self) -> bool {
        let is_for_owner = match self.last {
            Some(AttemptError::Refused(refusal)) => {
                matches!(refusal, Refusal::NotOwner | Refusal::Recovering | Refusal::Shutdown)
            }
            Some(_) => true,
            None => self.attempts == 0,
        };
        is_for_owner && matches!(self.state, PendingState::BacksOff { .. })
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self.kind, RequestKind::Put | RequestKind::Delete | RequestKind::PutBegin)
    }

    /// A check may take longer than any silence; nothing else may.
    pub(crate) fn is_prompt(&self) -> bool {
        self.kind != RequestKind::Check
    }

    /// The error of giving up, at a deadline or after the last retry.
    pub(crate) fn given_up(&self, now_ns: u64) -> ClientError {
        let waited_ms = now_ns.saturating_sub(self.submitted_ns) / 1_000_000;
        let in_the_air = self.is_write() && (self.fate_open || self.state == PendingState::Sent);
        if in_the_air {
            return ClientError::Unknown { waited_ms, last: self.last };
        }
        match self.last {
            Some(AttemptError::Refused(refusal)) if now_ns < self.deadline_ns => {
                ClientError::Refused(refusal)
            }
            last => ClientError::Deadline { waited_ms, last },
        }
    }
}

/// The table of operations.
#[derive(Debug)]
pub(crate) struct PendingTable {
    slots: Vec<PendingOperation>,
    free: Vec<OperationSlot>,
    /// Slots that hold parts of operations.
    parts: usize,
    /// Slots that hold writes.
    writes: usize,
    /// Reads that have no slot yet: see [`PendingTable::begin_batched`].
    batched: usize,
    max: usize,
    attempt: u64,
    /// Waits that were started, the earliest first, each with its slot. One that its operation has left since
    /// is passed over when its time comes, so that nothing searches through all slots for each wait that
    /// ends.
    waits: BinaryHeap<Reverse<(u64, OperationSlot)>>,
    /// No operation has its deadline before this time; it may be too early, never too late.
    deadline_ns: u64,
    completions: VecDeque<Completion>,
    next_ticket: u64,
}

impl PendingTable {
    pub(crate) fn new(max: usize) -> PendingTable {
        let mut table = PendingTable {
            slots: Vec::new(),
            free: Vec::new(),
            parts: 0,
            writes: 0,
            batched: 0,
            max: 0,
            attempt: 0,
            waits: BinaryHeap::new(),
            deadline_ns: u64::MAX,
            completions: VecDeque::new(),
            next_ticket: 1,
        };
        table.set_max(max);
        table
    }

    /// Takes so many operations in from now on. Those that it holds stay.
    pub(crate) fn set_max(&mut self, max: usize) {
        self.max = max.min(usize::from(SLOT_OF_CONTROL));
    }

    /// Operations, parts of others not counted.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len() - self.parts + self.batched
    }

    /// Operations of [`PendingTable::len`] that read.
    pub(crate) fn reads(&self) -> usize {
        self.len() - self.writes
    }

    /// Whether one more operation may be taken in; completions that were not taken count.
    pub(crate) fn admit(&self) -> Result<(), ClientError> {
        if self.len() + self.completions.len() >= self.max {
            return Err(ClientError::QueueFull { max: self.max });
        }
        Ok(())
    }

    /// Takes an operation in that was admitted, ready to be sent.
    pub(crate) fn begin(
        &mut self,
        operation: &Operation<'_>,
        submitted_ns: u64,
        deadline_ns: u64,
    ) -> Result<OperationSlot, ClientError> {
        let ticket = Ticket(self.next_ticket);
        let slot = self.begin_as(ticket, operation, (submitted_ns, deadline_ns))?;
        self.next_ticket += 1;
        Ok(slot)
    }

    /// Takes a read in that was admitted and has no slot as long as it can be answered without.
    pub(crate) fn begin_batched(&mut self) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.batched += 1;
        ticket
    }

    /// Notes the end of one that has had no slot.
    pub(crate) fn finish_batched(
        &mut self,
        read: &BatchedRead,
        now_ns: u64,
        outcome: Result<Output, ClientError>,
    ) {
        self.batched -= 1;
        self.complete(read.ticket, read.submitted_ns, now_ns, outcome);
    }

    /// One of them needs a slot after all; ready to be sent.
    pub(crate) fn give_slot(
        &mut self,
        read: &BatchedRead,
        operation: &Operation<'_>,
    ) -> Result<OperationSlot, ClientError> {
        let slot = self.begin_as(read.ticket, operation, (read.submitted_ns, read.deadline_ns))?;
        self.batched -= 1;
        Ok(slot)
    }

    fn begin_as(
        &mut self,
        ticket: Ticket,
        operation: &Operation<'_>,
        (submitted_ns, deadline_ns): (u64, u64),
    ) -> Result<OperationSlot, ClientError> {
        let slot = self.take_slot().ok_or(ClientError::QueueFull { max: self.max })?;
        let pending = &mut self.slots[usize::from(slot)];
        let PendingOperation { message, value, keys, .. } = pending;
        let prepared = match operation.prepare(message, value, keys) {
            Ok(prepared) => prepared,
            Err(error) => {
                self.free.push(slot);
                return Err(error.into());
            }
        };
        let Prepared { kind, routing_key } = prepared;
        (pending.ticket, pending.state) = (ticket, PendingState::Ready);
        (pending.kind, pending.routing_key) = (kind, routing_key);
        (pending.submitted_ns, pending.deadline_ns) = (submitted_ns, deadline_ns);
        self.writes += usize::from(pending.is_write());
        self.deadline_ns = self.deadline_ns.min(deadline_ns);
        Ok(slot)
    }

    /// Takes the parts of a multi-get in, ready to be sent, each for its connection. None, and nothing is
    /// changed, if there are not enough slots.
    pub(crate) fn begin_parts(&mut self, whole: OperationSlot, join: Join) -> Option<Vec<OperationSlot>> {
        let mut slots = Vec::with_capacity(join.links().len());
        for (part, &link) in join.links().iter().enumerate() {
            match self.begin_part(whole, &join, part, link) {
                Some(slot) => slots.push(slot),
                None => {
                    slots.into_iter().for_each(|slot| self.end(slot));
                    return None;
                }
            }
        }
        let pending = self.get_mut(whole);
        pending.state = PendingState::Joins;
        pending.join = Some(Box::new(join));
        Some(slots)
    }

    fn begin_part(
        &mut self,
        whole: OperationSlot,
        join: &Join,
        part: usize,
        link: LinkId,
    ) -> Option<OperationSlot> {
        let of_whole = self.get(whole);
        let (mut message, mut keys) = (Vec::new(), Vec::new());
        let of_part = of_whole.keys().enumerate().filter(|(at, _)| join.has_key(part, *at));
        encode_keys(of_part.map(|(_, key)| key), &mut message, &mut keys).ok()?;
        let pending = PendingOperation {
            ticket: of_whole.ticket,
            state: PendingState::Ready,
            kind: RequestKind::MultiGet,
            routing_key: RoutingKey::Many,
            keys,
            link,
            part_of: Some((whole, u16::try_from(part).ok()?)),
            message,
            submitted_ns: of_whole.submitted_ns,
            deadline_ns: of_whole.deadline_ns,
            ..PendingOperation::free()
        };
        // Parts leave a slot for each read that may still need one.
        let slots_left = usize::from(SLOT_OF_CONTROL) - self.slots.len() + self.free.len();
        let slot = if slots_left > self.batched { self.take_slot()? } else { return None };
        self.slots[usize::from(slot)] = pending;
        self.parts += 1;
        Some(slot)
    }

    fn take_slot(&mut self) -> Option<OperationSlot> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = OperationSlot::try_from(self.slots.len()).ok().filter(|&slot| slot < SLOT_OF_CONTROL)?;
        self.slots.push(PendingOperation::free());
        Some(slot)
    }

    /// Notes an operation's end, and frees its slot. Of a part of a multi-get: the whole, the part's number,
    /// and the outcome, which is the caller's to join.
    pub(crate) fn finish(
        &mut self,
        slot: OperationSlot,
        now_ns: u64,
        outcome: Result<Output, ClientError>,
    ) -> Option<(OperationSlot, u16, Result<Output, ClientError>)> {
        let PendingOperation { ticket, submitted_ns, part_of, .. } = *self.get(slot);
        self.end(slot);
        if let Some((whole, part)) = part_of {
            return Some((whole, part, outcome));
        }
        self.complete(ticket, submitted_ns, now_ns, outcome);
        None
    }

    fn complete(
        &mut self,
        ticket: Ticket,
        submitted_ns: u64,
        now_ns: u64,
        outcome: Result<Output, ClientError>,
    ) {
        let elapsed_ns = now_ns.saturating_sub(submitted_ns);
        self.completions.push_back(Completion { ticket, elapsed_ns, outcome });
    }

    /// The next completion, in the order in which they came about.
    pub(crate) fn pop_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// The completion of one operation, if it is there.
    pub(crate) fn completion_of(&mut self, ticket: Ticket) -> Option<Completion> {
        let index = self.completions.iter().position(|completion| completion.ticket == ticket)?;
        self.completions.remove(index)
    }

    /// Completions that wait to be taken.
    pub(crate) fn completions(&self) -> usize {
        self.completions.len()
    }

    /// Frees an operation's slot: as good as new, but for its buffers and what [`PendingTable::begin`] sets.
    pub(crate) fn end(&mut self, slot: OperationSlot) {
        let pending = &mut self.slots[usize::from(slot)];
        debug_assert_ne!(pending.state, PendingState::Free, "a slot is freed once");
        if pending.state == PendingState::Free {
            return; // twice in the list of free ones it would go to two operations
        }
        self.writes -= usize::from(pending.is_write());
        (pending.state, pending.id, pending.name) = (PendingState::Free, RequestId(0), None);
        (pending.link, pending.hops) = (LinkId::BOOTSTRAP, 0);
        (pending.attempts, pending.backoffs) = (0, 0);
        (pending.fate_open, pending.last) = (false, None);
        (pending.upload, pending.download) = (None, None);
        if pending.join.is_some() || pending.part_of.is_some() {
            pending.join = None;
            self.parts -= usize::from(pending.part_of.take().is_some());
        }
        for buffer in [&mut pending.message, &mut pending.value] {
            if buffer.capacity() > BUFFER_KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
        self.free.push(slot);
        if self.len() == 0 {
            self.deadline_ns = u64::MAX;
            self.waits.clear();
        }
    }

    /// An id for the next attempt at a slot.
    pub(crate) fn next_id(&mut self, slot: OperationSlot) -> RequestId {
        self.attempt += 1;
        RequestId(self.attempt << SLOT_BITS | u64::from(slot))
    }

    /// The operation that waits for a reply to this id.
    pub(crate) fn waiting_for(&self, id: RequestId) -> Option<OperationSlot> {
        let slot = OperationSlot::try_from(id.0 & u64::from(OperationSlot::MAX)).ok()?;
        let pending = self.slots.get(usize::from(slot))?;
        (pending.state == PendingState::Sent && pending.id == id).then_some(slot)
    }

    pub(crate) fn get(&self, slot: OperationSlot) -> &PendingOperation {
        &self.slots[usize::from(slot)]
    }

    pub(crate) fn get_mut(&mut self, slot: OperationSlot) -> &mut PendingOperation {
        &mut self.slots[usize::from(slot)]
    }

    /// Lets an operation rest until a time.
    pub(crate) fn back_off(&mut self, slot: OperationSlot, due_ns: u64) {
        self.get_mut(slot).state = PendingState::BacksOff { due_ns };
        self.waits.push(Reverse((due_ns, slot)));
    }

    /// Ends waits that have started at the latest when `latest_ns` says for each.
    pub(crate) fn shorten_waits(&mut self, mut latest_ns: impl FnMut(&PendingOperation) -> u64) {
        for (slot, pending) in (0..=OperationSlot::MAX).zip(&mut self.slots) {
            let PendingState::BacksOff { due_ns } = pending.state else { continue };
            let sooner_ns = latest_ns(pending);
            if sooner_ns < due_ns {
                pending.state = PendingState::BacksOff { due_ns: sooner_ns };
                self.waits.push(Reverse((sooner_ns, slot)));
            }
        }
    }

    /// No operation has anything due before this time; it may be too early, never too late.
    pub(crate) fn due_ns(&self) -> u64 {
        let wait_ns = self.waits.peek().map_or(u64::MAX, |&Reverse((due_ns, _))| due_ns);
        wait_ns.min(self.deadline_ns)
    }

    /// The slots of all operations for which something is due, in the order of their tickets, into `due`.
    /// Waits that are over are forgotten: the caller ends or sends each operation that it is given.
    pub(crate) fn collect_due(&mut self, now_ns: u64, due: &mut Vec<OperationSlot>) {
        due.clear();
        if now_ns >= self.deadline_ns {
            self.collect(due, |pending| pending.deadline_ns <= now_ns);
            let held = self.slots.iter().filter(|pending| pending.state != PendingState::Free);
            let later = held.map(|pending| pending.deadline_ns).filter(|&deadline_ns| deadline_ns > now_ns);
            self.deadline_ns = later.min().unwrap_or(u64::MAX);
        }
        while let Some(&Reverse((due_ns, slot))) = self.waits.peek()
            && due_ns <= now_ns
        {
            self.waits.pop();
            if self.get(slot).state == (PendingState::BacksOff { due_ns }) {
                due.push(slot);
            }
        }
        due.sort_unstable_by_key(|&slot| (self.get(slot).ticket, slot));
        due.dedup();
    }

    /// The slot of an operation that has one; parts of others are none.
    pub(crate) fn find(&self, ticket: Ticket) -> Option<OperationSlot> {
        let is_it = |pending: &PendingOperation| {
            pending.ticket == ticket && pending.part_of.is_none() && pending.state != PendingState::Free
        };
        OperationSlot::try_from(self.slots.iter().position(is_it)?).ok()
    }

    /// Whether there is such an operation.
    pub(crate) fn any(&self, wanted: impl Fn(&PendingOperation) -> bool) -> bool {
        self.slots.iter().any(|pending| pending.state != PendingState::Free && wanted(pending))
    }

    /// The slots of all operations of a kind, in the order of their tickets, into `found`.
    pub(crate) fn collect(&self, found: &mut Vec<OperationSlot>, wanted: impl Fn(&PendingOperation) -> bool) {
        found.clear();
        let slots = (0..=OperationSlot::MAX).zip(&self.slots);
        let wanted = slots.filter(|(_, pending)| pending.state != PendingState::Free && wanted(pending));
        found.extend(wanted.map(|(slot, _)| slot));
        found.sort_by_key(|&slot| self.get(slot).ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(pending: &mut PendingTable, deadline_ns: u64) -> Result<OperationSlot, ClientError> {
        pending.admit()?;
        pending.begin(&Operation::Get { key: b"key" }, 0, deadline_ns)
    }

    #[test]
    fn waiting_for_an_earlier_attempt_finds_nothing() {
        let mut pending = PendingTable::new(2);
        let slot = begin(&mut pending, 10).unwrap();
        let first = pending.next_id(slot);
        let second = pending.next_id(slot);
        pending.get_mut(slot).id = second;
        assert_eq!(pending.waiting_for(second), None, "not sent yet");
        pending.get_mut(slot).state = PendingState::Sent;
        assert_eq!(pending.waiting_for(second), Some(slot));
        assert_eq!(pending.waiting_for(first), None);
        assert_eq!(pending.waiting_for(RequestId(u64::MAX)), None);
        pending.end(slot);
        assert_eq!(pending.waiting_for(second), None);
    }

    #[test]
    fn begin_past_the_limit_is_refused_and_a_freed_slot_is_reused() {
        let mut pending = PendingTable::new(2);
        begin(&mut pending, 10).unwrap();
        let second = begin(&mut pending, 10).unwrap();
        assert!(matches!(begin(&mut pending, 10), Err(ClientError::QueueFull { max: 2 })));
        pending.end(second);
        assert_eq!(begin(&mut pending, 10).unwrap(), second);
        assert_eq!(pending.len(), 2);
    }

    #[test]
    fn begin_unsendable_operation_leaves_no_trace() {
        let mut pending = PendingTable::new(1);
        let key = vec![0; 5000];
        let refused = pending.begin(&Operation::Get { key: &key }, 0, 10);
        assert!(matches!(refused, Err(ClientError::Unsendable(_))));
        assert_eq!(pending.len(), 0);
        begin(&mut pending, 10).unwrap();
    }

    #[test]
    fn collect_due_finds_deadlines_and_waits_in_ticket_order() {
        let mut pending = PendingTable::new(10);
        let freed = begin(&mut pending, 10).unwrap();
        let early = begin(&mut pending, 100).unwrap();
        begin(&mut pending, 1000).unwrap();
        pending.end(freed);
        let late = begin(&mut pending, 100).unwrap();
        assert!(late < early, "its slot is the lower one");
        let mut due = Vec::new();
        pending.collect_due(99, &mut due);
        assert!(due.is_empty());
        pending.back_off(late, 50);
        assert_eq!(pending.due_ns(), 50);
        pending.collect_due(100, &mut due);
        assert_eq!(due, [early, late]);
        due.iter().for_each(|&slot| pending.end(slot));
        assert_eq!(pending.due_ns(), 1000);
    }

    #[test]
    fn begin_parts_leaves_a_slot_for_each_batched_read() {
        let mut pending = PendingTable::new(usize::MAX);
        let keys: [&[u8]; 2] = [b"a", b"b"];
        let whole = pending.begin(&Operation::MultiGet { keys: &keys }, 0, 1).unwrap();
        let held: Vec<_> = std::iter::from_fn(|| begin(&mut pending, 1).ok()).collect();
        pending.end(held[0]);
        pending.end(held[1]);
        assert_eq!(pending.len(), usize::from(SLOT_OF_CONTROL) - 2);
        pending.begin_batched();
        assert_eq!(pending.len(), usize::from(SLOT_OF_CONTROL) - 1, "it counts as the others do");
        let join = || Join::new(&[LinkId::BOOTSTRAP, LinkId(1)]);
        assert!(pending.begin_parts(whole, join()).is_none());
        pending.end(held[2]);
        assert_eq!(pending.begin_parts(whole, join()).map(|parts| parts.len()), Some(2));
    }

    #[test]
    fn collect_due_passes_over_a_wait_that_was_left() {
        let mut pending = PendingTable::new(10);
        let [left, kept] = [(), ()].map(|()| begin(&mut pending, 1000).unwrap());
        pending.back_off(left, 50);
        pending.back_off(kept, 60);
        pending.get_mut(left).state = PendingState::Sent;
        pending.back_off(left, 70);
        let mut due = Vec::new();
        pending.collect_due(60, &mut due);
        assert_eq!(due, [kept], "the other one waits longer by now");
        pending.get_mut(kept).state = PendingState::Sent;
        assert_eq!(pending.due_ns(), 70);
        pending.collect_due(70, &mut due);
        assert_eq!(due, [left]);
        assert_eq!(pending.due_ns(), 1000);
    }
}
