//! What a member decides, case by case, and many members at random.

use super::*;
use cell_cluster::{Finding, MemberRow, Missing, PairGeometry};

pub(super) const SECOND: u64 = 1_000_000_000;
const GRACE: u64 = 5 * SECOND;

pub(super) fn member(incarnation: u64, node: u32) -> MemberRow {
    let (fabric, http) = (format!("f{node}"), String::new());
    let (incarnation, node) = (Incarnation(incarnation), NodeId(node));
    MemberRow { incarnation, node, fabric, http, pid: 1, memory_limit_bytes: 0 }
}

pub(super) fn row(pair: u32, owner: Option<u64>, node: u32) -> PairRow {
    PairRow {
        pair: PairId(pair),
        node_region: PairId(pair).node_region(),
        extent_region: PairId(pair).extent_region(),
        owner: owner.map(Incarnation),
        node: NodeId(node),
        served_by: Some(NodeId(node)),
        host: None,
        epoch: cell_terms::Epoch(1),
        state: if owner.is_some() { PairState::Serving } else { PairState::Released },
        place: None,
        geometry: PairGeometry { node_region_bytes: 4, extent_region_bytes: 6, slot_bytes: 2, node_bytes: 1 },
        history: Vec::new(),
        checkpoint: None,
        trusted: Vec::new(),
        findings: Vec::new(),
        refuted: Vec::new(),
    }
}

#[test]
fn pair_is_left_behind_until_somebody_serves_it() {
    let left = |row: &PairRow| is_left_behind(row, NodeId(3), Incarnation(9));
    assert!(left(&row(1, Some(8), 3)), "its owner was this node's earlier life");
    assert!(!left(&row(1, Some(9), 3)), "it is served here");
    assert!(!left(&row(1, Some(7), 2)), "it is another node's");
    assert!(left(&row(1, None, 3)), "it was released");
    // A survivor has tried to take it over, or does so now: the row has that one's node.
    let tried = PairRow { node: NodeId(2), served_by: Some(NodeId(3)), ..row(1, None, 2) };
    let missing = Missing::Memory { bytes: 1 };
    let tried_in_vain = PairRow { state: PairState::Unavailable { missing }, ..tried.clone() };
    assert!(left(&tried_in_vain));
    let recovering = PairRow { owner: Some(Incarnation(7)), state: PairState::Recovering, ..tried.clone() };
    assert!(left(&recovering));
    assert!(left(&PairRow { owner: Some(Incarnation(9)), ..recovering.clone() }), "not served yet");
    let missing = Missing::Checkpoint { file: String::new() };
    let damaged = PairRow { state: PairState::Unavailable { missing: missing.clone() }, ..tried };
    assert!(!left(&damaged), "memory is not what it lacks");
    let found = |node| PairRow { findings: vec![finding(7, node, &missing)], ..damaged.clone() };
    assert!(left(&found(2)), "another one could not read it, and it may come back");
    assert!(!left(&found(3)), "nor could this node");
    // It is for another one to look, which had no memory for that, or tries just now.
    for of in [tried_in_vain, recovering] {
        let by = |incarnation| PairRow { findings: vec![finding(incarnation, 3, &missing)], ..of.clone() };
        assert!(!left(&by(9)), "it is not asked again in this life");
        assert!(left(&by(8)), "it was another life of this node");
    }
}

fn finding(incarnation: u64, node: u32, missing: &Missing) -> Finding {
    Finding { incarnation: Incarnation(incarnation), node: NodeId(node), missing: missing.clone() }
}

/// A pair that nobody has since a node found it damaged.
fn found_damaged(pair: u32, by: u64, node: u32) -> PairRow {
    let missing = Missing::Log { region: PairId(pair).node_region(), epoch: cell_terms::Epoch(1) };
    let findings = vec![finding(by, node, &missing)];
    PairRow { findings, state: PairState::Unavailable { missing }, ..row(pair, None, node) }
}

