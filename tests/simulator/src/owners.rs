//! Who has served which pair, and what was last recovered of each: the rule of one owner at a time.

use std::collections::{BTreeMap, BTreeSet};

use cell_cluster::{Coordinator, Sim, Tenure};
use cell_recovery::SplitName;
use cell_terms::PairId;

use crate::check::{Snapshot, entries_of};
use crate::model::{Broken, broken};

/// See the module's text.
#[derive(Default)]
pub struct Owners {
    served: BTreeMap<PairId, Vec<Tenure>>,
    recovered: BTreeMap<PairId, Snapshot>,
    /// Splits whose upper half has surely left its pair.
    cut: BTreeSet<SplitName>,
}

/// An entry: key, version and value.
pub type Entries = BTreeSet<crate::check::Entry>;

impl Owners {
    /// A pair was recovered: what is known of splits elsewhere tells which of it is the truth.
    pub fn learn(&mut self, snapshot: &mut Snapshot) {
        self.cut.extend(snapshot.cut());
        let cut: Vec<SplitName> = self.cut.iter().copied().collect();
        snapshot.show(&cut);
    }

    /// An owner begins to serve a pair that it has recovered so.
    ///
    /// # Errors
    /// An earlier owner's grants of trust may last, or its epoch is not lower.
    pub fn begins(&mut self, tenure: Tenure, snapshot: Snapshot, coordinator: &Sim) -> Result<(), Broken> {
        let earlier = self.served.entry(tenure.pair).or_default();
        let honest = coordinator.link();
        for old in earlier.iter() {
            if old.epoch >= tenure.epoch {
                return Err(broken(format_args!("{tenure:?} begins to serve after {old:?}")));
            }
            let trusted = honest.remaining_ns(old.incarnation).map_err(broken)?.is_some();
            if trusted {
                return Err(broken(format_args!("{tenure:?} begins to serve while {old:?} may be trusted")));
            }
        }
        earlier.push(tenure);
        self.recovered.insert(tenure.pair, snapshot);
        Ok(())
    }

    /// The owner before the last of a pair.
    #[must_use]
    pub fn before(&self, pair: PairId) -> Option<Tenure> {
        self.served.get(&pair)?.iter().rev().nth(1).copied()
    }

    /// The pairs that were ever served.
    pub fn pairs(&self) -> impl Iterator<Item = PairId> {
        self.served.keys().copied()
    }

    /// Whether all those pairs were recovered since the last [`Owners::forget`].
    #[must_use]
    pub fn all_recovered(&self) -> bool {
        self.served.keys().all(|pair| self.recovered.contains_key(pair))
    }

    /// Forgets what was recovered.
    pub fn forget(&mut self) {
        self.recovered.clear();
    }

    /// All that was recovered, wherever it is.
    pub fn entries(&mut self) -> Entries {
        let cut: Vec<SplitName> = self.cut.iter().copied().collect();
        self.recovered.values_mut().for_each(|snapshot| snapshot.show(&cut));
        entries_of(self.recovered.values()).into_iter().cloned().collect()
    }
}
