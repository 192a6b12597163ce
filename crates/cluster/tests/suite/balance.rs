//! The balancer's seat and the members' figures over the simulated coordinator: who may begin a move, and
//! what a watch shows of it.

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::sync::Arc;

use cell_cluster::{
    Balance, BalancerWish, ClusterError, Coordinator, FiguresRow, KEY_DRILL, MemberRow, MoveMotive,
    MoveRefusal, MoveRow, Moves, NewPair, PairGeometry, PauseCause, ReportedState, SeatSeen, ServingAddress,
    Sim, SimLink, Table, Transaction, Watch,
};
use cell_terms::{Durability, Incarnation, NodeId, PairId};

const MS: u64 = 1_000_000;
const GEOMETRY: PairGeometry =
    PairGeometry { node_region_bytes: 1, extent_region_bytes: 1, slot_bytes: 1, node_bytes: 1 };

struct Member {
    link: SimLink,
    lease: Incarnation,
    node: NodeId,
    balance: Balance,
    moves: Moves,
}

fn member(sim: &Sim, node: u32) -> Member {
    let link = sim.link();
    let lease = link.grant(500).unwrap().lease;
    let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
    let (balance, moves) = (Balance::new(coordinator.clone()), Moves::new(coordinator));
    Member { link, lease, node: NodeId(node), balance, moves }
}

impl Member {
    fn row(&self) -> MemberRow {
        MemberRow {
            incarnation: self.lease,
            node: self.node,
            fabric: String::new(),
            http: String::new(),
            pid: 0,
            memory_limit_bytes: 0,
        }
    }

    fn create(&self) -> PairId {
        let table = Table::new(Arc::new(self.link.clone()));
        let new = NewPair { incarnation: self.lease, node: self.node, geometry: GEOMETRY };
        let ownership = table.create_pair(&new).unwrap().ownership;
        let place =
            ServingAddress { address: format!("sim:{}", self.node), worker: 0, node_key: 0, extent_key: 0 };
        table.publish(ownership, Durability::Sync, &place).unwrap();
        ownership.pair
    }

    /// Takes the seat, if it is free; who has it then.
    fn sit(&self) -> SeatSeen {
        self.balance.take_seat(self.lease, self.node).unwrap();
        self.balance.seat().unwrap().unwrap()
    }

    fn begin(&self, pair: PairId, to: &Member, seat: &SeatSeen) -> Result<MoveRow, ClusterError> {
        let wish = BalancerWish { cause: MoveMotive::Balance, why: "balance", seat };
        self.moves.begin_as(pair, &to.row(), &wish)
    }

    fn figures(&self) -> FiguresRow {
        FiguresRow {
            incarnation: self.lease,
            node: self.node,
            state: ReportedState::Serving,
            serving_ms: 5,
            memory_left_bytes: 6,
            writes_wait: false,
            disk_full: false,
            pairs_max: 7,
            meganodes: 1,
            more_rows: 0,
            pairs: Vec::new(),
        }
    }
}

fn is_refused(started: &Result<MoveRow, ClusterError>) -> bool {
    matches!(started, Err(ClusterError::Move(MoveRefusal::NotBalancer)))
}

#[test]
fn seat_is_one_members_until_its_lease_ends_or_it_gives_it_up() {
    let sim = Sim::new(1);
    let (first, second) = (member(&sim, 0), member(&sim, 1));
    let seat = first.sit();
    assert_eq!((seat.seat.incarnation, seat.seat.node, seat.seat.moves), (first.lease, first.node, 0));
    assert_eq!(second.sit(), seat, "it is not free");
    first.balance.leave_seat(&seat).unwrap();
    let seat = second.sit();
    assert_eq!(seat.seat.incarnation, second.lease);
    sim.advance(400 * MS);
    first.link.keep_alive(first.lease).unwrap();
    sim.advance(400 * MS);
    assert_eq!(first.sit().seat.incarnation, first.lease, "the other one's lease has ended");
    assert!(matches!(
        second.balance.take_seat(second.lease, second.node),
        Err(ClusterError::LeaseEnded { .. })
    ));
}

#[test]
fn move_counts_in_the_seat_and_says_its_cause() {
    let sim = Sim::new(2);
    let (source, target) = (member(&sim, 0), member(&sim, 1));
    let pair = source.create();
    let seat = source.sit();
    let started = source.begin(pair, &target, &seat).unwrap();
    assert_eq!(
        (started.cause, started.why.as_str(), started.target.node),
        (MoveMotive::Balance, "balance", target.node)
    );
    assert_eq!(source.moves.of(pair).unwrap(), Some(started));
    let after = source.balance.seat().unwrap().unwrap();
    assert_eq!((after.seat.moves, after.seat.incarnation), (1, source.lease));
    assert!(after.revision > seat.revision);
}

