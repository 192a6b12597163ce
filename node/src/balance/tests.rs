//! The driver over the simulated coordinator: who balances, what is started, what is cancelled.

use cell_cluster::{
    ClaimReason, DrainAuthor, FiguresRow, KEY_DRILL, MemberRow, Members, Missing, MoveOutcome, MoveStage,
    NewPair, Ownership, PairGeometry, PauseCause, ReportedPair, ReportedState, ServingAddress, Sim, SimLink,
    Table, Transaction, Watch,
};
use cell_placement::BalanceRules;
use cell_terms::{Durability, Epoch, Incarnation};

use super::*;
use crate::command::ControlEvent;
use crate::figures::PairUse;
use crate::split::SpreadView;

const SECOND: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;
const WINDOW_MS: u64 = 8_000;
/// What the wall clock shows when the looks' time is zero.
const WALL_ZERO_MS: u64 = 1_700_000_000_000;
const GEOMETRY: PairGeometry =
    PairGeometry { node_region_bytes: 1, extent_region_bytes: 1, slot_bytes: 1, node_bytes: 1 };

/// A member, and what of it lives in the coordinator.
struct Peer {
    node: NodeId,
    lease: Incarnation,
    pairs: Vec<PairId>,
}

/// Two nodes: the first one with pairs of 100 MiB, the second one without. The driver is one node's.
struct World {
    sim: Sim,
    link: SimLink,
    peers: [Peer; 2],
    driver: BalanceDriver,
    /// Whose driver it is.
    own: usize,
    watch: Watch,
    now_ns: u64,
    /// The driver's node has little memory left, and writes wait there.
    is_full: bool,
    /// What its disk has left, if it says so.
    disk_free_bytes: Option<u64>,
}

fn options(on: bool) -> BalanceOptions {
    let rules = BalanceRules {
        window_ms: WINDOW_MS,
        node_rest_ms: WINDOW_MS,
        retry_ms: 20_000,
        ..BalanceRules::default()
    };
    BalanceOptions::new(on, rules)
}

fn peer(sim: &Sim, node: u32, pairs: usize) -> Peer {
    let coordinator: Arc<dyn Coordinator> = Arc::new(sim.link());
    let lease = coordinator.grant(10_000).unwrap().lease;
    let (incarnation, node, fabric, http) = (lease, NodeId(node), String::new(), String::new());
    let row = MemberRow { incarnation, node, fabric, http, pid: 0, memory_limit_bytes: 0 };
    Members::new(coordinator.clone()).enter(&row).unwrap();
    let table = Table::new(coordinator);
    let pairs = (0..pairs).map(|_| served_pair(&table, lease, node).pair);
    Peer { node, lease, pairs: pairs.collect() }
}

fn served_pair(table: &Table, lease: Incarnation, node: NodeId) -> Ownership {
    let new = NewPair { incarnation: lease, node, geometry: GEOMETRY };
    let ownership = table.create_pair(&new).unwrap().ownership;
    let place = ServingAddress { address: String::new(), worker: 0, node_key: 0, extent_key: 0 };
    table.publish(ownership, Durability::Sync, &place).unwrap();
    ownership
}

fn world(own: usize, pairs: usize, options: BalanceOptions) -> World {
    let sim = Sim::new(1);
    let peers = [peer(&sim, 1, pairs), peer(&sim, 2, 0)];
    let coordinator: Arc<dyn Coordinator> = Arc::new(sim.link());
    let member =
        MembershipOptions { incarnation: peers[own].lease, node: peers[own].node, joined_ns: 0, grace_ns: 0 };
    let mut driver = BalanceDriver::new(member, options, &coordinator);
    driver.set_wall_zero_ms(WALL_ZERO_MS);
    let mut watch = Watch::new(coordinator);
    watch.follow_balance();
    let (now_ns, is_full, disk_free_bytes) = (SECOND, false, None);
    World { link: sim.link(), sim, peers, driver, own, watch, now_ns, is_full, disk_free_bytes }
}

