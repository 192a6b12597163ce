//! What goes to other nodes (`docs/design/balance.md`, "Splits"). While this node has more bytes than the
//! mean, the upper half of a meganode goes into a *fresh* pair: it is made here, gets that half alone, and is
//! handed over as soon as the split is open. While the cluster has few meganodes, they split early; and while
//! this node has too much, in pairs too large to move, its heaviest meganodes split without being full.
//!
//! The control thread tells what the others have; of its own pairs the worker knows better. A fresh pair that
//! could not leave while it was young is a pair like any other.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::sync::Arc;

use cell_placement::{
    Arrival, BalanceRules, Figures, FreshSplit, HeldPair, MemberFigures, MemberState, PairLoad, fresh_fits,
    fresh_place, has_to_divide,
};
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{NodeId, PairId};

use super::cause::Cause;
use crate::directory::MeganodeAt;
use crate::outbox::PairAt;
use crate::pairs::Pairs;

/// Fresh pairs that wait to be handed over, at most: they go one by one, and what is split meanwhile stays.
const FRESH_MAX: usize = 2;
/// A fresh pair that has got nothing for so long is handed over empty, or used here.
const FILL_NS: u64 = 5_000_000_000;
/// After a pair that could not take what it was made for none is made for another node for so long: twice as
/// long each time, so many times, until one takes something again.
const REST_NS: u64 = 10_000_000_000;
const REST_DOUBLED_MAX: u32 = 6;
/// Meganodes that are tried at a time, where pairs are too large to move.
const OVERSIZED_TRIED_MAX: usize = 8;
/// How often meganodes are looked for that split early.
const EARLY_EVERY_NS: u64 = 20_000_000;
/// A pair that is made because others are too large to move gets one part after the other, for so long.
const GATHER_NS: u64 = 10_000_000_000;
/// How often it is looked whether pairs are too large to move: by what the others had a second ago.
const OVERSIZED_EVERY_NS: u64 = 200_000_000;

/// What a worker knows of the cluster. Without it, and once it is older than the window, all halves stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpreadView {
    /// The worker's node.
    pub node: NodeId,
    /// The members, each with all its pairs as one.
    pub figures: Figures,
    /// Meganodes of the others.
    pub meganodes: u64,
    /// By what pairs are placed.
    pub rules: BalanceRules,
    /// How many pairs the worker may hold.
    pub pairs_max: u32,
    /// What a pair takes besides its regions.
    pub log_bytes: u64,
    /// How much memory this node gets back by the pair that leaves it, or could. None: none could.
    pub relief_bytes: Option<u64>,
}

impl SpreadView {
    /// A view in which each member's pairs are one.
    pub(crate) fn summed(self) -> SpreadView {
        let members = self.figures.members.into_iter().map(summed).collect();
        SpreadView { figures: Figures { members, ..self.figures }, ..self }
    }

    fn window_ns(&self) -> u64 {
        self.rules.window_ms.saturating_mul(1_000_000)
    }

    /// Nodes that share the load.
    fn nodes(&self) -> usize {
        let shares = |member: &&MemberFigures| member.state == MemberState::Serving && !member.draining;
        self.figures.members.iter().filter(shares).count()
    }
}

/// A member with as many bytes, and room for as many more pairs.
fn summed(member: MemberFigures) -> MemberFigures {
    let mut sum = MemberFigures { pairs: Vec::new(), ..member };
    for held in member.pairs {
        add(&mut sum, held.pair, held.load.unwrap_or_default().bytes);
    }
    sum
}

/// A member has one more pair of so many bytes.
fn add(member: &mut MemberFigures, pair: PairId, bytes: u64) {
    let Some(first) = member.pairs.first_mut() else {
        let load = Some(PairLoad { bytes, ..PairLoad::default() });
        let arrival = Arrival::Created { meant_for: None };
        member.pairs.push(HeldPair { pair, load, held_ms: 0, arrival, hold: None });
        return;
    };
    let load = first.load.get_or_insert_default();
    load.bytes = load.bytes.saturating_add(bytes);
    member.pairs_max = member.pairs_max.saturating_sub(1);
}

/// What a pair is made for.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    there: MeganodeAt,
    cause: Cause,
    /// It gets one of so many parts.
    part: u64,
}

/// A pair that is made for another node, and is here still.
#[derive(Clone, Copy, Debug)]
struct Fresh {
    pair: PairId,
    node: NodeId,
    since_ns: u64,
    /// What it waits for; none: it has got it.
    wanted: Option<Wanted>,
    /// Until when it may get more; none: no more.
    gathers_until_ns: Option<u64>,
}