/// A member was the planner of an incident whose row then did not read: nobody took the pairs over.
#[test]
fn incident_or_share_that_does_not_read_is_claimed_or_planned_anew() {
    let mut of = Membership::new(MembershipOptions {
        incarnation: Incarnation(7),
        node: NodeId(1),
        joined_ns: 0,
        grace_ns: GRACE,
    });
    let mut view = ClusterView {
        members: [(7, 1), (8, 2)].map(|(id, node)| (Incarnation(id), member(id, node))).into(),
        pairs: [(PairId(1), row(1, Some(8), 2))].into(),
        ..ClusterView::default()
    };
    assert_eq!(of.look(&view, SECOND), []);
    view.members.remove(&Incarnation(8));
    let incident = |plan| IncidentRow {
        dead: Incarnation(8),
        node: NodeId(2),
        claimed_by: Incarnation(7),
        lease_seen_ms: 1,
        detected_ms: 2,
        claimed_ms: 3,
        over_ms: 0,
        plan,
    };
    let kinds = |commands: Vec<MembershipCommand>| {
        let kind = |command: &MembershipCommand| match command {
            MembershipCommand::Claim { dead, .. } => ("claim", dead.0),
            MembershipCommand::Plan { dead, .. } => ("plan", dead.0),
            MembershipCommand::TakeOver { pair, .. } => ("take over", u64::from(pair.0)),
            MembershipCommand::Close { dead } => ("close", dead.0),
        };
        commands.iter().map(kind).collect::<Vec<_>>()
    };
    let unreadable = |key: &str| [(key.to_owned(), "it does not read".to_owned())].into();
    view.incidents = [(Incarnation(8), incident(Vec::new()))].into();
    view.unreadable = unreadable("incident/0000000000000008");
    assert_eq!(kinds(of.look(&view, 2 * SECOND)), [("claim", 8)]);
    // Of a share that another one is to take over, which that one may never have read.
    view.members.insert(Incarnation(9), member(9, 3));
    let share = ShareRow { pair: PairId(1), survivor: Some(Incarnation(9)), ..ShareRow::default() };
    view.incidents = [(Incarnation(8), incident(vec![share]))].into();
    view.unreadable.clear();
    assert_eq!(kinds(of.look(&view, 3 * SECOND)), []);
    view.unreadable = unreadable("incident/0000000000000008/00000001");
    assert_eq!(kinds(of.look(&view, 4 * SECOND)), [("plan", 8)]);
    // One with nothing left to do is claimed to be closed.
    view.pairs.insert(PairId(1), row(1, Some(9), 3));
    view.unreadable = unreadable("incident/0000000000000008");
    assert_eq!(kinds(of.look(&view, 5 * SECOND)), [("claim", 8)]);
    view.unreadable.clear();
    assert_eq!(kinds(of.look(&view, 6 * SECOND)), [("close", 8)]);
}

#[test]
#[cfg(debug_assertions)]
fn mutant_left_behind_forgotten_is_caught() {
    cell_terms::mutant::in_own_process(|| {
        use cell_terms::mutant::{Mutant, plant};
        let passes = || std::panic::catch_unwind(pair_is_left_behind_until_somebody_serves_it).is_ok();
        assert!(passes());
        plant(Some(Mutant::LeftBehindForgotten));
        let passed = passes();
        plant(None);
        assert!(!passed);
        println!("mutant {} caught by cell-node's membership", Mutant::LeftBehindForgotten.name());
    });
}

pub(super) fn core(incarnation: u64, node: u32) -> Membership {
    let (incarnation, node) = (Incarnation(incarnation), NodeId(node));
    Membership::new(MembershipOptions { incarnation, node, joined_ns: 0, grace_ns: GRACE })
}

pub(super) fn view(members: &[(u64, u32)], pairs: &[PairRow]) -> ClusterView {
    ClusterView {
        members: members.iter().map(|(of, node)| (Incarnation(*of), member(*of, *node))).collect(),
        pairs: pairs.iter().map(|row| (row.pair, row.clone())).collect(),
        ..ClusterView::default()
    }
}

fn incident(dead: u64, claimed_by: u64, shares: &[(u32, Option<u64>, &[u64])]) -> IncidentRow {
    let share = |(pair, survivor, declined): &(u32, Option<u64>, &[u64])| ShareRow {
        pair: PairId(*pair),
        survivor: survivor.map(Incarnation),
        declined: declined.iter().map(|of| Incarnation(*of)).collect(),
        ..ShareRow::default()
    };
    IncidentRow {
        dead: Incarnation(dead),
        node: NodeId(0),
        claimed_by: Incarnation(claimed_by),
        lease_seen_ms: 0,
        detected_ms: 0,
        claimed_ms: 0,
        over_ms: 0,
        plan: shares.iter().map(share).collect(),
    }
}

