//! Packings of extents: which pair, and when. One at a time, a bounded part a turn, between the requests of
//! its worker. Puts that find no place wait for it; who finds one does not.
//!
//! What a packing has moved is in the log, each extent for itself, so there is nothing to take up after a
//! crash.

use cell_pair::{PackingStep, PackingWalk};

use super::effects::Effects;
use crate::outbox::PairAt;
use crate::pairs::Pairs;

/// The packing that is under way.
#[derive(Debug, Default)]
pub(super) struct Packings {
    pass: Option<(PairAt, PackingWalk)>,
    /// A pair that somebody waits for.
    wanted: Option<PairAt>,
}

impl Packings {
    /// Begins a packing if one is wanted, or due, and none is under way.
    pub(super) fn trigger(&mut self, pairs: &mut Pairs) {
        if self.pass.is_some() {
            return;
        }
        let wanted = self.wanted.take();
        let wanted = wanted.or_else(|| {
            let mut staying = pairs.staying().collect::<Vec<_>>().into_iter();
            staying.find(|at| pairs.pair_mut(*at).wants_packing())
        });
        if let Some(at) = wanted {
            self.pass = pairs.pair_mut(at).begin_packing().map(|walk| (at, walk));
        }
    }

    /// A pair leaves: what was moved is in its log, each extent for itself.
    pub(super) fn forget_pair(&mut self, at: PairAt) {
        self.pass.take_if(|(of, _)| *of == at);
        self.wanted.take_if(|of| *of == at);
    }

    /// A pair's sparse slabs are to be packed before others'.
    pub(super) fn want(&mut self, at: PairAt) {
        self.wanted.get_or_insert(at);
    }

    /// A put finds no place for its extent in a pair: whether a packing may find one. Its turn comes.
    pub(super) fn may_help(&mut self, pairs: &Pairs, at: PairAt) -> bool {
        if self.pass.as_ref().is_some_and(|(of, _)| *of == at) {
            return true;
        }
        let helps = pairs.pair(at).may_pack();
        if helps {
            self.want(at);
        }
        helps
    }

    /// Goes on with the packing that is under way. Whether there is more to do that waits for nothing.
    pub(super) fn step(&mut self, pairs: &mut Pairs, effects: &mut Effects) -> bool {
        let Some((at, mut walk)) = self.pass.take() else { return false };
        match pairs.pair_mut(at).pack(&mut walk) {
            Ok(PackingStep::Done) => {
                effects.changed();
                false
            }
            Ok(step) => {
                self.pass = Some((at, walk));
                step == PackingStep::Went
            }
            Err(error) => {
                effects.broken(error);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::tests::Story;

    /// It would be started in a pair that is not there.
    #[test]
    fn packing_that_is_wanted_is_forgotten_with_its_pair_and_with_no_other() {
        let mut packings = Packings::default();
        packings.want(PairAt(1));
        packings.want(PairAt(2));
        assert_eq!(packings.wanted, Some(PairAt(1)), "who waits longer");
        packings.forget_pair(PairAt(2));
        assert_eq!(packings.wanted, Some(PairAt(1)));
        packings.forget_pair(PairAt(1));
        assert_eq!(packings.wanted, None);
    }

    /// The next step would look for a pair that is not there.
    #[test]
    fn packing_ends_with_its_pair_and_with_no_other() {
        let Story { mut pairs, at, .. } = Story::sparse();
        let mut packings = Packings::default();
        assert!(packings.may_help(&pairs, at) && packings.wanted == Some(at));
        packings.trigger(&mut pairs);
        packings.forget_pair(PairAt(at.0 + 1));
        assert!(packings.pass.is_some() && packings.may_help(&pairs, at), "it is under way");
        packings.forget_pair(at);
        assert!(packings.pass.is_none());
    }
}
