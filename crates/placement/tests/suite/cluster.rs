//! Small clusters, written down.

use cell_placement::{
    Advice, Arrival, BalanceRules, Balancer, Figures, HeldPair, MemberFigures, MemberState, NextStep,
    PairLoad, PlannedMove, RestReason,
};
use cell_terms::{NodeId, PairId};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const HOUR_MS: u64 = 3_600_000;
/// When tests look, unless they say otherwise.
pub(crate) const NOW_MS: u64 = HOUR_MS;

/// A pair of so many MiB that takes so many milliseconds a second of its worker.
pub(crate) const fn pair(mib: u64, load_ms: u64) -> (u64, u64) {
    (mib, load_ms)
}

/// Nodes from 1 on with these pairs, all of them known and there for an hour. Pair `100 * node + place`.
pub(crate) fn cluster(nodes: &[Vec<(u64, u64)>]) -> Figures {
    let members = (1..).zip(nodes).map(|(node, pairs)| {
        let held = (0..).zip(pairs).map(|(place, (mib, load_ms))| held(node * 100 + place, *mib, *load_ms));
        member(node, held.collect())
    });
    Figures { members: members.collect(), ..Figures::default() }
}

pub(crate) fn member(node: u32, pairs: Vec<HeldPair>) -> MemberFigures {
    MemberFigures {
        node: NodeId(node),
        state: MemberState::Serving,
        draining: false,
        reported_ms_ago: Some(500),
        serving_ms: HOUR_MS,
        memory_left_bytes: 1 << 40,
        writes_wait: false,
        disk_full: false,
        keeps_memory: false,
        pairs_max: 256,
        pairs,
    }
}

pub(crate) fn held(pair: u32, mib: u64, load_ms: u64) -> HeldPair {
    let bytes = mib * MIB;
    HeldPair {
        pair: PairId(pair),
        load: Some(PairLoad { bytes, memory_bytes: bytes, load_ns: load_ms * 1_000_000 }),
        held_ms: HOUR_MS,
        arrival: Arrival::TakenOver,
        hold: None,
    }
}

/// A member by its node.
pub(crate) fn at(figures: &mut Figures, node: u32) -> &mut MemberFigures {
    figures.members.iter_mut().find(|member| member.node == NodeId(node)).unwrap()
}

/// A balancer that has watched for long.
pub(crate) fn balancer() -> Balancer {
    with_rules(BalanceRules::default())
}

pub(crate) fn with_rules(rules: BalanceRules) -> Balancer {
    let mut balancer = Balancer::new(rules).unwrap();
    balancer.look(0, &Figures::default());
    balancer
}

pub(crate) fn look(figures: &Figures) -> NextStep {
    balancer().look(NOW_MS, figures).step
}

pub(crate) fn planned(step: NextStep) -> PlannedMove {
    match step {
        NextStep::Move(planned) => planned,
        other => panic!("a move was expected: {other}"),
    }
}

pub(crate) fn rest(step: NextStep) -> RestReason {
    match step {
        NextStep::Rest(why) => why,
        other => panic!("a rest was expected: {other}"),
    }
}

/// A move is over: the pair is its target's, and nothing else has changed.
pub(crate) fn carry_out(figures: &mut Figures, planned: &PlannedMove, arrival: Arrival) {
    let from = figures.members.iter_mut().find(|member| member.node == planned.from).unwrap();
    let place = from.pairs.iter().position(|held| held.pair == planned.pair).unwrap();
    let mut held = from.pairs.remove(place);
    let memory_bytes = held.load.unwrap().memory_bytes;
    from.memory_left_bytes += memory_bytes;
    held.held_ms = 0;
    held.arrival = arrival;
    let to = figures.members.iter_mut().find(|member| member.node == planned.to).unwrap();
    to.memory_left_bytes = to.memory_left_bytes.checked_sub(memory_bytes).expect("it had room");
    to.pairs.push(held);
}

/// Time goes by for all that figures say of lengths.
pub(crate) fn pass(figures: &mut Figures, ms: u64) {
    for member in &mut figures.members {
        member.serving_ms += ms;
        for held in &mut member.pairs {
            held.held_ms += ms;
        }
    }
}

/// The first pair that keeps a drain from going on, in words.
pub(crate) fn stall(advice: &Advice) -> String {
    advice.stalls.first().map(ToString::to_string).unwrap_or_default()
}
