//! The socket by which drills reach the supervisor, if it allows them, and what is done for a connection,
//! also where it is one to an agent.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use cell_cluster::{
    ClusterError, Coordinator, Drains, IncidentRow, Incidents, MemberRow, Members, Moves, PairRow, PairState,
    Table, Trouble,
};
use cell_drill::wire::{DrainView, DrillAnswer, DrillRequest, MemberView, PairView, Refused, Status};
use cell_terms::{Incarnation, NodeId};

use super::drain;
use super::drill_moves::moved_by_balance;
use super::drill_pause::DrillPause;
use super::drill_turn::{DrillTurn, DrillTurns};
use super::event::Event;
use super::local_listener::{Asked, LocalListener, Names, answer_lines};
use super::scale_wire::{away, refuse};

/// Between two tries to ask a coordinator that does not answer.
const AGAIN: Duration = Duration::from_millis(50);

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
    let mut session = DrillSession::new(coordinator, events, turns);
    answer_lines(stream, |asked| match asked {
        Asked::Request(request) => session.answer(request),
        Asked::Stranger { user, own } => not_done(refuse(
            format!("user {user} may not inject faults into a cluster of user {own}"),
            "run the drill as the user who runs the cluster",
        )),
        Asked::Garbage(error) => no_request(&error),
    })
}

/// The answer to what is no request.
pub(crate) fn no_request(error: &serde_json::Error) -> DrillAnswer {
    not_done(refuse(
        format!("this is no request: {error}"),
        r#"send one JSON object a line, such as {"do":"status"} or {"do":"kill","node":0}"#,
    ))
}

/// The answer of who did nothing.
pub(crate) fn not_done(refused: Refused) -> DrillAnswer {
    DrillAnswer { at_ns: cell_cluster::boottime_ns(), refused: Some(refused), status: None }
}

/// What one connection has of a cluster: the turn for a drill, a pause of balance, and who carries out what
/// it asks for. Dropping it ends the first two.
pub(crate) struct DrillSession {
    coordinator: Arc<dyn Coordinator>,
    events: Sender<Event>,
    pause: DrillPause,
    turn: DrillTurn,
    patience: Duration,
    /// What to do where the coordinator does not answer.
    next_if_away: String,
}

impl DrillSession {
    /// Of a connection that has asked for nothing yet.
    pub(crate) fn new(
        coordinator: &Arc<dyn Coordinator>,
        events: &Sender<Event>,
        turns: &DrillTurns,
    ) -> DrillSession {
        let (pause, turn) = (DrillPause::new(coordinator), DrillTurn::new(turns));
        let (coordinator, events) = (coordinator.clone(), events.clone());
        let next_if_away = "look at the supervisor's messages".to_owned();
        DrillSession { coordinator, events, pause, turn, patience: Duration::ZERO, next_if_away }
    }

    /// The same; a coordinator that does not answer is asked again for so long, and then this is to be done.
    pub(crate) fn of_agent(self, patience: Duration, next_if_away: &str) -> DrillSession {
        DrillSession { patience, next_if_away: next_if_away.to_owned(), ..self }
    }

    /// Has a request carried out.
    pub(crate) fn answer(&mut self, request: DrillRequest) -> DrillAnswer {
        if let DrillRequest::Begin { node, .. } = request
            && let Err(refused) = self.turn.take(node)
        {
            return not_done(refused);
        }
        self.pause.note(request, Instant::now());
        if matches!(request, DrillRequest::Begin { .. }) {
            return DrillAnswer { at_ns: cell_cluster::boottime_ns(), ..DrillAnswer::default() };
        }
        let until = Instant::now() + self.patience;
        loop {
            match ask(request, &self.coordinator, &self.events) {
                Ok(answer) => return answer,
                Err(_) if Instant::now() < until => thread::sleep(AGAIN),
                Err(error) => {
                    return not_done(away(
                        format!("the coordinator does not answer: {error}"),
                        &self.next_if_away,
                    ));
                }
            }
        }
    }
}

/// Has the supervisor carry a request out; a status gets what the coordinator knows.
///
/// # Errors
/// The coordinator does not say it. Nothing but that was asked for.
fn ask(
    request: DrillRequest,
    coordinator: &Arc<dyn Coordinator>,
    events: &Sender<Event>,
) -> Result<DrillAnswer, ClusterError> {
    let (sender, receiver) = channel();
    let sent = events.send(Event::Drill { request, answer: sender });
    let Some(mut answer) = sent.ok().and_then(|()| receiver.recv().ok()) else {
        // It outlasts whoever stops.
        if let DrillRequest::Drain { node, on: false } = request
            && drain(coordinator, node, false).is_ok()
        {
            return Ok(DrillAnswer { at_ns: cell_cluster::boottime_ns(), ..DrillAnswer::default() });
        }
        return Ok(not_done(away("the cluster is stopping".into(), "start it again, then the drill")));
    };
    if answer.refused.is_none()
        && let DrillRequest::Drain { node, on } = request
        && let Err(refused) = drain(coordinator, node, on)
    {
        return Ok(DrillAnswer { refused: Some(refused), ..answer });
    }
    if request == DrillRequest::Status
        && let Some(status) = &mut answer.status
    {
        add_table(status, coordinator)?;
    }
    Ok(answer)
}

/// Wants a node empty, or no longer.
fn drain(coordinator: &Arc<dyn Coordinator>, node: u16, on: bool) -> Result<(), Refused> {
    let node = NodeId(node.into());
    if on { drain::begin(coordinator, node) } else { drain::end(coordinator, node) }
}

fn add_table(status: &mut Status, coordinator: &Arc<dyn Coordinator>) -> Result<(), ClusterError> {
    let (rows, _) = Table::new(coordinator.clone()).pairs()?;
    let owners: std::collections::BTreeSet<u64> =
        rows.iter().flat_map(|row| row.owner.iter().chain(&row.trusted)).map(|owner| owner.0).collect();
    for owner in owners {
        if coordinator.remaining_ns(Incarnation(owner))?.is_some() {
            status.leases.push(owner);
        }
    }
    let drains = Drains::new(coordinator.clone()).list()?.into_iter();
    status.drains =
        drains.map(|row| DrainView { node: row.node.0, who: row.who, stall: row.stall }).collect();
    status.note_drains();
    let incidents = Incidents::new(coordinator.clone()).list()?;
    // Who has no pair yet may be about to take one over.
    let members = Members::new(coordinator.clone()).list()?;
    status.members = MemberRow::present_rows(&members)
        .map(|member| MemberView { node: member.node.0, server: member.fabric.clone() })
        .collect();
    let leases = &status.leases;
    let is_member = |of: Incarnation| members.iter().any(|member| member.incarnation == of);
    let lives = |of: Incarnation| leases.contains(&of.0) || is_member(of);
    let trouble = |row: &PairRow| Trouble::of(row, lives, &incidents);
    let moving = moved_by_balance(&rows, &Moves::new(coordinator.clone()).list()?, lives);
    status.pairs = rows.iter().map(|row| view(row, trouble(row))).collect();
    let converted = |row: &IncidentRow| serde_json::from_value(serde_json::to_value(row).ok()?).ok();
    status.incidents = incidents.iter().filter_map(converted).collect();
    status.moving = moving;
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
