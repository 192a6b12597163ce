//! Which logs a recovery reads, from where and how far: decided from the pair's row alone.
//!
//! | epoch | read from | read to |
//! |---|---|---|
//! | of the checkpoint | the checkpoint's base | its recorded cut; without one, where its logs end |
//! | a later one | the cut before it | likewise |
//! | with `durability = none` | nothing: it has no logs | its cut is the cut before it |
//!
//! Only the last epoch can be without a cut: each owner records it before it serves. What a found cut must
//! satisfy is `cell_wal`'s to decide ("Tear or corruption?"); here it is only chained.

use cell_cluster::{EpochRow, PairRow};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Durability, Epoch, PairId};
use cell_wal::{LogId, Predecessor, ReadOptions, ReadRequest};

use crate::error::RecoveryError;

/// The epochs that are left to read, and what has been read.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pair: PairId,
    epochs: std::vec::IntoIter<EpochRow>,
    options: ReadOptions,
    /// Everything up to here is in memory.
    base: Csn,
    /// The last epoch that was read, or the one before the first, where the table still has it.
    last: Option<Epoch>,
    /// What the image of the checkpoint's epoch needs.
    required: Option<(Epoch, Csn)>,
}

/// The next epoch to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochPlan {
    pub(crate) row: EpochRow,
    /// None: it has no logs.
    pub(crate) request: Option<ReadRequest>,
}

impl Plan {
    pub(crate) fn new(row: &PairRow, options: ReadOptions) -> Plan {
        let checkpoint = row.checkpoint.as_ref();
        let first = checkpoint.map_or(Epoch(0), |checkpoint| checkpoint.epoch);
        let epochs: Vec<EpochRow> = row.epochs_needed().filter(|old| old.epoch >= first).copied().collect();
        Plan {
            pair: row.pair,
            epochs: epochs.into_iter(),
            options,
            base: checkpoint.map_or(Csn::ZERO, |checkpoint| checkpoint.csn),
            last: checkpoint.is_none().then_some(Epoch(0)),
            required: checkpoint.map(|checkpoint| (checkpoint.epoch, checkpoint.csn_max)),
        }
    }

    /// The next epoch.
    pub(crate) fn next(&mut self) -> Option<EpochPlan> {
        let row = self.epochs.next()?;
        let required =
            self.required.filter(|(epoch, _)| *epoch == row.epoch).map_or(Csn::ZERO, |(_, csn)| csn);
        let request = (row.durability != Durability::None).then_some(ReadRequest {
            log: LogId { pair: self.pair, epoch: row.epoch },
            base: self.base,
            cut: row.cut.filter(|_| !planted(Mutant::CutIgnored)),
            required,
            options: self.options,
        });
        Some(EpochPlan { row, request })
    }

    /// Whether an epoch's logs say that they follow what was read before them.
    pub(crate) fn check_predecessor(&self, epoch: Epoch, found: Predecessor) -> Result<(), RecoveryError> {
        let follows = match self.last {
            // Of the checkpoint's epoch the table does not have the one before.
            None => found.epoch < epoch && found.cut <= self.base,
            Some(last) => found == Predecessor { epoch: last, cut: self.base },
        };
        let expected = Predecessor { epoch: self.last.unwrap_or_default(), cut: self.base };
        if follows {
            Ok(())
        } else {
            Err(RecoveryError::Predecessor { pair: self.pair, epoch, found, expected })
        }
    }

    /// An epoch was read up to its cut.
    pub(crate) fn advance(&mut self, epoch: Epoch, cut: Csn) {
        self.base = self.base.max(cut);
        self.last = Some(epoch);
    }

    /// Everything up to here is in memory.
    pub(crate) fn base(&self) -> Csn {
        self.base
    }

