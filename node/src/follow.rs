//! Following the cluster: what the watch shows goes to the worker, what the membership core decides is
//! carried out, and what becomes of takeovers goes back to it and into the incidents.

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_cluster::{
    ClusterError, MemberRow, NewIncident, NoteRow, PairRow, ShareRow, ShareTimes, boottime_ns,
};
use cell_recovery::{Progress, replay_bytes};
use cell_terms::{Incarnation, PairId};

use crate::bring_up::Mine;
use crate::control::{Control, PairControl};
use crate::membership::{MembershipCommand, Orphan, RefusedKind, memory_bytes, share_out};
use crate::recoverer::{Job, Told};
use crate::shell::{Inbound, ServedPair};
use crate::snapshot::{ClusterSnapshot, PairRecovery};
use crate::split::NotesView;
use crate::start::NodeError;
use crate::table_view::TableView;
use crate::worker::ControlEvent;

/// What is kept between two looks.
pub(crate) struct Following {
    pub(crate) due_ns: u64,
    every_ns: u64,
    /// The node goes: others take over what is to be taken over.
    pub(crate) stopping: bool,
    /// The worker serves; before, pairs are gathered.
    installed: bool,
    gathered: Vec<ServedPair>,
    /// The notes of splits that the worker knows.
    notes: BTreeMap<String, NoteRow>,
    /// One was written since.
    pub(crate) note_written: bool,
    /// Takeovers under way.
    progress: BTreeMap<PairId, Arc<Progress>>,
}

impl Following {
    pub(crate) fn new(every_ns: u64) -> Following {
        Following {
            due_ns: 0,
            every_ns,
            stopping: false,
            installed: false,
            gathered: Vec::new(),
            notes: BTreeMap::new(),
            note_written: false,
            progress: BTreeMap::new(),
        }
    }
}

fn now_ms() -> u64 {
    boottime_ns() / 1_000_000
}

