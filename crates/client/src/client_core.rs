//! A client session as a state machine: it takes events and yields commands, and has no clock, socket or
//! thread.
//!
//! The shell (see [`crate::Driver`]) tells what happens on the fabric and what time it is, carries out the
//! commands until there is none, and takes completions:
//!
//! ```text
//! core.submit(now, operation)      core.connected(now)   core.message(now, bytes)   core.closed(now, why)
//! core.writable()                  core.tick(now)        -- then --
//! while let Some(command) = core.command(now) { connect / send / close }
//! while let Some(completion) = core.completion() { .. }        sleep until core.due_ns()
//! ```
//!
//! Every submitted operation has exactly one completion, at the latest at its deadline. A write is done at
//! most once, however often it is sent: it keeps its session and number in every repeat, over reconnects.
//! When the core cannot tell whether a write was done it says so ([`ClientError::Unknown`]) and never
//! guesses; any other error says that it was surely not done.
//!
//! This file holds the state, submission and time; what goes out is in `outgoing`, what comes in in
//! `incoming`.

use std::collections::VecDeque;

use cell_fabric::{MappedRegion, ReadFailure, ReadTag, RegionKey, RemoteRead};
use cell_protocol::{Refusal, RequestId};

use crate::backoff::{Backoff, Random};
use crate::connection::{Connection, Overdue, Owed, Phase, ServerInfo};
use crate::error::{Dismissal, Setback};
use crate::flight::{Flights, Place, State};
use crate::onesided::{Ended, OneSidedCounters, Reader};
use crate::outgoing::{Control, Outbox, check_hello};
use crate::session::Session;
use crate::{ClientError, ClientOptions, Completion, Operation, Output, Search, Ticket};

/// What the shell is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Begin a connection. The first attempt has number 0; a shell that knows several addresses tries them in
    /// turn.
    Connect {
        /// Counts the attempts of this client.
        attempt: u64,
    },
    /// Send this message. If the connection takes no more, say so with [`ClientCore::not_taken`].
    Send(
        /// The message.
        &'a [u8],
    ),
    /// Close the connection. No event is expected of it any more.
    Close,
}

/// Requests of the client's own whose answers are due.
#[derive(Debug, Default)]
pub(crate) struct ControlIds {
    pub(crate) hello: Option<RequestId>,
    pub(crate) open_session: Option<RequestId>,
    pub(crate) close_session: Option<RequestId>,
    /// With the time before they left: what their replies say of the lease is counted from there.
    pub(crate) regions: Option<(RequestId, u64)>,
    pub(crate) trust: Option<(RequestId, u64)>,
}

/// A client of one worker. See the module's text.
#[derive(Debug)]
pub struct ClientCore {
    pub(crate) options: ClientOptions,
    pub(crate) connection: Connection,
    pub(crate) session: Session,
    pub(crate) flights: Flights,
    /// Operations to be sent, oldest first.
    pub(crate) ready: VecDeque<Place>,
    /// Writes that wait for a session.
    pub(crate) waiting_for_session: VecDeque<Place>,
    /// Streamed puts that wait for another one to end.
    pub(crate) waiting_for_stream: VecDeque<Place>,
    /// Streamed puts that have credit and something to send.
    pub(crate) uploads: VecDeque<Place>,
    pub(crate) upload_count: usize,
    /// Operations whose answer is due; and those of them that are answered promptly.
    pub(crate) in_flight: usize,
    pub(crate) in_flight_prompt: usize,
    pub(crate) control: VecDeque<Control>,
    pub(crate) control_ids: ControlIds,
    pub(crate) outbox: Outbox,
    pub(crate) close_wanted: bool,
    /// A session could not be opened; the next try is due then.
    pub(crate) session_not_before_ns: u64,
    pub(crate) session_failed_count: u32,
    pub(crate) session_closing: bool,
    pub(crate) dismissal: Option<Dismissal>,
    pub(crate) backoff: Backoff,
    pub(crate) random: Random,
    pub(crate) attempt: u64,
    pub(crate) last_setback: Option<Setback>,
    /// Whether a chunk goes before the next operation.
    pub(crate) chunk_turn: bool,
    /// The one-sided path, if it is wanted.
    pub(crate) reader: Option<Box<Reader>>,
    /// Set until the first welcome: a client is asked to connect before there is an operation.
    connect_wanted: bool,
    completions: VecDeque<Completion>,
    next_ticket: u64,
    scratch: Vec<Place>,
}

