//! The socket by which `cell dev scale` reaches the supervisor.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use cell_cluster::{
    ClusterError, ClusterView, Coordinator, DrainPlanned, DrainRow, Drains, Members, Moves, NodeRefusal,
    Table, Watch, local_socket, pairs_left,
};
use cell_drill::wire::Refused;
use cell_node::{CannotEmpty, HeldMemory, RoomElsewhere, held_memory, room_elsewhere};
use cell_terms::text::with_causes;
use cell_terms::{Incarnation, NodeId};

use super::drain::{DrainNotStarted, begin_checked};
use super::drill_turn::DrillTurns;
use super::event::Event;
use super::local_listener::{Asked, LocalListener, Names, answer_lines};
use super::memory_shares::{MemoryShares, ShrinkHint, Shrinking};
use super::owners::Misfit;
use super::scale_plan::LEFT;
use super::scale_wire::{
    SCALED_BY, ScaleAnswer, ScaleDone, ScaleNode, ScaleRequest, ScaleStep, UNREPORTED_NEXT, author, away,
    refuse, socket,
};
use crate::output::number;

/// A supervisor that says nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Nodes that somebody starts on purpose may join, also if they were removed before.
pub(crate) fn permit(coordinator: &Arc<dyn Coordinator>, nodes: u16) -> Result<(), ClusterError> {
    let nodes: Vec<NodeId> = (0..u32::from(nodes)).map(NodeId).collect();
    end_rows(coordinator, &nodes, |row| row.removed)
}

