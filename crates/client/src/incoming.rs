//! What the server sends, and what it leads to.

use cell_protocol::{Chunk, Page, Refusal, Reply, ReplyHeader, RequestId, RequestKind, ValueBegin, Values};
use cell_terms::{Incarnation, PairId};

use crate::client_core::ClientCore;
use crate::connection::{ConnectionPhase, ServerInfo};
use crate::control::Control;
use crate::error::{AttemptError, Dismissal};
use crate::link_id::LinkId;
use crate::mutant::{Mutant, planted};
use crate::operation::OperationSlot;
use crate::output::{CheckResult, FoundValues, NodeStatus, RegionTable, ScanPage, TreeShape};
use crate::pending::PendingState;
use crate::refusal_action::{RefusalAction, action_on};
use crate::stream::{Download, Progress};
use crate::{ClientError, Item, Output};

/// Values up to this length are taken in, whatever the server's present limit for new ones.
const VALUE_BYTES_MAX_LEAST: u32 = 64 << 20;

/// What a reply is to an operation of some kind.
enum ReplyRole {
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
        let asked = self.links[link].sent_controls.report;
        let connection = &mut self.links[link].connection;
        let taken = match (connection.phase, decoded) {
            (ConnectionPhase::Down { .. } | ConnectionPhase::Opening { .. }, _) => return,
            (_, Err(error)) => Err(AttemptError::Undecodable(error)),
            (ConnectionPhase::Greeting { .. }, Ok((header, reply))) => {
                self.on_hello_reply(link, now_ns, &header, &reply)
            }
            (ConnectionPhase::Up, Ok((header, reply))) if asked == Some(header.id) => {
                return self.on_report_reply(link, now_ns, &reply);
            }
            (ConnectionPhase::Up, Ok((header, reply))) => {
                connection.on_activity(now_ns);
                self.on_reply_header(link, &header);
                let taken = self.on_reply(link, now_ns, &header, &reply, message);
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
    fn on_reply_header(&mut self, link: LinkId, header: &ReplyHeader) {
        let id = header.id;
        let Some(reader) = &mut self.reader else { return };
        let of_operation = self.pending.waiting_for(id).map(|slot| self.pending.get(slot).sent_ns);
        let ids = &self.links[link].sent_controls;
        let own = [ids.regions, ids.trust];
        let of_own = own.into_iter().flatten().find(|asked| asked.id == id).map(|asked| asked.sent_ns);
        reader.on_reply_header(link, header, of_operation.or(of_own));
    }

    fn on_hello_reply(
        &mut self,
        link: LinkId,
        now_ns: u64,
        header: &ReplyHeader,
        reply: &Reply<'_>,
    ) -> Result<(), AttemptError> {
        if Some(header.id) != self.links[link].sent_controls.hello {
            return Err(AttemptError::Unfitting);
        }
        match *reply {
            Reply::Hello(hello) => {
                let (node, incarnation, limits) = (hello.node, hello.incarnation, hello.limits);
                if !self.is_of_this_cluster(incarnation) {
                    self.abandon_connection(link, now_ns, AttemptError::OtherCluster);
                    return Ok(());
                }
                let name = hello.name.to_owned();
                self.on_welcome(link, now_ns, ServerInfo { node, incarnation, limits, name });
                Ok(())
            }
            Reply::Refused(refusal) => {
                self.on_hello_refused(link, now_ns, refusal);
                Ok(())
            }
            _ => Err(AttemptError::Unfitting),
        }
    }

    /// Whether a node is of the cluster that this client met first. An address may lead to another one by
    /// now, for which nothing was meant.
    fn is_of_this_cluster(&mut self, incarnation: Incarnation) -> bool {
        let cluster = incarnation.cluster();
        *self.cluster.get_or_insert(cluster) == cluster || planted(Mutant::ClusterUnasked)
    }

    /// The hello was refused: for now, or for good.
    fn on_hello_refused(&mut self, link: LinkId, now_ns: u64, refusal: Refusal) {
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
        let why = match refusal {
            Refusal::Busy => AttemptError::NoPlace,
            other => AttemptError::Refused(other),
        };
        self.abandon_connection(link, now_ns, why);
        // One node of several is no reason to give all of them up; what only this one can do is over.
        if refusal == Refusal::Unauthorized && self.links.len() > 1 {
            self.end_operations_at(link, now_ns);
        }
        if let Some(dismissal) = dismissal.filter(|_| self.links.len() == 1) {
            self.dismiss(now_ns, dismissal);
        }
    }

    /// Ends what waits for a node that does not accept the token: it would wait in vain.
    fn end_operations_at(&mut self, link: LinkId, now_ns: u64) {
        let mut held = std::mem::take(&mut self.scratch);
        self.pending
            .collect(&mut held, |pending| pending.link == link && pending.state != PendingState::Joins);
        for &slot in &held {
            let pending = self.pending.get(slot);
            if pending.state == PendingState::Free {
                continue; // with another part of its operation
            }
            let unknown = pending.is_write() && pending.fate_open;
            let error = if unknown { pending.given_up(now_ns) } else { ClientError::Unauthorized };
            self.finish(slot, now_ns, Err(error));
        }
        self.scratch = held;
    }

    fn on_reply(
        &mut self,
        link: LinkId,
        now_ns: u64,
        header: &ReplyHeader,
        reply: &Reply<'_>,
        message: &[u8],
    ) -> Result<(), AttemptError> {
        let id = header.id;
        if let Some(slot) = self.pending.waiting_for(id) {
            return self.on_operation_reply(slot, now_ns, header.pair, reply, message);
        }
        let ids = &mut self.links[link].sent_controls;
        if ids.open_session.is_some_and(|asked| asked.id == id) {
            ids.open_session = None;
            return self.on_session_reply(now_ns, reply);
        }
        if Some(id) == ids.close_session {
            ids.close_session = None;
            self.session.closed();
            return Ok(());
        }
        if let Some((_, from)) = ids.table.filter(|(asked, _)| asked.id == id) {
            ids.table = None;
            match reply {
                Reply::Table(report) => self.on_table(link, now_ns, from, report),
                Reply::Refused(_) => self.routing.on_table_withheld(link),
                _ => return Err(AttemptError::Unfitting),
            }
            return Ok(());
        }
        if ids.trust.is_some_and(|asked| asked.id == id) {
            ids.trust = None;
            if let Some(reader) = &mut self.reader {
                reader.on_trust_reply(link);
            }
            return Ok(());
        }
        if ids.regions.is_some_and(|asked| asked.id == id) {
            return self.on_regions_reply(link, now_ns, header, reply);
        }
        if matches!(reply, Reply::ValueBegin(_)) {
            // Its get was given up before the server began to answer, so nobody returns credit: free the
            // stream.
            self.links[link].control.push_back(Control::Cancel { stream: id });
        }
        // A sign of life is good for being one; that a kept session has ended is learnt from the next write.
        Ok(())
    }

    fn on_regions_reply(
        &mut self,
        link: LinkId,
        now_ns: u64,
        header: &ReplyHeader,
        reply: &Reply<'_>,
    ) -> Result<(), AttemptError> {
        if let Some(reader) = &mut self.reader {
            match reply {
                Reply::Regions(regions) => reader.on_regions_reply(link, now_ns, Some(regions)),
                Reply::Refused(_) => reader.on_regions_reply(link, now_ns, None),
                _ => return Err(AttemptError::Unfitting),
            }
        }
        // What the reply says of the lease could not be taken in before its registrations were.
        self.on_reply_header(link, header);
        self.links[link].sent_controls.regions = None;
        Ok(())
    }

    fn on_session_reply(&mut self, now_ns: u64, reply: &Reply<'_>) -> Result<(), AttemptError> {
        match *reply {
            Reply::Session { session, idle_ms } => {
                self.session.opened(session, idle_ms, now_ns);
                while let Some(slot) = self.session.pop_waiting() {
                    let pending = self.pending.get_mut(slot);
                    pending.state = PendingState::Ready;
                    self.links[pending.link].ready.push_front(slot);
                }
                Ok(())
            }
            // Nothing that this client waits for would change it.
            Reply::Refused(refusal @ Refusal::Unauthorized) => {
                self.last_attempt_error = Some(AttemptError::Refused(refusal));
                self.session.opening_lost();
                while let Some(slot) = self.session.pop_waiting() {
                    let pending = self.pending.get(slot);
                    let error = if pending.fate_open {
                        pending.given_up(now_ns)
                    } else {
                        ClientError::refused(refusal, pending.kind)
                    };
                    self.finish(slot, now_ns, Err(error));
                }
                Ok(())
            }
            Reply::Refused(refusal) => {
                let why = AttemptError::Refused(refusal);
                self.last_attempt_error = Some(why);
                self.session.opening_refused(why, now_ns, &self.backoff, &mut self.random);
                Ok(())
            }
            _ => {
                self.session.opening_lost();
                Err(AttemptError::Unfitting)
            }
        }
    }

    fn on_operation_reply(
        &mut self,
        slot: OperationSlot,
        now_ns: u64,
        pair: PairId,
        reply: &Reply<'_>,
        message: &[u8],
    ) -> Result<(), AttemptError> {
        let pending = self.pending.get(slot);
        let role = role_of(pending.kind, pending.keys().len(), pair, reply, message);
        match (role, *reply) {
            (ReplyRole::Output(output), _) => {
                self.on_server_search(slot, now_ns);
                self.finish(slot, now_ns, Ok(output));
                Ok(())
            }
            (ReplyRole::Further, Reply::Refused(refusal)) => self.on_refusal(slot, now_ns, refusal),
            (ReplyRole::Further, Reply::Elsewhere(route)) => {
                self.pending.get_mut(slot).last = Some(AttemptError::Refused(Refusal::NotOwner));
                self.redirect(slot, now_ns, Some(&route));
                Ok(())
            }
            (ReplyRole::Further, Reply::ValueBegin(begin)) => self.on_value_begin(slot, now_ns, begin),
            (ReplyRole::Further, Reply::Chunk(chunk)) => self.on_chunk(slot, now_ns, &chunk),
            (ReplyRole::Further, Reply::Credit { bytes }) => {
                self.on_credit(slot, bytes);
                Ok(())
            }
            (ReplyRole::Further | ReplyRole::Unfitting, _) => Err(AttemptError::Unfitting),
        }
    }

    fn on_refusal(&mut self, slot: OperationSlot, now_ns: u64, refusal: Refusal) -> Result<(), AttemptError> {
        let pending = self.pending.get_mut(slot);
        let action = action_on(refusal.status(), pending.is_write(), pending.fate_open);
        pending.last = Some(AttemptError::Refused(refusal));
        let error = match action {
            RefusalAction::Redirect => {
                self.redirect(slot, now_ns, None);
                return Ok(());
            }
            RefusalAction::Retry => {
                if self.routing.is_partitioned() && refusal == Refusal::Recovering {
                    self.routing.on_misrouted();
                }
                self.retry(slot, now_ns);
                return Ok(());
            }
            RefusalAction::RetryFateOpen => {
                pending.fate_open = true;
                self.retry(slot, now_ns);
                return Ok(());
            }
            RefusalAction::Rename => {
                self.rename(slot, now_ns);
                return Ok(());
            }
            RefusalAction::Decided => {
                let Refusal::ConditionFailed { current } = refusal else {
                    return Err(AttemptError::Unfitting);
                };
                ClientError::ConditionFailed { current }
            }
            RefusalAction::Refused => ClientError::refused(refusal, pending.kind),
            RefusalAction::Unknown => {
                self.forget_session_of(slot, refusal);
                let pending = self.pending.get(slot);
                let waited_ms = now_ns.saturating_sub(pending.submitted_ns) / 1_000_000;
                ClientError::Unknown { waited_ms, last: pending.last }
            }
            RefusalAction::Unfitting => return Err(AttemptError::Unfitting),
        };
        self.finish(slot, now_ns, Err(error));
        Ok(())
    }

    /// The session has ended, and the one copy that was sent was refused: the write may have another name.
    fn rename(&mut self, slot: OperationSlot, now_ns: u64) {
        self.forget_session_of(slot, Refusal::SessionUnknown);
        if let Some((session, number)) = self.pending.get_mut(slot).name.take() {
            self.session.end_number(session, number);
        }
        self.retry(slot, now_ns);
    }

    fn forget_session_of(&mut self, slot: OperationSlot, refusal: Refusal) {
        if let (Refusal::SessionUnknown, Some((session, _))) = (refusal, self.pending.get(slot).name) {
            self.session.ended(session);
        }
    }

    fn on_value_begin(
        &mut self,
        slot: OperationSlot,
        now_ns: u64,
        begin: ValueBegin,
    ) -> Result<(), AttemptError> {
        let link = &self.links[self.pending.get(slot).link];
        let server = link.connection.server.as_ref();
        let permitted = server.map_or(0, |server| server.limits.value_bytes_max);
        // A server whose limit was lowered still has its old values.
        let value_bytes_max = permitted.max(VALUE_BYTES_MAX_LEAST);
        let mut download = Download::new(begin, link.stream_credit_bytes, value_bytes_max)?;
        let pending = self.pending.get_mut(slot);
        if pending.download.is_some() {
            return Err(AttemptError::Unfitting);
        }
        let progress = download.progress();
        pending.download = Some(download);
        self.on_progress(slot, now_ns, progress)
    }

    fn on_chunk(&mut self, slot: OperationSlot, now_ns: u64, chunk: &Chunk<'_>) -> Result<(), AttemptError> {
        let download = self.pending.get_mut(slot).download.as_mut().ok_or(AttemptError::Unfitting)?;
        let progress = download.take(chunk);
        self.on_progress(slot, now_ns, progress)
    }

    fn on_progress(
        &mut self,
        slot: OperationSlot,
        now_ns: u64,
        progress: Result<Progress, AttemptError>,
    ) -> Result<(), AttemptError> {
        match progress {
            Ok(Progress::More { credit: None }) => {}
            Ok(Progress::More { credit: Some(bytes) }) => {
                let pending = self.pending.get(slot);
                let (link, stream): (_, RequestId) = (pending.link, pending.id);
                self.links[link].control.push_back(Control::Credit { stream, bytes });
            }
            Ok(Progress::Whole(item)) => {
                self.on_server_search(slot, now_ns);
                self.finish(slot, now_ns, Ok(Output::Value(Some(item))));
            }
            Err(why @ AttemptError::Damaged { .. }) => {
                self.pending.get_mut(slot).last = Some(why);
                self.last_attempt_error = Some(why);
                self.retry(slot, now_ns);
            }
            Err(why) => return Err(why),
        }
        Ok(())
    }

    fn on_credit(&mut self, slot: OperationSlot, bytes: u32) {
        let pending = self.pending.get_mut(slot);
        let Some(upload) = &mut pending.upload else { return };
        upload.grant(bytes);
        if !upload.listed && upload.can_send(&pending.value) {
            upload.listed = true;
            self.links[pending.link].uploads.push_sendable(slot);
        }
    }
}

/// What a reply of a pair is to a request of this kind.
fn role_of(kind: RequestKind, keys: usize, pair: PairId, reply: &Reply<'_>, message: &[u8]) -> ReplyRole {
    use RequestKind as K;
    let output = match (kind, *reply) {
        (_, Reply::Refused(_) | Reply::Elsewhere(_))
        | (K::Get, Reply::ValueBegin(_) | Reply::Chunk(_))
        | (K::PutBegin, Reply::Credit { .. }) => return ReplyRole::Further,
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
            Output::Values(found_values(&values, message.len()))
        }
        (K::Scan, Reply::Page(page)) => Output::Page(scan_page(&page, message.len()).answered_by(pair)),
        (K::Status, Reply::Status(_)) => Output::Status(NodeStatus::keep(message)),
        (K::Table, Reply::Table(_)) => Output::Table(RegionTable::keep(message)),
        (K::Tree, Reply::Tree(_)) => Output::Tree(TreeShape::keep(message)),
        (K::Check, Reply::Checked(_)) => Output::Checked(CheckResult::keep(message)),
        _ => return ReplyRole::Unfitting,
    };
    ReplyRole::Output(output)
}

/// The values of a message of so many bytes.
fn found_values(values: &Values<'_>, message_bytes: usize) -> FoundValues {
    let mut found = FoundValues::with_capacity(values.len(), message_bytes);
    values.iter().for_each(|value| found.push(value));
    found
}

/// The page of a message of so many bytes.
fn scan_page(page: &Page<'_>, message_bytes: usize) -> ScanPage {
    let mut kept = ScanPage::with_capacity(page.len(), message_bytes);
    page.iter().for_each(|entry| kept.push(&entry));
    kept.ending(page.resume)
}
