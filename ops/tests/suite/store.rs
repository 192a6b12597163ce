//! Client commands against one server: entries, ranges, load, dump, verify, bench, inspect.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::harness::Dev;
use cell_tests::{process, wait};
use rustix::process::{Pid, Signal};
use serde_json::Value;

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_else(|_| panic!("not JSON: {}", String::from_utf8_lossy(text)))
}

fn entries_conditions_and_encodings(dev: &Dev) {
    let version = dev.out(&["put", "greeting", "hello"]);
    assert_eq!(dev.out(&["get", "greeting"]), "hello\n");
    assert_eq!(dev.out(&["get", "greeting", "--raw"]), "hello");
    assert_eq!(dev.out(&["get", "--hex", "6772656574696e67"]), "68656c6c6f\n");
    let document = json(dev.out(&["get", "greeting", "--json"]).as_bytes());
    assert_eq!(document["entry_version"], version.trim());
    assert_eq!((&document["found"], &document["value"]), (&true.into(), &"hello".into()));

    assert_eq!(dev.code(&["put", "greeting", "x", "--if-absent"]), 3);
    assert_eq!(dev.code(&["put", "absent", "x", "--if-present"]), 3);
    assert_eq!(dev.code(&["put", "greeting", "hi", "--if-version", version.trim()]), 0);
    assert_eq!(dev.code(&["put", "greeting", "hi", "--if-version", version.trim()]), 3);
    assert_eq!(dev.code(&["cas", "greeting", "servus", "--old", "hello"]), 3);
    assert_eq!(dev.code(&["cas", "greeting", "servus", "--old", "hi"]), 0);
    assert_eq!(dev.out(&["get", "greeting"]), "servus\n");

    let bytes: Vec<u8> = (0..=255).collect();
    assert!(dev.cell_with_input(&["put", "bytes", "-"], &bytes).status.success());
    assert_eq!(dev.cell(&["get", "bytes", "--raw"]).stdout, bytes);
    assert!(json(&dev.cell(&["get", "bytes", "--json"]).stdout)["value_base64"].is_string());
    assert_eq!(dev.code(&["put", "--escaped", "a\\x00b", "\\xff"]), 0);
    assert_eq!(dev.out(&["get", "--hex", "610062"]), "ff\n");

    assert_eq!(dev.code(&["get", "greeting", "nothing"]), 6);
    assert_eq!(dev.code(&["get", "nothing"]), 3);
    assert_eq!(dev.code(&["get", "--exists", "nothing"]), 3);
    assert_eq!(dev.code(&["del", "bytes"]), 0);
    assert_eq!(dev.code(&["del", "bytes"]), 3);
    assert_eq!(dev.code(&["del", "bytes", "--ignore-missing"]), 0);
    assert_eq!(dev.code(&["put", &"k".repeat(2000), "v"]), 2);

    let large = dev.beside("large");
    fs::write(&large, (0..3_000_000_u32).flat_map(u32::to_le_bytes).take(3_000_000).collect::<Vec<_>>())
        .unwrap();
    assert_eq!(dev.code(&["put", "large", "--file", large.to_str().unwrap()]), 0);
    assert!(dev.cell(&["get", "large", "--raw"]).stdout == fs::read(&large).unwrap());
}

fn ranges(dev: &Dev) {
    for key in ["r/a", "r/b", "r/c", "s"] {
        dev.out(&["put", key, &format!("value of {key}")]);
    }
    assert_eq!(dev.out(&["scan", "--prefix", "r/", "--keys-only"]), "r/a\nr/b\nr/c\n");
    assert_eq!(dev.out(&["scan", "--prefix", "r/", "--reverse", "--limit", "1"]), "r/c\tvalue of r/c\n");
    assert_eq!(dev.out(&["scan", "--from", "r/b", "--to", "s", "--keys-only"]), "r/b\nr/c\n");
    assert_eq!(dev.out(&["scan", "--after", "r/b", "--to", "s", "--keys-only"]), "r/c\n");
    assert_eq!(dev.out(&["count", "--prefix", "r/"]), "3\n");
    assert_eq!(json(dev.out(&["count", "--prefix", "r/", "--json"]).as_bytes())["count"], 3);
    let row = dev.out(&["scan", "--prefix", "s", "--json"]);
    assert_eq!((&json(row.as_bytes())["key"], &json(row.as_bytes())["version"]), (&"s".into(), &1.into()));
}

