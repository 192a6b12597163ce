//! Who may join a cluster: terms are compared, and a node's number belongs to one process.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails fails the test")]

use std::sync::{Arc, Mutex};

use cell_cluster::{
    ClusterError, ClusterTerms, Coordinator, CoordinatorRequest, DrainAuthor, Drains, Fault, HostId,
    JoinedNodes, Joining, LeaseTerms, MemberRow, Members, Response, RootAnswer, RootProofs, RootQuestion,
    RootVerdict, Sim, SimLink, Transaction, Watch,
};
use cell_terms::{Durability, Incarnation, NodeId};

const LEASE_MS: u64 = 500;
const MS: u64 = 1_000_000;

/// A process that may join.
struct Process {
    link: SimLink,
    node: NodeId,
    lease: Incarnation,
    joining: Joining,
}

impl Process {
    /// On a boot of a machine, over a log root.
    fn on(sim: &Sim, node: u32, (boot, log_root): (u128, u128)) -> Process {
        let (link, host) = (sim.link(), Some(HostId::new(boot, log_root)));
        let terms = ClusterTerms::new(1, host, Durability::Sync, LeaseTerms::new(LEASE_MS, 0.05));
        let joining = Joining { terms, host, home: format!("/data/node-{node}") };
        Process { lease: link.grant(LEASE_MS).unwrap().lease, link, node: NodeId(node), joining }
    }

    fn new(sim: &Sim, node: u32) -> Process {
        Process::on(sim, node, (1, 1))
    }

    fn join(&self) -> Result<(), ClusterError> {
        self.join_by(Arc::new(self.link.clone()))
    }

    fn join_by(&self, coordinator: Arc<dyn Coordinator>) -> Result<(), ClusterError> {
        Members::new(coordinator).join(&self.row(), &self.joining)
    }

    fn row(&self) -> MemberRow {
        MemberRow {
            incarnation: self.lease,
            node: self.node,
            fabric: format!("127.0.0.1:{}", 7000 + self.node.0),
            http: String::new(),
            pid: 1,
            memory_limit_bytes: 0,
        }
    }

    fn proofs(&self) -> RootProofs {
        RootProofs::new(Arc::new(self.link.clone()))
    }

    fn question(&self) -> RootQuestion {
        RootQuestion::new(self.node, self.lease, 7)
    }

    fn verdict(&self) -> RootVerdict {
        self.proofs().verdict(&self.row(), self.joining.host).unwrap()
    }

    fn what_differs(&self) -> Option<&'static str> {
        match self.join() {
            Ok(()) => None,
            Err(ClusterError::Terms(difference)) => Some(difference.what),
            Err(error) => panic!("{error}"),
        }
    }

    fn is_member(&self) -> bool {
        let members = Members::new(Arc::new(self.link.clone())).list().unwrap();
        members.iter().any(|row| row.incarnation == self.lease)
    }
}

/// Whether a node over another log root is kept out.
pub(crate) fn other_log_root_is_refused() -> bool {
    let sim = Sim::new(1);
    Process::new(&sim, 0).join().unwrap();
    matches!(Process::on(&sim, 1, (1, 2)).join(), Err(ClusterError::Terms(_)))
}

/// Whether a node over a copy of the log root is kept out, which has the id: a member does not find in its
/// own what the node has made.
pub(crate) fn copied_log_root_is_refused() -> bool {
    let sim = Sim::new(1);
    let (member, copy) = (Process::new(&sim, 0), Process::new(&sim, 1));
    member.join().unwrap();
    copy.proofs().ask(copy.lease, &copy.question()).unwrap();
    let answer = RootAnswer { node: member.node, seen: false };
    member.proofs().answer(copy.lease, &copy.question(), answer).unwrap();
    copy.verdict() == RootVerdict::Unseen(member.node)
}

/// Whether a second process with a node's number is kept out, on another host.
pub(crate) fn second_node_of_a_number_is_refused() -> bool {
    let sim = Sim::new(1);
    Process::new(&sim, 0).join().unwrap();
    matches!(Process::on(&sim, 0, (2, 1)).join(), Err(ClusterError::NodeElsewhere { .. }))
}

