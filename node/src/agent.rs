//! A node's side towards its cluster: what the watch shows and the worker is to know, what the membership
//! core decides, and the incidents in which it is noted. A core but for the coordinator, which it is given:
//! `control_driver` steps it.
//!
//! ```text
//! coordinator --watch--> look --> events for the worker, pairs to take over --> `takeovers` takes them over
//!      ^                   |                                                              |
//!      +-- incidents: claim, plan, close <-- membership <-- taken, refused, times --------+
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cell_cluster::{
    ClaimReason, ClusterError, ClusterView, Coordinator, Incidents, MemberRow, NewIncident, Notices,
    Ownership, PairRow, Sessions, ShareRow, ShareTimes, Watch,
};
use cell_fabric::ConnectionId;
use cell_protocol::{ReadOnlyReason, Refusal, RequestHeader};
use cell_recovery::replay_bytes;
use cell_terms::text::with_causes;
use cell_terms::{Incarnation, PairId, SessionId};
use cell_wal::Storage;

use crate::command::ControlEvent;
use crate::membership::{
    Membership, MembershipCommand, MembershipOptions, Orphan, RefusedKind, is_left_behind, memory_bytes,
    share_out,
};
use crate::moves::handed_to;
use crate::root_answers::RootAnswers;
use crate::split::NoticeRow;
use crate::split::NoticesView;
use crate::table_view::TableView;

/// A pair that this node is to take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakeoverWanted {
    /// Which.
    pub pair: PairId,
    /// By what right.
    pub reason: ClaimReason,
    /// In whose incident its share is noted.
    pub dead: Incarnation,
    /// What a recovery reads, about.
    pub replay_bytes: u64,
}

/// What a look at the cluster leads to.
#[derive(Debug, Default)]
pub struct Looked {
    /// Whether the rows are others than before.
    pub changed: bool,
    /// For the worker, in this order.
    pub events: Vec<ControlEvent>,
    /// To be answered by [`ClusterAgent::taken`] or [`ClusterAgent::refused`] each.
    pub take_over: Vec<TakeoverWanted>,
    /// Pairs that nobody alive has memory for.
    pub unplaced: usize,
    /// Whether the coordinator has answered.
    pub answered: bool,
}

/// With what the worker begins to serve.
#[derive(Debug)]
pub struct Installation {
    /// The sessions that are open.
    pub sessions: Vec<SessionId>,
    /// Whether they are all pairs that there are, so that they must have every key.
    pub whole: bool,
}

/// See the module's text. Times are the caller's, in nanoseconds; what is noted for people is in
/// milliseconds.
pub struct ClusterAgent {
    options: MembershipOptions,
    every_ns: u64,
    due_ns: u64,
    storage: Arc<dyn Storage>,
    watch: Watch,
    incidents: Incidents,
    sessions: Sessions,
    notice_writer: Notices,
    membership: Membership,
    /// The pairs of moves hither in which this node takes part.
    targets: BTreeSet<PairId>,
    answers: RootAnswers,
    /// The node goes: others take over what is to be taken over.
    stopping: bool,
    /// The worker serves.
    installed: bool,
    /// The notices of splits that the worker knows, as they were written.
    notices: BTreeMap<String, String>,
    /// One was written since.
    notice_written: bool,
    /// The last look has failed.
    away: bool,
}

impl ClusterAgent {
    /// Of a node that has just joined. It looks at the cluster every so often at least.
    #[must_use]
    pub fn new(
        coordinator: &Arc<dyn Coordinator>,
        storage: Arc<dyn Storage>,
        options: MembershipOptions,
        every_ns: u64,
    ) -> ClusterAgent {
        ClusterAgent {
            options,
            every_ns,
            due_ns: 0,
            storage,
            watch: Watch::new(coordinator.clone()),
            incidents: Incidents::new(coordinator.clone()),
            sessions: Sessions::new(coordinator.clone()),
            notice_writer: Notices::new(coordinator.clone()),
            membership: Membership::new(options),
            targets: BTreeSet::new(),
            answers: RootAnswers::new(coordinator.clone(), options),
            stopping: false,
            installed: false,
            notices: BTreeMap::new(),
            notice_written: false,
            away: false,
        }
    }