fn with(mut view: ClusterView, row: IncidentRow) -> ClusterView {
    view.incidents.insert(row.dead, row);
    view
}

fn take(pair: u32, reason: ClaimReason, dead: u64) -> MembershipCommand {
    MembershipCommand::TakeOver { pair: PairId(pair), reason, dead: Incarnation(dead) }
}

fn plan(dead: u64, pairs: &[(u32, &[u64])]) -> MembershipCommand {
    let declined = |of: &[u64]| of.iter().map(|of| Incarnation(*of)).collect();
    let pairs = pairs.iter().map(|(pair, of)| (PairId(*pair), declined(of))).collect();
    MembershipCommand::Plan { dead: Incarnation(dead), pairs }
}

fn claims(commands: &[MembershipCommand]) -> Vec<u64> {
    let dead = |command: &MembershipCommand| match command {
        MembershipCommand::Claim { dead, .. } => Some(dead.0),
        _ => None,
    };
    commands.iter().filter_map(dead).collect()
}

#[test]
fn look_first_start_claims_the_own_row_and_leaves_the_others_to_their_nodes() {
    let mut core = core(7, 1);
    let view = view(&[(7, 1)], &[row(1, None, 0), row(2, None, 1), row(3, None, 2)]);
    assert_eq!(core.look(&view, 0), [take(2, ClaimReason::HostLock, 0)]);
    assert_eq!(core.look(&view, SECOND), [], "it is busy with its own");
    let late = core.look(&view, GRACE);
    assert_eq!(claims(&late), [0], "nobody came for the others");
}

#[test]
fn look_restarted_node_claims_what_was_its_own_and_opens_the_incident() {
    let mut core = core(9, 1);
    let view = view(&[(8, 2), (9, 1)], &[row(1, Some(7), 1), row(2, Some(8), 2)]);
    let commands = core.look(&view, 0);
    assert_eq!(claims(&commands), [7]);
    assert_eq!(commands[1..], [take(1, ClaimReason::HostLock, 7)]);
}

#[test]
fn look_node_whose_predecessor_left_in_order_opens_the_incident_too() {
    let mut core = core(9, 1);
    let released = PairRow { trusted: vec![Incarnation(6), Incarnation(7)], ..row(1, None, 1) };
    let others = PairRow { trusted: vec![Incarnation(8)], ..row(2, None, 2) };
    let view = view(&[(9, 1)], &[released, others]);
    let commands = core.look(&view, 0);
    assert_eq!(claims(&commands), [7], "who had it last; not of the other node");
    assert_eq!(commands[1..], [take(1, ClaimReason::HostLock, 7)]);
}

#[test]
fn look_restarted_node_whose_pairs_survivors_have_joins_empty() {
    let mut core = core(9, 1);
    let view = view(&[(8, 2), (9, 1)], &[row(1, Some(8), 2), row(2, Some(8), 2)]);
    assert_eq!(core.look(&view, 0), []);
    assert_eq!(core.look(&view, 10 * GRACE), []);
}

#[test]
fn look_owner_that_was_seen_alive_is_missed_at_once_and_shared_out() {
    let mut core = core(7, 1);
    let pairs = [row(1, Some(7), 1), row(2, Some(8), 2), row(3, Some(8), 2)];
    assert_eq!(core.look(&view(&[(7, 1), (8, 2), (9, 3)], &pairs), SECOND), []);
    let gone = view(&[(7, 1), (9, 3)], &pairs);
    let expected = MembershipCommand::Claim {
        dead: Incarnation(8),
        node: NodeId(2),
        lease_seen_ns: SECOND,
        detected_ns: SECOND + 50,
        host_lock: false,
    };
    assert_eq!(core.look(&gone, SECOND + 50), [expected]);
    let claimed = with(gone.clone(), incident(8, 7, &[]));
    assert_eq!(core.look(&claimed, SECOND + 60), [plan(8, &[(2, &[]), (3, &[])])]);
    let planned = with(gone, incident(8, 7, &[(2, Some(7), &[]), (3, Some(9), &[])]));
    assert_eq!(core.look(&planned, SECOND + 70), [take(2, ClaimReason::LeaseEnded, 8)]);
    assert_eq!(core.look(&planned, SECOND + 80), [], "once");
}