impl World {
    /// A second passes, in which both report what they have. Whether there is something new for people.
    fn pass(&mut self) -> bool {
        self.sim.advance(SECOND);
        self.now_ns += SECOND;
        for peer in &self.peers {
            self.link.keep_alive(peer.lease).unwrap();
        }
        let own = &self.peers[self.own];
        let used = |pair: &PairId| PairUse {
            pair: *pair,
            epoch: Epoch(1),
            bytes: 100 * MIB,
            granted_bytes: 100 * MIB,
            work_ns: 0,
            hold: None,
        };
        let pairs = own.pairs.iter().map(used).collect();
        let (at_ns, writes_wait) = (self.now_ns, self.is_full);
        self.driver.count(WorkerFigures { at_ns, writes_wait, pairs, ..WorkerFigures::default() });
        self.report_other();
        self.look()
    }

    fn pass_seconds(&mut self, seconds: usize) {
        for _ in 0..seconds {
            self.pass();
        }
    }

    fn report_other(&self) {
        self.report_other_with(1 << 40);
    }

    /// The other node reports that so much memory is left there.
    fn report_other_with(&self, memory_left_bytes: u64) {
        let other = &self.peers[1 - self.own];
        let reported = |pair: &PairId| ReportedPair {
            pair: *pair,
            epoch: Epoch(1),
            bytes: 100 * MIB,
            memory_bytes: 100 * MIB,
            load_ns: 0,
            held_ms: 3_600_000,
            arrival: ReportedArrival::TakenOver,
            hold: None,
        };
        let row = FiguresRow {
            incarnation: other.lease,
            node: other.node,
            state: ReportedState::Serving,
            serving_ms: 3_600_000,
            memory_left_bytes,
            writes_wait: false,
            disk_full: false,
            pairs_max: 100,
            meganodes: 1,
            more_rows: 0,
            pairs: other.pairs.iter().map(reported).collect(),
        };
        Balance::new(Arc::new(self.link.clone())).report(&row).unwrap();
    }

    fn look(&mut self) -> bool {
        self.watch.look().unwrap();
        let memory_left_bytes = if self.is_full { MIB } else { 1 << 40 };
        let left = (memory_left_bytes, self.disk_free_bytes);
        let is_news = self.driver.look(self.watch.view(), left, self.now_ns);
        self.watch.look().unwrap();
        is_news
    }

    /// A second passes, and nobody reports anything.
    fn look_a_second_later(&mut self) -> bool {
        self.sim.advance(SECOND);
        self.now_ns += SECOND;
        for peer in &self.peers {
            self.link.keep_alive(peer.lease).unwrap();
        }
        self.look()
    }

    /// Seconds until a move is started; none within a minute: none is.
    fn seconds_to_a_move(&mut self) -> Option<u64> {
        let before = self.moves().len();
        (1..60).find(|_| {
            self.pass();
            self.moves().len() > before || self.moves().iter().any(|of| of.number > 1)
        })
    }

    fn moves(&self) -> Vec<cell_cluster::MoveRow> {
        Moves::new(Arc::new(self.link.clone())).list().unwrap()
    }

    fn drain(&self, node: NodeId) {
        let author = DrainAuthor { who: "test", why: None, now_unix_ms: 1 };
        Drains::new(Arc::new(self.link.clone())).begin(&[node], &author).unwrap();
    }
}

