//! The region table, the sessions and the members over the simulated coordinator, with its failures.

#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::sync::Arc;

use cell_cluster::{
    CheckpointRow, Claim, ClaimReason, ClusterError, Fault, Finding, HostId, MemberRow, Members, Missing,
    NewPair, Ownership, PairGeometry, PairState, RefutedFinding, ServingAddress, Sessions, Sim, SimLink,
    Table, Watch,
};
use cell_terms::{Csn, Durability, Epoch, Incarnation, NodeId, PairId, RegionId};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const NODE: NodeId = NodeId(0);
const HOST: HostId = HostId::new(1, 2);
const GEOMETRY: PairGeometry = PairGeometry {
    node_region_bytes: 1 << 30,
    extent_region_bytes: 1 << 31,
    slot_bytes: 8 << 20,
    node_bytes: 1024,
};

struct Member {
    link: SimLink,
    table: Table,
    lease: Incarnation,
}

fn member(sim: &Sim) -> Member {
    member_on(sim, Some(HOST))
}

fn member_on(sim: &Sim, host: Option<HostId>) -> Member {
    let link = sim.link();
    let lease = cell_cluster::Coordinator::grant(&link, 500).unwrap().lease;
    Member { table: Table::new(Arc::new(link.clone())).on_host(host), link, lease }
}

fn place() -> ServingAddress {
    ServingAddress { address: "127.0.0.1:7000".to_owned(), worker: 0, node_key: 0, extent_key: 0 }
}

impl Member {
    fn create(&self) -> Result<Claim, ClusterError> {
        self.table.create_pair(&NewPair { incarnation: self.lease, node: NODE, geometry: GEOMETRY })
    }

    fn claim(&self, pair: PairId, reason: ClaimReason) -> Result<Claim, ClusterError> {
        self.table.claim(pair, self.lease, NODE, reason)
    }

    fn publish(&self, ownership: Ownership) -> Result<(), ClusterError> {
        self.table.publish(ownership, Durability::Sync, &place()).map(|_| ())
    }

    fn serving_pair(&self) -> Ownership {
        let ownership = self.create().unwrap().ownership;
        self.publish(ownership).unwrap();
        ownership
    }
}

/// Issue 11, finding 2: a table that lost the newer one of its rows gave out the id of a pair that was there.
#[test]
fn create_pair_whose_counter_went_back_overwrites_nothing() {
    let sim = Sim::new(1);
    let member = member(&sim);
    let ownerships = [1, 2, 3].map(|_| member.serving_pair());
    let rows = member.table.pairs().unwrap().0;
    let counter = |next: &str| {
        let back = cell_cluster::Transaction::new().put("counter/pair", next);
        cell_cluster::Coordinator::transact(&member.link, back).unwrap();
    };
    counter("2");
    let refused = member.create().unwrap_err();
    assert!(matches!(refused, ClusterError::CounterWentBack { what: "pair" }), "{refused}");
    assert!(!refused.is_transient());
    assert_eq!(member.table.pairs().unwrap().0, rows, "{ownerships:?}");
    counter("4");
    assert_eq!(member.create().unwrap().row.pair, PairId(4));
}

#[test]
fn lay_out_beside_a_pair_whose_counter_is_lost_overwrites_nothing() {
    let sim = Sim::new(1);
    let member = member(&sim);
    member.serving_pair();
    let rows = member.table.pairs().unwrap().0;
    let lost = cell_cluster::Transaction::new().delete("counter/pair");
    cell_cluster::Coordinator::transact(&member.link, lost).unwrap();
    let refused =
        member.table.lay_out(&cell_cluster::Layout::even(2, 1), GEOMETRY, member.lease).unwrap_err();
    assert!(matches!(refused, ClusterError::CounterWentBack { .. }), "{refused}");
    assert_eq!(member.table.pairs().unwrap().0, rows);
}

