//! Compactions after deletes: which meganode, and when. One at a time, a bounded part a turn, between the
//! requests of its worker; nobody waits for it.
//!
//! Each step of a compaction is whole in one batch (`cell_pair`'s `compaction.rs`), so there is nothing to
//! take up after a crash: the walk begins again where the tree is still sparse. A meganode that is the source
//! or the target of a split that is not settled is left alone, because a split's key is a fence between two
//! leaves and must stay one.

use cell_pair::{CompactionStep, CompactionWalk};

use super::effects::Effects;
use crate::directory::MeganodeAt;
use crate::outbox::PairAt;
use crate::pairs::Pairs;

/// Runs of tree nodes that are looked at in one turn, and how many of them may be packed.
const RUNS_AT_ONCE: usize = 16;
const PACKED_AT_ONCE: usize = 4;
/// A walk that freed this part of a meganode is followed by another: inner nodes that were merged have leaves
/// side by side that were not.
const AGAIN_PART: usize = 8;

/// A walk over a meganode.
#[derive(Debug)]
struct Pass {
    there: MeganodeAt,
    walk: CompactionWalk,
    nodes_before: usize,
    freed: usize,
}

/// The compaction that is under way.
#[derive(Debug, Default)]
pub(super) struct Compactions {
    pass: Option<Pass>,
}

impl Pass {
    fn new(pairs: &Pairs, there: MeganodeAt) -> Pass {
        let nodes_before = pairs.pair(there.pair).nodes_used(there.slot);
        Pass { there, walk: CompactionWalk::default(), nodes_before, freed: 0 }
    }
}

impl Compactions {
    /// Begins a compaction if a meganode has become sparse and none is under way.
    pub(super) fn trigger(&mut self, pairs: &mut Pairs) {
        if self.pass.is_some() {
            return;
        }
        for at in pairs.staying().collect::<Vec<_>>() {
            let Some(slot) = pairs.pair_mut(at).take_sparse() else { continue };
            let there = MeganodeAt { pair: at, slot };
            if pairs.pair(there.pair).is_settled(there.slot) {
                self.pass = Some(Pass::new(pairs, there));
                return;
            }
            pairs.pair_mut(at).put_back_sparse(slot);
        }
    }

    /// A pair leaves: what was packed is in its log, step by step.
    pub(super) fn forget_pair(&mut self, at: PairAt) {
        self.pass.take_if(|pass| pass.there.pair == at);
    }

    /// Whether the compaction that is under way is this meganode's.
    pub(super) fn is_at(&self, there: MeganodeAt) -> bool {
        self.pass.as_ref().is_some_and(|pass| pass.there == there)
    }

    /// A meganode has no tree node left for a put: whether a compaction may find some. Its turn comes.
    pub(super) fn may_help(pairs: &mut Pairs, there: MeganodeAt) -> bool {
        let sparse = pairs.pair(there.pair).may_be_sparse(there.slot);
        if sparse {
            pairs.pair_mut(there.pair).put_back_sparse(there.slot);
        }
        sparse
    }

    /// Goes on with the compaction that is under way. Whether there is more to do that waits for nothing.
    pub(super) fn step(&mut self, pairs: &mut Pairs, effects: &mut Effects) -> bool {
        let Some(mut pass) = self.pass.take() else { return false };
        if !pairs.pair(pass.there.pair).is_settled(pass.there.slot) {
            // A split of it has started: it is looked at again when that is over.
            pairs.pair_mut(pass.there.pair).put_back_sparse(pass.there.slot);
            return false;
        }
        let mut packed = 0;
        for _ in 0..RUNS_AT_ONCE {
            let pair = pairs.pair_mut(pass.there.pair);
            match pair.compact(pass.there.slot, &mut pass.walk) {
                Ok(CompactionStep::Went(freed)) => {
                    pass.freed += freed;
                    packed += usize::from(freed > 0);
                }
                Ok(CompactionStep::Waits) => {
                    self.pass = Some(pass);
                    return false;
                }
                Ok(CompactionStep::Done) => return self.end_of_pass(pairs, &pass, effects),
                Err(error) => {
                    effects.broken(error);
                    return false;
                }
            }
            if packed == PACKED_AT_ONCE {
                break;
            }
        }
        self.pass = Some(pass);
        true
    }

    fn end_of_pass(&mut self, pairs: &mut Pairs, pass: &Pass, effects: &mut Effects) -> bool {
        if pass.freed == 0 {
            return false;
        }
        let pair = pairs.pair_mut(pass.there.pair);
        pair.count_compacted();
        tracing::debug!(slot = pass.there.slot.0, freed = pass.freed, of = pass.nodes_before, "compacted");
        effects.changed(); // who found no tree node may find one when those have rested
        let again = pass.freed * AGAIN_PART >= pass.nodes_before;
        if again {
            self.pass = Some(Pass::new(pairs, pass.there));
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::SlotIndex;

    use super::*;

    /// The next step would look for a pair that is not there.
    #[test]
    fn compaction_ends_with_its_pair_and_with_no_other() {
        let there = MeganodeAt { pair: PairAt(1), slot: SlotIndex(2) };
        let beside = MeganodeAt { pair: PairAt(1), slot: SlotIndex(3) };
        let pass = Pass { there, walk: CompactionWalk::default(), nodes_before: 8, freed: 0 };
        let mut compactions = Compactions { pass: Some(pass) };
        assert!(compactions.is_at(there) && !compactions.is_at(beside));
        compactions.forget_pair(PairAt(2));
        assert!(compactions.is_at(there));
        compactions.forget_pair(PairAt(1));
        assert!(!compactions.is_at(there));
    }
}