/// Where a fresh pair is that may get something; none: it leaves. What it got after its log was cut would be
/// in no log that its next owner reads.
fn may_get(pairs: &Pairs, fresh: &Fresh) -> Option<PairAt> {
    let stays = |at: &PairAt| pairs.get(*at).leaving.is_none() || planted(Mutant::SplitIntoLeaving);
    pairs.at(fresh.pair).filter(stays)
}

/// Where a half goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Going {
    /// It stays at this node.
    Nowhere,
    /// Into this pair, which is made for another node: one of so many parts.
    Into(PairAt, u64),
    /// To this node, in a pair that is to be made.
    To(NodeId),
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Spread {
    /// With when it came.
    view: Option<(Arc<SpreadView>, u64)>,
    fresh: Vec<Fresh>,
    /// What the pair is for that was asked for.
    asked: Option<Wanted>,
    /// Pairs that were asked for.
    asks: u32,
    /// No pair is made for another node before.
    rests_until_ns: u64,
    /// Pairs in a row that could not take what they were made for.
    failed: u32,
    early_due_ns: u64,
    oversized_due_ns: u64,
    /// What [`Spread::figures_now`] says, for all meganodes and parts that are tried together: none of them
    /// changes it, and it takes all members in.
    figures: OnceCell<Figures>,
}

impl Spread {
    /// Further meganodes are tried.
    pub(super) fn begin_trying(&mut self) {
        self.figures.take();
    }

    /// What the others have from now on.
    pub(super) fn on_view(&mut self, view: Option<Arc<SpreadView>>, now_ns: u64) {
        self.view = view.map(|view| (view, now_ns));
    }

    fn view(&self, now_ns: u64) -> Option<&SpreadView> {
        let (view, since_ns) = self.view.as_ref()?;
        (now_ns.saturating_sub(*since_ns) <= view.window_ns()).then_some(view)
    }

    /// Fresh pairs that have left, or are not young any more, are fresh no more.
    pub(super) fn tick(&mut self, pairs: &Pairs, now_ns: u64) {
        let young_ns = self.view(now_ns).map_or(0, SpreadView::window_ns);
        let waits_too_long = |fresh: &Fresh| now_ns.saturating_sub(fresh.since_ns) > FILL_NS;
        // One that leaves gets nothing any more: what it was made for would be divided off here again and
        // again.
        if self.waiting().is_some_and(|(fresh, _)| waits_too_long(fresh) || may_get(pairs, fresh).is_none()) {
            self.give_up(now_ns);
        }
        let has_some = |at: PairAt| {
            let pair = pairs.pair(at);
            pair.leaf_slots().into_iter().any(|slot| pair.weight(slot).0 > 0)
        };
        let took = |fresh: &Fresh| fresh.wanted.is_none() && pairs.at(fresh.pair).is_some_and(has_some);
        if self.failed > 0 && self.fresh.iter().any(took) {
            self.failed = 0;
        }
        let is_young = |fresh: &Fresh| now_ns.saturating_sub(fresh.since_ns) < young_ns;
        self.fresh.retain(|fresh| is_young(fresh) && pairs.at(fresh.pair).is_some());
    }

    /// Whether a pair is made for another node, and may leave soon.
    pub(super) fn is_fresh(&self, pair: PairId) -> bool {
        self.fresh.iter().any(|fresh| fresh.pair == pair)
    }

    /// Whether such a pair waits for what it is to take along.
    pub(super) fn is_awaited(&self, pair: PairId) -> bool {
        let waits = |fresh: &Fresh| fresh.wanted.is_some() || fresh.gathers_until_ns.is_some();
        self.fresh.iter().any(|fresh| fresh.pair == pair && waits(fresh))
    }

    /// What such a pair waits for.
    pub(super) fn awaits(&self) -> Option<(MeganodeAt, Cause)> {
        self.waiting().map(|(_, wanted)| (wanted.there, wanted.cause))
    }

    fn waiting(&self) -> Option<(&Fresh, Wanted)> {
        self.fresh.iter().find_map(|fresh| Some((fresh, fresh.wanted?)))
    }

