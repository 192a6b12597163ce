//! What the control thread does of what its side towards the cluster says: events go to the worker, pairs to
//! the threads that take them over, and what these bring to the worker.

use std::sync::Arc;

use cell_cluster::boottime_ns;
use cell_recovery::Progress;
use cell_terms::PairId;

use crate::agent::TakeoverWanted;
use crate::bring_up::Mine;
use crate::control::{Control, PairControl};
use crate::membership::RefusedKind;
use crate::recoverer::{Job, TakeoverReport};
use crate::shell::{Inbound, ServedPair};
use crate::snapshot::{ClusterSnapshot, PairRecovery};
use crate::start::NodeError;
use crate::worker::ControlEvent;

impl Control {
    /// Looks at the cluster and does what is to be done.
    ///
    /// # Errors
    /// What the table says cannot be read.
    pub(crate) fn look(&mut self) -> Result<(), NodeError> {
        let looked = self.agent.look(boottime_ns())?;
        self.hold_growth(self.agent.has_left_behind());
        looked.events.into_iter().for_each(|event| self.to_worker.event(event));
        if looked.changed || !self.progress.is_empty() {
            self.show_cluster();
        }
        let jobs = looked.take_over.into_iter().map(|wanted| self.job(wanted)).collect();
        self.recoverer.push(jobs);
        self.install(false);
        Ok(())
    }

    /// Keeps memory for pairs that wait to be recovered: until they are, writes that need more are refused.
    fn hold_growth(&self, held: bool) {
        let budget = &self.bring_up.budget;
        if held != budget.is_growth_held() {
            tracing::info!(held, "memory is kept for pairs that this node had and that wait to be recovered");
            budget.hold_growth(held);
        }
    }

    /// For people, by way of the worker's snapshots.
    fn show_cluster(&self) {
        let (pairs, members) = self.agent.rows();
        let view = self.agent.view();
        let now_ns = boottime_ns();
        let recoveries = self.progress.iter();
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

    fn job(&mut self, wanted: TakeoverWanted) -> Job {
        let TakeoverWanted { pair, ground, dead, replay_bytes } = wanted;
        // The first ones are the node's own; of those the worker tells how far it is.
        let first = !self.agent.is_installed();
        let shared = self.bring_up.progress.clone();
        let progress = if first { shared } else { Arc::new(Progress::new(boottime_ns())) };
        self.progress.insert(pair, progress.clone());
        Job { claim: self.bring_up.claim(pair, ground), replay_bytes, dead, progress }
    }

    /// What became of a takeover.
    ///
    /// # Errors
    /// A node that is alone does not begin to serve a part of its pairs.
    pub(crate) fn on_takeover(&mut self, report: TakeoverReport) -> Result<(), NodeError> {
        match report {
            TakeoverReport::Times { pair, dead, times } => self.agent.times(pair, dead, times),
            TakeoverReport::Taken { pair, mine } => {
                self.progress.remove(&pair);
                self.serve(*mine)?;
                self.agent.taken(pair);
            }
            TakeoverReport::Refused { pair, dead, error } => {
                self.progress.remove(&pair);
                tracing::warn!(%pair, error = &error as &dyn std::error::Error, "a pair is not taken over");
                if !self.agent.refused(pair, dead, refused_kind(&error, pair), boottime_ns()) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn serve(&mut self, mine: Mine) -> Result<(), NodeError> {
        let (control, served) = self.bring_up.serve(mine)?;
        self.add(control, served);
        Ok(())
    }

    fn add(&mut self, control: PairControl, served: ServedPair) {
        self.pairs.push(control);
        if self.agent.is_installed() {
            self.to_worker.send(Inbound::AddPair(Box::new(served)));
            return;
        }
        self.gathered.push(served);
        self.install(true);
    }

    /// Lets the worker serve, as soon as it may.
    fn install(&mut self, pair_came: bool) {
        let Some(installation) = self.agent.install(pair_came) else { return };
        let pairs = std::mem::take(&mut self.gathered);
        self.to_worker.send(Inbound::Install { pairs, installation });
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
