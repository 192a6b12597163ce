//! A check of the tree by the worker, beside writes, splits and compactions.

use std::sync::Arc;

use cell_node::{ControlEvent, TreeCheckRun};

use crate::worker_core::world::{GEOMETRY, OPTIONS, World};

fn key(number: u64) -> Vec<u8> {
    format!("key {:05}", number * 7919 % 10_007).into_bytes()
}

fn begin(world: &mut World) -> Arc<TreeCheckRun> {
    let run = Arc::<TreeCheckRun>::default();
    world.notify(0, ControlEvent::CheckTree(run.clone()));
    run
}

/// Lets a check of a quiet tree end.
fn checked(world: &mut World) -> Arc<TreeCheckRun> {
    let run = begin(world);
    world.until("the end of the check", |_| run.outcome().is_some());
    run
}

#[test]
fn check_of_a_tree_at_rest_sees_all_of_it() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let mut number = 1;
    while world.worker().split_counts().finished == 0 {
        number = world.load(number, std::iter::once(key(number)));
    }
    let run = checked(&mut world);
    let (outcome, progress) = (run.outcome().unwrap(), run.progress());
    assert_eq!(outcome.faults, []);
    assert_eq!((outcome.pairs.len(), progress.entries), (2, number - 1));
    assert_eq!(progress.tree_nodes, progress.tree_nodes_all);
    assert_eq!(world.violation(), None, "the check of the whole agrees");
}

#[test]
pub(crate) fn check_beside_writes_splits_and_compactions_reports_nothing() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    let (mut run, mut checks, mut operation) = (begin(&mut world), 0, 0);
    for round in 0..4 {
        for number in 500 * round..500 * (round + 1) {
            operation += 1;
            world.load(operation, std::iter::once(key(number)));
            if let Some(outcome) = run.outcome() {
                assert_eq!(outcome.faults, [], "after {operation} operations");
                (run, checks) = (begin(&mut world), checks + 1);
            }
        }
        for number in (500 * round..500 * (round + 1)).filter(|number| number % 5 != 0) {
            operation += 1;
            let name = world.name(operation, operation);
            world.delete(name, &key(number));
        }
    }
    let replied = world.worker().snapshot();
    assert!(
        replied.splits.finished > 0 && replied.pairs.iter().any(|pair| pair.compactions > 0),
        "{replied:?}"
    );
    assert!(checks > 3, "{checks}");
    let run = checked(&mut world);
    assert_eq!((&*run.outcome().unwrap().faults, run.progress().entries), (&[][..], 400));
}
