//! Where the pairs of nodes that drain go, and whether they have somewhere to go at all.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use cell_terms::text::counted;
use cell_terms::{NodeId, PairId};

use crate::figures::{Figures, HeldPair, MemberFigures, MemberState, PairHold, PairLoad};
use crate::history::History;
use crate::obstacle::{NoTarget, PairObstacle};
use crate::reason::{MoveReason, NextStep, PlannedMove, RestReason};
use crate::rules::BalanceRules;
use crate::survey::{Shares, Survey, known_load};
use crate::targets::{Taker, no_target, takers};
use crate::words::size;

/// Where all pairs of some nodes would go, as things are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainPlan {
    /// The moves, in their order.
    pub moves: Vec<PlannedMove>,
    /// Bytes that are copied.
    pub bytes: u64,
}

/// Why nodes cannot be emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainRefusal {
    /// No member is this node.
    Unknown {
        /// Which.
        node: NodeId,
    },
    /// No node would be left that takes pairs.
    NobodyLeft,
    /// The node serves nobody, so that its pairs cannot be copied.
    Owner {
        /// Which.
        node: NodeId,
        /// What it does.
        state: MemberState,
    },
    /// The node has not reported what a pair of it takes.
    Unreported {
        /// Which.
        node: NodeId,
    },
    /// A pair can never be moved.
    Held {
        /// Which.
        pair: PairId,
        /// Where it is.
        node: NodeId,
        /// Why.
        why: PairHold,
    },
    /// The others lack room.
    NoRoom {
        /// A pair that has no place.
        pair: PairId,
        /// Where it is.
        node: NodeId,
        /// Pairs that have none.
        pairs: u32,
        /// Memory that these take.
        bytes: u64,
        /// Why the pair has none, if that is so even before others have moved.
        why: Option<NoTarget>,
    },
}

impl DrainRefusal {
    /// What helps where neither time nor more room does.
    #[must_use]
    pub const fn next(&self) -> Option<&'static str> {
        match self {
            DrainRefusal::Held { why, .. } => why.next(),
            _ => None,
        }
    }
}

impl fmt::Display for DrainRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DrainRefusal::Unknown { node } => write!(f, "{node} is no member of the cluster"),
            DrainRefusal::NobodyLeft => f.write_str("no other node would be left to take the pairs"),
            DrainRefusal::Owner { node, state } => {
                write!(f, "{node} {state}, and its pairs can only be moved while it serves them")
            }
            DrainRefusal::Unreported { node } => {
                write!(f, "{node} has not reported yet what its pairs take: try again in a moment")
            }
            DrainRefusal::Held { pair, node, why } => write!(f, "{pair} cannot leave {node}: {why}"),
            DrainRefusal::NoRoom { pair, node, pairs, bytes, why } => {
                let (count, size) = (counted(u64::from(*pairs), "pair", "pairs"), size(*bytes));
                write!(f, "the other nodes lack room for {count} with {size}, {pair} of {node} among them")?;
                match why {
                    Some(why) => write!(f, ": {why}"),
                    None => f.write_str(": what would go before it fills them"),
                }
            }
        }
    }
}

/// What a plan leaves free at a pair's target besides what the pair takes: a part of that. Writes go on, and
/// what nodes have reported of themselves is a moment old.
const GROWS_PART: u64 = 8;

/// Where pairs of nodes that drain go, if there is a place for each.
pub(crate) type Places = BTreeMap<PairId, NodeId>;

/// The next step of a drain.
pub(crate) struct DrainLook {
    pub(crate) step: NextStep,
    /// The pairs that cannot move now, each with its node and what is in the way.
    pub(crate) blocked: Vec<(NodeId, PairId, PairObstacle)>,
    /// None: not all have a place.
    pub(crate) places: Option<Places>,
    /// What the pairs are to find at their places, to grow besides.
    reserved: Vec<(NodeId, u64)>,
}