#[test]
fn look_owner_that_was_dead_before_gets_the_grace_period() {
    let mut core = core(7, 1);
    let view = view(&[(7, 1)], &[row(1, Some(7), 1), row(2, Some(3), 2)]);
    assert_eq!(core.look(&view, SECOND), []);
    assert_eq!(claims(&core.look(&view, GRACE)), [3]);
}

/// An incident of nobody's pairs once counted from the begin of the one before it.
#[test]
fn look_pairs_that_are_nobodys_again_are_missed_from_then_on() {
    let mut core = core(7, 1);
    let missing = Missing::Memory { bytes: 1 };
    let left = PairRow { state: PairState::Unavailable { missing }, ..row(2, None, 2) };
    let detected = |commands: &[MembershipCommand]| match commands {
        [MembershipCommand::Claim { dead: NOBODY, detected_ns, .. }] => *detected_ns,
        _ => panic!("{commands:?}"),
    };
    let nobodys = view(&[(7, 1)], &[left]);
    assert_eq!(detected(&core.look(&nobodys, GRACE)), GRACE);
    assert_eq!(detected(&core.look(&nobodys, GRACE + SECOND)), GRACE, "it is still the same incident");
    let served = view(&[(7, 1)], &[row(2, Some(7), 1)]);
    assert_eq!(core.look(&served, GRACE + 2 * SECOND), []);
    assert_eq!(detected(&core.look(&nobodys, 9 * GRACE)), 9 * GRACE);
}

/// The second time took the place of the first one, which nobody knew of any more.
#[test]
fn look_each_time_that_pairs_are_nobodys_is_an_incident_of_its_own() {
    let missing = Missing::Memory { bytes: 1 };
    let left =
        |pair| PairRow { state: PairState::Unavailable { missing: missing.clone() }, ..row(pair, None, 2) };
    let second = (1 << 63) + 1;
    // After the first one is over.
    let mut core = core(7, 1);
    let nobodys = view(&[(7, 1)], &[left(2)]);
    assert_eq!(claims(&core.look(&nobodys, GRACE)), [0]);
    let over = IncidentRow { over_ms: 5, ..incident(0, 7, &[(2, Some(7), &[])]) };
    let again = with(nobodys, over);
    assert_eq!(claims(&core.look(&again, 9 * GRACE)), [second]);
    let claimed = with(again.clone(), incident(second, 7, &[]));
    assert_eq!(core.look(&claimed, 9 * GRACE + 1), [plan(second, &[(2, &[])])]);
    let over = IncidentRow { over_ms: 6, ..incident(second, 7, &[(2, Some(7), &[])]) };
    assert_eq!(claims(&core.look(&with(again, over), 20 * GRACE)), [second + 1]);
}

/// While one pair waited for memory, others that became nobody's hours later counted from its begin.
#[test]
fn look_pairs_that_are_nobodys_later_than_others_are_another_incident() {
    let missing = Missing::Memory { bytes: 1 };
    let left =
        |pair| PairRow { state: PairState::Unavailable { missing: missing.clone() }, ..row(pair, None, 2) };
    let second = (1 << 63) + 1;
    let mut core = core(7, 1);
    let open = incident(0, 7, &[(2, None, &[7])]);
    let one = with(view(&[(7, 1)], &[left(2), row(3, Some(7), 1)]), open.clone());
    assert_eq!(core.look(&one, GRACE), [], "nobody has room");
    let both = with(view(&[(7, 1)], &[left(2), left(3)]), open.clone());
    let soon = core.look(&both, GRACE + 1);
    assert_eq!(soon, [plan(0, &[(3, &[])])], "they were lost together");
    let later = core.look(&both, 2 * GRACE);
    assert_eq!(claims(&later), [second]);
    // One that was served in between is another one's.
    let mut served = incident(0, 7, &[(2, None, &[7]), (3, Some(7), &[])]);
    served.plan[1].times.serving_ms = 4;
    let again = with(view(&[(7, 1)], &[left(2), left(3)]), served);
    assert_eq!(claims(&core.look(&again, 3 * GRACE)), [second]);
}