impl Control {
    /// Looks at the cluster and does what is to be done.
    ///
    /// # Errors
    /// What the table says cannot be read.
    pub(crate) fn look(&mut self) -> Result<(), NodeError> {
        self.following.due_ns = boottime_ns() + self.following.every_ns;
        let look = match self.watch.look() {
            Ok(look) => look,
            Err(error) if error.is_transient() => {
                tracing::debug!(%error, "the cluster is not seen just now");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        for session in look.ended {
            self.to_worker.event(ControlEvent::SessionEnded { session, answer: None, recorded: true });
        }
        if look.changed || !self.following.progress.is_empty() {
            self.tell_worker(look.changed);
        }
        self.tell_notes();
        if self.following.stopping {
            return Ok(());
        }
        let commands = self.membership.look(self.watch.view(), boottime_ns());
        if !commands.is_empty() {
            self.following.due_ns = 0; // what they change is to be seen at once
        }
        let mut jobs = Vec::new();
        for command in commands {
            if let Err(error) = self.follow(command, &mut jobs) {
                tracing::warn!(%error, "an incident is not taken further just now");
                self.following.due_ns = boottime_ns() + self.following.every_ns;
            }
        }
        self.recoverer.push(jobs);
        self.install(false);
        Ok(())
    }

    fn rows(&self) -> (Vec<PairRow>, Vec<MemberRow>) {
        let view = self.watch.view();
        (view.pairs.values().cloned().collect(), view.members.values().cloned().collect())
    }

    /// The notes of splits, if they have changed, or if the worker waits to see what it has written.
    fn tell_notes(&mut self) {
        let view = self.watch.view();
        if self.following.notes == view.notes && !self.following.note_written {
            return;
        }
        let told = NotesView { revision: view.revision, notes: view.notes.clone() };
        self.following.notes.clone_from(&view.notes);
        self.following.note_written = false;
        self.to_worker.event(ControlEvent::Notes(Arc::new(told)));
    }

    fn tell_worker(&self, changed: bool) {
        let (pairs, members) = self.rows();
        let view = self.watch.view();
        if changed {
            let table = Arc::new(TableView::new(view.revision, &pairs, &members));
            self.to_worker.event(ControlEvent::Table(table));
        }
        let now_ns = boottime_ns();
        let recoveries = self.following.progress.iter();
        let recoveries = recoveries.map(|(pair, progress)| PairRecovery::new(*pair, &progress.view(now_ns)));
        let cluster = ClusterSnapshot {
            revision: view.revision,
            pairs,
            members,
            incidents: view.incidents.values().cloned().collect(),
            recoveries: recoveries.collect(),
        };
        self.to_worker.event(ControlEvent::Cluster(Arc::new(cluster)));
    }

    fn follow(&mut self, command: MembershipCommand, jobs: &mut Vec<Job>) -> Result<(), ClusterError> {
        match command {
            MembershipCommand::TakeOver { pair, ground, dead } => {
                // The first ones are the node's own; of those the worker tells how far it is.
                let first = !self.following.installed;
                let shared = self.bring_up.progress.clone();
                let progress = if first { shared } else { Arc::new(Progress::new(boottime_ns())) };
                self.following.progress.insert(pair, progress.clone());
                // The plan has weighed it, unless there is none.
                let view = self.watch.view();
                let weighed = view.incidents.get(&dead).and_then(|incident| incident.share(pair));
                let weigh = || view.pairs.get(&pair).map_or(0, |row| self.replay_bytes(row));
                let replay_bytes = weighed.map_or_else(weigh, |share| share.bytes);
                let claim = self.bring_up.claim(pair, ground);
                jobs.push(Job { claim, replay_bytes, dead, progress });
                Ok(())
            }
            MembershipCommand::Claim { dead, node, lease_seen_ns, detected_ns, host_lock } => {
                let (lease_seen_ms, detected_ms) = (lease_seen_ns / 1_000_000, detected_ns / 1_000_000);
                let new = NewIncident { dead, node, lease_seen_ms, detected_ms, host_lock };
                if self.incidents.claim(&new, self.incarnation, now_ms())? {
                    tracing::info!(%dead, "this node settles what becomes of its pairs");
                    self.incidents.forget_old(self.incarnation)?;
                    if host_lock {
                        self.share_own(dead)?;
                    }
                } else {
                    // Another's, or nobody has died: the next look shows that, and it is in no hurry.
                    self.following.due_ns = boottime_ns() + self.following.every_ns;
                }
                Ok(())
            }
            MembershipCommand::Plan { dead, pairs } => self.plan(dead, pairs),
            MembershipCommand::Close { dead } => {
                let incarnation = self.incarnation;
                let closed = self.incidents.change(dead, incarnation, |row| {
                    if row.claimed_by == incarnation && !row.is_over() {
                        row.over_ms = now_ms();
                    }
                });
                closed.map(drop)
            }
        }
    }

    /// A restarted node has all pairs of its predecessor to itself.
    fn share_own(&self, dead: Incarnation) -> Result<(), ClusterError> {
        let own = self.watch.view().pairs.values();
        let own = own.filter(|row| row.owner == Some(dead) && row.node == self.bring_up.options.node);
        let plan: Vec<_> = own
            .map(|row| ShareRow {
                pair: row.pair,
                survivor: Some(self.incarnation),
                bytes: self.replay_bytes(row),
                ..ShareRow::default()
            })
            .collect();
        self.write_plan(dead, &plan)
    }

    fn replay_bytes(&self, row: &PairRow) -> u64 {
        replay_bytes(&*self.environment.storage, row).unwrap_or(0) // what is wrong, its recovery will say
    }

    fn plan(&self, dead: Incarnation, pairs: Vec<(PairId, Vec<Incarnation>)>) -> Result<(), ClusterError> {
        let (rows, members) = self.rows();
        let orphans = pairs.into_iter().filter_map(|(pair, declined)| {
            let row = self.watch.view().pairs.get(&pair)?;
            let (replay_bytes, memory_bytes) = (self.replay_bytes(row), memory_bytes(row));
            Some(Orphan { pair, replay_bytes, memory_bytes, declined })
        });
        let plan = share_out(orphans.collect(), &rows, &members);
        for ShareRow { pair, survivor, bytes, .. } in &plan {
            tracing::info!(%dead, %pair, ?survivor, bytes, "a pair is to be taken over");
        }
        self.write_plan(dead, &plan)
    }

    fn write_plan(&self, dead: Incarnation, plan: &[ShareRow]) -> Result<(), ClusterError> {
        let incarnation = self.incarnation;
        let written = self.incidents.change(dead, incarnation, |row| {
            if row.claimed_by == incarnation {
                for share in plan {
                    row.plan.retain(|old| old.pair != share.pair);
                    row.plan.push(share.clone());
                }
            }
        });
        written.map(drop)
    }

    /// What became of a takeover.
    ///
    /// # Errors
    /// A cluster of this node alone does not serve a part of its pairs.
    pub(crate) fn hear(&mut self, told: Told) -> Result<(), NodeError> {
        match told {
            Told::Times { pair, dead, times } => self.note(pair, dead, |share| share.times = times),
            Told::Taken { pair, mine } => {
                self.following.progress.remove(&pair);
                self.serve(*mine)?;
                self.membership.taken(pair);
                self.following.due_ns = 0;
            }
            Told::Refused { pair, dead, error } => {
                self.following.progress.remove(&pair);
                tracing::warn!(%pair, error = &error as &dyn std::error::Error, "a pair is not taken over");
                let kind = refused_kind(&error, pair);
                if self.is_alone() && kind != RefusedKind::Others {
                    return Err(error);
                }
                self.membership.refused(pair, kind, boottime_ns());
                let incarnation = self.incarnation;
                self.note(pair, dead, |share| {
                    share.times = ShareTimes { refused_ms: now_ms(), ..share.times };
                    if kind == RefusedKind::Declined && !share.declined.contains(&incarnation) {
                        share.declined.push(incarnation);
                    }
                });
                self.following.due_ns = 0;
            }
        }
        Ok(())
    }

    /// Writes down what became of a share, for people: the takeover does not depend on it.
    fn note(&self, pair: PairId, dead: Incarnation, edit: impl Fn(&mut ShareRow)) {
        let incarnation = self.incarnation;
        let noted = self.incidents.change(dead, incarnation, |row| {
            let mine = |share: &&mut ShareRow| share.pair == pair && share.survivor == Some(incarnation);
            if let Some(share) = row.plan.iter_mut().find(mine) {
                edit(share);
            }
        });
        if let Err(error) = noted {
            tracing::debug!(%error, %pair, "what becomes of a share is not noted");
        }
    }

    /// Whether all pairs are this node's.
    fn is_alone(&self) -> bool {
        let node = self.bring_up.options.node;
        self.watch.view().pairs.values().all(|row| row.node == node)
    }

    fn serve(&mut self, mine: Mine) -> Result<(), NodeError> {
        let (control, served) = self.bring_up.serve(mine)?;
        self.add(control, served);
        Ok(())
    }

    fn add(&mut self, control: PairControl, served: ServedPair) {
        self.pairs.push(control);
        if self.following.installed {
            self.to_worker.send(Inbound::AddPair(Box::new(served)));
            return;
        }
        self.following.gathered.push(served);
        // Of several nodes each pair is served as soon as it can be.
        self.install(!self.is_alone());
    }

    /// Lets the worker serve, once the node's own pairs are there, or at once.
    fn install(&mut self, now: bool) {
        if self.following.installed || !(now || self.membership.busy() == 0) {
            return;
        }
        let sessions = match self.sessions.open_sessions() {
            Ok((open, _)) => open.iter().map(|row| row.session).collect(),
            Err(error) => return tracing::warn!(%error, "the open sessions are not known just now"),
        };
        self.following.installed = true;
        let pairs = std::mem::take(&mut self.following.gathered);
        self.to_worker.send(Inbound::Install { pairs, sessions, whole: self.is_alone() });
    }
}

/// What a takeover's failure means for the pair.
fn refused_kind(error: &NodeError, pair: PairId) -> RefusedKind {
    match error {
        NodeError::Cluster(error) => RefusedKind::of_cluster(error),
        NodeError::Recovery(error) => RefusedKind::of(error, pair),
        NodeError::Geometry { .. } => RefusedKind::Damaged,
        _ => RefusedKind::Passing,
    }
}
