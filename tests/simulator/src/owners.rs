//! Who has served which pair, and what was last recovered of each: the rule of one owner at a time.

use std::collections::{BTreeMap, BTreeSet};

use cell_cluster::{Coordinator, Sim, Tenure};
use cell_recovery::SplitName;
use cell_terms::{Incarnation, PairId};

use crate::check::{Snapshot, entries_of};
use crate::model::{Broken, broken};

/// The pairs that are served at once are fewer.
const OWNERS_AT_ONCE: usize = 64;

/// See the module's text.
#[derive(Default)]
pub struct Owners {
    served: BTreeMap<PairId, Vec<Tenure>>,
    /// The incarnation of each tenure, in the order in which they began.
    leases: Vec<Incarnation>,
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
            // One without power tells nothing; what was published before was published by its rules.
            let trusted =
                coordinator.is_powered() && honest.remaining_ns(old.incarnation).map_err(broken)?.is_some();
            if trusted {
                return Err(broken(format_args!("{tenure:?} begins to serve while {old:?} may be trusted")));
            }
        }
        earlier.push(tenure);
        self.leases.push(tenure.incarnation);
        self.recovered.insert(tenure.pair, snapshot);
        Ok(())
    }

    /// A client told what it had read itself: somebody who served must have his lease still.
    ///
    /// # Errors
    /// None of them has.
    pub fn demand_living(&self, coordinator: &Sim) -> Result<(), Broken> {
        let honest = coordinator.link();
        let lives = |lease: &Incarnation| honest.remaining_ns(*lease).is_ok_and(|left| left.is_some());
        if coordinator.is_powered() && !self.leases.iter().rev().take(OWNERS_AT_ONCE).any(lives) {
            return Err(broken("a client told what it had read itself after every owner's lease had ended"));
        }
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
