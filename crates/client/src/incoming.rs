//! What the server sends, and what it leads to.

use cell_protocol::{Chunk, Refusal, Reply, ReplyHeader, RequestId, RequestKind, ValueBegin};

use crate::client_core::ClientCore;
use crate::connection::{Phase, ServerInfo};
use crate::error::{Dismissal, Setback};
use crate::flight::{Place, State};
use crate::link::LinkId;
use crate::outgoing::Control;
use crate::output::{CheckResult, FoundValues, NodeStatus, RegionTable, ScanPage, TreeShape};
use crate::stream::{Download, Progress};
use crate::verdict::{Verdict, verdict};
use crate::{ClientError, Item, Output};

/// Values up to this length are taken in, whatever the server's present limit for new ones.
const VALUE_BYTES_MAX_LEAST: u32 = 64 << 20;

/// What a reply is to an operation of some kind.
enum Answer {
    /// Its end.
    Output(Output),
    /// A step of its stream, or a refusal; to be looked at further.
    Further,
    /// Nothing that was asked.
    Unfitting,
}

impl ClientCore {
    /// A message came on the connection. A reply that nobody waits for (a duplicate, or one to an operation
    /// that was given up) is ignored; a message that makes no sense costs the connection.
    pub fn message(&mut self, link: LinkId, now_ns: u64, message: &[u8]) {
        let decoded = Reply::decode(message);
        let connection = &mut self.links[link.index()].connection;
        let taken = match (connection.phase, decoded) {
            (Phase::Down { .. } | Phase::Opening { .. }, _) => return,
            (_, Err(error)) => Err(Setback::Undecodable(error)),
            (Phase::Greeting { .. }, Ok((header, reply))) => self.greeted(link, now_ns, &header, &reply),
            (Phase::Up, Ok((header, reply))) => {
                connection.heard(now_ns);
                self.heard_header(link, &header);
                let taken = self.replied(link, now_ns, &header, &reply, message);
                self.take_ended(now_ns);
                taken
            }
        };
        if let Err(why) = taken {
            tracing::warn!(%why, "the server broke the protocol; connecting anew");
            self.abandon_connection(link, now_ns, why);
        }
    }

    /// What every reply says of lease and watermark.
    fn heard_header(&mut self, link: LinkId, header: &ReplyHeader) {
        let id = header.id;
        let Some(reader) = &mut self.reader else { return };
        let of_operation = self.flights.waiting_for(id).map(|place| self.flights.get(place).sent_ns);
        let ids = &self.links[link.index()].control_ids;
        let own = [ids.regions, ids.trust];
        let of_own = own.into_iter().flatten().find(|asked| asked.id == id).map(|asked| asked.sent_ns);
        reader.heard(link, header, of_operation.or(of_own));
    }

    fn greeted(
        &mut self,
        link: LinkId,
        now_ns: u64,
        header: &ReplyHeader,
        reply: &Reply<'_>,
    ) -> Result<(), Setback> {
        if Some(header.id) != self.links[link.index()].control_ids.hello {
            return Err(Setback::Unfitting);
        }
        match *reply {
            Reply::Hello(hello) => {
                let (node, incarnation, limits) = (hello.node, hello.incarnation, hello.limits);
                let name = hello.name.to_owned();
                self.welcomed(link, now_ns, ServerInfo { node, incarnation, limits, name });
                Ok(())
            }
            Reply::Refused(refusal) => {
                self.not_welcome(link, now_ns, refusal);
                Ok(())
            }
            _ => Err(Setback::Unfitting),
        }
    }

