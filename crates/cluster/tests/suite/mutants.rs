//! The twins of the coordinator's tests: each defect must be caught by a check that is clean without it.
//! Debug builds alone have them.
#![cfg(debug_assertions)]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cell_cluster::local_socket::own_user;
use cell_cluster::{
    ClaimReason, ClusterError, Coordinator, CoordinatorServer, Embedded, HostId, Incidents, ManualClock,
    Missing, NewIncident, NewPair, Ownership, PairGeometry, Remote, Sim, Table, Transaction,
};
use cell_durable::{PowerCutSyncer, Syncer, SystemSyncer};
use cell_terms::mutant::{Mutant, plant};
use cell_terms::{Incarnation, NodeId};

use crate::joining;

/// Whether what the simulated coordinator acknowledged outlives a power cut.
fn simulated_power_cut_is_clean() -> bool {
    let sim = Sim::new(7);
    let link = sim.link();
    for key in ["k/1", "k/2"] {
        link.transact(Transaction::new().put(key, "")).unwrap();
    }
    sim.cut_power();
    sim.power_on();
    link.list("k/").unwrap().entries.len() == 2
}

const FOLDER: &str = "coordinator";

fn embedded(disk: &Path, syncer: Arc<dyn Syncer>) -> Embedded {
    Embedded::open_with(&disk.join(FOLDER), Arc::new(ManualClock::new(1)), syncer).unwrap()
}

/// Whether what the embedded coordinator acknowledged outlives a power cut, over real files.
fn power_cut_is_clean() -> bool {
    let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let syncer = Arc::new(PowerCutSyncer::new(before.path()).unwrap());
    let live = embedded(before.path(), syncer.clone());
    for row in 0..40 {
        live.transact(Transaction::new().put(format!("k/{row}"), "v".repeat(7_700))).unwrap();
    }
    syncer.restore(after.path()).unwrap();
    let folder = after.path().join(FOLDER);
    let Ok(cut) = Embedded::open_with(&folder, Arc::new(ManualClock::new(1)), Arc::new(SystemSyncer)) else {
        return false;
    };
    cut.list("").unwrap() == live.list("").unwrap()
}

/// Whether sled keeps all pages in its one file.
fn pages_are_small() -> bool {
    let disk = tempfile::tempdir().unwrap();
    let live = embedded(disk.path(), Arc::new(SystemSyncer));
    for row in 0..40 {
        live.transact(Transaction::new().put(format!("k/{row}"), "v".repeat(32 << 10))).unwrap();
    }
    std::fs::read_dir(disk.path().join(FOLDER).join("table/blobs")).unwrap().count() == 0
}

/// Whether a pair that is there stays as it is when the counter of ids has gone back.
fn counter_that_went_back_is_noticed() -> bool {
    let sim = Sim::new(7);
    let link = sim.link();
    let table = Table::new(Arc::new(link.clone()));
    let geometry =
        PairGeometry { node_region_bytes: 1, extent_region_bytes: 1, slot_bytes: 1, node_bytes: 1 };
    let incarnation = link.grant(500).unwrap().lease;
    let new = NewPair { incarnation, node: NodeId(0), geometry };
    table.create_pair(&new).unwrap();
    let mut row = table.create_pair(&new).unwrap().row;
    table
        .mark_unavailable(
            Ownership { pair: row.pair, epoch: row.epoch, incarnation },
            &Missing::Memory { bytes: 1 },
        )
        .unwrap();
    row = table.pair(row.pair).unwrap();
    link.transact(Transaction::new().put("counter/pair", "2")).unwrap();
    let _ = table.create_pair(&new);
    table.pair(row.pair).unwrap() == row
}

/// Whether a claim by a lock leaves the pair of an owner alone that lives on another host.
fn owner_on_another_host_is_left_alone() -> bool {
    let sim = Sim::new(7);
    let link = sim.link();
    let on_host = |boot| Table::new(Arc::new(link.clone())).on_host(Some(HostId::new(boot, 1)));
    let geometry =
        PairGeometry { node_region_bytes: 1, extent_region_bytes: 1, slot_bytes: 1, node_bytes: 1 };
    let new = NewPair { incarnation: link.grant(500).unwrap().lease, node: NodeId(0), geometry };
    let pair = on_host(1).create_pair(&new).unwrap().row.pair;
    let claimer = link.grant(500).unwrap().lease;
    let claimed = on_host(2).claim(pair, claimer, NodeId(0), ClaimReason::HostLock);
    matches!(claimed, Err(ClusterError::OwnerLives { .. }))
}

/// Of nobody's pairs.
const INCIDENT: NewIncident =
    NewIncident { dead: Incarnation(0), node: NodeId(0), lease_seen_ms: 0, detected_ms: 0, host_lock: false };

/// Whether an incident is refused to who claims it past its lease, having claimed it before or not.
fn claim_past_the_lease_is_refused(has_it: bool) -> bool {
    let sim = Sim::new(7);
    let link = sim.link();
    let claimer = link.grant(500).unwrap().lease;
    let incidents = Incidents::new(Arc::new(link));
    if has_it {
        assert!(incidents.claim(&INCIDENT, claimer, 1).unwrap());
    }
    sim.advance(500_000_000);
    matches!(incidents.claim(&INCIDENT, claimer, 2), Err(ClusterError::LeaseEnded { .. }))
}

/// Whether the coordinator answers no peer of another user.
fn stranger_is_refused() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("coordinator.socket");
    let coordinator = Arc::new(Sim::new(7).link());
    let _server = CoordinatorServer::start(coordinator, &path, |_| Ok(own_user() + 1)).unwrap();
    Remote::new(path, Duration::from_secs(120)).grant(1_000).is_err()
}

/// Whether a check finds nothing wrong.
type Check = fn() -> bool;

#[test]
fn every_mutant_of_the_coordinator_is_caught() {
    cell_terms::mutant::in_own_process(|| {
        let checks: &[(Mutant, &str, Check)] = &[
            (Mutant::CoordinatorUnsynced, "simulated power cut", simulated_power_cut_is_clean),
            (Mutant::CoordinatorUnsynced, "power cut over real files", power_cut_is_clean),
            (Mutant::RowsUncut, "files of sled's own", pages_are_small),
            (Mutant::PairOverwritten, "counter that went back", counter_that_went_back_is_noticed),
            (Mutant::StrangerServed, "peer of another user", stranger_is_refused),
            (Mutant::HostUnasked, "claim across hosts", owner_on_another_host_is_left_alone),
            (Mutant::ClaimerLeaseUnasked, "new incident", || claim_past_the_lease_is_refused(false)),
            (Mutant::ClaimerLeaseUnasked, "own incident", || claim_past_the_lease_is_refused(true)),
            (Mutant::TermsIgnored, "joining over another log root", joining::other_log_root_is_refused),
            (
                Mutant::SeatIgnored,
                "joining as a node that lives",
                joining::second_node_of_a_number_is_refused,
            ),
        ];
        for (mutant, name, is_clean) in checks {
            plant(None);
            assert!(is_clean(), "{name} is not clean");
            plant(Some(*mutant));
            assert!(!is_clean(), "{mutant:?} was not caught by: {name}");
            println!("mutant {} caught by cell-cluster's {name}", mutant.name());
        }
        plant(None);
    });
}
