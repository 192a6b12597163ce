//! A node's side towards its cluster, call by call, over the simulated coordinator.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use crate::joined;
use std::sync::Arc;

use cell_cluster::{
    ClaimReason, Coordinator, Fault, Incidents, Missing, Ownership, ServingAddress, ShareTimes, Sim, SimLink,
    Table, Transaction,
};
use cell_fabric::ConnectionId;
use cell_node::{ClusterAgent, ControlEvent, RefusedKind, TakeoverWanted};
use cell_protocol::{Refusal, RequestHeader};
use cell_terms::{Csn, Durability, Epoch, Incarnation, NodeId, PairId, SessionId};

use crate::joined::{Joined, MS};

const EVERY_NS: u64 = 50 * MS;
/// The row of a session that nobody opened.
const SESSION: &str = "session/0000000000000007";

struct Member {
    sim: Sim,
    node: NodeId,
    link: SimLink,
    incarnation: Incarnation,
    table: Table,
    agent: ClusterAgent,
}

/// A node of a cluster of so many, which has joined.
fn join(sim: &Sim, node: u32, nodes: u32) -> Member {
    let Joined { node, incarnation, link, table, agent } = joined::join(sim, node, nodes, EVERY_NS);
    Member { sim: sim.clone(), node, link, incarnation, table, agent }
}

impl Member {
    fn look(&mut self) -> cell_node::Looked {
        self.agent.look(self.sim.now_ns()).unwrap()
    }

    /// The leases of all others end.
    fn outlive(&mut self) {
        for _ in 0..2 {
            self.sim.advance(400 * MS);
            self.link.keep_alive(self.incarnation).unwrap();
        }
    }

    /// Claims a pair and records the cuts of the epochs before.
    fn claim(&self, wanted: TakeoverWanted) -> Ownership {
        let claim = self.table.claim(wanted.pair, self.incarnation, self.node, wanted.reason).unwrap();
        for old in claim.row.epochs_needed().filter(|old| old.cut.is_none()) {
            self.table.record_cut(claim.ownership, old.epoch, Csn(1)).unwrap();
        }
        claim.ownership
    }

    fn serve(&mut self, wanted: TakeoverWanted) -> Ownership {
        let place =
            ServingAddress { address: format!("sim:{}", self.node.0), worker: 0, node_key: 0, extent_key: 0 };
        let ownership = self.claim(wanted);
        self.table.publish(ownership, Durability::Sync, &place).unwrap();
        ownership
    }

    fn taken(&mut self, wanted: TakeoverWanted) {
        self.serve(wanted);
        self.agent.taken(wanted.pair);
    }

    /// It has no memory for a pair: what a takeover does then.
    fn decline(&mut self, wanted: TakeoverWanted) -> bool {
        let missing = Missing::Memory { bytes: 8 };
        self.table.decline(self.claim(wanted), &missing).unwrap();
        self.look();
        self.agent.refused(wanted.pair, wanted.dead, RefusedKind::Declined, self.sim.now_ns())
    }
}

#[test]
fn worker_is_installed_once_with_the_own_pairs_and_not_before_the_cluster_was_seen() {
    let sim = Sim::new(1);
    let mut member = join(&sim, 0, 1);
    member.link.plan([Fault::NotReached]);
    let looked = member.look();
    assert!(!looked.changed, "the coordinator is not reached");
    let [ControlEvent::CoordinatorFails(Some(why))] = &looked.events[..] else { panic!("{looked:?}") };
    assert!(why.starts_with("the coordinator does not answer ("), "{why}");
    assert!(member.agent.install(false).is_none(), "nothing is known yet");
    assert_eq!(member.agent.due_ns(), sim.now_ns() + EVERY_NS, "and is looked for again");

    let looked = member.look();
    let answers = |event: &ControlEvent| matches!(event, ControlEvent::CoordinatorFails(None));
    assert!(looked.events.iter().any(answers), "and that it answers again");
    let [wanted] = looked.take_over[..] else { panic!("{looked:?}") };
    assert_eq!((wanted.pair, wanted.reason), (PairId(1), ClaimReason::HostLock));
    assert_eq!(member.agent.due_ns(), 0, "what was written is to be seen at once");
    assert!(member.agent.install(false).is_none(), "its own pair is not there yet");
    member.taken(wanted);

    assert!(!member.look().events.iter().any(answers), "once");
    member.link.plan([Fault::NotReached]);
    assert!(member.agent.install(false).is_none(), "the open sessions are not known");
    let installation = member.agent.install(false).expect("all is there");
    assert!(installation.whole && installation.sessions.is_empty());
    assert!(member.agent.is_installed() && member.agent.install(true).is_none(), "once");
}

