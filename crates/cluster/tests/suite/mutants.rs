//! The twins of the coordinator's tests: each defect must be caught by a check that is clean without it.
//! Debug builds alone have them.
#![cfg(debug_assertions)]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cell_cluster::local_socket::own_user;
use cell_cluster::{
    ClaimReason, ClusterError, Coordinator, CoordinatorRequest, CoordinatorServer, CoordinatorTlsServer,
    Embedded, HostId, Incidents, ManualClock, Missing, NewIncident, NewPair, Notices, Ownership,
    PairGeometry, Remote, Response, ServingAddress, Sim, SimLink, Table, TlsAddress, Transaction,
};
use cell_durable::{PowerCutSyncer, Syncer, SystemSyncer};
use cell_terms::mutant::{Mutant, plant};
use cell_terms::{Csn, Durability, Incarnation, NodeId};

use crate::test_tls::Ends;
use crate::{balance, drains, joining, moves, table, unreadable};

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
    let ownership = Ownership { pair: row.pair, epoch: row.epoch, incarnation };
    table.decline(ownership, &Missing::Memory { bytes: 1 }).unwrap();
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

const GEOMETRY: PairGeometry =
    PairGeometry { node_region_bytes: 1, extent_region_bytes: 1, slot_bytes: 1, node_bytes: 1 };

fn place() -> ServingAddress {
    ServingAddress { address: "127.0.0.1:7000".to_owned(), worker: 0, node_key: 0, extent_key: 0 }
}

/// Whether a pair is refused to who serves it: what it granted in its earlier epoch ends with its lease
/// alone.
fn claim_by_who_has_served_is_refused() -> bool {
    let sim = Sim::new(7);
    let link = sim.link();
    let incarnation = link.grant(500).unwrap().lease;
    let table = Table::new(Arc::new(link));
    let new = NewPair { incarnation, node: NodeId(0), geometry: GEOMETRY };
    let ownership = table.create_pair(&new).unwrap().ownership;
    table.publish(ownership, Durability::Sync, &place()).unwrap();
    let claimed = table.claim(ownership.pair, incarnation, NodeId(0), ClaimReason::HostLock);
    matches!(claimed, Err(ClusterError::State { .. })) && table.pair(ownership.pair).unwrap().is_published()
}

/// A way to the coordinator on which another is faster once.
struct Outrun<F> {
    link: SimLink,
    is_outrun: AtomicBool,
    other: F,
}

impl<F: Fn() + Send + Sync> Coordinator for Outrun<F> {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        let is_write = matches!(request, CoordinatorRequest::Transact(_));
        if is_write && !self.is_outrun.swap(true, Ordering::SeqCst) {
            (self.other)();
        }
        self.link.call(request)
    }
}

/// Whether a claim comes to nothing when another has claimed the pair since its row was read.
fn claim_that_was_outrun_changes_nothing() -> bool {
    let sim = Sim::new(7);
    let member = || (Table::new(Arc::new(sim.link())), sim.link().grant(500).unwrap().lease);
    let (table, owner) = member();
    let new = NewPair { incarnation: owner, node: NodeId(0), geometry: GEOMETRY };
    let ownership = table.create_pair(&new).unwrap().ownership;
    table.publish(ownership, Durability::Sync, &place()).unwrap();
    sim.advance(500_000_000);
    let ((fast, winner), (_, slow)) = (member(), member());
    let claim =
        |table: &Table, lease| table.claim(ownership.pair, lease, NodeId(0), ClaimReason::LeaseEnded).is_ok();
    let pair = ownership.pair;
    let other = move || _ = fast.claim(pair, winner, NodeId(0), ClaimReason::LeaseEnded).unwrap();
    let late = Table::new(Arc::new(Outrun { link: sim.link(), is_outrun: AtomicBool::new(false), other }));
    !claim(&late, slow) && table.pair(pair).unwrap().owner == Some(winner)
}

/// Whether nothing is said in a pair's name by who has lost it and lives, not even if it is lost within the
/// call.
fn notice_of_who_has_lost_the_pair_is_refused() -> bool {
    let sim = Sim::new(7);
    let member = || (Table::new(Arc::new(sim.link())), sim.link().grant(500).unwrap().lease);
    let ((table, owner), (others, other)) = (member(), member());
    let new = NewPair { incarnation: owner, node: NodeId(0), geometry: GEOMETRY };
    let [first, second] = [(); 2].map(|()| table.create_pair(&new).unwrap().ownership);
    let lose = move |ownership: Ownership| {
        table.publish(ownership, Durability::Sync, &place()).unwrap();
        table.leave(ownership, Csn(1)).unwrap();
        others.claim(ownership.pair, other, NodeId(1), ClaimReason::LeaseEnded).unwrap();
    };
    lose(first);
    let set = |link: Arc<dyn Coordinator>, key: &str, ownership| {
        let refused = Notices::new(link).set(key, Some("linked"), ownership);
        matches!(refused, Err(ClusterError::Superseded { owner: Some(owner), .. }) if owner == other)
    };
    let is_refused = set(Arc::new(sim.link()), "split/1", first);
    let other = move || lose(second);
    let slow = Outrun { link: sim.link(), is_outrun: AtomicBool::new(false), other };
    let is_refused = set(Arc::new(slow), "split/2", second) && is_refused;
    is_refused && sim.link().list("split/").unwrap().entries.is_empty()
}

