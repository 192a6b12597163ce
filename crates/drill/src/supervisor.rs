//! The way to who does faults to a cluster's nodes: one supervisor with its socket in the cluster's folder,
//! or an agent on each host, which together are as one.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::deadline::EndOfAll;
use crate::door::{Agents, Door};
use crate::error::DrillError;
use crate::wire::{DrillAnswer, DrillRequest, Status, Times};

/// Looks take one part of so many of the time, where the rest that this asks for is none of the longest:
/// agents ask the coordinator for each of them, and on a busy machine that is the time of those who take
/// over.
const LOOKS_PART: u32 = 10;
/// How long to wait between two looks, however long they take: what happens is seen as late as that.
const REST: RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_millis(100);

/// Where a cluster's supervisors are.
#[derive(Clone)]
pub enum Supervisors {
    /// One, by the cluster's folder.
    Folder(PathBuf),
    /// One a host.
    Agents(Agents),
}

/// A connection to a supervisor, or to all agents of a cluster.
pub struct Supervisor {
    /// At least one.
    doors: Vec<Door>,
    /// How long the last look took.
    looked_for: Duration,
}

impl Supervisor {
    /// Connects to the supervisor of the cluster in `dir`.
    ///
    /// # Errors
    /// [`DrillError::NoSupervisor`] without its socket.
    pub fn connect(dir: &Path) -> Result<Supervisor, DrillError> {
        Supervisor::reach_until(&Supervisors::Folder(dir.to_owned()), EndOfAll::NEVER, &|_| {})
    }

    /// Connects to all of them.
    ///
    /// # Errors
    /// As [`Supervisor::connect`]. Of agents: one is away, lets nobody in with this token, is of another
    /// cluster or has a node that another one has, too.
    pub fn reach(at: &Supervisors) -> Result<Supervisor, DrillError> {
        Supervisor::reach_until(at, EndOfAll::NEVER, &|_| {})
    }

    /// The same, of which all ends by then, and what it is asked until [`Supervisor::end_never`], too.
    /// `waits_for` is called with each of them before it is reached, in words.
    pub(crate) fn reach_until(
        at: &Supervisors,
        end: EndOfAll,
        waits_for: &dyn Fn(String),
    ) -> Result<Supervisor, DrillError> {
        match at {
            Supervisors::Folder(dir) => {
                waits_for("the cluster's supervisor".to_owned());
                Ok(Supervisor { doors: vec![Door::of_folder(dir, end)?], looked_for: Duration::ZERO })
            }
            Supervisors::Agents(agents) => Supervisor::of_agents(agents, end, waits_for),
        }
    }

    /// From now on each question has its whole time.
    pub(crate) fn end_never(&mut self) {
        self.doors.iter_mut().for_each(Door::end_never);
    }

    fn of_agents(
        agents: &Agents,
        end: EndOfAll,
        waits_for: &dyn Fn(String),
    ) -> Result<Supervisor, DrillError> {
        let mut doors: Vec<Door> = Vec::new();
        let mut cluster: Option<(&String, String)> = None;
        for agent in &agents.addresses {
            waits_for(format!("the agent at {agent}"));
            let mut door = Door::of_agent(agents, agent, end)?;
            let (_, status) = door.look(DrillRequest::Status)?;
            if let Some(own) = status.cluster {
                match &cluster {
                    Some((first, known)) if *known != own => {
                        let agents = [(*first).clone(), agent.clone()];
                        return Err(DrillError::TwoClusters { agents: Box::new(agents) });
                    }
                    Some(_) => {}
                    None => cluster = Some((agent, own)),
                }
            }
            door.looks_only = status.looks_only;
            door.nodes = status.nodes.iter().map(|node| node.node).collect();
            for node in &door.nodes {
                if let Some(other) = doors.iter().find(|other| other.nodes.contains(node)) {
                    let first = other.agent().unwrap_or_default().to_owned();
                    let agents = Box::new([first, agent.clone()]);
                    return Err(DrillError::SameNode { node: *node, agents });
                }
            }
            doors.push(door);
        }
        if doors.is_empty() {
            return Err(DrillError::Supervisor("is not named".to_owned()));
        }
        Ok(Supervisor { doors, looked_for: Duration::ZERO })
    }

