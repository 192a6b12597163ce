//! Moves that no operator asks for: of nodes that drain, for balance, and of pairs that were made for others.

use cell_simulator::faults::{self, FAULTS};
use cell_simulator::plan::Plan;
use cell_simulator::{Coverage, Event, RunOptions, run};

/// What happened in the first runs of this kind, in each of which every rule held.
fn seen_in(runs: usize, of: impl Fn(&Plan) -> bool) -> Coverage {
    let options = RunOptions { operations: 3_000, ..RunOptions::default() };
    let wanted = |seed: &u64| of(&Plan::new(*seed, options.operations, FAULTS.len()));
    let mut seen = Coverage::default();
    for seed in (1..).filter(wanted).take(runs) {
        let passed = run(seed, options).unwrap_or_else(|failed| panic!("seed {seed}: {}", failed.broken));
        seen.merge(&passed.coverage);
    }
    seen
}

fn assert_seen(seen: &Coverage, events: &[Event]) {
    events.iter().for_each(|event| println!("{:>6}  {}", seen.count(*event), event.name()));
    for event in events {
        assert!(seen.count(*event) > 0, "{} never happened", event.name());
    }
}

#[test]
fn nodes_are_drained_added_and_removed_among_all_faults() {
    let seen = seen_in(16, faults::drains);
    let events = [
        Event::DrainsStarted,
        Event::Drained,
        Event::DrainsEnded,
        Event::MovedForDrains,
        Event::NodesJoined,
        Event::NodesRemoved,
    ];
    assert_seen(&seen, &events);
}

#[test]
fn pairs_move_for_balance_and_to_the_nodes_that_they_were_made_for() {
    let seen = seen_in(16, |plan| plan.balance.as_ref().is_some_and(|balance| balance.on));
    assert_seen(&seen, &[Event::BalancedRuns, Event::Splits, Event::Balanced, Event::MovedFresh]);
}
