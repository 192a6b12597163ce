//! Messages through a queue pair. What is sent is one stream of bytes, messages with a length before each, as
//! over TCP; it goes in pieces, each into one of the slots that the other end holds ready.
//!
//! **Credits.** Each end says in its hello how many slots it holds ready. A piece takes one, and its sender
//! sends no more pieces than there are slots. The number beside each piece says how many slots its sender has
//! given out again since the last; where no piece goes for long, an empty one goes for the number's sake. For
//! those an end holds some slots more: at most `UNCOUNTED_SLOTS` of them are ever under way, because half of
//! all slots must be used anew for each.
//!
//! An acceptor sends nothing until the connector's first, empty piece is there: before the connector has read
//! the acceptor's hello its queue pair drops what comes.

use std::collections::VecDeque;

use crate::close::{CloseReason, QueuePairFailure};
use crate::queue_pair_end::QueuePairEnd;
use crate::tcp::{Input, Output, PREFIX_BYTES};

use super::error::VerbsError;
use super::memory::{Buffer, Span};
use super::operations::Operations;
use super::queue_pair::{QueuePair, QueueSizes};
use super::work::Work;

/// Bytes of a slot: what one piece carries.
pub(super) const SLOT_BYTES: usize = 4_096;
/// Slots in each direction that are counted by credits.
const SLOTS: usize = 16;
/// Slots for empty pieces: two that say what was given out again, and the connector's first.
const UNCOUNTED_SLOTS: usize = 3;
/// Empty pieces of this end that may be under way.
const EMPTY_MAX: usize = 4;
/// Operations that the device has at a time.
pub(super) const OPERATIONS_AT_DEVICE: usize = 128;
/// Of so many pieces one signals its end, and of so many operations of a chain. Each that does wakes who
/// sleeps.
const PIECES_SIGNALLED: usize = SLOTS / 2;
const OPERATIONS_SIGNALLED: usize = 16;

/// Bytes that one read of slots needs room for in the endpoint's scratch buffer.
pub(super) const SCRATCH_BYTES: usize = SLOT_BYTES + PREFIX_BYTES;

/// What a request was, in the order in which they were posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// A piece, from this slot.
    Piece(usize),
    Empty,
    Operation,
}

/// The queue pair of one connection, and what is under way on it.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) pair: QueuePair,
    /// Posted and not known to have ended; the number of the first.
    posted: VecDeque<Request>,
    posted_first: u32,
    work_max: usize,
    /// Slots of this end's pieces that are free.
    free: Vec<usize>,
    /// The peer's slots that are free.
    credits: usize,
    piece_bytes: usize,
    /// Slots that were given out again and not reported.
    owed: usize,
    empty_posted: usize,
    /// Requests posted since the last one that signals its end.
    unsignalled: usize,
    /// The peer is ready for what this end sends.
    ready: bool,
    /// Pieces that came and were not looked at: slots and bytes.
    arrived: VecDeque<(u32, usize)>,
    /// Slots that were looked at, to be given out again.
    used: Vec<u32>,
    /// Why the device gave the queue pair up, once it has.
    failed: Option<CloseReason>,
    /// Work has failed: nothing that was posted after it is done.
    work_failed: bool,
}

impl Channel {
    /// How much the queue pair of an end holds.
    pub(super) fn sizes(connector: bool, requests_max: usize) -> QueueSizes {
        let operations = if connector { OPERATIONS_AT_DEVICE } else { 0 };
        QueueSizes {
            work: (SLOTS + EMPTY_MAX + operations).min(requests_max),
            incoming: SLOTS + UNCOUNTED_SLOTS,
            slots_bytes: (2 * SLOTS + UNCOUNTED_SLOTS) * SLOT_BYTES,
        }
    }

    /// A channel whose slots are at the device, and whose peer is not known yet.
    ///
    /// # Errors
    /// The queue pair takes no slots.
    pub(super) fn new(mut pair: QueuePair, sizes: QueueSizes) -> Result<Channel, VerbsError> {
        pair.post_slots((0..).take(sizes.incoming).map(|slot| (slot, incoming_slot(slot))))?;
        Ok(Channel {
            pair,
            posted: VecDeque::with_capacity(sizes.work),
            posted_first: 0,
            work_max: sizes.work,
            free: (0..SLOTS).collect(),
            credits: 0,
            piece_bytes: SLOT_BYTES,
            owed: 0,
            empty_posted: 0,
            unsignalled: 0,
            ready: false,
            arrived: VecDeque::with_capacity(sizes.incoming),
            used: Vec::with_capacity(sizes.incoming),
            failed: None,
            work_failed: false,
        })
    }

