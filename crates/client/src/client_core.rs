//! A client session as a state machine: it takes events and yields commands, and has no clock, socket or
//! thread.
//!
//! The shell (see [`crate::Driver`]) reports what happens on the fabric and what time it is, carries out the
//! commands until there is none, and takes completions:
//!
//! ```text
//! core.submit(now, operation)    core.connected(link)   core.message(link, now, bytes)
//! core.closed(link, now, why)    core.writable(link)    core.tick(now)        -- then --
//! while let Some(command) = core.command(now) { connect / send / close, on the link that it names }
//! while let Some(completion) = core.completion() { .. }        sleep until core.due_ns()
//! ```
//!
//! Every submitted operation has exactly one completion, at the latest at its deadline. A write is done at
//! most once, however often it is sent: it keeps its session and number in every repeat, over reconnects.
//! When the core cannot know whether a write was done it says so ([`ClientError::Unknown`]) and never
//! guesses; any other error says that it was surely not done.
//!
//! The core wires its parts, each with a state of its own: the operations that it holds (`pending`), where
//! they go (`routing`), the connections (`links`, and the streams of each), the session (`session`) and the
//! one-sided path (`onesided`). This file has submission and time; what goes out is in `outgoing`, what comes
//! in in `incoming`, and what becomes of an operation in between in `dispatch`.

use cell_protocol::Refusal;
use cell_random::Random;

use crate::backoff::Backoff;
use crate::connection::{ConnectionPhase, Overdue, ServerInfo};
use crate::control::{Control, SentControls, check_hello};
use crate::error::{AttemptError, Dismissal};
use crate::link_id::LinkId;
use crate::links::Links;
use crate::onesided::Reader;
use crate::operation::{OperationSlot, WhoSearches};
use crate::pending::{PendingState, PendingTable};
use crate::report_state::Reporting;
use crate::routing::Routing;
use crate::session::Session;
use crate::{ClientError, ClientOptions, Completion, Operation, Search, Ticket};

/// What the shell is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCommand<'a> {
    /// Begin a connection.
    Connect {
        /// The connection's name from now on.
        link: LinkId,
        /// Where it leads, as the region table has it. None: to one of the addresses that the user gave; a
        /// shell that has several tries them in turn.
        address: Option<&'a str>,
        /// Counts the attempts at what the user gave; the first is 0.
        attempt: u64,
    },
    /// Send this message. If the connection takes no more, say so with [`ClientCore::not_taken`].
    Send {
        /// On which connection.
        link: LinkId,
        /// The message.
        message: &'a [u8],
    },
    /// Close the connection. No event is expected of it any more.
    Close {
        /// The connection.
        link: LinkId,
    },
}

/// A client of the nodes of a cluster. See the module's text.
#[derive(Debug)]
pub struct ClientCore {
    /// In force.
    pub(crate) options: ClientOptions,
    /// What the client's own user gave; the cluster's values come over these.
    pub(crate) started_with: Box<ClientOptions>,
    /// What the machine has for the cache of tree nodes.
    pub(crate) cache_bytes_max: usize,
    pub(crate) links: Links,
    pub(crate) session: Session,
    pub(crate) pending: PendingTable,
    pub(crate) routing: Routing,
    /// The one-sided path, if it is wanted.
    pub(crate) reader: Option<Box<Reader>>,
    pub(crate) reporting: Reporting,
    pub(crate) dismissal: Option<Dismissal>,
    pub(crate) backoff: Backoff,
    pub(crate) random: Random,
    pub(crate) last_attempt_error: Option<AttemptError>,
    /// Which cluster this client is of: that of the first node which welcomed it.
    pub(crate) cluster: Option<u64>,
    /// Whose commands come next.
    pub(crate) turn: usize,
    /// Set until the first welcome: a client is asked to connect before there is an operation.
    connect_wanted: bool,
    pub(crate) scratch: Vec<OperationSlot>,
    /// The key of a batched read that is submitted after all.
    pub(crate) scratch_key: Vec<u8>,
}

