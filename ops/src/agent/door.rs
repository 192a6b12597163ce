//! Where drills of a cluster over several hosts reach this one.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use cell_cluster::Strangers;
use cell_node::AccessRules;
use cell_terms::setting::Settings;
use cell_web::TOKENS_FILE;

use super::conversation;
use super::guards::Guards;
use super::host::AgentHost;
use crate::exit::{Exit, Failure};
use crate::process_settings::AGENT_ADDRESS;
use crate::start_checks::{address, check_tls, explain_web};

/// Connections at a time whose peers have shown a token of the role admin. More are turned away.
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
            let what = format!("`cell agent` does not know where to listen: {AGENT_ADDRESS} is not given");
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
        let (host, places, strangers) = (Arc::new(host), Arc::new(()), Arc::new(Strangers::default()));
        let accept = move || {
            for socket in listener.incoming() {
                let Ok(socket) = socket else {
                    // Out of descriptors, most likely: let some go before the next try.
                    thread::park_timeout(AGAIN);
                    continue;
                };
                let (Ok(peer), Ok(own)) = (socket.peer_addr(), socket.try_clone()) else { continue };
                let stranger = strangers.enter(peer.ip(), &Arc::new(own));
                let (guards, host, places) = (guards.clone(), Arc::clone(&host), Arc::downgrade(&places));
                // Its place, once it has shown a token.
                let let_in = move || {
                    drop(stranger);
                    let place = places.upgrade()?;
                    // Who accepts has one, too.
                    (Arc::strong_count(&place) <= CONNECTIONS_MAX + 1).then_some(place)
                };
                let serve = move || {
                    if let Err(error) = conversation::serve(socket, &guards, &host, let_in) {
                        tracing::info!(%error, "a connection to the agent ended");
                    }
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
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpStream;
    use std::sync::mpsc::channel;

    use cell_cluster::Sim;
    use cell_drill::wire::DrillAnswer;

    use super::*;
    use crate::dev::drill_turn::DrillTurns;
    use crate::settings::tests::settings;

    /// SHA-256 of `a`.
    const TOKEN: &str = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";

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

    /// Who says nothing, or drips bytes, held all places.
    #[test]
    fn serve_lets_a_drill_in_however_many_strangers_say_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("admin root {TOKEN}\n")).unwrap();
        let tokens = (TOKENS_FILE, file.path().to_str().unwrap());
        let door = AgentDoor::listen(&settings(&[tokens, (AGENT_ADDRESS, "127.0.0.1:0")])).unwrap();
        let address = door.address();
        let coordinator = Arc::new(Sim::new(1).link());
        let (events, _supervisor) = channel();
        let (turns, next_if_away) = (DrillTurns::default(), String::new());
        let host = AgentHost { coordinator, events, turns, first: 1, allows_drills: false, next_if_away };
        door.serve(host).unwrap();
        let connect = || TcpStream::connect(address).unwrap();
        let _silent: Vec<_> = (0..CONNECTIONS_MAX + 7).map(|_| connect()).collect();
        let mut drill = connect();
        drill.write_all(b"{\"wire\":2,\"token\":\"a\"}\n").unwrap();
        let mut line = String::new();
        BufReader::new(drill).read_line(&mut line).unwrap();
        let answer: DrillAnswer = serde_json::from_str(&line).unwrap();
        assert_eq!(answer.refused, None);
    }
}