    /// Where a part of a meganode goes, of so many bytes, and how much memory it and a pair for it take.
    pub(super) fn going(
        &self,
        pairs: &Pairs,
        (there, cause, part): (MeganodeAt, Cause, u64),
        (bytes, memory_bytes): (u64, u64),
        now_ns: u64,
    ) -> Going {
        let from = pairs.pair(there.pair);
        // A pair without a log cannot move.
        let Some(view) = self.view(now_ns).filter(|_| from.has_log()) else { return Going::Nowhere };
        if let Some((fresh, wanted)) = self.waiting() {
            let at = may_get(pairs, fresh).filter(|_| wanted.there == there);
            return at.map_or(Going::Nowhere, |at| Going::Into(at, wanted.part));
        }
        let split = FreshSplit {
            from: view.node,
            // The pair has no number yet. Nodes, and one node each time, draw others.
            pair: PairId(from.id().0.wrapping_mul(0x9e37_79b1).wrapping_add(self.asks)),
            bytes,
            memory_bytes: memory_bytes.saturating_add(view.log_bytes),
        };
        if let Some(fresh) = self.gathering().filter(|_| cause == Cause::Oversized) {
            let figures = self.figures.get_or_init(|| self.figures_now(view, pairs));
            let fits = fresh_fits(figures, &view.rules, &split, fresh.node);
            let at = may_get(pairs, fresh).filter(|_| fits);
            return at.map_or(Going::Nowhere, |at| Going::Into(at, part));
        }
        let full = pairs.len() as u64 >= u64::from(view.pairs_max);
        if full || self.fresh.len() >= FRESH_MAX || now_ns < self.rests_until_ns {
            return Going::Nowhere;
        }
        let figures = self.figures.get_or_init(|| self.figures_now(view, pairs));
        let place = fresh_place(figures, &view.rules, &split);
        if place.node == view.node {
            return Going::Nowhere;
        }
        tracing::debug!(node = place.node.0, why = %place.why, "a half goes to another node");
        Going::To(place.node)
    }

    /// Whether balance lets a pair leave for this node's sake, which has so much memory left: none, if none
    /// could; not yet, if one could.
    pub(super) fn relief(&self, left_bytes: u64, now_ns: u64) -> Option<bool> {
        let view = self.view(now_ns)?;
        let leaves = view.figures.moving.is_some_and(|moving| moving.from == view.node);
        view.relief_bytes.filter(|bytes| left_bytes < *bytes).map(|_| leaves)
    }

    /// The cluster as if all fresh pairs were where they go.
    fn figures_now(&self, view: &SpreadView, pairs: &Pairs) -> Figures {
        let mut figures = view.figures.clone();
        for member in &mut figures.members {
            if member.node == view.node {
                (member.pairs, member.reported_ms_ago) = (Vec::new(), Some(0));
                for owned in pairs.iter().filter(|owned| !self.is_fresh(owned.pair.id())) {
                    add(member, owned.pair.id(), owned.pair.live_bytes());
                }
            }
            let node = member.node;
            for fresh in self.fresh.iter().filter(|fresh| fresh.node == node) {
                let Some(at) = pairs.at(fresh.pair) else { continue };
                let pair = pairs.pair(at);
                add(member, fresh.pair, pair.live_bytes());
                let memory_bytes = pair.granted_bytes().saturating_add(view.log_bytes);
                member.memory_left_bytes = member.memory_left_bytes.saturating_sub(memory_bytes);
            }
        }
        figures
    }

    /// A pair was asked for, for this.
    pub(super) fn asked(&mut self, there: MeganodeAt, cause: Cause, part: u64) {
        self.asked = Some(Wanted { there, cause, part });
        self.asks = self.asks.wrapping_add(1);
    }

    /// A pair was added, for another node or for this one; none: there is no room for one.
    pub(super) fn pair_added(&mut self, added: Option<(PairId, Option<NodeId>)>, now_ns: u64) {
        let wanted = self.asked.take();
        if let Some((pair, Some(node))) = added {
            let gathers = wanted.is_some_and(|wanted| wanted.cause == Cause::Oversized);
            let gathers_until_ns = gathers.then(|| now_ns.saturating_add(GATHER_NS));
            self.fresh.push(Fresh { pair, node, since_ns: now_ns, wanted, gathers_until_ns });
        }
    }

    /// A split into a pair has started.
    pub(super) fn split_started(&mut self, to: PairId) {
        for fresh in self.fresh.iter_mut().filter(|fresh| fresh.pair == to) {
            fresh.wanted = None;
        }
    }

