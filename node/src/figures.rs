//! What a worker reports to the control thread of its pairs each second, for balance: sizes, and what they
//! have cost it so far.

use cell_cluster::{ReportedHold, ReportedState};
use cell_terms::{Epoch, PairId};

/// How often a worker reports its figures.
pub const FIGURES_EVERY_NS: u64 = 1_000_000_000;

/// What a worker has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerFigures {
    /// When it was so, by the worker's clock.
    pub at_ns: u64,
    /// What it does.
    pub state: ReportedState,
    /// Puts came a moment ago for which there is no memory: they wait, or were refused. A pair that leaves
    /// would help.
    pub writes_wait: bool,
    /// Its meganodes of entries.
    pub meganodes: u64,
    /// Its pairs.
    pub pairs: Vec<PairUse>,
}

/// What a pair takes of its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairUse {
    /// The pair.
    pub pair: PairId,
    /// The epoch in which it is this worker's.
    pub epoch: Epoch,
    /// Bytes of its entries and tree nodes.
    pub bytes: u64,
    /// Memory that its regions were granted.
    pub granted_bytes: u64,
    /// What it has cost the worker since that has it: see [`Work`].
    pub work_ns: u64,
    /// What keeps it from leaving.
    pub hold: Option<ReportedHold>,
}

/// What a pair's owner has done for it, counted. The worker's clock is read once a turn, in which requests of
/// several pairs are carried out, so time cannot be divided by pair. What is counted costs about the same
/// each time; nodes are compared by it, not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Log records that were appended: a put has two or three.
    pub(crate) records: u64,
    /// Bytes of the logs' frames.
    pub(crate) log_bytes: u64,
    /// Reads for clients.
    pub(crate) reads: u64,
    /// One-sided reads that clients reported: they take bandwidth of memory and network, and no time.
    pub(crate) reported_reads: u64,
}

impl Work {
    const RECORD_NS: u64 = 1_500;
    const KIB_NS: u64 = 250;
    const READ_NS: u64 = 2_000;
    const REPORTED_READ_NS: u64 = 400;

    /// In nanoseconds of the worker, about.
    pub(crate) fn ns(&self) -> u64 {
        let Work { records, log_bytes, reads, reported_reads } = *self;
        let costs = [
            (records, Work::RECORD_NS),
            (log_bytes >> 10, Work::KIB_NS),
            (reads, Work::READ_NS),
            (reported_reads, Work::REPORTED_READ_NS),
        ];
        costs.into_iter().fold(0, |sum, (count, ns)| sum.saturating_add(count.saturating_mul(ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_counts_each_kind_and_one_sided_reads_for_less() {
        let read = Work { reads: 10, ..Work::default() }.ns();
        let reported = Work { reported_reads: 10, ..Work::default() }.ns();
        let put = Work { records: 30, log_bytes: 10 << 12, ..Work::default() }.ns();
        assert!(0 < reported && reported < read && read < put, "{reported} {read} {put}");
        assert_eq!(Work { reads: u64::MAX, records: 1, ..Work::default() }.ns(), u64::MAX);
    }
}