#[test]
fn node_above_the_mean_gives_a_pair_once_all_have_reported_for_a_window() {
    for own in [0, 1] {
        let mut world = world(own, 2, options(true));
        let seconds = world.seconds_to_a_move().unwrap();
        assert!(seconds * 1_000 >= WINDOW_MS, "after {seconds} s");
        let moves = world.moves();
        assert_eq!(
            (moves.len(), moves[0].cause, moves[0].stage),
            (1, MoveMotive::Balance, MoveStage::Wanted)
        );
        assert_eq!((moves[0].source.node, moves[0].target.node), (NodeId(1), NodeId(2)));
        assert_eq!(moves[0].times.wanted_ms, WALL_ZERO_MS + world.now_ns / 1_000_000);
        assert!(moves[0].why.contains("of the mean"), "{}", moves[0].why);
        let seat = world.watch.view().balance.seat.unwrap().seat;
        assert_eq!((seat.incarnation, seat.moves), (world.peers[own].lease, 1));
        assert_eq!(world.seconds_to_a_move(), None, "one at a time");
        let shown = world.driver.snapshot(world.watch.view());
        assert_eq!((shown.balancer, shown.moves.above), (Some(world.peers[own].node), 1));
        let explanation = shown.look.unwrap().explain();
        assert_eq!(explanation.nodes.iter().map(|node| node.pairs).collect::<Vec<_>>(), [2, 0]);
    }
}

#[test]
fn look_that_says_nothing_new_is_shown_seldom_and_one_that_does_at_once() {
    let mut world = world(0, 1, options(true));
    world.pass_seconds(60);
    let shown = (0..60).filter(|_| world.pass()).count();
    assert!((1..=6).contains(&shown), "{shown} of 60, while nothing changed but the time");
    while !world.pass() {} // the next one would be shown late, if it said the same
    world.report_other_with(150 * MIB);
    assert!(world.look_a_second_later(), "figures have changed");
    world.link.transact(Transaction::new().put(KEY_DRILL, "{}")).unwrap();
    assert!(world.look_a_second_later(), "so has what is decided");
    assert!(!world.look_a_second_later());
    world.driver.set_options(options(true));
    assert!(world.look_a_second_later(), "by other rules it may say something else");
}

#[test]
fn nothing_moves_while_balance_is_off_or_a_drill_is_under_way() {
    assert_eq!(world(0, 2, options(false)).seconds_to_a_move(), None);
    let mut world = world(0, 2, options(true));
    world.link.transact(Transaction::new().put(KEY_DRILL, "{}")).unwrap();
    assert_eq!(world.seconds_to_a_move(), None);
    world.link.transact(Transaction::new().delete(KEY_DRILL)).unwrap();
    assert!(world.seconds_to_a_move().is_some());
}

#[test]
fn drill_and_rolling_restart_pause_balance_and_end_its_moves() {
    for cause in [PauseCause::Drill, PauseCause::RollingRestart] {
        let mut world = world(0, 2, options(true));
        let balance = Balance::new(Arc::new(world.link.clone()));
        let lease = world.link.grant(3_600_000).unwrap().lease;
        balance.pause(lease, cause).unwrap();
        assert_eq!(world.seconds_to_a_move(), None);
        balance.resume(lease).unwrap();
        assert!(world.seconds_to_a_move().is_some());
        balance.pause(lease, cause).unwrap();
        world.pass_seconds(3);
        assert_eq!(world.moves()[0].outcome, Some(MoveOutcome::Cancelled));
        assert_eq!(world.seconds_to_a_move(), None);
    }
}

#[test]
fn pair_that_was_made_for_another_node_moves_there_at_once() {
    let mut world = world(0, 1, options(true));
    world.driver.created(world.peers[0].pairs[0], Some(NodeId(2)));
    let seconds = world.seconds_to_a_move().unwrap();
    assert!(seconds * 1_000 < WINDOW_MS, "after {seconds} s");
    let of = world.moves().remove(0);
    assert_eq!((of.cause, of.target.node), (MoveMotive::Fresh, NodeId(2)));
    assert_eq!(world.driver.snapshot(world.watch.view()).moves.fresh, 1);
}