#[test]
fn open_session_whose_counter_went_back_takes_nobodys_session() {
    let sim = Sim::new(1);
    let (one, two) = (member(&sim), member(&sim));
    let sessions = Sessions::new(Arc::new(sim.link()));
    assert_eq!(sessions.open_many(one.lease, 1_000).unwrap().len(), 126, "as many as fit");
    let before = sessions.open_sessions().unwrap().0;
    let back = cell_cluster::Transaction::new().put("counter/session", "100");
    cell_cluster::Coordinator::transact(&one.link, back).unwrap();
    let refused = sessions.open(one.lease).unwrap_err();
    assert!(matches!(refused, ClusterError::CounterWentBack { what: "session" }), "{refused}");
    assert_eq!(sessions.open_sessions().unwrap().0, before);
    let other = sessions.open(two.lease).unwrap();
    assert!(before.iter().all(|row| row.session != other), "another keeper's ids are others");
}

#[test]
fn claim_living_owner_is_refused_until_its_lease_ended() {
    let sim = Sim::new(1);
    let owner = member(&sim);
    let pair = owner.serving_pair().pair;
    sim.advance(300 * MS);
    let survivor = member(&sim);
    let refused = survivor.claim(pair, ClaimReason::LeaseEnded).unwrap_err();
    assert!(matches!(refused, ClusterError::OwnerLives { remaining_ns, .. } if remaining_ns == 200 * MS));
    sim.advance(200 * MS);
    let claim = survivor.claim(pair, ClaimReason::LeaseEnded).unwrap();
    assert_eq!((claim.row.epoch, &claim.row.state), (Epoch(2), &PairState::Recovering));
    assert_eq!(claim.row.trusted, []);
    assert_eq!(survivor.table.trust_remaining_ns(&claim).unwrap(), None);
}

/// A lock says nothing of a process on another machine, of another boot, or over another log root.
#[test]
fn claim_by_lock_of_an_owner_on_another_host_waits_for_its_lease() {
    let (other_boot, other_root) = (HostId::new(3, 2), HostId::new(1, 3));
    let strangers = [other_boot, other_root].map(|other| (Some(HOST), Some(other)));
    for (owners, claimers) in
        strangers.into_iter().chain([(Some(HOST), None), (None, Some(HOST)), (None, None)])
    {
        let sim = Sim::new(1);
        let (owner, second) = (member_on(&sim, owners), member_on(&sim, claimers));
        let ownership = owner.serving_pair();
        let refused = second.claim(ownership.pair, ClaimReason::HostLock).unwrap_err();
        assert!(
            matches!(refused, ClusterError::OwnerLives { remaining_ns, .. } if remaining_ns == 500 * MS),
            "{owners:?}, {claimers:?}: {refused}"
        );
        assert_eq!(owner.table.pair(ownership.pair).unwrap().epoch, ownership.epoch);
        sim.advance(400 * MS);
        cell_cluster::Coordinator::keep_alive(&second.link, second.lease).unwrap();
        sim.advance(100 * MS);
        let claim = second.claim(ownership.pair, ClaimReason::HostLock).unwrap();
        assert_eq!(
            (claim.row.host, claim.row.trusted),
            (claimers, vec![]),
            "its trust is over with its lease"
        );
    }
}

#[test]
fn pair_row_names_the_host_of_its_owner_and_none_without_one() {
    let sim = Sim::new(1);
    let first = member(&sim);
    let ownership = first.serving_pair();
    assert_eq!(first.table.pair(ownership.pair).unwrap().host, Some(HOST));
    first.table.release(ownership).unwrap();
    assert_eq!(first.table.pair(ownership.pair).unwrap().host, None);
    // Nobody's pair: there is no lease to wait for, wherever its last owner ran.
    let elsewhere = member_on(&sim, Some(HostId::new(9, 9)));
    let claim = elsewhere.claim(ownership.pair, ClaimReason::HostLock).unwrap();
    assert_eq!(claim.row.host, Some(HostId::new(9, 9)));
    elsewhere.table.decline(claim.ownership, &Missing::Memory { bytes: 1 }).unwrap();
    assert_eq!(first.table.pair(ownership.pair).unwrap().host, None);
}