/// They stayed open until pairs were nobody's the next time, and those counted from their begin.
#[test]
fn look_incident_of_nobodys_pairs_is_closed_without_a_plan_and_without_its_claimer() {
    let mut core = core(7, 1);
    let served = || view(&[(7, 1)], &[row(2, Some(7), 1)]);
    let unplanned = with(served(), incident(0, 7, &[]));
    assert_eq!(core.look(&unplanned, GRACE), [MembershipCommand::Close { dead: NOBODY }]);
    let left = with(served(), incident(0, 5, &[(2, Some(5), &[])]));
    assert_eq!(claims(&core.look(&left, GRACE + 1)), [0]);
}

#[test]
fn look_goes_by_the_grace_period_that_is_in_force() {
    let mut core = core(7, 1);
    let view = view(&[(7, 1)], &[row(1, Some(7), 1), row(2, Some(3), 2)]);
    assert_eq!(core.look(&view, SECOND), []);
    core.set_grace_ns(2 * SECOND);
    assert_eq!(claims(&core.look(&view, 2 * SECOND)), [3]);
}

#[test]
fn look_incident_of_another_only_the_own_share_is_taken() {
    let mut core = core(7, 1);
    let pairs = [row(2, Some(8), 2), row(3, Some(8), 2)];
    core.look(&view(&[(7, 1), (8, 2), (9, 3)], &pairs), 0);
    let shares = incident(8, 9, &[(2, Some(9), &[]), (3, Some(7), &[])]);
    let planned = with(view(&[(7, 1), (9, 3)], &pairs), shares);
    assert_eq!(core.look(&planned, 1), [take(3, ClaimReason::LeaseEnded, 8)]);
}

#[test]
fn look_claimer_that_died_is_followed_by_another_and_dead_survivors_shares_are_shared_again() {
    let mut core = core(7, 1);
    let pairs = [row(2, Some(8), 2), row(3, Some(8), 2)];
    core.look(&view(&[(7, 1), (8, 2), (9, 3)], &pairs), 0);
    let shares = [(2, Some(9), &[][..]), (3, Some(7), &[][..])];
    let dead = with(view(&[(7, 1)], &pairs), incident(8, 9, &shares));
    assert_eq!(claims(&core.look(&dead, 1)), [8]);
    let mine = with(view(&[(7, 1)], &pairs), incident(8, 7, &shares));
    assert_eq!(core.look(&mine, 2), [plan(8, &[(2, &[])]), take(3, ClaimReason::LeaseEnded, 8)]);
}

#[test]
fn look_pair_that_a_survivor_had_claimed_is_an_incident_of_that_survivor() {
    let mut core = core(7, 1);
    core.look(&view(&[(7, 1), (9, 3)], &[row(2, Some(9), 3)]), 0);
    let mut claimed = row(2, Some(9), 3);
    claimed.state = PairState::Recovering;
    let old = incident(8, 7, &[(2, Some(9), &[])]);
    let commands = core.look(&with(view(&[(7, 1)], &[claimed]), old), 1);
    assert_eq!(claims(&commands), [9]);
    assert!(commands.contains(&MembershipCommand::Close { dead: Incarnation(8) }), "{commands:?}");
}

#[test]
fn look_declined_share_is_offered_to_others_then_rests() {
    let mut core = core(7, 1);
    let mut pair = row(2, None, 2);
    pair.state = PairState::Unavailable { missing: Missing::Memory { bytes: 10 } };
    let members = [(7, 1), (9, 3)];
    let shown = |declined: &[u64], survivor| {
        with(view(&members, &[pair.clone()]), incident(0, 7, &[(2, survivor, declined)]))
    };
    core.look(&view(&members, &[]), 0);
    let now = GRACE;
    assert_eq!(core.look(&shown(&[9], Some(9)), now), [plan(0, &[(2, &[9])])]);
    assert_eq!(core.look(&shown(&[9, 7], Some(7)), now + 1), [], "nobody has room: it rests");
    let later = now + 1 + OFFER_AGAIN_NS;
    assert_eq!(core.look(&shown(&[9, 7], Some(7)), later), [plan(0, &[(2, &[])])], "all are asked again");
    let joined =
        with(view(&[(7, 1), (9, 3), (11, 4)], &[pair.clone()]), incident(0, 7, &[(2, Some(7), &[9, 7])]));
    assert_eq!(core.look(&joined, later + 1), [plan(0, &[(2, &[9, 7])])], "a newcomer is asked at once");
    let nobody = with(joined, incident(0, 7, &[(2, None, &[9, 7])]));
    assert_eq!(
        core.look(&nobody, later + 2),
        [plan(0, &[(2, &[9, 7])])],
        "also after a plan that named nobody"
    );
    let nobody = with(view(&members, &[pair.clone()]), incident(0, 7, &[(2, None, &[9, 7])]));
    assert_eq!(core.look(&nobody, later + 3), [], "and nobody who has declined just now");
}