/// Balance alone would not move its only pair.
#[test]
fn node_at_which_writes_wait_for_memory_gives_a_pair_at_once() {
    let mut world = world(0, 1, options(true));
    assert_eq!(world.seconds_to_a_move(), None, "nobody waits");
    world.is_full = true;
    let seconds = world.seconds_to_a_move();
    assert!(seconds.is_some_and(|seconds| seconds * 1_000 < WINDOW_MS), "after {seconds:?} s");
    let of = world.moves().remove(0);
    assert_eq!((of.cause, of.target.node), (MoveMotive::Balance, NodeId(2)));
    assert!(of.why.contains("writes wait for memory at node-1"), "{}", of.why);
    assert_eq!(world.driver.snapshot(world.watch.view()).moves.full, 1);
}

/// What the worker gets now.
fn spread(world: &mut World) -> Option<Option<Arc<SpreadView>>> {
    world.pass();
    match world.driver.spread(world.watch.view(), world.now_ns)? {
        ControlEvent::Spread(view) => Some(view),
        event => panic!("the worker gets something else: {event:?}"),
    }
}

#[test]
fn worker_knows_what_the_others_have_while_balance_is_on() {
    let mut world = world(0, 3, options(true));
    assert!(
        world.driver.spread(world.watch.view(), world.now_ns).is_none(),
        "nobody has reported anything yet"
    );
    let view = spread(&mut world).flatten().unwrap();
    assert_eq!((view.node, view.meganodes), (NodeId(1), 1));
    let own = &view.figures.members[0];
    assert_eq!(
        (own.node, own.pairs.len(), own.pairs_max),
        (NodeId(1), 1, crate::limits::PAIRS_MAX - 2),
        "as one pair"
    );
    assert_eq!(own.pairs[0].load.unwrap().bytes, 300 * MIB);
    assert!(view.figures.members[1].pairs.is_empty());
    let relief = view.relief_bytes;
    assert!(relief.is_some_and(|bytes| (100 * MIB..300 * MIB).contains(&bytes)), "one pair: {relief:?}");
    world.driver.set_options(options(false));
    assert_eq!(spread(&mut world), Some(None), "it is taken back");
    assert_eq!(spread(&mut world), None);
    world.driver.set_options(options(true));
    assert!(spread(&mut world).flatten().is_some());
    world.link.transact(Transaction::new().put(KEY_DRILL, "{}")).unwrap();
    assert_eq!(spread(&mut world), Some(None));
}

#[test]
fn worker_of_a_node_that_is_alone_gets_no_view_of_others() {
    let mut world = world(0, 1, options(true));
    world.drain(NodeId(2));
    for _ in 0..10 {
        assert_eq!(spread(&mut world), None);
    }
}

#[test]
fn who_does_not_have_the_seat_begins_nothing() {
    let mut world = world(0, 2, options(true));
    let other = Balance::new(Arc::new(world.link.clone()));
    other.take_seat(world.peers[1].lease, world.peers[1].node).unwrap();
    assert_eq!(world.seconds_to_a_move(), None);
    assert_eq!(world.driver.snapshot(world.watch.view()).balancer, Some(NodeId(2)));
    let seat = other.seat().unwrap().unwrap();
    other.leave_seat(&seat).unwrap();
    assert!(world.seconds_to_a_move().is_some());
    world.driver.stop();
    world.pass();
    assert_eq!(other.seat().unwrap(), None, "a node that stops gives it up");
}

/// Nothing moved any more, for balance or for a drain, and nothing said why.
#[test]
fn seat_whose_row_does_not_read_is_taken() {
    let mut world = world(0, 2, options(true));
    world.link.transact(Transaction::new().put("balance/seat", "garbage")).unwrap();
    assert!(world.seconds_to_a_move().is_some());
    let seat = Balance::new(Arc::new(world.link.clone())).seat().unwrap().unwrap();
    assert_eq!(seat.seat.incarnation, world.peers[0].lease);
    // Also where it was readable before, and this node's.
    world.link.transact(Transaction::new().put("balance/seat", "garbage")).unwrap();
    world.pass();
    world.drain(NodeId(1));
    assert!(world.seconds_to_a_move().is_some());
}