#[test]
pub(crate) fn publish_host_lock_claim_waits_for_the_old_lease() {
    let sim = Sim::new(1);
    let first = member(&sim);
    let pair = first.serving_pair().pair;
    let second = member(&sim);
    let claim = second.claim(pair, ClaimReason::HostLock).unwrap();
    let ownership = claim.ownership;
    assert!(matches!(second.publish(ownership), Err(ClusterError::CutMissing { epoch: Epoch(1), .. })));
    second.table.record_cut(ownership, Epoch(1), Csn(10)).unwrap();
    assert_eq!(second.table.trust_remaining_ns(&claim).unwrap(), Some(500 * MS));
    let early = second.publish(ownership);
    assert!(matches!(early, Err(ClusterError::TrustRemains { owner, .. }) if owner == first.lease));
    sim.advance(400 * MS);
    cell_cluster::Coordinator::keep_alive(&second.link, second.lease).unwrap();
    sim.advance(100 * MS);
    assert_eq!(second.table.trust_remaining_ns(&claim).unwrap(), None);
    second.publish(ownership).unwrap();
    assert_eq!(second.table.pair(pair).unwrap().trusted, []);
}

#[test]
fn record_cut_second_recovery_takes_the_recorded_one() {
    let sim = Sim::new(1);
    let pair = member(&sim).serving_pair().pair;
    sim.advance(500 * MS);
    let second = member(&sim);
    let ownership = second.claim(pair, ClaimReason::LeaseEnded).unwrap().ownership;
    second.table.record_cut(ownership, Epoch(1), Csn(10)).unwrap();
    sim.advance(500 * MS);
    let third = member(&sim);
    let claim = third.claim(pair, ClaimReason::LeaseEnded).unwrap();
    let needed: Vec<_> = claim.row.epochs_needed().map(|row| (row.epoch, row.cut)).collect();
    assert_eq!(needed, [(Epoch(1), Some(Csn(10)))], "the second was never published: its logs are not read");
    let other = third.table.record_cut(claim.ownership, Epoch(1), Csn(11)).unwrap_err();
    assert!(matches!(other, ClusterError::CutRecorded { recorded: Csn(10), found: Csn(11), .. }));
    third.table.record_cut(claim.ownership, Epoch(1), Csn(10)).unwrap();
    let late = second.table.record_cut(ownership, Epoch(1), Csn(10)).unwrap_err();
    assert!(matches!(late, ClusterError::Superseded { epoch: Epoch(3), .. }));
}

#[test]
fn change_after_the_writers_lease_ended_is_refused() {
    let sim = Sim::new(1);
    let owner = member(&sim);
    let ownership = owner.serving_pair();
    sim.advance(500 * MS);
    let checkpoint =
        CheckpointRow { epoch: Epoch(1), csn: Csn(1), csn_max: Csn(1), file: "checkpoint".to_owned() };
    let ended = |result: Result<(), ClusterError>| {
        assert!(matches!(result.unwrap_err(), ClusterError::LeaseEnded { lease } if lease == owner.lease));
    };
    ended(owner.table.record_checkpoint(ownership, &checkpoint).map(|_| ()));
    ended(owner.table.release(ownership));
    ended(owner.create().map(|_| ()));
}