    /// The cluster as it was last seen.
    #[must_use]
    pub fn view(&self) -> &ClusterView {
        self.watch.view()
    }

    /// When [`ClusterAgent::look`] is to be called next.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Whether all pairs are this node's and no other node lives to take one over. (Its own predecessor may
    /// seem to live, until its lease ends.)
    fn is_alone(&self) -> bool {
        let (view, node) = (self.view(), self.options.node);
        view.members.values().all(|row| row.node == node) && view.pairs.values().all(|row| row.node == node)
    }

    /// Whether this node has published every pair.
    fn has_all(&self) -> bool {
        let mine = |row: &PairRow| row.owner == Some(self.options.incarnation) && row.is_published();
        self.view().pairs.values().all(mine)
    }

    /// It looks at the cluster every so often at least, from its next look on.
    pub(crate) fn set_every_ns(&mut self, every_ns: u64) {
        self.every_ns = every_ns;
    }

    pub(crate) fn set_grace_ns(&mut self, grace_ns: u64) {
        self.membership.set_grace_ns(grace_ns);
    }

    /// The next look is to be then, if it was to be later.
    pub(crate) fn hurry(&mut self, due_ns: u64) {
        self.due_ns = self.due_ns.min(due_ns);
    }

    /// From its next look on it follows the rows of balance, too.
    pub(crate) fn follow_balance(&mut self) {
        self.watch.follow_balance();
    }

    /// The pairs of moves hither in which this node takes part.
    pub(crate) fn set_targets(&mut self, targets: BTreeSet<PairId>) {
        self.targets = targets;
    }

    /// Nothing is taken over any more.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// The pairs and members, by their ids.
    #[must_use]
    pub fn rows(&self) -> (Vec<PairRow>, Vec<MemberRow>) {
        let view = self.view();
        (view.pairs.values().cloned().collect(), view.members.values().cloned().collect())
    }

    /// Whether a pair that this node had waits to be recovered: nothing else may take its memory.
    pub(crate) fn has_left_behind(&self) -> bool {
        let MembershipOptions { incarnation, node, .. } = self.options;
        self.view().pairs.values().any(|row| is_left_behind(row, node, incarnation))
    }

    /// Looks at the cluster and does what is to be done there.
    ///
    /// # Errors
    /// What the coordinator returns cannot be read. That it does not answer just now is no error.
    pub fn look(&mut self, now_ns: u64) -> Result<Looked, ClusterError> {
        self.due_ns = now_ns.saturating_add(self.every_ns);
        let mut looked = Looked::default();
        let look = match self.watch.look() {
            Ok(look) => look,
            Err(error) if error.is_transient() => {
                tracing::debug!(%error, "the cluster is not seen just now");
                self.away = true;
                let what = if error.is_unanswered() { "does not answer" } else { "refuses this node" };
                let why = format!("the coordinator {what} ({})", with_causes(&error));
                looked.events.push(ControlEvent::CoordinatorFails(Some(why.into())));
                return Ok(looked);
            }
            Err(error) => return Err(error),
        };
        if std::mem::take(&mut self.away) {
            looked.events.push(ControlEvent::CoordinatorFails(None));
        }
        let ended = |session| ControlEvent::SessionEnded { session, answer: None, recorded: true };
        looked.events.extend(look.ended.into_iter().map(ended));
        looked.events.extend(look.missed.then_some(ControlEvent::SessionsMissed));
        (looked.changed, looked.answered) = (look.changed, true);
        self.answers.look(self.watch.questions(), &*self.storage, now_ns);
        if look.changed {
            let (pairs, members) = self.rows();
            let table = TableView::new(self.view().revision, &pairs, &members);
            looked.events.push(ControlEvent::Table(Arc::new(table)));
        }
        looked.events.extend(self.notices_to_report());
        if self.stopping {
            return Ok(looked);
        }
        let handed = handed_to(self.watch.view(), self.options.incarnation, &self.targets);
        self.membership.set_handed(handed);
        let commands = self.membership.look(self.watch.view(), now_ns);
        if !commands.is_empty() {
            self.due_ns = 0; // what they change is to be seen at once
        }
        for command in commands {
            if let Err(error) = self.follow(command, now_ns, &mut looked) {
                tracing::warn!(%error, "an incident is not taken further just now");
                self.due_ns = now_ns.saturating_add(self.every_ns);
            }
        }
        Ok(looked)
    }

