//! What the worker reports of its pairs each second, if anybody wants it: figures for balance.

use cell_cluster::{ReportedHold, ReportedState};
use cell_pair::NoRoom;

use super::figures_reporter::FiguresReporter;
use super::{Worker, WorkerPhase};
use crate::command::Command;
use crate::figures::{PairUse, Work, WorkerFigures};
use crate::outbox::PairAt;
use crate::pairs::OwnedPair;

fn is_disk_full(owned: &OwnedPair) -> bool {
    owned.pair.no_room() == Some(NoRoom::DiskFull)
}

impl Worker {
    /// One that reports its figures to the control thread so often: [`Command::Figures`].
    #[must_use]
    pub fn reporting(self, every_ns: u64) -> Worker {
        Worker { figures: FiguresReporter { every_ns, due_ns: 0 }, ..self }
    }

    pub(super) fn report_figures(&mut self) {
        let FiguresReporter { every_ns, due_ns } = self.figures;
        if every_ns == 0 || self.now_ns < due_ns {
            return;
        }
        let state = match self.phase {
            WorkerPhase::Recovering | WorkerPhase::Failed(_) => return,
            WorkerPhase::Stopping => ReportedState::Stopping,
            // A pair whose region is full may leave, and leaves room.
            WorkerPhase::Serving if self.pairs.iter().any(is_disk_full) => ReportedState::ReadOnly,
            WorkerPhase::Serving => ReportedState::Serving,
        };
        self.figures.due_ns = self.now_ns.saturating_add(every_ns);
        let pairs: Vec<PairUse> = self.pairs.all().map(|at| self.pair_use(at)).collect();
        let meganodes = self.pairs.iter().map(|owned| owned.pair.leaf_slots().len() as u64).sum();
        self.commands.push(Command::Figures(Box::new(WorkerFigures {
            at_ns: self.now_ns,
            state,
            writes_wait: self.splits.lacks_memory(self.now_ns),
            meganodes,
            pairs,
        })));
    }

    fn pair_use(&self, at: PairAt) -> PairUse {
        let owned = self.pairs.get(at);
        let pair = &owned.pair;
        let (reads, reported_reads) = pair.reads_counted();
        // What earlier owners have appended counts, too: two looks are compared.
        let work =
            Work { records: pair.appended().0, log_bytes: owned.batches.log_bytes, reads, reported_reads };
        let hold = if pair.is_checking() {
            Some(ReportedHold::Check)
        } else {
            let splits = self.splits.are_at(&self.pairs, at) || self.splits.is_awaited(pair.id());
            splits.then_some(ReportedHold::Split)
        };
        PairUse {
            pair: pair.id(),
            epoch: pair.epoch(),
            bytes: pair.live_bytes(),
            granted_bytes: pair.granted_bytes(),
            work_ns: work.ns(),
            hold,
        }
    }
}
