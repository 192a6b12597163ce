//! What one drill does to an agent's nodes. What it leaves is taken back when its connection ends, or when it
//! is silent for long while a fault of it lasts.

use std::thread;
use std::time::{Duration, Instant};

use cell_cluster::Members;
use cell_drill::ANSWER_WITHIN;
use cell_drill::wire::{DrillAnswer, DrillRequest, PartitionWay, Refused};

use super::cluster_turn::{ClusterTurn, NOTICED_WITHIN};
use super::host::AgentHost;
use crate::dev::drill_listener::{DrillSession, not_done};
use crate::dev::scale_wire::refuse;

/// So long a coordinator may be silent before a drill that looks gets that as its answer. A drill waits for
/// longer, also where it has waited for its turn before.
const COORDINATOR_PATIENCE: Duration =
    ANSWER_WITHIN.saturating_sub(NOTICED_WITHIN).saturating_sub(Duration::from_secs(1));
/// So long a drain is tried to be taken back that the coordinator does not let go.
const HEAL_PATIENCE: Duration = Duration::from_secs(300);
/// Between two tries.
const HEAL_AGAIN: Duration = Duration::from_secs(1);

/// See the module's text.
pub(super) struct AgentSession<'a> {
    host: &'a AgentHost,
    drill: DrillSession,
    turn: ClusterTurn,
    /// What takes back what lasts.
    remedies: Vec<DrillRequest>,
    /// What distinguishes the cluster from others, once it is known.
    cluster: Option<String>,
}

