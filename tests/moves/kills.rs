//! `kill -9` of source, target or both, of who balances, and of the supervisor with all nodes, at each stage
//! of a move, under load: the pair is served again, the move is over, and nothing that was acknowledged is
//! lost.

use std::time::Duration;

use cell_tests::cluster::View;
use cell_tests::dice::Dice;
use cell_tests::process::{signal, wait_ended};
use cell_tests::repeats::Repeats;
use cell_tests::server::Server;
use cell_tests::traffic::Traffic;
use cell_tests::wait;
use rustix::process::{Pid, Signal};

use crate::balance::balances;
use crate::moves::{
    Ends, SLOW, Stage, assert_filled, assert_sound, cluster, fill, hold, hold_between, is_over,
};

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

/// The stages in turn, so many, from one on that is drawn for this run.
fn stages(repeats: Repeats) -> impl Iterator<Item = Stage> {
    let first = usize::try_from(Dice::drawn(FIRST).below(4)).expect("it is small");
    (first..).map(|number| Stage::ALL[number % 4]).take(repeats.of_this_run() as usize)
}

/// A move between nodes of which the balancer is none, if it has not got all pairs.
fn beside(view: &View, balancer: u64) -> Ends {
    let rows = view.pairs();
    let row = rows.iter().find(|row| row["node"] != balancer).unwrap_or(&rows[0]);
    let source = row["node"].as_u64().expect("a pair has a node");
    let other = |than: [u64; 2]| (0..3).find(|node| !than.contains(node)).expect("there are three");
    let target = other([source, balancer]);
    let asked = u16::try_from(other([source, target])).expect("it is small");
    Ends { pair: row["pair"].as_u64().expect("a number"), source, target, asked }
}

/// Kills the node that balances while a move is at a stage, and waits until all is well again.
fn kill_balancer(server: &Server, stage: Stage) {
    let balances = || (0..3).find(|node| balances(server, *node)).map(u64::from);
    let balancer = wait::until_some("somebody balances", balances);
    let process = server.wait_healthy().process(balancer).expect("it runs");
    let held = hold_between(server, stage, |view| beside(view, balancer));
    let ends = held.ends;
    signal(process, Signal::KILL);
    drop(held);
    let is_another = |view: &View| view.process(balancer).is_some_and(|found| found != process);
    server.wait_view("followed by another process", is_another);
    server.wait_healthy();
    let of = server.wait_move(ends.asked, ends.pair, "over", is_over);
    let next = wait::until_some("somebody balances again", balances);
    println!("{balancer} balanced and was killed at {stage:?}, {next} does now: {of}");
}

/// Kills the supervisor while a move is at a stage: all nodes die with it. All start again.
fn kill_supervisor(server: &mut Server, number: usize, stage: Stage) {
    let held = hold(server, number, stage);
    let (ends, nodes) = (held.ends, server.nodes());
    signal(server.supervisor(), Signal::KILL);
    drop(held); // who stood still goes on, without a supervisor
    wait_ended(&nodes);
    server.kill_all();
    server.resume();
    server.wait_healthy();
    let of = server.wait_move(ends.asked, ends.pair, "over", is_over);
    println!("supervisor killed at {stage:?}: {of}");
}

/// Does this beside load, with some of it before each kill; all that was acknowledged is there afterwards.
fn nothing_is_lost_by(kills: impl FnOnce(&mut Server, &Traffic)) {
    let mut server = cluster("--nodes=3", &SLOW);
    fill(&server);
    let traffic = Traffic::new(server.address());
    let (ledger, _) = traffic.during(MEETING, PATIENCE, || {
        kills(&mut server, &traffic);
        traffic.wait_acknowledged(WRITES_MIN);
    });
    assert_filled(&server);
    let keys = traffic.verify(&ledger);
    let operations = traffic.check_history();
    println!("{keys} keys verified, {operations} operations checked");
    assert_sound(&server);
}

#[test]
fn ends_killed_at_each_stage_of_a_move_nothing_acknowledged_is_lost() {
    nothing_is_lost_by(|server, traffic| {
        let (cases, first) = (cases(), Dice::drawn(FIRST).below(12));
        let first = usize::try_from(first).expect("it is small");
        for number in first..first + kills() {
            traffic.wait_acknowledged(WRITES_MIN);
            kill(server, number, cases[number % cases.len()]);
        }
    });
}

#[test]
fn balancer_killed_at_each_stage_of_a_move_nothing_acknowledged_is_lost() {
    nothing_is_lost_by(|server, traffic| {
        for stage in stages(Repeats { plain: 4, quick: 1, full: 4, long: 8 }) {
            traffic.wait_acknowledged(WRITES_MIN);
            kill_balancer(server, stage);
        }
    });
}

#[test]
fn supervisor_killed_at_each_stage_of_a_move_nothing_acknowledged_is_lost() {
    nothing_is_lost_by(|server, traffic| {
        for (number, stage) in stages(Repeats { plain: 4, quick: 1, full: 4, long: 8 }).enumerate() {
            traffic.wait_acknowledged(WRITES_MIN);
            kill_supervisor(server, number, stage);
        }
    });
}

#[test]
fn cases_are_all_there_are() {
    let mut cases: Vec<String> = cases().iter().map(|case| format!("{case:?}")).collect();
    cases.sort_unstable();
    cases.dedup();
    assert_eq!(cases.len(), 12, "{cases:?}");
}