/// "Busy", as if fewer operations at a time were of any help.
#[test]
fn session_for_which_the_coordinator_does_not_answer_is_refused_for_that_reason() {
    let sim = Sim::new(13);
    let member = join(&sim, 0, 1);
    let open = || {
        let header = RequestHeader::default();
        match member.agent.open_session(ConnectionId::from_number(1), header) {
            ControlEvent::SessionOpened { session, .. } => session,
            _ => panic!("another answer"),
        }
    };
    for fault in [Fault::NotReached, Fault::AnswerLost] {
        member.link.plan([fault]);
        assert_eq!(open(), Err(Refusal::CoordinatorAway), "{fault:?}");
    }
    assert!(open().is_ok());
}

#[test]
fn node_of_several_serves_each_pair_as_it_comes() {
    let sim = Sim::new(2);
    let mut member = join(&sim, 0, 2);
    let looked = member.look();
    assert_eq!(looked.take_over.iter().map(|wanted| wanted.pair).collect::<Vec<_>>(), [PairId(1)]);
    assert!(member.agent.install(false).is_none(), "no pair has come");
    assert!(!member.agent.install(true).expect("one has").whole, "the other node has keys, too");
}

/// Seeds 287 and 582 of the simulator: a pair that is published and not here yet has keys, too.
#[test]
fn worker_is_not_asked_for_all_keys_while_a_takeover_goes_on() {
    let sim = Sim::new(8);
    let (mut member, mut other) = (join(&sim, 0, 2), join(&sim, 1, 2));
    let own = member.look().take_over[0];
    let others = other.look().take_over[0];
    other.serve(others);
    member.look();
    member.outlive();
    member.serve(own);
    member.serve(TakeoverWanted { reason: ClaimReason::LeaseEnded, ..others });
    let _successor = join(&sim, 1, 2);
    member.look();
    let rows = member.agent.rows().0;
    assert!(rows.iter().all(|row| row.owner == Some(member.incarnation) && row.is_published()), "{rows:?}");
    assert!(!member.agent.install(true).expect("one has come").whole, "the other has not");
}

#[test]
fn refusal_ends_the_node_that_has_all_pairs_and_is_noted_by_one_of_several() {
    let sim = Sim::new(3);
    let mut alone = join(&sim, 0, 1);
    let wanted = alone.look().take_over[0];
    assert!(alone.agent.refused(wanted.pair, wanted.dead, RefusedKind::Others, 7), "another may have it");
    assert_eq!(alone.agent.due_ns(), 7 + EVERY_NS, "it is looked after that in no hurry");
    assert!(!alone.agent.refused(wanted.pair, wanted.dead, RefusedKind::Damaged, 0));
    let mut successor = join(&sim, 0, 1); // within its predecessor's lease
    let wanted = successor.look().take_over[0];
    assert!(!successor.agent.refused(wanted.pair, wanted.dead, RefusedKind::Damaged, 0));

    let sim = Sim::new(4);
    let (mut dead, mut survivor) = (join(&sim, 0, 2), join(&sim, 1, 2));
    let own = dead.look().take_over[0];
    dead.serve(own);
    survivor.look();
    survivor.outlive();
    for _ in 0..3 {
        survivor.look(); // claims, plans, takes over
    }
    let incidents = Incidents::new(Arc::new(sim.link()));
    let share = || incidents.list().unwrap()[0].share(own.pair).cloned().expect("it is shared out");
    assert_eq!(share().survivor, Some(survivor.incarnation));
    let now_ns = sim.now_ns();
    assert!(survivor.agent.refused(own.pair, dead.incarnation, RefusedKind::Declined, now_ns));
    assert_eq!(share().declined, [survivor.incarnation]);
    assert_eq!(share().times.refused_ms, now_ns / MS);
}

/// Seed 4142663028 of the simulator: it did so at once, until its lease keeper or its worker ended it.
#[test]
fn claimer_whose_lease_has_ended_looks_again_in_no_hurry() {
    let sim = Sim::new(10);
    let (mut dead, mut survivor) = (join(&sim, 0, 2), join(&sim, 1, 2));
    let own = dead.look().take_over[0];
    dead.serve(own);
    survivor.look();
    survivor.outlive();
    survivor.look();
    let incidents = Incidents::new(Arc::new(sim.link())).list().unwrap();
    assert_eq!((incidents.len(), incidents[0].claimed_by), (1, survivor.incarnation));
    assert_eq!(survivor.agent.due_ns(), 0, "what it has claimed is to be seen at once");
    sim.advance(500 * MS);
    for _ in 0..2 {
        survivor.look();
        assert_eq!(survivor.agent.due_ns(), sim.now_ns() + EVERY_NS);
    }
}

