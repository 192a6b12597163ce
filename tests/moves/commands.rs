//! `cell region move` as a user runs it: tried, watched, waited for, cancelled; and all that is refused, by
//! the command and by the admin API.

use cell_tests::program::{self, Said};
use cell_tests::server::Server;
use cell_tests::wait;

use crate::moves::{Ends, assert_filled, assert_sound, cluster, fill, is_over, move_and_wait, region_move};

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const UNREACHABLE: i32 = 4;
const PARTIAL: i32 = 6;

/// A command that ends so, with these words on standard error.
fn assert_ends(said: &Said, code: i32, words: &[&str]) {
    assert_eq!(said.code, Some(code), "{said:?}");
    for words in words {
        assert!(said.err.contains(words), "no `{words}`: {said:?}");
    }
}

/// The store's first pair, and the node that is to have it.
struct Case<'a> {
    server: &'a Server,
    ends: Ends,
    pair: String,
    to: String,
}

impl Case<'_> {
    fn of(server: &Server) -> Case<'_> {
        let ends = Ends::of(&server.view(), 0);
        Case { server, ends, pair: ends.pair.to_string(), to: ends.target.to_string() }
    }

    fn cell(&self, arguments: &[&str]) -> Said {
        region_move(self.server, self.ends.asked, arguments)
    }

    fn listed(&self) -> String {
        let http = self.server.http_address_of(self.ends.asked).to_string();
        // A node that is late is left out of the list.
        let all =
            || Some(program::run(&["region", "ls", "--http", &http])).filter(|said| said.code == Some(0));
        wait::until_some("all nodes report their regions", all).out
    }

    /// The pair is where it was, and its move is over.
    fn assert_stayed(&self, outcome: &str) {
        let Ends { pair, source, asked, .. } = self.ends;
        let of = self.server.wait_move(asked, pair, "over", is_over);
        assert_eq!(of["outcome"], outcome, "{of}");
        let view = self.server.view();
        assert!(view.is_served(pair) && view.pair(pair)["node"] == source, "{view:?}");
    }
}

