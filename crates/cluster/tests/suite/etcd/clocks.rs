//! Leases on a real etcd among processes whose clocks of leases differ, as those of two hosts do: each counts
//! by its own, and no lease ends before its time or stays after it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use cell_cluster::{Coordinator, Etcd, EtcdOptions, FirstLease, LeaseTerms, LeaseThread, boottime_ns};
use cell_terms::Incarnation;

use super::members::{EtcdMembers, PREFIX, until};
use super::{DEADLINE, TTL_MS, held};
use crate::reaper;

/// Names the test for the process that it starts.
const TEST: &str = "etcd::clocks::lease_ends_in_time_by_clocks_that_differ_by_days";
/// Set in that process: where etcd is.
const ENDPOINT: &str = "TEST_WITH_ANOTHER_CLOCK";
/// By so much its CLOCK_BOOTTIME is further.
const SECONDS: &str = "400000";
/// Renewals that take longer than two leases.
const RENEWALS: usize = 12;

/// `unshare` to another clock.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--time", "--boottime", SECONDS]).stderr(Stdio::null());
    command
}

/// A process with another clock that holds a lease and looks at all others, and its lease.
fn start(endpoint: &str) -> (Child, Incarnation) {
    let mut command = unshare();
    command.arg(std::env::current_exe().unwrap()).args([TEST, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(ENDPOINT, endpoint).stdin(Stdio::piped()).stdout(Stdio::piped());
    reaper::mark(&mut command);
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = lines.map_while(Result::ok);
    let id = said.find_map(|line| line.strip_prefix("lease ")?.parse().ok()).expect("it holds a lease");
    (child, Incarnation(id))
}

/// What that process does, until it is killed.
fn hold(endpoint: String) {
    let options = EtcdOptions {
        endpoints: vec![endpoint],
        prefix: PREFIX.to_owned(),
        user: None,
        ca_file: None,
        client_certificate: None,
        deadline: DEADLINE,
        compaction: None,
    };
    let terms = LeaseTerms::new(TTL_MS, 0.05);
    let way = Arc::new(Etcd::new(&options).unwrap());
    let lease = FirstLease::ask(way, terms).unwrap().granted().unwrap();
    println!("\nlease {}", lease.incarnation().0);
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    assert!(!lease.has_ended());
}

/// Has somebody stop to renew a lease, and waits for its end. That comes no earlier than its length after the
/// last renewal, which was carried out after a look at the row had still found the one before.
fn ends_in_time(members: &EtcdMembers, lease: Incarnation, stop: impl FnOnce()) {
    let (mut revision, mut asked_ns, mut since_ns) = (None, boottime_ns(), None);
    let mut look = || {
        let before_ns = std::mem::replace(&mut asked_ns, boottime_ns());
        let found = members.lease_revision(lease);
        if found.is_some() && revision.is_some() && found != revision {
            since_ns = Some(before_ns);
        }
        revision = found;
        (found, since_ns)
    };
    until("it is renewed", || look().1.is_some());
    stop();
    let mut last_ns = None;
    until("it has ended", || {
        let (found, since_ns) = look();
        last_ns = since_ns;
        found.is_none()
    });
    let lasted_ns = boottime_ns() - last_ns.unwrap();
    assert!(lasted_ns >= TTL_MS * 1_000_000, "it was ended {lasted_ns} ns after it was renewed");
}

#[test]
fn lease_ends_in_time_by_clocks_that_differ_by_days() {
    if let Ok(endpoint) = std::env::var(ENDPOINT) {
        return hold(endpoint);
    }
    let Some(members) = EtcdMembers::start(1, &[]) else { return };
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: leases by clocks that differ: no time namespaces (root, util-linux)");
        return;
    }
    let way = members.table(DEADLINE);
    let (mut elsewhere, far) = start(&members.options(DEADLINE).endpoints[0]);
    let near = held(&members);
    // Each renews its own, and looks at the other's by another clock.
    let leases = [far, near.incarnation()];
    let (mut revisions, mut renewals) = ([None; 2], [0; 2]);
    until("both were renewed for more than two leases", || {
        for (at, lease) in leases.into_iter().enumerate() {
            let found = members.lease_revision(lease);
            assert!(found.is_some(), "{lease} was ended though it was renewed");
            renewals[at] += usize::from(found != revisions[at]);
            revisions[at] = found;
        }
        renewals.iter().all(|count| *count > RENEWALS)
    });
    assert!(!near.has_ended());
    let second = near.incarnation();
    ends_in_time(&members, second, move || drop::<LeaseThread>(near));
    assert!(way.remaining_ns(far).unwrap().is_some());

    let observer = held(&members);
    ends_in_time(&members, far, || {
        elsewhere.kill().unwrap();
        elsewhere.wait().unwrap();
    });
    assert!(!observer.has_ended());
}
