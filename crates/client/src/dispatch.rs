//! What becomes of an operation between its submission and its end: it is queued where routing says, sent
//! again, moved to another node, joined from its parts, or ended.

use cell_protocol::{RequestId, Route, TableReport};

use crate::client_core::ClientCore;
use crate::control::Control;
use crate::error::AttemptError;
use crate::join::Join;
use crate::link_id::{LinkId, LinkSet};
use crate::mutant::{Mutant, planted};
use crate::operation::OperationSlot;
use crate::peers::TableProgress;
use crate::pending::PendingState;
use crate::routing::RouteTarget;
use crate::{ClientError, Output, Ticket};

/// Hints that an operation follows before it waits.
const HOPS_MAX: u8 = 8;

impl ClientCore {
    /// Puts an operation among those that are to be sent, on the connection that leads to its keys.
    #[inline]
    pub(crate) fn enlist(&mut self, slot: OperationSlot, now_ns: u64) {
        if self.routing.is_partitioned() {
            return self.enlist_routed(slot, now_ns);
        }
        self.enlist_at(slot, LinkId::BOOTSTRAP);
    }

    fn enlist_routed(&mut self, slot: OperationSlot, now_ns: u64) {
        match self.route(slot) {
            RouteTarget::Link(link) => self.enlist_at(slot, link),
            RouteTarget::Parts(targets) if self.split(slot, &targets) => {}
            RouteTarget::Parts(_) | RouteTarget::NoOwner => {
                self.note_unserved(slot, None);
                self.routing.on_misrouted();
                self.back_off(slot, now_ns);
            }
        }
    }

    fn route(&mut self, slot: OperationSlot) -> RouteTarget {
        self.routing.route(self.pending.get(slot), &mut self.links, &self.options)
    }

    #[inline]
    fn enlist_at(&mut self, slot: OperationSlot, link: LinkId) {
        let pending = self.pending.get_mut(slot);
        (pending.state, pending.link) = (PendingState::Ready, link);
        self.links[link].ready.push_back(slot);
    }

    /// Makes parts of a multi-get: `targets` says for each key by which connection it goes. False if there is
    /// no slot for them.
    fn split(&mut self, whole: OperationSlot, targets: &[LinkId]) -> bool {
        let Some(parts) = self.pending.begin_parts(whole, Join::new(targets)) else { return false };
        for slot in parts {
            let link = self.pending.get(slot).link;
            self.links[link].ready.push_back(slot);
        }
        true
    }

    /// Lets an operation wait a little, longer each time.
    fn back_off(&mut self, slot: OperationSlot, now_ns: u64) {
        let pending = self.pending.get_mut(slot);
        pending.backoffs = pending.backoffs.saturating_add(1);
        let wait_ns = self.backoff.wait_ns(pending.backoffs, &mut self.random);
        self.pending.back_off(slot, now_ns.saturating_add(wait_ns));
    }

    /// Sends an operation that is on its way again after a wait, unless that was often enough.
    pub(crate) fn retry(&mut self, slot: OperationSlot, now_ns: u64) {
        self.unsend(slot);
        self.retry_unsent(slot, now_ns);
    }

    fn retry_unsent(&mut self, slot: OperationSlot, now_ns: u64) {
        let pending = self.pending.get(slot);
        if pending.attempts > self.options.retries_max {
            let error = pending.given_up(now_ns);
            self.finish(slot, now_ns, Err(error));
            return;
        }
        self.back_off(slot, now_ns);
    }

