//! Clients that ask for far more at once than the network takes, and read all of it: no enemies.

use cell_tests::program;

use crate::Siege;

/// Gets with many large values in flight over each transport. A node that makes all answers before it sends
/// the first disconnects who asked (measured: a fiftieth of the rate, by reconnecting all the time).
fn assert_served(value_bytes: &str, records: &str, in_flight: &str) {
    let mut siege = Siege::begin();
    let server = siege.server.address().to_string();
    for (transport, more) in [("tcp", &[][..]), ("shm", &["--skip-load"][..])] {
        let bench = ["bench", "ycsb", "--workload", "c", "--operations", "2000", "--threads", "2"];
        let sizes = ["--records", records, "--value-bytes", value_bytes, "--in-flight", in_flight];
        let to = ["--server", &server, "--transport", transport];
        let said = program::run(&[&bench[..], &sizes, &to, more].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    let log = siege.server.log();
    assert!(!log.contains("does not read its replies"), "{log}");
    siege.assert_unharmed();
}

#[test]
fn hundreds_of_values_asked_for_at_once_are_all_sent() {
    assert_served("60000", "200", "512");
}

#[test]
fn dozens_of_values_in_chunks_asked_for_at_once_are_all_sent() {
    assert_served("1000000", "40", "64");
}
