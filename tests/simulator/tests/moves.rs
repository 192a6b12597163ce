//! Crashes at each point of a planned move: of its source, its target, both, and of the coordinator, which
//! stands still besides.

use cell_simulator::faults::FAULTS;
use cell_simulator::move_points::{MoveCrash, MovePoint, Struck};
use cell_simulator::plan::Plan;
use cell_simulator::shrink::Without;
use cell_simulator::{Coverage, Event, RunOptions, run};

/// Little is asked, nothing else goes wrong.
fn calm() -> RunOptions {
    RunOptions { operations: 80, stop_after: 80, without: Without::all(), ..RunOptions::default() }
}

/// A seed of so many nodes, which all have memory for every pair.
fn seed_of(nodes: usize) -> u64 {
    let of_so_many = |seed: &u64| {
        let plan = Plan::new(*seed, calm().operations, FAULTS.len());
        plan.nodes == nodes && plan.pairs_fit == 0
    };
    (1..).find(of_so_many).expect("each number of nodes has seeds")
}

/// Every rule holds, and the move came to the point.
fn struck(seed: u64, crash: MoveCrash, seen: &mut Coverage) {
    let passed = run(seed, RunOptions { move_crash: Some(crash), ..calm() });
    let passed = passed.unwrap_or_else(|failed| panic!("seed {seed}, {crash:?}: {}", failed.broken));
    assert!(passed.move_struck, "seed {seed}: no move came to {crash:?}");
    seen.merge(&passed.coverage);
}

/// Who is struck dies at once among two nodes, and among three at its next touch of disk or coordinator,
/// which takes effect. The coordinator stands still for a moment, or past the leases; it is started again, or
/// loses power.
#[test]
fn crash_at_each_point_of_a_move_leaves_the_pair_served_once_and_whole() {
    let mut seen = Coverage::default();
    for (nodes, touch) in [(2, 0), (3, 1)] {
        let seed = seed_of(nodes);
        for point in MovePoint::ALL {
            for whom in Struck::ALL {
                struck(seed, MoveCrash { point, struck: whom, touch, after: true }, &mut seen);
            }
        }
    }
    let coordinators = [Event::CoordinatorStill, Event::CoordinatorRestarts, Event::CoordinatorPower];
    for event in [Event::Moved, Event::Recoveries, Event::Kills].into_iter().chain(coordinators) {
        assert!(seen.count(event) > 0, "{} never happened", event.name());
    }
}

/// Touches between the handing and the end of the move: the last round, new logs, the wait for trust, the
/// publication, the move's row.
const TOUCHES: u64 = 24;

/// Dies at each touch, before it takes effect or after.
fn at_each_touch_after(point: MovePoint, whom: Struck) -> Coverage {
    let mut seen = Coverage::default();
    for touch in 1..=TOUCHES {
        for (nodes, after) in [(2, false), (3, true)] {
            struck(seed_of(nodes), MoveCrash { point, struck: whom, touch, after }, &mut seen);
        }
    }
    seen
}

#[test]
fn target_that_dies_at_any_touch_after_the_handing_loses_nothing() {
    let seen = at_each_touch_after(MovePoint::Handed, Struck::Target);
    assert!(seen.count(Event::Recoveries) > 0, "nobody took the pair over");
}

#[test]
fn source_that_dies_at_any_touch_after_the_freeze_loses_nothing() {
    let seen = at_each_touch_after(MovePoint::Frozen, Struck::Source);
    assert!(seen.count(Event::Moved) > 0, "no pair came to its target");
}