    /// A worker does not have what it was asked for: the operation follows its hint, or waits.
    pub(crate) fn redirect(&mut self, slot: OperationSlot, now_ns: u64, hint: Option<&Route<'_>>) {
        self.unsend(slot);
        let link = self.pending.get(slot).link;
        self.note_unserved(slot, hint.map(|route| route.pair));
        if let Some(hint) = hint {
            let target = self.routing.learn(hint, &mut self.links, &self.options);
            let pending = self.pending.get_mut(slot);
            if target.is_some_and(|target| target != link) && pending.hops < HOPS_MAX {
                pending.hops += 1;
                pending.attempts = pending.attempts.saturating_sub(1); // that was no retry
                return self.enlist(slot, now_ns);
            }
            if target.is_none() {
                // Nobody serves that pair: it is waited for, and others are asked meanwhile.
                let pending = self.pending.get_mut(slot);
                pending.attempts = pending.attempts.saturating_sub(1);
            }
        } else if self.routing.is_partitioned() {
            self.routing.forget(self.pending.get(slot));
        }
        let ticket = self.pending.get(slot).ticket.0;
        tracing::trace!(ticket, link = link.0, "no node is known to have its keys");
        self.routing.on_misrouted();
        self.retry_unsent(slot, now_ns);
    }

    /// What to say if no node comes to serve the keys in time, if the table says that none does now.
    fn note_unserved(&mut self, slot: OperationSlot, pair: Option<cell_terms::PairId>) {
        if let Some(unserved) = self.routing.unserved(self.pending.get(slot), pair) {
            self.pending.get_mut(slot).last = Some(unserved);
        }
    }

    /// Whose servers are so silent that others are asked what became of them.
    fn doubtful(&self, now_ns: u64) -> LinkSet {
        let is_doubtful = |link: &LinkId| self.links[*link].connection.is_doubtful(now_ns, self.owed(*link));
        self.links.ids().filter(is_doubtful).collect()
    }

    /// Asks for the table, if that is due.
    #[inline]
    pub(crate) fn watch_table(&mut self, now_ns: u64) {
        if self.routing.is_watching(&self.links) {
            let doubtful = self.doubtful(now_ns);
            if let Some(link) = self.routing.question(now_ns, doubtful, &mut self.links, &self.options) {
                self.links[link].control.push_back(Control::Table { from: 0 });
            }
        }
    }

    /// A node has sent the table, or a part of it.
    pub(crate) fn on_table(&mut self, link: LinkId, now_ns: u64, from: u32, report: &TableReport<'_>) {
        let reads_one_sided = self.reader.is_some();
        let progress = self.routing.on_table(from, report, &mut self.links, &self.options, reads_one_sided);
        match progress {
            TableProgress::More(from) => self.links[link].control.push_back(Control::Table { from }),
            TableProgress::Whole { changed } => {
                tracing::debug!(link = link.0, changed, "the region table was received");
                if changed {
                    self.on_new_table(now_ns);
                }
                let is_stale = self.reroute(now_ns, changed);
                self.routing.on_rerouted(is_stale);
                if !is_stale && !reads_one_sided {
                    self.links.want_none();
                }
            }
        }
    }

    /// Routes anew what waits for a node that does not answer; when the table has changed, what backs off
    /// too. Whether something still waits for a node that does not answer.
    fn reroute(&mut self, now_ns: u64, changed: bool) -> bool {
        if self.routing.is_partitioned() {
            let doubtful = self.doubtful(now_ns);
            let is_down = |link: &LinkId| !self.links[*link].connection.is_up();
            let down: LinkSet = self.links.ids().filter(is_down).collect();
            let mut slots = Vec::new();
            self.pending.collect(&mut slots, |pending| match pending.state {
                PendingState::Ready | PendingState::WaitsForStream | PendingState::Sent => {
                    down.contains(pending.link) || doubtful.contains(pending.link)
                }
                PendingState::BacksOff { .. } => changed && pending.waits_for_owner(),
                _ => false,
            });
            slots.into_iter().for_each(|slot| self.move_operation(slot, now_ns));
        }
        let is_needed =
            |link: &LinkId| !self.links[*link].connection.is_up() && self.links[*link].has_operations();
        self.links.ids().any(|link| is_needed(&link))
            || !self.doubtful(now_ns).is_empty()
            || self.pending.any(|pending| pending.waits_for_owner())
    }