impl ClientCore {
    /// A client that connects at the first chance. `seed` decides the jitter of its waits and nothing else.
    #[must_use]
    pub fn new(options: ClientOptions, seed: u64) -> ClientCore {
        ClientCore {
            connection: Connection::new(&options),
            session: Session::default(),
            flights: Flights::new(options.operations_max()),
            ready: VecDeque::new(),
            waiting_for_session: VecDeque::new(),
            waiting_for_stream: VecDeque::new(),
            uploads: VecDeque::new(),
            upload_count: 0,
            in_flight: 0,
            in_flight_prompt: 0,
            control: VecDeque::new(),
            control_ids: ControlIds::default(),
            outbox: Outbox::default(),
            close_wanted: false,
            session_not_before_ns: 0,
            session_failed_count: 0,
            session_closing: false,
            dismissal: check_hello(&options).err().map(Dismissal::Unsendable),
            backoff: Backoff::new(options.retry_shortest_ms, options.retry_longest_ms),
            random: Random::new(seed),
            attempt: 0,
            last_setback: None,
            chunk_turn: false,
            reader: (options.search == Search::Client).then(|| Box::new(Reader::new(&options))),
            connect_wanted: true,
            completions: VecDeque::new(),
            next_ticket: 1,
            scratch: Vec::new(),
            options,
        }
    }

    /// Takes an operation in, with the deadline of the options.
    ///
    /// # Errors
    /// As for [`ClientCore::submit_until`].
    pub fn submit(&mut self, now_ns: u64, operation: &Operation<'_>) -> Result<Ticket, ClientError> {
        let deadline_ns = now_ns.saturating_add(self.options.deadline_ms.saturating_mul(1_000_000));
        self.submit_until(now_ns, operation, deadline_ns)
    }

    /// Takes an operation in. What it borrows is copied.
    ///
    /// # Errors
    /// The queue is full (completions that were not taken count), the operation does not fit a message or the
    /// server's limits, or the server has dismissed this client. Nothing was submitted then.
    pub fn submit_until(
        &mut self,
        now_ns: u64,
        operation: &Operation<'_>,
        deadline_ns: u64,
    ) -> Result<Ticket, ClientError> {
        if let Some(dismissal) = self.dismissal {
            return Err(dismissal.into());
        }
        let max = self.options.operations_max();
        if self.flights.len() + self.completions.len() >= max {
            return Err(ClientError::QueueFull { max });
        }
        self.check_limits(operation)?;
        let ticket = Ticket(self.next_ticket);
        let place = self.flights.begin(ticket, operation, now_ns, deadline_ns)?;
        self.next_ticket += 1;
        if self.begin_one_sided(place, now_ns) {
            self.take_ended(now_ns);
        } else {
            self.ready.push_back(place);
        }
        Ok(ticket)
    }

    /// Begins a read one-sided; false if it is one for the server.
    fn begin_one_sided(&mut self, place: Place, now_ns: u64) -> bool {
        let idle = self.owed() == Owed::Nothing;
        let Some(reader) = &mut self.reader else { return false };
        let flight = self.flights.get_mut(place);
        if !flight.is_one_sided() || !reader.begin(place, now_ns, &flight.message) {
            return false;
        }
        flight.state = State::OneSided;
        if idle {
            self.connection.heard(now_ns);
        }
        true
    }

    /// One-sided operations that have ended: complete, or on their way to the server.
    pub(crate) fn take_ended(&mut self, now_ns: u64) {
        while let Some((place, ended)) = self.reader.as_mut().and_then(|reader| reader.ended()) {
            match ended {
                Ended::Done(output) => self.finish(place, now_ns, Ok(output)),
                Ended::Server => {
                    self.flights.get_mut(place).state = State::Ready;
                    self.ready.push_back(place);
                }
            }
        }
    }

    /// Whether the fabric loads the cache lines of a one-sided read in address order. Told before anything
    /// else.
    pub fn set_reads_ordered(&mut self, ordered: bool) {
        if let Some(reader) = &mut self.reader {
            reader.set_reads_ordered(ordered);
        }
    }

    /// The next one-sided read to be posted; call it until there is none.
    pub fn next_read(&mut self) -> Option<(RemoteRead, ReadTag)> {
        self.reader.as_mut().filter(|_| self.connection.is_up())?.next_read()
    }

