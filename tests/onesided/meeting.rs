//! Clients that meet on a few keys: every key is linearizable.

use std::time::Duration;

use cell_client::{OneSidedCounters, Transport};
use cell_tests::server::Server;
use cell_tests::traffic::Traffic;
use cell_tests::wait;

use crate::onesided::clients::{PATIENCE, fell_back_within_time};

const CLIENTS: u64 = 6;

/// Waits until there was as much load, however long this machine takes for it.
fn wait_load(traffic: &Traffic, operations: u64) {
    wait::until("the clients have done enough", || traffic.recorder.ticks() >= 2 * operations);
}

/// So many operations of all clients together, or more.
pub(crate) fn clients_meet(transport: Transport, flags: &[&str], least: u64) {
    let server = Server::start_steady(flags);
    let traffic = Traffic::new(server.address()).over(transport);
    let mut counters = OneSidedCounters::default();
    std::thread::scope(|scope| {
        let traffic = &traffic;
        let meeting: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || traffic.meet(client, Duration::from_secs(20))))
            .collect();
        let ending = traffic.ending();
        wait_load(traffic, least);
        drop(ending);
        for client in meeting {
            counters.add(&client.join().expect("a client that met others did not panic"));
        }
    });
    assert!(counters.done > least / 20, "{counters:?}");
    assert!(
        fell_back_within_time(&counters) * 5 < counters.started,
        "most are answered one-sided: {counters:?}"
    );
    let operations = traffic.check_history();
    println!("{transport:?}: {operations} operations checked; {counters:?}");
}

/// Clients meet, one keeps a ledger beside them, and the node is killed among them so many times, with so
/// many operations between.
pub(crate) fn clients_meet_beside_kills(transport: Transport, flags: &[&str], kills: u32, between: u64) {
    let mut server = Server::start_with(&[&["--allow-drills"][..], flags].concat());
    let traffic = Traffic::new(server.address()).over(transport);
    let mut counters = OneSidedCounters::default();
    let ledger = std::thread::scope(|scope| {
        let traffic = &traffic;
        let writing = scope.spawn(move || traffic.keep_ledger(0, PATIENCE));
        let meeting: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || traffic.meet(client, Duration::from_secs(2 + client * 20))))
            .collect();
        let ending = traffic.ending();
        for _ in 0..kills {
            wait_load(traffic, traffic.recorder.ticks() / 2 + between);
            server.replace_node();
        }
        wait_load(traffic, traffic.recorder.ticks() / 2 + between);
        drop(ending);
        for client in meeting {
            counters.add(&client.join().expect("a client that met others did not panic"));
        }
        writing.join().expect("a writer did not panic")
    });
    assert!(counters.done > 0, "{counters:?}");
    let keys = traffic.verify(&ledger);
    let operations = traffic.check_history();
    println!(
        "{transport:?}, {kills} kills: {keys} keys verified, {operations} operations checked; {counters:?}"
    );
}