    /// Asks for something and waits until it is done. Of agents, the one that has the node is asked.
    ///
    /// # Errors
    /// [`DrillError::Refused`] with the supervisor's words; [`DrillError::Supervisor`] or
    /// [`DrillError::AgentAway`] without an answer; [`DrillError::NoSuchNode`] if no agent has the node.
    pub fn ask(&mut self, request: DrillRequest) -> Result<DrillAnswer, DrillError> {
        if matches!(request, DrillRequest::Begin { node: None, .. }) {
            self.check_allowed()?;
        }
        let node = match request {
            DrillRequest::Begin { node, .. } => node,
            _ => request.node(),
        };
        self.door_of(node)?.ask(request)
    }

    /// How everyone is, and when that was, in nanoseconds on this host's CLOCK_BOOTTIME.
    ///
    /// # Errors
    /// As [`Supervisor::ask`].
    pub fn status(&mut self) -> Result<(u64, Status), DrillError> {
        let started = Instant::now();
        let looked = self.look();
        self.looked_for = started.elapsed();
        looked
    }

    /// Waits until the next look may come.
    pub(crate) fn rest(&self) {
        thread::sleep(self.rest_time());
    }

    /// How long that is.
    pub(crate) fn rest_time(&self) -> Duration {
        rest_after(self.looked_for)
    }

    fn look(&mut self) -> Result<(u64, Status), DrillError> {
        let (first, others) = self.doors.split_first_mut().expect("there is at least one");
        let (at_ns, mut status) = first.look(DrillRequest::Status)?;
        if first.agent().is_none() {
            return Ok((at_ns, status));
        }
        for door in others {
            // One of them asks the coordinator, for all.
            status.nodes.extend(door.look(DrillRequest::Nodes)?.1.nodes);
        }
        status.nodes.sort_by_key(|node| node.node);
        status.note_drains();
        self.to_own_clock(&mut status);
        Ok((at_ns, status))
    }

    /// A node that has a lease, and no agent among those that are asked: nobody can say how it is. Of a
    /// folder's supervisor none.
    pub(crate) fn without_agent(&self, status: &Status) -> Option<u32> {
        let are_agents = self.doors.iter().all(|door| door.agent().is_some());
        let has_agent = |node: u32| status.nodes.iter().any(|view| u32::from(view.node) == node);
        let mut members = status.members.iter().map(|member| member.node);
        members.find(|node| are_agents && !has_agent(*node))
    }

    /// What is done to all nodes in turn is not to end at one in the middle.
    fn check_allowed(&self) -> Result<(), DrillError> {
        let Some(door) = self.doors.iter().find(|door| door.looks_only) else { return Ok(()) };
        Err(DrillError::Refused {
            what: format!("the agent at {} does not allow drills", door.agent().unwrap_or_default()),
            next: "start it with --allow-drills where its nodes may be drilled".to_owned(),
        })
    }

    /// Who is asked about a node.
    fn door_of(&mut self, node: Option<u16>) -> Result<&mut Door, DrillError> {
        let at = match node {
            // A folder's supervisor knows best which it has.
            Some(node) if self.doors[0].agent().is_some() => {
                let found = self.doors.iter().position(|door| door.nodes.contains(&node));
                let nodes = || {
                    let mut nodes: Vec<u16> = self.doors.iter().flat_map(|door| door.nodes.clone()).collect();
                    nodes.sort_unstable();
                    nodes
                };
                found.ok_or_else(|| DrillError::NoSuchNode { node, nodes: nodes() })?
            }
            _ => 0,
        };
        Ok(&mut self.doors[at])
    }

