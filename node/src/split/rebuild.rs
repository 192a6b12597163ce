//! Rebuilds after deletes: which meganode, and when. One at a time, a bounded part a turn, between the
//! requests of its worker; nobody waits for it.
//!
//! Each step of a rebuild is whole in one batch (`crate::store`'s `rebuild.rs`), so there is nothing to take
//! up after a crash: the walk begins again where the tree is still thin. A meganode that is the source or the
//! target of a split that is not settled is left alone, because a split's key is a fence between two leaves
//! and must stay one.

use super::Splits;
use crate::directory::MeganodeAt;
use crate::store::{RebuildStep, RebuildWalk};
use crate::worker::pairs::Pairs;

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
    walk: RebuildWalk,
    nodes_before: usize,
    freed: usize,
}

/// The rebuild that is under way.
#[derive(Debug, Default)]
pub(super) struct Rebuilds {
    pass: Option<Pass>,
}

impl Pass {
    fn new(pairs: &Pairs, there: MeganodeAt) -> Pass {
        let nodes_before = pairs.store(there.pair).nodes_used(there.slot);
        Pass { there, walk: RebuildWalk::default(), nodes_before, freed: 0 }
    }
}

impl Splits {
    /// Begins a rebuild if a meganode has become thin and none is under way.
    pub(super) fn trigger_rebuild(&mut self, pairs: &mut Pairs) {
        if self.rebuilds.pass.is_some() {
            return;
        }
        for at in pairs.all() {
            let Some(slot) = pairs.store_mut(at).take_thinned() else { continue };
            let there = MeganodeAt { pair: at, slot };
            if self.is_idle(pairs, there) {
                self.rebuilds.pass = Some(Pass::new(pairs, there));
                return;
            }
            pairs.store_mut(at).put_back_thinned(slot);
        }
    }

    /// Whether the rebuild that is under way is this meganode's.
    pub(super) fn rebuilds_now(&self, there: MeganodeAt) -> bool {
        self.rebuilds.pass.as_ref().is_some_and(|pass| pass.there == there)
    }

    /// A meganode has no tree node left for a put: whether a rebuild may find some. Its turn comes.
    pub(super) fn rebuild_helps(&mut self, pairs: &mut Pairs, there: MeganodeAt) -> bool {
        let thin = pairs.store(there.pair).may_be_thin(there.slot);
        if thin {
            pairs.store_mut(there.pair).put_back_thinned(there.slot);
        }
        thin
    }

    /// Goes on with the rebuild that is under way. Whether there is more to do that waits for nothing.
    pub(super) fn step_rebuild(&mut self, pairs: &mut Pairs) -> bool {
        let Some(mut pass) = self.rebuilds.pass.take() else { return false };
        if !self.is_idle(pairs, pass.there) {
            // A split of it has begun: it is looked at again when that is over.
            pairs.store_mut(pass.there.pair).put_back_thinned(pass.there.slot);
            return false;
        }
        let mut packed = 0;
        for _ in 0..RUNS_AT_ONCE {
            let store = pairs.store_mut(pass.there.pair);
            match store.rebuild(pass.there.slot, &mut pass.walk) {
                Ok(RebuildStep::Went(freed)) => {
                    pass.freed += freed;
                    packed += usize::from(freed > 0);
                }
                Ok(RebuildStep::Waits) => {
                    self.rebuilds.pass = Some(pass);
                    return false;
                }
                Ok(RebuildStep::Done) => return self.end_of_pass(pairs, &pass),
                Err(error) => {
                    self.broken = Some(error);
                    return false;
                }
            }
            if packed == PACKED_AT_ONCE {
                break;
            }
        }
        self.rebuilds.pass = Some(pass);
        true
    }

    fn end_of_pass(&mut self, pairs: &mut Pairs, pass: &Pass) -> bool {
        if pass.freed == 0 {
            return false;
        }
        let store = pairs.store_mut(pass.there.pair);
        store.count_rebuilt();
        tracing::debug!(slot = pass.there.slot.0, freed = pass.freed, of = pass.nodes_before, "rebuilt");
        self.changed = true; // who found no tree node may find one when those have rested
        let again = pass.freed * AGAIN_PART >= pass.nodes_before;
        if again {
            self.rebuilds.pass = Some(Pass::new(pairs, pass.there));
        }
        again
    }
}
