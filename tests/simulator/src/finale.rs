//! How a run ends: faults cease, everything outstanding is answered, everything is read in every way, the
//! node is stopped and started once more; and in some runs, at the very end, a bit of the disk flips.

use std::sync::Arc;

use cell_client::{Completion, Output};
use cell_cluster::{Ownership, PairRow, Table};
use cell_recovery::RecoveryError;
use cell_terms::PairId;
use cell_wal::Storage;

use crate::action::{Action, Range};
use crate::check;
use crate::client::{Asked, Client};
use crate::coverage::Event;
use crate::death::Death;
use crate::model::{Broken, broken};
use crate::phase::RunPhase;
use crate::plan::MS;
use crate::world::{World, say};

/// Without faults, something is answered within this time, as long as anything is asked, and whatever is
/// waited for happens.
const PATIENCE_NS: u64 = 60_000 * MS;

impl World {
    fn enter(&mut self, phase: RunPhase) {
        say!(self, "-- {phase:?}");
        self.phase = phase;
        self.phase_since_ns = self.now_ns;
    }

    /// Goes on to the next phase when its time has come.
    pub(crate) fn step_phase(&mut self) -> Result<(), Broken> {
        self.look_at_patience()?;
        match self.phase {
            RunPhase::Traffic if self.faults_are_over() && !self.healed => {
                self.healed = true;
                self.phase_since_ns = self.now_ns;
                self.heal();
            }
            RunPhase::Traffic if self.traffic_is_over() => {
                self.heal();
                self.enter(RunPhase::Quiet);
            }
            RunPhase::Quiet
                if self.is_idle()
                    && self.all_served()
                    && self.traffic_is_over()
                    && self.are_emptied()
                    && self.is_table_served() =>
            {
                self.enter(RunPhase::Reading);
                self.read_everything()?;
            }
            RunPhase::Reading if self.is_idle() => {
                self.calls_read = self.coordinator.calls();
                self.enter(RunPhase::Sealing);
            }
            RunPhase::Sealing
                if self.now_ns - self.phase_since_ns > 200 * MS
                    && self.all_served()
                    && self.is_heard()
                    && self.moves_are_closed() =>
            {
                let looked = self.look_at_router()?;
                self.coverage.add(Event::RouterLooks, u64::from(looked));
                self.enter(RunPhase::Restarting);
                self.owners.forget();
                self.operators.unmounted = None; // for whoever starts from now on
                self.end_lives();
            }
            RunPhase::Restarting
                if self.owners.all_recovered() && self.all_served() && self.is_table_served() =>
            {
                if self.plan.rot {
                    self.rot();
                } else {
                    self.enter(RunPhase::Over);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the coordinator answers, and no node waits for what it says.
    fn is_heard(&self) -> bool {
        self.coordinator.answers() && !self.nodes.iter().any(|node| node.is_silent())
    }

    /// Whether no client waits for an answer.
    fn is_idle(&self) -> bool {
        self.clients.iter().all(|client| client.outstanding() == 0)
    }

    /// Whether a phase without faults takes too long.
    fn look_at_patience(&self) -> Result<(), Broken> {
        let since_ns = self.phase_since_ns.max(self.answered_ns);
        let waits = self.phase != RunPhase::Traffic || self.healed;
        if waits && self.now_ns - since_ns > PATIENCE_NS {
            let outstanding: usize = self.clients.iter().map(Client::outstanding).sum();
            let first = self.clients.iter().find_map(Client::waits_for).unwrap_or_default();
            let drains = if self.are_emptied() { String::new() } else { self.describe_drains() };
            let unserved = self.describe_unserved();
            return Err(broken(format_args!(
                "stuck in {:?} with {outstanding} outstanding: {first}{drains}{unserved}",
                self.phase
            )));
        }
        Ok(())
    }

    /// Whether each pair of the region table is served by who owns it, those among them that nobody has ever
    /// served: a creation may have failed after it had written its pair's row. Looked at anew once somebody
    /// has called the coordinator; one that is away is waited for, and not asked in vain.
    fn is_table_served(&self) -> bool {
        if !self.coordinator.answers() || self.coordinator.calls() == self.calls_looked.get() {
            return false;
        }
        let rows = Table::new(Arc::new(self.coordinator.link())).pairs();
        self.calls_looked.set(self.coordinator.calls());
        rows.is_ok_and(|(rows, _)| rows.iter().all(|row| self.is_served_by_owner(row)))
    }

    /// An owner that was stopped since it had published the pair may hold it in an epoch that is over.
    fn is_served_by_owner(&self, row: &PairRow) -> bool {
        let is_it = |of: &Ownership| {
            of.pair == row.pair && of.epoch == row.epoch && Some(of.incarnation) == row.owner
        };
        self.nodes.iter().any(|node| node.ownerships().any(|of| is_it(&of)))
    }

    /// What the region table says of pairs that nobody serves.
    fn describe_unserved(&self) -> String {
        let rows = Table::new(Arc::new(self.coordinator.link())).pairs();
        let rows = rows.map(|(rows, _)| rows).unwrap_or_default();
        let unserved = rows.iter().filter(|row| !self.is_served_by_owner(row));
        let state = |row: &PairRow| {
            format!("; {} is not served: {:?}, owner {:?}, {}", row.pair, row.state, row.owner, row.epoch)
        };
        unserved.map(state).collect()
    }

    /// Whether every pair that was ever served, or is of the layout, is served by somebody.
    pub(crate) fn all_served(&self) -> bool {
        let first = self.plan.layout.ranges().iter().map(|range| range.pair);
        let mut pairs = first.chain(self.owners.pairs());
        let served = |pair: PairId| {
            let mut nodes = self.nodes.iter();
            nodes.any(|node| node.ownerships().any(|ownership| ownership.pair == pair))
        };
        pairs.all(served)
    }

    /// Everything ends, each process in its way.
    pub(crate) fn end_lives(&mut self) {
        let hosts: Vec<u32> = self.nodes.iter().map(|node| node.host).collect();
        if self.random.percent(25) {
            return self.power_cut();
        }
        for host in hosts {
            match self.random.below(3) {
                0 => self.remove_process(host, Death::Killed),
                choice => {
                    let node = self.nodes.iter_mut().find(|node| node.host == host);
                    node.into_iter().for_each(|node| node.stop(choice == 1));
                }
            }
        }
    }

    fn read_everything(&mut self) -> Result<(), Broken> {
        let mut actions: Vec<Action> = (0..self.model.keys.len()).map(Action::Get).collect();
        actions.extend((0..self.model.keys.len()).step_by(7).map(Action::Search));
        let keys: Vec<usize> = (0..self.model.keys.len()).collect();
        actions.extend(keys.chunks(100).map(|keys| Action::MultiGet(keys.to_vec())));
        actions.extend([false, true].map(|reverse| Action::Scan(Range::whole(reverse))));
        actions.push(Action::Check);
        for action in actions {
            self.ask_of_first(action)?;
        }
        Ok(())
    }

    fn ask_of_first(&mut self, action: Action) -> Result<(), Broken> {
        let deadline_ns = self.now_ns + 600_000 * MS;
        let client: &mut Client = &mut self.clients[0];
        match client.ask(action, deadline_ns, self.now_ns, &mut self.model) {
            Ok(true) => Ok(()),
            refused => Err(broken(format_args!("a client takes nothing more: {refused:?}"))),
        }
    }

    /// Scans of the end go on to their ends.
    pub(crate) fn read_on(
        &mut self,
        number: usize,
        asked: &Asked,
        completion: &Completion,
    ) -> Result<(), Broken> {
        let (RunPhase::Reading, Action::Scan(range), Ok(Output::Page(page))) =
            (self.phase, &asked.action, &completion.outcome)
        else {
            return Ok(());
        };
        match check::next_range(range, page) {
            Some(next) if number == 0 => self.ask_of_first(Action::Scan(next)),
            _ => Ok(()),
        }
    }

    /// Flips a bit of some file that a recovery may read.
    fn rot(&mut self) {
        self.enter(RunPhase::Rotten);
        self.held = Some(self.owners.entries());
        self.owners.forget();
        for host in self.nodes.iter().map(|node| node.host).collect::<Vec<_>>() {
            self.remove_process(host, Death::Killed);
        }
        while self.disk.land_late() {}
        let files = self.files("");
        let (path, length) = files[self.random.index(files.len())].clone();
        let offset = self.random.below(length.max(1));
        let mask = 1 << self.random.below(8);
        say!(self, "bit rot: {path} at {offset}, mask {mask:#x}");
        if self.disk.flip(&path, offset, mask) {
            self.coverage.saw(Event::BitRot);
        }
    }

    fn files(&self, folder: &str) -> Vec<(String, u64)> {
        let mut files = Vec::new();
        let mut names = self.disk.list(folder).unwrap_or_default();
        names.sort_unstable();
        for name in names {
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            match self.disk.open(&path, cell_wal::storage::Access::Read) {
                Ok(file) => files.push((path, file.length().unwrap_or(0))),
                Err(_) => files.extend(self.files(&path)),
            }
        }
        files
    }

    /// A refusal is right after damage; it says what is damaged.
    pub(crate) fn rot_refused(&mut self, error: &RecoveryError) -> Result<(), Broken> {
        if error.missing(PairId(1)).is_none() {
            return Err(broken(format_args!("damage was met without naming it: {error}")));
        }
        self.coverage.saw(Event::BitRotRefused);
        self.enter(RunPhase::Over);
        Ok(())
    }

    /// What was damaged was not needed, or it is refused: other entries are never served.
    pub(crate) fn rot_survived(&mut self) -> Result<(), Broken> {
        if self.phase != RunPhase::Rotten || !self.owners.all_recovered() {
            return Ok(());
        }
        let (held, served) = (self.held.take().unwrap_or_default(), self.owners.entries());
        if let Some(entry) = held.symmetric_difference(&served).next() {
            let side = if held.contains(entry) { "lost" } else { "new" };
            return Err(broken(format_args!(
                "damaged pairs are served with other entries: {side}: {entry:?}, {} before, {} now",
                held.len(),
                served.len()
            )));
        }
        self.enter(RunPhase::Over);
        Ok(())
    }
}
