//! The socket by which `cell dev scale` reaches the supervisor.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use cell_cluster::{ClusterError, ClusterView, Coordinator, Drains, NodeRefusal, Table, local_socket};
use cell_drill::wire::Refused;
use cell_node::{CannotEmpty, RoomElsewhere, room_elsewhere};
use cell_terms::NodeId;
use cell_terms::text::with_causes;

use super::drain::{NotBegun, begin_checked};
use super::drill_turn::DrillTurns;
use super::event::Event;
use super::local_listener::{Asked, LocalListener, Names, answer_lines};
use super::scale_wire::{
    NODES_MAX, SCALED_BY, ScaleAnswer, ScaleDone, ScaleNode, ScaleRequest, ScaleStep, author, away, refuse,
    socket,
};

/// A supervisor that says nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Nodes that somebody starts on purpose may join, also if they were removed before.
pub(crate) fn permit(coordinator: &Arc<dyn Coordinator>, nodes: u16) -> Result<(), ClusterError> {
    let drains = Drains::new(coordinator.clone());
    let removed = drains.list()?.into_iter().filter(|row| row.removed && row.node.0 < u32::from(nodes));
    let removed: Vec<NodeId> = removed.map(|row| row.node).collect();
    if removed.is_empty() { Ok(()) } else { drains.end(&removed).map(drop) }
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
) -> anyhow::Result<LocalListener> {
    let names = Names { accepts: "scales", serves: "scale", peer: "`cell dev scale`" };
    let answer = move |asked: Asked<ScaleRequest>| {
        let done = match asked {
            Asked::Request(request) => carry_out(request, &coordinator, &events, &turns),
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
) -> ScaleDone {
    // Of a node that was stopped nobody would say later that it is not expected back.
    let is_harmless = matches!(request, ScaleRequest::Look | ScaleRequest::Remove { .. });
    let _no_drill = if is_harmless { None } else { Some(turns.idle()?) };
    let drains = Drains::new(coordinator.clone());
    let node_id = |node: u16| NodeId(node.into());
    let step = match request {
        ScaleRequest::Look => ScaleStep::Look,
        ScaleRequest::Add => {
            let next = ask(events, ScaleStep::Look)?.len();
            permit(coordinator, u16::try_from(next + 1).unwrap_or(NODES_MAX))
                .map_err(|error| in_words(&error))?;
            ScaleStep::Add
        }
        ScaleRequest::Drain { from } => {
            drain(coordinator, &ask(events, ScaleStep::Look)?, from)?;
            ScaleStep::Look
        }
        ScaleRequest::Undrain { node } => {
            match drains.end(&[node_id(node)]) {
                Ok(_) | Err(ClusterError::Node(NodeRefusal::NotDraining { .. })) => {}
                Err(error) => return Err(in_words(&error)),
            }
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

/// Wants the nodes from this number on empty, if those below it have room for what they have.
fn drain(coordinator: &Arc<dyn Coordinator>, there: &[ScaleNode], from: u16) -> Result<(), Refused> {
    let leaving: Vec<NodeId> =
        there.iter().filter(|node| node.node >= from).map(|node| NodeId(node.node.into())).collect();
    let begun = begin_checked(coordinator, &leaving, SCALED_BY, |view| check_room(view, &leaving));
    begun.map_err(|why| match why {
        NotBegun::Refused(refused) => refused,
        NotBegun::Failed(error) => in_words(&error),
    })
}

/// Whether the others have room for what these nodes have. While that is not known, whoever asks waits.
fn check_room(view: &ClusterView, leaving: &[NodeId]) -> Result<(), Refused> {
    match room_elsewhere(view, leaving) {
        RoomElsewhere::Enough => Ok(()),
        RoomElsewhere::Unknown(why) => Err(away(why, "`cell node ls` shows how the nodes are")),
        RoomElsewhere::Lacks(CannotEmpty { why, next }) => Err(refuse(
            format!("the cluster cannot shrink so far: {why}"),
            next.unwrap_or("let more nodes stay, or give them more memory (memory_limit_bytes)"),
        )),
    }
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

fn add_rows(nodes: &mut [ScaleNode], coordinator: &Arc<dyn Coordinator>) -> Result<(), ClusterError> {
    let (pairs, _) = Table::new(coordinator.clone()).pairs()?;
    let drains = Drains::new(coordinator.clone()).list()?;
    for of in nodes {
        let row = drains.iter().find(|row| row.node.0 == u32::from(of.node));
        of.pairs = pairs.iter().filter(|row| row.node.0 == u32::from(of.node)).count();
        (of.draining, of.stall) = (row.is_some(), row.and_then(|row| row.stall.clone()));
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