    /// Sends an operation where its keys are by now.
    fn move_operation(&mut self, slot: OperationSlot, now_ns: u64) {
        let pending = self.pending.get(slot);
        let (state, before) = (pending.state, pending.link);
        if pending.is_about_node() {
            return;
        }
        if matches!(state, PendingState::BacksOff { .. }) {
            return self.enlist(slot, now_ns);
        }
        if matches!(self.route(slot), RouteTarget::Link(link) if link == before) {
            return;
        }
        if state == PendingState::Sent {
            self.cancel_stream(slot);
            self.unsend(slot);
            let silence_ms = self.options.silence_ms;
            let pending = self.pending.get_mut(slot);
            pending.fate_open |= pending.is_write();
            pending.last = Some(AttemptError::Silent { silence_ms });
        } else {
            self.unlist(slot);
        }
        self.enlist(slot, now_ns);
        let pending = self.pending.get(slot);
        tracing::trace!(ticket = pending.ticket.0, from = before.0, to = pending.link.0, "moved");
    }

    /// Takes an operation out of those that are on their way; it is ready to be sent again.
    pub(crate) fn unsend(&mut self, slot: OperationSlot) {
        let pending = self.pending.get_mut(slot);
        pending.state = PendingState::Ready;
        pending.id = RequestId(0);
        pending.download = None;
        let link = &mut self.links[pending.link];
        link.on_unsent(pending.is_prompt());
        if pending.upload.take().is_some() {
            link.uploads.end(slot);
        }
    }

    /// Notifies the server that an operation's stream, if it has one, has ended.
    fn cancel_stream(&mut self, slot: OperationSlot) {
        let pending = self.pending.get(slot);
        let link = &mut self.links[pending.link];
        if (pending.upload.is_some() || pending.download.is_some()) && link.connection.is_up() {
            link.control.push_back(Control::Cancel { stream: pending.id });
        }
    }

    /// Takes an operation out of the list in which it waits, if it does.
    fn unlist(&mut self, slot: OperationSlot) {
        let pending = self.pending.get(slot);
        let link = &mut self.links[pending.link];
        match pending.state {
            PendingState::Ready => link.ready.retain(|&listed| listed != slot),
            PendingState::WaitsForStream => link.uploads.stop_waiting(slot),
            PendingState::WaitsForSession => self.session.stop_waiting(slot),
            PendingState::BacksOff { .. }
            | PendingState::Sent
            | PendingState::OneSided
            | PendingState::Joins
            | PendingState::Free => {}
        }
    }

    /// An operation ends, from whichever state.
    pub(crate) fn finish(&mut self, slot: OperationSlot, now_ns: u64, outcome: Result<Output, ClientError>) {
        self.withdraw(slot, outcome.is_err());
        if let Some((whole, part, outcome)) = self.pending.finish(slot, now_ns, outcome) {
            self.on_part_ended(whole, part, now_ns, outcome);
        }
    }

    /// Gives an operation up whose answer nobody wants, as its deadline would, and takes its completion.
    ///
    /// A write that has not left is not done. One that has left may be done or not
    /// ([`crate::Fate::Unknown`]); it is not sent again, and is not waited for any more:
    ///
    /// 1. a put is refused for now, and waits to be sent again; its caller gives it up;
    /// 2. a later put of the same client to the same key is answered;
    /// 3. sent again, the first one would undo the second.
    pub fn give_up(&mut self, now_ns: u64, ticket: Ticket) {
        let slot = self.pending.find(ticket);
        let is_kept = |slot| planted(Mutant::DroppedWriteKept) && self.pending.get(slot).is_write();
        if let Some(slot) = slot.filter(|&slot| !is_kept(slot)) {
            let error = self.pending.get(slot).given_up(now_ns);
            self.finish(slot, now_ns, Err(error));
        }
        self.end_batched(Some(ticket), now_ns, || ClientError::Deadline { waited_ms: 0, last: None });
        self.pending.completion_of(ticket);
    }

