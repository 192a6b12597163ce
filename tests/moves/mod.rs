//! Planned moves of pairs over real processes: under writers and one-sided readers, with ends that stand
//! still or are killed at each stage, into nodes without room, and all that is refused.

mod commands;
mod full;
mod in_place;
mod kills;
mod load;
mod rdma;
mod stale;

use std::time::Duration;

use cell_client::{Client, ClientOptions};
use cell_tests::cluster::View;
use cell_tests::process::{signal, stop};
use cell_tests::program::{self, Said};
use cell_tests::server::Server;
use cell_tests::traffic::{put_all, spread};
use cell_tests::wait;
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// Sizes of small regions: nodes that join have the same.
const SIZES: [&str; 3] = ["--node-region-bytes=64MiB", "--slot-bytes=4MiB", "--extent-region-bytes=128MiB"];
/// Faults by the socket for drills, and an admin API that is asked as often as a test likes.
/// Pairs move as the tests say alone.
const FLAGS: [&str; 4] =
    ["--balance=off", "--allow-drills", "--http-changes-per-second=10000", "--tracing-filter=info"];
/// Ends stand still within it while the other one copies.
const LEASE: [&str; 2] = ["--lease-ms=6s", "--coordinator-deadline-ms=1s"];
/// Copies that take a moment, of logs that do not grow long under load.
const SLOW: [&str; 2] = ["--move-bytes-per-second=16MiB", "--checkpoint-log-bytes-min=8MiB"];
/// Entries of [`fill`], some megabytes in each pair together, and their value.
const FILLING: u64 = 186;
static VALUE: [u8; 64 << 10] = [7; 64 << 10];
/// Exit codes.
const REFUSED: i32 = 3;
const UNREACHABLE: i32 = 4;
/// How long a move may take, as the command has it.
const MOVES_WITHIN: Duration = Duration::from_secs(600);
/// How often a move is asked for, and an end of one is to be held at a stage that it may have passed by then.
const TRIES_MAX: u32 = 20;

/// A cluster of so many nodes, each with a pair.
fn cluster(nodes: &str, more: &[&str]) -> Server {
    let server = Server::start_with(&[&[nodes], &SIZES[..], &FLAGS, &LEASE, more].concat());
    server.wait_healthy();
    server
}

fn filling(number: u64) -> Vec<u8> {
    spread(number, &format!("-filling-{number:03}"))
}

fn connect(server: &Server) -> Client {
    let options = ClientOptions { deadline_ms: 60_000, ..ClientOptions::default() };
    Client::connect(&server.address().to_string(), options).expect("the server is there")
}

/// Gives each pair some megabytes, so that a slow copy of it takes a while.
fn fill(server: &Server) {
    put_all(&mut connect(server), 0..FILLING, 16, |number| (filling(number), VALUE.to_vec()));
}

/// All that was filled in is there.
fn assert_filled(server: &Server) {
    let mut client = connect(server);
    for number in 0..FILLING {
        let item = client.get(&filling(number)).expect("it is served");
        assert!(item.is_some_and(|item| item.value == VALUE), "{number}");
    }
}

/// Who moves from where to where; and a node that has no part in it, if there are three.
#[derive(Clone, Copy, Debug)]
struct Ends {
    pair: u64,
    source: u64,
    target: u64,
    asked: u16,
}

impl Ends {
    /// The pairs in turn, each to the next node.
    fn of(view: &View, number: usize) -> Ends {
        let nodes = view.owned().len() as u64;
        let row = &view.pairs()[number % view.pairs().len()];
        let source = row["node"].as_u64().expect("a pair has a node");
        let [target, other] = [1, 2].map(|step| (source + step) % nodes);
        let asked = u16::try_from(other).expect("it is small");
        Ends { pair: row["pair"].as_u64().expect("a number"), source, target, asked }
    }

    /// The processes of source and target.
    fn processes(&self, view: &View) -> [Pid; 2] {
        [self.source, self.target].map(|node| view.process(node).expect("it runs"))
    }
}

/// `cell region move`, by a node's admin API.
fn region_move(server: &Server, asked: u16, arguments: &[&str]) -> Said {
    let http = server.http_address_of(asked).to_string();
    program::run(&[&["region", "move", "--http", &http][..], arguments].concat())
}

/// Moves a pair by the command, which waits for it.
fn move_and_wait(server: &Server, ends: &Ends) {
    let (pair, to) = (ends.pair.to_string(), ends.target.to_string());
    let mut is_open = false;
    for _ in 0..TRIES_MAX {
        let said = region_move(server, ends.asked, &[&pair, "--to", &to, "--wait"]);
        if said.code == Some(0) {
            assert_eq!(said.out, format!("pair {pair} is served by node {to}\n"), "{said:?}");
            return assert_shown(server, ends);
        }
        // On a machine that is slow for its load a copy may fall behind: the move goes back, and nothing is
        // lost. Or nobody answers in time, and it is open whether it was started: then it may be refused,
        // too, because it was.
        is_open |= said.code == Some(UNREACHABLE);
        let is_behind = said.err.contains("its owner writes faster than its copy reads");
        let is_slow = is_behind || is_open && matches!(said.code, Some(UNREACHABLE | REFUSED));
        assert!(is_slow, "{ends:?}: {said:?}");
        if has_moved(server, ends) {
            return assert_shown(server, ends);
        }
    }
    panic!("{ends:?}: no move of {TRIES_MAX} came to its end");
}

