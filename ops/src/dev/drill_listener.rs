//! The socket by which drills reach the supervisor, if it allows them.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use cell_cluster::{
    Coordinator, Drains, IncidentRow, Incidents, Members, PairRow, PairState, Table, Trouble,
};
use cell_drill::wire::{DrillAnswer, DrillRequest, PairView, Refused, Status};
use cell_terms::{Incarnation, NodeId};

use super::drain;
use super::drill_pause::DrillPause;
use super::drill_turn::{DrillTurn, DrillTurns};
use super::event::Event;
use super::local_listener::{Asked, LocalListener, Names, answer_lines};

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
    let names = Names { accepts: "drills", serves: "drill", peer: "a drill" };
    LocalListener::open(path, names, move |stream| serve(stream, &coordinator, &events, &turns))
}

fn serve(
    stream: &UnixStream,
    coordinator: &Arc<dyn Coordinator>,
    events: &Sender<Event>,
    turns: &DrillTurns,
) -> io::Result<()> {
    let (mut pause, mut turn) = (DrillPause::new(coordinator), DrillTurn::new(turns));
    answer_lines(stream, |asked| match asked {
        Asked::Request(request) => {
            let refused = match request {
                DrillRequest::Begin { node } => turn.take(node).err(),
                _ => None,
            };
            if refused.is_none() {
                pause.note(request, Instant::now());
            }
            if matches!(request, DrillRequest::Begin { .. }) {
                return DrillAnswer { at_ns: cell_cluster::boottime_ns(), refused, status: None };
            }
            ask(request, coordinator, events)
        }
        Asked::Stranger { user, own } => refused(
            format!("user {user} may not inject faults into a cluster of user {own}"),
            "run the drill as the user who runs the cluster",
        ),
        Asked::Garbage(error) => refused(
            format!("this is no request: {error}"),
            r#"send one JSON object a line, such as {"do":"status"} or {"do":"kill","node":0}"#,
        ),
    })
}

fn refused(what: String, next: &str) -> DrillAnswer {
    let refused = Refused { what, next: next.to_owned() };
    DrillAnswer { at_ns: cell_cluster::boottime_ns(), refused: Some(refused), status: None }
}

/// Has the supervisor carry a request out; a status gets what the coordinator knows.
fn ask(request: DrillRequest, coordinator: &Arc<dyn Coordinator>, events: &Sender<Event>) -> DrillAnswer {
    let (sender, receiver) = channel();
    let sent = events.send(Event::Drill { request, answer: sender });
    let Some(mut answer) = sent.ok().and_then(|()| receiver.recv().ok()) else {
        return refused("the cluster is stopping".into(), "start it again, then the drill");
    };
    if answer.refused.is_none()
        && let DrillRequest::Drain { node, on } = request
        && let Err(refused) = drain(coordinator, node, on)
    {
        return DrillAnswer { refused: Some(refused), ..answer };
    }
    if let Some(status) = &mut answer.status
        && let Err(error) = add_table(status, coordinator)
    {
        return refused(
            format!("the coordinator does not answer: {error}"),
            "look at the supervisor's messages",
        );
    }
    answer
}

/// Wants a node empty, or no longer.
fn drain(coordinator: &Arc<dyn Coordinator>, node: u16, on: bool) -> Result<(), Refused> {
    let node = NodeId(node.into());
    if on { drain::begin(coordinator, node) } else { drain::end(coordinator, node) }
}

fn add_table(
    status: &mut Status,
    coordinator: &Arc<dyn Coordinator>,
) -> Result<(), cell_cluster::ClusterError> {
    let (rows, _) = Table::new(coordinator.clone()).pairs()?;
    let owners: std::collections::BTreeSet<u64> =
        rows.iter().flat_map(|row| row.owner.iter().chain(&row.trusted)).map(|owner| owner.0).collect();
    for owner in owners {
        if coordinator.remaining_ns(Incarnation(owner))?.is_some() {
            status.leases.push(owner);
        }
    }
    for row in Drains::new(coordinator.clone()).list()? {
        if let Some(view) = status.nodes.iter_mut().find(|view| u32::from(view.node) == row.node.0) {
            (view.drained_by, view.drain_stall) = (Some(row.who), row.stall);
        }
    }
    let incidents = Incidents::new(coordinator.clone()).list()?;
    // Who has no pair yet may be about to take one over.
    let members = Members::new(coordinator.clone()).list()?;
    let leases = &status.leases;
    let is_member = |of: Incarnation| members.iter().any(|member| member.incarnation == of);
    let lives = |of: Incarnation| leases.contains(&of.0) || is_member(of);
    let trouble = |row: &PairRow| Trouble::of(row, lives, &incidents);
    status.pairs = rows.iter().map(|row| view(row, trouble(row))).collect();
    let converted = |row: &IncidentRow| serde_json::from_value(serde_json::to_value(row).ok()?).ok();
    status.incidents = incidents.iter().filter_map(converted).collect();
    Ok(())
}

fn view(row: &PairRow, trouble: Option<Trouble>) -> PairView {
    let (trouble, next) = trouble.map_or((None, None), |trouble| (Some(trouble.what), trouble.next));
    PairView {
        pair: row.pair.0,
        node: row.node.0,
        owner: row.owner.map(|owner| owner.0),
        epoch: row.epoch.0,
        state: state_word(&row.state).to_owned(),
        cut_epoch: row.history.iter().filter(|epoch| epoch.cut.is_some()).map(|epoch| epoch.epoch.0).max(),
        trouble,
        next: next.map(Into::into),
    }
}

fn state_word(state: &PairState) -> &'static str {
    match state {
        PairState::New => "new",
        PairState::Recovering => "recovering",
        PairState::Serving => "serving",
        PairState::Released => "released",
        PairState::Unavailable { .. } => "unavailable",
    }
}