/// Seed 4490 of the simulator: the pairs that are left are not all that there are, though all rows name it.
#[test]
fn node_that_declined_a_pair_serves_the_others_when_it_comes_to_have_them_all() {
    let sim = Sim::new(7);
    let (mut member, mut other) = (join(&sim, 0, 2), join(&sim, 1, 2));
    let own = member.look().take_over[0];
    assert!(member.decline(own), "the other node may take it");
    let others = other.look().take_over[0];
    other.serve(others);
    member.look();
    member.outlive();
    member.taken(TakeoverWanted { reason: ClaimReason::LeaseEnded, ..others });
    member.look();
    let rows = member.agent.rows().0;
    assert!(rows.iter().all(|row| row.node == NodeId(0)), "{rows:?}");
    let installation = member.agent.install(false).expect("what it has is there");
    assert!(!installation.whole, "a pair is missing");
    let again = TakeoverWanted { reason: ClaimReason::LeaseEnded, ..own };
    assert!(member.decline(again), "who serves goes on");
}

/// Three nodes that serve a pair each; the first one dies. The others, and the pair that it leaves.
fn two_survivors(sim: &Sim) -> ([Member; 2], PairId) {
    let mut dead = join(sim, 0, 3);
    let mut survivors = [1, 2].map(|node| join(sim, node, 3));
    let lost = dead.look().take_over[0];
    dead.serve(lost);
    for survivor in &mut survivors {
        let own = survivor.look().take_over[0];
        survivor.taken(own);
        survivor.look();
    }
    (survivors, lost.pair)
}

/// Looks of both, who stay alive, for so long or until one of them is to take a pair over; which one.
fn next_takeover(survivors: &mut [Member; 2], within_ms: u64) -> Option<(usize, TakeoverWanted)> {
    for _ in 0..within_ms / 100 {
        survivors[0].sim.advance(100 * MS);
        for survivor in &*survivors {
            survivor.link.keep_alive(survivor.incarnation).unwrap();
        }
        for (at, survivor) in survivors.iter_mut().enumerate() {
            if let [wanted] = survivor.look().take_over[..] {
                return Some((at, wanted));
            }
        }
    }
    None
}

impl Member {
    /// It cannot read a pair: what a takeover does then. Whether the damage is believed.
    fn find_damage(&mut self, wanted: TakeoverWanted) -> bool {
        let missing = Missing::Log { region: wanted.pair.node_region(), epoch: Epoch(1) };
        let is_believed = self.table.report_damage(self.claim(wanted), &missing).unwrap();
        let goes_on = self.agent.refused(wanted.pair, wanted.dead, RefusedKind::Damaged, self.sim.now_ns());
        assert!(goes_on, "who serves goes on");
        is_believed
    }
}

/// A survivor over another log root kept the pair, unserved, until it was stopped.
#[test]
fn damage_that_one_survivor_finds_is_looked_at_by_the_other_one_which_serves_the_pair() {
    let sim = Sim::new(11);
    let (mut survivors, lost) = two_survivors(&sim);
    let (finder, wanted) = next_takeover(&mut survivors, 4_000).expect("the share of one");
    assert_eq!(wanted.pair, lost);
    assert!(!survivors[finder].find_damage(wanted), "it may be its own fault");
    let incidents = Incidents::new(Arc::new(sim.link()));
    let share = incidents.list().unwrap()[0].share(lost).cloned().expect("it is shared out");
    assert_eq!(share.declined, [survivors[finder].incarnation]);
    let (reader, wanted) = next_takeover(&mut survivors, 4_000).expect("the other one looks");
    assert_eq!((reader, wanted.pair), (1 - finder, lost));
    survivors[reader].taken(wanted);
    let row = survivors[reader].table.pair(lost).unwrap();
    assert_eq!((row.owner, row.findings.len()), (Some(survivors[reader].incarnation), 0));
    let refuted: Vec<_> = row.refuted.iter().map(|of| (of.finding.incarnation, of.read_by)).collect();
    assert_eq!(refuted, [(survivors[finder].incarnation, survivors[reader].node)]);
    assert_eq!(next_takeover(&mut survivors, 12_000), None);
    assert!(incidents.list().unwrap().iter().all(cell_cluster::IncidentRow::is_over));
}

