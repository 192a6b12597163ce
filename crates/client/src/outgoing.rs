//! What the client sends, and when: hello first, then its own requests, then operations and chunks in turn.

use cell_protocol::{ClientReport, ReportedReads, Request, RequestHeader, RequestKind, WriteName};
use cell_terms::PairId;

use crate::client_core::{ClientCommand, ClientCore};
use crate::connection::{ConnectionPhase, Owed};
use crate::control::{Control, SentControl, hello};
use crate::link_id::LinkId;
use crate::operation::OperationSlot;
use crate::pending::{PendingState, SLOT_OF_CONTROL};
use crate::stream::Upload;

/// Which pair a request is for: whichever has the key.
const PAIR_ANY: PairId = PairId(0);

/// A command, before what it borrows.
enum NextCommand {
    Connect,
    Send,
    Close,
}

impl ClientCore {
    /// What the shell is to do next; call it until there is nothing.
    pub fn command(&mut self, now_ns: u64) -> Option<ClientCommand<'_>> {
        for id in self.links.ids_from(self.turn) {
            if let Some(next) = self.next_of(id, now_ns) {
                self.turn = id.index();
                return Some(match next {
                    NextCommand::Close => ClientCommand::Close { link: id },
                    NextCommand::Connect => self.connect(id),
                    NextCommand::Send => {
                        ClientCommand::Send { link: id, message: &self.links[id].outbox.message }
                    }
                });
            }
        }
        None
    }

    fn next_of(&mut self, id: LinkId, now_ns: u64) -> Option<NextCommand> {
        let link = &mut self.links[id];
        if std::mem::take(&mut link.close_wanted) {
            return Some(NextCommand::Close);
        }
        if !link.connection.is_open() {
            let begins = self.has_work(id) && self.links[id].connection.begin(now_ns);
            return begins.then_some(NextCommand::Connect);
        }
        if link.connection.blocked {
            return None;
        }
        let sends = link.outbox.take_kept() || self.next_message(id, now_ns);
        sends.then_some(NextCommand::Send)
    }

    /// The bootstrap link tries what the user gave and, in turn with it, what was learnt since.
    fn connect(&mut self, id: LinkId) -> ClientCommand<'_> {
        let link = &mut self.links[id];
        let attempt = link.attempt;
        link.attempt += 1;
        if id != LinkId::BOOTSTRAP {
            return ClientCommand::Connect { link: id, address: self.links[id].address.as_deref(), attempt };
        }
        let learnt = self.routing.addresses();
        let count = learnt.clone().count() as u64;
        let turn = attempt / 2;
        match usize::try_from(turn.checked_rem(count).unwrap_or(0)) {
            Ok(at) if count > 0 && attempt % 2 == 1 => {
                ClientCommand::Connect { link: id, address: learnt.clone().nth(at), attempt }
            }
            _ if count > 0 => ClientCommand::Connect { link: id, address: None, attempt: turn },
            _ => ClientCommand::Connect { link: id, address: None, attempt },
        }
    }

    /// Puts the next message into the outbox; false if there is none.
    fn next_message(&mut self, id: LinkId, now_ns: u64) -> bool {
        let link = &mut self.links[id];
        match link.connection.phase {
            ConnectionPhase::Down { .. } | ConnectionPhase::Opening { .. } => false,
            ConnectionPhase::Greeting { .. } => self.next_control(id, now_ns),
            ConnectionPhase::Up => {
                let chunk_first = link.uploads.alternate();
                let (asks, operates, streams) =
                    (!link.control.is_empty(), link.may_operate(), link.uploads.has_sendable());
                (asks && self.next_control(id, now_ns))
                    || (streams && chunk_first && self.next_chunk(id))
                    || (operates && self.next_operation(id, now_ns))
                    || (self.ask_for_session(id, now_ns) && self.next_control(id, now_ns))
                    || (streams && self.next_chunk(id))
            }
        }
    }

    /// Whether a session is to be asked for, because writes wait for one.
    fn ask_for_session(&mut self, id: LinkId, now_ns: u64) -> bool {
        let asks = self.session.begin_opening(id, now_ns);
        if asks {
            self.links[id].control.push_back(Control::OpenSession);
        }
        asks
    }

    fn next_control(&mut self, id: LinkId, now_ns: u64) -> bool {
        while let Some(control) = self.links[id].control.pop_front() {
            if self.encode_control(id, control, now_ns) {
                return true;
            }
        }
        false
    }

    /// False if the request has lost its point.
    fn encode_control(&mut self, link_id: LinkId, control: Control, now_ns: u64) -> bool {
        let own = self.pending.next_id(SLOT_OF_CONTROL);
        let report = (control == Control::Report).then(|| self.take_report(link_id, now_ns));
        let owed = self.owed(link_id);
        let link = &mut self.links[link_id];
        if control.is_answered_at_once() && owed != Owed::Promptly {
            link.connection.on_activity(now_ns);
        }
        let sent = SentControl { id: own, sent_ns: now_ns };
        let (id, request) = match control {
            Control::Hello => {
                link.sent_controls.hello = Some(own);
                link.stream_credit_bytes = self.options.stream_credit_bytes;
                (own, hello(&self.options, link.reporting.transport))
            }
            Control::OpenSession => {
                link.sent_controls.open_session = Some(sent);
                (own, Request::OpenSession)
            }
            Control::CloseSession => {
                let Some(session) = self.session.id() else { return false };
                link.sent_controls.close_session = Some(own);
                (own, Request::CloseSession { session })
            }
            Control::KeepAlive => {
                // Only one node is to speak for the session.
                let session = self.session.id().filter(|_| link_id == self.session.home());
                if session.is_some() {
                    self.session.used(now_ns);
                }
                (own, Request::KeepAlive { session })
            }
            Control::Table { from } => {
                link.sent_controls.table = Some((sent, from));
                (own, Request::Table { from })
            }
            Control::Regions => {
                link.sent_controls.regions = Some(sent);
                (own, Request::Regions)
            }
            Control::Trust => {
                link.sent_controls.trust = Some(sent);
                (own, Request::KeepAlive { session: None })
            }
            Control::Report => {
                let Some(report) = report else { return false };
                link.sent_controls.report = Some(own);
                let reported_reads = ReportedReads::List(&self.reporting.reported_reads);
                (own, Request::Report(ClientReport { name: &self.options.name, reported_reads, ..report }))
            }
            Control::Credit { stream, .. } if self.pending.waiting_for(stream).is_none() => return false,
            Control::Credit { stream, bytes } => (stream, Request::Credit { bytes }),
            Control::Cancel { stream } => (stream, Request::Cancel),
        };
        link.outbox.message.clear();
        let encoded = request.encode(RequestHeader { id, pair: PAIR_ANY }, &mut link.outbox.message);
        // Only a hello and a report have parts of free length; the hello's were checked when the core was
        // made, the report's name with them.
        encoded.is_ok()
    }

    fn next_operation(&mut self, id: LinkId, now_ns: u64) -> bool {
        loop {
            let link = &mut self.links[id];
            if link.is_full() {
                return false;
            }
            // A stream that waited for another one to end is the older one.
            let streams_max = link.streams_max();
            let began = link.uploads.pop_waiting(streams_max);
            let Some(slot) = began.or_else(|| link.ready.pop_front()) else { return false };
            let pending = self.pending.get(slot);
            let (unnamed, streams) =
                (pending.is_write() && pending.name.is_none(), pending.kind == RequestKind::PutBegin);
            if (!unnamed || self.name(slot)) && (!streams || self.admit_stream(id, slot)) {
                self.send(id, slot, now_ns);
                return true;
            }
        }
    }

    /// Gives a write its name, once and for all; without a session it waits for one.
    fn name(&mut self, slot: OperationSlot) -> bool {
        let pending = self.pending.get_mut(slot);
        pending.name = self.session.number();
        if pending.name.is_none() {
            pending.state = PendingState::WaitsForSession;
            self.session.wait(slot);
        }
        pending.name.is_some()
    }

    /// A streamed put waits while as many are open as the server permits.
    fn admit_stream(&mut self, id: LinkId, slot: OperationSlot) -> bool {
        let link = &mut self.links[id];
        let streams_max = link.streams_max();
        if !link.uploads.admit(slot, streams_max) {
            self.pending.get_mut(slot).state = PendingState::WaitsForStream;
            return false;
        }
        let server = link.connection.server.as_ref();
        let mut upload = Upload::new(server.map_or(0, |server| server.limits.stream_credit_bytes));
        upload.listed = upload.can_send(&self.pending.get(slot).value);
        if upload.listed {
            link.uploads.push_sendable(slot);
        }
        self.pending.get_mut(slot).upload = Some(upload);
        true
    }

    fn send(&mut self, link_id: LinkId, slot: OperationSlot, now_ns: u64) {
        let id = self.pending.next_id(slot);
        let reading = self.is_reading(link_id);
        let link = &mut self.links[link_id];
        let pending = self.pending.get_mut(slot);
        pending.state = PendingState::Sent;
        pending.id = id;
        pending.attempts += 1;
        pending.sent_ns = now_ns;
        RequestHeader { id, pair: PAIR_ANY }.stamp(&mut pending.message);
        if let Some((session, number)) = pending.name {
            WriteName { session, number, floor: self.session.floor(session) }.stamp(&mut pending.message);
            if link_id == self.session.home() {
                self.session.used(now_ns);
            }
        }
        link.outbox.message.clear();
        link.outbox.message.extend_from_slice(&pending.message);
        link.on_sent(now_ns, pending.is_prompt(), reading);
    }

    fn next_chunk(&mut self, id: LinkId) -> bool {
        let link = &mut self.links[id];
        while let Some(slot) = link.uploads.pop_sendable() {
            let pending = self.pending.get_mut(slot);
            let (id, value) = (pending.id, &pending.value);
            let Some(upload) = &mut pending.upload else { continue };
            let chunk = upload.next_chunk(value);
            upload.listed = upload.can_send(value);
            if upload.listed {
                link.uploads.push_sendable(slot);
            }
            let Some(chunk) = chunk else { continue };
            link.outbox.message.clear();
            let header = RequestHeader { id, pair: PAIR_ANY };
            if Request::Chunk(chunk).encode(header, &mut link.outbox.message).is_ok() {
                return true;
            }
        }
        false
    }
}