    /// What is sent to the peer.
    pub(super) fn end(&self) -> QueuePairEnd {
        self.pair.end(u16::try_from(SLOTS).unwrap_or(0), u32::try_from(SLOT_BYTES).unwrap_or(0))
    }

    /// Connects it to the peer's. A connector says at once that it is there.
    ///
    /// # Errors
    /// The device does not reach that peer.
    pub(super) fn connect(&mut self, peer: &QueuePairEnd, connector: bool) -> Result<(), VerbsError> {
        self.pair.connect(peer)?;
        self.credits = usize::from(peer.slots);
        let peers_bytes = usize::try_from(peer.slot_bytes).unwrap_or(SLOT_BYTES);
        self.piece_bytes = SLOT_BYTES.min(peers_bytes);
        if connector {
            self.ready = true;
            self.send_empty(false);
            self.pair.ring()?;
        }
        Ok(())
    }

    /// Makes the memory that operations land in, if some wait for it.
    pub(super) fn prepare_landing(&mut self, operations: &mut Operations) {
        let QueuePair { landing, slots, .. } = &mut self.pair;
        operations.prepare_landing(landing, |bytes| Buffer::new(slots.device(), bytes));
    }

    fn has_work_room(&self) -> bool {
        self.posted.len() < self.work_max
    }

    /// Whether a piece could go now.
    pub(super) fn can_send(&self) -> bool {
        self.ready && self.credits > 0 && !self.free.is_empty() && self.has_work_room()
    }

    /// Whether all that was sent has reached the peer's device.
    pub(super) fn is_settled(&self) -> bool {
        self.posted.is_empty()
    }

    /// Whether the peer waits for slots.
    pub(super) fn owes(&self) -> bool {
        self.ready && self.owed >= SLOTS / 2
    }

    /// Hands output and operations to the device, as far as there is room, and rings once. Returns the bytes
    /// of output that went.
    ///
    /// # Errors
    /// The queue pair is broken.
    pub(super) fn flush(
        &mut self,
        output: &mut Output,
        operations: &mut Operations,
    ) -> Result<usize, VerbsError> {
        let mut bytes = 0;
        while output.pending() > 0 && self.can_send() {
            let piece = output.waiting();
            let piece = &piece[..piece.len().min(self.piece_bytes)];
            let count = piece.len();
            self.send_piece(piece);
            output.take(count);
            bytes += count;
        }
        if output.pending() == 0 {
            output.clear();
        }
        if self.owes() && self.empty_posted < EMPTY_MAX && self.has_work_room() {
            self.send_empty(false);
        }
        let mut chained = 0;
        while self.has_work_room()
            && let Some(work) = operations.next_work(&mut self.pair.landing)
        {
            chained += 1;
            self.post(&work, Request::Operation, chained % OPERATIONS_SIGNALLED == 0);
        }
        if chained > 0 {
            self.unsignalled = 0;
            self.pair.signal_last();
        }
        self.pair.ring()?;
        Ok(bytes)
    }

    fn send_piece(&mut self, piece: &[u8]) {
        let Some(slot) = self.free.pop() else { return };
        let from = Span { offset: outgoing_slot(slot), length: piece.len() };
        self.pair.slots.write(from.offset, piece);
        self.credits -= 1;
        let number = self.take_owed();
        let signalled = self.unsignalled + 1 >= PIECES_SIGNALLED;
        self.post(&Work::Send { from, number }, Request::Piece(slot), signalled);
    }

    fn send_empty(&mut self, signalled: bool) {
        let number = self.take_owed();
        self.empty_posted += 1;
        // An end that only receives posts nothing else, and must be notified that it may go on.
        let signalled = signalled || self.empty_posted >= EMPTY_MAX / 2;
        self.post(&Work::Send { from: Span::default(), number }, Request::Empty, signalled);
    }

    fn post(&mut self, work: &Work, request: Request, signalled: bool) {
        self.pair.chain(work, signalled);
        self.unsignalled = if signalled { 0 } else { self.unsignalled + 1 };
        self.posted.push_back(request);
    }

    /// Sees to it that the device signals when all that was posted has ended. False if it has.
    pub(super) fn settle(&mut self) -> bool {
        if self.unsignalled > 0 && self.empty_posted < EMPTY_MAX && self.has_work_room() {
            self.send_empty(true);
            return self.pair.ring().is_ok();
        }
        !self.is_settled()
    }

