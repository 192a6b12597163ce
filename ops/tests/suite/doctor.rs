//! `cell doctor`: what a host learns of the other nodes, and of a log root that is not the cluster's; what
//! is left of a doctor that was ended.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Stdio;

use cell_tests::ports::Ports;
use cell_tests::process::signal;
use cell_tests::wait;
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::coordinator_tls::{ADMIN, TOKEN};
use crate::harness::{Dev, command};

/// What `cell doctor` says of peers, and how it ends.
fn examined(flags: &[&str]) -> (Vec<Value>, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let said = command(&["doctor", "--json", &data]).args(flags).output().unwrap();
    let document: Value = serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    let checks = document["checks"].as_array().unwrap().iter();
    (checks.filter(|check| check["name"] == "peer").cloned().collect(), said.status.code())
}

fn is_bad(check: &Value, seen: &str, next: &str) {
    let has = |name: &str, words: &str| check[name].as_str().unwrap().contains(words);
    assert!(check["health"] == "bad" && has("seen", seen) && has("next", next), "{check}");
}

/// It may be a slow one.
fn is_met(check: &Value, words: &str) {
    assert!(check["health"] != "bad" && check["seen"].as_str().unwrap().contains(words), "{check}");
}

#[test]
fn doctor_says_of_each_peer_whether_it_is_reached_and_of_this_cluster() {
    let [own, other] = [(); 2].map(|()| Dev::start());
    let coordinator = format!("--coordinator-address={}", own.server.coordinator().display());
    let free = Ports::take();
    let nobody = format!("127.0.0.1:{}", free.first);
    let (here, there, http) = (own.address(), other.address(), own.http());
    let peers = [&*here, &*there, &*http, &*nobody, "nowhere.invalid:7000"].map(|peer| ["--peer", peer]);
    let (said, exit) = examined(&[&[&*coordinator][..], peers.as_flattened()].concat());
    assert_eq!((said.len(), exit), (5, Some(5)), "{said:?}");
    is_met(&said[0], &format!("{here}: node 0 says hello in the clear, after "));
    is_bad(&said[1], "of another cluster than the coordinator's members", "advertise_address");
    is_bad(&said[2], &http, "port");
    is_bad(&said[3], &nobody, "start the node there");
    is_bad(&said[4], "nowhere.invalid", "DNS");

    // Nobody says of which cluster they should be: the first one does.
    let (said, _) = examined(&["--peer", &there, "--peer", &here]);
    is_met(&said[0], "in the clear");
    is_bad(&said[1], &format!("{here}: node 0 is of another cluster than {there}"), "coordinator");
}

/// A CA of this name, and a certificate that it has signed for 127.0.0.1.
fn certificate(folder: &Path, ca: &str) -> [String; 3] {
    let path = |name: String| folder.join(name).to_str().unwrap().to_owned();
    let (authority, host) = (path(ca.to_owned()), path(format!("of-{ca}")));
    let make = ["certificates", "make", "--host", "127.0.0.1", "--out", &host, "--ca", &authority];
    let made = command(&make).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    ["ca.crt", "node.crt", "node.key"].map(|name| path(format!("of-{ca}/{name}")))
}

#[test]
fn doctor_says_of_a_peer_with_tls_and_tokens_what_is_lacking() {
    let folder = tempfile::tempdir().unwrap();
    let [[trust, shown, key], [distrust, ..]] = ["one", "two"].map(|ca| certificate(folder.path(), ca));
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, ADMIN).unwrap();
    let tokens = tokens.to_str().unwrap();
    let flags = ["--tls-certificate-file", &shown, "--tls-key-file", &key, "--tokens-file", tokens];
    let dev = Dev::start_with(&flags);
    let peer = dev.address();
    let look = |more: &[&str]| {
        let (mut said, _) = examined(&[&["--peer", &*peer][..], more].concat());
        said.pop().unwrap()
    };
    is_met(&look(&["--tls-trust-file", &trust, "--token", TOKEN]), "node 0 says hello over TLS");
    let unknown = look(&["--tls-trust-file", &trust]);
    assert_eq!(unknown["health"], "doubtful", "{unknown}");
    is_met(&unknown, "it is reached, and does not say of which cluster it is");
    is_bad(&look(&["--tls-trust-file", &distrust]), &peer, "tls_trust_file");
    is_bad(&look(&[]), &peer, "as the peer has them");
}

/// What `cell doctor` with these arguments says under this name; none: nothing.
fn found(arguments: &[&str], name: &str) -> Option<Value> {
    let said = command(&[&["doctor", "--json"][..], arguments].concat()).output().unwrap();
    let document: Value = serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    let mut checks = document["checks"].as_array().unwrap().iter();
    checks.find(|check| check["name"] == name).cloned()
}

/// What it says of a log root's id, for the coordinator of a cluster, once that has answered in time.
fn log_root_id(coordinator: &str, root: &Path) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let root = format!("--log-root={}", root.display());
    let ask = || found(&[&data, &root, coordinator], "log root's id");
    wait::until_some("the coordinator tells which log root the cluster has", ask)
}

#[test]
fn doctor_says_of_a_log_root_whether_it_is_the_clusters_and_of_its_coordinator_that_it_takes_writes() {
    let dev = Dev::start();
    let coordinator = format!("--coordinator-address={}", dev.server.coordinator().display());
    let own = log_root_id(&coordinator, &Path::new(dev.data()).join("log"));
    assert_eq!(own["health"], "well", "{own}");
    let empty = tempfile::tempdir().unwrap();
    let other = log_root_id(&coordinator, empty.path());
    is_bad(&other, "nothing is stored there", "log_root");
    wait::until("the coordinator takes the doctor's write", || {
        let of_it = found(&["--data-dir", dev.data(), &coordinator], "coordinator").unwrap();
        of_it["seen"].as_str().unwrap().contains("it takes writes")
    });
}

#[test]
fn doctor_that_a_signal_ends_leaves_nothing_in_the_log_root() {
    let folder = tempfile::tempdir().unwrap();
    let [data, beside] = ["data", "beside"].map(|name| folder.path().join(name));
    let root = data.join("log");
    fs::create_dir_all(&root).unwrap();
    fs::create_dir(&beside).unwrap();
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let names = || fs::read_dir(&root).unwrap().map(name);
    let flags = [format!("--data-dir={}", data.display()), format!("--beside={}", beside.display())];
    let mut doctor = command(&["doctor"]);
    let mut doctor = doctor.args(flags).stdout(Stdio::null()).spawn().unwrap();
    // It waits there for a name that does not come.
    wait::until("the doctor waits", || names().any(|name| name.ends_with("-shared")));
    signal(Pid::from_child(&doctor), Signal::TERM);
    assert_eq!(doctor.wait().unwrap().code(), Some(130));
    assert_eq!(names().collect::<Vec<_>>(), Vec::<String>::new());
}