/// The survivor that met an error of the disk kept the pair, unserved, until it was restarted.
#[test]
fn look_pair_that_a_survivor_could_not_read_goes_to_another_one_first() {
    let mut core = core(7, 1);
    let members = [(7, 1), (9, 3)];
    core.look(&view(&[(7, 1), (8, 2), (9, 3)], &[row(2, Some(8), 2)]), 0);
    let mut pair = row(2, None, 3);
    let file = "region-00000004".to_owned();
    pair.state = PairState::Unavailable { missing: Missing::Unreadable { file, errno: 5 } };
    let known = with(view(&members, &[pair]), incident(8, 7, &[(2, Some(9), &[9])]));
    assert_eq!(claims(&core.look(&known, GRACE)), [0], "nobody's now, and not closed");
    let nobodys = with(known.clone(), incident(0, 7, &[]));
    assert_eq!(core.look(&nobodys, GRACE + 1), [plan(0, &[(2, &[9])])]);
    let mine = with(known, incident(0, 7, &[(2, Some(7), &[9])]));
    assert_eq!(core.look(&mine, GRACE + 2), [take(2, ClaimReason::LeaseEnded, 0)]);
}

/// The survivor that could not read the pair kept it, unserved, until it was stopped.
#[test]
fn look_pair_that_a_survivor_found_damaged_goes_to_another_one_and_never_back() {
    let mut core = core(7, 1);
    let members = [(7, 1), (9, 3)];
    core.look(&view(&[(7, 1), (8, 2), (9, 3)], &[row(2, Some(8), 2)]), 0);
    let pair = found_damaged(2, 9, 3);
    // What became of its share was not noted: the pair's row says it all.
    let known = with(view(&members, &[pair]), incident(8, 7, &[(2, Some(9), &[])]));
    assert_eq!(claims(&core.look(&known, GRACE)), [0], "nobody's now");
    let shared = |shares: &[(u32, Option<u64>, &[u64])]| with(known.clone(), incident(0, 7, shares));
    assert_eq!(core.look(&shared(&[]), GRACE + 1), [plan(0, &[(2, &[9])])]);
    assert_eq!(core.look(&shared(&[(2, Some(9), &[])]), GRACE + 2), [plan(0, &[(2, &[9])])]);
    let mine = shared(&[(2, Some(7), &[9])]);
    assert_eq!(core.look(&mine, GRACE + 3), [take(2, ClaimReason::LeaseEnded, 0)]);
    core.refused(PairId(2), RefusedKind::Declined, GRACE + 4);
    let declined = shared(&[(2, Some(7), &[9, 7])]);
    assert_eq!(core.look(&declined, GRACE + 4), [], "it rests");
    let later = GRACE + 4 + OFFER_AGAIN_NS;
    assert_eq!(core.look(&declined, later), [plan(0, &[(2, &[9])])], "all others are asked again");
}

