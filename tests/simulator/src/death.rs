//! How processes end, and what of them goes on: writes in flight, connections, the coordinator's opinion.

use cell_cluster::{Coordinator, Ownership};
use cell_recovery::Recovered;
use cell_wal::Storage;
use cell_wal::segment::{LogName, parse_segment};

use crate::check::Snapshot;
use crate::coverage::Event;
use crate::faults::Undo;
use crate::model::{Broken, broken};
use crate::phase::RunPhase;
use crate::plan::MS;
use crate::world::{Planted, World, say};

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// kill -9: its kernel lives on.
    Killed,
    /// Its host is gone for its peers; what its disk had was not on its way to it any more.
    Dark,
    /// The power failed.
    PowerCut,
    /// It ended by itself.
    ByItself,
}

impl World {
    /// A process ends.
    pub(crate) fn remove_process(&mut self, host: u32, death: Death) {
        let Some(at) = self.nodes.iter().position(|node| node.host == host) else { return };
        say!(self, "host {host}: the process is gone: {death:?}");
        self.note(u64::from(host) << 16 | (death as u64) << 8 | 4);
        let node = self.nodes.remove(at);
        self.operators.ended(host);
        let violent = death != Death::ByItself;
        self.coverage.add(Event::RecoveryDied, u64::from(violent && node.is_recovering()));
        self.coverage.add(Event::CheckpointDied, u64::from(violent && node.is_checkpointing()));
        self.coverage.add(Event::Repeated, node.repeated());
        let splits = node.splits();
        self.coverage.add(Event::Splits, splits.begun);
        self.coverage.add(Event::SplitsFinished, splits.finished);
        self.coverage.add(Event::Merges, splits.merged);
        self.coverage.add(Event::SplitsAborted, splits.aborted);
        self.coverage.add(Event::SplitDied, u64::from(violent && splits.under_way > 0));
        self.coverage.add(Event::CompactionsFreed, node.compaction_nodes_freed());
        self.coverage.add(Event::Packings, node.packings());
        self.coverage.add(Event::BelowFloor, node.serving.below_floor());
        self.coverage.add(Event::WorkerStalls, node.serving.stalls);
        let rotations = node.logs().map(|log| self.rotations(log)).sum();
        self.coverage.add(Event::Rotations, rotations);
        self.coverage.add(Event::InFlight, u64::from(violent && !self.disk.pending().is_empty()));
        let how = if death == Death::Dark || death == Death::PowerCut {
            cell_fabric::SimCrash::Host
        } else {
            cell_fabric::SimCrash::Process
        };
        self.network.crash(host, how);
        if death != Death::PowerCut {
            node.disk.kill();
            for _ in 0..self.random.below(4) {
                let after_ns = self.random.time_ns(100 * MS);
                self.later(after_ns, Undo::LandLate);
            }
        }
        if self.phase == RunPhase::Traffic && self.random.percent(self.plan.recovery_deaths_percent) {
            self.operators.fuse = Some((self.random.below(90), self.random.percent(50)));
        }
    }

    /// A process has touched the world for the last time.
    pub(crate) fn burnt(&mut self, host: u32) {
        if self.random.percent(50) {
            self.coverage.saw(Event::Kills);
            self.remove_process(host, Death::Killed);
        } else {
            self.power_cut();
        }
    }

    /// A pair was taken over and examined.
    pub(crate) fn has_recovered(
        &mut self,
        host: u32,
        recovered: &Recovered,
        mut snapshot: Snapshot,
        wanted: bool,
    ) -> Result<(), Broken> {
        if self.planted == Some(Planted::EntryLost) && snapshot.lose_entry() {
            self.planted = None;
        }
        self.owners.learn(&mut snapshot);
        let Some(node) = self.nodes.iter().find(|node| node.host == host) else { return Ok(()) };
        let incarnation = node.incarnation().unwrap_or_default();
        let ownership = Ownership { pair: recovered.pair, epoch: recovered.epoch, incarnation };
        let is_late = match self.coordinator.answers() {
            true => self.coordinator.link().remaining_ns(incarnation).map_err(broken)?.is_none(),
            // It shows nothing then. By its own clock the node must not answer, and it is another's by now.
            false => !node.may_answer(self.now_ns) && self.owners.have_later(ownership),
        };
        if is_late {
            // Stopped between the publication and its next step, for longer than its lease: others may have
            // served the pair since. What it holds counts for nothing, and it serves nobody.
            say!(self, "host {host} has {} too late", recovered.pair);
            return Ok(());
        }
        snapshot.note(&mut self.model)?;
        if !wanted {
            self.coverage.saw(Event::Recoveries);
            self.coverage.add(Event::TreeNodes, snapshot.tree_nodes);
            self.coverage.add(Event::Meganodes, (recovered.meganodes.len() as u64).saturating_sub(1));
            self.coverage.add(Event::MorePairs, u64::from(recovered.pair.0 > 1));
            self.coverage.add(Event::SplitsSettled, recovered.splits.sources().count() as u64);
            self.coverage.add(Event::FromCheckpoint, u64::from(recovered.csn_checkpoint.0 > 0));
        }
        self.owners.begins(ownership, snapshot, &self.coordinator)?;
        let survived = self.hosts_of.insert(recovered.pair, host).is_some_and(|before| before != host);
        self.coverage.add(Event::Survivor, u64::from(survived));
        self.rot_survived()
    }

    /// How many segments a log had moved to.
    fn rotations(&self, log: LogName) -> u64 {
        let names = self.disk.list(&log.folder()).unwrap_or_default();
        let highest = names.iter().filter_map(|name| parse_segment(name)).max().unwrap_or(0);
        u64::from(highest).saturating_sub(2) // spares are prepared ahead
    }
}
