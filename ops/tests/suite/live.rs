//! Settings that are tuned while a cluster serves, in its nodes and in a client that runs.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::harness::Dev;
use cell_client::{Client, ClientError, ClientOptions, Operation};
use cell_tests::ending::Ending;
use cell_tests::wait::until;
use serde_json::{Value, json};

/// Runs `cell tune` against the first node; exit code and standard error.
fn tune(dev: &Dev, arguments: &[&str]) -> (i32, String) {
    let output = dev.cell(&[&["tune"], arguments, &["--http", &dev.http()]].concat());
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn tuned_settings_take_effect_in_nodes_that_serve_and_are_taken_back(dev: &Dev) {
    let value = "v".repeat(2_000);
    let is_taken = || dev.code(&["put", "key", &value]) == 0;
    assert!(is_taken());
    let values =
        ["set", "value_bytes_max=1KiB", "session_idle_ms=20s", "worker_spin_us=10", "recovery_threads=1"];
    assert_eq!(tune(dev, &values).0, 0);
    until("longer values are refused", || !is_taken());
    assert_eq!(dev.out(&["get", "key"]), format!("{value}\n"));
    assert_eq!(tune(dev, &["set", "--unset", "value_bytes_max"]).0, 0);
    until("longer values are taken again", is_taken);
}

fn tuning_that_is_waited_for_is_in_force_on_every_node(dev: &Dev) {
    for value in ["12", "14", "16"] {
        assert_eq!(tune(dev, &["set", &format!("worker_spin_us={value}"), "--wait=2m"]).0, 0);
        let (code, error) = tune(dev, &["diff"]);
        assert!(code == 0 && !error.contains("in force"), "{code} {error}");
    }
    let (code, error) = tune(dev, &["set", "worker_spin_us=18", "--wait", "--dry-run"]);
    assert!(code == 2 && error.contains("--dry-run"), "{code} {error}");
}

fn tuning_that_does_not_fit_is_refused_with_the_reason_and_nothing_changes(dev: &Dev) {
    for (value, why) in [
        ("stream_bytes_max=64GiB", "because so much memory is set aside for it when the node starts"),
        ("coordinator_deadline_ms=10s", "has to end within the lease"),
        ("client_retry_shortest=1s", "waits between retries grow from the shortest to the longest"),
        ("http_read_only=true", "would refuse to take it back"),
        ("lease_ms=1s", "Other nodes count on the terms"),
        ("tracing_filter=garbage", "`garbage` is no level"),
    ] {
        let (code, error) = tune(dev, &["set", value, "worker_spin_us=10"]);
        assert_ne!(code, 0, "{value}");
        assert!(error.contains(why), "{value}: {error}");
    }
    let listed = dev.out(&["tune", "ls", "spin", "--http", &dev.http()]);
    assert!(!listed.contains("tuned"), "{listed}");
}

fn changes_over_http_are_limited_as_the_cluster_is_tuned(dev: &Dev) {
    assert_eq!(tune(dev, &["set", "http_changes_per_second=1"]).0, 0);
    let ask = || dev.server.http_post(0, "/api/v1/moves:cancel", r#"{"pair": 4711}"#);
    let is_refused = |(status, body): (u16, String)| status == 429 && body.contains("too often");
    until("changes are refused", || ask().is_some_and(is_refused));
    // A command may take longer than the second after which one more is taken: others take that meanwhile.
    let is_over = AtomicBool::new(false);
    let mut turn = 0;
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    ask();
                }
            });
        }
        let _ending = Ending(&is_over);
        until("a command is refused", || {
            turn += 1;
            let (code, error) = tune(dev, &["set", &format!("worker_spin_us={}", 10 + turn % 7)]);
            assert!(code == 0 || error.contains("too often"), "{code} {error}");
            code != 0 && error.contains("\nnext: wait as long as Retry-After says")
        });
    });
}

fn tuned_settings_reach_a_client_that_runs_but_not_one_whose_user_decided(dev: &Dev) {
    let mut follows = Client::connect(&dev.address(), ClientOptions::default()).unwrap();
    let own =
        ClientOptions { own: vec!["client_queue_max", "client_in_flight_max"], ..ClientOptions::default() };
    let mut stays = Client::connect(&dev.address(), own).unwrap();
    assert_eq!(tune(dev, &["set", "client_queue_max=0", "client_in_flight_max=1"]).0, 0);
    let is_full = |client: &mut Client| {
        let get = Operation::Get { key: b"key" };
        client.submit(&get).unwrap();
        let second = client.submit(&get);
        let full = matches!(second, Err(ClientError::QueueFull { max: 1 }));
        for _ in 0..1 + usize::from(second.is_ok()) {
            assert!(client.poll(Duration::from_secs(60)).unwrap().outcome.is_ok());
        }
        full
    };
    until("the client learns of it", || {
        assert!(!is_full(&mut stays));
        is_full(&mut follows)
    });
    assert!(!is_full(&mut stays));
    assert_eq!(tune(dev, &["set", "--unset", "client_queue_max"]).0, 0);
    until("the client learns that it is taken back", || !is_full(&mut follows));
}

/// Settings that are tuned at once.
const GROUP: usize = 6;

