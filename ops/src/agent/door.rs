//! Where drills of a cluster over several hosts reach this one.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use cell_node::AccessRules;
use cell_terms::setting::Settings;
use cell_web::TOKENS_FILE;

use super::conversation;
use super::guards::Guards;
use super::host::AgentHost;
use crate::exit::{Exit, Failure};
use crate::process_settings::AGENT_ADDRESS;
use crate::start_checks::{address, check_tls, explain_web};

/// Connections at a time. More are turned away.
const CONNECTIONS_MAX: usize = 64;
/// Between two tries to accept where there is no descriptor for one.
const AGAIN: Duration = Duration::from_millis(50);

/// The door of an agent: it is opened before anything is made, and served once there are nodes.
pub(crate) struct AgentDoor {
    listener: TcpListener,
    address: SocketAddr,
    guards: Guards,
}

impl AgentDoor {
    /// Listens where the settings say, if who comes there is safe.
    ///
    /// # Errors
    /// They do not say it, or lack tokens or TLS; the address is taken.
    pub(crate) fn listen(settings: &Settings) -> Result<AgentDoor, Failure> {
        if settings.text(AGENT_ADDRESS).is_empty() {
            let what = format!("`cell agent` is not told where to listen: {AGENT_ADDRESS} is not given");
            return Err(Failure::usage(what).next("give agent_address = HOST:PORT, such as 0.0.0.0:7090"));
        }
        let tokens = settings.text(TOKENS_FILE);
        if tokens.is_empty() {
            let what = "`cell agent` lets in who has a token of the role admin, and tokens_file is not given";
            return Err(Failure::usage(what).next("give tokens_file: `ROLES NAME SHA256` a line"));
        }
        let access = AccessRules::open(tokens).map_err(|error| explain_web(error.into()))?;
        let tls = check_tls(settings)?;
        let wanted = address(settings, AGENT_ADDRESS)?;
        if tls.is_none() && !wanted.ip().to_canonical().is_loopback() {
            let what = format!(
                "{wanted} is not a loopback address: without TLS whoever is on its network reads tokens"
            );
            let next =
                "give a loopback address as agent_address, or TLS (tls_certificate_file, tls_key_file)";
            return Err(Failure::usage(what).next(next));
        }
        let cannot = |error: std::io::Error| {
            let what = format!("the agent cannot listen on {wanted}: {error}");
            // The address may be there, or let go, at the next start.
            Failure::new(Exit::Error, what).next("another process listens there: give another agent_address")
        };
        let listener = TcpListener::bind(wanted).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        Ok(AgentDoor { listener, address, guards: Guards::new(access, tls) })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What is read again at a SIGHUP.
    pub(crate) fn guards(&self) -> Guards {
        self.guards.clone()
    }

    /// Serves each connection on a thread of its own.
    ///
    /// # Errors
    /// There is no thread.
    pub(crate) fn serve(self, host: AgentHost) -> anyhow::Result<()> {
        let AgentDoor { listener, guards, .. } = self;
        let (host, places) = (Arc::new(host), Arc::new(()));
        let accept = move || {
            for socket in listener.incoming() {
                let Ok(socket) = socket else {
                    // Out of descriptors, most likely: let some go before the next try.
                    thread::park_timeout(AGAIN);
                    continue;
                };
                if Arc::strong_count(&places) > CONNECTIONS_MAX {
                    tracing::warn!("a connection to the agent was turned away: it has {CONNECTIONS_MAX}");
                    continue;
                }
                let (guards, host, place) = (guards.clone(), Arc::clone(&host), Arc::clone(&places));
                let serve = move || {
                    if let Err(error) = conversation::serve(socket, &guards, &host) {
                        tracing::info!(%error, "a connection to the agent ended");
                    }
                    drop(place);
                };
                if let Err(error) = thread::Builder::new().name("agent".into()).spawn(serve) {
                    tracing::warn!(%error, "no thread for a drill");
                }
            }
        };
        thread::Builder::new().name("agents".into()).spawn(accept).context("cannot start a thread")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::settings;

    fn refused(values: &[(&str, &str)]) -> String {
        AgentDoor::listen(&settings(values)).map(drop).unwrap_err().what
    }

    #[test]
    fn listen_wants_an_address_tokens_and_beyond_loopback_tls() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("admin root {}\n", "ab".repeat(32))).unwrap();
        let tokens = (TOKENS_FILE, file.path().to_str().unwrap());
        let at = |address| (AGENT_ADDRESS, address);
        assert!(refused(&[tokens]).contains("agent_address is not given"));
        assert!(refused(&[at("127.0.0.1:0")]).contains("tokens_file is not given"));
        let open = refused(&[tokens, at("0.0.0.0:0")]);
        assert!(open.starts_with("0.0.0.0:0 is not a loopback address"), "{open}");
        let missing = refused(&[at("127.0.0.1:0"), (TOKENS_FILE, "/nowhere/tokens")]);
        assert!(missing.contains("/nowhere/tokens"), "{missing}");
        let door = AgentDoor::listen(&settings(&[tokens, at("127.0.0.1:0")])).unwrap();
        let place = door.address().to_string();
        let taken = AgentDoor::listen(&settings(&[tokens, at(&place)])).err().unwrap();
        assert!(taken.what.contains("cannot listen on"), "{taken}");
        assert_eq!(taken.exit, Exit::Error, "systemd starts it again");
    }
}