impl DrainLook {
    /// What is known, without the room that the pairs are to find.
    pub(crate) fn left_to_others(&self, figures: &Figures) -> Figures {
        let mut others = figures.clone();
        let mut reserved: BTreeMap<NodeId, (u64, u32)> = BTreeMap::new();
        for (node, bytes) in &self.reserved {
            let (sum, pairs) = reserved.entry(*node).or_default();
            (*sum, *pairs) = (sum.saturating_add(*bytes), pairs.saturating_add(1));
        }
        for member in &mut others.members {
            let Some((bytes, pairs)) = reserved.get(&member.node) else { continue };
            member.memory_left_bytes = member.memory_left_bytes.saturating_sub(*bytes);
            member.pairs_max = member.pairs_max.saturating_sub(*pairs);
        }
        others
    }
}

/// A pair that is to leave.
struct Leaving<'a> {
    member: &'a MemberFigures,
    held: &'a HeldPair,
    load: PairLoad,
    shares: Shares,
    to: Option<NodeId>,
}

impl Leaving<'_> {
    /// What it may grow by until it has left and others have, too.
    fn grows_bytes(&self) -> u64 {
        self.load.memory_bytes / GROWS_PART
    }

    /// What is to be there for it.
    fn needs(&self, room: Room) -> PairLoad {
        let grows_bytes = match room {
            Room::ToGrow => self.grows_bytes(),
            Room::Bare => 0,
        };
        let memory_bytes = self.load.memory_bytes.saturating_add(grows_bytes);
        PairLoad { memory_bytes, ..self.load }
    }
}

/// How much a pair is to find at its target.
#[derive(Clone, Copy)]
enum Room {
    /// What it takes, and what it may grow by.
    ToGrow,
    /// What it takes.
    Bare,
}

/// How a pair's target is chosen among those that have room.
#[derive(Clone, Copy)]
enum Choice {
    /// Who has least afterwards.
    Even,
    /// Who has least room left: the room of others is kept whole for pairs that need more.
    Tight,
}

/// The nodes that are to be emptied, and what is known.
pub(crate) struct Emptying<'a> {
    pub(crate) figures: &'a Figures,
    pub(crate) history: &'a History,
    pub(crate) rules: &'a BalanceRules,
    /// Nodes that are to be emptied besides those that drain.
    pub(crate) also: &'a [NodeId],
}

