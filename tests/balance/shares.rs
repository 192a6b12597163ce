//! A load of paths under one long prefix, which one pair has at first; and a node that was killed.

use cell_tests::cluster::View;

use crate::balance::{assert_loaded, cluster, load, wait_balanced};

const KILLED: u64 = 1;
const ASKED: u16 = 2;

/// Nobody moves anything by hand.
#[test]
fn load_of_one_prefix_ends_balanced_and_a_node_that_was_killed_has_its_share_again() {
    let server = cluster();
    load(&server);
    wait_balanced(&server, ASKED, 3);
    assert_loaded(&server);
    server.take_down(KILLED);
    let is_taken_over = |view: &View| {
        let mut pairs = view.pairs().iter();
        view.owned()[&KILLED].is_empty() && pairs.all(|row| view.is_served(row["pair"].as_u64().unwrap_or(0)))
    };
    server.wait_view("taken over by the others", is_taken_over);
    wait_balanced(&server, ASKED, 2);
    server.start_node(KILLED);
    server.wait_healthy();
    wait_balanced(&server, ASKED, 3);
    assert_loaded(&server);
}
