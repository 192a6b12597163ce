//! `kill -9` of source, target or both at each stage of a move, under load: the pair is served again, the
//! move is over, and nothing that was acknowledged is lost.

use std::time::Duration;

use cell_tests::dice::Dice;
use cell_tests::repeats::Repeats;
use cell_tests::server::Server;
use cell_tests::traffic::Traffic;
use rustix::process::Pid;

use crate::moves::{SLOW, Stage, assert_filled, assert_sound, cluster, fill, hold, is_over};

/// How long each operation is tried: longer than any takeover.
const PATIENCE: Duration = Duration::from_secs(60);
/// Clients that meet on shared keys.
const MEETING: u64 = 2;
/// Writes between two kills.
const WRITES_MIN: u64 = 100;
/// What the first case of a run is drawn for.
const FIRST: u64 = 1 << 33;

/// Who dies.
#[derive(Clone, Copy, Debug)]
enum Dies {
    Source,
    Target,
    Both,
}

/// Every case. Any four in a row are of four stages.
fn cases() -> Vec<(Stage, Dies)> {
    let whom = [Dies::Source, Dies::Target, Dies::Both];
    (0..12).map(|number| (Stage::ALL[number % 4], whom[(number + number / 4) % 3])).collect()
}

/// How many kills this run demands.
fn kills() -> usize {
    Repeats { plain: 4, quick: 4, full: 6, long: 36 }.of_this_run() as usize
}

/// Kills ends of a move that is at a stage, and waits until all is well again.
fn kill(server: &Server, number: usize, (stage, dies): (Stage, Dies)) {
    let held = hold(server, number, stage);
    let (ends, [source, target]) = (held.ends, held.processes);
    let (nodes, die): (&[u64], &[Pid]) = match dies {
        Dies::Source => (&[ends.source], &[source]),
        Dies::Target => (&[ends.target], &[target]),
        Dies::Both => (&[ends.source, ends.target], &[source, target]),
    };
    nodes.iter().for_each(|node| server.kill_by_drill(*node));
    drop(held);
    server.wait_view("followed by others", |view| {
        let followed = |node| view.process(node).is_some_and(|process| !die.contains(&process));
        followed(ends.source) && followed(ends.target)
    });
    server.wait_healthy();
    let of = server.wait_move(ends.asked, ends.pair, "over", is_over);
    println!("{dies:?} killed at {stage:?}: {of}");
}

#[test]
fn ends_killed_at_each_stage_of_a_move_nothing_acknowledged_is_lost() {
    let server = cluster("--nodes=3", &SLOW);
    fill(&server);
    let traffic = Traffic::new(server.address());
    let ledger = std::thread::scope(|scope| {
        let traffic = &traffic;
        let writing = scope.spawn(move || traffic.keep_ledger(0, PATIENCE));
        let meeting: Vec<_> =
            (0..MEETING).map(|client| scope.spawn(move || traffic.meet(client, PATIENCE))).collect();
        let ending = traffic.ending();
        let (cases, first) = (cases(), Dice::drawn(FIRST).below(12));
        let first = usize::try_from(first).expect("it is small");
        for number in first..first + kills() {
            traffic.wait_acknowledged(WRITES_MIN);
            kill(&server, number, cases[number % cases.len()]);
        }
        traffic.wait_acknowledged(WRITES_MIN);
        drop(ending);
        for client in meeting {
            client.join().expect("a client that met others did not panic");
        }
        writing.join().expect("a writer did not panic")
    });
    assert_filled(&server);
    let keys = traffic.verify(&ledger);
    let operations = traffic.check_history();
    println!("{} kills: {keys} keys verified, {operations} operations checked", kills());
    assert_sound(&server);
}

#[test]
fn cases_are_all_there_are() {
    let mut cases: Vec<String> = cases().iter().map(|case| format!("{case:?}")).collect();
    cases.sort_unstable();
    cases.dedup();
    assert_eq!(cases.len(), 12, "{cases:?}");
}