    /// What a fresh pair waits for it cannot take.
    pub(super) fn give_up(&mut self, now_ns: u64) {
        self.rests_until_ns = now_ns.saturating_add(REST_NS << self.failed);
        self.failed = (self.failed + 1).min(REST_DOUBLED_MAX);
        for fresh in &mut self.fresh {
            (fresh.wanted, fresh.gathers_until_ns) = (None, None);
        }
    }

    fn gathering(&self) -> Option<&Fresh> {
        self.fresh.iter().find(|fresh| fresh.gathers_until_ns.is_some())
    }

    /// There is no more for a pair that got one part after the other: it leaves.
    pub(super) fn gathered(&mut self) {
        self.fresh.iter_mut().for_each(|fresh| fresh.gathers_until_ns = None);
    }

    /// A split into a pair came to nothing. Whether the pair is made for another node: then none is for a
    /// while.
    pub(super) fn aborted(&mut self, into: PairId, now_ns: u64) -> bool {
        let is_fresh = self.is_fresh(into);
        if is_fresh {
            self.give_up(now_ns);
        }
        is_fresh
    }

    /// Meganodes that split before they are full, and why: the first that can. They are looked for now and
    /// then. `splits_at` says whether a pair takes part in a split.
    pub(super) fn due(
        &mut self,
        pairs: &Pairs,
        splits_at: impl Fn(PairAt) -> bool,
        now_ns: u64,
    ) -> Vec<(MeganodeAt, Cause)> {
        let early = self.early(pairs, now_ns).map(|there| (there, Cause::Early));
        let oversized = self.oversized(pairs, splits_at, now_ns).unwrap_or_default();
        early.into_iter().chain(oversized.into_iter().map(|there| (there, Cause::Oversized))).collect()
    }

    /// The heaviest meganodes of the largest pairs, if this node's pairs are too large to move.
    fn oversized(
        &mut self,
        pairs: &Pairs,
        splits_at: impl Fn(PairAt) -> bool,
        now_ns: u64,
    ) -> Option<Vec<MeganodeAt>> {
        if self.view.is_none() || now_ns < self.oversized_due_ns {
            return None;
        }
        self.oversized_due_ns = now_ns.saturating_add(OVERSIZED_EVERY_NS);
        let view = self.view(now_ns)?;
        let stays = |at: &PairAt| {
            let pair = pairs.pair(*at);
            !self.is_fresh(pair.id()) && pair.has_log()
        };
        let mut own: Vec<(u64, PairAt)> =
            pairs.staying().filter(stays).map(|at| (pairs.pair(at).live_bytes(), at)).collect();
        let bytes: Vec<u64> = own.iter().map(|(bytes, _)| *bytes).collect();
        let is_over = |fresh: &Fresh| fresh.gathers_until_ns.is_some_and(|until_ns| now_ns >= until_ns);
        if self.gathering().is_some_and(is_over)
            || !has_to_divide(&self.figures_now(view, pairs), &view.rules, view.node, &bytes)
        {
            self.gathered();
            return None;
        }
        // What it gets now is open before it gets more.
        let is_filled =
            |fresh: &Fresh| fresh.wanted.is_some() || pairs.at(fresh.pair).is_some_and(&splits_at);
        if self.gathering().is_some_and(is_filled) {
            return None;
        }
        own.sort_by_key(|(bytes, _)| Reverse(*bytes));
        let heaviest = |(_, at): (u64, PairAt)| {
            let pair = pairs.pair(at);
            let mut slots = pair.leaf_slots();
            slots.retain(|slot| pair.is_settled(*slot));
            slots.sort_by_key(|slot| Reverse(pair.weight(*slot).1 + pair.nodes_bytes(*slot)));
            slots.into_iter().map(move |slot| MeganodeAt { pair: at, slot })
        };
        Some(own.into_iter().flat_map(heaviest).take(OVERSIZED_TRIED_MAX).collect())
    }