    /// What survivors have recorded is by the clocks of their own hosts. A survivor is known by the pair that
    /// it has taken over; of others, and of who noticed first, nobody knows the host.
    fn to_own_clock(&self, status: &mut Status) {
        let ahead_ms = |node: u32| {
            let has = |door: &&Door| door.nodes.iter().any(|own| u32::from(*own) == node);
            self.doors.iter().find(has).map(Door::ahead_ms)
        };
        let owners = status.pairs.iter().filter_map(|pair| Some((pair.owner?, ahead_ms(pair.node)?)));
        let owners: BTreeMap<u64, i64> = owners.collect();
        for incident in &mut status.incidents {
            (incident.detected_ms, incident.lease_seen_ms) = (0, 0);
            for planned in &mut incident.plan {
                let ahead_ms = planned.survivor.and_then(|survivor| owners.get(&survivor));
                planned.times = ahead_ms.map_or_else(Times::default, |by_ms| planned.times.shifted(*by_ms));
            }
        }
    }
}

/// How long to wait after a look that took so long.
fn rest_after(looked_for: Duration) -> Duration {
    (looked_for * (LOOKS_PART - 1)).clamp(*REST.start(), *REST.end())
}

#[cfg(test)]
mod tests {
    use std::thread::JoinHandle;

    use cell_cluster::boottime_ns;

    use super::*;
    use crate::door::tests::{agent, agents, view};
    use crate::wire::{DrainView, Incident, MemberView, PairView, Planned};

    /// What an agent of this node answers, whose clock is ahead of this host's by so much.
    fn answer(asked: &str, node: u16, cluster: &str, ahead_ns: u64) -> DrillAnswer {
        let mut answer = DrillAnswer { at_ns: boottime_ns() + ahead_ns, ..DrillAnswer::default() };
        let is_status = asked.contains("status");
        if is_status || asked.contains("nodes") {
            let mut status = Status { nodes: vec![view(node)], ..Status::default() };
            if is_status {
                status.cluster = Some(cluster.to_owned());
                status.members = [1, 2, 5]
                    .map(|node| MemberView { node, server: format!("host-{node}.test:7000") })
                    .to_vec();
                status.drains = vec![DrainView { node: 5, who: "ann".to_owned(), stall: None }];
                let pair = PairView {
                    pair: 7,
                    node: 5,
                    owner: Some(55),
                    epoch: 2,
                    state: "serving".to_owned(),
                    cut_epoch: None,
                    trouble: None,
                    next: None,
                };
                status.pairs = vec![pair];
                let times = Times { claimed_ms: 100_000, serving_ms: 130_000, ..Times::default() };
                let planned = |survivor| Planned { pair: 7, survivor: Some(survivor), times };
                let plan = vec![planned(55), planned(66)];
                status.incidents = vec![Incident { dead: 4, detected_ms: 900, plan, ..Incident::default() }];
            }
            answer.status = Some(status);
        }
        answer
    }

    fn started(node: u16, cluster: &'static str, ahead_ns: u64) -> (String, JoinHandle<Vec<String>>) {
        agent(move |asked| answer(asked, node, cluster, ahead_ns))
    }

    fn begin(node: Option<u16>) -> DrillRequest {
        DrillRequest::Begin { node, claim: None }
    }