fn removals(dev: &Dev) {
    for key in ["d/a", "d/b", "d/c", "d0", "d1", "d2"] {
        dev.out(&["put", key, "value"]);
    }
    dev.out(&["del", "d0", "d1"]);
    assert_eq!(dev.code(&["del", "d1", "d2"]), 6, "one of them was there");
    assert_eq!(dev.code(&["del", "d1", "d2"]), 3);
    assert_eq!(dev.code(&["del", "d1", "d2", "--ignore-missing"]), 0);
    let rows = dev.cell(&["del", "d/a", "d9", "--json"]);
    assert_eq!(rows.status.code(), Some(6));
    let rows: Vec<Value> =
        rows.stdout.split(|b| *b == b'\n').filter(|row| !row.is_empty()).map(json).collect();
    assert_eq!((&rows[0]["key"], &rows[0]["deleted"]), (&"d/a".into(), &true.into()));
    assert_eq!((&rows[1]["key"], &rows[1]["deleted"], rows.len()), (&"d9".into(), &false.into(), 2));

    assert_eq!(dev.code(&["del", "--prefix", "d/"]), 2, "not confirmed");
    assert_eq!(dev.out(&["count", "--prefix", "d/"]), "2\n");
    let removed = json(dev.out(&["del", "--prefix", "d/", "--yes", "--json"]).as_bytes());
    assert_eq!((&removed["count"], &removed["version"]), (&2.into(), &1.into()));
    assert_eq!(dev.out(&["count", "--prefix", "d/"]), "0\n");
    dev.out(&["del", "--prefix", "d/", "--yes"]);

    let lines: String = (0..5_000).map(|n| format!("e{n:05}\tvalue\n")).collect();
    assert!(dev.cell_with_input(&["load", "-"], lines.as_bytes()).status.success());
    let removed =
        json(dev.out(&["del", "--after", "e00000", "--to", "e04999", "--yes", "--json"]).as_bytes());
    assert_eq!(removed["count"], 4_998);
    assert_eq!(dev.out(&["scan", "--prefix", "e", "--keys-only"]), "e00000\ne04999\n");
    dev.out(&["del", "--prefix", "e", "--yes"]);
}

/// A server of the list that is dead, or takes connections and says nothing, is no reason to fail.
fn several_servers(dev: &Dev) {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for first in ["127.0.0.1:1".to_owned(), silent.local_addr().unwrap().to_string()] {
        let servers = format!("{first},{}", dev.address());
        let passes = |command: &[&str]| {
            let output = dev.cell(&[command, &["--server", &servers, "--timeout", "3s"]].concat());
            assert_eq!(output.status.code(), Some(0), "{command:?} by {servers}: {output:?}");
        };
        // Each of them waits for the silent one: side by side.
        std::thread::scope(|scope| {
            for command in [&["get", "greeting"][..], &["count", "--prefix", "greeting"], &["tree", "show"]] {
                scope.spawn(move || passes(command));
            }
            passes(&["put", "several", "servers"]);
            passes(&["del", "several"]);
        });
        passes(&["verify"]);
        let status = dev.cell(&["status", "--json", "--server", &servers, "--timeout", "1s"]);
        assert_eq!(status.status.code(), Some(5), "a server that was named is not there: {status:?}");
        let rows = json(&status.stdout)["nodes"].as_array().unwrap().clone();
        let named = |row: &&Value| row["server"] == first.as_str() && row["error"]["code"] == "unreachable";
        assert_eq!((rows.len(), rows.iter().filter(named).count()), (2, 1), "{rows:?}");
    }
}

