//! It settles: in clusters of two to a thousand nodes, after anything, within a bounded number of moves, of
//! which none undoes another.

use std::collections::HashSet;

use cell_placement::{NextStep, RestReason};
use cell_random::Random;
use cell_terms::{NodeId, PairId};

use crate::model::{Model, cause};

/// Longer than a pair rests: what was held up by that has moved by then.
const QUIET_MS: u64 = 700_000;

/// How many seeds: a few hundred, or what `CELL_SEEDS` says.
fn seeds(default: u64) -> std::ops::Range<u64> {
    let given = std::env::var("CELL_SEEDS").ok().and_then(|text| text.parse().ok());
    0..given.unwrap_or(default)
}

/// Nobody gave a pair of which it got it, while what pairs take stayed as it was.
fn demand_no_way_back(model: &Model, from: usize, seed: u64) {
    let mut seen = HashSet::new();
    for made in &model.made[from..] {
        let planned = made.planned;
        seen.insert((planned.pair, planned.from));
        assert!(!seen.contains(&(planned.pair, planned.to)), "seed {seed}: {planned} came from there");
    }
}

#[test]
fn clusters_of_any_shape_settle() {
    for seed in seeds(300) {
        let mut random = Random::new(seed ^ 0x7e11);
        let nodes = random.between(2, 12);
        let pairs: Vec<u32> = (0..nodes).map(|_| random.between(0, 24) as u32).collect();
        let count: u32 = pairs.iter().sum();
        let mut model = Model::new(seed, &pairs);
        let moves = model.settle(QUIET_MS, count as usize);
        demand_no_way_back(&model, 0, seed);
        let (bytes, load) = model.spread();
        // With fewer than ten pairs a node, one is too much here and too little there.
        if u64::from(count) >= 10 * nodes {
            assert!(bytes <= 125 && load <= 125, "seed {seed}: {moves} moves, {bytes} %, {load} %");
        }
    }
}

#[test]
fn clusters_settle_beside_hot_pairs() {
    for seed in seeds(150) {
        let mut random = Random::new(seed ^ 0x407);
        let nodes = random.between(3, 10);
        let pairs = vec![16_u32; nodes as usize];
        let mut model = Model::new(seed, &pairs);
        let hot: Vec<PairId> =
            (0..random.between(1, 2)).map(|_| PairId(random.between(1, 16 * nodes) as u32)).collect();
        // Each takes more than any node's share would be.
        hot.iter().for_each(|pair| model.set_load(*pair, 2_000_000_000));
        model.settle(QUIET_MS, 16 * nodes as usize);
        demand_no_way_back(&model, 0, seed);
        let moved: Vec<_> = model.made.iter().filter(|made| hot.contains(&made.planned.pair)).collect();
        assert!(moved.is_empty(), "seed {seed}: {moved:#?}");
        let NextStep::Rest(why) = model.balancer.explain(model.now_ms, &model.figures).step else {
            panic!("seed {seed}: it has settled")
        };
        assert!(matches!(why, RestReason::HotPair { pair, .. } if hot.contains(&pair)), "seed {seed}: {why}");
    }
}

/// Joins, deaths, returns, drains and changes of load, at random and while moves are under way.
#[test]
fn clusters_settle_after_joins_and_leaves_and_other_loads() {
    for seed in seeds(100) {
        let mut random = Random::new(seed ^ 0x901_4e5);
        let nodes = random.between(3, 8);
        let mut model = Model::new(seed, &vec![16; nodes as usize]);
        let (mut next, count) = (nodes as u32 + 1, 16 * nodes);
        model.failing_percent = random.pick(&[0, 0, 10, 40]);
        for _ in 0..random.between(3, 8) {
            let until_ms = model.now_ms + random.between(1, 240) * 1000;
            model.steps_until(until_ms);
            let there: Vec<u32> = model.figures.members.iter().map(|member| member.node.0).collect();
            let one = random.pick(&there);
            let serving = model.figures.members.iter().filter(|member| !member.draining).count();
            match random.below(6) {
                0 => {
                    model.join(next);
                    next += 1;
                }
                1 if serving > 3 => model.kill(one),
                2 if serving > 3 => model.drain(one, true),
                3 => model.drain(one, false),
                4 => model.replace_balancer(),
                _ => {
                    for _ in 0..8 {
                        let pair = PairId(random.between(1, count) as u32);
                        model.set_load(pair, random.between(1, 40) * 1_000_000);
                    }
                }
            }
        }
        let before = model.made.len();
        model.failing_percent = 0;
        // Pairs that were moved shortly before rest at first; they may move once they have.
        model.settle(QUIET_MS, 2 * count as usize);
        let drained = model.figures.members.iter().filter(|member| member.draining);
        assert!(drained.clone().all(|member| member.pairs.is_empty()), "seed {seed}: drains end");
        let nodes = model.figures.members.len() - drained.count();
        let (bytes, load) = model.spread();
        if count >= 12 * nodes as u64 {
            let moves = model.made.len() - before;
            assert!(bytes <= 125 && load <= 125, "seed {seed}: {moves} moves, {bytes} %, {load} %");
        }
    }
}