impl ClientCore {
    /// A client that connects at the first chance. `seed` decides the jitter of its waits and what its
    /// selectors draw, and nothing else.
    ///
    /// # Panics
    /// If constants of [`ClientOptions::selector`] are out of bounds: see
    /// [`cell_selector::SelectorSettings`].
    #[must_use]
    pub fn new(options: ClientOptions, seed: u64) -> ClientCore {
        ClientCore {
            links: Links::new(&options),
            session: Session::default(),
            pending: PendingTable::new(options.operations_max()),
            routing: Routing::default(),
            reporting: Reporting::new(&options, seed),
            reader: (options.search != Search::Server).then(|| Box::new(Reader::new(&options, seed))),
            dismissal: check_hello(&options).err().map(Dismissal::Unsendable),
            backoff: options.backoff(),
            random: Random::new(seed),
            last_attempt_error: None,
            cluster: None,
            turn: 0,
            connect_wanted: true,
            scratch: Vec::new(),
            scratch_key: Vec::new(),
            started_with: Box::new(options.clone()),
            cache_bytes_max: usize::MAX,
            options,
        }
    }

    /// Takes an operation in, with the deadline of the options.
    ///
    /// # Errors
    /// As for [`ClientCore::submit_until`].
    pub fn submit(&mut self, now_ns: u64, operation: &Operation<'_>) -> Result<Ticket, ClientError> {
        self.submit_until(now_ns, operation, now_ns.saturating_add(self.deadline_default_ns()))
    }

    /// How long an operation may take that has no deadline of its own.
    pub(crate) fn deadline_default_ns(&self) -> u64 {
        self.options.deadline_ms.saturating_mul(1_000_000)
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
        self.submit_to(WhoSearches::Undecided, now_ns, operation, deadline_ns)
    }

    /// As [`ClientCore::submit_until`], of a read that [`ClientCore::look_at_once`] did not answer.
    ///
    /// # Errors
    /// As for [`ClientCore::submit_until`].
    pub fn submit_to(
        &mut self,
        who: WhoSearches,
        now_ns: u64,
        operation: &Operation<'_>,
        deadline_ns: u64,
    ) -> Result<Ticket, ClientError> {
        if let Some(dismissal) = self.dismissal {
            return Err(dismissal.into());
        }
        self.pending.admit()?;
        self.check_limits(operation)?;
        let (ticket, who) = self.submit_batched(operation, who, (now_ns, deadline_ns));
        if let Some(ticket) = ticket {
            return Ok(ticket);
        }
        let slot = self.pending.begin(operation, now_ns, deadline_ns)?;
        let ticket = self.pending.get(slot).ticket;
        if self.begin_one_sided(slot, operation, who, now_ns) {
            self.take_ended(now_ns);
        } else {
            self.enlist(slot, now_ns);
        }
        Ok(ticket)
    }

    /// What the server would refuse anyway, as far as its limits are known.
    fn check_limits(&self, operation: &Operation<'_>) -> Result<(), ClientError> {
        let Some(server) = self.server() else { return Ok(()) };
        let Operation::Put { value, .. } = operation else { return Ok(()) };
        let max = server.limits.value_bytes_max;
        match u32::try_from(value.len()) {
            Ok(len) if len <= max => Ok(()),
            len => Err(ClientError::Refused(Refusal::ValueTooLarge { len: len.unwrap_or(u32::MAX), max })),
        }
    }

    /// The next completion, in the order in which they came about.
    pub fn completion(&mut self) -> Option<Completion> {
        self.pending.pop_completion()
    }

    /// The completion of one operation, if it is there.
    pub fn completion_of(&mut self, ticket: Ticket) -> Option<Completion> {
        self.pending.completion_of(ticket)
    }

    /// Completions that wait to be taken.
    #[must_use]
    pub fn completions(&self) -> usize {
        self.pending.completions()
    }

