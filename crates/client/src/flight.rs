//! The operations that a client holds: one place each, reused with its buffers.
//!
//! A request id names the place and the attempt, `attempt << 16 | place`, so a reply finds its operation
//! without a search and a reply to an earlier attempt, or to an operation that is gone, finds none.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cell_protocol::{RequestId, RequestKind};
use cell_terms::{OperationNumber, SessionId};

use crate::error::Setback;
use crate::join::Join;
use crate::link::LinkId;
use crate::operation::Prepared;
use crate::stream::{Download, Upload};
use crate::{ClientError, Operation, Ticket};

/// A place in the table.
pub(crate) type Place = u16;

/// No operation has this place: requests of the client's own (hello, sessions, signs of life).
pub(crate) const PLACE_OF_CONTROL: Place = Place::MAX;

const PLACE_BITS: u32 = Place::BITS;

/// Larger buffers are given back when their operation ends.
const BUFFER_KEPT_BYTES: usize = 4096;

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The place is free.
    Free,
    /// In the list of those to be sent.
    Ready,
    /// A write that waits for a session.
    WaitsForSession,
    /// A streamed put that waits for another one to end.
    WaitsForStream,
    /// Refused for now; goes on at this time.
    BacksOff {
        /// When.
        due_ns: u64,
    },
    /// On its way; an answer is due.
    Sent,
    /// A read that the client does itself: see `onesided`.
    OneSided,
    /// A multi-get over several nodes, whose parts are under way.
    Joins,
}

/// An operation.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) ticket: Ticket,
    pub(crate) state: State,
    pub(crate) kind: RequestKind,
    pub(crate) keys: usize,
    /// Where the key stands in the encoded request, of an operation on one key.
    pub(crate) key: (u32, u32),
    /// By which connection it goes.
    pub(crate) link: LinkId,
    /// Hints followed since its last wait.
    pub(crate) hops: u8,
    /// Of which operation it is which part.
    pub(crate) part_of: Option<(Place, u16)>,
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
    pub(crate) attempts: u32,
    pub(crate) submitted_ns: u64,
    /// Before the current attempt left.
    pub(crate) sent_ns: u64,
    pub(crate) deadline_ns: u64,
    pub(crate) last: Option<Setback>,
    pub(crate) upload: Option<Upload>,
    pub(crate) download: Option<Download>,
}

impl Flight {
    fn free() -> Flight {
        Flight {
            ticket: Ticket(0),
            state: State::Free,
            kind: RequestKind::Status,
            keys: 0,
            key: (0, 0),
            link: LinkId::DOOR,
            hops: 0,
            part_of: None,
            join: None,
            message: Vec::new(),
            value: Vec::new(),
            id: RequestId(0),
            name: None,
            fate_open: false,
            attempts: 0,
            submitted_ns: 0,
            sent_ns: 0,
            deadline_ns: 0,
            last: None,
            upload: None,
            download: None,
        }
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self.kind, RequestKind::Put | RequestKind::Delete | RequestKind::PutBegin)
    }

    /// Whether a client can do it itself, with one-sided reads.
    pub(crate) fn is_one_sided(&self) -> bool {
        use RequestKind as K;
        matches!(self.kind, K::Get | K::Search | K::MultiGet | K::Scan)
    }

    /// A check may take longer than any silence; nothing else may.
    pub(crate) fn is_prompt(&self) -> bool {
        self.kind != RequestKind::Check
    }

    /// The earliest time at which something is to be done for it.
    pub(crate) fn due_ns(&self) -> u64 {
        match self.state {
            State::BacksOff { due_ns } => due_ns.min(self.deadline_ns),
            _ => self.deadline_ns,
        }
    }

    /// The error of giving up, at a deadline or after the last retry.
    pub(crate) fn given_up(&self, now_ns: u64) -> ClientError {
        let waited_ms = now_ns.saturating_sub(self.submitted_ns) / 1_000_000;
        let in_the_air = self.is_write() && (self.fate_open || self.state == State::Sent);
        if in_the_air {
            return ClientError::Unknown { waited_ms, last: self.last };
        }
        match self.last {
            Some(Setback::Refused(refusal)) if now_ns < self.deadline_ns => ClientError::Refused(refusal),
            last => ClientError::Deadline { waited_ms, last },
        }
    }
}

/// The table of operations.
#[derive(Debug)]
pub(crate) struct Flights {
    places: Vec<Flight>,
    free: Vec<Place>,
    /// Places that hold parts of operations.
    parts: usize,
    max: usize,
    attempt: u64,
    /// Waits that were begun, the earliest first, each with its place. One that its operation has left since
    /// is passed over when its time comes: nothing searches through all places for each wait that ends.
    waits: BinaryHeap<Reverse<(u64, Place)>>,
    /// No operation has its deadline before this time; it may be too early, never too late.
    deadline_ns: u64,
}