    /// The notices of splits, if they have changed, or if the worker waits to see what it has written. One
    /// that does not read is as one that is not there yet: its split waits, and everything else goes on.
    fn notices_to_report(&mut self) -> Option<ControlEvent> {
        let view = self.watch.view();
        if self.notices == view.notices && !self.notice_written {
            return None;
        }
        let decoded = |(key, text): (&String, &String)| match NoticeRow::decode(text) {
            Ok(row) => Some((key.clone(), row)),
            Err(error) => {
                tracing::error!(%error, key, "a notice of a split does not read: the split waits for another");
                None
            }
        };
        let notices = view.notices.iter().filter_map(decoded).collect();
        let shown = NoticesView { revision: view.revision, notices };
        self.notices.clone_from(&view.notices);
        self.notice_written = false;
        Some(ControlEvent::Notices(Arc::new(shown)))
    }

    fn follow(
        &mut self,
        command: MembershipCommand,
        now_ns: u64,
        looked: &mut Looked,
    ) -> Result<(), ClusterError> {
        match command {
            MembershipCommand::TakeOver { pair, reason, dead } => {
                let replay_bytes = self.weigh(pair, dead);
                looked.take_over.push(TakeoverWanted { pair, reason, dead, replay_bytes });
                Ok(())
            }
            MembershipCommand::Claim { dead, node, lease_seen_ns, detected_ns, host_lock } => {
                let (lease_seen_ms, detected_ms) = (ms(lease_seen_ns), ms(detected_ns));
                let new = NewIncident { dead, node, lease_seen_ms, detected_ms, host_lock };
                if self.incidents.claim(&new, self.options.incarnation, ms(now_ns))? {
                    tracing::info!(%dead, "this node settles what becomes of its pairs");
                    self.incidents.forget_old(self.options.incarnation)?;
                    if host_lock {
                        self.share_own(dead)?;
                    }
                } else {
                    // Another's, or nobody has died: the next look shows that, and it is in no hurry.
                    self.due_ns = now_ns.saturating_add(self.every_ns);
                }
                Ok(())
            }
            MembershipCommand::Plan { dead, pairs } => {
                let plan = self.plan(dead, pairs);
                looked.unplaced += plan.iter().filter(|share| share.survivor.is_none()).count();
                self.write_plan(dead, &plan)
            }
            MembershipCommand::Close { dead } => {
                self.incidents.close(dead, self.options.incarnation, ms(now_ns))
            }
        }
    }

    /// What a recovery of a pair reads: the plan has weighed it, unless there is none.
    fn weigh(&self, pair: PairId, dead: Incarnation) -> u64 {
        let view = self.view();
        let weighed = view.incidents.get(&dead).and_then(|incident| incident.share(pair));
        let weigh = || view.pairs.get(&pair).map_or(0, |row| self.replay_bytes(row));
        weighed.map_or_else(weigh, |share| share.bytes)
    }

    fn replay_bytes(&self, row: &PairRow) -> u64 {
        replay_bytes(&*self.storage, row).unwrap_or(0) // what is wrong, its recovery will say
    }