#[test]
fn record_checkpoint_drops_epochs_wholly_below() {
    let sim = Sim::new(1);
    let first = member(&sim);
    let pair = first.serving_pair().pair;
    sim.advance(500 * MS);
    let second = member(&sim);
    let ownership = second.claim(pair, ClaimReason::LeaseEnded).unwrap().ownership;
    let checkpoint = |epoch, csn| CheckpointRow {
        epoch: Epoch(epoch),
        csn: Csn(csn),
        csn_max: Csn(csn + 5),
        file: format!("checkpoint-{csn}"),
    };
    let early = second.table.record_checkpoint(ownership, &checkpoint(2, 20));
    assert!(matches!(early, Err(ClusterError::State { .. })), "not before it is published");
    second.table.record_cut(ownership, Epoch(1), Csn(10)).unwrap();
    second.publish(ownership).unwrap();
    assert_eq!(second.table.pair(pair).unwrap().history.len(), 2);
    second.table.record_checkpoint(ownership, &checkpoint(2, 20)).unwrap();
    let row = second.table.pair(pair).unwrap();
    assert_eq!(row.history.iter().map(|old| old.epoch).collect::<Vec<_>>(), [Epoch(2)]);
    let back = second.table.record_checkpoint(ownership, &checkpoint(2, 19));
    assert!(matches!(back, Err(ClusterError::CheckpointOlder { .. })));
    second.table.record_checkpoint(ownership, &checkpoint(2, 30)).unwrap();
    assert_eq!(second.table.pair(pair).unwrap().checkpoint, Some(checkpoint(2, 30)));
}

#[test]
fn release_owner_leaves_but_its_trust_lasts() {
    let sim = Sim::new(1);
    let first = member(&sim);
    let ownership = first.serving_pair();
    first.link.plan([Fault::None, Fault::AnswerLost]); // the read, then the transaction
    first.table.release(ownership).unwrap();
    let row = first.table.pair(ownership.pair).unwrap();
    assert_eq!((row.owner, &row.state, row.node), (None, &PairState::Released, NODE));
    let second = member(&sim);
    let claim = second.claim(ownership.pair, ClaimReason::LeaseEnded).unwrap();
    assert_eq!(claim.row.trusted, [first.lease]);
    second.table.record_cut(claim.ownership, Epoch(1), Csn(3)).unwrap();
    assert!(matches!(second.publish(claim.ownership), Err(ClusterError::TrustRemains { .. })));
}

/// A member of a node of its own that has claimed a pair to look at its data.
fn looks(sim: &Sim, pair: PairId, node: u32) -> (Member, Ownership) {
    let member = member(sim);
    let claim = member.table.claim(pair, member.lease, NodeId(node), ClaimReason::LeaseEnded).unwrap();
    (member, claim.ownership)
}

fn log_missing(pair: PairId) -> Missing {
    Missing::Log { region: pair.node_region(), epoch: Epoch(1) }
}

/// A pair whose owner has died.
fn orphan(sim: &Sim) -> PairId {
    let pair = member(sim).serving_pair().pair;
    sim.advance(500 * MS);
    pair
}

#[test]
pub(crate) fn damage_that_one_member_found_is_looked_at_by_another_and_believed_then() {
    let sim = Sim::new(1);
    let pair = orphan(&sim);
    let missing = log_missing(pair);
    let (first, ownership) = looks(&sim, pair, 1);
    // The read, then the transaction.
    first.link.plan([Fault::None, Fault::AnswerLost]);
    assert!(!first.table.report_damage(ownership, &missing).unwrap(), "it may be its own fault");
    let row = first.table.pair(pair).unwrap();
    assert_eq!((row.owner, row.host, row.awaits_look()), (None, None, true));
    assert_eq!(row.state, PairState::Unavailable { missing: missing.clone() });
    assert_eq!(
        row.findings,
        [Finding { incarnation: first.lease, node: NodeId(1), missing: missing.clone() }]
    );
    // The same node in another life is no second member.
    let (again, ownership) = looks(&sim, pair, 1);
    assert!(!again.table.report_damage(ownership, &missing).unwrap());
    let (second, ownership) = looks(&sim, pair, 2);
    second.link.plan([Fault::None, Fault::AnswerLost]);
    assert!(second.table.report_damage(ownership, &missing).unwrap());
    let row = second.table.pair(pair).unwrap();
    assert_eq!((row.owner, row.awaits_look()), (Some(second.lease), false));
    let found: Vec<_> = row.findings.iter().map(|finding| (finding.incarnation, finding.node.0)).collect();
    assert_eq!(found, [(again.lease, 1), (second.lease, 2)]);
    // Its owner may claim it again.
    let claim = second.table.claim(pair, second.lease, NodeId(2), ClaimReason::LeaseEnded).unwrap();
    assert_eq!((claim.ownership.epoch, claim.row.trusted), (Epoch(5), vec![]));
}

