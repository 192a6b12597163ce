//! Real processes, really killed: `kill -9` under load, and everything acknowledged is there afterwards,
//! every shared key linearizable, the tree sound.

use std::time::Duration;

use cell_tests::checker;
use cell_tests::dice::Dice;
use cell_tests::program;
use cell_tests::repeats::Repeats;
use cell_tests::server::Server;
use cell_tests::traffic::Traffic;

/// Clients with a ledger: most try until the server is back, one gives up early, so that there are unknown
/// outcomes.
const PATIENCE: [Duration; 3] =
    [Duration::from_secs(60), Duration::from_secs(60), Duration::from_millis(300)];
/// Clients that meet on shared keys; and where nobody else writes, so that as many writes share a flush.
const MEETING: u64 = 4;
const MEETING_ALONE: u64 = 16;
/// Every so many kills the supervisor dies with its node.
const ALL_EVERY: u32 = 8;
/// Writes that must be acknowledged between two kills.
const WRITES_MIN: u64 = 100;
/// What the moments of kills are drawn for.
const MOMENTS: u64 = 1 << 32;

/// How many kills this run demands.
fn kills() -> u32 {
    Repeats { plain: 5, quick: 10, full: 25, long: 200 }.of_this_run()
}

#[allow(clippy::disallowed_methods, reason = "the moment of a kill is real time")]
fn wait(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// Kills the node, now and then the supervisor too, and waits until it serves again.
fn kill_and_recover(server: &mut Server, kill: u32, moments: &mut Dice) {
    wait(60 + moments.below(450));
    if kill % ALL_EVERY == ALL_EVERY - 1 {
        server.kill_all();
        server.resume();
    } else {
        server.replace_node();
    }
}

#[test]
fn kill_under_load_nothing_acknowledged_is_lost() {
    // Small segments and early checkpoints: kills hit rotations and images too.
    kill_under_load(&["--log-segment-bytes", "4MiB", "--checkpoint-log-bytes-min", "8MiB"]);
}

#[test]
fn kill_under_splits_nothing_acknowledged_is_lost() {
    // Slots of 128 small tree nodes and small extent regions: meganodes are split all the time, pairs added.
    let splits = kill_under_load(&[
        "--slot-bytes",
        "64KiB",
        "--tree-node-bytes",
        "512",
        "--node-region-bytes",
        "512KiB",
        "--extent-region-bytes",
        "8MiB",
        "--split-fill-percent",
        "50",
        "--memory-limit-bytes",
        "256MiB",
        "--log-segment-bytes",
        "4MiB",
        "--checkpoint-log-bytes-min",
        "2MiB",
    ]);
    assert!(splits > 8, "the tree grew over many meganodes: {splits}");
}

/// Kills a server under load, again and again; how many meganodes there are in the end.
fn kill_under_load(flags: &[&str]) -> usize {
    let mut server = Server::start_with(&[&["--allow-drills"][..], flags].concat());
    let traffic = Traffic::new(server.address());
    let ledgers = std::thread::scope(|scope| {
        let traffic = &traffic;
        let writers: Vec<_> = (0u64..)
            .zip(PATIENCE)
            .map(|(client, patience)| scope.spawn(move || traffic.keep_ledger(client, patience)))
            .collect();
        let meeting: Vec<_> = (0..MEETING)
            .map(|client| scope.spawn(move || traffic.meet(client, Duration::from_secs(2 + client * 20))))
            .collect();
        let ending = traffic.ending();
        let mut moments = Dice::drawn(MOMENTS);
        for kill in 0..kills() {
            traffic.wait_acknowledged(WRITES_MIN);
            kill_and_recover(&mut server, kill, &mut moments);
        }
        drop(ending);
        for client in meeting {
            client.join().expect("a client that met others did not panic");
        }
        let join =
            |writer: std::thread::ScopedJoinHandle<'_, _>| writer.join().expect("a writer did not panic");
        writers.into_iter().map(join).collect::<Vec<_>>()
    });
    // Once more with nobody there: what was acknowledged must not have been in memory only.
    server.kill_all();
    server.resume();
    let keys: usize = ledgers.iter().map(|ledger| traffic.verify(ledger)).sum();
    let (acknowledged, unknown) = ledgers
        .iter()
        .map(cell_tests::ledger::Ledger::counts)
        .fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1));
    assert!(acknowledged > u64::from(kills()) * WRITES_MIN, "there was load: {acknowledged} writes");
    let verified = server.cell(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");

    let mut operations = 0;
    for (key, history) in traffic.recorder.into_history() {
        operations += history.len();
        if let Err(violation) = checker::check(&history, None) {
            panic!("{} is not linearizable: {violation:?}\n{history:#?}", key.escape_ascii());
        }
    }
    println!(
        "{} kills, {keys} keys verified, {acknowledged} writes acknowledged, {unknown} unknown, \
         {operations} operations on shared keys checked",
        kills()
    );
    let address = server.address().to_string();
    let shape = program::run(&["--json", "tree", "show", "--server", &address]);
    assert_eq!(shape.code, Some(0), "{shape:?}");
    shape.out.matches("\"slot\"").count()
}