/// Whether a node with another length of leases is kept out where a member lives whose row does not read.
pub(crate) fn other_lease_beside_a_member_that_does_not_read_is_refused() -> bool {
    let sim = Sim::new(1);
    let first = Process::new(&sim, 0);
    first.join().unwrap();
    let key = format!("member/{:016x}", first.lease.0);
    first.link.transact(Transaction::new().put_leased(key, "garbage", first.lease)).unwrap();
    let mut other = Process::new(&sim, 1);
    other.joining.terms = ClusterTerms { lease_ms: 900, ..first.joining.terms.clone() };
    matches!(other.join(), Err(ClusterError::Terms(_)))
}

/// One row that did not read kept every node from joining, and so from coming back.
#[test]
fn join_beside_a_member_whose_row_does_not_read_goes_by_the_same_terms() {
    assert!(other_lease_beside_a_member_that_does_not_read_is_refused());
    let sim = Sim::new(1);
    let first = Process::new(&sim, 0);
    first.join().unwrap();
    let key = format!("member/{:016x}", first.lease.0);
    first.link.transact(Transaction::new().put_leased(key, "garbage", first.lease)).unwrap();
    let second = Process::new(&sim, 1);
    second.join().unwrap();
    assert!(second.is_member() && !first.is_member());
    // It is somebody still, whom no process of another folder or host follows.
    let elsewhere = Process::on(&sim, 0, (2, 1)).join();
    assert!(matches!(elsewhere, Err(ClusterError::NodeElsewhere { .. })), "{elsewhere:?}");
}

#[test]
fn join_over_another_log_root_is_refused_even_alone() {
    assert!(other_log_root_is_refused());
    let sim = Sim::new(1);
    Process::new(&sim, 0).join().unwrap();
    sim.advance(LEASE_MS * MS);
    let moved = Process::on(&sim, 0, (1, 2));
    assert_eq!(moved.what_differs(), Some("the log root's id"));
    assert!(!moved.is_member());
}

#[test]
fn join_with_another_durability_or_lease_is_refused_while_others_live() {
    let sim = Sim::new(1);
    let first = Process::new(&sim, 0);
    first.join().unwrap();
    let mut other = Process::new(&sim, 1);
    other.joining.terms.durability = Durability::Async;
    assert_eq!(other.what_differs(), Some("durability"));
    other.joining.terms = ClusterTerms { lease_ms: 900, ..first.joining.terms.clone() };
    assert_eq!(other.what_differs(), Some("lease_ms"));
    assert!(!other.is_member());
    // Its predecessor is not another node: what starts alone decides.
    let mut again = Process::new(&sim, 0);
    again.joining.terms.durability = Durability::Async;
    assert_eq!(again.what_differs(), None);
    assert_eq!(Process::new(&sim, 1).what_differs(), Some("durability"));
}

/// A cluster that is stopped leaves its members' leases: a node that is given other terms hears whose end it
/// is to wait for, and what can never change waits for nobody.
#[test]
fn join_with_another_durability_hears_whose_leases_are_in_the_way_until_they_end() {
    let sim = Sim::new(1);
    let stopped: Vec<_> = (0..3).map(|node| Process::new(&sim, node)).collect();
    stopped.iter().for_each(|process| process.join().unwrap());
    let difference = |process: &Process| match process.join() {
        Err(ClusterError::Terms(difference)) => difference,
        joined => panic!("{joined:?}"),
    };
    sim.advance(100 * MS);
    let mut first = Process::new(&sim, 0);
    first.joining.terms.durability = Durability::Async;
    let others = difference(&first).others;
    let named: Vec<_> = others.iter().map(|other| (other.incarnation, other.node)).collect();
    let expected: Vec<_> = stopped[1..].iter().map(|process| (process.lease, Some(process.node))).collect();
    assert_eq!(named, expected, "its own predecessor is none of them");
    assert!(others.iter().all(|other| other.lease.remaining_ns == (LEASE_MS - 100) * MS), "{others:?}");
    assert_eq!(
        difference(&first).to_string(),
        "durability is async here and sync in the cluster, where node 1 lives"
    );
    assert!(difference(&Process::on(&sim, 3, (1, 2))).others.is_empty());
    sim.advance((LEASE_MS - 100) * MS);
    let first = Process { lease: first.link.grant(LEASE_MS).unwrap().lease, ..first };
    first.join().unwrap();
    assert!(first.is_member());
}