/// What such a source had brought stayed in the command until it went on.
fn load_of_a_source_that_pauses(dev: &Dev) {
    let mut load = dev.command(&["load", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut source = load.stdin.take().unwrap();
    let count = || dev.out(&["count", "--prefix", "pause/"]);
    for (lines, there) in [("pause/1\tvalue\npause/2\tvalue\npause", "2\n"), ("/3\tvalue\n", "3\n")] {
        source.write_all(lines.as_bytes()).unwrap();
        wait::until("what was read is in the store", || count() == there);
    }
    drop(source);
    assert!(load.wait().unwrap().success());
    dev.out(&["del", "--prefix", "pause/", "--yes"]);
}

fn load_dump_and_verify(dev: &Dev) {
    let path = |name: &str| dev.beside(name).to_str().unwrap().to_owned();
    let (source, progress, gz) = (path("words.tsv"), path("progress"), path("words.gz"));
    let lines: Vec<_> = (0..30_000).map(|n| format!("{n}\tword{:05}\n", n * 7 % 20_000)).collect();
    fs::write(&source, lines.concat()).unwrap();
    let columns = ["--key", "2", "--value", "1"];

    let mut load = vec!["load", &source, "--progress", &progress, "--json"];
    load.extend(columns);
    let report = json(dev.out(&load).as_bytes());
    assert_eq!((&report["acknowledged"], &report["complete"]), (&30_000.into(), &true.into()));
    assert_eq!(json(dev.out(&load).as_bytes())["resumed"], 30_000, "a finished load has nothing left to do");
    assert_eq!(dev.out(&["count", "--prefix", "word"]), "20000\n");

    let mut verify = vec!["verify", "--source", &source, "--progress", &progress];
    verify.extend(columns);
    let said = dev.out(&verify);
    assert!(said.contains("source: ok: 30,000 acknowledged records, 0 missing, 0 wrong"), "{said}");
    assert_eq!(dev.code(&[&verify[..], &["--exact"]].concat()), 7, "there are other keys");

    dev.out(&["del", "word00007"]);
    dev.out(&["put", "word00014", "other"]);
    let output = dev.cell(&verify);
    assert_eq!(output.status.code(), Some(7));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("word00007 is missing"), "{said}");
    assert!(said.contains("word00014 has another value, 5 bytes in place of"), "{said}");
    let mut verify_json = verify.clone();
    verify_json.push("--json");
    let document = json(&dev.cell(&verify_json).stdout);
    assert_eq!((&document["ok"], &document["source"]["wrong"]), (&false.into(), &1.into()));

    // A dump, packed, loaded again over a damaged store, mends it.
    dev.out(&load[..2].iter().chain(&columns).copied().collect::<Vec<_>>());
    dev.out(&["dump", &gz, "--compress", "gzip"]);
    dev.out(&["del", "word00007"]);
    dev.out(&["load", &gz]);
    assert_eq!(dev.code(&verify), 0);
    let as_json = dev.cell(&["dump", "--json", "--prefix", "word0000"]).stdout;
    assert_eq!(as_json.split(|b| *b == b'\n').count(), 13, "heading, ten entries, end, and nothing after it");
    assert!(dev.cell_with_input(&["load", "-"], &as_json).status.success());
    let packed = zstd::encode_all(&as_json[..], 1).unwrap();
    assert!(dev.cell_with_input(&["load", "-"], &packed).status.success());

    let bad = dev.cell_with_input(&["load", "-"], b"a\t1\n\nb\t2\n");
    assert_eq!(bad.status.code(), Some(6));
    assert!(String::from_utf8(bad.stderr).unwrap().contains("line 2: the key is empty"));
    let strict = dev.cell_with_input(&["load", "-", "--strict"], b"a\t1\n\nb\t2\n");
    assert_eq!(strict.status.code(), Some(2), "an input that is wrong");
}

fn status_and_bench(dev: &Dev) {
    let status = json(dev.out(&["status", "--json"]).as_bytes());
    assert_eq!((&status["healthy"], &status["version"]), (&true.into(), &1.into()));
    assert_eq!(status["nodes"][0]["pairs"][0]["state"], "serving");
    assert!(dev.out(&["status"]).contains("serves"));
    bench_names_what_it_leaves(dev);
    for workload in ["a", "d", "e", "f"] {
        let flags =
            ["--records", "500", "--operations", "1000", "--threads", "2", "--value-bytes", "50", "--json"];
        let report =
            json(dev.out(&[&["bench", "ycsb", "--workload", workload], &flags[..]].concat()).as_bytes());
        assert_eq!((&report["workload"], &report["run"]["operations"]), (&workload.into(), &1000.into()));
        assert_eq!(report["load"]["operations"], 500);
    }
    bench_counts_the_gets_of_read_modify_writes(dev);
    for bytes in ["18446744073709551615", "4611686018427387904", "4294967295"] {
        assert_eq!(dev.code(&["bench", "ycsb", "--value-bytes", bytes]), 2, "no value is that long");
    }
}

fn bench_counts_the_gets_of_read_modify_writes(dev: &Dev) {
    let flags = ["--workload", "f", "--skip-load", "--records", "500", "--operations", "1000", "--json"];
    for (search, in_flight) in [("server", "1"), ("server", "4"), ("client", "1")] {
        let how = ["--search", search, "--in-flight", in_flight];
        let report = json(dev.out(&[&["bench", "ycsb"], &flags[..], &how[..]].concat()).as_bytes());
        let selector = &report["run"]["selector"];
        let searches = ["server", "one_sided"].iter().map(|who| selector[who].as_u64().unwrap()).sum::<u64>();
        assert_eq!(searches, 1000, "one for each operation: {report}");
    }
}

fn bench_names_what_it_leaves(dev: &Dev) {
    let mine = ["user-of-mine", "user00000000000000000001"];
    mine.iter().for_each(|key| drop(dev.out(&["put", key, "mine"])));
    let flags = ["--workload", "d", "--records", "500", "--operations", "1000", "--value-bytes", "50"];
    let said = String::from_utf8(dev.cell(&[&["bench", "ycsb"], &flags[..]].concat()).stderr).unwrap();
    let clean = said.split('`').nth(1).unwrap();
    assert!(clean.starts_with("cell bench clean --records "), "{said}");
    assert!(clean.ends_with(&format!(" --server {}", dev.address())), "{said}");
    let words: Vec<_> = clean.split(' ').skip(1).collect();
    let count = || dev.out(&["count", "--prefix", "user"]).trim().parse::<u64>().unwrap();
    let left = count() - 2;
    assert!(left > 500, "{left}: records were inserted");
    let cleaned = json(dev.out(&[&["--json"], &words[..]].concat()).as_bytes());
    assert_eq!((&cleaned["count"], count()), (&left.into(), 2), "what others wrote stays");
    dev.out(&[&["del"], &mine[..]].concat());
    let refused = dev.cell_with_input(&["del", "--prefix", "user"], b"");
    let expected = format!("`cell count --server {}` with the same bounds", dev.address());
    assert!(String::from_utf8_lossy(&refused.stderr).contains(&expected), "{refused:?}");
}

fn inspection(dev: &Dev) {
    let data = dev.data();
    assert!(dev.out(&["inspect", "log", data]).contains("segments"));
    assert!(dev.out(&["inspect", "image", data]).contains("every block sound"));
    let table = json(dev.out(&["inspect", "table", data, "--json"]).as_bytes());
    assert_eq!(table["pairs"][0]["state"], "released");
    assert_eq!((table["joined"][0]["node"].as_u64(), &table["joined"][1]), (Some(0), &Value::Null));
    let records = dev.out(&["inspect", "log", data, "--records", "--json"]);
    assert!(records.lines().count() > 1 && records.lines().all(|line| json(line.as_bytes())["version"] == 1));
}

#[test]
fn one_server_every_command() {
    let mut dev = Dev::start();
    entries_conditions_and_encodings(&dev);
    ranges(&dev);
    removals(&dev);
    several_servers(&dev);
    load_of_a_source_that_pauses(&dev);
    load_dump_and_verify(&dev);
    status_and_bench(&dev);
    let before = dev.out(&["count"]);
    assert_eq!(dev.stop(), Some(0));
    inspection(&dev);
    dev.restart();
    assert_eq!(dev.out(&["count"]), before);
    assert_eq!(dev.code(&["verify"]), 0);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dev = Dev::start();
    let lines: String = (0..20_000).map(|n| format!("key{n}\t{}\n", "v".repeat(50))).collect();
    assert!(dev.cell_with_input(&["load", "-"], lines.as_bytes()).status.success());
    let mut scan = dev.command(&["scan"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(scan.stdout.take());
    assert!(scan.wait().unwrap().success());
    std::io::stdout().flush().unwrap();
}

/// Values of a scan that fit no page were left out, and scans that fetched none of them shown as any others.
#[test]
fn bench_of_scans_fetches_values_that_fit_no_page() {
    let dev = Dev::start();
    for in_flight in ["1", "3"] {
        let one = ["--workload", "e", "--skip-load", "--operations", "1", "--threads", "1", "--json"];
        let report = [&["bench", "ycsb", "--in-flight", in_flight], &one[..]].concat();
        let scan = json(dev.out(&report).as_bytes())["run"]["kinds"]["scan"].clone();
        assert_eq!((&scan["entries"], &scan["missed"]), (&0.into(), &1.into()), "nothing is there: {scan}");
    }
    let scans = ["--workload", "e", "--pick", "uniform", "--records", "20", "--operations", "40"];
    for in_flight in ["1", "3"] {
        let values = ["--value-bytes", "200000", "--threads", "2"];
        let how = ["--search", "server", "--in-flight", in_flight, "--json"];
        let words = [&["bench", "ycsb"], &scans[..], &values[..], &how[..]].concat();
        let report = json(dev.out(&words).as_bytes());
        let scan = &report["run"]["kinds"]["scan"];
        assert_eq!(scan["missed"], 0, "{report}");
        let (scans, entries) = (scan["operations"].as_u64().unwrap(), scan["entries"].as_u64().unwrap());
        let searches = report["run"]["selector"]["server"].as_u64().unwrap();
        assert!(entries >= scans, "each begins with a record that is there: {report}");
        assert!(searches >= entries + scans, "a get for each value: {report}");
    }
}

/// It ended with its operations' time, and with their error.
#[test]
fn bench_of_a_node_that_stands_still_is_interrupted_at_once_and_names_what_it_leaves() {
    let dev = Dev::start();
    let run = ["bench", "ycsb", "--workload", "d", "--records", "100", "--value-bytes", "50"];
    let long = ["--operations", "300000000", "--threads", "2", "--timeout", "100s"];
    for in_flight in ["1", "4"] {
        let mut command = dev.command(&[&run[..], &long[..], &["--in-flight", in_flight][..]].concat());
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let count = || dev.out(&["count", "--prefix", "user"]).trim().parse::<u64>().unwrap();
        let before = count().max(100);
        wait::until("the run inserts", || count() > before);
        process::stop(dev.node());
        process::signal(Pid::from_child(&child), Signal::INT);
        let interrupted = child.wait_with_output();
        process::signal(dev.node(), Signal::CONT);
        let interrupted = interrupted.unwrap();
        let said = String::from_utf8_lossy(&interrupted.stderr);
        assert_eq!(interrupted.status.code(), Some(130), "{said}");
        assert!(said.contains("cell bench clean --records ") && said.contains("interrupted"), "{said}");
        dev.wait_healthy();
    }
}