    fn take_owed(&mut self) -> u32 {
        u32::try_from(std::mem::take(&mut self.owed)).unwrap_or(0)
    }

    /// A piece has come into a slot. The slot of an empty one is given out again at once: a peer that takes a
    /// long answer sends one after the other, while this end may read nothing.
    ///
    /// # Errors
    /// The queue pair is broken.
    pub(super) fn arrive(&mut self, slot: u32, length: usize, number: u32) -> Result<(), VerbsError> {
        self.ready = true;
        if length > 0 {
            self.arrived.push_back((slot, length));
        } else {
            self.pair.post_slots(std::iter::once((slot, incoming_slot(slot))))?;
        }
        self.credits += usize::try_from(number).unwrap_or(0);
        Ok(())
    }

    /// Whether something came that was not looked at.
    pub(super) fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Looks at the next piece that came; its bytes, or none if there is none.
    pub(super) fn next_arrived(&mut self) -> Option<&[u8]> {
        let (slot, length) = self.arrived.pop_front()?;
        self.used.push(slot);
        self.owed += 1;
        Some(self.pair.slots.bytes(Span { length, ..incoming_slot(slot) }))
    }

    /// Gives out again what was looked at.
    ///
    /// # Errors
    /// The queue pair is broken.
    pub(super) fn give_out(&mut self) -> Result<(), VerbsError> {
        self.pair.post_slots(self.used.drain(..).map(|slot| (slot, incoming_slot(slot))))
    }

    /// Work has ended, and with it all that was posted before it: says of each operation among them that it
    /// is done.
    pub(super) fn ended(&mut self, number: u32, mut operation_done: impl FnMut(&QueuePair)) {
        while number.wrapping_sub(self.posted_first) < u32::MAX / 2
            && let Some(request) = self.posted.pop_front()
        {
            self.posted_first = self.posted_first.wrapping_add(1);
            match request {
                Request::Piece(slot) => self.free.push(slot),
                Request::Empty => self.empty_posted -= 1,
                Request::Operation => operation_done(&self.pair),
            }
        }
    }

    /// The device gave the queue pair up; what says nothing of the reason leaves a better one as it is.
    pub(super) fn fail(&mut self, failure: Option<QueuePairFailure>) {
        let flushed = CloseReason::QueuePair(QueuePairFailure::Flushed);
        match failure {
            Some(failure) if self.failed.is_none_or(|known| known == flushed) => {
                self.failed = Some(CloseReason::QueuePair(failure));
            }
            _ => self.failed = self.failed.or(Some(flushed)),
        }
    }

    /// Nothing can be done with the queue pair any more.
    pub(super) fn break_off(&mut self, reason: CloseReason) {
        self.failed.get_or_insert(reason);
    }

    /// Notes that work has failed; whether it is the first.
    pub(super) fn is_first_failure(&mut self) -> bool {
        !std::mem::replace(&mut self.work_failed, true)
    }

    /// Why the device gave the queue pair up, if it has.
    pub(super) fn failure(&self) -> Option<CloseReason> {
        self.failed
    }

    /// Whether that work is an operation; what was posted before it has ended.
    pub(super) fn is_operation(&self, number: u32) -> bool {
        let at = usize::try_from(number.wrapping_sub(self.posted_first)).unwrap_or(usize::MAX);
        self.posted.get(at) == Some(&Request::Operation)
    }
}

/// Feeds a piece to what puts messages together.
///
/// # Errors
/// As for [`Input::receive`].
pub(super) fn take_piece(
    input: &mut Input,
    piece: &[u8],
    scratch: &mut [u8],
    max: usize,
    sink: &mut dyn FnMut(&[u8]),
) -> Result<(), CloseReason> {
    let read = |slices: &mut [std::io::IoSliceMut<'_>]| {
        let mut rest = piece;
        for slice in slices {
            let count = slice.len().min(rest.len());
            slice[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
        }
        Ok(piece.len() - rest.len())
    };
    input.receive(scratch, max, read, sink).map(|_| ())
}

fn incoming_slot(slot: u32) -> Span {
    let slot = usize::try_from(slot).unwrap_or(usize::MAX);
    Span { offset: slot * SLOT_BYTES, length: SLOT_BYTES }
}

fn outgoing_slot(slot: usize) -> usize {
    (SLOTS + UNCOUNTED_SLOTS + slot) * SLOT_BYTES
}