    /// A part has ended; the last one ends the whole, and so does one that failed.
    fn on_part_ended(
        &mut self,
        whole: OperationSlot,
        part: u16,
        now_ns: u64,
        outcome: Result<Output, ClientError>,
    ) {
        let join = &mut self.pending.get_mut(whole).join;
        let joined = match (outcome, join) {
            (Ok(Output::Values(found)), Some(join)) => match join.take(part, found) {
                Some(values) => Ok(Output::Values(values)),
                None => return,
            },
            (outcome, _) => outcome,
        };
        self.finish(whole, now_ns, joined);
    }

    /// Nothing is to be done for an operation any more.
    #[inline]
    fn withdraw(&mut self, slot: OperationSlot, failed: bool) {
        let pending = self.pending.get(slot);
        let name = pending.name;
        match pending.state {
            PendingState::Ready | PendingState::WaitsForStream | PendingState::WaitsForSession => {
                self.unlist(slot);
            }
            PendingState::OneSided => {
                if let Some(reader) = &mut self.reader {
                    reader.abandon(slot);
                }
            }
            PendingState::Joins => self.end_parts(slot),
            PendingState::Sent => {
                if failed {
                    self.cancel_stream(slot);
                }
                self.unsend(slot);
            }
            PendingState::BacksOff { .. } | PendingState::Free => {}
        }
        if let Some((session, number)) = name {
            self.session.end_number(session, number);
        }
    }

    /// Ends the parts of an operation that has ended.
    fn end_parts(&mut self, whole: OperationSlot) {
        let mut parts = Vec::new();
        self.pending.collect(&mut parts, |pending| pending.part_of.is_some_and(|(of, _)| of == whole));
        for slot in parts {
            self.withdraw(slot, true);
            self.pending.end(slot);
        }
    }

    /// What was sent on a connection that is lost, and not answered, is sent again on the next one, there or
    /// elsewhere; a write's fate is open until then.
    pub(crate) fn resend(&mut self, id: LinkId, now_ns: u64, why: AttemptError) {
        let mut sent = std::mem::take(&mut self.scratch);
        self.pending.collect(&mut sent, |pending| pending.state == PendingState::Sent && pending.link == id);
        for &slot in sent.iter().rev() {
            if self.pending.get(slot).state != PendingState::Sent {
                continue; // it ended with another one that it was a part of
            }
            self.unsend(slot);
            let pending = self.pending.get_mut(slot);
            pending.fate_open |= pending.is_write();
            pending.last = Some(why);
            if pending.attempts > self.options.retries_max {
                let error = pending.given_up(now_ns);
                self.finish(slot, now_ns, Err(error));
            } else {
                self.links[id].ready.push_front(slot);
            }
        }
        self.scratch = sent;
    }

    /// Deadlines and waits that are over.
    pub(crate) fn handle_due(&mut self, now_ns: u64) {
        if now_ns < self.pending.due_ns() {
            return;
        }
        let mut due = std::mem::take(&mut self.scratch);
        self.pending.collect_due(now_ns, &mut due);
        let is_up = self.is_up();
        for &slot in &due {
            let pending = self.pending.get_mut(slot);
            if pending.state == PendingState::Free {
                continue; // it ended with another one that it was a part of
            }
            let link = &self.links[pending.link];
            let lacking = link.last_attempt_error.filter(|_| !link.connection.is_up());
            pending.last = pending.last.or(lacking).or(self.last_attempt_error.filter(|_| !is_up));
            if now_ns >= pending.deadline_ns {
                if !is_up && pending.last.is_some_and(|last| last.is_word_of_server()) {
                    // Whoever said so was reached then: the failure to reach anybody is newer.
                    pending.last = lacking.or(self.last_attempt_error).or(pending.last);
                }
                let waits_for_session = pending.state == PendingState::WaitsForSession;
                let lacks = self.session.failure().filter(|_| waits_for_session);
                pending.last = lacks.or(pending.last);
                let error = pending.given_up(now_ns);
                self.finish(slot, now_ns, Err(error));
            } else {
                pending.hops = 0;
                self.enlist(slot, now_ns);
            }
        }
        self.scratch = due;
    }
}
