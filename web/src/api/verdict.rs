//! How the cluster is, in one sentence, and which losses it would survive now.

use std::collections::{BTreeMap, BTreeSet};

use cell_cluster::{IncidentRow, PairRow};
use cell_node::{NodeState, SILENT_WORDS};
use cell_terms::{Durability, Incarnation};
use serde::Serialize;

use crate::api::nodes::{ABSENT, NodeRow};
use crate::clock::time_of_day;
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

/// What a count of nodes leaves out.
const COORDINATOR: &str = "The one coordinator is not among them: while it is down, nobody takes over, and \
    nodes whose leases have run out answer nobody.";

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
    if let Some(sentence) = silent_sentence(nodes).or_else(|| nobody_serves(nodes, pairs, missing)) {
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
    if let Some(sentence) = trouble_of_a_node(nodes) {
        return of(Level::Warning, sentence);
    }
    if !coordinator_reachable {
        let sentence =
            "The coordinator does not answer: nodes serve while their leases last, and are silent then.";
        return of(Level::Warning, sentence.into());
    }
    if let Some(sentence) = warning_of_a_node(nodes) {
        return of(Level::Warning, sentence);
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

/// `Node 0 is silent: its lease has run out, and it waits for the coordinator. So are 2 more.`
fn silent_sentence(nodes: &[NodeRow]) -> Option<String> {
    let mut silent = nodes.iter().filter(|node| node.state == NodeState::Silent.word());
    let first = silent.next()?.node;
    let more = match silent.count() {
        0 => String::new(),
        1 => " So is one more.".to_owned(),
        count => format!(" So are {count} more."),
    };
    Some(format!("Node {first} is {SILENT_WORDS}.{more}"))
}

/// `No node serves: node 0 is failed (the lease was lost).` A node that recovers and has not seen its cluster
/// knows nothing of others.
fn nobody_serves(nodes: &[NodeRow], pairs: usize, missing: &[MissingPeer]) -> Option<String> {
    let serves = |node: &NodeRow| ["serving", "read_only"].contains(&&*node.state) && !node.is_stale();
    let comes = |node: &NodeRow| pairs == 0 && ["serving", "recovering"].contains(&&*node.state);
    if nodes.iter().any(|node| serves(node) || comes(node)) {
        return None;
    }
    let first = nodes.iter().find(|node| node.state != ABSENT).or(nodes.first())?;
    let detail = first.state_detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
    let state = if first.is_stale() { "hangs".to_owned() } else { format!("is {}{detail}", first.state) };
    let known = match missing.len() {
        0 => "No node serves".to_owned(),
        count => format!("No node is known to serve, {} not answer", counted_do(count)),
    };
    Some(format!("{known}: node {} {state}.", first.node))
}

/// `one does`, `3 do`.
fn counted_do(count: usize) -> String {
    if count == 1 { "one does".to_owned() } else { format!("{count} do") }
}

/// What is wrong with a node: it is absent, hangs, or does not serve.
fn trouble_of_a_node(nodes: &[NodeRow]) -> Option<String> {
    if let Some(node) = nodes.iter().find(|node| node.state == ABSENT) {
        return Some(absent_sentence(nodes, node));
    }
    if let Some(NodeRow { node, age_ms, .. }) = nodes.iter().find(|node| node.is_stale()) {
        let seconds = age_ms / 1_000;
        return Some(format!("Node {node} answers, but its figures stand still for {seconds} s: it hangs."));
    }
    let node = nodes.iter().find(|node| node.state != "serving")?;
    let detail = node.state_detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
    Some(format!("Node {} is {}{detail}.", node.node, node.state.replace('_', "-")))
}

/// What is wrong with a node that serves.
fn warning_of_a_node(nodes: &[NodeRow]) -> Option<String> {
    let (node, detail) = nodes.iter().find_map(|node| Some((node.node, node.state_detail.as_ref()?)))?;
    Some(format!("Node {node} serves, but: {detail}."))
}

/// `Node 2 is absent since 12:03:04 UTC: its lease has ended. 2 nodes are left.` Of a node that nobody who
/// lives has seen it is not known since when.
fn absent_sentence(nodes: &[NodeRow], first: &NodeRow) -> String {
    let absent = nodes.iter().filter(|node| node.state == ABSENT).count();
    let more = match absent {
        1 => String::new(),
        _ => format!(", and {} more", absent - 1),
    };
    let since = |unix_ms| format!(" since {}", time_of_day(unix_ms));
    let since = first.absent_since_unix_ms.map(since).unwrap_or_default();
    let there = match nodes.len() - absent {
        1 => "one node is".to_owned(),
        count => format!("{count} nodes are"),
    };
    format!("Node {} is absent{since}{more}: its lease has ended. {there} left.", first.node)
}

/// Who would not take a pair over: the last that it was given it declined, for want of memory or because the
/// disk does not answer it, and it has taken none since.
pub(crate) fn declining(incidents: &[IncidentRow]) -> BTreeSet<Incarnation> {
    let mut declining = BTreeSet::new();
    let mut incidents: Vec<_> = incidents.iter().collect();
    incidents.sort_by_key(|incident| incident.claimed_ms);
    for share in incidents.into_iter().flat_map(|incident| &incident.plan) {
        declining.extend(&share.declined);
        if let Some(survivor) = share.survivor.filter(|_| share.times.serving_ms > 0) {
            declining.remove(&survivor);
        }
    }
    declining
}

/// What can be lost, by the memory that the others have: a survivor takes a pair whole. Only a node that
/// serves and is not among `declining` can be a survivor, and a takeover needs the coordinator and logs.
pub(crate) fn survivable(
    nodes: &[NodeRow],
    pairs: &[PairRow],
    unserved: &[Unserved],
    missing: &[MissingPeer],
    declining: &BTreeSet<Incarnation>,
    coordinator_reachable: bool,
) -> Survivable {
    let none = |why: &str| Survivable { nodes: 0, why: why.to_owned() };
    if !coordinator_reachable {
        return none("The coordinator does not answer, and without it no node can take over from another.");
    }
    if !unserved.is_empty() {
        return none("Until all pairs are served again, another loss would stop more keys.");
    }
    if !missing.is_empty() {
        return none("It is not known what the nodes that do not answer have room for.");
    }
    let has_no_log =
        |row: &PairRow| row.history.last().is_some_and(|epoch| epoch.durability == Durability::None);
    if pairs.iter().any(has_no_log) {
        return none("With `durability = none` there are no logs: a pair's entries are lost with its node.");
    }
    let present: Vec<&NodeRow> = nodes.iter().filter(|node| node.state != ABSENT).collect();
    let takes = |node: &NodeRow| {
        let declines = declining.iter().any(|declining| declining.0.to_string() == node.incarnation);
        node.is_serving() && !declines
    };
    let serving = present.iter().filter(|node| node.is_serving()).count();
    let takers = present.iter().filter(|node| takes(node)).count();
    if serving >= 2 && takers < 2 {
        return none(
            "Each other node has declined the last pair that it was given, for memory or for its disk.",
        );
    }
    if serving < 2 {
        return none("There is no other node that serves and could take over.");
    }
    let loads = loads(&present, pairs, &takes);
    let survived = (1..serving).take_while(|lost| sets(&loads, *lost).is_some_and(|all| all)).count();
    match survived {
        0 => none("With one node gone, the others lack the memory for its pairs."),
        1 => Survivable {
            nodes: 1,
            why: format!("With any one node gone, the others have memory for its pairs. {COORDINATOR}"),
        },
        count => Survivable {
            nodes: count,
            why: format!(
                "With any {count} nodes gone, the others have memory for their pairs. {COORDINATOR}"
            ),
        },
    }
}

/// What a node has room for, and the bytes of its pairs, largest first.
struct Load {
    room: u64,
    pairs: Vec<u64>,
}

fn loads(nodes: &[&NodeRow], pairs: &[PairRow], takes: &dyn Fn(&NodeRow) -> bool) -> Vec<Load> {
    let load = |node: &&NodeRow| {
        let own = pairs
            .iter()
            .filter(|pair| pair.owner.is_some_and(|owner| owner.0.to_string() == node.incarnation));
        let granted: BTreeMap<u32, u64> =
            node.pairs.iter().copied().zip(node.pairs_granted_bytes.iter().copied()).collect();
        // Of one that its node has not reported, all that its regions can grow to.
        let bytes = |pair: &PairRow| {
            let granted_bytes = granted.get(&pair.pair.0).copied();
            granted_bytes.unwrap_or_else(|| pair.geometry.bytes())
        };
        let mut pairs: Vec<u64> = own.map(bytes).collect();
        pairs.sort_unstable_by(|a, b| b.cmp(a));
        let room = node.memory.available_bytes.saturating_add(node.memory.ready_bytes);
        Load { room: if takes(node) { room } else { 0 }, pairs }
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
    use cell_cluster::{EpochRow, ShareRow, ShareTimes};
    use cell_terms::{Epoch, NodeId, PairId};

    use super::*;
    use crate::api::nodes;
    use crate::api::regions::tests::pair_row;
    use crate::rates::Rates;
    use crate::test_snapshot::snapshot;
    const NOBODY: BTreeSet<Incarnation> = BTreeSet::new();

    /// A node with its incarnation as its number, that serves and has so much room.
    fn node(number: u32, available_bytes: u64) -> NodeRow {
        let mut row = nodes::row(&snapshot(), &Rates::default(), None);
        (row.node, row.incarnation) = (number, number.to_string());
        row.memory.available_bytes = available_bytes;
        row.memory.ready_bytes = 0;
        (row.pairs, row.pairs_granted_bytes) = (Vec::new(), Vec::new());
        row
    }

    /// A pair of 10,000 bytes of each of these.
    fn pairs(owners: &[u64]) -> Vec<PairRow> {
        (1..).zip(owners).map(|(pair, owner)| pair_row(pair, *owner)).collect()
    }

    fn verdict(nodes: &[NodeRow], unserved: &[Unserved], missing: &[MissingPeer]) -> Verdict {
        let pairs = pairs(&[1, 2, 3]);
        of(
            nodes,
            pairs.len(),
            unserved,
            missing,
            &survivable(nodes, &pairs, unserved, missing, &NOBODY, true),
            true,
        )
    }

    #[test]
    fn survivable_counts_what_the_others_have_room_for() {
        let survives = |rooms: [u64; 3], owners: &[u64]| {
            let nodes: Vec<NodeRow> = (1..).zip(rooms).map(|(number, room)| node(number, room)).collect();
            survivable(&nodes, &pairs(owners), &[], &[], &NOBODY, true).nodes
        };
        assert_eq!(survives([10_000; 3], &[1, 2, 3]), 1);
        assert_eq!(survives([9_999; 3], &[1, 2, 3]), 0);
        assert_eq!(survives([20_000; 3], &[1, 2, 3]), 2);
        // Two pairs of one node need room at two others, or twice the room at one.
        assert_eq!(survives([10_000; 3], &[1, 1, 2]), 1);
        assert_eq!(survives([10_000, 10_000, 0], &[1, 1, 2]), 0);
        assert_eq!(survivable(&[node(1, 1 << 40)], &pairs(&[1]), &[], &[], &NOBODY, true).nodes, 0);
    }

    /// Many small pairs, whose regions could grow beyond every limit, were taken for as large as that.
    #[test]
    fn survivable_goes_by_what_was_granted_to_pairs() {
        let mut nodes = [node(1, 20), node(2, 20), node(3, 20)];
        (nodes[0].pairs, nodes[0].pairs_granted_bytes) = (vec![1, 2, 3, 4], vec![10; 4]);
        let pairs = pairs(&[1, 1, 1, 1]);
        let survives = |nodes: &[NodeRow]| survivable(nodes, &pairs, &[], &[], &NOBODY, true).nodes;
        assert_eq!(survives(&nodes), 1);
        nodes[0].pairs_granted_bytes[3] = 11;
        assert_eq!(survives(&nodes), 0, "three of them fill what one other has");
        nodes[0].pairs_granted_bytes = vec![10; 3];
        assert_eq!(survives(&nodes), 0, "it has not reported the fourth");
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

    fn three() -> [NodeRow; 3] {
        [node(1, 1 << 40), node(2, 1 << 40), node(3, 1 << 40)]
    }

    /// The only node had failed, and the verdict was a warning: "Node 0 is failed."
    #[test]
    fn of_a_cluster_without_a_node_that_serves_is_critical() {
        let mut nodes = three();
        for (node, state) in nodes.iter_mut().zip(["failed", ABSENT, "recovering"]) {
            node.state = state.to_owned();
        }
        nodes[0].state_detail = Some("failed: the lease was lost".to_owned());
        let none = verdict(&nodes, &[], &[]);
        assert_eq!(none.level, Level::Critical);
        assert_eq!(none.sentence, "No node serves: node 1 is failed (failed: the lease was lost).");
        let missing = [MissingPeer { node: 2, address: String::new(), why: "it is away".into() }];
        let partial = verdict(&nodes[2..], &[], &missing);
        assert_eq!(partial.sentence, "No node is known to serve, one does not answer: node 3 is recovering.");
        nodes[2].state = "read_only".to_owned();
        assert_eq!(verdict(&nodes[2..], &[], &[]).level, Level::Warning);
        let mut hung = [node(1, 1 << 40)];
        hung[0].age_ms = 61_000;
        assert_eq!(verdict(&hung, &[], &[]).level, Level::Critical);
    }

    /// What a node that waits for its first lease knows.
    #[test]
    fn of_a_node_that_has_not_seen_its_cluster_is_critical_unless_it_comes() {
        let mut nodes = [node(1, 1 << 40)];
        let mut level = |state: &str| {
            nodes[0].state = state.to_owned();
            of(&nodes, 0, &[], &[], &survivable(&nodes, &[], &[], &[], &BTreeSet::new(), true), true).level
        };
        assert_eq!(
            ["recovering", "starting", "failed"].map(&mut level),
            [Level::Warning, Level::Critical, Level::Critical]
        );
    }

    /// A node whose worker hung for a minute was once one that serves.
    #[test]
    fn of_a_node_whose_figures_stand_still_is_a_warning() {
        let mut nodes = three();
        nodes[1].age_ms = 5_000;
        assert_eq!(verdict(&nodes, &[], &[]).level, Level::Ok);
        nodes[1].age_ms = 61_000;
        let hung = verdict(&nodes, &[], &[]);
        assert_eq!(hung.level, Level::Warning);
        assert!(
            hung.sentence.starts_with("Node 2 answers, but its figures stand still for 61 s"),
            "{hung:?}"
        );
    }

    #[test]
    fn of_a_node_that_serves_and_has_a_warning_is_one() {
        let mut nodes = three();
        nodes[1].state_detail = Some("a checkpoint failed".to_owned());
        let warned = verdict(&nodes, &[], &[]);
        let words = "Node 2 serves, but: a checkpoint failed.";
        assert_eq!((warned.level, &*warned.sentence), (Level::Warning, words));
        // Each node warns of a coordinator that is away: what is said of all of them comes before.
        let survivable = survivable(&nodes, &pairs(&[1, 2, 3]), &[], &[], &NOBODY, false);
        let away = of(&nodes, 3, &[], &[], &survivable, false);
        assert!(away.sentence.starts_with("The coordinator does not answer"), "{away:?}");
    }

    #[test]
    fn of_nodes_that_answer_nobody_is_critical() {
        let mut nodes = three();
        let words = "Node 2 is silent: its lease has run out, and it waits for the coordinator.";
        nodes[1].state = "silent".to_owned();
        assert_eq!(verdict(&nodes, &[], &[]).level, Level::Critical);
        assert_eq!(verdict(&nodes, &[], &[]).sentence, words);
        nodes[2].state = "silent".to_owned();
        assert_eq!(verdict(&nodes, &[], &[]).sentence, format!("{words} So is one more."));
    }

    /// After a node was killed, the verdict was once `All 2 nodes serve`.
    #[test]
    fn of_a_node_that_is_absent_is_a_warning_with_the_time_if_that_is_known() {
        let mut nodes = three();
        (nodes[2].state, nodes[2].absent_since_unix_ms) = (ABSENT.to_owned(), Some(43_384_000));
        let absent = verdict(&nodes, &[], &[]);
        assert_eq!(absent.level, Level::Warning);
        let words = "Node 3 is absent since 12:03:04 UTC: its lease has ended. 2 nodes are left.";
        assert_eq!(absent.sentence, words);
        // It was said since when another node had looked for the first time, or since midnight.
        nodes[2].absent_since_unix_ms = None;
        let words = "Node 3 is absent: its lease has ended. 2 nodes are left.";
        assert_eq!(verdict(&nodes, &[], &[]).sentence, words);
    }

    /// A node that could read nothing of the disk was once counted among those that could take over.
    #[test]
    fn survivable_counts_no_node_that_has_declined_until_it_takes_a_pair() {
        let times = |serving_ms| ShareTimes { serving_ms, ..ShareTimes::default() };
        let incident = |claimed_ms, declined: &[u64], survivor, serving_ms| IncidentRow {
            dead: Incarnation(claimed_ms),
            node: NodeId(0),
            claimed_by: Incarnation(1),
            lease_seen_ms: 0,
            detected_ms: 0,
            claimed_ms,
            over_ms: 0,
            plan: vec![ShareRow {
                pair: PairId(1),
                survivor: Some(Incarnation(survivor)),
                declined: declined.iter().copied().map(Incarnation).collect(),
                times: times(serving_ms),
                ..ShareRow::default()
            }],
        };
        let first = incident(10, &[2, 3], 1, 5);
        let pairs = pairs(&[1, 2, 3]);
        let lost = |incidents: &[IncidentRow]| {
            survivable(&three(), &pairs, &[], &[], &declining(incidents), true).nodes
        };
        assert_eq!((lost(&[]), lost(std::slice::from_ref(&first))), (2, 0));
        assert_eq!(lost(&[incident(20, &[], 3, 7), first.clone()]), 1, "it has taken one since");
        assert_eq!(lost(&[incident(5, &[], 3, 7), first]), 0, "before");
    }

    /// Without logs all nodes but one could be lost, it said, and their entries were lost with them.
    #[test]
    fn survivable_is_no_node_where_pairs_have_no_log() {
        let mut pairs = pairs(&[1, 2, 3]);
        let of = |pairs: &[PairRow]| survivable(&three(), pairs, &[], &[], &NOBODY, true);
        assert_eq!(of(&pairs).nodes, 2);
        pairs[1].history = vec![EpochRow { epoch: Epoch(1), durability: Durability::None, cut: None }];
        let none = of(&pairs);
        assert!(none.nodes == 0 && none.why.contains("there are no logs"), "{none:?}");
        let warned = super::of(&three(), 3, &[], &[], &none, true);
        assert_eq!(warned.level, Level::Warning, "{warned:?}");
    }

    #[test]
    fn survivable_counts_serving_nodes_alone_and_wants_the_coordinator() {
        let pairs = pairs(&[1, 2, 3]);
        let of = |nodes: &[NodeRow], coordinator| survivable(nodes, &pairs, &[], &[], &NOBODY, coordinator);
        let mut nodes = three();
        let two = of(&nodes, true);
        assert!(two.nodes == 2 && two.why.contains("The one coordinator is not among them"), "{two:?}");
        assert_eq!(of(&nodes, false).nodes, 0);
        nodes[0].state = "read_only".to_owned();
        assert_eq!(of(&nodes, true).nodes, 1);
        nodes[1].state = "stopping".to_owned();
        assert_eq!(of(&nodes, true).nodes, 0);
        (nodes[0].state, nodes[1].state) = ("serving".to_owned(), ABSENT.to_owned());
        assert_eq!(of(&nodes, true).nodes, 1);
        nodes[2].age_ms = 60_000;
        assert_eq!(of(&nodes, true).nodes, 0);
    }
}