    /// The fullest meganode that splits early, if one does.
    fn early(&mut self, pairs: &Pairs, now_ns: u64) -> Option<MeganodeAt> {
        if self.view.is_none() || now_ns < self.early_due_ns {
            return None;
        }
        self.early_due_ns = now_ns.saturating_add(EARLY_EVERY_NS);
        let view = self.view(now_ns)?;
        let own: u64 = pairs.iter().map(|owned| owned.pair.leaf_slots().len() as u64).sum();
        let part = u64::from(view.rules.slot_part(view.meganodes.saturating_add(own), view.nodes()));
        if part <= 1 {
            return None;
        }
        let mut fullest: Option<(u64, MeganodeAt)> = None;
        for at in pairs.staying() {
            let pair = pairs.pair(at);
            if self.is_fresh(pair.id()) || !pair.has_log() {
                continue;
            }
            for slot in pair.leaf_slots().into_iter().filter(|slot| pair.is_settled(*slot)) {
                let bytes = pair.nodes_bytes(slot);
                let is_due = bytes.saturating_mul(part) >= pair.slot_bytes();
                if is_due && fullest.is_none_or(|(most, _)| bytes > most) {
                    fullest = Some((bytes, MeganodeAt { pair: at, slot }));
                }
            }
        }
        fullest.map(|(_, there)| there)
    }

    /// Nothing is done at a pair any more.
    pub(super) fn forget_pair(&mut self, at: PairAt) {
        self.asked.take_if(|wanted| wanted.there.pair == at);
        for fresh in &mut self.fresh {
            fresh.wanted.take_if(|wanted| wanted.there.pair == at);
        }
    }
}

#[cfg(test)]
mod tests {
    use cell_placement::{MoveCause, MoveUnderWay};
    use cell_terms::SlotIndex;

    use super::*;
    use crate::split::tests::{SIZES, Story};

    /// Each time an empty pair goes to another node.
    #[test]
    fn splits_into_fresh_pairs_that_fail_are_tried_more_and_more_seldom() {
        let mut spread = Spread::default();
        spread.pair_added(Some((PairId(7), Some(NodeId(1)))), 0);
        assert!(!spread.aborted(PairId(8), 5) && spread.rests_until_ns == 0, "it stays here anyhow");
        let rests = [(); 9].map(|()| {
            assert!(spread.aborted(PairId(7), 5));
            (spread.rests_until_ns - 5) / REST_NS
        });
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
    }

    /// The place may be another pair's by then.
    #[test]
    fn pair_that_leaves_takes_along_what_others_were_made_for() {
        let there = |pair: u16| MeganodeAt { pair: PairAt(pair), slot: SlotIndex(0) };
        let mut spread = Spread::default();
        spread.asked(there(1), Cause::Nodes, 2);
        spread.pair_added(Some((PairId(7), Some(NodeId(1)))), 0);
        spread.asked(there(2), Cause::Nodes, 2);
        spread.forget_pair(PairAt(2));
        assert!(spread.asked.is_none() && spread.awaits() == Some((there(1), Cause::Nodes)));
        spread.asked(there(2), Cause::Nodes, 2);
        spread.forget_pair(PairAt(1));
        assert!(spread.asked.is_some() && spread.awaits().is_none());
    }

    /// A put is to come again as long as a pair leaves this node; a move of others gives no memory here.
    #[test]
    fn relief_is_a_pair_that_leaves_this_node_while_less_is_left_than_that_gives() {
        let relief = |from: Option<u32>, left_bytes: u64| {
            let moving = from.map(|from| MoveUnderWay {
                pair: PairId(1),
                from: NodeId(from),
                to: NodeId(9),
                cause: MoveCause::Balance,
                handed: false,
            });
            let view = SpreadView {
                node: NodeId(1),
                figures: Figures { moving, ..Figures::default() },
                meganodes: 0,
                rules: BalanceRules::default(),
                pairs_max: 1,
                log_bytes: 0,
                relief_bytes: Some(100),
            };
            let mut spread = Spread::default();
            spread.on_view(Some(Arc::new(view)), 0);
            spread.relief(left_bytes, 0)
        };
        assert_eq!([Some(1), Some(2), None].map(|from| relief(from, 99)), [true, false, false].map(Some));
        assert_eq!(relief(Some(1), 100), None);
    }

    /// It is handed over empty, or used here; until then nothing else goes to other nodes.
    #[test]
    fn fresh_pair_that_gets_nothing_for_five_seconds_is_given_up() {
        let story = Story::begin(SIZES);
        let there = MeganodeAt { pair: story.at, slot: SlotIndex(0) };
        let given_up_at = |now_ns: u64| {
            let mut spread = Spread::default();
            spread.asked(there, Cause::Nodes, 2);
            spread.pair_added(Some((PairId(1), Some(NodeId(1)))), 0);
            spread.tick(&story.pairs, now_ns);
            spread.rests_until_ns > 0
        };
        assert!(!given_up_at(FILL_NS) && given_up_at(FILL_NS + 1));
    }
}
