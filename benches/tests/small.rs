//! The benches, small: that they run, that contenders agree, and that rows are what `--json` promises. What
//! is measured here means nothing.

#[path = "small/command.rs"]
mod command;

use std::process::{Command, Output};

use cell_tests::program;
use serde_json::Value;

/// The benches, which start this `cell`.
fn benches() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cell-benches"));
    command.env(program::VARIABLE, program::path());
    command
}

/// Entries of what fills several stores, and is about none of them being large.
const FEW: [&str; 2] = ["--entries", "5000"];

/// Runs a bench with 20,000 entries and returns its rows.
fn rows(bench: &str) -> Vec<Value> {
    rows_of(bench, &[])
}

fn rows_of(bench: &str, parts: &[&str]) -> Vec<Value> {
    rows_and_notes(bench, parts).0
}

/// The rows, and what is said besides.
fn rows_and_notes(bench: &str, parts: &[&str]) -> (Vec<Value>, String) {
    let entries = if parts.contains(&FEW[0]) { &[][..] } else { &["--entries", "20000"][..] };
    let output = benches()
        .args([bench, "--rounds", "2", "--json"])
        .args(entries)
        .args(parts)
        .current_dir(std::env::temp_dir())
        .output()
        .expect("the benches can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("rows are UTF-8");
    let rows = text.lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect();
    (rows, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Each figure is that of something which was done.
fn assert_rows(bench: &str, rows: &[Value], wanted: &[&str]) {
    for row in rows {
        assert!(row["ours"].as_f64().is_some_and(|ours| ours > 0.0), "{row}");
    }
    assert_rows_or_nothing(bench, rows, wanted);
}

/// As [`assert_rows`], of spans so short that nothing may have been done in one: a machine with much else to
/// do stands still for longer.
fn assert_rows_or_nothing(bench: &str, rows: &[Value], wanted: &[&str]) {
    for row in rows {
        let name = row["bench"].as_str().expect("a row has a name");
        assert!(name.starts_with(&format!("{bench}/")), "{name}");
        assert!(row["ours"].as_f64().is_some_and(|ours| ours >= 0.0), "{row}");
        assert!(row["theirs"].as_f64().is_none_or(|theirs| theirs >= 0.0), "{row}");
        assert!(row["unit"].is_string() && row["rival"].is_string(), "{row}");
        for field in ["theirs", "ratio", "goal", "met"] {
            assert!(row.get(field).is_some(), "{row} lacks {field}");
        }
    }
    for name in wanted {
        assert!(rows.iter().any(|row| row["bench"] == *name), "no row {name}");
    }
}

/// There is a figure of this name with this unit and goal.
fn assert_goal(rows: &[Value], name: &str, unit: &str, goal: &str) {
    let row = rows.iter().find(|row| row["bench"] == name && row["goal"] == goal);
    assert!(row.is_some_and(|row| row["unit"] == unit), "{name}, {unit}, {goal}: {row:?}");
}

/// Takes the figures of what failed, of which nothing is the goal, out of rows.
fn without_failed(rows: Vec<Value>, count: usize) -> Vec<Value> {
    without_none(rows, "failed", count)
}

/// Takes so many figures with this text in their names, of which nothing is the goal, out of rows.
fn without_none(rows: Vec<Value>, text: &str, count: usize) -> Vec<Value> {
    let (none, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| has(row, text));
    assert_eq!(none.len(), count, "{none:?}");
    assert!(none.iter().all(|row| row["ours"] == 0.0 && row["met"] == true), "{none:?}");
    rows
}

#[test]
fn local_small_prints_every_figure() {
    let (rows, notes) = rows_and_notes("local", &[]);
    // mimalloc gives back what the first fill freed.
    let in_place = if cfg!(feature = "mimalloc") {
        "local/insert, memory of ours in place"
    } else {
        "local/insert, memory in place"
    };
    let wanted = [
        "local/insert",
        in_place,
        "local/search uniform",
        "local/search zipf 0.99",
        "local/search missing keys",
        "local/search, 16 in hand, uniform",
        "local/get uniform",
        "local/scan 50 with values",
        "local/miss, dependent",
        "local/lines a search uniform",
    ];
    assert_rows("local", &rows, &wanted);
    assert_lmdb(&rows, &notes, &["local/get uniform", "local/scan 50 with values"]);
    // Of each kind of keys, and of scans.
    let renewed = rows.iter().filter(|row| row["rival"] == "LMDB, one transaction renewed");
    assert_eq!(renewed.count(), if cfg!(feature = "lmdb") { 4 } else { 0 });
    // Of two rounds nothing is said to be met or missed.
    assert!(rows.iter().all(|row| row["met"].is_null()), "{rows:?}");
    assert!(notes.contains("too few rounds"), "{notes}");
    assert_goal(&rows, "local/insert", "op/s", ">= 1.3");
    assert_goal(&rows, "local/scan 50 with values", "op/s", ">= 2");
}

/// These figures are beside LMDB's, where it is in the build; where it is not, that is said.
fn assert_lmdb(rows: &[Value], notes: &str, names: &[&str]) {
    let is_lmdbs = |row: &&Value| row["rival"].as_str().is_some_and(|rival| rival.starts_with("LMDB"));
    let beside: Vec<&Value> = rows.iter().filter(is_lmdbs).collect();
    assert_eq!(notes.contains("SKIPPED: LMDB"), beside.is_empty(), "{notes}");
    assert_eq!(cfg!(feature = "lmdb"), !beside.is_empty());
    for name in names.iter().filter(|_| cfg!(feature = "lmdb")) {
        let goal = |row: &&Value| row["bench"] == *name && row["goal"] == ">= 1.5";
        assert!(beside.iter().any(goal), "{name}: {beside:?}");
    }
}

/// So few entries are no many meganodes: rows do not say so, and a note says why they are not there.
fn assert_one_meganode(rows: &[Value], notes: &str) {
    assert!(notes.contains("SKIPPED: rows of many meganodes"), "{notes}");
    assert!(!rows.iter().any(|row| has(row, "many meganodes")), "{rows:?}");
}

#[test]
fn memory_small_prints_every_figure() {
    let rows = rows("memory");
    assert_rows("memory", &rows, &["memory/tree and extents", "memory/waste of extents"]);
    let bound = rows.iter().find(|row| row["bench"] == "memory/tree and extents").expect("it is there");
    assert_eq!(bound["goal"], "<= 1.6");
}

#[test]
fn console_small_prints_every_figure() {
    let rows = rows("console");
    let wanted = [
        "console/gets by messages",
        "console/worker's processor",
        "console/node's processor",
        "console/processor beside the worker",
    ];
    assert_rows("console", &rows, &wanted);
}

#[test]
fn put_small_prints_every_figure() {
    let (rows, notes) = rows_and_notes("put", &[]);
    let wanted = [
        "put/durable 64",
        "put/durable 256",
        "put/durable 1024",
        "put/no log 256",
        "put/during checkpoints 256",
    ];
    assert_rows("put", &rows, &wanted);
    assert_one_meganode(&rows, &notes);
}

#[test]
fn tls_small_prints_every_figure() {
    let rows = rows("tls");
    assert_rows("tls", &rows, &["tls/gets, 50 x 16 over TCP", "tls/gets, 1 x 1 over TCP"]);
    assert_goal(&rows, "tls/gets, 50 x 16 over TCP", "op/s", ">= 0.8");
}

#[test]
fn gluster_small_prints_every_figure() {
    if Command::new("fio").arg("--version").output().is_err() {
        println!("SKIPPED: our puts beside fio's synced writes: fio is missing (apt install fio)");
        return;
    }
    let folder = std::env::temp_dir().display().to_string();
    let rows = rows_of("gluster", &[&FEW[..], &["--log-root", folder.as_str()]].concat());
    assert_rows("gluster", &rows, &["gluster/durable 64", "gluster/durable 256", "gluster/durable 1024"]);
    assert_goal(&rows, "gluster/durable 64", "op/s", ">= 0.5");
}

#[test]
fn checkpoint_small_prints_every_figure() {
    let rows = rows("checkpoint");
    let wanted = [
        "checkpoint/checkpoints taken",
        "checkpoint/splits meanwhile",
        "checkpoint/inserts",
        "checkpoint/longest insert",
        "checkpoint/p99.9 of an insert",
        "checkpoint/inserts, niceness 0",
        "checkpoint/longest insert, niceness 0",
    ];
    assert_rows("checkpoint", &rows, &wanted);
}

#[test]
fn restart_small_prints_every_figure() {
    let rows = rows_of("restart", &FEW);
    let wanted = [
        "restart/empty cell dev serves",
        "restart/empty cell dev takes",
        "restart/from the log",
        "restart/from the image",
        "restart/from the log, linear in the data",
    ];
    assert_rows("restart", &rows, &wanted);
}

#[test]
fn selector_small_prints_every_figure() {
    // Every mix, load and transport is among these; `tests/run long` has each mix at each load.
    let rows: Vec<Value> = match std::env::var("CELL_TEST_VARIANT").as_deref() {
        Ok("long") => rows("selector"),
        _ => {
            let parts = ["tcp, core taken 50 %", "YCSB E x16, shm", "steps in load, shm", "a decision"];
            rows_of("selector", &parts.map(|part| ["--only", part]).concat())
        }
    };
    let wanted = [
        "selector/adaptive, search x1, tcp, core taken 50 %",
        "selector/paper, get x16, tcp, core taken 50 %",
        "selector/adaptive, YCSB B x16, tcp, core taken 50 %",
        "selector/paper, YCSB E x16, shm, core taken 0 %",
        "selector/adaptive, YCSB E x16, shm, core taken 100 %",
        "selector/adaptive, get x16, shm, 1 s after the core was taken",
        "selector/adaptive, get x16, shm, 1 s after the core was given back",
        "selector/a decision and a sample",
    ];
    assert_rows("selector", &rows, &wanted);
}

#[test]
fn takeover_small_prints_every_figure() {
    let rows = rows_of("takeover", &FEW);
    let wanted = [
        "takeover/first pair, two survivors",
        "takeover/all pairs, two survivors",
        "takeover/first pair, one survivor",
        "takeover/all pairs, one survivor",
        "takeover/a key unavailable, two survivors",
    ];
    assert_rows("takeover", &rows, &wanted);
}

#[test]
fn coordinator_small_prints_every_figure() {
    if Command::new("etcd").arg("--version").output().is_err() {
        println!("SKIPPED: nodes whose coordinator is etcd: etcd is missing (apt install etcd-server)");
        return;
    }
    let rows = without_failed(rows_of("coordinator", &FEW), 2);
    let rows = without_none(rows, "nodes restarted", 2);
    let rows = without_none(rows, "pairs claimed", 2);
    let wanted = [
        "coordinator/data of the killed node, etcd",
        "coordinator/first pair, embedded coordinator",
        "coordinator/all pairs, embedded coordinator",
        "coordinator/longest stall, etcd stands still",
        "coordinator/longest stall, etcd killed",
        "coordinator/etcd accepts no write, etcd killed",
        "coordinator/operations done, etcd stands still",
    ];
    assert_rows("coordinator", &rows, &wanted);
    for (figure, world) in [
        ("first pair", "etcd"),
        ("first pair", "etcd, its leader killed"),
        ("all pairs", "etcd"),
        ("all pairs", "etcd, its leader killed"),
    ] {
        assert_goal(&rows, &format!("coordinator/{figure}, {world}"), "s", "<= 1");
    }
}

#[test]
fn moves_small_prints_every_figure() {
    let rows = rows_of("moves", &["--sizes-mb", "2,4", "--moves", "2"]);
    let rows = without_failed(rows, 4);
    let wanted = [
        "moves/longest operation without a move, 2 MB",
        "moves/a move, 4 MB",
        "moves/readers over shm: answers in place, of one-sided",
        "moves/readers over shm: answered one-sided, of all",
    ];
    assert_rows_or_nothing("moves", &rows, &wanted);
    assert!(rows.iter().any(|row| has(row, "moves/operations")), "during copies, or of the whole time");
    for (name, unit, goal) in [
        ("moves/longest stall, median, 2 MB", "ms", "<= 1"),
        ("moves/longest stall, worst, 4 MB", "ms", "<= 1"),
        ("moves/longest stall, median, 4 MB", "ms", "<= 1.5"),
        ("moves/readers over tcp: gets", "op/s", ">= 0.9"),
        ("moves/readers over tcp: cached tree nodes a get", "tree nodes", ">= 0.9"),
        ("moves/readers over shm: gets", "op/s", ">= 0.9"),
    ] {
        assert_goal(&rows, name, unit, goal);
    }
    // A move takes a while, however little is done meanwhile.
    let moves = rows.iter().filter(|row| has(row, "moves/a move"));
    assert!(moves.into_iter().all(|row| row["ours"].as_f64() > Some(0.0)), "{rows:?}");
}

#[test]
fn balance_small_prints_every_figure() {
    let rows = rows_of("balance", &["--only", "paths"]);
    let [bytes, operations] = ["bytes", "operations of the last quarter"]
        .map(|what| format!("balance/paths: {what}, largest over mean"));
    assert_rows("balance", &rows, &[&bytes, &operations, "balance/paths: puts"]);
    for (name, unit, goal) in [
        (bytes.as_str(), "of the mean", "<= 1.25"),
        (operations.as_str(), "of the mean", "<= 1.25"),
        ("balance/paths: puts", "op/s", ">= 0.9"),
    ] {
        assert_goal(&rows, name, unit, goal);
    }
    let rivals = rows.iter().filter(|row| row["bench"] == bytes.as_str()).map(|row| row["rival"].as_str());
    assert!(rivals.eq(["the mean", "balance off", "split by hand"].map(Some)), "{rows:?}");
}

#[test]
fn rolling_small_prints_every_figure() {
    let rows = without_failed(rows("rolling"), 1);
    let wanted =
        ["rolling/longest stall", "rolling/p99", "rolling/operations", "rolling/restart of three nodes"];
    assert_rows_or_nothing("rolling", &rows, &wanted);
}

#[test]
fn processes_small_prints_every_figure() {
    let rows = rows("processes");
    let names = ["as many outstanding", "as many for each process"]
        .map(|load| format!("processes/operations a second of the servers' processor time, {load}"));
    assert_rows("processes", &rows, &names.each_ref().map(String::as_str));
    for name in &names {
        assert_goal(&rows, name, "op/s", ">= 0.9");
    }
    if !rows.iter().any(|row| row["bench"] == "processes/operations") {
        println!("SKIPPED: operations by wall time: there are fewer cores than it takes");
    }
}

#[test]
fn split_small_prints_every_figure() {
    let rows = rows("split");
    let wanted = ["split/puts while meganodes split", "split/longest put", "split/longest one-sided get"];
    assert_rows("split", &rows, &wanted);
}

#[test]
fn stall_small_prints_every_figure() {
    let rows = rows("stall");
    assert_rows("stall", &rows, &["stall/get, p99", "stall/puts, 8 x 512"]);
    assert!(rows.iter().any(|row| row["goal"] == "<= 2") && rows.iter().any(|row| row["goal"] == ">= 0.9"));
}

#[test]
fn onesided_small_prints_every_figure() {
    let (rows, notes) = rows_and_notes("onesided", &[]);
    let readers = ["get, 1", "get, 2", "get, 4", "scan of 50, 1", "scan of 50, 4"]
        .map(|reads| format!("onesided/readers: {reads} beside a writer"));
    assert_lmdb(&rows, &notes, &readers.each_ref().map(String::as_str));
    assert_one_meganode(&rows, &notes);
    // LMDB's puts share a commit, too, where ours are outstanding together.
    let rival_of = |name: &str| {
        let row = rows.iter().find(|row| row["bench"] == name);
        row.and_then(|row| row["rival"].as_str().map(str::to_owned)).unwrap_or_default()
    };
    let rivals =
        ["1 x 256", "1 x 1"].map(|load| rival_of(&format!("onesided/readers: durable puts, {load}")));
    let wanted = if cfg!(feature = "lmdb") { ["LMDB, 256 a commit", "LMDB, a commit each"] } else { [""; 2] };
    assert_eq!(rivals, wanted);
    // How much of a core more, and how many retries: nothing is a good answer.
    let may_be_nothing = |row: &Value| {
        let name = row["bench"].as_str().unwrap_or_default();
        ["cores", "retries", "share", "wake-ups"].iter().any(|what| name.contains(what))
    };
    let (others, figures): (Vec<Value>, Vec<Value>) = rows.into_iter().partition(may_be_nothing);
    assert!(others.iter().all(|row| row["ours"].as_f64().is_some_and(|ours| ours >= 0.0)), "{others:?}");
    let wanted = [
        "onesided/get shm, inner nodes cached",
        "onesided/in place: get shm, single",
        "onesided/in place: get shm, multi-get of 16",
        "onesided/in place: get shm, 16 submitted",
        "onesided/in place: p50 of a get shm",
        "onesided/asynchronous one-sided get shm",
        "onesided/asynchronous server-side get tcp",
        "onesided/readers: durable puts, 1 x 256",
        "onesided/readers: durable puts, 1 x 1, beside 4 of get",
        "onesided/readers: private memory of a reader",
        "onesided/readers: memory that a reader has mapped",
        "onesided/readers: private memory of the node",
        "onesided/readers: memory that the node has mapped",
    ];
    assert_rows("onesided", &figures, &wanted);
    assert_rows("onesided", &figures, &readers.each_ref().map(String::as_str));
    let beside_redis = "onesided/in place: gets shm a second of processor time, 16 in flight";
    let row = figures.iter().find(|row| row["bench"] == beside_redis);
    match row {
        Some(row) => {
            assert_eq!(row["goal"], ">= 3");
            assert_beside_redis(&figures, &notes);
        }
        None => println!("SKIPPED: our gets beside those of Redis: redis-server is missing"),
    }
}

/// What gets by the server cost their client has no goal; and Redis is measured by its own tool, too, where
/// that is installed.
fn assert_beside_redis(rows: &[Value], notes: &str) {
    for load in ["shm, 1 x 1", "shm, 50 x 16", "tcp, 1 x 1", "tcp, 50 x 16"] {
        let name = format!("onesided/server-side get {load}: client's processor");
        let row = rows.iter().find(|row| row["bench"] == name.as_str());
        assert!(row.is_some_and(|row| row["goal"].is_null() && row["theirs"].is_number()), "{name}: {row:?}");
        assert_goal(rows, &format!("onesided/server-side get {load}: server's processor"), "us/op", "<= 1");
    }
    let is_tools =
        |row: &&Value| row["rival"].as_str().is_some_and(|rival| rival.starts_with("redis-benchmark"));
    let by_tool: Vec<&Value> = rows.iter().filter(is_tools).collect();
    assert_eq!(notes.contains("SKIPPED: redis-benchmark"), by_tool.is_empty(), "{notes}");
    assert!(by_tool.iter().all(|row| has(row, "50 x 16") && row["goal"].is_null()), "{by_tool:?}");
}

#[test]
fn tree_small_prints_every_figure() {
    // A tree that was just built has no garbage.
    let (_, rows): (Vec<_>, Vec<_>) = rows("tree").into_iter().partition(|row| has(row, "garbage"));
    let wanted = [
        "tree/replace",
        "tree/level 0, fill",
        "tree/search, 16 in hand",
        "tree/scan backward, a leaf",
        "tree/bulk, height",
    ];
    assert_rows("tree", &rows, &wanted);
}

#[test]
fn regions_small_prints_every_figure() {
    let rows = rows("regions");
    let wanted = [
        "regions/waste of extents, updated",
        "regions/extent of 4096 bytes: read and check, random places",
        "regions/tree node written",
    ];
    assert_rows("regions", &rows, &wanted);
    assert!(rows.iter().any(|row| has(row, "copy of a tree node, Small")));
}

#[test]
fn log_small_prints_every_figure() {
    let wanted = [
        "log/Sleep, commit of 0 + 4 KiB, p50",
        "log/Spin, commit of 128 + 128 KiB, p99",
        "log/Yield, 1024 writers of 160 B: batches",
        "log/values of 1 KiB: frames written",
        "log/read ahead: records",
    ];
    assert_rows("log", &rows("log"), &wanted);
}

#[test]
fn flush_small_prints_every_figure() {
    let rows = rows("flush");
    if rows.is_empty() {
        println!("SKIPPED: one flush for all logs is not known to cover them on the disk of temporary files");
        return;
    }
    let wanted = ["flush/1 pairs, 64 in flight", "flush/2 pairs, 4096 in flight, beside one pair"];
    assert_rows("flush", &rows, &wanted);
}

#[test]
fn fabric_small_prints_every_figure() {
    let wanted = [
        "fabric/tcp, both ends spin, round trip of 16 B, p50",
        "fabric/shm, both ends sleep, round trip of 1024 B, p99",
        "fabric/tcp, 50 x 16 of 64 B",
        "fabric/shm, 1 x 16 of 64 B, a second of the server's processor",
        "fabric/shm, one-sided read of 1 KiB, p50",
    ];
    assert_rows("fabric", &rows("fabric"), &wanted);
}

#[test]
fn restore_small_prints_every_figure() {
    let rows = rows("restore");
    let wanted = ["restore/from the log, 1 threads", "restore/from the image, 1 threads, an entry"];
    for name in wanted {
        assert!(rows.iter().any(|row| row["bench"] == name && row["ours"].as_f64() > Some(0.0)), "no {name}");
    }
}

/// The whole of it is tested where it is, in `benches/paper`. What starts no node wants none: there is no
/// `cell`, and none could be built.
#[test]
fn paper_prints_the_tables_that_are_asked_for() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let output = command::benches_in(folder.path(), None)
        .args(["paper", "--table", "1", "--short", "--json"])
        .output()
        .expect("the benches can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("rows are UTF-8");
    let rows: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect();
    assert_eq!(rows.len(), 12);
    assert!(
        rows.iter()
            .all(|row| row["sheet"] == "table1" && row["mops"].as_f64().is_some_and(|mops| mops > 0.0))
    );
}

/// One server and its clients, beside the model; the node has these flags, and a lease that a busy machine
/// leaves it.
fn paper_measured(flags: &[&str]) -> Output {
    let lease = ["--server-flag=--lease-ms=3s", "--server-flag=--coordinator-deadline-ms=1s"];
    benches()
        .args(["paper", "--measured", "--short", "--entries", "20000", "--rounds", "2", "--json"])
        .args(lease)
        .args(flags)
        .current_dir(std::env::temp_dir())
        .output()
        .expect("the benches can be started")
}

/// A client whose reads are not permitted has the server search and says nothing: the figure would be
/// another one's.
#[test]
fn paper_measured_without_one_sided_reads_gives_no_figures() {
    let output = paper_measured(&["--server-flag=--one-sided-reads=off"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{said}");
    assert!(said.contains("searches that were to be one-sided"), "{said}");
}

#[test]
fn paper_measured_small_prints_each_row_beside_the_models() {
    let output = paper_measured(&[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("\nmeasured_single: "), "the tables besides, for who looks on: {said}");
    let text = String::from_utf8(output.stdout).expect("rows are UTF-8");
    let rows: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect();
    let of = |sheet: &str, transport: &str| -> Vec<&Value> {
        rows.iter().filter(|row| row["sheet"] == sheet && row["transport"] == transport).collect()
    };
    let mut transports = vec!["shm", "tcp"];
    if of("measured", "verbs").is_empty() {
        assert!(said.contains("# SKIPPED: one server and its clients over verbs"), "{said}");
        println!("SKIPPED: one server and its clients over RDMA: no device, or a build without it");
    } else {
        transports.push("verbs");
    }
    for &transport in &transports {
        let clients: Vec<_> =
            of("measured", transport).iter().map(|row| row["clients"].as_u64().unwrap_or(0)).collect();
        assert_eq!(clients, [1, 2, 4, 8], "{transport}");
        assert_eq!(of("measured_single", transport).len(), 2, "{transport}");
    }
    assert_eq!(rows.len(), 6 * transports.len(), "measured machines alone: {text}");
    for row in rows.iter().filter(|row| row["sheet"] == "measured") {
        for what in ["server_only_k", "one_sided_k", "cell_k"] {
            let figure = |whose: &str| row[format!("{whose}_{what}").as_str()].as_f64();
            assert!(figure("measured") > Some(0.0) && figure("model") >= Some(0.0), "{what}: {row}");
        }
        for whose in ["measured", "model"] {
            let share = row[format!("{whose}_server_side_percent").as_str()].as_f64();
            assert!(share.is_some_and(|share| (0.0..=100.0).contains(&share)), "{row}");
        }
        for what in ["server_only_error_percent", "one_sided_error_percent", "cell_error_percent"] {
            assert!(row[what].is_number(), "{what}: {row}");
        }
        assert!(row["server_side_error_points"].is_number(), "{row}");
    }
}

fn has(row: &Value, text: &str) -> bool {
    row["bench"].as_str().is_some_and(|name| name.contains(text))
}