    /// A restarted node has all pairs of its predecessor to itself.
    fn share_own(&self, dead: Incarnation) -> Result<(), ClusterError> {
        let MembershipOptions { incarnation, node, .. } = self.options;
        let own = self.view().pairs.values().filter(|row| row.last_owner() == Some(dead) && row.node == node);
        let share = |row: &PairRow| ShareRow {
            pair: row.pair,
            survivor: Some(incarnation),
            bytes: self.replay_bytes(row),
            ..ShareRow::default()
        };
        let plan: Vec<_> = own.map(share).collect();
        self.write_plan(dead, &plan)
    }

    fn plan(&self, dead: Incarnation, pairs: Vec<(PairId, Vec<Incarnation>)>) -> Vec<ShareRow> {
        let (rows, members) = self.rows();
        let orphans = pairs.into_iter().filter_map(|(pair, declined)| {
            let row = self.view().pairs.get(&pair)?;
            let (replay_bytes, memory_bytes) = (self.replay_bytes(row), memory_bytes(row));
            Some(Orphan { pair, replay_bytes, memory_bytes, declined })
        });
        let draining = self.view().drains.keys().copied().collect();
        let plan = share_out(orphans.collect(), &rows, &members, &draining);
        for ShareRow { pair, survivor, bytes, .. } in &plan {
            tracing::info!(%dead, %pair, ?survivor, bytes, "a pair is to be taken over");
        }
        plan
    }

    fn write_plan(&self, dead: Incarnation, plan: &[ShareRow]) -> Result<(), ClusterError> {
        self.incidents.plan(dead, self.options.incarnation, plan)
    }

    /// A pair was taken over, and the shell has it.
    pub fn taken(&mut self, pair: PairId) {
        self.membership.taken(pair);
        self.due_ns = 0;
    }

    /// A pair is being created here.
    pub(crate) fn creation_begins(&mut self) {
        self.membership.creation_begins();
    }

    /// It is there, or its creation was given up: then what there is of it is taken over.
    pub(crate) fn creation_ended(&mut self) {
        self.membership.creation_ended();
    }

    /// A takeover failed. False: the node is alone and does not begin to serve a part of its pairs;
    /// it has to end. Once it serves it goes on.
    #[must_use]
    pub fn refused(&mut self, pair: PairId, dead: Incarnation, kind: RefusedKind, now_ns: u64) -> bool {
        if !self.installed && self.is_alone() && kind != RefusedKind::Others {
            return false;
        }
        self.membership.refused(pair, kind, now_ns);
        let incarnation = self.options.incarnation;
        self.note(pair, dead, |share| {
            share.times = ShareTimes { refused_ms: ms(now_ns), ..share.times };
            let is_given_up = matches!(kind, RefusedKind::Declined | RefusedKind::Damaged);
            if is_given_up && !share.declined.contains(&incarnation) {
                share.declined.push(incarnation);
            }
        });
        // What another has is in no hurry: asked for again at once it would be refused again.
        let rest_ns = if kind == RefusedKind::Others { self.every_ns } else { 0 };
        self.due_ns = now_ns.saturating_add(rest_ns);
        true
    }

    /// Notes how far a takeover has come.
    pub fn times(&self, pair: PairId, dead: Incarnation, times: ShareTimes) {
        self.note(pair, dead, |share| share.times = times);
    }

    /// Writes down what became of a share, for people: the takeover does not depend on it.
    fn note(&self, pair: PairId, dead: Incarnation, edit: impl Fn(&mut ShareRow)) {
        let incarnation = self.options.incarnation;
        let noted = self.incidents.note(dead, pair, incarnation, |share| {
            if share.survivor == Some(incarnation) {
                edit(share);
            }
        });
        if let Err(error) = noted {
            tracing::debug!(%error, %pair, "what becomes of a share is not noted");
        }
    }

    /// Whether the worker has been installed.
    #[must_use]
    pub fn is_installed(&self) -> bool {
        self.installed
    }