    /// The hello was refused: for now, or for good.
    fn not_welcome(&mut self, link: LinkId, now_ns: u64, refusal: Refusal) {
        let dismissal = match refusal {
            Refusal::Busy
            | Refusal::Recovering
            | Refusal::NotOwner
            | Refusal::Shutdown
            | Refusal::Internal => None,
            Refusal::VersionUnsupported { min, max } => Some(Dismissal::VersionUnsupported { min, max }),
            Refusal::Unauthorized => Some(Dismissal::Unauthorized),
            other => Some(Dismissal::Refused(other)),
        };
        self.abandon_connection(link, now_ns, Setback::Refused(refusal));
        // One node of several is no reason to give all of them up.
        if let Some(dismissal) = dismissal.filter(|_| self.links.len() == 1) {
            self.dismiss(now_ns, dismissal);
        }
    }

    fn replied(
        &mut self,
        link: LinkId,
        now_ns: u64,
        header: &ReplyHeader,
        reply: &Reply<'_>,
        message: &[u8],
    ) -> Result<(), Setback> {
        let id = header.id;
        if let Some(place) = self.flights.waiting_for(id) {
            return self.answered(place, now_ns, reply, message);
        }
        let ids = &mut self.links[link.index()].control_ids;
        if ids.open_session.is_some_and(|asked| asked.id == id) {
            ids.open_session = None;
            return self.session_answered(now_ns, reply);
        }
        if Some(id) == ids.close_session {
            ids.close_session = None;
            self.session_closing = false;
            if let Some(session) = self.session.id() {
                self.session.ended(session);
            }
            return Ok(());
        }
        if let Some((_, from)) = ids.table.filter(|(asked, _)| asked.id == id) {
            ids.table = None;
            match reply {
                Reply::Table(report) => self.table_came(link, now_ns, from, report),
                Reply::Refused(_) => self.table_withheld(link),
                _ => return Err(Setback::Unfitting),
            }
            return Ok(());
        }
        if ids.trust.is_some_and(|asked| asked.id == id) {
            ids.trust = None;
            if let Some(reader) = &mut self.reader {
                reader.trust_answered(link);
            }
            return Ok(());
        }
        if ids.regions.is_some_and(|asked| asked.id == id) {
            return self.regions_answered(link, now_ns, header, reply);
        }
        if matches!(reply, Reply::ValueBegin(_)) {
            // Its get was given up before the server began to answer, so nobody returns credit: free the
            // stream.
            self.links[link.index()].control.push_back(Control::Cancel { stream: id });
        }
        // A sign of life is good for being one; that a kept session has ended is learnt from the next write.
        Ok(())
    }

    fn regions_answered(
        &mut self,
        link: LinkId,
        now_ns: u64,
        header: &ReplyHeader,
        reply: &Reply<'_>,
    ) -> Result<(), Setback> {
        if let Some(reader) = &mut self.reader {
            match reply {
                Reply::Regions(regions) => reader.regions_answered(link, now_ns, Some(regions)),
                Reply::Refused(_) => reader.regions_answered(link, now_ns, None),
                _ => return Err(Setback::Unfitting),
            }
        }
        // What the reply says of the lease could not be taken in before its registrations were.
        self.heard_header(link, header);
        self.links[link.index()].control_ids.regions = None;
        Ok(())
    }

    fn session_answered(&mut self, now_ns: u64, reply: &Reply<'_>) -> Result<(), Setback> {
        self.session.opening_failed();
        match *reply {
            Reply::Session { session, idle_ms } => {
                self.session.opened(session, idle_ms, now_ns);
                self.session_failed_count = 0;
                while let Some(place) = self.waiting_for_session.pop_back() {
                    let flight = self.flights.get_mut(place);
                    flight.state = State::Ready;
                    self.links[flight.link.index()].ready.push_front(place);
                }
                Ok(())
            }
            Reply::Refused(refusal) => {
                self.last_setback = Some(Setback::Refused(refusal));
                self.session_failed_count += 1;
                let wait_ns = self.backoff.wait_ns(self.session_failed_count, &mut self.random);
                self.session_not_before_ns = now_ns.saturating_add(wait_ns);
                for &place in &self.waiting_for_session {
                    self.flights.get_mut(place).last = Some(Setback::Refused(refusal));
                }
                Ok(())
            }
            _ => Err(Setback::Unfitting),
        }
    }

