//! Drains that a supervisor begins: only where the others have room.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cell_cluster::{ClusterError, ClusterView, Coordinator, DrainPlanned, Drains, NodeRefusal, Watch};
use cell_drill::wire::{DRAINED_BY, Refused};
use cell_node::{CannotEmpty, RoomElsewhere, room_elsewhere};
use cell_terms::NodeId;
use cell_terms::text::with_causes;

use super::scale_wire::{UNREPORTED_NEXT, author, away, refuse};

/// For so long a drill's drain waits until all nodes have reported what they have: the one that was restarted
/// before reports it a second or two after it serves. A drill waits for longer.
const REPORTED_WITHIN: Duration = Duration::from_secs(5);
/// Between two looks whether they have.
const AGAIN: Duration = Duration::from_millis(50);

/// Why drains were not started.
#[derive(Debug)]
pub(crate) enum DrainNotStarted {
    /// They cannot be, as things are.
    Refused(Refused),
    /// The coordinator refused, or did not answer.
    Failed(ClusterError),
}

impl From<ClusterError> for DrainNotStarted {
    fn from(error: ClusterError) -> DrainNotStarted {
        DrainNotStarted::Failed(error)
    }
}

/// Wants nodes empty, all at once or none, unless `check` has something against it. Those whose pairs have no
/// room elsewhere would stand half emptied until somebody helps. That there is room is a condition of the
/// drains' rows: of two that were looked at with the same rows one begins.
pub(crate) fn begin_checked(
    coordinator: &Arc<dyn Coordinator>,
    nodes: &[NodeId],
    who: &str,
    check: impl Fn(&ClusterView) -> Result<(), Refused>,
) -> Result<(), DrainNotStarted> {
    let drains = Drains::new(coordinator.clone());
    let mut plans = 1;
    loop {
        let seen = drains.seen()?;
        let drains_already = |node: &NodeId| seen.rows.iter().any(|row| row.node == *node && !row.removed);
        if nodes.iter().all(drains_already) {
            return Ok(());
        }
        let mut watch = Watch::new(coordinator.clone());
        watch.follow_balance();
        watch.look()?;
        check(watch.view()).map_err(DrainNotStarted::Refused)?;
        let planned = DrainPlanned { seen: &seen, targets: &[] };
        match drains.begin_as_seen(nodes, &author(who), &planned) {
            Ok(_) => return Ok(()),
            Err(ClusterError::Node(NodeRefusal::Changed)) if plans < DrainPlanned::PLANS_MAX => plans += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Wants a node empty, for a drill, once it is known that the others have room.
pub(crate) fn begin(coordinator: &Arc<dyn Coordinator>, node: NodeId) -> Result<(), Refused> {
    begin_within(coordinator, node, REPORTED_WITHIN)
}

fn begin_within(coordinator: &Arc<dyn Coordinator>, node: NodeId, patience: Duration) -> Result<(), Refused> {
    let check = |view: &ClusterView| match room_elsewhere(view, &[node]) {
        RoomElsewhere::Enough => Ok(()),
        RoomElsewhere::Unknown(why) => Err(away(format!("{node} is not emptied: {why}"), UNREPORTED_NEXT)),
        RoomElsewhere::Lacks(CannotEmpty { why, next }) => {
            let room = "add a node, or give the others more memory (memory_limit_bytes)";
            Err(refuse(format!("{node} cannot be emptied: {why}"), next.unwrap_or(room)))
        }
    };
    let until = Instant::now() + patience;
    loop {
        match begin_checked(coordinator, &[node], DRAINED_BY, check) {
            Ok(()) => return Ok(()),
            Err(DrainNotStarted::Refused(refused)) if refused.is_away && Instant::now() < until => {
                thread::sleep(AGAIN);
            }
            Err(DrainNotStarted::Refused(refused)) => return Err(refused),
            Err(DrainNotStarted::Failed(error)) => return Err(in_words(&error)),
        }
    }
}

/// Wants it empty no more, if a drill wants that: what an operator wants empty stays so.
pub(crate) fn end(coordinator: &Arc<dyn Coordinator>, node: NodeId) -> Result<(), Refused> {
    let drains = Drains::new(coordinator.clone());
    let mut tries = 1;
    loop {
        let seen = drains.seen().map_err(|error| in_words(&error))?;
        if !seen.rows.iter().any(|row| row.node == node && row.who == DRAINED_BY && !row.removed) {
            return Ok(());
        }
        match drains.clone().as_seen(seen.revision).end(&[node]) {
            Ok(_) | Err(ClusterError::Node(NodeRefusal::NotDraining { .. })) => return Ok(()),
            Err(ClusterError::Node(NodeRefusal::Changed)) if tries < DrainPlanned::PLANS_MAX => tries += 1,
            Err(error) => return Err(in_words(&error)),
        }
    }
}

fn in_words(error: &ClusterError) -> Refused {
    let (what, next) = (with_causes(error), "`cell drill ls` shows the nodes");
    if matches!(error, ClusterError::Node(_)) { refuse(what, next) } else { away(what, next) }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use cell_cluster::{
        Balance, CoordinatorRequest, FiguresRow, MemberRow, Members, NewPair, PairGeometry, ReportedArrival,
        ReportedPair, ReportedState, Response, ServingAddress, Sim, SimLink, Table,
    };
    use cell_terms::{Durability, Epoch};

    use super::*;

    const GEOMETRY: PairGeometry =
        PairGeometry { node_region_bytes: 1, extent_region_bytes: 1, slot_bytes: 1, node_bytes: 1 };

    /// A node that reports what it has: so many bytes left, and a pair of so many if that is not 0.
    pub(crate) fn enter(link: &SimLink, node: u32, memory_left_bytes: u64, memory_bytes: u64) {
        enter_with(link, (node, Durability::Sync), memory_left_bytes, memory_bytes);
    }

    fn enter_with(
        link: &SimLink,
        (node, durability): (u32, Durability),
        memory_left_bytes: u64,
        memory_bytes: u64,
    ) {
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        let (incarnation, node) = (link.grant(10_000).unwrap().lease, NodeId(node));
        let (fabric, http) = (String::new(), String::new());
        let row = MemberRow { incarnation, node, fabric, http, pid: 0, memory_limit_bytes: 0 };
        Members::new(coordinator.clone()).enter(&row).unwrap();
        let table = Table::new(coordinator.clone());
        let place = ServingAddress { address: String::new(), worker: 0, node_key: 0, extent_key: 0 };
        let created = (memory_bytes > 0).then(|| {
            let new = NewPair { incarnation, node, geometry: GEOMETRY };
            let ownership = table.create_pair(&new).unwrap().ownership;
            table.publish(ownership, durability, &place).unwrap();
            ownership.pair
        });
        let reported = created.map(|pair| ReportedPair {
            pair,
            epoch: Epoch(1),
            bytes: memory_bytes,
            memory_bytes,
            load_ns: 0,
            held_ms: 1,
            arrival: ReportedArrival::TakenOver,
            hold: None,
        });
        let figures = FiguresRow {
            incarnation,
            node,
            state: ReportedState::Serving,
            serving_ms: 1,
            memory_left_bytes,
            writes_wait: false,
            disk_full: false,
            pairs_max: 100,
            meganodes: 1,
            more_rows: 0,
            pairs: reported.into_iter().collect(),
        };
        Balance::new(coordinator).report(&figures).unwrap();
    }

    /// A way to the coordinator on which another drains a node right before the first write.
    struct Outrun(SimLink, NodeId, AtomicBool);

    impl Coordinator for Outrun {
        fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
            let Outrun(link, node, is_outrun) = self;
            let is_write = matches!(request, CoordinatorRequest::Transact(_));
            if is_write && !is_outrun.swap(true, Ordering::SeqCst) {
                Drains::new(Arc::new(link.clone())).begin(&[*node], &author("another")).unwrap();
            }
            link.call(request)
        }
    }

    fn draining(link: &SimLink) -> Vec<u32> {
        let rows = Drains::new(Arc::new(link.clone())).list().unwrap();
        rows.iter().map(|row| row.node.0).collect()
    }

    #[test]
    fn drill_drains_no_node_for_whose_pairs_there_is_no_room() {
        let link = Sim::new(1).link();
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        enter(&link, 0, 50, 60);
        enter(&link, 1, 59, 40);
        let refused = begin(&coordinator, NodeId(0)).unwrap_err();
        assert!(refused.what.contains("node-0 cannot be emptied: the other nodes lack room"), "{refused:?}");
        assert!(draining(&link).is_empty());
        begin(&coordinator, NodeId(1)).unwrap();
        begin(&coordinator, NodeId(1)).unwrap();
        assert_eq!(draining(&link), [1]);
        end(&coordinator, NodeId(1)).unwrap();
        end(&coordinator, NodeId(1)).unwrap();
        assert!(draining(&link).is_empty());
    }

    /// A node that had reported nothing was not known to lack room: the drain was started.
    #[test]
    fn drill_drains_no_node_before_all_have_reported_what_they_have() {
        let link = Sim::new(1).link();
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        enter(&link, 0, 50, 60);
        let (incarnation, node) = (link.grant(10_000).unwrap().lease, NodeId(1));
        let (fabric, http) = (String::new(), String::new());
        let row = MemberRow { incarnation, node, fabric, http, pid: 0, memory_limit_bytes: 0 };
        Members::new(coordinator.clone()).enter(&row).unwrap();
        let refused = begin_within(&coordinator, NodeId(0), Duration::ZERO).unwrap_err();
        let words = "node-0 is not emptied: node-1 has not reported yet what it has";
        assert_eq!((refused.what.as_str(), refused.is_away), (words, true));
        assert!(refused.next.starts_with("try again in a few seconds") && draining(&link).is_empty());
        link.end_lease(incarnation).unwrap();
        enter(&link, 1, 100, 0);
        begin_within(&coordinator, NodeId(0), Duration::ZERO).unwrap();
        assert_eq!(draining(&link), [0]);
    }

    /// Two were started one after the other, and one of them stood half emptied.
    #[test]
    fn nodes_are_drained_all_at_once_or_none() {
        let link = Sim::new(1).link();
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        enter(&link, 0, 100, 10);
        enter(&link, 1, 0, 60);
        enter(&link, 2, 0, 60);
        let begin = |nodes: &[NodeId]| {
            let check = |view: &ClusterView| match room_elsewhere(view, nodes) {
                RoomElsewhere::Lacks(lacks) => Err(refuse(lacks.why, "let more nodes stay")),
                RoomElsewhere::Enough | RoomElsewhere::Unknown(_) => Ok(()),
            };
            begin_checked(&coordinator, nodes, "ann", check)
        };
        assert!(matches!(begin(&[NodeId(1), NodeId(2)]), Err(DrainNotStarted::Refused(_))));
        assert!(draining(&link).is_empty());
        begin(&[NodeId(2)]).unwrap();
        assert_eq!(draining(&link), [2]);
        assert!(matches!(begin(&[NodeId(7)]), Err(DrainNotStarted::Failed(ClusterError::Node(_)))));
    }

    /// An operator drained a node in the middle of a rolling restart, which gave it pairs again.
    #[test]
    fn end_leaves_what_an_operator_wants_empty() {
        let link = Sim::new(1).link();
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        enter(&link, 0, 50, 10);
        enter(&link, 1, 50, 10);
        Drains::new(coordinator.clone()).begin(&[NodeId(1)], &author("ann")).unwrap();
        begin(&coordinator, NodeId(1)).unwrap();
        end(&coordinator, NodeId(1)).unwrap();
        assert_eq!(draining(&link), [1]);
    }

    /// More nodes or memory do not help pairs that have no log.
    #[test]
    fn drill_that_drains_a_node_without_logs_is_refused_with_what_helps() {
        let link = Sim::new(1).link();
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        enter_with(&link, (0, Durability::None), 50, 60);
        enter(&link, 1, 1_000, 40);
        let refused = begin(&coordinator, NodeId(0)).unwrap_err();
        assert!(refused.what.contains("it has no log"), "{refused:?}");
        assert!(!refused.next.contains("add a node") && refused.next.contains("`durability`"), "{refused:?}");
        assert!(draining(&link).is_empty());
    }

    /// Node 1 has room for what node 0 has, or for what another node has, and not for both.
    #[test]
    fn room_is_looked_at_again_where_another_drain_began_meanwhile() {
        for (other, begins) in [(2, false), (3, true)] {
            let link = Sim::new(1).link();
            enter(&link, 0, 0, 60);
            enter(&link, 1, 100, 0);
            enter(&link, 2, 0, 60);
            enter(&link, 3, 0, 0);
            let outrun = Outrun(link.clone(), NodeId(other), AtomicBool::new(false));
            let coordinator: Arc<dyn Coordinator> = Arc::new(outrun);
            assert_eq!(begin(&coordinator, NodeId(0)).is_ok(), begins, "{other} drains");
            assert_eq!(draining(&link).contains(&0), begins);
            assert!(draining(&link).contains(&other));
        }
    }
}
