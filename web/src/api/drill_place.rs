//! Who does the faults of a drill: the supervisor that has its socket in this node's folder (`cell dev`), or
//! the agents of the nodes (`cell agent`), each of which knows its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use axum::http::StatusCode;
use cell_drill::{Agents, DrillError, Supervisor, Supervisors, drill_socket};

use crate::problem::Problem;
use crate::shared::Shared;

/// How nodes are started that take drills.
const NEXT: &str =
    "start the cluster with `cell dev --allow-drills`, or run each node by `cell agent --allow-drills`";
const NEXT_OF_AGENTS: &str = "run each node by `cell agent --allow-drills`, with an agent_address";

/// Who does faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FaultPlace {
    /// The supervisor of this folder.
    Folder(PathBuf),
    /// The agents at these addresses.
    Agents(Vec<String>),
}

/// A node, and where its agent is; none: it has none that takes drills.
pub(crate) type NamedAgent = (u32, Option<String>);

impl FaultPlace {
    /// How they are reached by whoever has this token. A supervisor asks for none.
    pub(crate) fn supervisors(self, shared: &Shared, token: &str) -> Supervisors {
        match self {
            FaultPlace::Folder(folder) => Supervisors::Folder(folder),
            FaultPlace::Agents(addresses) => {
                let (trust, token) = (shared.store.trust.clone(), token.to_owned());
                Supervisors::Agents(Agents { addresses, trust, token })
            }
        }
    }
}

/// The supervisor that has its socket in this node's folder; none: there is no socket. A node of an agent has
/// no other supervisor: a socket there is one that was left behind.
///
/// # Errors
/// 503: nobody answers there.
pub(crate) async fn of_folder(shared: &Shared) -> Result<Option<FaultPlace>, Problem> {
    let sources = &shared.sources;
    let folder = sources.data_folder.as_ref().filter(|_| sources.agent.is_none());
    let Some(folder) = folder.cloned() else { return Ok(None) };
    let connected = tokio::task::spawn_blocking(move || match Supervisor::connect(&folder) {
        Ok(_) => Ok(Some(FaultPlace::Folder(folder))),
        Err(DrillError::NoSupervisor { path, .. }) if is_missing(&path) => Ok(None),
        Err(DrillError::NoSupervisor { path, why }) => Err(no_supervisor(&path, &why)),
        Err(error) => Err(supervisor_away(error.to_string())),
    });
    connected.await.unwrap_or_else(|_| Err(Problem::internal()))
}

/// The agents of all nodes that said who theirs is.
///
/// # Errors
/// 403: one of them has none.
pub(crate) fn of_agents(shared: &Shared, named: &[NamedAgent]) -> Result<FaultPlace, Problem> {
    // Several nodes of a machine have one.
    let agents: BTreeSet<&String> = named.iter().filter_map(|(_, agent)| agent.as_ref()).collect();
    match named.iter().find(|(_, agent)| agent.is_none()) {
        None => Ok(FaultPlace::Agents(agents.into_iter().cloned().collect())),
        Some(_) if agents.is_empty() => Err(nobody(shared.sources.data_folder.as_deref())),
        Some((node, _)) => {
            let why = format!("Faults are done by agents, and node {node} has no agent that takes drills.");
            Err(not_allowed(why).next(NEXT_OF_AGENTS))
        }
    }
}

/// Nobody does faults to any node.
fn nobody(folder: Option<&Path>) -> Problem {
    let why = match folder.map(drill_socket) {
        None => "This node has no data folder, and so no supervisor that does faults.".to_owned(),
        Some(socket) => format!(
            "Faults are done by a supervisor, through {}: there is none. Start the cluster with `cell dev \
             --allow-drills`, or on several hosts each node by `cell agent --allow-drills`.",
            socket.display()
        ),
    };
    not_allowed(why).next(NEXT)
}

fn not_allowed(why: String) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "drills_not_allowed", why)
}

/// Where there is no socket, drills are not allowed; one that nobody answers at is a supervisor in trouble.
pub(crate) fn no_supervisor(socket: &Path, why: &str) -> Problem {
    match is_missing(socket) {
        true => nobody(socket.parent()),
        false => {
            supervisor_away(format!("Faults are done by a supervisor, through {}: {why}.", socket.display()))
        }
    }
}

fn is_missing(socket: &Path) -> bool {
    matches!(socket.try_exists(), Ok(false))
}

fn supervisor_away(what: String) -> Problem {
    Problem::unavailable(what).next("see whether the supervisor, `cell dev`, still runs, then try again")
}
