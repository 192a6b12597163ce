//! The search for the one move of balance that helps most.
//!
//! Nodes are judged by their *score*: what they have in parts of the mean, by the measure of which they have
//! more. A move is judged by its *gain*: by how much the higher score of its two ends falls. Each move of
//! balance gains something, so that the scores, sorted from the highest on, fall with every move: while loads
//! stay as they are no sequence of moves comes back to where it began.
//!
//! The work: one pass over all pairs for the sums, and a sort of the nodes. Then the pairs of one node are
//! tried, each at the nodes with the lowest scores first, until the pair can gain no more; mostly that is the
//! first one. Nodes that have nothing to give cost their pairs times the nodes with lower scores at most.

use cell_terms::NodeId;

use crate::figures::{Arrival, Figures, HeldPair, MoveCause, PairLoad};
use crate::history::History;
use crate::obstacle::PairObstacle;
use crate::reason::{GaveNothing, Measure, MoveReason, PlannedMove, RestReason};
use crate::rules::BalanceRules;
use crate::survey::{Shares, Survey, known_load};
use crate::targets::{Taker, takers};
use crate::words::percent;

/// Gains that differ by less than this part of the tolerance are one: the pair with fewer bytes moves then.
/// A move that gains less is not worth it, unless its node has so many pairs that most gain less.
const GAIN_PARTS: f64 = 20.0;

/// What there is to choose from.
pub(crate) struct Search<'a> {
    pub(crate) now_ms: u64,
    pub(crate) figures: &'a Figures,
    pub(crate) survey: &'a Survey,
    pub(crate) history: &'a History,
    pub(crate) rules: &'a BalanceRules,
}

/// A move that may be made.
#[derive(Clone, Copy, Debug)]
struct Found {
    held: HeldPair,
    load: PairLoad,
    to: NodeId,
    /// What the target has before, and the worse of both ends afterwards.
    to_score: f64,
    after: f64,
    rank: f64,
}

/// A pair, and what its node has before and after it has left, in parts of the mean.
#[derive(Clone, Copy)]
struct Offer<'a> {
    held: &'a HeldPair,
    load: &'a PairLoad,
    takes: Shares,
    before: f64,
    left: f64,
    /// The least gain that is worth a move.
    least: f64,
}

/// What came of looking for a pair's target.
enum Target {
    Found(Found),
    NoRoom,
    Lifts,
    NoGain,
}

/// What a node gives, and what it has.
#[derive(Clone, Copy)]
struct Source<'a> {
    node: NodeId,
    pairs: &'a [HeldPair],
    shares: Shares,
}

impl Source<'_> {
    fn score(&self) -> f64 {
        self.shares.worst()
    }

    /// The least gain that is worth a move: a part of the tolerance, or half of what a pair of this node has
    /// on average. Of several hundred pairs none gains that part alone.
    fn least_gain(&self, tolerance: f64) -> f64 {
        let average = self.score() / self.pairs.len().max(1) as f64;
        (tolerance / GAIN_PARTS).min(average / 2.0)
    }
}