impl<'a> AgentSession<'a> {
    /// Of a drill that has asked for nothing yet.
    pub(super) fn new(host: &'a AgentHost) -> AgentSession<'a> {
        let AgentHost { coordinator, events, turns, first, next_if_away, .. } = host;
        let drill = DrillSession::new(coordinator, events, turns);
        let drill = drill.of_agent(COORDINATOR_PATIENCE, next_if_away);
        let turn = ClusterTurn::new(coordinator, *first);
        AgentSession { host, drill, turn, remedies: Vec::new(), cluster: None }
    }

    /// Has a request carried out.
    pub(super) fn answer(&mut self, request: DrillRequest) -> DrillAnswer {
        if !self.host.allows_drills && !request.is_look() {
            return not_done(refuse(
                "the agent does not allow drills".to_owned(),
                "start it with --allow-drills where its nodes may be drilled",
            ));
        }
        if let DrillRequest::Begin { node, claim } = request
            && let Err(refused) = self.turn.take(node, claim)
        {
            return not_done(refused);
        }
        let remedy = request.undone_by();
        self.forget(remedy);
        // Before it is done: whatever becomes of the answer, it is taken back.
        self.remedies.extend(remedy);
        let mut answer = self.drill.answer(request);
        match request {
            // Else the row may be there.
            DrillRequest::Drain { on: true, .. } if answer.refused.as_ref().is_some_and(|it| !it.is_away) => {
                self.forget(remedy);
            }
            DrillRequest::Partition { node, on: false, .. } if answer.refused.is_none() => {
                self.forget(Some(DrillRequest::Partition { node, on: false, way: PartitionWay::Both }));
            }
            _ if answer.refused.is_none() => self.forget(Some(request)),
            _ => {}
        }
        if let Some(status) = &mut answer.status {
            status.looks_only = !self.host.allows_drills;
            if request == DrillRequest::Status {
                status.cluster = self.cluster();
            }
        }
        answer
    }

    fn forget(&mut self, remedy: Option<DrillRequest>) {
        self.remedies.retain(|known| Some(*known) != remedy);
    }

    /// Takes back what lasts. A drain stays known while the coordinator does not answer: it is a row of that,
    /// and ends with no process.
    pub(super) fn heal(&mut self) {
        for remedy in std::mem::take(&mut self.remedies) {
            let node = remedy.node();
            match self.drill.answer(remedy).refused {
                None => tracing::warn!(node, "what a drill has left was taken back: {}", remedy.word()),
                Some(refused) if ended_with_process(remedy, &refused) => {
                    tracing::warn!(node, why = refused.what, "what a drill has left ended with its process");
                }
                Some(refused) => {
                    tracing::error!(
                        node,
                        why = refused.what,
                        "what a drill has left lasts: {}",
                        remedy.word()
                    );
                    if refused.is_away && matches!(remedy, DrillRequest::Drain { .. }) {
                        self.remedies.push(remedy);
                    }
                }
            }
        }
    }

    /// The id of the log root is one cluster's.
    fn cluster(&mut self) -> Option<String> {
        if self.cluster.is_none() {
            match Members::new(self.host.coordinator.clone()).terms() {
                Ok(terms) => self.cluster = terms.and_then(|terms| terms.log_root),
                Err(error) => tracing::debug!(%error, "it is not known which cluster this is"),
            }
        }
        self.cluster.clone()
    }
}

/// Whether what is taken back by this has ended by itself: who stood still and has died stands still no more.
fn ended_with_process(remedy: DrillRequest, refused: &Refused) -> bool {
    matches!(remedy, DrillRequest::Cont { .. }) && !refused.is_away
}

impl Drop for AgentSession<'_> {
    fn drop(&mut self) {
        let until = Instant::now() + HEAL_PATIENCE;
        self.heal();
        while !self.remedies.is_empty() && Instant::now() < until {
            thread::sleep(HEAL_AGAIN);
            self.heal();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread::{JoinHandle, spawn};

    use cell_cluster::{Coordinator, Drains, MemberRow, Sim};
    use cell_drill::wire::DRAINED_BY;
    use cell_terms::NodeId;

    use super::*;
    use crate::dev::drill_turn::DrillTurns;
    use crate::dev::event::Event;
    use crate::dev::scale_wire::author;

    /// A host whose supervisor does whatever it is asked for, but nothing to node 9; what that was.
    fn host(allows_drills: bool) -> (AgentHost, JoinHandle<Vec<DrillRequest>>) {
        let (events, asked) = channel();
        let supervisor = spawn(move || {
            let mut done = Vec::new();
            for event in asked {
                let Event::Drill { request, answer } = event else { continue };
                let refused = (request.node() == Some(9)).then(|| refuse("no".to_owned(), "no"));
                let status = request.is_look().then(Default::default);
                let _ = answer.send(DrillAnswer { at_ns: 7, refused, status });
                done.push(request);
            }
            done
        });
        let coordinator = Arc::new(Sim::new(1).link());
        let turns = DrillTurns::default();
        let next_if_away = "look at tls://c:7200".to_owned();
        (AgentHost { coordinator, events, turns, first: 1, allows_drills, next_if_away }, supervisor)
    }

    #[test]
    fn what_a_drill_leaves_is_taken_back_once_when_its_connection_ends() {
        let (host, supervisor) = host(true);
        let mut session = AgentSession::new(&host);
        let partition = |node, on, way| DrillRequest::Partition { node, on, way };
        let requests = [
            DrillRequest::Begin { node: Some(1), claim: None },
            partition(1, true, PartitionWay::In),
            partition(1, true, PartitionWay::Out),
            DrillRequest::Stop { node: 1 },
            DrillRequest::SlowDisk { node: 2, delay_ms: 70 },
            DrillRequest::SlowDisk { node: 2, delay_ms: 0 },
            partition(2, true, PartitionWay::Both),
            partition(2, false, PartitionWay::In),
            DrillRequest::Kill { node: 2, down_ms: 5 },
        ];
        for request in requests {
            assert_eq!(session.answer(request).refused, None, "{request:?}");
        }
        assert!(session.answer(DrillRequest::SlowDisk { node: 9, delay_ms: 5 }).refused.is_some());
        drop(session);
        drop(host);
        let done = supervisor.join().unwrap();
        let last: Vec<_> = done[done.len() - 3..].to_vec();
        assert_eq!(
            last,
            [
                partition(1, false, PartitionWay::Both),
                DrillRequest::Cont { node: 1 },
                DrillRequest::SlowDisk { node: 9, delay_ms: 0 },
            ]
        );
        assert_eq!(done.len(), requests.len() - 1 + 1 + 3, "the begin is none of the supervisor's");
    }

    /// A supervisor's messages were named, which stand on the agent's host and do not say where it is.
    #[test]
    fn coordinator_that_does_not_answer_is_named_by_its_place() {
        let (mut host, supervisor) = host(true);
        let link = Sim::new(1).link();
        link.set_cut(true);
        host.coordinator = Arc::new(link);
        let AgentHost { coordinator, events, turns, next_if_away, .. } = &host;
        let drill = DrillSession::new(coordinator, events, turns);
        let mut drill = drill.of_agent(Duration::ZERO, next_if_away);
        let refused = drill.answer(DrillRequest::Status).refused.unwrap();
        assert!(refused.is_away && refused.next == "look at tls://c:7200", "{refused:?}");
        drop(drill);
        drop(host);
        supervisor.join().unwrap();
    }

    /// It was said to stand still for good, though another process was up.
    #[test]
    fn fault_of_a_node_that_died_while_it_stood_still_does_not_last() {
        let no_process = refuse("node 9 has no process to cont".to_owned(), "wait");
        assert!(ended_with_process(DrillRequest::Cont { node: 9 }, &no_process));
        let slow = DrillRequest::SlowDisk { node: 9, delay_ms: 0 };
        assert!(!ended_with_process(slow, &no_process), "the process that follows has it, too");
        let silent = Refused { is_away: true, ..no_process };
        assert!(!ended_with_process(DrillRequest::Cont { node: 9 }, &silent));
    }

    /// A host, with node 1 of two drained by a drill; and the drains.
    fn host_that_drains(sim: &Sim) -> (AgentHost, JoinHandle<Vec<DrillRequest>>, Drains) {
        let (mut host, supervisor) = host(true);
        let link = sim.link();
        let drains = Drains::new(Arc::new(link.clone()));
        for node in [1, 2].map(NodeId) {
            let incarnation = link.grant(1_000_000).unwrap().lease;
            let (fabric, http) = (String::new(), String::new());
            let row = MemberRow { incarnation, node, fabric, http, pid: 0, memory_limit_bytes: 0 };
            Members::new(Arc::new(link.clone())).enter(&row).unwrap();
        }
        drains.begin(&[NodeId(1)], &author(DRAINED_BY)).unwrap();
        host.coordinator = Arc::new(link);
        (host, supervisor, drains)
    }

    /// The node stayed empty for good.
    #[test]
    fn drain_of_a_drill_that_died_ends_once_the_coordinator_answers_again() {
        let sim = Sim::new(1);
        let (mut host, supervisor, drains) = host_that_drains(&sim);
        let link = sim.link();
        host.coordinator = Arc::new(link.clone());
        let mut session = AgentSession::new(&host);
        session.remedies.push(DrillRequest::Drain { node: 1, on: false });
        link.set_cut(true);
        session.heal();
        assert_eq!((session.remedies.len(), drains.list().unwrap().len()), (1, 1), "it is tried again");
        link.set_cut(false);
        drop(session);
        assert!(drains.list().unwrap().is_empty());
        drop(host);
        supervisor.join().unwrap();
    }

    /// The same of an agent that was stopped in order: its supervisor does nothing more.
    #[test]
    fn drain_of_a_drill_ends_while_the_agent_stops() {
        let (mut host, supervisor, drains) = host_that_drains(&Sim::new(1));
        host.events = channel().0;
        supervisor.join().unwrap();
        let mut session = AgentSession::new(&host);
        let refused = session.answer(DrillRequest::Nodes).refused.unwrap();
        assert!(refused.is_away && refused.what.contains("is stopping"), "{refused:?}");
        assert_eq!(session.answer(DrillRequest::Drain { node: 1, on: false }).refused, None);
        assert!(drains.list().unwrap().is_empty());
    }

    #[test]
    fn agent_without_drills_shows_its_nodes_and_does_nothing_to_them() {
        let (host, supervisor) = host(false);
        let mut session = AgentSession::new(&host);
        let begin = DrillRequest::Begin { node: None, claim: None };
        for request in [begin, DrillRequest::Kill { node: 1, down_ms: 0 }] {
            let refused = session.answer(request).refused.unwrap();
            assert!(refused.what.contains("does not allow drills"), "{refused:?}");
        }
        assert!(session.answer(DrillRequest::Status).status.is_some_and(|status| status.looks_only));
        drop(session);
        drop(host);
        assert_eq!(supervisor.join().unwrap(), [DrillRequest::Status]);
    }
}