    /// The connection did not take the read; it is yielded again once [`ClientCore::writable`] was called.
    pub fn read_not_taken(&mut self, read: RemoteRead, tag: ReadTag) {
        if let Some(reader) = &mut self.reader {
            reader.not_taken(read, tag);
        }
    }

    /// A one-sided read has come back. Nothing is answered before [`ClientCore::settle`].
    pub fn read_done(&mut self, tag: ReadTag, outcome: Result<&[u64], ReadFailure>) {
        if let Some(reader) = &mut self.reader {
            reader.read_done(tag, outcome);
        }
    }

    /// The time, *read after* the last event that was told: answers what was read one-sided, if clock,
    /// watermark and trust permit it. An older time would let a client that was stopped believe memory that
    /// was used again.
    pub fn settle(&mut self, now_ns: u64) {
        let owes_answer = self.owes_answer();
        if let Some(reader) = &mut self.reader {
            // A sign of life of the host, but not of a worker whose answer is due.
            if reader.take_came() && !owes_answer {
                self.connection.heard(now_ns);
            }
            reader.settle(now_ns);
            self.take_ended(now_ns);
        }
    }

    /// Whether the fabric is to be asked which regions are mapped: see [`ClientCore::map_regions`].
    #[must_use]
    pub fn wants_mapping(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.wants_mapping())
    }

    /// Lets the one-sided path look at regions in place, as far as `mapped` has them.
    pub fn map_regions(&mut self, mapped: &mut dyn FnMut(RegionKey) -> Option<MappedRegion>) {
        if let Some(reader) = &mut self.reader {
            reader.map(mapped);
        }
    }

    /// Whether there are answers that wait for nothing but [`ClientCore::settle`].
    #[must_use]
    pub fn is_settling(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.is_settling())
    }

    /// What the one-sided path has counted, if there is one.
    #[must_use]
    pub fn one_sided_counters(&self) -> Option<&OneSidedCounters> {
        self.reader.as_ref().map(|reader| reader.counters())
    }

    /// Asks for registrations and for trust, when the one-sided path wants them.
    fn ask_for_reader(&mut self, now_ns: u64) {
        let Some(reader) = self.reader.as_mut().filter(|_| self.connection.is_up()) else { return };
        if reader.wants_regions(now_ns) {
            reader.regions_asked();
            self.control.push_back(Control::Regions);
        }
        if reader.wants_trust(now_ns) {
            reader.trust_asked(now_ns);
            self.control.push_back(Control::Trust);
        }
    }

    /// What the server would refuse anyway, as far as its limits are known.
    fn check_limits(&self, operation: &Operation<'_>) -> Result<(), ClientError> {
        let Some(server) = &self.connection.server else { return Ok(()) };
        let Operation::Put { value, .. } = operation else { return Ok(()) };
        let max = server.limits.value_bytes_max;
        match u32::try_from(value.len()) {
            Ok(len) if len <= max => Ok(()),
            len => Err(ClientError::Refused(Refusal::ValueTooLarge { len: len.unwrap_or(u32::MAX), max })),
        }
    }

    /// The next completion, in the order in which they came about.
    pub fn completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// The completion of one operation, if it is there.
    pub fn completion_of(&mut self, ticket: Ticket) -> Option<Completion> {
        let index = self.completions.iter().position(|completion| completion.ticket == ticket)?;
        self.completions.remove(index)
    }

    /// Completions that wait to be taken.
    #[must_use]
    pub fn completions(&self) -> usize {
        self.completions.len()
    }

    /// Operations without a completion yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.flights.len()
    }

    /// What the server said of itself in its last hello.
    #[must_use]
    pub fn server(&self) -> Option<&ServerInfo> {
        self.connection.server.as_ref()
    }

    /// Whether the server has welcomed this client on the present connection.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.connection.is_up()
    }

    /// Why the last attempt of anything came to nothing; for the shell's report of a failed start.
    #[must_use]
    pub fn last_setback(&self) -> Option<Setback> {
        self.last_setback
    }

    /// The error of a client that the server has dismissed; it can do nothing any more.
    #[must_use]
    pub fn dismissed(&self) -> Option<ClientError> {
        self.dismissal.map(ClientError::from)
    }

    /// Ends the session, if one is open: no write may follow, and what is unanswered stays unknown. Done when
    /// [`ClientCore::session_is_open`] says no; a shell waits for that only a little.
    pub fn close_session(&mut self) {
        if self.session.id().is_some() && self.connection.is_up() && !self.session_closing {
            self.session_closing = true;
            self.control.push_back(Control::CloseSession);
        }
    }

    /// Whether a session is open.
    #[must_use]
    pub fn session_is_open(&self) -> bool {
        self.session.id().is_some()
    }

    /// The connection that [`Command::Connect`] began is open.
    pub fn connected(&mut self) {
        if self.connection.opened() {
            self.control.clear();
            self.control.push_back(Control::Hello);
        }
    }

    /// The connection is gone, or could not be begun.
    pub fn closed(&mut self, now_ns: u64, why: Setback) {
        if !matches!(self.connection.phase, Phase::Down { .. }) {
            self.lose(now_ns, why);
        }
    }

    /// The connection takes messages again.
    pub fn writable(&mut self) {
        self.connection.blocked = false;
        if let Some(reader) = &mut self.reader {
            reader.writable();
        }
    }

    /// The connection did not take the message of the last [`Command::Send`]; it is yielded again once
    /// [`ClientCore::writable`] was called.
    pub fn not_taken(&mut self) {
        self.connection.blocked = true;
        self.outbox.keep();
    }

    /// Time has passed: deadlines, waits, silence. Cheap while nothing is due.
    pub fn tick(&mut self, now_ns: u64) {
        let owed = self.owed();
        match self.connection.overdue(now_ns, owed) {
            Some(Overdue::Probe) => self.control.push_back(Control::KeepAlive),
            Some(Overdue::GiveUp(why)) => self.abandon_connection(now_ns, why),
            None => {}
        }
        if self.connection.is_up() && self.session.keep_alive_due_ns().is_some_and(|due| now_ns >= due) {
            self.session.used(now_ns);
            self.control.push_back(Control::KeepAlive);
        }
        self.ask_for_reader(now_ns);
        self.settle_due(now_ns);
    }

    /// When [`ClientCore::tick`] or [`ClientCore::command`] should be called next, though nothing happens
    /// until then.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        let connection = self.connection.due_ns(self.owed(), self.has_work());
        let keep_alive = self.session.keep_alive_due_ns().filter(|_| self.connection.is_up());
        let opening = self.session_not_before_ns;
        let opening = (!self.waiting_for_session.is_empty() && self.connection.is_up()).then_some(opening);
        let opening = opening.filter(|_| !self.session.is_opening());
        let due = self.flights.due_ns().min(connection);
        let due = due.min(keep_alive.unwrap_or(u64::MAX)).min(opening.unwrap_or(u64::MAX));
        let due = due.min(self.reader.as_ref().map_or(u64::MAX, |reader| reader.due_ns()));
        (due != u64::MAX).then_some(due)
    }

    /// What the server owes.
    pub(crate) fn owed(&self) -> Owed {
        // A read that does not come back: the host is gone, or nobody has its connection any more.
        if self.owes_answer() || self.reader.as_ref().is_some_and(|reader| reader.is_busy()) {
            Owed::Promptly
        } else if self.in_flight > 0 {
            Owed::Sometime
        } else {
            Owed::Nothing
        }
    }

    /// Whether the worker owes an answer promptly; reads are its host's business.
    fn owes_answer(&self) -> bool {
        let ids = &self.control_ids;
        let asked = ids.open_session.is_some() || ids.regions.is_some() || ids.trust.is_some();
        self.in_flight_prompt > 0 || asked
    }

    /// Whether a connection is needed.
    pub(crate) fn has_work(&self) -> bool {
        self.dismissal.is_none() && (self.connect_wanted || self.flights.len() > 0)
    }

    pub(crate) fn welcomed(&mut self, now_ns: u64, server: ServerInfo) {
        self.connect_wanted = false;
        if let Some(reader) = &mut self.reader {
            reader.set_scan_entries_max(server.limits.scan_entries_max);
        }
        self.connection.welcomed(server, now_ns);
    }

    /// Deadlines and waits that are over.
    fn settle_due(&mut self, now_ns: u64) {
        if now_ns < self.flights.due_ns() {
            return;
        }
        let mut due = std::mem::take(&mut self.scratch);
        self.flights.collect_due(now_ns, &mut due);
        let no_connection = self.last_setback.filter(|_| !self.connection.is_up());
        for &place in &due {
            let flight = self.flights.get_mut(place);
            flight.last = flight.last.or(no_connection);
            if now_ns >= flight.deadline_ns {
                let error = flight.given_up(now_ns);
                self.finish(place, now_ns, Err(error));
            } else {
                self.flights.get_mut(place).state = State::Ready;
                self.ready.push_back(place);
            }
        }
        self.scratch = due;
        self.flights.settle_due();
    }

    /// Gives the connection up from this side.
    pub(crate) fn abandon_connection(&mut self, now_ns: u64, why: Setback) {
        self.close_wanted = true;
        self.lose(now_ns, why);
    }

    /// What was sent and not answered is sent again on the next connection; a write's fate is open until
    /// then.
    pub(crate) fn lose(&mut self, now_ns: u64, why: Setback) {
        tracing::debug!(%why, in_flight = self.in_flight, "connection lost");
        self.last_setback = Some(why);
        self.connection.lost(now_ns, &mut self.random);
        self.session.opening_failed();
        self.session_closing = false;
        self.control.clear();
        self.control_ids = ControlIds::default();
        self.outbox.discard();
        if let Some(reader) = &mut self.reader {
            reader.lost();
        }
        self.take_ended(now_ns);
        let mut sent = std::mem::take(&mut self.scratch);
        self.flights.collect(&mut sent, |flight| flight.state == State::Sent);
        for &place in sent.iter().rev() {
            self.unsend(place);
            let flight = self.flights.get_mut(place);
            flight.fate_open |= flight.is_write();
            flight.last = Some(why);
            if flight.attempts > self.options.retries_max {
                let error = flight.given_up(now_ns);
                self.finish(place, now_ns, Err(error));
            } else {
                self.ready.push_front(place);
            }
        }
        self.scratch = sent;
    }

    /// The server wants nothing to do with this client: all that is held ends.
    pub(crate) fn dismiss(&mut self, now_ns: u64, dismissal: Dismissal) {
        self.dismissal = Some(dismissal);
        let mut held = std::mem::take(&mut self.scratch);
        self.flights.collect(&mut held, |_| true);
        for &place in &held {
            let flight = self.flights.get(place);
            let unknown = flight.is_write() && flight.fate_open;
            let error = if unknown { flight.given_up(now_ns) } else { dismissal.into() };
            self.finish(place, now_ns, Err(error));
        }
        self.scratch = held;
    }

    /// Takes an operation out of those that are in flight; it is ready to be sent again.
    pub(crate) fn unsend(&mut self, place: Place) {
        let flight = self.flights.get_mut(place);
        flight.state = State::Ready;
        flight.id = RequestId(0);
        flight.download = None;
        self.in_flight -= 1;
        self.in_flight_prompt -= usize::from(flight.is_prompt());
        if flight.upload.take().is_some() {
            self.upload_count -= 1;
            self.uploads.retain(|&listed| listed != place);
            if let Some(next) = self.waiting_for_stream.pop_front() {
                self.flights.get_mut(next).state = State::Ready;
                self.ready.push_front(next);
            }
        }
    }

    /// An operation ends, from whichever state.
    pub(crate) fn finish(&mut self, place: Place, now_ns: u64, outcome: Result<Output, ClientError>) {
        let flight = self.flights.get(place);
        let list = match flight.state {
            State::Ready => Some(&mut self.ready),
            State::WaitsForSession => Some(&mut self.waiting_for_session),
            State::WaitsForStream => Some(&mut self.waiting_for_stream),
            State::BacksOff { .. } | State::Sent | State::OneSided | State::Free => None,
        };
        if let Some(list) = list {
            list.retain(|&listed| listed != place);
        }
        if flight.state == State::OneSided
            && let Some(reader) = &mut self.reader
        {
            reader.abandon(place);
        }
        if flight.state == State::Sent {
            let streaming = flight.upload.is_some() || flight.download.is_some();
            if streaming && outcome.is_err() && self.connection.is_up() {
                let stream = flight.id;
                self.control.push_back(Control::Cancel { stream });
            }
            self.unsend(place);
        }
        let flight = self.flights.get(place);
        if let Some((session, number)) = flight.name {
            self.session.settle(session, number);
        }
        let elapsed_ns = now_ns.saturating_sub(flight.submitted_ns);
        self.completions.push_back(Completion { ticket: flight.ticket, elapsed_ns, outcome });
        self.flights.end(place);
    }
}
