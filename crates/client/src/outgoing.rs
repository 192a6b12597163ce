//! What the client sends, and when: hello first, then its own requests, then operations and chunks in turn.

use cell_protocol::{
    EncodeError, Hello, PROTOCOL_VERSION, Request, RequestHeader, RequestId, RequestKind, WriteName,
};
use cell_terms::PairId;

use crate::ClientOptions;
use crate::client_core::{ClientCore, Command};
use crate::connection::{Owed, Phase};
use crate::flight::{PLACE_OF_CONTROL, Place, State};
use crate::stream::Upload;

/// A request of the client's own, or of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Hello,
    OpenSession,
    CloseSession,
    KeepAlive,
    /// The registrations, for one-sided reads.
    Regions,
    /// How long the lease holds: the tiniest request, for its reply's header.
    Trust,
    Credit {
        stream: RequestId,
        bytes: u32,
    },
    Cancel {
        stream: RequestId,
    },
}

/// The message that is being sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    message: Vec<u8>,
    kept: bool,
}

impl Outbox {
    /// The message was not taken.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }

    /// The connection that it was meant for is gone.
    pub(crate) fn discard(&mut self) {
        self.kept = false;
    }
}

fn hello(options: &ClientOptions) -> Request<'_> {
    Request::Hello(Hello {
        version: PROTOCOL_VERSION,
        name: &options.name,
        token: &options.token,
        stream_credit_bytes: options.stream_credit_bytes,
    })
}

/// Whether the hello of these options can be said.
pub(crate) fn check_hello(options: &ClientOptions) -> Result<(), EncodeError> {
    hello(options).encode(RequestHeader::default(), &mut Vec::new())
}

/// Which pair a request is for: whichever the worker serves. Routing by key comes with the region table.
const PAIR_ANY: PairId = PairId(0);

