//! Memory that was known, and is no more: the node of a pair has died, or all nodes have started anew. It is
//! read again as soon as somebody serves the pair, by who reads alone and by who chooses for each read.

use cell_client::Search;

use crate::onesided::answers::{key, value};
use crate::onesided::nodes::TwoNodeHarness;
use crate::onesided::read_harness::MS;

/// Who reads alone, and who chooses: the latter begins no search while no root is known.
const SEARCHES: [Search; 2] = [Search::Client, Search::Auto];

/// Reads so many keys of every meganode, whatever comes of it.
fn read_on(harness: &mut TwoNodeHarness, reads: u32) {
    for number in 0..reads {
        harness.try_get(&key(100 * (number % 3)), 20);
        harness.now_ns += MS;
    }
}

/// Keys of every meganode are read, and no server is asked for them.
fn assert_read_alone(harness: &mut TwoNodeHarness, what: &str) {
    harness.asked = [Vec::new(), Vec::new()];
    for number in [3, 150, 250] {
        assert_eq!(harness.get(&key(number)), Some(value(number)), "{what}");
    }
    assert!(harness.is_spared(), "{what}: {:?}", harness.asked);
}

/// A client that had lost the root never went back to reading: who was known to be there was asked for its
/// regions no more, and had taken the root's pair over since.
#[test]
fn router_taken_over_by_a_node_that_is_known_is_read_again() {
    for search in SEARCHES {
        let mut harness = TwoNodeHarness::searching(search, [0, 1]);
        assert_read_alone(&mut harness, "at first");
        harness.kill(0);
        assert_eq!(harness.try_get(&key(150), 1), None, "the root's node is dead");
        harness.owner.pairs[0].begin_anew();
        harness.owners = [1, 1];
        read_on(&mut harness, 50);
        assert_read_alone(&mut harness, &format!("{search:?}"));
    }
}

/// Both of its ends live: no connection is lost by which anybody would be asked anew.
#[test]
fn router_that_has_moved_to_a_node_that_is_known_is_read_again() {
    for search in SEARCHES {
        for owners in [[0, 1], [0, 0]] {
            let mut harness = TwoNodeHarness::searching(search, owners);
            assert_read_alone(&mut harness, "at first");
            harness.move_pair(0);
            read_on(&mut harness, 50);
            assert_read_alone(&mut harness, &format!("{search:?}, pairs at {owners:?}"));
        }
    }
}

/// Each pair is served as soon as it can be, and the root's came last: its node was asked for its regions
/// before, and by a client that chooses never again.
#[test]
fn memory_of_nodes_that_have_all_restarted_is_read_again_whichever_pair_is_served_first() {
    for search in SEARCHES {
        for owners in [[0, 0], [0, 1], [1, 1]] {
            for first in [0, 1] {
                let what = format!("{search:?}, pairs at {owners:?}, the first that is served: {first}");
                let mut harness = TwoNodeHarness::searching(search, owners);
                assert_read_alone(&mut harness, &what);
                for _ in 0..2 {
                    harness.restart_all();
                    read_on(&mut harness, 3);
                    harness.served[first] = true;
                    read_on(&mut harness, 10);
                    harness.served = [true; 2];
                    read_on(&mut harness, 50);
                    assert_read_alone(&mut harness, &what);
                }
            }
        }
    }
}