#[test]
fn finding_outlives_the_coordinator_and_is_a_warning_once_another_member_serves_the_pair() {
    let sim = Sim::new(1);
    let pair = orphan(&sim);
    let missing = log_missing(pair);
    let (first, ownership) = looks(&sim, pair, 1);
    first.table.report_damage(ownership, &missing).unwrap();
    sim.cut_power();
    sim.power_on();
    let (full, ownership) = looks(&sim, pair, 2);
    full.table.decline(ownership, &Missing::Memory { bytes: 1 }).unwrap();
    let (reader, ownership) = looks(&sim, pair, 3);
    let finding = Finding { incarnation: first.lease, node: NodeId(1), missing };
    let findings = reader.table.pair(pair).unwrap().findings;
    assert_eq!(findings, std::slice::from_ref(&finding), "who had no room did not look");
    reader.table.record_cut(ownership, Epoch(1), Csn(10)).unwrap();
    let served = reader.table.publish(ownership, Durability::Sync, &place()).unwrap();
    assert_eq!(served.findings, []);
    assert_eq!(served.refuted, [RefutedFinding { finding, read_by: NodeId(3) }]);
    assert_eq!(reader.table.pair(pair).unwrap(), served);
}

#[test]
fn damage_of_a_pair_that_is_served_is_not_reported() {
    let sim = Sim::new(1);
    let owner = member(&sim);
    let ownership = owner.serving_pair();
    let refused = owner.table.report_damage(ownership, &log_missing(ownership.pair));
    assert!(matches!(refused, Err(ClusterError::State { .. })));
}

#[test]
fn check_logs_found_without_or_beyond_the_table_is_refused() {
    let sim = Sim::new(1);
    let owner = member(&sim);
    let found = [(RegionId(2), Epoch(1))];
    let lost = owner.table.check_logs_found(&found).unwrap_err();
    assert!(matches!(lost, ClusterError::LogWithoutRow { region: RegionId(2) }));
    let pair = owner.create().unwrap().row.pair;
    assert_eq!(pair.node_region(), RegionId(2));
    owner.table.check_logs_found(&found).unwrap();
    let old = owner.table.check_logs_found(&[(RegionId(3), Epoch(2))]).unwrap_err();
    assert!(matches!(old, ClusterError::TableOlder { table: Epoch(1), found: Epoch(2), .. }));
}

#[test]
fn claim_racing_survivors_one_wins_each_of_a_thousand_times() {
    let sim = Sim::new(1);
    for round in 0..1000 {
        let pair = member(&sim).serving_pair().pair;
        sim.advance(500 * MS);
        let survivors = [(); 3].map(|()| member(&sim));
        let claims = std::thread::scope(|scope| {
            let threads = survivors.each_ref().map(|survivor| {
                scope
                    .spawn(move || survivor.claim(pair, ClaimReason::LeaseEnded).map(|claim| claim.ownership))
            });
            threads.map(|thread| thread.join().unwrap())
        });
        let won: Vec<_> = claims.iter().flatten().collect();
        assert_eq!(won.len(), 1, "round {round}: {claims:?}");
        assert_eq!(won[0].epoch, Epoch(2));
        let row = survivors[0].table.pair(pair).unwrap();
        assert_eq!(row.owner, Some(won[0].incarnation));
        for lost in claims.iter().filter_map(|claim| claim.as_ref().err()) {
            let is_expected =
                matches!(lost, ClusterError::OwnerLives { .. } | ClusterError::Superseded { .. });
            assert!(is_expected, "{lost}");
        }
        sim.advance(500 * MS);
    }
}