/// Whether a pair is at its target, once no move of it is under way.
fn has_moved(server: &Server, ends: &Ends) -> bool {
    wait::within(MOVES_WITHIN, "no move of the pair is under way", || {
        (!server.is_moving(ends.asked, ends.pair)?).then_some(())
    });
    server.view().pair(ends.pair)["node"] == ends.target
}

/// A pair that has moved is shown where it is.
fn assert_shown(server: &Server, ends: &Ends) {
    // It was shown at its old owner for up to a second.
    let http = server.http_address_of(ends.asked).to_string();
    // A node that has much to do may not answer, or leave out another one.
    let listed = wait::within(MOVES_WITHIN, "all nodes report their regions", || {
        let said = program::run(&["region", "ls", "--json", "--http", &http]);
        Some(said).filter(|said| said.code == Some(0))
    });
    let regions: Value = serde_json::from_str(&listed.out).expect("a document");
    let mut rows = regions["regions"].as_array().expect("rows").iter();
    let row = rows.find(|row| row["pair"] == ends.pair).expect("the pair is there");
    assert_eq!(row["node"], ends.target, "{row}");
    let view = server.view();
    assert_eq!(view.pair(ends.pair)["node"], ends.target, "{view:?}");
}

/// Whether a move is over.
fn is_over(of: &Value) -> bool {
    !of["outcome"].is_null()
}

/// How far a move is to be when something is done to its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its source does not see it yet.
    Wanted,
    /// Its target copies.
    Copying,
    /// The copy is ready; its source stands still.
    Ready,
    /// It was handed over; its target stands still.
    Handed,
}

impl Stage {
    const ALL: [Stage; 4] = [Stage::Wanted, Stage::Copying, Stage::Ready, Stage::Handed];

    fn name(self) -> &'static str {
        match self {
            Stage::Wanted => "wanted",
            Stage::Copying => "copying",
            Stage::Ready => "ready",
            Stage::Handed => "handed",
        }
    }
}

/// A move that is at a stage; who stands still goes on when this is dropped, if they live.
#[derive(Debug)]
struct Held {
    ends: Ends,
    /// Of source and target.
    processes: [Pid; 2],
    stopped: Vec<Pid>,
}

impl Held {
    /// Lets one that stands still go on.
    fn go_on(&mut self, process: Pid) {
        self.stopped.retain(|stopped| *stopped != process);
        signal(process, Signal::CONT);
    }

    /// Has one stand still.
    fn stop(&mut self, process: Pid) {
        self.stopped.push(process);
        stop(process);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for process in self.stopped.drain(..) {
            // It may have been killed.
            let _ = rustix::process::kill_process(process, Signal::CONT);
        }
    }
}

/// Begins moves until one is held at a stage, within the leases of both ends. Copies must be slow enough to
/// be seen: [`fill`] and [`SLOW`] make them so.
fn hold(server: &Server, number: usize, stage: Stage) -> Held {
    hold_between(server, stage, |view| Ends::of(view, number))
}

/// The same, between ends of the caller's.
fn hold_between(server: &Server, stage: Stage, ends: impl Fn(&View) -> Ends) -> Held {
    for _ in 0..TRIES_MAX {
        let view = server.wait_healthy();
        let ends = ends(&view);
        let processes = ends.processes(&view);
        let mut held = Held { ends, processes, stopped: Vec::new() };
        if reaches(server, &mut held, stage) {
            return held;
        }
        let Ends { pair, asked, .. } = ends;
        drop(held);
        server.wait_move(asked, pair, "over", is_over);
    }
    panic!("no move of {TRIES_MAX} was held at {stage:?}");
}

/// Whether a move was held at a stage, and did not pass it.
fn reaches(server: &Server, held: &mut Held, stage: Stage) -> bool {
    let Ends { pair, target, asked, .. } = held.ends;
    let [source_process, target_process] = held.processes;
    if stage == Stage::Wanted {
        held.stop(source_process);
    }
    let (status, answer) = server.ask_move(asked, pair, target);
    assert_eq!(status, 200, "{answer}");
    let number = answer["move"]["number"].clone();
    let stands = |stage: Stage| {
        let what = format!("{} or over", stage.name());
        let of = server.wait_move(asked, pair, &what, |of| {
            of["number"] == number && (of["stage"] == stage.name() || is_over(of))
        });
        !is_over(&of)
    };
    if stage == Stage::Wanted {
        return stands(Stage::Wanted);
    }
    let copies = stands(Stage::Copying);
    if !copies || stage == Stage::Copying {
        return copies;
    }
    held.stop(source_process);
    let is_ready = stands(Stage::Ready);
    if !is_ready || stage == Stage::Ready {
        return is_ready;
    }
    held.stop(target_process);
    held.go_on(source_process);
    stands(Stage::Handed)
}

/// Nothing that the tree promises is broken.
fn assert_sound(server: &Server) {
    server.wait_healthy();
    let verified = server.cell(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}