impl Search<'_> {
    /// The move that is to begin, or why none is.
    pub(crate) fn next(&self) -> Result<PlannedMove, RestReason> {
        let tolerance = self.rules.tolerance();
        let mut sources: Vec<Source<'_>> = self.sources();
        sources.sort_by(|a, b| b.score().total_cmp(&a.score()).then(a.node.cmp(&b.node)));
        let (Some(most), Some(least)) = (sources.first().copied(), sources.last().copied()) else {
            return Err(RestReason::OneNode);
        };
        let is_below = |score: f64| score < 1.0 - tolerance;
        if most.score() <= 1.0 + tolerance && !is_below(least.score()) {
            return Err(balanced(&most));
        }
        let takers = self.takers();
        let below = &takers[..takers.partition_point(|taker| is_below(taker.shares.worst()))];
        let mut refused: Option<GaveNothing> = None;
        for source in &sources {
            let is_above = source.score() > 1.0 + tolerance;
            if !is_above && (below.is_empty() || source.score() <= 1.0) {
                break;
            }
            match self.from(source, if is_above { &takers } else { below }) {
                Ok(found) => return Ok(planned(source, &found, is_above)),
                Err(why) => drop(refused.get_or_insert(why)),
            }
        }
        Err(match refused {
            Some(why) => self.nothing(&most, why, &takers),
            None if is_below(least.score()) => {
                RestReason::TakesNone { node: least.node, percent: percent(least.score()) }
            }
            None => balanced(&most),
        })
    }

    fn sources(&self) -> Vec<Source<'_>> {
        let members = self.figures.members.iter().zip(&self.survey.nodes);
        members
            .filter(|(member, _)| member.shares_load())
            .map(|(member, standing)| Source {
                node: member.node,
                pairs: &member.pairs,
                shares: standing.shares,
            })
            .collect()
    }

    /// Who may take a pair for balance, those with the lowest scores first.
    fn takers(&self) -> Vec<Taker> {
        let mut takers = takers(self.figures, self.survey, (self.history, self.rules), |member| {
            let rests = self.history.takes_in_ms(self.now_ms, member.node, self.rules).is_some();
            member.draining || rests || self.history.was_full(member)
        });
        takers.retain(|taker| taker.pairs_left > 0);
        takers.sort_by(|a, b| a.shares.worst().total_cmp(&b.shares.worst()).then(a.node.cmp(&b.node)));
        takers
    }

    /// The pair whose move helps a node most, and where it goes; or why it gives none.
    fn from(&self, source: &Source<'_>, takers: &[Taker]) -> Result<Found, GaveNothing> {
        let mut counts = GaveNothing::default();
        let node_rests_ms = self.history.gives_in_ms(self.now_ms, source.node, self.rules);
        if node_rests_ms.is_some() {
            return Err(GaveNothing { node_rests_ms, ..counts });
        }
        if takers.iter().all(|taker| taker.node == source.node) {
            return Err(GaveNothing { nobody_takes: true, ..counts });
        }
        let bounds = bounds(takers);
        let mut best: Option<Found> = None;
        for held in source.pairs {
            let load = match self.movable(held, source.node, Some(source.shares.measure())) {
                Ok(load) => load,
                Err(PairObstacle::Rests { .. }) => {
                    counts.resting += 1;
                    continue;
                }
                Err(PairObstacle::Young { .. }) => {
                    counts.young += 1;
                    continue;
                }
                Err(_) => {
                    counts.held += 1;
                    continue;
                }
            };
            match self.target(source, held, &load, takers, &bounds, best.as_ref()) {
                Target::Found(found) => best = Some(found),
                Target::NoRoom => counts.no_room += 1,
                Target::Lifts => counts.lift += 1,
                Target::NoGain => counts.no_gain += 1,
            }
        }
        best.ok_or(counts)
    }

    /// What a pair takes, if balance may move it as things are; or what is in the way. A young pair's bytes
    /// are known: it moves where `measure` says that they are what matters.
    pub(crate) fn movable(
        &self,
        held: &HeldPair,
        node: NodeId,
        measure: Option<Measure>,
    ) -> Result<PairLoad, PairObstacle> {
        if let Some(hold) = held.hold {
            return Err(PairObstacle::Held(hold));
        }
        let load = known_load(held, self.history, self.rules).ok_or(PairObstacle::Unreported { node })?;
        let left_ms = self.rules.pair_rest_ms.saturating_sub(held.held_ms);
        // Moved straight back, it would not be where an operator wants it.
        if let Arrival::Moved(cause @ (MoveCause::Balance | MoveCause::Operator)) = held.arrival
            && left_ms > 0
        {
            return Err(PairObstacle::Rests { cause, left_ms });
        }
        let left_ms = self.history.unmeasured_ms(held, self.rules);
        match left_ms.filter(|_| measure != Some(Measure::Bytes)) {
            Some(left_ms) => Err(PairObstacle::Young { left_ms }),
            None => Ok(load),
        }
    }

    /// Where a pair's move gains most, if that is more than the best so far.
    fn target(
        &self,
        source: &Source<'_>,
        held: &HeldPair,
        load: &PairLoad,
        takers: &[Taker],
        bounds: &Bounds,
        best: Option<&Found>,
    ) -> Target {
        let tolerance = self.rules.tolerance();
        let least = source.least_gain(tolerance);
        let takes = self.survey.shares(load.bytes, load.load_ns);
        let before = source.score();
        let left = source.shares.minus(takes).worst();
        // A pair that fills the gain can gain no more than this, wherever it goes.
        let most = before - left;
        if most <= 0.0 || most < least || best.is_some_and(|best| (most / least).floor() < best.rank) {
            return Target::NoGain;
        }
        if bounds.room_bytes < load.memory_bytes {
            return Target::NoRoom;
        }
        if bounds.lowest.plus(takes).worst() > 1.0 + tolerance {
            return Target::Lifts;
        }
        let offer = Offer { held, load, takes, before, left, least };
        match self.taker(source.node, &offer, takers) {
            Target::Found(found) if best.is_some_and(|best| !is_better(&found, best)) => Target::NoGain,
            target => target,
        }
    }

    /// The node at which a pair's move gains most.
    fn taker(&self, from: NodeId, offer: &Offer<'_>, takers: &[Taker]) -> Target {
        let Offer { held, load, takes, before, left, least } = *offer;
        let tolerance = self.rules.tolerance();
        let half = tolerance / 2.0;
        let (mut found, mut has_room, mut bears): (Option<Found>, bool, bool) = (None, false, false);
        for taker in takers {
            let gained = found.map_or(0.0, |found| before - found.after);
            if taker.shares.worst() >= before - gained {
                break; // those that follow have as much
            }
            let refused = self.history.failure(held.pair, taker.node).is_some();
            if taker.node == from || refused || !taker.has_room(load) {
                continue;
            }
            has_room = true;
            let there = taker.shares.plus(takes).worst();
            if there > 1.0 + tolerance {
                continue;
            }
            bears = true;
            let after = there.max(left);
            let gain = before - after;
            // A small pair gains little. It may move if the target stays well below where the source ends.
            let is_fine = there <= left && there <= 1.0 + half && gain >= least;
            if gain > gained && (gain >= half || is_fine) {
                let (to, to_score) = (taker.node, taker.shares.worst());
                let rank = (gain / least).floor();
                found = Some(Found { held: *held, load: *load, to, to_score, after, rank });
            }
            if after <= left {
                break; // all that can be gained
            }
        }
        match found {
            Some(found) => Target::Found(found),
            None if !has_room => Target::NoRoom,
            None if bears => Target::NoGain,
            None => Target::Lifts,
        }
    }

    /// Why nothing moves from the node that has most.
    fn nothing(&self, most: &Source<'_>, why: GaveNothing, takers: &[Taker]) -> RestReason {
        let measure = most.shares.measure();
        let tolerance = self.rules.tolerance();
        let shares = most.pairs.iter().filter_map(|held| {
            let load = known_load(held, self.history, self.rules)?;
            Some((held.pair, self.survey.shares(load.bytes, load.load_ns)))
        });
        let hottest = shares.max_by(|(_, a), (_, b)| a.of(measure).total_cmp(&b.of(measure)));
        let node = most.node;
        if let Some((pair, shares)) = hottest
            && !why.nobody_takes
            && shares.of(measure) >= 1.0
            && bounds(takers).lowest.plus(shares).worst() > 1.0 + tolerance
        {
            return RestReason::HotPair { pair, node, measure, percent: percent(shares.of(measure)) };
        }
        RestReason::NothingHelps { node, measure, percent: percent(most.score()), why }
    }
}