/// Some nodes can hold little. Room is respected (the model looks at each move), and all rest in the end.
#[test]
fn clusters_with_small_nodes_settle() {
    for seed in seeds(100) {
        let mut random = Random::new(seed ^ 0x5a11);
        let nodes = random.between(3, 8) as u32;
        let pairs: Vec<u32> = (0..nodes).map(|_| random.between(0, 24) as u32).collect();
        let mut model = Model::new(seed, &pairs);
        (1..=nodes).filter(|node| node % 2 == 0).for_each(|node| {
            model.set_memory_left(node, random.between(0, 300) << 20);
        });
        model.settle(QUIET_MS, pairs.iter().sum::<u32>() as usize);
        demand_no_way_back(&model, 0, seed);
    }
}

/// What pairs take goes up and down all the time, by a fifth, and that of a whole node by a tenth besides:
/// for eight hours next to nothing moves.
#[test]
fn noise_moves_next_to_nothing() {
    for seed in 0..3 {
        let mut model = Model::new(seed, &[16; 5]);
        model.settle(QUIET_MS, 80);
        let level: Vec<(PairId, u64)> = model.loads();
        let before = model.made.len();
        for _ in 0..8 * 12 {
            let until_ms = model.now_ms + 300_000;
            model.steps_until(until_ms);
            let factors: Vec<u64> = (0..5).map(|_| model.random.between(95, 105)).collect();
            for (at, (pair, load_ns)) in level.iter().enumerate() {
                let percent = model.random.between(90, 110) * factors[at % 5] / 100;
                model.set_load(*pair, load_ns * percent / 100);
            }
        }
        let moves = model.made.len() - before;
        assert!(moves <= 4, "seed {seed}: {moves} moves");
    }
}

/// A thousand nodes with sixteen thousand pairs: ten nodes come, five die, a hot pair appears.
#[test]
fn thousand_nodes_settle() {
    for seed in 0..1 {
        let mut pairs = vec![16_u32; 1000];
        (0..20).for_each(|node| pairs[node * 50] = 28);
        let mut model = Model::new(seed, &pairs);
        model.set_load(PairId(5000), 5_000_000_000);
        (1001..1011).for_each(|node| model.join(node));
        model.steps_until(100_000);
        (101..106).for_each(|node| model.kill(node));
        let moves = model.settle(QUIET_MS, 1500);
        demand_no_way_back(&model, 0, seed);
        let (bytes, _) = model.spread();
        assert!(bytes <= 125, "{moves} moves, {bytes} %");
        assert!(model.made.iter().all(|made| made.planned.pair != PairId(5000)));
        let (hot, others): (Vec<_>, Vec<_>) =
            model.sums().into_iter().partition(|(_, _, load_ns)| *load_ns >= 5_000_000_000);
        let mean = others.iter().map(|(_, _, load_ns)| load_ns).sum::<u64>() / others.len() as u64;
        let largest = others.iter().map(|(_, _, load_ns)| *load_ns).max().unwrap();
        assert!(hot.len() == 1 && largest * 100 <= mean * 127, "{moves} moves: {largest} of {mean}");
    }
}

/// An empty node that joins, or comes back after it was killed, has its share within three minutes.
#[test]
fn empty_node_has_its_share_within_three_minutes() {
    for seed in 0..20 {
        for (nodes, dies) in [(2, false), (3, true), (5, true), (10, false)] {
            let mut model = Model::new(seed, &vec![16; nodes]);
            model.settle(QUIET_MS, 16 * nodes);
            let node = if dies { 1 } else { nodes as u32 + 1 };
            if dies {
                model.kill(node);
                let back_ms = model.now_ms + 15_000;
                model.steps_until(back_ms);
            }
            model.join(node);
            let joined_ms = model.now_ms;
            model.steps_until(joined_ms + 180_000);
            let sums = model.sums();
            let (_, mib, load_ns) = sums.iter().find(|(at, ..)| *at == NodeId(node)).unwrap();
            let mib_all = sums.iter().map(|(_, mib, _)| mib).sum::<u64>();
            let load_all = sums.iter().map(|(_, _, load_ns)| load_ns).sum::<u64>();
            let count = sums.len() as u64;
            let share = (mib * 100 * count / mib_all).max(load_ns * 100 * count / load_all);
            assert!(share >= 80, "seed {seed}, {nodes} nodes: {share} % of the mean");
            let (bytes, load) = model.spread();
            assert!(bytes <= 125 && load <= 125, "seed {seed}, {nodes} nodes: {bytes} %, {load} %");
            let emptied = model.made.iter().filter(|made| made.at_ms > joined_ms);
            assert!(emptied.clone().all(|made| made.planned.from != NodeId(node)), "filled and emptied");
        }
    }
}

/// The work of a rolling restart by hand: each node is drained, away for ten seconds, and comes back empty.
#[test]
fn rolling_restart_by_hand_ends_balanced() {
    for seed in 0..20 {
        let mut model = Model::new(seed, &[12, 12, 12, 12]);
        model.settle(QUIET_MS, 48);
        for node in 1..=4 {
            model.drain(node, true);
            while model.figures.members.iter().any(|member| member.draining && !member.pairs.is_empty()) {
                model.step();
            }
            model.kill(node);
            let until_ms = model.now_ms + 10_000;
            model.steps_until(until_ms);
            model.join(node);
        }
        let restarted = model.made.len();
        model.settle(QUIET_MS, 48);
        let later = &model.made[restarted..];
        assert!(later.iter().all(|made| cause(&made.planned) == cell_placement::MoveCause::Balance));
        let (bytes, load) = model.spread();
        assert!(bytes <= 125 && load <= 125, "seed {seed}: {bytes} %, {load} %");
    }
}
