//! Which nodes' admin API it is that a command's arguments name: by their HTTP, or by the fabric, over which
//! a node says where its HTTP is.

use std::time::Duration;

use crate::api::{Api, ApiArgs, Place, with_scheme};
use crate::environment;
use crate::exit::{Exit, Failure, classify};
use crate::output::message;
use crate::readiness::ask_usual;
use crate::store;

/// How long a node may take to answer a question. It gives its peers a fraction of it.
const DEADLINE: Duration = Duration::from_secs(5);

impl Api {
    /// The admin API that the arguments name.
    ///
    /// # Errors
    /// As for [`Api::of`]; a node that is named by its fabric does not answer there.
    pub(crate) fn new(arguments: &ApiArgs) -> anyhow::Result<Api> {
        Api::within(arguments, DEADLINE)
    }

    /// The same, and nodes may take so long to answer a question.
    ///
    /// # Errors
    /// As for [`Api::new`].
    pub(crate) fn within(arguments: &ApiArgs, deadline: Duration) -> anyhow::Result<Api> {
        let variable = |name: &str| environment::variable(name)?.into_string().ok();
        let nodes: Vec<String> = match arguments.place(variable) {
            Place::Http(http) => {
                let nodes = http.split(',').map(str::trim).filter(|node| !node.is_empty());
                nodes.map(with_scheme).collect()
            }
            Place::Fabric(server) => {
                // Who names certificates means TLS, which all doors of a node speak or none.
                let scheme = if arguments.ca.is_some() { "https" } else { "http" };
                let http = store::http_of(&server, arguments.token.as_deref(), arguments.ca.as_deref());
                vec![format!("{scheme}://{}", http.or_else(|error| not_ready(error, &server, arguments))?)]
            }
        };
        let api = Api::of(nodes, arguments.ca.as_deref(), arguments.token.as_deref(), deadline)?;
        Ok(api.reached_by(arguments.reached()))
    }
}

/// The failure of servers that do not say where their HTTP is. If the HTTP of one at its usual port says that
/// the node is not ready, that is why: one that waits for its coordinator answers there alone.
fn not_ready(error: anyhow::Error, servers: &str, arguments: &ApiArgs) -> anyhow::Result<String> {
    let is_silent = classify(&error).0 == Exit::Unreachable;
    for server in servers.split(',').map(str::trim).filter(|_| is_silent) {
        let said = ask_usual(server, arguments.ca.as_deref())?;
        if let Some(readiness) = said.filter(|readiness| !readiness.is_ready()) {
            let what = format!("{}; {}", message::in_words(&error), readiness.why());
            let next = format!(
                "see to that, or name a node that is ready; `--http {}` asks this one all the same",
                readiness.http()
            );
            return Err(Failure::new(Exit::Unhealthy, what).next(next).into());
        }
    }
    Err(error)
}