/// What none of the takers is better than: pairs that nobody can take are seen at once.
struct Bounds {
    /// The least of each measure that one has.
    lowest: Shares,
    /// The most memory that one has left.
    room_bytes: u64,
}

fn bounds(takers: &[Taker]) -> Bounds {
    let none = Bounds { lowest: Shares { bytes: f64::INFINITY, load: f64::INFINITY }, room_bytes: 0 };
    takers.iter().fold(none, |bounds, taker| Bounds {
        lowest: Shares {
            bytes: bounds.lowest.bytes.min(taker.shares.bytes),
            load: bounds.lowest.load.min(taker.shares.load),
        },
        room_bytes: bounds.room_bytes.max(taker.memory_left_bytes),
    })
}

fn is_better(found: &Found, best: &Found) -> bool {
    let order = found.rank.total_cmp(&best.rank);
    let order = order.then(best.load.bytes.cmp(&found.load.bytes));
    order.then(best.held.pair.cmp(&found.held.pair)).is_gt()
}

fn balanced(most: &Source<'_>) -> RestReason {
    let measure = most.shares.measure();
    RestReason::Balanced { node: most.node, measure, percent: percent(most.score()) }
}

fn planned(source: &Source<'_>, found: &Found, is_above: bool) -> PlannedMove {
    let why = if is_above {
        MoveReason::Above {
            measure: source.shares.measure(),
            percent: percent(source.score()),
            after_percent: percent(found.after),
        }
    } else {
        MoveReason::Below { percent: percent(found.to_score), from_percent: percent(source.score()) }
    };
    let Found { held, load, to, .. } = found;
    PlannedMove { pair: held.pair, from: source.node, to: *to, bytes: load.bytes, why }
}
