//! A real server whose values are as long as values may be: many of them in one leaf go through checkpoints,
//! a stop and a kill. A checkpoint of more than 32 MiB in a leaf aborted the node, and each node after it.

use cell_client::{Client, ClientOptions};
use cell_tests::program;
use cell_tests::server::Server;
use cell_tests::wait;
use serde_json::Value;

/// Segments as by default, because half of one is the longest value.
const FLAGS: [&str; 4] = ["--log-segment-bytes", "64MiB", "--checkpoint-age-ms", "2s"];

/// How many values of which length.
const VALUES: [(u8, usize); 3] = [(40, 1_000_000), (5, 16 << 20), (3, 0)];

fn client(server: &Server) -> Client {
    let options = ClientOptions { deadline_ms: 120_000, ..ClientOptions::default() };
    Client::connect(&server.address().to_string(), options).expect("the server is there")
}

fn entries() -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let numbered =
        VALUES.into_iter().flat_map(|(count, bytes)| (0..count).map(move |number| (number, bytes)));
    numbered.map(|(number, bytes)| (format!("{bytes}-{number:02}").into_bytes(), vec![number; bytes]))
}

fn assert_all_there(server: &Server, when: &str) {
    let mut client = client(server);
    for (key, value) in entries() {
        let found = client.get(&key).expect("reads are answered").map(|item| item.value);
        assert!(found == Some(value), "{} is not what was put, {when}", key.escape_ascii());
    }
    assert_eq!(server.cell(&["verify"]).code, Some(0), "{when}");
}

/// How far the pair is durable, and up to where a checkpoint has it.
fn csns(server: &Server) -> Option<(u64, u64)> {
    let status: Value = serde_json::from_str(&server.http("/api/v1/status")?.1).ok()?;
    let pair = &status["pairs"][0];
    Some((pair["csn_durable"].as_u64()?, pair["csn_checkpointed"].as_u64()?))
}

#[test]
fn values_of_every_permitted_length_outlive_checkpoints_a_stop_and_a_kill() {
    let mut server = Server::start_steady(&FLAGS);
    let node = server.node();
    let mut putting = client(&server);
    for (key, value) in entries() {
        putting.put(&key, &value).expect("there is room");
    }
    drop(putting);
    // Each entry took two numbers at least: of its extent, and of its leaf.
    let all: u64 = VALUES.iter().map(|(count, _)| u64::from(*count)).sum();
    let is_checkpointed = |(durable, checkpointed): (u64, u64)| durable >= 2 * all && checkpointed == durable;
    wait::until("a checkpoint of all is taken", || csns(&server).is_some_and(is_checkpointed));
    assert_all_there(&server, "while it serves");
    assert_eq!(server.node(), node, "the process is the first one");
    assert_eq!(server.stop(), Some(0), "with a last checkpoint");
    let folder = server.folder().to_str().expect("it is UTF-8").to_owned();
    let images = program::run(&["inspect", "image", &folder, "--json"]);
    assert_eq!(images.code, Some(0), "{images:?}");
    let image: Value = serde_json::from_str(&images.out).expect("there is one image");
    assert_eq!(image["sound"], true, "{image}");
    server.resume();
    assert_all_there(&server, "after a stop and a start");
    assert!(server.kill_node());
    server.wait_ready();
    assert_all_there(&server, "after a kill");
    assert_eq!(server.stop(), Some(0));
}
