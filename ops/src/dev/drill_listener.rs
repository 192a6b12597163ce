//! The socket by which drills reach the supervisor, if it allows them: a unix socket in the cluster's folder,
//! for the user who runs it and root alone.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use cell_cluster::{
    ClusterError, Coordinator, Drains, IncidentRow, Incidents, Members, NodeRefusal, PairRow, PairState,
    Table, Trouble, local_socket,
};
use cell_drill::wire::{DRAINED_BY, DrillAnswer, DrillRequest, LINE_BYTES_MAX, PairView, Refused, Status};
use cell_terms::text::with_causes;
use cell_terms::{Incarnation, NodeId};

use super::drill_pause::DrillPause;
use super::event::Event;
use super::scale_wire;

/// Who asks nothing for so long is let go.
const IDLE: Duration = Duration::from_secs(600);

/// The open socket. Dropping it removes the file.
pub(crate) struct DrillListener {
    path: PathBuf,
}

impl DrillListener {
    /// Opens the socket and serves it on threads of its own. The folder's lock is held, so a file that is
    /// there is a dead supervisor's.
    pub(crate) fn open(
        path: PathBuf,
        coordinator: Arc<dyn Coordinator>,
        events: Sender<Event>,
    ) -> anyhow::Result<DrillListener> {
        let cannot = || format!("cannot open {} for drills", path.display());
        let listener = local_socket::listen(&path).with_context(cannot)?;
        let accept = move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // Out of descriptors, most likely: let some go before the next try.
                    thread::park_timeout(Duration::from_millis(50));
                    continue;
                };
                let (coordinator, events) = (coordinator.clone(), events.clone());
                let serve = move || {
                    if let Err(error) = serve(&stream, &coordinator, &events) {
                        tracing::debug!(%error, "a drill's connection ended");
                    }
                };
                if let Err(error) = thread::Builder::new().name("drill".into()).spawn(serve) {
                    tracing::warn!(%error, "no thread for a drill");
                }
            }
        };
        thread::Builder::new().name("drills".into()).spawn(accept).context("cannot start a thread")?;
        Ok(DrillListener { path })
    }
}

impl Drop for DrillListener {
    fn drop(&mut self) {
        let _ = local_socket::remove(&self.path); // a file that is left is replaced by the next supervisor
    }
}

fn serve(
    mut stream: &UnixStream,
    coordinator: &Arc<dyn Coordinator>,
    events: &Sender<Event>,
) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    let user = cell_fabric::peer_user(stream)?;
    let own = local_socket::own_user();
    let mut reader = BufReader::new(stream);
    let mut pause = DrillPause::new(coordinator);
    loop {
        let mut line = String::new();
        if reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)? == 0 {
            return Ok(());
        }
        // Refused only once it has asked: who writes into a closed socket does not come to read why.
        if !local_socket::is_admitted(user, own) {
            let what = format!("user {user} may not inject faults into a cluster of user {own}");
            return answer(stream, &refused(what, "run the drill as the user who runs the cluster"));
        }
        let reply = match serde_json::from_str(&line) {
            Ok(request) => {
                pause.note(request, Instant::now());
                ask(request, coordinator, events)
            }
            Err(error) => refused(
                format!("this is no request: {error}"),
                r#"send one JSON object a line, such as {"do":"status"} or {"do":"kill","node":0}"#,
            ),
        };
        answer(&mut stream, &reply)?;
    }
}

fn answer(mut stream: impl Write, answer: &DrillAnswer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
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
    let (drains, node) = (Drains::new(coordinator.clone()), NodeId(node.into()));
    let done = match on {
        true => drains.begin(&[node], &scale_wire::author(DRAINED_BY)).map(drop),
        false => match drains.end(&[node]) {
            Err(ClusterError::Node(NodeRefusal::NotDraining { .. })) => Ok(()),
            done => done.map(drop),
        },
    };
    done.map_err(|error| scale_wire::refuse(with_causes(&error), "`cell drill ls` shows the nodes"))
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