/// Nothing of this begins.
fn bad_input_is_refused(case: &Case<'_>) {
    let (pair, to, own) = (case.pair.as_str(), case.to.as_str(), case.ends.source.to_string());
    let no_pair = case.cell(&["4711", "--to", to]);
    assert_ends(&no_pair, REFUSED, &["There is no pair-4711.", "lists the pairs"]);
    let no_node = case.cell(&[pair, "--to", "9"]);
    assert_ends(&no_node, REFUSED, &["No node-9 is in the cluster just now.", "lists the nodes"]);
    let already = format!("Node-{own} has pair-{pair} already.");
    assert_ends(&case.cell(&[pair, "--to", &own]), REFUSED, &[&already, "shows who has it"]);
    assert_ends(&case.cell(&[pair, "--to", &own, "--dry-run"]), REFUSED, &[&already]);
    let none = format!("No move of pair-{pair} is under way.");
    assert_ends(&case.cell(&[pair, "--cancel"]), REFUSED, &[&none]);
    let wrong: [&[&str]; 7] = [
        &[pair],
        &["--to", to],
        &["one", "--to", to],
        &[pair, "--to", "-1"],
        &[pair, "--cancel", "--to", to],
        &[pair, "--to", to, "--wait", "--dry-run"],
        &[pair, "--to", to, "--wait=soon"],
    ];
    for arguments in wrong {
        assert_ends(&case.cell(arguments), USAGE, &[]);
    }
    let nobody = ["region", "move", pair, "--to", to, "--http", "127.0.0.1:1"];
    assert_ends(&program::run(&nobody), UNREACHABLE, &[]);

    let Ends { pair, source, asked, .. } = case.ends;
    let refused = |pair: u64, to: u64| {
        let (status, document) = case.server.ask_move(asked, pair, to);
        assert!(document["next"].is_string(), "{document}");
        (status, document["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(refused(4711, 1).0, 404);
    assert_eq!(refused(pair, 9).0, 404);
    assert_eq!(refused(pair, source), (409, "move_refused".to_owned()));
    let post = |path: &str, body: &str| case.server.http_post(asked, path, body).expect("it answers").0;
    for body in ["", "{}", "[]", r#"{"pair": -1, "to": 1}"#, r#"{"pair": 1, "to": 1, "why": "x"}"#] {
        assert_eq!(post("/api/v1/moves", body), 400, "{body}");
    }
    assert_eq!(post("/api/v1/moves?reason=%20&hurry=1", r#"{"pair": 1, "to": 1}"#), 400);
    assert_eq!(post("/api/v1/moves:cancel", "{}"), 400);
    assert_eq!(case.server.move_of(asked, pair), None, "nothing has started");
}

fn dry_run_does_nothing(case: &Case<'_>) {
    let (pair, to) = (case.pair.as_str(), case.to.as_str());
    let said = case.cell(&[pair, "--to", to, "--dry-run"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let words =
        format!("pair {pair} would move from node {} to node {to}; nothing was done\n", case.ends.source);
    assert_eq!(said.out, words);
    assert_eq!(case.server.move_of(case.ends.asked, case.ends.pair), None);
    assert!(!case.listed().contains("moving:"));
}

/// A move that takes seconds: a wait ends before it, it is listed, no other one begins, it is cancelled.
fn move_is_watched_and_cancelled(case: &Case<'_>) {
    let (pair, to) = (case.pair.as_str(), case.to.as_str());
    let said = case.cell(&[pair, "--to", to, "--reason", "more room & light", "--wait=1ms"]);
    assert_ends(&said, PARTIAL, &[&format!("pair {pair} from node {}", case.ends.source), " after 1"]);
    let of = case.server.move_of(case.ends.asked, case.ends.pair).expect("it is under way");
    assert!(of["why"].as_str().is_some_and(|why| why.ends_with(": more room & light")), "{of}");
    let line = format!("moving: pair {pair} from node {} to node {to}: ", case.ends.source);
    wait::until("it is shown how far the copy is", || {
        let listed = case.listed();
        assert!(listed.contains(&line), "{listed}");
        let far = [" %, since ", " copied, catching up, since "];
        listed.contains("copying, ") && far.iter().any(|far| listed.contains(far))
    });
    let beside = format!("Pair-{pair} is on its way from node-{} to node-{to}", case.ends.source);
    assert_ends(&case.cell(&[pair, "--to", to]), REFUSED, &[&beside, "cancel it first"]);
    assert_ends(&case.cell(&[pair, "--to", to, "--dry-run"]), REFUSED, &[&beside]);
    let said = case.cell(&[pair, "--cancel"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("is cancelled: it stays at node"), "{said:?}");
    case.assert_stayed("cancelled");
    assert_ends(&case.cell(&[pair, "--cancel"]), REFUSED, &["No move of "]);
    assert!(!case.listed().contains("moving:"));
}

/// Who waits for a move hears that somebody else has cancelled it.
fn wait_ends_with_a_cancelled_move(case: &Case<'_>) {
    let Ends { pair, asked, .. } = case.ends;
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| case.cell(&[&case.pair, "--to", &case.to, "--wait"]));
        case.server.wait_move(asked, pair, "under way again", |of| !is_over(of));
        let said = case.cell(&[&case.pair, "--cancel"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        let waited = waiting.join().expect("it does not panic");
        assert_ends(&waited, FAILED, &["cancelled", "shows who has it"]);
    });
    case.assert_stayed("cancelled");
}

/// A node that has just died is a member until its lease has ended; then it is none.
fn dead_node_gets_nothing(case: &Case<'_>) {
    let Ends { pair, target, asked, .. } = case.ends;
    case.server.take_down(target);
    let (status, answer) = case.server.ask_move(asked, pair, target);
    assert!(matches!(status, 200 | 404 | 409), "{answer}");
    let view = case.server.wait_view("without the dead", |view| {
        view.pairs().iter().all(|row| view.is_served(row["pair"].as_u64().unwrap_or(0)))
    });
    assert_eq!(view.pair(pair)["node"], case.ends.source, "{view:?}");
    wait::until("the dead node is no member", || case.server.ask_move(asked, pair, target).0 == 404);
    let words = format!("No node-{target} is in the cluster just now.");
    assert_ends(&case.cell(&[&case.pair, "--to", &case.to]), REFUSED, &[&words]);
    if status == 200 {
        case.assert_stayed("given_up"); // while its lease lasted
    }
    case.server.start_node(target);
    case.server.wait_healthy();
}

#[test]
fn moves_are_tried_watched_cancelled_and_refused() {
    let server = cluster("--nodes=3", &["--move-bytes-per-second=1MiB"]);
    // Logs that take a while to copy.
    for _ in 0..4 {
        fill(&server);
    }
    let case = Case::of(&server);
    bad_input_is_refused(&case);
    dry_run_does_nothing(&case);
    move_is_watched_and_cancelled(&case);
    wait_ends_with_a_cancelled_move(&case);
    dead_node_gets_nothing(&case);
    // By the default rate it takes a moment.
    let http = server.http_address_of(case.ends.asked).to_string();
    let tuned = program::run(&["tune", "set", "--http", &http, "move_bytes_per_second=256MiB", "--wait"]);
    assert_eq!(tuned.code, Some(0), "{tuned:?}");
    move_and_wait(&server, &Ends::of(&server.view(), 0));
    assert_filled(&server);
    assert_sound(&server);
}
