//! How the cluster is, in one sentence, and which losses it would survive now.

use cell_cluster::PairRow;
use serde::Serialize;

use crate::api::nodes::NodeRow;
use crate::peers::MissingPeer;
use crate::words::counted;

/// What an operator should do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// Nothing.
    Ok,
    /// Look at it.
    Warning,
    /// Act: keys cannot be reached.
    Critical,
}

/// How the cluster is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    pub(crate) level: Level,
    pub(crate) sentence: String,
}

/// How many nodes can be lost now, one after the other or at once, with all pairs served again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Survivable {
    pub(crate) nodes: usize,
    pub(crate) why: String,
}

/// A pair that is not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Unserved {
    pub(crate) pair: u32,
    pub(crate) what: String,
    pub(crate) next: String,
    /// It comes back by itself.
    #[serde(skip)]
    pub(crate) passes: bool,
}

/// Sets of nodes that are tried before the search for a larger loss is given up.
const SETS_MAX: usize = 5_000;

/// The sentence.
pub(crate) fn of(
    nodes: &[NodeRow],
    pairs: usize,
    unserved: &[Unserved],
    missing: &[MissingPeer],
    survivable: &Survivable,
    coordinator_reachable: bool,
) -> Verdict {
    let of = |level, sentence: String| Verdict { level, sentence };
    if let Some(worst) = unserved.iter().find(|pair| !pair.passes).or(unserved.first()) {
        let count = unserved.len();
        let verb = if count == 1 { "is" } else { "are" };
        let sentence = format!(
            "{count} of {} {verb} not served: pair {} is {}.",
            counted(pairs as u64, "pair"),
            worst.pair,
            worst.what
        );
        return of(Level::Critical, sentence);
    }
    if pairs == 0 {
        return of(Level::Warning, "This node has not seen its cluster yet.".into());
    }
    if let Some(peer) = missing.first() {
        let others = match missing.len() {
            1 => String::new(),
            count => format!(", nor {} more", count - 1),
        };
        return of(Level::Warning, format!("Node {} does not answer{others}: {}.", peer.node, peer.why));
    }
    if let Some(node) = nodes.iter().find(|node| node.state != "serving") {
        let detail = node.state_detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
        return of(
            Level::Warning,
            format!("Node {} is {}{detail}.", node.node, node.state.replace('_', "-")),
        );
    }
    if !coordinator_reachable {
        let sentence =
            "The coordinator does not answer: the nodes serve while their leases last, and no longer.";
        return of(Level::Warning, sentence.into());
    }
    let serving = match nodes.len() {
        1 => "The only node serves".to_owned(),
        count => format!("All {count} nodes serve"),
    };
    match survivable.nodes {
        0 if nodes.len() > 1 => {
            of(Level::Warning, format!("{serving}; none can be lost: {}", survivable.why))
        }
        0 => of(Level::Ok, format!("{serving}; while it is down, nobody does.")),
        count => of(Level::Ok, format!("{serving}; {count} can be lost.")),
    }
}

/// What can be lost, by the memory that the others have: a survivor takes a pair whole.
pub(crate) fn survivable(
    nodes: &[NodeRow],
    pairs: &[PairRow],
    unserved: &[Unserved],
    missing: &[MissingPeer],
) -> Survivable {
    let none = |why: &str| Survivable { nodes: 0, why: why.to_owned() };
    if !unserved.is_empty() {
        return none("Until all pairs are served again, another loss would stop more keys.");
    }
    if !missing.is_empty() {
        return none("It is not known what the nodes that do not answer have room for.");
    }
    if nodes.len() < 2 {
        return none("There is no other node that could take over.");
    }
    let loads = loads(nodes, pairs);
    let survived = (1..nodes.len()).take_while(|lost| sets(&loads, *lost).is_some_and(|all| all)).count();
    match survived {
        0 => none("With one node gone, the others lack the memory for its pairs."),
        1 => Survivable {
            nodes: 1,
            why: "With any one node gone, the others have memory for its pairs.".into(),
        },
        count => Survivable {
            nodes: count,
            why: format!("With any {count} nodes gone, the others have memory for their pairs."),
        },
    }
}

/// What a node has room for, and the bytes of its pairs, largest first.
struct Load {
    room: u64,
    pairs: Vec<u64>,
}

fn loads(nodes: &[NodeRow], pairs: &[PairRow]) -> Vec<Load> {
    let load = |node: &NodeRow| {
        let own = pairs
            .iter()
            .filter(|pair| pair.owner.is_some_and(|owner| owner.0.to_string() == node.incarnation));
        let mut pairs: Vec<u64> = own.map(|pair| pair.geometry.bytes()).collect();
        pairs.sort_unstable_by(|a, b| b.cmp(a));
        Load { room: node.memory.available_bytes + node.memory.ready_bytes, pairs }
    };
    nodes.iter().map(load).collect()
}