/// Another node joins right before the first request of this kind that comes this way.
struct Meanwhile {
    link: SimLink,
    other: Mutex<Option<Process>>,
    before: fn(&CoordinatorRequest) -> bool,
}

impl Coordinator for Meanwhile {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        if (self.before)(request)
            && let Some(other) = self.other.lock().unwrap().take()
        {
            other.join().unwrap();
        }
        self.link.call(request)
    }
}

#[test]
fn join_with_other_terms_while_another_node_joins_is_refused() {
    let sim = Sim::new(1);
    Process::new(&sim, 0).join().unwrap();
    sim.advance(LEASE_MS * MS);
    let mut late = Process::new(&sim, 1);
    late.joining.terms.durability = Durability::Async;
    let other = Mutex::new(Some(Process::new(&sim, 0)));
    let before = |request: &CoordinatorRequest| matches!(request, CoordinatorRequest::Transact(_));
    let joined = late.join_by(Arc::new(Meanwhile { link: late.link.clone(), other, before }));
    assert!(matches!(joined, Err(ClusterError::Terms(_))), "{joined:?}");
}

/// A stopped cluster is started with a new value: its nodes join at the same time. One read the old value,
/// and then that another node is there: it waited for the end of that one's lease.
#[test]
fn join_with_other_terms_that_another_node_brings_at_the_same_time_is_no_difference() {
    let sim = Sim::new(1);
    Process::new(&sim, 0).join().unwrap();
    sim.advance(LEASE_MS * MS);
    let [other, late] = [0, 1].map(|node| {
        let mut process = Process::new(&sim, node);
        process.joining.terms.durability = Durability::Async;
        process
    });
    let before = |request: &CoordinatorRequest| matches!(request, CoordinatorRequest::List { .. });
    let other = Mutex::new(Some(other));
    late.join_by(Arc::new(Meanwhile { link: late.link.clone(), other, before })).unwrap();
    assert!(late.is_member());
}

#[test]
fn join_as_a_node_that_lives_elsewhere_waits_for_its_lease() {
    assert!(second_node_of_a_number_is_refused());
    let sim = Sim::new(1);
    let first = Process::new(&sim, 0);
    first.join().unwrap();
    let mut other_folder = Process::new(&sim, 0);
    other_folder.joining.home = "/elsewhere".to_owned();
    let refused = other_folder.join().unwrap_err();
    assert!(refused.to_string().contains("/data/node-0"), "{refused}");
    let unknown_host =
        Process { joining: Joining { host: None, ..first.joining.clone() }, ..Process::new(&sim, 0) };
    assert!(matches!(unknown_host.join(), Err(ClusterError::NodeElsewhere { .. })));
    sim.advance(LEASE_MS * MS);
    let later = Process::on(&sim, 0, (2, 1));
    later.join().unwrap();
    assert!(later.is_member());
}

#[test]
fn join_on_the_same_host_and_folder_takes_the_predecessors_place_at_once() {
    let sim = Sim::new(1);
    Process::new(&sim, 0).join().unwrap();
    let next = Process::new(&sim, 0);
    next.link.plan([Fault::AnswerLost, Fault::AnswerLost]);
    next.join().unwrap();
    assert!(next.is_member());
    next.join().unwrap();
}

#[test]
fn join_past_the_lease_is_refused() {
    let sim = Sim::new(1);
    let process = Process::new(&sim, 0);
    sim.advance(LEASE_MS * MS);
    assert!(matches!(process.join(), Err(ClusterError::LeaseEnded { .. })));
}