/// Mixed operations of clients on both search paths, with kills between: every key's history has an order.
#[test]
fn mixed_operations_on_both_paths_with_kills_are_linearizable() {
    let wanted = Repeats { plain: 10_000, quick: 100_000, full: 250_000, long: 2_000_000 }.of_this_run();
    let wanted = u64::from(wanted);
    let mut server = Server::start();
    let traffic = Traffic::new(server.address());
    std::thread::scope(|scope| {
        let traffic = &traffic;
        let meeting: Vec<_> = (0..MEETING_ALONE)
            .map(|client| scope.spawn(move || traffic.meet(client, Duration::from_secs(1 + client * 10))))
            .collect();
        let ending = traffic.ending();
        let mut moments = Dice::drawn(MOMENTS);
        for part in 1..=4 {
            while traffic.recorder.ticks() < 2 * wanted * part / 4 {
                wait(5);
            }
            if part < 4 {
                kill_and_recover(&mut server, 0, &mut moments);
            }
        }
        drop(ending);
        for client in meeting {
            client.join().expect("a client that met others did not panic");
        }
    });
    let mut operations = 0;
    for (key, history) in traffic.recorder.into_history() {
        operations += history.len() as u64;
        if let Err(violation) = checker::check(&history, None) {
            panic!("{} is not linearizable: {violation:?}", key.escape_ascii());
        }
    }
    assert!(operations >= wanted, "{operations} operations");
    println!("{operations} operations checked");
}

/// The harness's twin that must fail: the same load and the same check on a server that logs nothing. If this
/// passes the check, the check is worth nothing.
#[test]
fn kill_without_a_log_is_caught_by_the_same_check() {
    let mut server = Server::start_with(&["--durability", "none"]);
    let traffic = Traffic::new(server.address());
    let ledger = std::thread::scope(|scope| {
        let writer = scope.spawn(|| traffic.keep_ledger(0, Duration::from_secs(60)));
        traffic.wait_acknowledged(2 * WRITES_MIN);
        traffic.stop();
        writer.join().expect("a writer did not panic")
    });
    assert!(ledger.counts().0 > WRITES_MIN);
    server.kill_all();
    server.resume();
    let verified = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| traffic.verify(&ledger)));
    assert!(verified.is_err(), "everything was lost and nobody noticed");
}

#[test]
fn supervisor_killed_its_node_dies_with_it_and_data_stays() {
    let mut server = Server::start();
    assert_eq!(server.cell(&["put", "greeting", "hello"]).code, Some(0));
    server.kill_all();
    server.resume();
    let said = server.cell(&["get", "greeting"]);
    assert_eq!((said.code, said.out.trim_end()), (Some(0), "hello"));
}

#[test]
fn sigterm_checkpoints_and_exits_cleanly() {
    let mut server = Server::start();
    assert_eq!(server.cell(&["put", "greeting", "hello"]).code, Some(0));
    assert_eq!(server.stop(), Some(0), "{}", server.log());
    server.resume();
    let said = server.cell(&["get", "greeting"]);
    assert_eq!((said.code, said.out.trim_end()), (Some(0), "hello"));
}
