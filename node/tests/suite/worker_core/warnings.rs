//! What a node that serves warns of.

use std::sync::Arc;

use cell_node::{ClusterSnapshot, ControlEvent, NO_ROOM, PairRecovery, RecoveryProgress, WorkerInput};
use cell_terms::PairId;

use super::driver::{MS, Pair, serving_pair, warnings_of};

/// It hung in a look at a disk that did not answer. Where nobody wrote meanwhile, the node warned of nothing.
#[test]
fn control_thread_that_does_not_come_back_is_warned_of() {
    let mut pair = serving_pair();
    let silent = |pair: &Pair| warnings_of(pair, "its control thread has not come back");
    let alive = || vec![WorkerInput::Control(ControlEvent::Alive)];
    let _ = pair.turn(alive());
    pair.turn_for(29_000 * MS);
    assert_eq!(silent(&pair), 0);
    pair.turn_for(2_000 * MS);
    assert_eq!(silent(&pair), 1);
    let _ = pair.turn(alive());
    assert_eq!(silent(&pair), 0);
}

/// It was reported once writes were refused, and nowhere before but in a metric.
#[test]
fn disk_without_room_for_the_next_checkpoint_is_warned_of() {
    let mut pair = serving_pair();
    for (free, warned) in [(1, 1), (1 << 40, 0)] {
        let _ = pair.turn(vec![WorkerInput::Control(ControlEvent::DiskFree(free))]);
        pair.turn_for(20 * MS);
        assert_eq!(warnings_of(&pair, "the disk of its logs is nearly full"), warned);
    }
}

/// It was said of a node that served nothing, and where it served another pair nobody knew what to do.
#[test]
fn takeover_without_room_on_the_disk_is_warned_of_where_other_pairs_are_served() {
    let mut pair = serving_pair();
    for (stage, warned) in [(NO_ROOM, 1), ("opening", 0)] {
        let progress = RecoveryProgress { stage, ..RecoveryProgress::default() };
        let recoveries = vec![PairRecovery { pair: PairId(3), progress }];
        let cluster = ClusterSnapshot { recoveries, ..ClusterSnapshot::default() };
        let _ = pair.turn(vec![WorkerInput::Control(ControlEvent::Cluster(Arc::new(cluster)))]);
        pair.turn_for(20 * MS);
        let words = "the disk has no room for the logs that it would write of pair-3";
        assert_eq!(warnings_of(&pair, words), warned);
    }
}