/// Also a test of a mutant.
#[test]
pub(crate) fn move_of_who_balances_no_more_is_refused() {
    let sim = Sim::new(3);
    let (source, target) = (member(&sim, 0), member(&sim, 1));
    let pair = source.create();
    let seat = source.sit();
    source.balance.leave_seat(&seat).unwrap();
    target.sit();
    let started = source.begin(pair, &target, &seat);
    assert!(is_refused(&started), "{started:?}");
    assert_eq!(source.moves.of(pair).unwrap(), None);
}

/// Whoever is not answered, and decides anew, does not begin two.
#[test]
pub(crate) fn of_two_moves_from_one_seat_one_is_started() {
    let sim = Sim::new(4);
    let (source, target) = (member(&sim, 0), member(&sim, 1));
    let (first, second) = (source.create(), source.create());
    let seat = source.sit();
    source.begin(first, &target, &seat).unwrap();
    let started = source.begin(second, &target, &seat);
    assert!(is_refused(&started), "{started:?}");
    let now = source.balance.seat().unwrap().unwrap();
    source.begin(second, &target, &now).unwrap();
}

/// Nobody balanced any more, and each node asked for the seat again and again, without a pause.
#[test]
fn seat_whose_row_does_not_read_is_nobodys_and_is_taken() {
    let sim = Sim::new(6);
    let (first, second) = (member(&sim, 0), member(&sim, 1));
    let pair = first.create();
    let seat = first.sit();
    let coordinator: Arc<dyn Coordinator> = Arc::new(sim.link());
    let (mut watch, mut late) = (Watch::new(coordinator.clone()), Watch::new(coordinator));
    watch.follow_balance();
    late.follow_balance();
    watch.look().unwrap();
    assert!(watch.view().balance.seat == Some(seat) && watch.view().seat_reads());
    // It hangs on no lease.
    first.link.transact(Transaction::new().put("balance/seat", "garbage")).unwrap();
    for watch in [&mut watch, &mut late] {
        watch.look().unwrap();
        assert!(watch.view().balance.seat.is_none() && !watch.view().seat_reads());
    }
    second.balance.take_seat(second.lease, second.node).unwrap();
    assert!(first.balance.seat().is_err(), "it is not free");
    second.balance.take_unreadable_seat(second.lease, second.node).unwrap();
    first.balance.take_unreadable_seat(first.lease, first.node).unwrap();
    for watch in [&mut watch, &mut late] {
        watch.look().unwrap();
        assert!(watch.view().seat_reads());
        assert_eq!(watch.view().balance.seat.map(|seen| seen.seat.incarnation), Some(second.lease));
    }
    let started = first.begin(pair, &second, &seat);
    assert!(is_refused(&started), "{started:?}");
}

#[test]
fn watch_shows_seat_figures_and_drills_to_who_follows_balance_and_reports_no_change_of_the_cluster() {
    let sim = Sim::new(5);
    let (first, second) = (member(&sim, 0), member(&sim, 1));
    let coordinator: Arc<dyn Coordinator> = Arc::new(sim.link());
    let mut watch = Watch::new(coordinator.clone());
    let mut blind = Watch::new(coordinator);
    watch.follow_balance();
    let seat = first.sit();
    second.balance.report(&second.figures()).unwrap();
    assert!(watch.look().unwrap().changed && blind.look().unwrap().changed, "the first look");
    assert_eq!(watch.view().balance.seat, Some(seat));
    assert_eq!(watch.view().balance.figures[&second.lease].0, second.figures());
    assert_eq!(blind.view().balance.seat, None);
    let reported = FiguresRow { serving_ms: 9, ..second.figures() };
    second.balance.report(&reported).unwrap();
    first.link.transact(Transaction::new().put(KEY_DRILL, "{}")).unwrap();
    assert!(!watch.look().unwrap().changed);
    assert_eq!(watch.view().balance.figures[&second.lease].0, reported);
    assert!(watch.view().balance.drill);
    assert_eq!(watch.view().balance.pause(), Some(PauseCause::Drill));
    first.link.transact(Transaction::new().delete(KEY_DRILL)).unwrap();
    second.balance.pause(second.lease, PauseCause::RollingRestart).unwrap();
    second.balance.pause(first.lease, PauseCause::Drill).unwrap();
    watch.look().unwrap();
    assert_eq!(watch.view().balance.pause(), Some(PauseCause::RollingRestart));
    first.balance.resume(first.lease).unwrap();
    sim.advance(400 * MS);
    first.link.keep_alive(first.lease).unwrap();
    sim.advance(400 * MS);
    watch.look().unwrap();
    assert!(watch.view().balance.figures.is_empty() && !watch.view().balance.drill, "they go with the lease");
    assert_eq!(watch.view().balance.pause(), None);
    assert_eq!(watch.view().balance.seat, Some(seat));
    assert!(matches!(second.balance.report(&reported), Err(ClusterError::LeaseEnded { .. })));
}