#[test]
fn create_pair_racing_creators_ids_are_never_given_twice() {
    let sim = Sim::new(1);
    let members = [(); 4].map(|()| member(&sim));
    let mut pairs = std::thread::scope(|scope| {
        let threads = members.each_ref().map(|member| {
            scope.spawn(move || (0..20).map(|_| member.create().unwrap().row.pair).collect::<Vec<_>>())
        });
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    pairs.sort_unstable();
    assert_eq!(pairs, (1..=80).map(PairId).collect::<Vec<_>>());
}

#[test]
fn watch_shows_each_change_of_a_row() {
    let sim = Sim::new(1);
    let owner = member(&sim);
    let mut watch = Watch::new(Arc::new(owner.link.clone()));
    watch.look().unwrap();
    assert_eq!(watch.view().pairs.len(), 0);
    let ownership = owner.serving_pair();
    assert!(watch.look().unwrap().changed);
    assert_eq!(watch.view().pairs[&ownership.pair].state, PairState::Serving);
    assert!(!watch.look().unwrap().changed);
    owner.table.release(ownership).unwrap();
    assert!(watch.look().unwrap().changed);
    assert_eq!(watch.view().pairs[&ownership.pair].state, PairState::Released);
}

/// The table goes back to when no session was open; whoever opens some then has a lease that was given since.
#[test]
pub(crate) fn session_of_a_restored_table_is_nobodys_of_before() {
    let sim = Sim::new(1);
    let sessions = Sessions::new(Arc::new(sim.link()));
    let (before, after) = (member(&sim), member(&sim));
    let lost = sessions.open_many(before.lease, 3).unwrap();
    let back = cell_cluster::Transaction::new().delete("counter/session");
    let back = lost.iter().fold(back, |back, session| back.delete(format!("session/{:016x}", session.0)));
    cell_cluster::Coordinator::transact(&before.link, back).unwrap();
    assert_eq!(sessions.open_sessions().unwrap().0, []);
    let again = sessions.open_many(after.lease, 3).unwrap();
    assert!(again.iter().all(|session| !lost.contains(session)), "{again:?} were {lost:?}");
}

#[test]
fn sessions_ids_count_up_and_are_never_reused() {
    let sim = Sim::new(0x1234_5678);
    let keeper = member(&sim);
    let sessions = Sessions::new(Arc::new(keeper.link.clone()));
    let first = sessions.open(keeper.lease).unwrap();
    assert_eq!(first.0 & u64::from(u32::MAX), 1);
    let mut watch = Watch::new(Arc::new(keeper.link.clone()));
    watch.look().unwrap();
    let (open, _) = sessions.open_sessions().unwrap();
    assert_eq!(open.iter().map(|row| row.session).collect::<Vec<_>>(), [first]);
    let more = sessions.open_many(keeper.lease, 3).unwrap();
    sessions.end(first).unwrap();
    sessions.end(first).unwrap();
    assert!(!sessions.exists(first).unwrap() && sessions.exists(more[0]).unwrap());
    let look = watch.look().unwrap();
    assert_eq!((look.ended, look.missed), (vec![first], false));
    keeper.link.plan([Fault::None, Fault::None, Fault::AnswerLost]); // generation, counter, transaction
    assert!(sessions.open(keeper.lease).unwrap() > more[2]);
    sim.restart();
    assert!(watch.look().unwrap().missed, "what ended before the restart is not reported any more");
    assert!(sessions.open(keeper.lease).unwrap().0 > first.0 + 4);
}

#[test]
fn sessions_of_an_ended_keeper_are_adopted_or_found_as_orphans() {
    let sim = Sim::new(1);
    let first = member(&sim);
    let sessions = Sessions::new(Arc::new(first.link.clone()));
    let opened = sessions.open_many(first.lease, 2).unwrap();
    assert_eq!(sessions.orphans().unwrap(), []);
    sim.advance(500 * MS);
    assert!(matches!(sessions.open(first.lease), Err(ClusterError::LeaseEnded { .. })));
    let second = member(&sim);
    sessions.adopt(opened[0], second.lease).unwrap();
    let orphans = sessions.orphans().unwrap();
    assert_eq!(orphans.iter().map(|row| row.session).collect::<Vec<_>>(), [opened[1]]);
    sessions.end(opened[1]).unwrap();
    let gone = sessions.adopt(opened[1], second.lease).unwrap_err();
    assert!(matches!(gone, ClusterError::SessionUnknown { session } if session == opened[1]));
}

#[test]
fn members_row_goes_with_the_lease() {
    let sim = Sim::new(1);
    let one = member(&sim);
    let members = Members::new(Arc::new(one.link.clone()));
    let row = MemberRow {
        incarnation: one.lease,
        node: NODE,
        fabric: "127.0.0.1:7000".to_owned(),
        http: String::new(),
        memory_limit_bytes: 0,
        pid: 1,
    };
    one.link.plan([Fault::AnswerLost]);
    members.enter(&row).unwrap();
    assert_eq!(members.list().unwrap(), std::slice::from_ref(&row));
    sim.advance(500 * MS);
    assert_eq!(members.list().unwrap(), []);
    assert!(matches!(members.enter(&row), Err(ClusterError::LeaseEnded { .. })));
}

/// A fault for each call of one operation.
fn faults() -> impl Strategy<Value = Vec<Fault>> {
    let fault = prop_oneof![
        3 => Just(Fault::None),
        1 => Just(Fault::Lost),
        1 => Just(Fault::AnswerLost),
        1 => Just(Fault::Late),
    ];
    proptest::collection::vec(fault, 0..8)
}

proptest! {
    /// Calls are lost before or after they were carried out, or carried out late. Reads that fail make the
    /// operation fail, and it is called again, as callers do. What was meant to happen once happened once.
    #[test]
    fn table_operations_under_lost_answers_happen_once(plans in proptest::collection::vec(faults(), 6)) {
        fn insist<T>(link: &SimLink, plan: &[Fault], f: impl Fn() -> Result<T, ClusterError>) -> T {
            link.plan(plan.iter().copied());
            for _ in 0..100 {
                match f() {
                    Ok(value) => {
                        link.mend();
                        return value;
                    }
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
            }
            panic!("faults do not last for ever");
        }
        let sim = Sim::new(1);
        let one = member(&sim);
        // Creating and claiming are not repeated by callers: faults only in the transaction itself.
        let transact_fault = plans[0].first().copied().unwrap_or(Fault::None);
        one.link.plan([Fault::None, transact_fault]);
        let created = one.create().unwrap();
        prop_assert_eq!(created.row.pair, PairId(1));
        insist(&one.link, &plans[1], || one.publish(created.ownership));
        sim.advance(500 * MS);
        one.link.mend();
        let two = member(&sim);
        two.link.plan([Fault::None, plans[2].first().copied().unwrap_or(Fault::None)]);
        let claim = two.claim(PairId(1), ClaimReason::LeaseEnded).unwrap();
        prop_assert_eq!(claim.ownership.epoch, Epoch(2));
        insist(&two.link, &plans[3], || two.table.record_cut(claim.ownership, Epoch(1), Csn(4)));
        insist(&two.link, &plans[4], || two.publish(claim.ownership));
        insist(&two.link, &plans[5], || two.table.release(claim.ownership));
        let row = two.table.pair(PairId(1)).unwrap();
        prop_assert_eq!(row.epoch, Epoch(2));
        prop_assert_eq!(row.state, PairState::Released);
        prop_assert_eq!(row.history.len(), 2);
        prop_assert_eq!(row.history[0].cut, Some(Csn(4)));
    }
}
