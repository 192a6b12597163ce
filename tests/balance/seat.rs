//! Two balancers: one stands still until another has its seat, and goes on. Moves go on, none twice, and one
//! balancer is named.

use std::collections::BTreeMap;

use cell_tests::cluster::View;
use cell_tests::process::{signal, stop};
use cell_tests::program;
use cell_tests::server::Server;
use cell_tests::wait;
use rustix::process::Signal;
use serde_json::Value;

use crate::balance::{assert_loaded, balance, balances, cluster, load, wait_balanced};

/// Each move by pair and number, with its ends.
type Seen = BTreeMap<(u64, u64), (u64, u64)>;

/// The moves that a node knows, beside those of before: none has other ends by now.
fn see_moves(server: &Server, asked: u16, seen: &mut Seen) {
    let Some((200, body)) = server.http_of(asked, "/api/v1/moves?limit=65536") else { return };
    let document: Value = serde_json::from_str(&body).expect("it is JSON");
    for of in document["moves"].as_array().expect("a list") {
        let number = |name: &str| of[name].as_u64().expect("a number");
        let ends = (number("from"), number("to"));
        let before = seen.insert((number("pair"), number("number")), ends);
        assert!(before.is_none_or(|before| before == ends), "{before:?}, and now {of}");
    }
}

fn balancer(server: &Server, asked: u16) -> Option<u64> {
    balance(server, asked)?["balancer"].as_u64()
}

#[test]
fn balancer_that_stands_still_until_another_has_its_seat_moves_nothing_twice() {
    let server = cluster();
    load(&server);
    let first = wait::until_some("somebody balances", || balancer(&server, 0));
    let others: Vec<u16> = (0..3).filter(|node| u64::from(*node) != first).collect();
    let (asked, mut seen) = (others[0], Seen::new());
    see_moves(&server, asked, &mut seen);
    let process = server.view().process(first).expect("it runs");
    stop(process);
    let second = wait::until_some("another one balances", || {
        see_moves(&server, asked, &mut seen);
        others.iter().copied().find(|node| balances(&server, *node))
    });
    let are_served = |view: &View| {
        let rows = view.pairs();
        rows.iter().all(|row| row["node"] != first && view.is_served(row["pair"].as_u64().unwrap_or(0)))
    };
    server.wait_view("served by the others", are_served);
    see_moves(&server, asked, &mut seen);
    let before = seen.clone();
    signal(process, Signal::CONT);
    server.wait_view("followed by another process", |view| {
        view.process(first).is_some_and(|found| found != process) && view.serves(first)
    });
    wait_balanced(&server, asked, 3);
    see_moves(&server, asked, &mut seen);
    let brings_its_share =
        |(of, (_, to)): (&(u64, u64), &(u64, u64))| *to == first && !before.contains_key(of);
    let has_it_by_moves = seen.iter().any(brings_its_share);
    assert!(has_it_by_moves, "a node that came back has its share by moves: {seen:?}, {before:?} before");
    wait::until("each names the same balancer", || {
        (0..3).all(|node| balancer(&server, node) == Some(u64::from(second)))
    });
    wait::until("that one alone says that it balances", || {
        (0..3).filter(|node| balances(&server, *node)).eq([second])
    });
    let http = server.http_address_of(asked).to_string();
    wait::until("the command names it", || {
        let said = program::run(&["balance", "status", "--http", &http]);
        said.out.contains(&format!("node {second} balances"))
    });
    assert_loaded(&server);
}