impl ClientCore {
    /// What the shell is to do next; call it until there is nothing.
    pub fn command(&mut self, now_ns: u64) -> Option<Command<'_>> {
        if std::mem::take(&mut self.close_wanted) {
            return Some(Command::Close);
        }
        if self.has_work() && self.connection.begin(now_ns) {
            let attempt = self.attempt;
            self.attempt += 1;
            return Some(Command::Connect { attempt });
        }
        if self.connection.blocked {
            return None;
        }
        if !std::mem::take(&mut self.outbox.kept) && !self.next_message(now_ns) {
            return None;
        }
        Some(Command::Send(&self.outbox.message))
    }

    /// Puts the next message into the outbox; false if there is none.
    fn next_message(&mut self, now_ns: u64) -> bool {
        match self.connection.phase {
            Phase::Down { .. } | Phase::Opening { .. } => false,
            Phase::Greeting { .. } => self.next_control(now_ns),
            Phase::Up => {
                // Chunks go between operations, so that neither keeps the other waiting.
                let chunk_first = self.take_turns();
                self.next_control(now_ns)
                    || (chunk_first && self.next_chunk())
                    || self.next_operation(now_ns)
                    || (self.ask_for_session(now_ns) && self.next_control(now_ns))
                    || self.next_chunk()
            }
        }
    }

    fn take_turns(&mut self) -> bool {
        self.chunk_turn = !self.chunk_turn;
        self.chunk_turn
    }

    /// Whether a session is to be asked for, because writes wait for one.
    fn ask_for_session(&mut self, now_ns: u64) -> bool {
        let wanted = !self.waiting_for_session.is_empty() && now_ns >= self.session_not_before_ns;
        let ask = wanted && self.session.begin_opening();
        if ask {
            self.control.push_back(Control::OpenSession);
        }
        ask
    }

    fn next_control(&mut self, now_ns: u64) -> bool {
        while let Some(control) = self.control.pop_front() {
            if self.encode_control(control, now_ns) {
                return true;
            }
        }
        false
    }

    /// False if the request has lost its point.
    fn encode_control(&mut self, control: Control, now_ns: u64) -> bool {
        let own = self.flights.next_id(PLACE_OF_CONTROL);
        let (id, request) = match control {
            Control::Hello => {
                self.control_ids.hello = Some(own);
                (own, hello(&self.options))
            }
            Control::OpenSession => {
                if self.owed() != Owed::Promptly {
                    self.connection.heard(now_ns);
                }
                self.control_ids.open_session = Some(own);
                (own, Request::OpenSession)
            }
            Control::CloseSession => {
                let Some(session) = self.session.id() else { return false };
                self.control_ids.close_session = Some(own);
                (own, Request::CloseSession { session })
            }
            Control::KeepAlive => {
                self.session.used(now_ns);
                (own, Request::KeepAlive { session: self.session.id() })
            }
            Control::Regions | Control::Trust => {
                if self.owed() != Owed::Promptly {
                    self.connection.heard(now_ns);
                }
                if control == Control::Regions {
                    self.control_ids.regions = Some((own, now_ns));
                    (own, Request::Regions)
                } else {
                    self.control_ids.trust = Some((own, now_ns));
                    (own, Request::KeepAlive { session: None })
                }
            }
            Control::Credit { stream, .. } if self.flights.waiting_for(stream).is_none() => return false,
            Control::Credit { stream, bytes } => (stream, Request::Credit { bytes }),
            Control::Cancel { stream } => (stream, Request::Cancel),
        };
        self.outbox.message.clear();
        let header = RequestHeader { id, pair: PAIR_ANY };
        let encoded = request.encode(header, &mut self.outbox.message);
        // Only a hello has parts of free length, and those were checked when the core was made.
        encoded.is_ok()
    }

    fn window(&self) -> usize {
        let server = self.connection.server.as_ref();
        let permitted = server.map_or(1, |server| server.limits.in_flight_max);
        self.options.in_flight_max.min(usize::try_from(permitted).unwrap_or(usize::MAX)).max(1)
    }

    fn next_operation(&mut self, now_ns: u64) -> bool {
        while self.in_flight < self.window() {
            let Some(place) = self.ready.pop_front() else { return false };
            if self.name(place) && self.admit_stream(place) {
                self.send(place, now_ns);
                return true;
            }
        }
        false
    }

    /// Gives a write its name, once and for all; without a session it waits for one.
    fn name(&mut self, place: Place) -> bool {
        let flight = self.flights.get_mut(place);
        if flight.is_write() && flight.name.is_none() {
            flight.name = self.session.number();
            if flight.name.is_none() {
                flight.state = State::WaitsForSession;
                self.waiting_for_session.push_back(place);
                return false;
            }
        }
        true
    }

    /// A streamed put waits while as many are open as the server permits.
    fn admit_stream(&mut self, place: Place) -> bool {
        if self.flights.get(place).kind != RequestKind::PutBegin {
            return true;
        }
        let limits = self.connection.server.as_ref().map(|server| server.limits);
        let permitted = limits.map_or(1, |limits| limits.streams_max.max(1));
        if self.upload_count >= usize::try_from(permitted).unwrap_or(usize::MAX) {
            self.flights.get_mut(place).state = State::WaitsForStream;
            self.waiting_for_stream.push_back(place);
            return false;
        }
        let mut upload = Upload::new(limits.map_or(0, |limits| limits.stream_credit_bytes));
        upload.listed = upload.can_send(&self.flights.get(place).value);
        if upload.listed {
            self.uploads.push_back(place);
        }
        self.upload_count += 1;
        self.flights.get_mut(place).upload = Some(upload);
        true
    }

    fn send(&mut self, place: Place, now_ns: u64) {
        let id = self.flights.next_id(place);
        let flight = self.flights.get_mut(place);
        flight.state = State::Sent;
        flight.id = id;
        flight.attempts += 1;
        flight.sent_ns = now_ns;
        RequestHeader { id, pair: PAIR_ANY }.stamp(&mut flight.message);
        if let Some((session, number)) = flight.name {
            WriteName { session, number, floor: self.session.floor(session) }.stamp(&mut flight.message);
            self.session.used(now_ns);
        }
        self.outbox.message.clear();
        self.outbox.message.extend_from_slice(&flight.message);
        let prompt = flight.is_prompt();
        let owed = self.owed();
        if owed == Owed::Nothing || (prompt && owed == Owed::Sometime) {
            self.connection.heard(now_ns);
        }
        self.in_flight_prompt += usize::from(prompt);
        self.in_flight += 1;
    }

    fn next_chunk(&mut self) -> bool {
        while let Some(place) = self.uploads.pop_front() {
            let flight = self.flights.get_mut(place);
            let (id, value) = (flight.id, &flight.value);
            let Some(upload) = &mut flight.upload else { continue };
            let chunk = upload.next_chunk(value);
            upload.listed = upload.can_send(value);
            if upload.listed {
                self.uploads.push_back(place);
            }
            let Some(chunk) = chunk else { continue };
            self.outbox.message.clear();
            let header = RequestHeader { id, pair: PAIR_ANY };
            if Request::Chunk(chunk).encode(header, &mut self.outbox.message).is_ok() {
                return true;
            }
        }
        false
    }
}
