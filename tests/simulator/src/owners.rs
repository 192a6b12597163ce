//! Who has served which pair, and what was last recovered of each: the rule of one owner at a time.

use std::collections::{BTreeMap, BTreeSet};

use cell_cluster::{Coordinator, Ownership, Sim};
use cell_recovery::SplitName;
use cell_terms::{Epoch, Incarnation, PairId};

use crate::check::{Snapshot, entries_of};
use crate::model::{Broken, broken};

/// The pairs that are served at once are fewer.
const OWNERS_AT_ONCE: usize = 64;

/// See the module's text.
#[derive(Default)]
pub struct Owners {
    served: BTreeMap<PairId, Vec<Ownership>>,
    /// The incarnation of each ownership, in the order in which they began.
    leases: Vec<Incarnation>,
    /// Of those who have let a pair go, and live: nothing that they granted lasts.
    left: BTreeSet<(PairId, Epoch)>,
    recovered: BTreeMap<PairId, Snapshot>,
    /// Splits whose upper half has surely left its pair.
    truncated: BTreeSet<SplitName>,
}

/// An entry: key, version and value.
pub type Entries = BTreeSet<crate::check::Entry>;

impl Owners {
    /// A pair was recovered: what is known of splits elsewhere shows which of it is the truth.
    pub fn learn(&mut self, snapshot: &mut Snapshot) {
        self.truncated.extend(snapshot.truncated());
        let truncated: Vec<SplitName> = self.truncated.iter().copied().collect();
        snapshot.show(&truncated);
    }

    /// An owner begins to serve a pair that it has recovered so.
    ///
    /// # Errors
    /// An earlier owner's grants of trust may last, or its epoch is not lower.
    pub fn begins(
        &mut self,
        ownership: Ownership,
        snapshot: Snapshot,
        coordinator: &Sim,
    ) -> Result<(), Broken> {
        let earlier = self.served.entry(ownership.pair).or_default();
        let honest = coordinator.link();
        for old in earlier.iter() {
            if old.epoch >= ownership.epoch {
                return Err(broken(format_args!("{ownership:?} begins to serve after {old:?}")));
            }
            if self.left.contains(&(old.pair, old.epoch)) {
                continue;
            }
            // One that does not answer shows nothing; what was published before was published by its rules.
            let trusted =
                coordinator.answers() && honest.remaining_ns(old.incarnation).map_err(broken)?.is_some();
            if trusted {
                return Err(broken(format_args!(
                    "{ownership:?} begins to serve while {old:?} may be trusted"
                )));
            }
        }
        earlier.push(ownership);
        self.leases.push(ownership.incarnation);
        self.recovered.insert(ownership.pair, snapshot);
        Ok(())
    }

    /// Whether somebody has served the pair in a later epoch.
    pub fn have_later(&self, ownership: Ownership) -> bool {
        let mut all = self.served.get(&ownership.pair).into_iter().flatten();
        all.any(|other| other.epoch > ownership.epoch)
    }

    /// A pair has left its owner in order.
    pub fn left(&mut self, ownership: Ownership) {
        self.left.insert((ownership.pair, ownership.epoch));
    }

    /// A pair that was about to leave is served on by its owner.
    pub fn stays(&mut self, ownership: Ownership) {
        self.left.remove(&(ownership.pair, ownership.epoch));
    }

    /// A client returned what it had read itself: somebody who served must have his lease still.
    ///
    /// # Errors
    /// None of them has.
    pub fn demand_living(&self, coordinator: &Sim) -> Result<(), Broken> {
        let honest = coordinator.link();
        let lives = |lease: &Incarnation| honest.remaining_ns(*lease).is_ok_and(|left| left.is_some());
        if coordinator.answers() && !self.leases.iter().rev().take(OWNERS_AT_ONCE).any(lives) {
            return Err(broken(
                "a client returned what it had read itself after every owner's lease had ended",
            ));
        }
        Ok(())
    }

    /// The owner before the last of a pair.
    #[must_use]
    pub fn before(&self, pair: PairId) -> Option<Ownership> {
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
        let truncated: Vec<SplitName> = self.truncated.iter().copied().collect();
        self.recovered.values_mut().for_each(|snapshot| snapshot.show(&truncated));
        entries_of(self.recovered.values()).into_iter().cloned().collect()
    }
}