    /// The worker is to serve from now on, with the pairs that the shell has gathered: once. That is when the
    /// node's own pairs are there; of several nodes each pair is served as soon as it can be, and one that
    /// was refused is left to others.
    pub fn install(&mut self, pair_came: bool) -> Option<Installation> {
        let idle = self.membership.is_idle();
        let now = (pair_came && !self.is_alone()) || (idle && !self.stopping);
        if self.installed || !now {
            return None;
        }
        match self.sessions.open_sessions() {
            Ok((open, _)) => {
                self.installed = true;
                let unreadable = open.iter().filter(|row| !row.is_readable());
                unreadable.for_each(|row| self.watch.report_session(row.session));
                let sessions = open.iter().map(|row| row.session).collect();
                // While a takeover goes on, its pair may be published and not here yet.
                Some(Installation { sessions, whole: idle && self.has_all() })
            }
            Err(error) => {
                tracing::warn!(%error, "the open sessions are not known just now");
                None
            }
        }
    }

    /// Opens a session for a client; the answer for the worker.
    #[must_use]
    pub fn open_session(&self, connection: ConnectionId, header: RequestHeader) -> ControlEvent {
        let session = self.sessions.open(self.options.incarnation);
        let session = session.inspect_err(|error| tracing::warn!(%error, "no session"));
        let session = session.map_err(|error| match error {
            error if error.is_unanswered() => Refusal::CoordinatorAway,
            error if error.is_refused_for_room() => {
                Refusal::ReadOnly { reason: ReadOnlyReason::CoordinatorFull }
            }
            _ => Refusal::Busy,
        });
        ControlEvent::SessionOpened { connection, header, session }
    }

    /// Ends a session: a client's wish, which is to be answered, or one that was idle here for long.
    #[must_use]
    pub fn end_session(
        &self,
        session: SessionId,
        answer: Option<(ConnectionId, RequestHeader)>,
    ) -> ControlEvent {
        let ended = match answer {
            Some(_) => self.sessions.end(session).map(|()| true),
            None => self.sessions.end_idle(session, self.options.incarnation),
        };
        let ended = ended.inspect_err(|error| tracing::warn!(%error, "a session goes on"));
        ControlEvent::SessionEnded { session, answer, recorded: ended.unwrap_or(false) }
    }

    /// Which sessions are open, for a worker that may have missed the end of some of `before`.
    #[must_use]
    pub fn list_sessions(&self, before: Vec<SessionId>) -> ControlEvent {
        let open = self.sessions.open_sessions();
        let open = open.inspect_err(|error| tracing::warn!(%error, "the open sessions are not known")).ok();
        let open = open.map(|(rows, _)| rows.iter().map(|row| row.session).collect());
        ControlEvent::SessionsListed { before, open }
    }

    /// Whether a session is open that another node has opened.
    #[must_use]
    pub fn ask_session(&self, session: SessionId) -> ControlEvent {
        let open = match self.sessions.adopt(session, self.options.incarnation) {
            Ok(()) => Some(true),
            Err(ClusterError::SessionUnknown { .. }) => Some(false),
            Err(_) => None,
        };
        ControlEvent::SessionAsked { session, open }
    }

    /// Writes or removes a note of a split; what there is then is returned at the next look, which is at
    /// once.
    pub fn write_notice(
        &mut self,
        key: String,
        notice: Option<&NoticeRow>,
        writer: Ownership,
    ) -> ControlEvent {
        (self.notice_written, self.due_ns) = (true, 0);
        let written = self.notice_writer.set(&key, notice.map(NoticeRow::encode).as_deref(), writer);
        let written = written
            .inspect_err(|error| tracing::debug!(%error, key, "a note of a split is not written just now"));
        ControlEvent::NoticeWritten { key, revision: written.ok() }
    }
}

fn ms(ns: u64) -> u64 {
    ns / 1_000_000
}