#[test]
fn look_pair_that_the_only_node_found_damaged_waits_for_another_node_or_another_life() {
    let mut node = core(9, 3);
    assert_eq!(node.look(&view(&[(9, 3)], &[row(2, None, 3)]), 0), [take(2, ClaimReason::HostLock, 0)]);
    node.refused(PairId(2), RefusedKind::Damaged, 1);
    let shown = |members: &[(u64, u32)]| {
        with(view(members, &[found_damaged(2, 9, 3)]), incident(0, 9, &[(2, None, &[9])]))
    };
    for now in [GRACE, GRACE + OFFER_AGAIN_NS, GRACE + 9 * OFFER_AGAIN_NS] {
        assert_eq!(node.look(&shown(&[(9, 3)]), now), [], "at {now}");
    }
    let now = GRACE + 9 * OFFER_AGAIN_NS + 1;
    assert_eq!(node.look(&shown(&[(9, 3), (11, 4)]), now), [plan(0, &[(2, &[9])])]);
    let again = core(12, 3).look(&view(&[(12, 3)], &[found_damaged(2, 9, 3)]), 0);
    assert_eq!(again, [take(2, ClaimReason::HostLock, 0)]);
}

#[test]
fn refused_takeovers_are_tried_again_by_kind() {
    let shown = view(&[(7, 1)], &[row(1, None, 1)]);
    let own = take(1, ClaimReason::HostLock, 0);
    for (kind, again_ns) in
        [(RefusedKind::Others, Some(0)), (RefusedKind::Passing, Some(RETRY_NS)), (RefusedKind::Damaged, None)]
    {
        let mut core = core(7, 1);
        assert_eq!(core.look(&shown, 0), std::slice::from_ref(&own));
        core.refused(PairId(1), kind, 0);
        let before = again_ns.map_or(GRACE - 1, |again| again.saturating_sub(1));
        if again_ns != Some(0) {
            assert_eq!(core.look(&shown, before), [], "{kind:?}");
        }
        if let Some(again_ns) = again_ns {
            assert_eq!(core.look(&shown, again_ns), std::slice::from_ref(&own), "{kind:?}");
        }
    }
}

#[test]
fn look_own_claim_that_was_broken_off_is_taken_up() {
    let mut core = core(7, 1);
    let mut claimed = row(1, Some(7), 1);
    claimed.state = PairState::Recovering;
    assert_eq!(core.look(&view(&[(7, 1)], &[claimed]), 0), [take(1, ClaimReason::HostLock, 0)]);
}

/// It was New for as long as its owner lived.
#[test]
fn look_own_creation_that_was_broken_off_is_taken_up_and_one_under_way_is_not() {
    let mut core = core(7, 1);
    let new = view(&[(7, 1)], &[PairRow { state: PairState::New, ..row(1, Some(7), 1) }]);
    core.creation_begins();
    assert_eq!(core.look(&new, 0), []);
    core.creation_ended();
    assert_eq!(core.look(&new, 1), [take(1, ClaimReason::HostLock, 0)]);
}

#[test]
fn look_incident_is_closed_when_every_pair_is_served_or_reported() {
    let mut core = core(7, 1);
    let mut recovering = row(2, Some(9), 3);
    recovering.state = PairState::Recovering;
    let shares = incident(8, 7, &[(2, Some(9), &[])]);
    let members = [(7, 1), (9, 3)];
    assert_eq!(core.look(&with(view(&members, &[recovering]), shares.clone()), 0), []);
    let close = [MembershipCommand::Close { dead: Incarnation(8) }];
    assert_eq!(core.look(&with(view(&members, &[row(2, Some(9), 3)]), shares.clone()), 1), close);
    let mut damaged = row(2, Some(9), 3);
    damaged.state = PairState::Unavailable {
        missing: Missing::Log { region: PairId(2).node_region(), epoch: cell_terms::Epoch(1) },
    };
    assert_eq!(core.look(&with(view(&members, &[damaged]), shares), 2), close);
}

#[test]
fn look_incident_whose_claimer_died_with_nothing_left_is_taken_up_to_be_closed() {
    let mut core = core(7, 1);
    let members = [(7, 1), (9, 3)];
    let left = with(view(&members, &[row(2, Some(9), 3)]), incident(8, 5, &[(2, Some(9), &[])]));
    assert_eq!(claims(&core.look(&left, 0)), [8]);
    let living = with(view(&members, &[row(2, Some(9), 3)]), incident(8, 9, &[(2, Some(9), &[])]));
    assert_eq!(core.look(&living, 1), [], "its claimer lives");
    let leased = with(view(&[(7, 1), (8, 2)], &[]), incident(8, 9, &[]));
    assert_eq!(core.look(&leased, 1), [], "the lease of the dead one still runs");
}