#[test]
fn node_that_drains_is_emptied_though_balance_is_off() {
    let mut world = world(1, 1, options(false));
    world.pass();
    world.drain(NodeId(1));
    let seconds = world.seconds_to_a_move().unwrap();
    assert!(seconds * 1_000 < WINDOW_MS, "a drain waits for no window: {seconds} s");
    let of = world.moves().remove(0);
    assert_eq!((of.cause, of.target.node), (MoveMotive::Drain, NodeId(2)));
}

#[test]
fn move_to_a_node_that_drains_by_now_is_cancelled() {
    let mut world = world(0, 2, options(true));
    world.seconds_to_a_move().unwrap();
    world.drain(NodeId(2));
    world.pass_seconds(3);
    let of = world.moves().remove(0);
    assert_eq!(of.outcome, Some(MoveOutcome::Cancelled));
    assert_eq!(of.cancelled_by.as_deref(), Some("the balancer, node-1"));
    assert!(of.times.wanted_ms > WALL_ZERO_MS && of.times.over_ms > of.times.wanted_ms, "{:?}", of.times);
    assert_eq!(world.driver.snapshot(world.watch.view()).moves.cancelled, 1);
}

/// It went on until the operator's other move, of a pair with a lower number, was over.
#[test]
fn each_move_of_an_operator_to_a_node_that_drains_is_cancelled() {
    let mut world = world(0, 2, options(false));
    let third = peer(&world.sim, 3, 0);
    let moves = Moves::new(Arc::new(world.link.clone()));
    world.watch.look().unwrap();
    let members = world.watch.view().members.clone();
    for (pair, to) in [(0, &third), (1, &world.peers[1])] {
        moves.begin(world.peers[0].pairs[pair], &members[&to.lease], "test").unwrap();
    }
    world.drain(NodeId(2));
    world.pass_seconds(3);
    let outcomes: Vec<_> = world.moves().into_iter().map(|of| of.outcome).collect();
    assert_eq!(outcomes, [None, Some(MoveOutcome::Cancelled)]);
}

#[test]
fn move_that_came_to_nothing_is_not_tried_again_at_once() {
    let mut world = world(0, 1, options(true));
    world.driver.set_options(BalanceOptions {
        rules: BalanceRules { node_rest_ms: 0, ..options(true).rules },
        ..options(true)
    });
    // The one pair makes no node better: of two nodes, the one that has it has everything.
    assert_eq!(world.seconds_to_a_move(), None);
    world.drain(NodeId(1));
    world.seconds_to_a_move().unwrap();
    let of = world.moves().remove(0);
    let moves = Moves::new(Arc::new(world.link.clone()));
    moves.end(of.name(), &MoveOutcome::GivenUp { why: "no memory".to_owned() }).unwrap();
    let again = (1..60).find(|_| {
        world.pass();
        world.moves()[0].number == 2
    });
    assert!(again.is_some_and(|seconds| (19..30).contains(&seconds)), "{again:?}");
}

/// The second move was started 20 s after the first one, and so on, and nobody got any report.
#[test]
fn drain_of_which_moves_keep_failing_says_so_in_its_row() {
    let mut world = world(0, 1, options(false));
    world.pass();
    world.drain(NodeId(1));
    let moves = Moves::new(Arc::new(world.link.clone()));
    let mut said = None;
    for _ in 0..120 {
        world.pass();
        for of in world.moves().into_iter().filter(|of| of.outcome.is_none()) {
            moves.end(of.name(), &MoveOutcome::GivenUp { why: "no memory".to_owned() }).unwrap();
        }
        world.watch.look().unwrap();
        let stall = world.watch.view().drains[&NodeId(1)].stall.clone();
        assert!(said.is_none() || stall.is_some(), "it is said until the pair has left");
        said = stall;
    }
    assert!(world.moves()[0].number >= 4, "it was tried again and again");
    let said = said.expect("it is reported");
    let pair = world.peers[0].pairs[0];
    assert!(said.starts_with(&format!("{pair} cannot move: ")), "{said}");
    assert!(said.contains("it had no memory for the copy"), "{said}");
}