/// Ends the rows of these nodes that are to be ended; whatever others want of nodes stays.
fn end_rows(
    coordinator: &Arc<dyn Coordinator>,
    nodes: &[NodeId],
    is_to_end: impl Fn(&DrainRow) -> bool,
) -> Result<(), ClusterError> {
    let drains = Drains::new(coordinator.clone());
    let of_rows = |rows: &[DrainRow]| {
        let ending = rows.iter().filter(|row| nodes.contains(&row.node) && is_to_end(row));
        ending.map(|row| row.node).collect::<Vec<NodeId>>()
    };
    if of_rows(&drains.list()?).is_empty() {
        return Ok(()); // whatever else there is, also rows that do not read
    }
    let mut tries = 1;
    loop {
        let seen = drains.seen()?;
        let ending = of_rows(&seen.rows);
        if ending.is_empty() {
            return Ok(());
        }
        match drains.clone().as_seen(seen.revision).end(&ending) {
            Ok(_) => return Ok(()),
            Err(ClusterError::Node(NodeRefusal::Changed | NodeRefusal::NotDraining { .. }))
                if tries < DrainPlanned::PLANS_MAX =>
            {
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether a scale wants a node empty that is there.
fn is_scaled_away(row: &DrainRow) -> bool {
    !row.removed && row.who == SCALED_BY
}

/// Nodes that an earlier scale wanted away, if there are some: it was broken off.
pub(crate) fn unfinished(coordinator: &Arc<dyn Coordinator>) -> Result<Option<Misfit>, ClusterError> {
    Ok(leaving(&Drains::new(coordinator.clone()).list()?))
}

fn leaving(rows: &[DrainRow]) -> Option<Misfit> {
    let nodes: Vec<u32> = rows.iter().filter(|row| is_scaled_away(row)).map(|row| row.node.0).collect();
    let are = if nodes.len() == 1 { "is" } else { "are" };
    let what = format!("a scale of the cluster has not ended: {} {are} to leave", number::nodes(&nodes));
    let next = "`cell dev scale N` sees it through, or with a larger number lets them stay".to_owned();
    (!nodes.is_empty()).then_some(Misfit { event: "nodes_leaving", nodes, what, next })
}

/// Opens the socket and serves it on threads of its own.
///
/// # Errors
/// The system's.
pub(crate) fn listen(
    path: PathBuf,
    coordinator: Arc<dyn Coordinator>,
    events: Sender<Event>,
    turns: DrillTurns,
    memory: MemoryShares,
) -> anyhow::Result<LocalListener> {
    let names = Names { accepts: "scales", serves: "scale", peer: "`cell dev scale`" };
    let answer = move |asked: Asked<ScaleRequest>| {
        let done = match asked {
            Asked::Request(request) => carry_out(request, &coordinator, &events, &turns, &memory),
            Asked::Stranger { user, own } => Err(refuse(
                format!("user {user} may not change a cluster of user {own}"),
                "run it as the user who runs the cluster",
            )),
            Asked::Garbage(error) => {
                Err(refuse(format!("this is no request: {error}"), "send one JSON object a line"))
            }
        };
        done.map_or_else(ScaleAnswer::Refused, ScaleAnswer::Nodes)
    };
    LocalListener::open(path, names, move |stream| answer_lines(stream, &answer))
}

/// Does what the coordinator has to do with it, and has the supervisor do the rest.
fn carry_out(
    request: ScaleRequest,
    coordinator: &Arc<dyn Coordinator>,
    events: &Sender<Event>,
    turns: &DrillTurns,
    memory: &MemoryShares,
) -> ScaleDone {
    // Of a node that was stopped nobody would say later that it is not expected back.
    let is_harmless =
        matches!(&request, ScaleRequest::Look | ScaleRequest::Memory { .. } | ScaleRequest::Remove { .. });
    let _no_drill = if is_harmless { None } else { Some(turns.idle()?) };
    let drains = Drains::new(coordinator.clone());
    let node_id = |node: u16| NodeId(node.into());
    let node_ids = |nodes: &[u16]| nodes.iter().map(|node| node_id(*node)).collect::<Vec<_>>();
    let step = match request {
        ScaleRequest::Look => ScaleStep::Look,
        ScaleRequest::Start { node } => {
            let is_in_the_way = |row: &DrainRow| row.removed || is_scaled_away(row);
            end_rows(coordinator, &[node_id(node)], is_in_the_way).map_err(|error| in_words(&error))?;
            ScaleStep::Start(node)
        }
        ScaleRequest::Memory { nodes } => {
            check_memory(coordinator, memory, nodes)?;
            ScaleStep::Look
        }
        ScaleRequest::Drain { nodes } => {
            drain(coordinator, memory, &node_ids(&nodes))?;
            ScaleStep::Look
        }
        ScaleRequest::Undrain { nodes } => {
            end_rows(coordinator, &node_ids(&nodes), is_scaled_away).map_err(|error| in_words(&error))?;
            ScaleStep::Look
        }
        ScaleRequest::Retire { node } => {
            // It has no pairs, or its loss would be felt.
            drains.check_remove(node_id(node)).map_err(|error| in_words(&error))?;
            ScaleStep::Retire(node)
        }
        ScaleRequest::Remove { node } => {
            drains.remove(node_id(node), &author(SCALED_BY)).map_err(|error| in_words(&error))?;
            ScaleStep::Look
        }
    };
    let mut nodes = ask(events, step)?;
    add_rows(&mut nodes, coordinator).map_err(|error| in_words(&error))?;
    Ok(nodes)
}

/// Refuses so many nodes if there is no memory for them, or if one of those that are there holds more than
/// its share would be. While that is not known, whoever asks waits: who has reported nothing may hold much.
fn check_memory(
    coordinator: &Arc<dyn Coordinator>,
    memory: &MemoryShares,
    nodes: u16,
) -> Result<(), Refused> {
    memory.check(nodes)?;
    if memory.each(nodes).is_none() {
        return Ok(()); // what each holds stays as it is
    }
    let mut watch = Watch::new(coordinator.clone());
    watch.follow_balance();
    watch.look().map_err(|error| in_words(&error))?;
    let held = held_memory(watch.view()).map_err(|why| away(why, UNREPORTED_NEXT))?;
    held.iter().try_for_each(|held| memory.check_held(nodes, held.node.0, held.bytes))
}

/// Wants these nodes empty, all or none, if the others have room for what they have.
fn drain(
    coordinator: &Arc<dyn Coordinator>,
    memory: &MemoryShares,
    leaving: &[NodeId],
) -> Result<(), Refused> {
    let started = begin_checked(coordinator, leaving, SCALED_BY, |view| check_room(view, memory, leaving));
    started.map_err(|why| match why {
        DrainNotStarted::Refused(refused) => refused,
        DrainNotStarted::Failed(error) => in_words(&error),
    })
}

/// Whether the others have room for what these nodes have. While that is not known, whoever asks waits.
fn check_room(view: &ClusterView, memory: &MemoryShares, leaving: &[NodeId]) -> Result<(), Refused> {
    let (why, next) = match room_elsewhere(view, leaving) {
        RoomElsewhere::Enough => return Ok(()),
        RoomElsewhere::Unknown(why) => return Err(away(why, UNREPORTED_NEXT)),
        RoomElsewhere::Lacks(CannotEmpty { why, next }) => (why, next),
    };
    let what = format!("the cluster cannot shrink so far: {why}");
    if let Some(next) = next {
        return Err(refuse(what, next));
    }
    let hint = shrinking(view, leaving).and_then(|shrinking| memory.shrink_hint(&shrinking));
    Err(match hint {
        Some(ShrinkHint { arithmetic, next }) => refuse(format!("{what}; {arithmetic}"), &next),
        None => refuse(what, "let more nodes stay, or give them more memory (memory_limit_bytes)"),
    })
}

/// What nodes hold of which these are to leave, and others that drain; none: it is not known, or what those
/// that stay may hold.
fn shrinking(view: &ClusterView, leaving: &[NodeId]) -> Option<Shrinking> {
    let leaves = |node: NodeId| leaving.contains(&node) || view.is_draining(node);
    let held = held_memory(view).ok()?.into_iter();
    let (leave, stay): (Vec<HeldMemory>, Vec<HeldMemory>) = held.partition(|held| leaves(held.node));
    // Of a node that was started again the last row counts.
    let limits: BTreeMap<NodeId, u64> =
        view.members.values().map(|row| (row.node, row.memory_limit_bytes)).collect();
    let least = stay.iter().filter_map(|held| limits.get(&held.node)).min().copied();
    let bytes = |held: &[HeldMemory]| held.iter().map(|held| held.bytes).collect::<Vec<u64>>();
    Some(Shrinking {
        stay: bytes(&stay),
        leave: bytes(&leave),
        largest: leave.iter().map(|held| held.largest_bytes).max()?,
        limit: least.filter(|limit| *limit > 0)?,
    })
}

fn in_words(error: &ClusterError) -> Refused {
    refuse(with_causes(error), "`cell node ls` shows how the nodes are")
}

fn ask(events: &Sender<Event>, step: ScaleStep) -> ScaleDone {
    let (sender, receiver) = channel();
    let sent = events.send(Event::Scale { step, answer: sender });
    let stopping = || refuse("the cluster is stopping".to_owned(), "start it again with --nodes N");
    sent.ok().and_then(|()| receiver.recv().ok()).unwrap_or_else(|| Err(stopping()))
}

/// Adds what the coordinator knows of the nodes, and those that have a row and no place any more.
fn add_rows(nodes: &mut Vec<ScaleNode>, coordinator: &Arc<dyn Coordinator>) -> Result<(), ClusterError> {
    // Moves first: of a pair that comes meanwhile, the move is seen, or the pair's row.
    let moves = Moves::new(coordinator.clone()).list()?;
    let (pairs, _) = Table::new(coordinator.clone()).pairs()?;
    let members = Members::new(coordinator.clone()).list()?;
    let lives = |of: Incarnation| members.iter().any(|member| member.incarnation == of);
    let drains = Drains::new(coordinator.clone()).list()?;
    for number in drains.iter().filter_map(|row| u16::try_from(row.node.0).ok()) {
        if !nodes.iter().any(|of| of.node == number) {
            nodes.push(ScaleNode { node: number, state: LEFT.to_owned(), ..ScaleNode::default() });
        }
    }
    nodes.sort_by_key(|of| of.node);
    for of in nodes {
        // Also those that are on their way there: a node is stopped once it has none.
        let left = pairs_left(NodeId(u32::from(of.node)), &pairs, &moves, lives);
        of.pairs = usize::try_from(left).unwrap_or(usize::MAX);
        let Some(row) = drains.iter().find(|row| row.node.0 == u32::from(of.node)) else { continue };
        (of.draining, of.removed) = (!row.removed, row.removed);
        (of.drained_by, of.stall) = (Some(row.who.clone()), row.stall.clone());
    }
    Ok(())
}

/// A connection to a supervisor.
pub(crate) struct ScaleClient {
    stream: BufReader<UnixStream>,
}

impl ScaleClient {
    /// Connects to the supervisor of the cluster in `dir`.
    ///
    /// # Errors
    /// Nobody listens there.
    pub(crate) fn connect(dir: &Path) -> io::Result<ScaleClient> {
        let stream = local_socket::connect(&socket(dir), PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(ScaleClient { stream: BufReader::new(stream) })
    }

    /// Asks for something.
    ///
    /// # Errors
    /// No answer, or none that is understood.
    pub(crate) fn ask(&mut self, request: ScaleRequest) -> io::Result<ScaleDone> {
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        let mut said = String::new();
        if self.stream.read_line(&mut said)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(match serde_json::from_str(&said)? {
            ScaleAnswer::Nodes(nodes) => Ok(nodes),
            ScaleAnswer::Refused(refused) => Err(refused),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use cell_cluster::{
        CoordinatorRequest, CopyProgress, MemberRow, MoveOutcome, Ownership, Response, ServingAddress, Sim,
        SimLink,
    };
    use cell_terms::{Csn, Durability};

    use super::*;
    use crate::dev::drain::tests::enter;

    /// Nobody knows how much there is.
    const MEMORY: MemoryShares = MemoryShares::UNKNOWN;

    /// Who drains or was removed, by whom.
    fn rows(coordinator: &Arc<dyn Coordinator>) -> Vec<(u32, String, bool)> {
        let rows = Drains::new(coordinator.clone()).list().unwrap().into_iter();
        rows.map(|row| (row.node.0, row.who, row.removed)).collect()
    }

    /// Four nodes: one drains for an operator, one for a scale, and one was removed.
    fn four() -> (SimLink, Arc<dyn Coordinator>) {
        let link = Sim::new(1).link();
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        (0..4).for_each(|node| enter(&link, node, 50, 0));
        let drains = Drains::new(coordinator.clone());
        drains.begin(&[NodeId(0), NodeId(2)], &author("ann")).unwrap();
        drains.begin(&[NodeId(1)], &author(SCALED_BY)).unwrap();
        drains.remove(NodeId(2), &author("bob")).unwrap();
        (link, coordinator)
    }

    /// They were all ended, by a scale to as many nodes as there were.
    #[test]
    fn end_rows_leaves_what_an_operator_wants() {
        let (_link, coordinator) = four();
        let all: Vec<NodeId> = (0..4).map(NodeId).collect();
        end_rows(&coordinator, &all, is_scaled_away).unwrap();
        let left = [(0, "ann".to_owned(), false), (2, "bob".to_owned(), true)];
        assert_eq!(rows(&coordinator), left);
        end_rows(&coordinator, &all, is_scaled_away).unwrap();
        permit(&coordinator, 4).unwrap();
        assert_eq!(rows(&coordinator), left[..1]);
    }

    /// A way to the coordinator on which another does something right after the moves or the pairs were
    /// listed, whichever is first.
    struct Between<F>(SimLink, AtomicBool, F);

    impl<F: Fn() + Send + Sync> Coordinator for Between<F> {
        fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
            let Between(link, is_done, other) = self;
            let response = link.call(request);
            let is_listed = matches!(request, CoordinatorRequest::List { prefix, .. }
                if prefix == "move/" || prefix == "pair/");
            if is_listed && !is_done.swap(true, Ordering::SeqCst) {
                other();
            }
            response
        }
    }

    /// It was counted by neither, and its node was stopped.
    #[test]
    fn pair_that_comes_while_the_rows_are_read_is_counted() {
        let link = Sim::new(1).link();
        enter(&link, 0, 0, 10);
        enter(&link, 1, 100, 0);
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        let (table, moves) = (Table::new(coordinator.clone()), Moves::new(coordinator.clone()));
        let members = Members::new(coordinator).list().unwrap();
        let target = members.iter().find(|row| row.node == NodeId(1)).unwrap();
        let of = moves.begin(table.pairs().unwrap().0[0].pair, target, "test").unwrap();
        moves.accept(of.name()).unwrap();
        moves.progress(of.name(), &CopyProgress { is_ready: true, ..CopyProgress::default() }).unwrap();
        let other = move || {
            let owned = |epoch, incarnation| Ownership { pair: of.pair, epoch, incarnation };
            table.hand(owned(of.epoch, of.source.incarnation), Csn(7), of.name()).unwrap();
            let place = ServingAddress { address: String::new(), worker: 0, node_key: 0, extent_key: 0 };
            let handed = owned(of.epoch_of_target(), of.target.incarnation);
            table.publish(handed, Durability::Sync, &place).unwrap();
            moves.close(of.name(), &MoveOutcome::Moved).unwrap();
        };
        let slow: Arc<dyn Coordinator> = Arc::new(Between(link, AtomicBool::new(false), other));
        let node = |node| ScaleNode { node, ..ScaleNode::default() };
        let mut nodes = vec![node(0), node(1)];
        add_rows(&mut nodes, &slow).unwrap();
        assert_eq!(nodes[1].pairs, 1);
    }

    /// A supervisor of these nodes.
    fn supervisor(nodes: &[u16]) -> Sender<Event> {
        let node = |node: &u16| ScaleNode { node: *node, state: "serving".into(), ..ScaleNode::default() };
        let nodes: Vec<ScaleNode> = nodes.iter().map(node).collect();
        let (sender, events) = channel();
        std::thread::spawn(move || {
            for event in events {
                if let Event::Scale { answer, .. } = event {
                    answer.send(Ok(nodes.clone())).unwrap();
                }
            }
        });
        sender
    }

    /// Those before it were drained, and stopped and removed, before the one was met that cannot be.
    #[test]
    fn drain_of_nodes_of_which_one_cannot_be_emptied_drains_none() {
        let link = Sim::new(1).link();
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        (0..3).for_each(|node| enter(&link, node, 50, 0));
        let (events, turns) = (supervisor(&[0, 1, 2]), DrillTurns::default());
        let drain = |nodes: &[u16]| {
            let request = ScaleRequest::Drain { nodes: nodes.to_vec() };
            carry_out(request, &coordinator, &events, &turns, &MEMORY)
        };
        let refused = drain(&[2, 9]).unwrap_err();
        assert!(refused.what.contains("no node-9 is in the cluster"), "{refused:?}");
        assert!(rows(&coordinator).is_empty());
        let nodes = drain(&[1, 2]).unwrap();
        let drained: Vec<bool> = nodes.iter().map(|of| of.draining).collect();
        assert_eq!(drained, [false, true, true]);
        assert_eq!(nodes[2].drained_by.as_deref(), Some(SCALED_BY));
    }

    /// A node that has only just joined.
    fn enter_unreported(link: &SimLink, node: u32) {
        let (incarnation, node) = (link.grant(10_000).unwrap().lease, NodeId(node));
        let (fabric, http) = (String::new(), String::new());
        let row = MemberRow { incarnation, node, fabric, http, pid: 0, memory_limit_bytes: 0 };
        Members::new(Arc::new(link.clone())).enter(&row).unwrap();
    }

    /// Node 0 has room for what node 2 has, and not for what node 1 has besides.
    #[test]
    fn drain_without_room_changes_nothing_and_waits_while_it_is_not_known_whether_there_is_some() {
        let link = Sim::new(1).link();
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        enter(&link, 0, 100, 10);
        enter(&link, 1, 0, 60);
        enter(&link, 2, 0, 60);
        let (events, turns) = (supervisor(&[0, 1, 2]), DrillTurns::default());
        let drain = |nodes: &[u16]| {
            let request = ScaleRequest::Drain { nodes: nodes.to_vec() };
            carry_out(request, &coordinator, &events, &turns, &MEMORY)
        };
        let refused = drain(&[1, 2]).unwrap_err();
        let why = "the cluster cannot shrink so far: the other nodes lack room";
        assert!(refused.what.starts_with(why) && !refused.is_away, "{refused:?}");
        assert!(rows(&coordinator).is_empty());
        drain(&[2]).unwrap();
        let drained = [(2, SCALED_BY.to_owned(), false)];
        assert_eq!(rows(&coordinator), drained);
        enter_unreported(&link, 3);
        let unknown = drain(&[1, 2]).unwrap_err();
        assert_eq!(
            (unknown.what.as_str(), unknown.is_away),
            ("node-3 has not reported yet what it has", true)
        );
        assert_eq!(rows(&coordinator), drained);
        // What was started goes on, whatever is known.
        drain(&[2]).unwrap();
    }

    /// Of two nodes with half of the memory each none could leave, once they held more than half together.
    #[test]
    fn drain_without_room_in_the_nodes_shares_is_refused_with_the_limit_with_which_there_is_some() {
        let link = Sim::new(1).link();
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        enter(&link, 0, 150 << 20, 300 << 20);
        enter(&link, 1, 250 << 20, 200 << 20);
        let members = Members::new(coordinator.clone());
        for row in members.list().unwrap() {
            members.enter(&MemberRow { memory_limit_bytes: 450 << 20, ..row }).unwrap();
        }
        let refused = |all: u64| {
            let memory = MemoryShares::new(0, Some((all + (64 << 20)) / 15 * 16), 1);
            drain(&coordinator, &memory, &[NodeId(1)]).unwrap_err()
        };
        let refusal = refused(900 << 20);
        let why = "the cluster cannot shrink so far: the other nodes lack room for 1 pair with 200.0 MiB";
        assert!(refusal.what.starts_with(why), "{refusal:?}");
        assert!(refusal.what.ends_with("needs a limit of 525 MiB, and has 450 MiB"), "{refusal:?}");
        assert!(refusal.next.contains("--nodes 2 --memory-limit-bytes 525MiB"), "{refusal:?}");
        let refusal = refused(700 << 20);
        assert!(!refusal.next.contains("--memory-limit-bytes"), "they take 725 MiB for a while: {refusal:?}");
        assert!(rows(&coordinator).is_empty());
    }

    #[test]
    fn rows_of_nodes_without_a_place_are_nodes_that_have_left() {
        let (_link, coordinator) = four();
        let (events, turns) = (supervisor(&[0, 3]), DrillTurns::default());
        let nodes = carry_out(ScaleRequest::Look, &coordinator, &events, &turns, &MEMORY).unwrap();
        let states: Vec<_> = nodes.iter().map(|of| (of.node, of.state.as_str(), of.removed)).collect();
        assert_eq!(states, [(0, "serving", false), (1, LEFT, false), (2, LEFT, true), (3, "serving", false)]);
    }

    /// Two nodes with half of the memory each, of which one holds more than a third.
    #[test]
    fn memory_of_nodes_that_hold_more_than_their_share_would_be_is_not_shared_anew() {
        let link = Sim::new(1).link();
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        let all = 900 << 20;
        let memory = MemoryShares::new(0, Some((all + (64 << 20)) / 15 * 16), 1);
        enter(&link, 0, 50, 100);
        enter(&link, 1, 50, 400 << 20);
        let (events, turns) = (supervisor(&[0, 1]), DrillTurns::default());
        let fits = |nodes| {
            let request = ScaleRequest::Memory { nodes };
            carry_out(request, &coordinator, &events, &turns, &memory)
        };
        assert!(fits(2).is_ok());
        let refused = fits(3).unwrap_err();
        assert!(refused.what.contains("node 1 holds 400 MiB") && !refused.is_away, "{refused:?}");
        // It was taken for one that holds nothing.
        enter_unreported(&link, 2);
        let unknown = fits(2).unwrap_err();
        assert_eq!(
            (unknown.what.as_str(), unknown.is_away),
            ("node-2 has not reported yet what it has", true)
        );
        assert!(unknown.next.starts_with("try again in a few seconds"), "{unknown:?}");
    }

    /// A scale that was killed left rows, and nothing said that it had not ended.
    #[test]
    fn unfinished_names_nodes_that_a_scale_wants_away_alone() {
        let (_link, coordinator) = four();
        let misfit = unfinished(&coordinator).unwrap().unwrap();
        assert_eq!((misfit.event, &misfit.nodes[..]), ("nodes_leaving", &[1][..]));
        assert_eq!(misfit.what, "a scale of the cluster has not ended: node 1 is to leave");
        end_rows(&coordinator, &[NodeId(1)], is_scaled_away).unwrap();
        assert_eq!(unfinished(&coordinator).unwrap(), None);
    }
}