    /// What the new epoch's logs follow.
    pub(crate) fn predecessor(&self) -> Predecessor {
        Predecessor { epoch: self.last.unwrap_or_default(), cut: self.base }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_cluster::{CheckpointRow, PairGeometry, PairState};
    use cell_terms::NodeId;

    fn row(history: &[(u32, Durability, Option<u64>)], checkpoint: Option<(u32, u64, u64)>) -> PairRow {
        PairRow {
            pair: PairId(1),
            node_region: PairId(1).node_region(),
            extent_region: PairId(1).extent_region(),
            owner: None,
            node: NodeId(0),
            served_by: None,
            host: None,
            epoch: Epoch(9),
            state: PairState::Recovering,
            place: None,
            geometry: PairGeometry {
                node_region_bytes: 0,
                extent_region_bytes: 0,
                slot_bytes: 0,
                node_bytes: 0,
            },
            history: history
                .iter()
                .map(|(epoch, durability, cut)| EpochRow {
                    epoch: Epoch(*epoch),
                    durability: *durability,
                    cut: cut.map(Csn),
                })
                .collect(),
            checkpoint: checkpoint.map(|(epoch, csn, csn_max)| CheckpointRow {
                epoch: Epoch(epoch),
                csn: Csn(csn),
                csn_max: Csn(csn_max),
                file: String::new(),
            }),
            trusted: Vec::new(),
            findings: Vec::new(),
            refuted: Vec::new(),
        }
    }

    /// Epoch, base, recorded cut, required CSN.
    type Asked = (u32, u64, Option<u64>, u64);

    /// Reads the plan as a recovery would, each epoch without a cut ending at `found`; what was asked for.
    fn read(row: &PairRow, found: u64) -> (Vec<Asked>, Predecessor) {
        let mut plan = Plan::new(row, ReadOptions::default());
        let mut asked = Vec::new();
        while let Some(epoch) = plan.next() {
            let mut cut = plan.base();
            if let Some(request) = epoch.request {
                cut = request.cut.unwrap_or(Csn(found));
                asked.push((
                    epoch.row.epoch.0,
                    request.base.0,
                    request.cut.map(|cut| cut.0),
                    request.required.0,
                ));
            }
            plan.advance(epoch.row.epoch, cut);
        }
        (asked, plan.predecessor())
    }

    const SYNC: Durability = Durability::Sync;

    #[test]
    fn plan_new_pair_reads_nothing() {
        assert_eq!(read(&row(&[], None), 0), (vec![], Predecessor::default()));
    }

    #[test]
    fn plan_epochs_are_chained_by_their_cuts() {
        let row = row(&[(1, SYNC, Some(10)), (4, SYNC, Some(10)), (5, SYNC, None)], None);
        let (asked, predecessor) = read(&row, 25);
        assert_eq!(asked, [(1, 0, Some(10), 0), (4, 10, Some(10), 0), (5, 10, None, 0)]);
        assert_eq!(predecessor, Predecessor { epoch: Epoch(5), cut: Csn(25) });
    }

    #[test]
    fn plan_checkpoint_begins_at_its_base_and_requires_its_highest() {
        let row = row(&[(1, SYNC, Some(10)), (4, SYNC, Some(30)), (5, SYNC, None)], Some((4, 17, 20)));
        let (asked, _) = read(&row, 40);
        assert_eq!(asked, [(4, 17, Some(30), 20), (5, 30, None, 0)]);
    }

    #[test]
    fn plan_epoch_without_logs_is_not_read_and_keeps_the_cut() {
        let row = row(&[(1, SYNC, Some(10)), (2, Durability::None, None)], None);
        let (asked, predecessor) = read(&row, 0);
        assert_eq!(asked, [(1, 0, Some(10), 0)]);
        assert_eq!(predecessor, Predecessor { epoch: Epoch(2), cut: Csn(10) });
    }

    #[test]
    fn check_predecessor_other_chain_is_refused() {
        let mut plan = Plan::new(&row(&[(1, SYNC, Some(10)), (3, SYNC, None)], None), ReadOptions::default());
        plan.check_predecessor(Epoch(1), Predecessor::default()).unwrap();
        plan.advance(Epoch(1), Csn(10));
        plan.check_predecessor(Epoch(3), Predecessor { epoch: Epoch(1), cut: Csn(10) }).unwrap();
        for (epoch, cut) in [(1, 9), (2, 10), (0, 0)] {
            let found = Predecessor { epoch: Epoch(epoch), cut: Csn(cut) };
            let refused = plan.check_predecessor(Epoch(3), found);
            assert!(matches!(refused, Err(RecoveryError::Predecessor { .. })));
        }
        let plan = Plan::new(&row(&[(4, SYNC, None)], Some((4, 17, 20))), ReadOptions::default());
        plan.check_predecessor(Epoch(4), Predecessor { epoch: Epoch(2), cut: Csn(12) }).unwrap();
        let refused = plan.check_predecessor(Epoch(4), Predecessor { epoch: Epoch(4), cut: Csn(12) });
        assert!(refused.is_err());
    }

    /// An owner that takes a checkpoint before it writes anything: its image's base is the cut before it.
    #[test]
    fn check_predecessor_of_the_checkpoints_epoch_ended_at_the_base_at_the_latest() {
        let plan = Plan::new(&row(&[(4, SYNC, None)], Some((4, 17, 20))), ReadOptions::default());
        let check = |epoch, cut| {
            plan.check_predecessor(Epoch(4), Predecessor { epoch: Epoch(epoch), cut: Csn(cut) }).is_ok()
        };
        assert!(check(2, 17) && check(3, 0));
        assert!(!check(2, 18), "it has more than the image");
        assert!(!check(4, 17) && !check(5, 17), "it is no earlier one");
    }
}