impl Flights {
    pub(crate) fn new(max: usize) -> Flights {
        let max = max.min(usize::from(PLACE_OF_CONTROL));
        let (places, free, waits) = (Vec::new(), Vec::new(), BinaryHeap::new());
        Flights { places, free, parts: 0, max, attempt: 0, waits, deadline_ns: u64::MAX }
    }

    /// Operations, parts of others not counted.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len() - self.parts
    }

    /// Takes an operation in, ready to be sent.
    pub(crate) fn begin(
        &mut self,
        ticket: Ticket,
        operation: &Operation<'_>,
        submitted_ns: u64,
        deadline_ns: u64,
    ) -> Result<Place, ClientError> {
        let place = self.take_place()?;
        let flight = &mut self.places[usize::from(place)];
        let prepared = match operation.prepare(&mut flight.message, &mut flight.value) {
            Ok(prepared) => prepared,
            Err(error) => {
                self.free.push(place);
                return Err(error.into());
            }
        };
        let Prepared { keys, kind, key } = prepared;
        (flight.ticket, flight.state) = (ticket, State::Ready);
        (flight.kind, flight.keys, flight.key) = (kind, keys, key);
        (flight.submitted_ns, flight.deadline_ns) = (submitted_ns, deadline_ns);
        self.deadline_ns = self.deadline_ns.min(deadline_ns);
        Ok(place)
    }

    /// Takes a part of an operation in; none if there is no place.
    pub(crate) fn begin_part(
        &mut self,
        whole: Place,
        part: u16,
        message: Vec<u8>,
        keys: usize,
    ) -> Option<Place> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                let place = Place::try_from(self.places.len()).ok().filter(|&at| at < PLACE_OF_CONTROL)?;
                self.places.push(Flight::free());
                place
            }
        };
        let Flight { ticket, submitted_ns, deadline_ns, .. } = *self.get(whole);
        self.places[usize::from(place)] = Flight {
            ticket,
            state: State::Ready,
            kind: RequestKind::MultiGet,
            keys,
            part_of: Some((whole, part)),
            message,
            submitted_ns,
            deadline_ns,
            ..Flight::free()
        };
        self.parts += 1;
        Some(place)
    }

    fn take_place(&mut self) -> Result<Place, ClientError> {
        if let Some(place) = self.free.pop() {
            return Ok(place);
        }
        match Place::try_from(self.places.len()) {
            Ok(place) if self.len() < self.max && place < PLACE_OF_CONTROL => {
                self.places.push(Flight::free());
                Ok(place)
            }
            _ => Err(ClientError::QueueFull { max: self.max }),
        }
    }

    /// Frees an operation's place: as good as new, but for its buffers and what [`Flights::begin`] sets.
    pub(crate) fn end(&mut self, place: Place) {
        let flight = &mut self.places[usize::from(place)];
        (flight.state, flight.id, flight.name) = (State::Free, RequestId(0), None);
        (flight.link, flight.hops, flight.attempts) = (LinkId::DOOR, 0, 0);
        (flight.fate_open, flight.last) = (false, None);
        (flight.upload, flight.download) = (None, None);
        if flight.join.is_some() || flight.part_of.is_some() {
            flight.join = None;
            self.parts -= usize::from(flight.part_of.take().is_some());
        }
        for buffer in [&mut flight.message, &mut flight.value] {
            if buffer.capacity() > BUFFER_KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
        self.free.push(place);
        if self.len() == 0 {
            self.deadline_ns = u64::MAX;
            self.waits.clear();
        }
    }

    /// An id for the next attempt at a place.
    pub(crate) fn next_id(&mut self, place: Place) -> RequestId {
        self.attempt += 1;
        RequestId(self.attempt << PLACE_BITS | u64::from(place))
    }

    /// The operation that waits for a reply to this id.
    pub(crate) fn waiting_for(&self, id: RequestId) -> Option<Place> {
        let place = Place::try_from(id.0 & u64::from(Place::MAX)).ok()?;
        let flight = self.places.get(usize::from(place))?;
        (flight.state == State::Sent && flight.id == id).then_some(place)
    }

    pub(crate) fn get(&self, place: Place) -> &Flight {
        &self.places[usize::from(place)]
    }

    pub(crate) fn get_mut(&mut self, place: Place) -> &mut Flight {
        &mut self.places[usize::from(place)]
    }

    /// Lets an operation rest until a time.
    pub(crate) fn back_off(&mut self, place: Place, due_ns: u64) {
        self.get_mut(place).state = State::BacksOff { due_ns };
        self.waits.push(Reverse((due_ns, place)));
    }

    /// No operation has anything due before this time; it may be too early, never too late.
    pub(crate) fn due_ns(&self) -> u64 {
        let wait_ns = self.waits.peek().map_or(u64::MAX, |&Reverse((due_ns, _))| due_ns);
        wait_ns.min(self.deadline_ns)
    }

    /// The places of all operations for which something is due, in the order of their tickets, into `due`.
    /// Waits that are over are forgotten: the caller ends or sends each operation that it is given.
    pub(crate) fn collect_due(&mut self, now_ns: u64, due: &mut Vec<Place>) {
        due.clear();
        if now_ns >= self.deadline_ns {
            self.collect(due, |flight| flight.due_ns() <= now_ns);
            let held = self.places.iter().filter(|flight| flight.state != State::Free);
            let later = held.map(|flight| flight.deadline_ns).filter(|&deadline_ns| deadline_ns > now_ns);
            self.deadline_ns = later.min().unwrap_or(u64::MAX);
        }
        while let Some(&Reverse((due_ns, place))) = self.waits.peek()
            && due_ns <= now_ns
        {
            self.waits.pop();
            if self.get(place).state == (State::BacksOff { due_ns }) {
                due.push(place);
            }
        }
        due.sort_unstable_by_key(|&place| (self.get(place).ticket, place));
        due.dedup();
    }

    /// Whether there is such an operation.
    pub(crate) fn any(&self, wanted: impl Fn(&Flight) -> bool) -> bool {
        self.places.iter().any(|flight| flight.state != State::Free && wanted(flight))
    }

    /// The places of all operations of a kind, in the order of their tickets, into `found`.
    pub(crate) fn collect(&self, found: &mut Vec<Place>, wanted: impl Fn(&Flight) -> bool) {
        found.clear();
        let places = (0..=Place::MAX).zip(&self.places);
        let wanted = places.filter(|(_, flight)| flight.state != State::Free && wanted(flight));
        found.extend(wanted.map(|(place, _)| place));
        found.sort_by_key(|&place| self.get(place).ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(flights: &mut Flights, ticket: u64, deadline_ns: u64) -> Result<Place, ClientError> {
        flights.begin(Ticket(ticket), &Operation::Get { key: b"key" }, 0, deadline_ns)
    }

    #[test]
    fn waiting_for_an_earlier_attempt_finds_nothing() {
        let mut flights = Flights::new(2);
        let place = begin(&mut flights, 1, 10).unwrap();
        let first = flights.next_id(place);
        let second = flights.next_id(place);
        flights.get_mut(place).id = second;
        assert_eq!(flights.waiting_for(second), None, "not sent yet");
        flights.get_mut(place).state = State::Sent;
        assert_eq!(flights.waiting_for(second), Some(place));
        assert_eq!(flights.waiting_for(first), None);
        assert_eq!(flights.waiting_for(RequestId(u64::MAX)), None);
        flights.end(place);
        assert_eq!(flights.waiting_for(second), None);
    }

    #[test]
    fn begin_past_the_limit_is_refused_and_a_freed_place_is_reused() {
        let mut flights = Flights::new(2);
        begin(&mut flights, 1, 10).unwrap();
        let second = begin(&mut flights, 2, 10).unwrap();
        assert!(matches!(begin(&mut flights, 3, 10), Err(ClientError::QueueFull { max: 2 })));
        flights.end(second);
        assert_eq!(begin(&mut flights, 4, 10).unwrap(), second);
        assert_eq!(flights.len(), 2);
    }

    #[test]
    fn begin_unsendable_operation_leaves_no_trace() {
        let mut flights = Flights::new(1);
        let key = vec![0; 5000];
        let refused = flights.begin(Ticket(1), &Operation::Get { key: &key }, 0, 10);
        assert!(matches!(refused, Err(ClientError::Unsendable(_))));
        assert_eq!(flights.len(), 0);
        begin(&mut flights, 2, 10).unwrap();
    }

    #[test]
    fn collect_due_finds_deadlines_and_waits_in_ticket_order() {
        let mut flights = Flights::new(10);
        let late = begin(&mut flights, 7, 100).unwrap();
        let early = begin(&mut flights, 3, 100).unwrap();
        begin(&mut flights, 5, 1000).unwrap();
        let mut due = Vec::new();
        flights.collect_due(99, &mut due);
        assert!(due.is_empty());
        flights.back_off(late, 50);
        assert_eq!(flights.due_ns(), 50);
        flights.collect_due(100, &mut due);
        assert_eq!(due, [early, late]);
        due.iter().for_each(|&place| flights.end(place));
        assert_eq!(flights.due_ns(), 1000);
    }

    #[test]
    fn collect_due_passes_over_a_wait_that_was_left() {
        let mut flights = Flights::new(10);
        let [left, kept] = [1, 2].map(|ticket| begin(&mut flights, ticket, 1000).unwrap());
        flights.back_off(left, 50);
        flights.back_off(kept, 60);
        flights.get_mut(left).state = State::Sent;
        flights.back_off(left, 70);
        let mut due = Vec::new();
        flights.collect_due(60, &mut due);
        assert_eq!(due, [kept], "the other one waits longer by now");
        flights.get_mut(kept).state = State::Sent;
        assert_eq!(flights.due_ns(), 70);
        flights.collect_due(70, &mut due);
        assert_eq!(due, [left]);
        assert_eq!(flights.due_ns(), 1000);
    }
}