/// Whether every set of so many nodes can be lost; none if there are too many sets.
fn sets(loads: &[Load], lost: usize) -> Option<bool> {
    let mut set: Vec<usize> = (0..lost).collect();
    for _ in 0..SETS_MAX {
        if !fits(loads, &set) {
            return Some(false);
        }
        // The next set in the order of their numbers.
        let Some(at) = (0..lost).rev().find(|at| set[*at] < loads.len() - lost + *at) else {
            return Some(true);
        };
        set[at] += 1;
        for later in at + 1..lost {
            set[later] = set[later - 1] + 1;
        }
    }
    None
}

/// Whether the others have room: the largest pair first, to whoever has most.
fn fits(loads: &[Load], lost: &[usize]) -> bool {
    let survivors = loads.iter().enumerate().filter(|(at, _)| !lost.contains(at));
    let mut room: Vec<u64> = survivors.map(|(_, load)| load.room).collect();
    let mut pairs: Vec<u64> = lost.iter().flat_map(|at| loads[*at].pairs.iter().copied()).collect();
    pairs.sort_unstable_by(|a, b| b.cmp(a));
    pairs.into_iter().all(|bytes| match room.iter_mut().max() {
        Some(most) if *most >= bytes => {
            *most -= bytes;
            true
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::nodes;
    use crate::api::regions::tests::pair_row;
    use crate::api::status::tests::snapshot;
    use crate::rates::Rates;

    /// A node with its incarnation as its number, that serves and has so much room.
    fn node(number: u32, available_bytes: u64) -> NodeRow {
        let mut row = nodes::row(&snapshot(), &Rates::default(), None);
        (row.node, row.incarnation) = (number, number.to_string());
        row.memory.available_bytes = available_bytes;
        row.memory.ready_bytes = 0;
        row
    }

    /// A pair of 10,000 bytes of each of these.
    fn pairs(owners: &[u64]) -> Vec<PairRow> {
        (1..).zip(owners).map(|(pair, owner)| pair_row(pair, *owner)).collect()
    }

    fn verdict(nodes: &[NodeRow], unserved: &[Unserved], missing: &[MissingPeer]) -> Verdict {
        let pairs = pairs(&[1, 2, 3]);
        of(nodes, pairs.len(), unserved, missing, &survivable(nodes, &pairs, unserved, missing), true)
    }

    #[test]
    fn survivable_counts_what_the_others_have_room_for() {
        let survives = |rooms: [u64; 3], owners: &[u64]| {
            let nodes: Vec<NodeRow> = (1..).zip(rooms).map(|(number, room)| node(number, room)).collect();
            survivable(&nodes, &pairs(owners), &[], &[]).nodes
        };
        assert_eq!(survives([10_000; 3], &[1, 2, 3]), 1);
        assert_eq!(survives([9_999; 3], &[1, 2, 3]), 0);
        assert_eq!(survives([20_000; 3], &[1, 2, 3]), 2);
        // Two pairs of one node need room at two others, or twice the room at one.
        assert_eq!(survives([10_000; 3], &[1, 1, 2]), 1);
        assert_eq!(survives([10_000, 10_000, 0], &[1, 1, 2]), 0);
        assert_eq!(survivable(&[node(1, 1 << 40)], &pairs(&[1]), &[], &[]).nodes, 0);
    }

    #[test]
    fn of_says_the_worst_first() {
        let nodes = [node(1, 10_000), node(2, 10_000), node(3, 10_000)];
        let ok = verdict(&nodes, &[], &[]);
        assert_eq!((ok.level, &*ok.sentence), (Level::Ok, "All 3 nodes serve; 1 can be lost."));
        let missing =
            [MissingPeer { node: 4, address: String::new(), why: "no answer within 200 ms".into() }];
        let partial = verdict(&nodes, &[], &missing);
        assert_eq!(partial.sentence, "Node 4 does not answer: no answer within 200 ms.");
        let pair = Unserved { pair: 2, what: "recovering".into(), next: String::new(), passes: true };
        let worse = verdict(&nodes, &[pair], &missing);
        assert_eq!(worse.level, Level::Critical);
        assert_eq!(worse.sentence, "1 of 3 pairs is not served: pair 2 is recovering.");
        let tight = verdict(&[node(1, 0), node(2, 0), node(3, 0)], &[], &[]);
        assert!(tight.level == Level::Warning && tight.sentence.contains("none can be lost"), "{tight:?}");
    }
}