/// It was tried each second, no other pair left the node, and nobody got any report.
#[test]
fn drain_goes_on_with_other_pairs_where_the_row_of_a_move_does_not_read_and_says_so() {
    let mut world = world(0, 2, options(false));
    let [first, second] = [world.peers[0].pairs[0], world.peers[0].pairs[1]];
    world.link.transact(Transaction::new().put(cell_cluster::MoveRow::key(first), "garbage")).unwrap();
    world.pass();
    world.drain(NodeId(1));
    let seconds = world.seconds_to_a_move();
    assert!(seconds.is_some_and(|seconds| seconds < 10), "after {seconds:?} s");
    assert_eq!(world.moves().iter().map(|of| of.pair).collect::<Vec<_>>(), [second]);
    let stall = (1..60).find_map(|_| {
        world.pass();
        world.watch.look().unwrap();
        world.watch.view().drains[&NodeId(1)].stall.clone()
    });
    let said = stall.expect("it is reported");
    assert!(said.starts_with(&format!("{first} cannot move: ")), "{said}");
    assert!(said.contains("the move could not be started"), "{said}");
}

/// As far as was known it was under way for ever: nothing else moved, and nobody got any report.
#[test]
fn move_whose_row_does_not_read_any_more_holds_up_no_other_and_is_named() {
    let mut world = world(0, 2, options(false));
    world.pass();
    world.drain(NodeId(1));
    assert!(world.seconds_to_a_move().is_some());
    let first = world.moves().remove(0).pair;
    world.link.transact(Transaction::new().put(cell_cluster::MoveRow::key(first), "garbage")).unwrap();
    let second = (1..20).find_map(|_| {
        world.pass();
        world.moves().first().map(|of| of.pair)
    });
    assert!(second.is_some_and(|second| second != first), "{second:?}");
    let stall = (1..60).find_map(|_| {
        world.pass();
        world.watch.look().unwrap();
        world.watch.view().drains[&NodeId(1)].stall.clone()
    });
    let said = stall.expect("it is reported");
    assert!(said.starts_with(&format!("{first} cannot move: ")), "{said}");
    assert!(said.contains("a row of the coordinator does not read"), "{said}");
}

/// Of more than 256 pairs a node left some out, and each balancer waited for them for ever.
#[test]
fn node_of_several_hundred_pairs_is_balanced_whoever_it_is() {
    for own in [0, 1] {
        let mut world = world(own, 600, options(true));
        assert!(world.seconds_to_a_move().is_some(), "node {own} balances");
        let view = world.watch.view();
        assert_eq!(view.balance.reported_pairs().count(), 600);
        let heavy = &view.balance.figures[&world.peers[0].lease].0;
        assert_eq!((heavy.pairs.len(), heavy.more_rows), (256, 2));
        let looked = world.driver.snapshot(view).look.unwrap().explain();
        assert_eq!(looked.nodes[0].pairs, 600);
        assert!(looked.nodes.iter().all(|node| node.unknown.is_none()), "{looked}");
        // It has fewer by now: what is in a row that it writes no more does not count.
        world.peers[0].pairs.truncate(300);
        world.pass_seconds(10);
        assert_eq!(world.watch.view().balance.reported_pairs().count(), 300);
    }
}

/// What keeps a node from being emptied for sure.
fn lacks_room(view: &ClusterView, node: u32) -> Option<CannotEmpty> {
    match room_elsewhere(view, &[NodeId(node)]) {
        RoomElsewhere::Lacks(lacks) => Some(lacks),
        RoomElsewhere::Enough | RoomElsewhere::Unknown(_) => None,
    }
}

