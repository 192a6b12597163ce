//! Of which pairs' memory an operation has read or is reading.

use super::{Lookup, LookupStage, ReadOperation};
use crate::onesided::mapping::PairRegion;
use crate::onesided::place::PairAt;

impl ReadOperation {
    /// Whether what it has read, or is reading, is of a pair's registrations. What led it to others is
    /// advice.
    pub(in crate::onesided) fn touches(&self, pair: PairAt) -> bool {
        let is_at = |lookup: &Lookup| match lookup.stage {
            LookupStage::Walking => lookup.walk.location().is_some_and(|at| at.pair == pair),
            LookupStage::Fetching(of, _) => of == pair,
            LookupStage::Confirming { from, .. } => self.confirming[from].leaf.pair == pair,
            LookupStage::Idle | LookupStage::Done(_) | LookupStage::Ended => false,
        };
        self.needs.iter().any(|(needed, _)| *needed == pair)
            || self.lookups[..self.lookups_used].iter().any(is_at)
            || self.headers.iter().any(|header| header.leaf.pair == pair)
    }

    /// Of which pair a lookup is reading, and which region. None of a read that an operation asked for before
    /// it began anew, and whose lookup it does not have any more.
    pub(in crate::onesided) fn region_read(&self, lookup: u16) -> Option<(PairAt, PairRegion)> {
        let lookup = self.lookups[..self.lookups_used].get(usize::from(lookup))?;
        match lookup.stage {
            LookupStage::Walking => lookup.walk.location().map(|at| (at.pair, PairRegion::Nodes)),
            LookupStage::Fetching(pair, _) => Some((pair, PairRegion::Extents)),
            LookupStage::Confirming { from, .. } => {
                self.confirming.get(from).map(|header| (header.leaf.pair, PairRegion::Nodes))
            }
            LookupStage::Idle | LookupStage::Done(_) | LookupStage::Ended => None,
        }
    }
}