    #[test]
    fn agents_are_as_one_supervisor_and_each_is_asked_about_its_own_nodes() {
        let (first, _first) = started(1, "a", 0);
        let (second, second_serves) = started(5, "a", 0);
        let at = Supervisors::Agents(agents(&[&second, &first]));
        let mut supervisor = Supervisor::reach(&at).unwrap();
        let (_, status) = supervisor.status().unwrap();
        let nodes: Vec<u16> = status.nodes.iter().map(|node| node.node).collect();
        assert_eq!(nodes, [1, 5]);
        assert_eq!(status.node(5).unwrap().drained_by.as_deref(), Some("ann"));
        assert_eq!(status.server_of(&status.nodes[0]), "host-1.test:7000");
        assert_eq!(supervisor.without_agent(&status), Some(2));
        supervisor.ask(DrillRequest::Kill { node: 5, down_ms: 9 }).unwrap();
        let unknown = supervisor.ask(begin(Some(2))).err().unwrap();
        assert!(
            matches!(&unknown, DrillError::NoSuchNode { node: 2, nodes } if nodes == &[1, 5]),
            "{unknown}"
        );
        drop(supervisor);
        let asked = second_serves.join().unwrap();
        assert_eq!(asked.last().unwrap(), r#"{"do":"kill","node":5,"down_ms":9}"#);
    }

    /// Each had its own ten seconds, of which a node that wanted to begin a drill waited for all.
    #[test]
    fn reach_of_agents_that_are_slow_or_stand_still_ends_with_the_time_of_all() {
        let soon = |ms: u64| EndOfAll::after(Duration::from_millis(ms));
        // They take connections, and answer nobody.
        let still = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let still = still.each_ref().map(|listener| listener.local_addr().unwrap().to_string());
        let at = Supervisors::Agents(agents(&[&still[0], &still[1]]));
        let waited_for = std::cell::RefCell::new(Vec::new());
        let waits_for = |whom| waited_for.borrow_mut().push(whom);
        let words = Supervisor::reach_until(&at, soon(500), &waits_for).err().unwrap().to_string();
        assert!(words.contains(&still[0]) && words.ends_with("ms"), "{words}");
        assert_eq!(
            waited_for.into_inner(),
            [format!("the agent at {}", still[0])],
            "it knows who stands still"
        );
        // Each of its answers comes in time.
        let (slow, _slow) = agent(|asked| {
            thread::sleep(Duration::from_millis(20));
            answer(asked, 1, "a", 0)
        });
        let at = Supervisors::Agents(agents(&[&slow]));
        assert!(Supervisor::reach_until(&at, soon(60), &|_| {}).is_err(), "it was asked seven times");
    }

    /// It emptied and restarted the first nodes, and was refused at the others.
    #[test]
    fn drill_of_all_nodes_is_refused_before_it_begins_where_one_agent_allows_none() {
        let (first, first_serves) = started(1, "a", 0);
        let (second, _second) = agent(|asked| {
            let mut answer = answer(asked, 5, "a", 0);
            if let Some(status) = &mut answer.status {
                status.looks_only = true;
            }
            answer
        });
        let at = Supervisors::Agents(agents(&[&first, &second]));
        let mut supervisor = Supervisor::reach(&at).unwrap();
        let refused = supervisor.ask(begin(None)).unwrap_err().to_string();
        assert!(refused.contains(&second) && refused.contains("does not allow drills"), "{refused}");
        supervisor.ask(begin(Some(1))).unwrap();
        drop(supervisor);
        let asked = first_serves.join().unwrap();
        assert!(!asked.iter().any(|line| line.contains(r#""node":null"#)), "{asked:?}");
    }

    #[test]
    fn agents_of_two_clusters_or_of_one_node_are_refused() {
        for (node, cluster) in [(2, "b"), (1, "a")] {
            let ((first, _first), (second, _second)) = (started(1, "a", 0), started(node, cluster, 0));
            let refused = Supervisor::reach(&Supervisors::Agents(agents(&[&first, &second])));
            let words = refused.err().unwrap().to_string();
            let both = words.contains(&first) && words.contains(&second);
            assert!(both && words.contains(if node == 1 { "node 1" } else { "two clusters" }), "{words}");
        }
    }

    #[test]
    fn times_of_survivors_are_those_of_this_hosts_clock_where_their_host_is_known() {
        let (only, _serves) = started(5, "a", 60_000_000_000);
        let at = Supervisors::Agents(agents(&[&only]));
        let (_, status) = Supervisor::reach(&at).unwrap().status().unwrap();
        let incident = &status.incidents[0];
        let [known, unknown] = [0, 1].map(|at| incident.plan[at].times);
        let is_near = |ms: u64, wanted: u64| ms.abs_diff(wanted) < 1_000;
        assert!(is_near(known.claimed_ms, 40_000) && is_near(known.serving_ms, 70_000), "{known:?}");
        assert_eq!((unknown, incident.detected_ms), (Times::default(), 0));
    }

    #[test]
    fn looks_take_a_tenth_of_the_time_where_that_is_neither_too_often_nor_too_seldom() {
        let rests = [0, 100, 2_000, 300_000].map(|us| rest_after(Duration::from_micros(us)).as_millis());
        assert_eq!(rests, [5, 5, 18, 100]);
    }
}