/// Whether a pair is not served while its earlier owner may be trusted.
fn trust_of_the_earlier_owner_is_awaited() -> bool {
    catch_unwind(table::publish_host_lock_claim_waits_for_the_old_lease).is_ok()
}

/// Whether a test holds.
fn holds(test: fn()) -> bool {
    catch_unwind(test).is_ok()
}

/// Whether damage that one member has found is left to another one to look at.
fn damage_is_looked_at_twice() -> bool {
    catch_unwind(table::damage_that_one_member_found_is_looked_at_by_another_and_believed_then).is_ok()
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

/// Whether the coordinator is asked over TLS by nobody who shows another token.
fn wrong_token_is_refused() -> bool {
    let (ends, coordinator) = (Ends::new(), Arc::new(Sim::new(7).link()));
    let address = "127.0.0.1:0".parse().unwrap();
    let server = CoordinatorTlsServer::start(coordinator, address, ends.server(), Ends::check()).unwrap();
    let address = TlsAddress::parse(&format!("tls://{}", server.address())).unwrap().unwrap();
    let remote = Remote::over_tls(address, ends.credentials("a guess"), Duration::from_secs(120));
    remote.grant(1_000).is_err()
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
            (Mutant::CoordinatorTokenUnasked, "peer with another token", wrong_token_is_refused),
            (Mutant::HostUnasked, "claim across hosts", owner_on_another_host_is_left_alone),
            (Mutant::ServedClaimedAgain, "claim of what one serves", claim_by_who_has_served_is_refused),
            (Mutant::TableUnconditional, "claim that was outrun", claim_that_was_outrun_changes_nothing),
            (Mutant::NoticeWithoutRow, "notice of a lost pair", notice_of_who_has_lost_the_pair_is_refused),
            (Mutant::HandingLeaseUnasked, "handing to a dead target", || {
                holds(moves::handing_to_a_dead_target_is_refused)
            }),
            (Mutant::HandingMoveUnasked, "handing of a cancelled move", || {
                holds(moves::handing_of_a_move_that_was_cancelled_since_is_refused)
            }),
            (Mutant::ThawByLook, "handing that comes late", || {
                holds(moves::handing_that_comes_late_changes_nothing_once_the_row_was_put_again)
            }),
            (Mutant::UnansweredBelieved, "row put without an answer", || {
                holds(moves::row_that_was_put_without_an_answer_is_not_taken_for_put)
            }),
            (Mutant::ServedTakenBack, "way back of a served pair", || {
                holds(moves::pair_that_its_target_serves_does_not_go_back)
            }),
            (Mutant::BackOutrun, "way back of a claimed pair", || {
                holds(moves::pair_that_a_survivor_has_claimed_does_not_go_back)
            }),
            (Mutant::ThawOnALook, "way back by another write", || {
                holds(moves::pair_that_came_back_by_a_write_without_an_answer_may_have_been_anothers)
            }),
            (Mutant::BalancerUnasked, "move of who balances no more", || {
                holds(balance::move_of_who_balances_no_more_is_refused)
            }),
            (Mutant::BalancerUnasked, "two moves from one seat", || {
                holds(balance::of_two_moves_from_one_seat_one_is_started)
            }),
            (Mutant::MoveToDrain, "move past a drain that came first", || {
                holds(drains::move_does_not_begin_past_a_drain_that_came_first)
            }),
            (Mutant::LastTwoDrained, "drains of the last two nodes", || {
                holds(drains::drains_of_the_last_two_nodes_at_once_leave_one)
            }),
            (Mutant::DrainsUnseen, "drains that were changed since", || {
                holds(drains::change_is_refused_if_drains_were_changed_since_it_was_looked_at)
            }),
            (Mutant::DrainPlanUnasked, "drain after another one's plan", || {
                holds(drains::drain_that_was_planned_before_another_began_is_refused)
            }),
            (Mutant::DrainPlanUnasked, "drain outrun by another", || {
                holds(drains::drain_that_another_outruns_is_refused_if_it_was_planned_before)
            }),
            (Mutant::DrainPlanUnasked, "drain to a target that died", || {
                holds(drains::drain_whose_targets_have_died_is_refused)
            }),
            (Mutant::TrustNotAwaited, "publication", trust_of_the_earlier_owner_is_awaited),
            (Mutant::DamageBelievedAlone, "damage of a pair", damage_is_looked_at_twice),
            (Mutant::ClaimerLeaseUnasked, "new incident", || claim_past_the_lease_is_refused(false)),
            (Mutant::ClaimerLeaseUnasked, "own incident", || claim_past_the_lease_is_refused(true)),
            (Mutant::SessionByCounter, "sessions of a restored table", || {
                holds(table::session_of_a_restored_table_is_nobodys_of_before)
            }),
            (
                Mutant::UnreadableSessionEnded,
                "session whose row does not read",
                unreadable::session_whose_row_does_not_read_is_open,
            ),
            (
                Mutant::UnreadableMemberUnseen,
                "joining beside a member whose row does not read",
                joining::other_lease_beside_a_member_that_does_not_read_is_refused,
            ),
            (Mutant::TermsIgnored, "joining over another log root", joining::other_log_root_is_refused),
            (
                Mutant::RootUnproven,
                "joining over a copy of the log root",
                joining::copied_log_root_is_refused,
            ),
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
