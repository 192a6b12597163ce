//! Checkpoints that come to nothing: the worker serves on, says why, and tries again. One that is not
//! started.

use cell_cluster::PairGeometry;
use cell_node::{CheckpointFailure, Command, ControlEvent, WorkerOptions};
use cell_protocol::PairRegions;
use cell_terms::{Epoch, PairId};
use cell_wal::Errno;

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

fn key(number: u64) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

#[test]
fn checkpoint_that_fails_is_reported_until_one_succeeds_and_the_worker_serves_on() {
    let pair = PairId(1);
    let slot = PairGeometry { node_region_bytes: 4096 + (64 << 10), ..GEOMETRY };
    let mut world = World::new(1, slot, WorkerOptions { checkpoint_age_ns: 1, ..OPTIONS });
    let mut number = world.load(1, (1..20).map(key));
    let full = CheckpointFailure::Disk(Errno::ENOSPC);
    for (failed, why) in [(1, full), (2, CheckpointFailure::Format), (3, full)] {
        world.image_failed(pair, why);
        let node = world.worker().snapshot();
        assert_eq!((node.pairs[0].checkpoints_failed, node.pairs[0].checkpoint_failure), (failed, Some(why)));
        assert_eq!((node.state.word(), node.pairs[0].checkpoint_running), ("serving", false));
        let [warning] = &node.warnings[..] else { panic!("{:?}", node.warnings) };
        assert!(warning.contains("of pair-1 failed") && warning.ends_with(&why.to_string()), "{warning}");
        number = world.load(number, std::iter::once(key(100 + failed)));
        assert_eq!(world.get(&key(100 + failed)), Replied::Value(key(100 + failed)));
        world.next_image(pair); // it is tried again, and comes to nothing again
    }
    world.image_failed(pair, full);
    assert!(world.worker().snapshot().warnings[0].starts_with("the last 4 checkpoints of pair-1 failed"));
    let mut image = world.next_image(pair);
    while world.step_image(&mut image, 100) {}
    world.end_image(image);
    let node = world.worker().snapshot();
    assert_eq!((node.pairs[0].checkpoint_failure, node.warnings.len()), (None, 0));
    assert_eq!((node.pairs[0].checkpoints, node.pairs[0].checkpoints_failed), (1, 4));
    world.restart();
    assert_eq!(world.get(&key(1)), Replied::Value(key(1)));
}

/// What was the reason for one may be gone when it has failed: settings changed, or the disk has room again.
#[test]
fn checkpoint_that_fails_is_tried_again_although_none_is_due() {
    let pair = PairId(1);
    let slot = PairGeometry { node_region_bytes: 4096 + (64 << 10), ..GEOMETRY };
    let options = WorkerOptions { checkpoint_log_bytes_min: 1, checkpoint_log_ratio: 0.0, ..OPTIONS };
    let mut world = World::new(1, slot, options);
    world.load(1, (1..20).map(key));
    world.image_failed(pair, CheckpointFailure::Busy);
    world.next_image(pair); // of what was written while the first one ran
    world.image_failed(pair, CheckpointFailure::Busy);
    assert!(world.worker().snapshot().warnings[0].starts_with("the last 2 checkpoints of pair-1 failed"));
    let mut image = world.next_image(pair); // nothing was written since
    while world.step_image(&mut image, 100) {}
    world.end_image(image);
    let node = world.worker().snapshot();
    assert_eq!((node.pairs[0].checkpoints, node.warnings.len()), (1, 0));
}

/// Whoever has it next takes one: this one would be copied for nothing, and waited for.
#[test]
fn pair_that_leaves_begins_no_checkpoint() {
    let pair = PairId(1);
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let row = PairRegions { pair, epoch: Epoch(1), node_key: 10, ..PairRegions::default() };
    world.worker_mut().registered(row);
    world.load(1, (1..20).map(key));
    world.notify(0, ControlEvent::Leave { pair });
    let options = WorkerOptions { checkpoint_age_ns: 1, ..OPTIONS };
    world.notify(0, ControlEvent::OptionsChanged(Box::new(options)));
    let has_left = (0..10_000).any(|_| {
        world.turn();
        let commands = world.take_commands(0);
        let begins = |command: &Command| matches!(command, Command::Checkpoint(..));
        assert!(!commands.iter().any(begins), "{commands:?}");
        commands.iter().any(|command| matches!(command, Command::Left { .. }))
    });
    assert!(has_left);
}