/// One row that nobody could read kept every survivor from every takeover.
#[test]
fn takeover_goes_on_beside_rows_of_every_kind_that_do_not_read() {
    let sim = Sim::new(11);
    let (mut survivors, lost) = two_survivors(&sim);
    let dead = survivors[0].table.pair(lost).unwrap().owner.unwrap();
    let incident = format!("incident/{:016x}", dead.0);
    let share = format!("{incident}/{:08}", lost.0);
    let of_others = [
        "drain/00000009",
        "incident/00000000000000ee",
        "joined/00000009",
        "member/00000000000000ff",
        SESSION,
    ];
    let put = |key: &str| sim.link().transact(Transaction::new().put(key, "garbage")).map(drop).unwrap();
    of_others.into_iter().chain([incident.as_str(), share.as_str()]).for_each(put);
    let (at, wanted) = next_takeover(&mut survivors, 4_000).expect("the share of one");
    assert_eq!(wanted.pair, lost);
    // Who settles the incident has yet to close it.
    put(&incident);
    survivors[at].taken(wanted);
    assert_eq!(survivors[at].table.pair(lost).unwrap().owner, Some(survivors[at].incarnation));
    assert_eq!(next_takeover(&mut survivors, 4_000), None);
    let incidents = Incidents::new(Arc::new(sim.link())).list().unwrap();
    assert!(incidents.iter().all(cell_cluster::IncidentRow::is_over), "{incidents:?}");
    for survivor in &mut survivors {
        let sessions = survivor.agent.install(true).expect("it serves").sessions;
        assert_eq!(sessions, [SessionId(7)], "it is open, whoever speaks for it");
        assert_eq!(survivor.agent.view().unreadable.keys().collect::<Vec<_>>(), of_others);
    }
    // Who comes later goes on as well.
    let mut late = join(&sim, 3, 3);
    late.look();
    assert_eq!(late.agent.install(true).expect("it serves").sessions, [SessionId(7)]);
    assert_eq!(late.agent.view().unreadable.keys().collect::<Vec<_>>(), of_others);
}

#[test]
fn damage_that_both_survivors_find_is_reported_and_offered_to_neither_again() {
    let sim = Sim::new(12);
    let (mut survivors, lost) = two_survivors(&sim);
    let (first, wanted) = next_takeover(&mut survivors, 4_000).expect("the share of one");
    assert!(!survivors[first].find_damage(wanted));
    let (second, wanted) = next_takeover(&mut survivors, 4_000).expect("the other one looks");
    assert_ne!(second, first);
    assert!(survivors[second].find_damage(wanted));
    assert_eq!(survivors[second].table.pair(lost).unwrap().owner, Some(survivors[second].incarnation));
    assert_eq!(next_takeover(&mut survivors, 12_000), None);
    let incidents = Incidents::new(Arc::new(sim.link())).list().unwrap();
    assert!(incidents.iter().all(cell_cluster::IncidentRow::is_over), "{incidents:#?}");
}

#[test]
fn restart_in_order_is_an_incident_with_its_times_and_is_closed() {
    let sim = Sim::new(9);
    let mut before = join(&sim, 0, 2);
    let own = before.look().take_over[0];
    let ownership = before.serve(own);
    before.table.release(ownership).unwrap();
    let mut after = join(&sim, 0, 2); // its predecessor's lease still runs
    let wanted = after.look().take_over[0];
    assert_eq!((wanted.pair, wanted.dead), (own.pair, before.incarnation));
    let times = ShareTimes { claimed_ms: 1, replayed_ms: 2, replayed_bytes: 3, ..ShareTimes::default() };
    after.agent.times(wanted.pair, wanted.dead, times);
    after.outlive();
    after.taken(wanted);
    let incidents = Incidents::new(Arc::new(sim.link()));
    let row = || incidents.list().unwrap().remove(0);
    assert_eq!(
        (row().dead, row().claimed_by, row().is_over()),
        (before.incarnation, after.incarnation, false)
    );
    assert_eq!(
        row().plan.iter().map(|share| (share.pair, share.times)).collect::<Vec<_>>(),
        [(own.pair, times)]
    );
    after.look();
    assert!(row().is_over());
    assert_eq!(incidents.list().unwrap().len(), 1);
}

#[test]
fn note_that_was_written_is_returned_at_the_next_look_even_unchanged() {
    let sim = Sim::new(5);
    let mut member = join(&sim, 0, 2);
    let notices = |member: &mut Member| {
        let events = member.look().events;
        events.iter().filter(|event| matches!(event, ControlEvent::Notices(_))).count()
    };
    let own = member.look().take_over[0];
    let ownership = member.serve(own);
    assert_eq!((notices(&mut member), notices(&mut member)), (0, 0), "there are none");
    let event = member.agent.write_notice("notes/1".to_owned(), None, ownership);
    assert!(
        matches!(event, ControlEvent::NoticeWritten { revision: Some(revision), .. } if revision > 0),
        "{event:?}"
    );
    assert_eq!(member.agent.due_ns(), 0, "at once");
    assert_eq!((notices(&mut member), notices(&mut member)), (1, 0), "its writer waits to see it gone");
}

#[test]
fn agent_that_stops_takes_nothing_over() {
    let sim = Sim::new(6);
    let mut member = join(&sim, 0, 1);
    member.agent.stop();
    let looked = member.look();
    assert!(looked.changed && looked.take_over.is_empty());
    assert!(member.agent.install(false).is_none());
}