/// What was known of a lost node was in its survivors' memory: restarted, none of them knew it.
#[test]
fn node_that_has_joined_is_known_past_its_lease_until_it_is_removed() {
    let sim = Sim::new(1);
    let coordinator: Arc<dyn Coordinator> = Arc::new(sim.link());
    let joined = JoinedNodes::new(coordinator.clone());
    let node = NodeId(1);
    let lives = [(); 2].map(|()| {
        let life = Process::new(&sim, 1);
        life.join().unwrap();
        sim.advance(2 * LEASE_MS * MS);
        life.lease
    });
    let rows = joined.list().unwrap();
    let listed: Vec<_> = rows.iter().map(|row| (row.node, row.incarnation)).collect();
    assert_eq!(listed, [(node, lives[1])], "a row a node, with its last life");
    let mut watch = Watch::new(coordinator.clone());
    watch.look().unwrap();
    assert!(watch.view().members.is_empty() && watch.view().joined.contains_key(&node));
    sim.link().transact(Transaction::new().put("joined/00000001", "garbage")).unwrap();
    watch.look().unwrap();
    assert!(watch.view().joined.contains_key(&node), "the last good one stays");
    assert!(joined.has(node).unwrap() && !joined.has(NodeId(0)).unwrap());
    let author = DrainAuthor { who: "ops", why: None, now_unix_ms: 1 };
    Drains::new(coordinator).remove(node, &author).unwrap();
    assert!(!joined.has(node).unwrap());
    assert!(watch.look().unwrap().changed);
    assert!(watch.view().joined.is_empty() && watch.view().unreadable.is_empty());
}

#[test]
fn proof_of_the_log_root_is_asked_of_living_members_of_other_nodes() {
    assert!(copied_log_root_is_refused());
    let sim = Sim::new(1);
    let (first, second) = (Process::new(&sim, 0), Process::new(&sim, 1));
    assert_eq!(first.verdict(), RootVerdict::Unneeded, "nobody is there");
    first.join().unwrap();
    assert_eq!(Process::new(&sim, 0).verdict(), RootVerdict::Unneeded, "its own predecessor");
    assert_eq!(second.verdict(), RootVerdict::Unanswered);
    let other_root = Process::on(&sim, 1, (1, 2));
    assert_eq!(other_root.verdict(), RootVerdict::Unneeded, "its id keeps it out");
    sim.advance(LEASE_MS * MS);
    assert_eq!(second.verdict(), RootVerdict::Unneeded, "the others have ended");
}

#[test]
fn question_of_a_joining_node_is_seen_when_it_is_asked_again_and_goes_with_its_lease() {
    let sim = Sim::new(1);
    let (member, joining) = (Process::new(&sim, 0), Process::new(&sim, 1));
    member.join().unwrap();
    let (lease, question, proofs) = (joining.lease, joining.question(), joining.proofs());
    proofs.ask(lease, &question).unwrap();
    let mut watch = Watch::new(Arc::new(member.link.clone()));
    watch.look().unwrap();
    assert!(watch.questions().is_empty(), "it was asked before the watch began");
    proofs.ask(lease, &question).unwrap();
    assert!(!watch.look().unwrap().changed, "the cluster is as it was");
    assert_eq!(watch.questions().get(&lease), Some(&question));
    for seen in [true, false] {
        member.proofs().answer(lease, &question, RootAnswer { node: member.node, seen }).unwrap();
        assert_eq!(joining.verdict(), RootVerdict::Seen, "the first answer stays");
    }
    proofs.end(lease).unwrap();
    watch.look().unwrap();
    assert!(watch.questions().is_empty() && watch.view().unreadable.is_empty());
    member.proofs().answer(lease, &question, RootAnswer { node: member.node, seen: true }).unwrap();
    assert_eq!(joining.verdict(), RootVerdict::Unanswered, "nobody asks any more");

    proofs.ask(lease, &question).unwrap();
    member.proofs().answer(lease, &question, RootAnswer { node: member.node, seen: true }).unwrap();
    watch.look().unwrap();
    assert!(watch.questions().contains_key(&lease) && !proofs.has_ended(lease).unwrap());
    sim.advance(LEASE_MS * MS);
    watch.look().unwrap();
    assert!(watch.questions().is_empty() && proofs.has_ended(lease).unwrap());
    assert!(sim.link().list("joining/").unwrap().entries.is_empty());
    assert!(proofs.ask(lease, &question).is_err());
}