    fn answered(
        &mut self,
        place: Place,
        now_ns: u64,
        reply: &Reply<'_>,
        message: &[u8],
    ) -> Result<(), Setback> {
        let flight = self.flights.get(place);
        match (answer(flight.kind, flight.keys, reply, message), *reply) {
            (Answer::Output(output), _) => {
                self.finish(place, now_ns, Ok(output));
                Ok(())
            }
            (Answer::Further, Reply::Refused(refusal)) => self.refused(place, now_ns, refusal),
            (Answer::Further, Reply::Elsewhere(route)) => {
                self.flights.get_mut(place).last = Some(Setback::Refused(Refusal::NotOwner));
                self.elsewhere(place, now_ns, Some(&route));
                Ok(())
            }
            (Answer::Further, Reply::ValueBegin(begin)) => self.value_begins(place, now_ns, begin),
            (Answer::Further, Reply::Chunk(chunk)) => self.value_goes_on(place, now_ns, &chunk),
            (Answer::Further, Reply::Credit { bytes }) => {
                self.credited(place, bytes);
                Ok(())
            }
            (Answer::Further | Answer::Unfitting, _) => Err(Setback::Unfitting),
        }
    }

    fn refused(&mut self, place: Place, now_ns: u64, refusal: Refusal) -> Result<(), Setback> {
        let flight = self.flights.get_mut(place);
        let verdict = verdict(refusal.status(), flight.is_write(), flight.fate_open);
        flight.last = Some(Setback::Refused(refusal));
        let error = match verdict {
            Verdict::Elsewhere => {
                self.elsewhere(place, now_ns, None);
                return Ok(());
            }
            Verdict::Again => {
                self.watch.trouble |= self.spread && refusal == Refusal::Recovering;
                self.again(place, now_ns);
                return Ok(());
            }
            Verdict::AgainOpen => {
                flight.fate_open = true;
                self.again(place, now_ns);
                return Ok(());
            }
            Verdict::Rename => {
                self.rename(place, now_ns);
                return Ok(());
            }
            Verdict::Decided => {
                let Refusal::ConditionFailed { current } = refusal else { return Err(Setback::Unfitting) };
                ClientError::ConditionFailed { current }
            }
            Verdict::Refused => ClientError::Refused(refusal),
            Verdict::Unknown => {
                self.forget_session_of(place, refusal);
                let flight = self.flights.get(place);
                let waited_ms = now_ns.saturating_sub(flight.submitted_ns) / 1_000_000;
                ClientError::Unknown { waited_ms, last: flight.last }
            }
            Verdict::Unfitting => return Err(Setback::Unfitting),
        };
        self.finish(place, now_ns, Err(error));
        Ok(())
    }

    /// Sends the operation again after a wait, unless that was often enough.
    fn again(&mut self, place: Place, now_ns: u64) {
        self.unsend(place);
        self.again_from_ready(place, now_ns);
    }

    /// As [`ClientCore::again`], of one that is not in flight any more.
    pub(crate) fn again_from_ready(&mut self, place: Place, now_ns: u64) {
        let flight = self.flights.get(place);
        if flight.attempts > self.options.retries_max {
            let error = flight.given_up(now_ns);
            self.finish(place, now_ns, Err(error));
            return;
        }
        self.rest(place, now_ns);
    }

    /// The session has ended, and the one copy that was sent was refused: the write may have another name.
    fn rename(&mut self, place: Place, now_ns: u64) {
        self.forget_session_of(place, Refusal::SessionUnknown);
        if let Some((session, number)) = self.flights.get_mut(place).name.take() {
            self.session.settle(session, number);
        }
        self.again(place, now_ns);
    }

    fn forget_session_of(&mut self, place: Place, refusal: Refusal) {
        if let (Refusal::SessionUnknown, Some((session, _))) = (refusal, self.flights.get(place).name) {
            self.session.ended(session);
        }
    }

