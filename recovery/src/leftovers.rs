//! What a pair's earlier owners have left on the disk that nobody will read: the spares that they had
//! prepared past their cuts, what the last one had not filled of its segments, and the files of claims that
//! never came to publish.
//!
//! To give 264 MiB back takes ext4 some 110 ms, and nothing but room depends on it. So it is done once the
//! pair is served, and before only where the new logs find no room.

use std::error::Error;

use cell_cluster::PairRow;
use cell_terms::RegionKind;
use cell_terms::mutant::{Mutant, planted};
use cell_wal::folder::{give_back_past_end, remove_past_cut};
use cell_wal::segment::LogPlace;
use cell_wal::{Errno, LogId, LogName, Storage, WalError};

use crate::environment::Environment;
use crate::folders::remove_unneeded;

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Leftovers {
    /// The owner that removes them, and of which pair.
    log: LogId,
    /// Where the frames of the last owner's logs end.
    ends: Vec<LogPlace>,
}

impl Leftovers {
    /// `ends`: of the logs that were read last; none if they are not known.
    pub(crate) fn new(log: LogId, ends: &[LogPlace]) -> Leftovers {
        Leftovers { log, ends: ends.to_vec() }
    }

    /// Removes them; all cuts before the owner's epoch are recorded. What cannot be removed is left over: the
    /// next owner tries again.
    pub fn remove(&self, environment: &Environment) {
        let Leftovers { log, ends } = self;
        let storage = &*environment.storage;
        let row = match environment.table.pair(log.pair) {
            Ok(row) if row.epoch == log.epoch => row,
            Ok(_) => return, // another owner's by now
            Err(error) => return warn(&error),
        };
        if let Err(error) = remove_unneeded(storage, &row) {
            warn_of(&error);
        }
        for end in ends {
            if let Err(error) = give_back_past_end(storage, *end) {
                warn_of(&error);
            }
        }
        // An owner that died right after it had published left those of the one before it.
        remove_past_cuts(storage, &row);
    }
}

fn remove_past_cuts(storage: &dyn Storage, row: &PairRow) {
    if planted(Mutant::ZombieSegments) {
        return;
    }
    for old in &row.history {
        let Some(cut) = old.cut else { continue };
        for kind in [RegionKind::Node, RegionKind::Extent] {
            let name = LogName { region: row.pair.region(kind), epoch: old.epoch };
            if let Err(error) = remove_past_cut(storage, name, cut) {
                warn_of(&error);
            }
        }
    }
}

/// What is not there, as the logs of an owner without any, or what a checkpoint's end removes at the same
/// time, needs no warning.
fn warn_of(error: &WalError) {
    if !matches!(error, WalError::Storage(error) if error.errno == Errno::ENOENT)
        && !matches!(error, WalError::FolderMissing { .. })
    {
        warn(error);
    }
}

fn warn(error: &dyn Error) {
    tracing::warn!(%error, "files that nobody needs are left over");
}