impl Emptying<'_> {
    fn leaves(&self, member: &MemberFigures) -> bool {
        member.draining || self.also.contains(&member.node)
    }

    fn members(&self) -> impl Iterator<Item = &MemberFigures> {
        self.figures.members.iter().filter(|member| self.leaves(member))
    }

    /// All pairs that are to leave, the largest first, each with its place if all have one, or with as many
    /// as possible. Where they were to go at the last look, if that still can be; else as a plan has it; else
    /// with no room to grow.
    fn places(&self) -> Vec<Leaving<'_>> {
        self.placed_by(|pairs, takers| {
            let planned = || Some(self.dealt(pairs, takers, Room::ToGrow)).filter(|places| is_whole(places));
            let places = self.kept(pairs, takers).or_else(planned);
            places.unwrap_or_else(|| self.dealt(pairs, takers, Room::Bare))
        })
    }

    /// The same, as a plan has it.
    fn planned_places(&self) -> Vec<Leaving<'_>> {
        self.placed_by(|pairs, takers| self.dealt(pairs, takers, Room::ToGrow))
    }

    fn placed_by(
        &self,
        places: impl FnOnce(&[Leaving<'_>], &[Taker]) -> Vec<Option<NodeId>>,
    ) -> Vec<Leaving<'_>> {
        // Every byte counts here, and so does every bit of load.
        let rules = BalanceRules { bytes_floor: 0, load_floor_ns: 0, ..self.rules.clone() };
        let survey = Survey::new(self.figures, self.history, &rules);
        let mut pairs: Vec<Leaving<'_>> = Vec::new();
        for member in self.members() {
            pairs.extend(member.pairs.iter().filter_map(|held| {
                let load = known_load(held, self.history, self.rules)?;
                let shares = survey.shares(load.bytes, load.load_ns);
                Some(Leaving { member, held, load, shares, to: None })
            }));
        }
        pairs.sort_by_key(|pair| (Reverse(pair.load.memory_bytes), Reverse(pair.load.bytes), pair.held.pair));
        let takers = takers(self.figures, &survey, (self.history, self.rules), |member| self.leaves(member));
        let places = places(&pairs, &takers);
        for (pair, to) in pairs.iter_mut().zip(places) {
            pair.to = to;
        }
        pairs
    }

    /// Where all of them were to go at the last look, if there is still room for all.
    fn kept(&self, pairs: &[Leaving<'_>], takers: &[Taker]) -> Option<Vec<Option<NodeId>>> {
        let mut takers = takers.to_vec();
        let mut places = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let to = self.history.place(pair.held.pair)?;
            let taker = takers.iter_mut().find(|taker| taker.node == to)?;
            if !taker.has_room(&pair.load) || self.history.failure(pair.held.pair, to).is_some() {
                return None;
            }
            taker.take(&pair.load, pair.shares);
            places.push(Some(to));
        }
        Some(places)
    }

    /// Dealt out evenly; where that leaves one without a place, as tightly as they fit.
    fn dealt(&self, pairs: &[Leaving<'_>], takers: &[Taker], room: Room) -> Vec<Option<NodeId>> {
        let even = self.place(pairs, takers.to_vec(), Choice::Even, room);
        if is_whole(&even) {
            return even;
        }
        let tight = self.place(pairs, takers.to_vec(), Choice::Tight, room);
        let placed = |places: &[Option<NodeId>]| places.iter().flatten().count();
        if placed(&tight) > placed(&even) { tight } else { even }
    }

    fn place(
        &self,
        pairs: &[Leaving<'_>],
        mut takers: Vec<Taker>,
        choice: Choice,
        room: Room,
    ) -> Vec<Option<NodeId>> {
        let mut places = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let rank = |taker: &Taker| match choice {
                Choice::Even => taker.shares.plus(pair.shares).worst(),
                Choice::Tight => taker.memory_left_bytes as f64,
            };
            let needs = pair.needs(room);
            let refused = |node| self.history.failure(pair.held.pair, node).is_some();
            let fits = takers.iter_mut().filter(|taker| taker.has_room(&needs) && !refused(taker.node));
            let best = fits.min_by(|a, b| rank(a).total_cmp(&rank(b)).then(a.node.cmp(&b.node)));
            places.push(best.map(|taker| {
                taker.take(&needs, pair.shares);
                taker.node
            }));
        }
        places
    }

    /// What keeps a pair, of which it is known what it takes, from leaving now.
    fn obstacle(&self, pair: &Leaving<'_>) -> Option<PairObstacle> {
        let Leaving { member, held, .. } = pair;
        if let Some(hold) = held.hold {
            return Some(PairObstacle::Held(hold));
        }
        if pair.to.is_some() {
            return None;
        }
        let leaves = |member: &MemberFigures| self.leaves(member);
        let why = no_target(self.figures, self.history, self.rules, (pair.held, 0), member.node, leaves);
        // One has room for it, if nothing else goes there first: that is no obstacle yet.
        why.map(PairObstacle::NoTarget)
    }

    /// The next move of a drain that is under way, and every pair that cannot move now, with its reason.
    pub(crate) fn step(&self) -> DrainLook {
        let mut blocked = Vec::new();
        for member in self.members() {
            for held in &member.pairs {
                let (node, state) = (member.node, member.state);
                if !member.can_give() {
                    blocked.push((node, held.pair, PairObstacle::Owner { node, state }));
                } else if held.load.is_none() {
                    blocked.push((node, held.pair, PairObstacle::Unreported { node }));
                }
            }
        }
        let mut next: Option<PlannedMove> = None;
        let pairs = self.places();
        for pair in pairs.iter().filter(|pair| pair.member.can_give()) {
            let node = pair.member.node;
            if let Some(why) = self.obstacle(pair) {
                blocked.push((node, pair.held.pair, why));
                continue;
            }
            // One node after the other, so that the first can be stopped soon.
            if next.is_some_and(|next| next.from <= node) {
                continue;
            }
            // A pair that would have room alone moves too: the drain goes as far as it can.
            let to = pair.to.or_else(|| self.alone(pair));
            if let Some(to) = to {
                next = Some(planned(pair, to));
            }
        }
        let step = next.map_or_else(|| self.waits(), NextStep::Move);
        let places = pairs.iter().map(|pair| Some((pair.held.pair, pair.to?))).collect();
        let reserved = |pair: &Leaving<'_>| Some((pair.to?, pair.needs(Room::ToGrow).memory_bytes));
        let reserved = pairs.iter().filter_map(reserved).collect();
        DrainLook { step, blocked, places, reserved }
    }

    /// Where a pair could go if it were the only one.
    fn alone(&self, pair: &Leaving<'_>) -> Option<NodeId> {
        let survey = Survey::new(self.figures, self.history, self.rules);
        let takers = takers(self.figures, &survey, (self.history, self.rules), |member| self.leaves(member));
        self.place(std::slice::from_ref(pair), takers, Choice::Even, Room::Bare).pop().flatten()
    }

    fn waits(&self) -> NextStep {
        let member =
            self.members().filter(|member| !member.pairs.is_empty()).min_by_key(|member| member.node);
        let Some(member) = member else { return NextStep::Rest(RestReason::OneNode) };
        let pairs = u32::try_from(member.pairs.len()).unwrap_or(u32::MAX);
        NextStep::Rest(RestReason::DrainWaits { node: member.node, pairs })
    }

    /// Where all of them would go; or why not.
    pub(crate) fn plan(&self) -> Result<DrainPlan, DrainRefusal> {
        if let Some(node) = self.also.iter().find(|node| !self.is_member(**node)) {
            return Err(DrainRefusal::Unknown { node: *node });
        }
        let stays = |member: &&MemberFigures| member.state == MemberState::Serving && !self.leaves(member);
        if !self.figures.members.iter().any(|member| stays(&member)) {
            return Err(DrainRefusal::NobodyLeft);
        }
        for member in self.members().filter(|member| !member.pairs.is_empty()) {
            let (node, state) = (member.node, member.state);
            if !member.can_give() {
                return Err(DrainRefusal::Owner { node, state });
            }
            if member.pairs.iter().any(|held| held.load.is_none()) {
                return Err(DrainRefusal::Unreported { node });
            }
            let holds = member.pairs.iter().filter_map(|held| Some((held.pair, held.hold?)));
            if let Some((pair, why)) = holds.filter(|(_, hold)| !hold.passes()).min_by_key(|(pair, _)| *pair)
            {
                return Err(DrainRefusal::Held { pair, node, why });
            }
        }
        let places = self.planned_places();
        let lacking: Vec<&Leaving<'_>> = places.iter().filter(|pair| pair.to.is_none()).collect();
        if let Some(first) = lacking.first() {
            let leaves = |member: &MemberFigures| self.leaves(member);
            let (pair, node) = (first.held.pair, first.member.node);
            let wanted = (first.held, first.grows_bytes());
            let why = no_target(self.figures, self.history, self.rules, wanted, node, leaves);
            let pairs = u32::try_from(lacking.len()).unwrap_or(u32::MAX);
            let bytes = lacking.iter().fold(0_u64, |sum, pair| sum.saturating_add(pair.load.memory_bytes));
            return Err(DrainRefusal::NoRoom { pair, node, pairs, bytes, why });
        }
        let mut moves: Vec<PlannedMove> =
            places.iter().filter_map(|pair| Some(planned(pair, pair.to?))).collect();
        moves.sort_by_key(|planned| planned.from); // stable: the largest first of each node
        let mut before: Option<PlannedMove> = None;
        for planned in &mut moves {
            let earlier = before.filter(|before| before.from == planned.from);
            if let Some(PlannedMove { why: MoveReason::Drain { left }, .. }) = earlier {
                planned.why = MoveReason::Drain { left: left - 1 };
            }
            before = Some(*planned);
        }
        let bytes = moves.iter().fold(0_u64, |sum, planned| sum.saturating_add(planned.bytes));
        Ok(DrainPlan { moves, bytes })
    }

    fn is_member(&self, node: NodeId) -> bool {
        self.figures.members.iter().any(|member| member.node == node)
    }
}

fn is_whole(places: &[Option<NodeId>]) -> bool {
    places.iter().all(Option::is_some)
}

fn planned(pair: &Leaving<'_>, to: NodeId) -> PlannedMove {
    let left = u32::try_from(pair.member.pairs.len()).unwrap_or(u32::MAX);
    PlannedMove {
        pair: pair.held.pair,
        from: pair.member.node,
        to,
        bytes: pair.load.bytes,
        why: MoveReason::Drain { left },
    }
}