    fn value_begins(&mut self, place: Place, now_ns: u64, begin: ValueBegin) -> Result<(), Setback> {
        let link = self.flights.get(place).link.index();
        let server = self.links[link].connection.server.as_ref();
        let permitted = server.map_or(0, |server| server.limits.value_bytes_max);
        // A server whose limit was lowered still has its old values.
        let value_bytes_max = permitted.max(VALUE_BYTES_MAX_LEAST);
        let mut download = Download::new(begin, self.options.stream_credit_bytes, value_bytes_max)?;
        let flight = self.flights.get_mut(place);
        if flight.download.is_some() {
            return Err(Setback::Unfitting);
        }
        let progress = download.progress();
        flight.download = Some(download);
        self.progressed(place, now_ns, progress)
    }

    fn value_goes_on(&mut self, place: Place, now_ns: u64, chunk: &Chunk<'_>) -> Result<(), Setback> {
        let download = self.flights.get_mut(place).download.as_mut().ok_or(Setback::Unfitting)?;
        let progress = download.take(chunk);
        self.progressed(place, now_ns, progress)
    }

    fn progressed(
        &mut self,
        place: Place,
        now_ns: u64,
        progress: Result<Progress, Setback>,
    ) -> Result<(), Setback> {
        match progress {
            Ok(Progress::More { credit: None }) => {}
            Ok(Progress::More { credit: Some(bytes) }) => {
                let flight = self.flights.get(place);
                let (link, stream): (_, RequestId) = (flight.link.index(), flight.id);
                self.links[link].control.push_back(Control::Credit { stream, bytes });
            }
            Ok(Progress::Whole(item)) => self.finish(place, now_ns, Ok(Output::Value(Some(item)))),
            Err(why @ Setback::Damaged { .. }) => {
                self.flights.get_mut(place).last = Some(why);
                self.last_setback = Some(why);
                self.again(place, now_ns);
            }
            Err(why) => return Err(why),
        }
        Ok(())
    }

    fn credited(&mut self, place: Place, bytes: u32) {
        let flight = self.flights.get_mut(place);
        let Some(upload) = &mut flight.upload else { return };
        upload.grant(bytes);
        if !upload.listed && upload.can_send(&flight.value) {
            upload.listed = true;
            self.links[flight.link.index()].uploads.push_back(place);
        }
    }
}

/// What a reply is to a request of this kind.
fn answer(kind: RequestKind, keys: usize, reply: &Reply<'_>, message: &[u8]) -> Answer {
    use RequestKind as K;
    let output = match (kind, *reply) {
        (_, Reply::Refused(_) | Reply::Elsewhere(_))
        | (K::Get, Reply::ValueBegin(_) | Reply::Chunk(_))
        | (K::PutBegin, Reply::Credit { .. }) => return Answer::Further,
        (K::Search, Reply::Exists) => Output::Exists(true),
        (K::Search, Reply::NotFound) => Output::Exists(false),
        (K::Get, Reply::Value { version, value }) => {
            Output::Value(Some(Item { version, value: value.to_vec() }))
        }
        (K::Get, Reply::NotFound) => Output::Value(None),
        (K::Put | K::PutBegin, Reply::Written { version }) => Output::Written(version),
        (K::Delete, Reply::Deleted) => Output::Deleted(true),
        (K::Delete, Reply::NotFound) => Output::Deleted(false),
        (K::MultiGet, Reply::Values(values)) if values.len() == keys => {
            Output::Values(FoundValues::keep(message))
        }
        (K::Scan, Reply::Page(_)) => Output::Page(ScanPage::keep(message)),
        (K::Status, Reply::Status(_)) => Output::Status(NodeStatus::keep(message)),
        (K::Table, Reply::Table(_)) => Output::Table(RegionTable::keep(message)),
        (K::Tree, Reply::Tree(_)) => Output::Tree(TreeShape::keep(message)),
        (K::Check, Reply::Checked(_)) => Output::Checked(CheckResult::keep(message)),
        _ => return Answer::Unfitting,
    };
    Answer::Output(output)
}