/// Every value of a live setting at which something ends or begins, with the setting's name.
fn bounds_of_live_settings(dev: &Dev) -> Vec<(String, Value)> {
    let document: Value = serde_json::from_str(&dev.out(&["settings", "--json"])).unwrap();
    let live = document["settings"].as_array().unwrap().iter().filter(|row| row["applies"] == "live");
    let values = |row: &Value| match row["kind"].as_str().unwrap() {
        "flag" => vec![json!(true), json!(false)],
        "choice" => row["choices"].as_array().unwrap().clone(),
        "text" => Vec::new(),
        _ if row["or_none"] == true => vec![json!(0), row["min"].clone(), row["max"].clone()],
        _ => vec![row["min"].clone(), row["max"].clone()],
    };
    live.flat_map(|row| {
        values(row).into_iter().map(|value| (row["name"].as_str().unwrap().to_owned(), value))
    })
    .collect()
}

/// Tunes settings, and waits until every node has that in force. Why not, if it is refused.
fn tune_and_wait(dev: &Dev, values: &BTreeMap<String, Value>) -> Result<(), String> {
    let body = json!(values).to_string();
    let mut answer = None;
    until(&format!("a change to {body} is answered"), || {
        answer = dev.server.http_tune(&body).filter(|(status, _)| *status != 429);
        answer.is_some()
    });
    let (status, text) = answer.unwrap();
    if status == 422 {
        return Err(text);
    }
    assert_eq!(status, 200, "{body}: {text}");
    let revision = serde_json::from_str::<Value>(&text).unwrap()["revision"].clone();
    until(&format!("{body} is in force on every node"), || {
        let Some((200, document)) = dev.server.http("/api/v1/tuning") else { return false };
        let document: Value = serde_json::from_str(&document).unwrap();
        let is_in_force = |node: &Value| node["in_force"] == true;
        document["revision"] == revision && document["nodes"].as_array().unwrap().iter().all(is_in_force)
    });
    Ok(())
}

/// Groups of bounds that are tuned together: each change takes a second to be known of every node. No group
/// has a setting twice.
fn groups(bounds: Vec<(String, Value)>) -> Vec<BTreeMap<String, Value>> {
    let mut groups: Vec<BTreeMap<String, Value>> = Vec::new();
    for (name, value) in bounds {
        let fits = |group: &&mut BTreeMap<String, Value>| group.len() < GROUP && !group.contains_key(&name);
        match groups.iter_mut().find(fits) {
            Some(group) => _ = group.insert(name, value),
            None => groups.push(BTreeMap::from([(name, value)])),
        }
    }
    groups
}

/// Whoever tunes a setting to one of its bounds, by a slip of the hand too, can take it back, and nobody is
/// without an answer meanwhile.
fn live_settings_at_their_bounds_keep_everybody_served_and_are_taken_back(dev: &Dev) {
    /// Why a node may refuse what the setting as such takes.
    const REASONS: [&str; 3] = ["set aside for it when the node starts", "within the lease", "waits between"];
    let (address, served, is_over) = (dev.address(), AtomicU64::new(0), AtomicBool::new(false));
    let connect = |deadline_ms| {
        let options = ClientOptions { deadline_ms, report_ms: 20, ..ClientOptions::default() };
        Client::connect(&address, options).unwrap()
    };
    let mut old = connect(120_000);
    old.put(b"bounds", b"value").unwrap();
    std::thread::scope(|scope| {
        let (served, is_over) = (&served, &is_over);
        let ending = Ending(is_over);
        let serve = scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(old.get(b"bounds").unwrap().unwrap().value, b"value");
                old.put(b"other", b"value").unwrap();
                served.fetch_add(1, Ordering::Relaxed);
            }
        });
        let try_values = |values: &BTreeMap<String, Value>| {
            tune_and_wait(dev, values)?;
            let before = served.load(Ordering::Relaxed);
            until(&format!("clients are served with {values:?}"), || {
                serve.is_finished() || served.load(Ordering::Relaxed) > before + 10
            });
            assert!(!serve.is_finished(), "a client met an error with {values:?}");
            assert_eq!(connect(60_000).get(b"bounds").unwrap().unwrap().value, b"value", "{values:?}");
            let taken_back = values.keys().map(|name| (name.clone(), Value::Null)).collect();
            tune_and_wait(dev, &taken_back)
        };
        let mut refused = Vec::new();
        let mut left = groups(bounds_of_live_settings(dev));
        while let Some(mut group) = left.pop() {
            let Err(why) = try_values(&group) else { continue };
            // A refusal is quick, and what is taken is not: values that nothing is wrong with stay together.
            let middle = group.keys().nth(group.len() / 2).expect("it has a value").clone();
            match group.split_off(&middle) {
                half if group.is_empty() => {
                    assert!(REASONS.iter().any(|reason| why.contains(reason)), "{half:?}: {why}");
                    refused.push(middle);
                }
                half => left.extend([group, half]),
            }
        }
        drop(ending);
        assert!(refused.len() <= 6, "{refused:?}");
    });
}

/// One cluster for all: a start takes longer than what is asked of it.
#[test]
fn settings_are_tuned_while_a_cluster_serves() {
    let dev = Dev::start();
    tuning_that_does_not_fit_is_refused_with_the_reason_and_nothing_changes(&dev);
    tuned_settings_take_effect_in_nodes_that_serve_and_are_taken_back(&dev);
    tuning_that_is_waited_for_is_in_force_on_every_node(&dev);
    tuned_settings_reach_a_client_that_runs_but_not_one_whose_user_decided(&dev);
    changes_over_http_are_limited_as_the_cluster_is_tuned(&dev);
    // The limit is in force until it is taken back.
    until("the limit is taken back", || tune(&dev, &["set", "--unset", "http_changes_per_second"]).0 == 0);
    live_settings_at_their_bounds_keep_everybody_served_and_are_taken_back(&dev);
}