#[test]
fn nodes_are_known_not_to_be_emptied_once_all_have_reported_and_the_others_lack_room() {
    let mut world = world(0, 2, options(false));
    world.watch.look().unwrap();
    let unreported = "node-1 has not reported yet what it has";
    let RoomElsewhere::Unknown(why) = room_elsewhere(world.watch.view(), &[NodeId(1)]) else { panic!() };
    assert_eq!(why, unreported);
    assert_eq!(held_memory(world.watch.view()), Err(unreported.to_owned()));
    world.pass_seconds(20);
    assert_eq!(world.watch.view().balance.figures.len(), 2);
    assert_eq!(room_elsewhere(world.watch.view(), &[NodeId(1)]), RoomElsewhere::Enough);
    let held = held_memory(world.watch.view()).unwrap();
    assert_eq!(held.iter().map(|held| held.node.0).collect::<Vec<_>>(), [1, 2]);
    assert!(held[0].bytes >= 200 * MIB && held[0].bytes == 2 * held[0].largest_bytes, "{held:?}");
    assert_eq!(held[1].bytes, 0);
    world.report_other_with(150 * MIB);
    world.watch.look().unwrap();
    let CannotEmpty { why, next } = lacks_room(world.watch.view(), 1).unwrap();
    assert_eq!(next, None, "more room helps");
    assert!(why.contains("lack room for 1 pair"), "{why}");
    assert_eq!(lacks_room(world.watch.view(), 2), None, "it has no pairs");
}

/// Who takes them over holds more soon than it has reported.
#[test]
fn what_members_hold_is_not_known_while_pairs_are_to_be_taken_over() {
    let mut world = world(0, 2, options(false));
    world.pass_seconds(20);
    assert!(held_memory(world.watch.view()).is_ok());
    let before = world.link.grant(10_000).unwrap().lease;
    served_pair(&Table::new(Arc::new(world.link.clone())), before, NodeId(2));
    world.link.end_lease(before).unwrap();
    world.watch.look().unwrap();
    let waits = RoomElsewhere::Unknown("1 pair is to be taken over".to_owned());
    assert_eq!(room_elsewhere(world.watch.view(), &[NodeId(1)]), waits, "node 2 keeps its memory for it");
    world.link.end_lease(world.peers[0].lease).unwrap();
    world.watch.look().unwrap();
    assert_eq!(held_memory(world.watch.view()), Err("3 pairs are to be taken over".to_owned()));
}

/// Moves there were started one after the other, and each came to nothing.
#[test]
fn node_whose_disk_has_no_room_for_logs_gets_no_pair() {
    let options = BalanceOptions { first_segments_bytes: 8 * MIB, ..options(true) };
    let mut world = world(1, 2, options);
    world.disk_free_bytes = Some(8 * MIB - 1);
    assert_eq!(world.seconds_to_a_move(), None);
    let CannotEmpty { why, .. } = lacks_room(world.watch.view(), 1).unwrap();
    assert!(why.contains("1 has no room on its disk for the logs"), "{why}");
    world.disk_free_bytes = Some(8 * MIB);
    assert!(world.seconds_to_a_move().is_some());
}

/// Pairs were moved to a node that was back, and took the memory of one that it was to recover.
#[test]
fn node_that_keeps_memory_for_a_pair_that_it_had_gets_none() {
    let mut world = world(0, 2, options(true));
    let (table, [other, target]) = (Table::new(Arc::new(world.link.clone())), &world.peers);
    let had = served_pair(&table, target.lease, target.node);
    table.release(had).unwrap();
    let claim = table.claim(had.pair, other.lease, other.node, ClaimReason::LeaseEnded).unwrap();
    table.decline(claim.ownership, &Missing::Memory { bytes: 1 }).unwrap();
    assert_eq!(world.seconds_to_a_move(), None);
    assert!(lacks_room(world.watch.view(), 1).unwrap().why.contains("1 keeps its memory for pairs"));
}

#[test]
fn figures_are_half_known_until_a_member_has_reported_them() {
    let mut world = world(0, 2, options(true));
    for _ in 0..40 {
        world.look_a_second_later();
    }
    assert!(world.moves().is_empty());
    assert!(world.driver.snapshot(world.watch.view()).look.is_some(), "it balances");
    assert!(world.seconds_to_a_move().is_some());
}