    /// Operations without a completion yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.pending.len()
    }

    /// What the server at the bootstrap link said of itself in its last hello, or another one.
    #[must_use]
    pub fn server(&self) -> Option<&ServerInfo> {
        self.links.server()
    }

    /// Whether a server has welcomed this client on a present connection.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.links.is_any_up()
    }

    /// Whether the last attempt of a connection came to one, and to no welcome there.
    pub(crate) fn was_turned_away(&self, link: LinkId) -> bool {
        self.links[link].connection.was_turned_away
    }

    /// Why the last attempt of anything failed; for the shell's report of a failed start.
    #[must_use]
    pub fn last_attempt_error(&self) -> Option<AttemptError> {
        self.last_attempt_error
    }

    /// The error of a client that the server has dismissed; it can do nothing any more.
    #[must_use]
    pub fn dismissed(&self) -> Option<ClientError> {
        self.dismissal.map(ClientError::from)
    }

    /// Ends the session, if one is open: no write may follow, and what is unanswered stays unknown. Done when
    /// [`ClientCore::session_is_open`] says no; a shell waits for that only a little.
    pub fn close_session(&mut self) {
        if let Some(link) = self.find_session_home()
            && self.session.begin_closing()
        {
            self.links[link].control.push_back(Control::CloseSession);
        }
    }

    /// Whether a session is open.
    #[must_use]
    pub fn session_is_open(&self) -> bool {
        self.session.id().is_some()
    }

    /// By which connection the session is spoken for: the one where it was opened, or another one when that
    /// is lost.
    fn find_session_home(&mut self) -> Option<LinkId> {
        let is_up = |link: &LinkId| self.links[*link].connection.is_up();
        let home = Some(self.session.home()).filter(is_up).or_else(|| self.links.ids().find(is_up))?;
        self.session.set_home(home);
        Some(home)
    }

    /// The connection that [`ClientCommand::Connect`] began is open.
    pub fn connected(&mut self, link: LinkId) {
        let link = &mut self.links[link];
        if link.connection.opened() {
            link.control.clear();
            link.control.push_back(Control::Hello);
        }
    }

    /// The connection is gone, or could not be started.
    pub fn closed(&mut self, link: LinkId, now_ns: u64, why: AttemptError) {
        if !matches!(self.links[link].connection.phase, ConnectionPhase::Down { .. }) {
            self.on_connection_lost(link, now_ns, why);
        }
    }

    /// The connection takes messages again.
    pub fn writable(&mut self, link: LinkId) {
        self.links[link].connection.blocked = false;
        if let Some(reader) = &mut self.reader {
            reader.writable(link);
        }
    }

    /// The connection did not take the message of the last [`ClientCommand::Send`]; it is yielded again once
    /// [`ClientCore::writable`] was called.
    pub fn not_taken(&mut self, link: LinkId) {
        let link = &mut self.links[link];
        link.connection.blocked = true;
        link.outbox.keep();
    }

    /// Time has passed: deadlines, waits, silence. Cheap while nothing is due.
    pub fn tick(&mut self, now_ns: u64) {
        self.note_time(now_ns);
        for id in self.links.ids() {
            let reading = self.is_reading(id);
            let link = &mut self.links[id];
            let owed = link.owed(reading);
            match link.connection.overdue(now_ns, owed, link.oldest_asked_ns()) {
                Some(Overdue::Probe) => link.control.push_back(Control::KeepAlive),
                Some(Overdue::GiveUp(why)) => self.abandon_connection(id, now_ns, why),
                None => {}
            }
        }
        if self.session.keep_alive_due_ns().is_some_and(|due| now_ns >= due)
            && let Some(home) = self.find_session_home()
        {
            self.session.used(now_ns);
            self.links[home].control.push_back(Control::KeepAlive);
        }
        self.ask_for_reader(now_ns);
        self.watch_table(now_ns);
        self.handle_due(now_ns);
        if self.reporting.is_due(now_ns) {
            self.report(now_ns);
        }
    }

    /// When [`ClientCore::tick`] or [`ClientCore::command`] should be called next, though nothing happens
    /// until then.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        let (mut due, mut is_up) = (self.pending.due_ns(), false);
        let mut was_used = false;
        let watches_doubt = self.routing.watches_silence(&self.links);
        for id in self.links.ids() {
            let link = &self.links[id];
            let (connection, owed) = (&link.connection, link.owed(self.is_reading(id)));
            let asked_ns = link.oldest_asked_ns();
            is_up |= connection.is_up();
            was_used |= link.reporting.was_used;
            let work = !connection.is_open() && self.has_work(id);
            due = due.min(connection.due_ns(owed, asked_ns, work));
            if watches_doubt {
                due = due.min(connection.doubtful_ns(owed));
            }
        }
        let keep_alive = self.session.keep_alive_due_ns().filter(|_| is_up);
        let opening = self.session.opening_due_ns().filter(|_| is_up);
        let due = due.min(keep_alive.unwrap_or(u64::MAX)).min(opening.unwrap_or(u64::MAX));
        let due = due.min(self.routing.due_ns(&self.links, is_up));
        let due = due.min(self.reader.as_ref().map_or(u64::MAX, |reader| reader.due_ns()));
        let due = due.min(self.report_due_ns(was_used));
        (due != u64::MAX).then_some(due)
    }

    /// Whether a connection is needed.
    pub(crate) fn has_work(&self, link: LinkId) -> bool {
        if self.dismissal.is_some() {
            return false;
        }
        let known = &self.links[link];
        if link != LinkId::BOOTSTRAP {
            return known.wanted || known.has_operations();
        }
        // Without another connection everything goes by the bootstrap link.
        let alone = self.links.len() == 1 || !self.is_up();
        self.connect_wanted || known.has_operations() || (self.pending.len() > 0 && alone)
    }

    pub(crate) fn on_welcome(&mut self, id: LinkId, now_ns: u64, server: ServerInfo) {
        self.connect_wanted = false;
        if let Some(reader) = &mut self.reader {
            reader.on_welcome(id, server.limits.scan_entries_max);
        }
        let is_first = !self.is_up();
        let link = &mut self.links[id];
        link.connection.on_welcome(server, now_ns);
        link.set_window(self.options.in_flight_max);
        self.begin_reporting(id, now_ns);
        if is_first {
            self.on_contact(now_ns);
        }
        self.routing.on_welcome();
    }

    /// Gives the connection up from this side.
    pub(crate) fn abandon_connection(&mut self, link: LinkId, now_ns: u64, why: AttemptError) {
        self.links[link].close_wanted = true;
        self.on_connection_lost(link, now_ns, why);
    }

    /// A connection is lost: what was sent on it and not answered is sent again.
    pub(crate) fn on_connection_lost(&mut self, id: LinkId, now_ns: u64, why: AttemptError) {
        let link = &mut self.links[id];
        tracing::debug!(link = id.0, %why, in_flight = link.in_flight(), "connection lost");
        self.last_attempt_error = Some(why);
        link.last_attempt_error = Some(why);
        link.connection.lost(now_ns, &mut self.random);
        let asked = link.sent_controls.open_session.is_some() || link.control.contains(&Control::OpenSession);
        self.session.on_connection_lost(id, asked, why);
        if link.sent_controls.close_session.is_some() || link.control.contains(&Control::CloseSession) {
            self.session.closing_lost();
        }
        link.control.clear();
        link.sent_controls = SentControls::default();
        link.outbox.discard();
        if id == LinkId::BOOTSTRAP {
            link.address = None; // the next attempt may lead elsewhere
        }
        if let Some(reader) = &mut self.reader {
            reader.on_link_lost(id);
        }
        self.take_ended(now_ns);
        self.resend(id, now_ns, why);
        self.routing.on_link_lost(id, &self.links, self.pending.len() > 0);
    }

    /// The server wants nothing to do with this client: all that is held ends.
    pub(crate) fn dismiss(&mut self, now_ns: u64, dismissal: Dismissal) {
        self.dismissal = Some(dismissal);
        let mut held = std::mem::take(&mut self.scratch);
        self.pending.collect(&mut held, |_| true);
        for &slot in &held {
            let pending = self.pending.get(slot);
            if pending.state == PendingState::Free {
                continue;
            }
            let unknown = pending.is_write() && pending.fate_open;
            let error = if unknown { pending.given_up(now_ns) } else { dismissal.into() };
            self.finish(slot, now_ns, Err(error));
        }
        self.scratch = held;
        self.end_batched(None, now_ns, || dismissal.into());
    }
}
