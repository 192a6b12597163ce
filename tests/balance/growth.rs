//! A cluster of three grows to five and shrinks to two by the commands alone, under clients that write and
//! read, half of them one-sided: no operation fails.

use std::time::Duration;

use cell_tests::cluster::View;
use cell_tests::program;
use cell_tests::server::Server;
use cell_tests::traffic::Traffic;

use crate::balance::{assert_loaded, cluster, load};

/// Clients that meet on shared keys.
const MEETING: u64 = 3;
/// How long each operation is tried. One that is not done by then has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Writes between two changes.
const WRITES_MIN: u64 = 200;

/// `cell dev scale`.
fn scale(server: &Server, nodes: &str) {
    let folder = server.folder().to_str().expect("it is text");
    let said = program::run(&["dev", "scale", nodes, "--dir", folder, "--patience", "10m"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    println!("{}", said.out);
}

/// Whether there are so many nodes, and each has a pair.
fn each_has_one(view: &View, nodes: usize) -> bool {
    let owned = view.owned();
    owned.len() == nodes && owned.values().all(|pairs| !pairs.is_empty())
}

#[test]
fn cluster_grows_to_five_and_shrinks_to_two_under_load_and_no_operation_fails() {
    let server = cluster();
    load(&server);
    let traffic = Traffic::new(server.address());
    let (ledger, _) = traffic.during(MEETING, PATIENCE, || {
        traffic.wait_acknowledged(WRITES_MIN);
        scale(&server, "5");
        server.wait_view("shared by five", |view| each_has_one(view, 5));
        traffic.wait_acknowledged(WRITES_MIN);
        scale(&server, "2");
        let view = server.wait_healthy();
        assert!(each_has_one(&view, 2), "{view:?}");
        traffic.wait_acknowledged(WRITES_MIN);
    });
    assert_eq!(traffic.failed(), 0, "no operation fails");
    let keys = traffic.verify(&ledger);
    println!("{keys} keys, {} operations checked", traffic.check_history());
    assert_loaded(&server);
}
