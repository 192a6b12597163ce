//! Clients that ask for far more at once than the network takes, and read all of it: no enemies.

use cell_tests::program;

use crate::hostile::Siege;

/// Many large values in flight over each transport. A node that makes all answers before it sends
/// the first disconnects who asked (measured: a fiftieth of the rate, by reconnecting all the time).
fn assert_served(workload: &str, [records, operations, value_bytes, in_flight]: [&str; 4]) {
    let mut siege = Siege::begin();
    let server = siege.server.address().to_string();
    for (transport, more) in [("tcp", &[][..]), ("shm", &["--skip-load"][..])] {
        let bench = ["bench", "ycsb", "--workload", workload, "--threads", "2"];
        let counts = ["--records", records, "--operations", operations];
        let sizes = ["--value-bytes", value_bytes, "--in-flight", in_flight];
        let to = ["--server", &server, "--transport", transport];
        let said = program::run(&[&bench[..], &counts, &sizes, &to, more].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    let log = siege.server.log();
    assert!(!log.contains("does not read its replies"), "{log}");
    siege.assert_serves();
}

#[test]
fn hundreds_of_values_asked_for_at_once_are_all_sent() {
    assert_served("c", ["200", "2000", "60000", "512"]);
}

#[test]
fn dozens_of_values_in_chunks_asked_for_at_once_are_all_sent() {
    assert_served("c", ["40", "600", "1000000", "64"]);
}

/// Both ends have more to send than the other takes at once: were each to read no further until the other
/// has read, as over TCP they did, the client would give the server up.
#[test]
fn values_that_go_both_ways_by_the_dozen_all_arrive() {
    assert_served("a", ["40", "600", "1000000", "64"]);
}
