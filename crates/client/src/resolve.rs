//! The addresses of servers as users name them.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use cell_fabric::Address;
use cell_resolver::Resolver;

use crate::error::ClientError;
use crate::names::is_name;

/// What was found is believed for the time of this.
const BELIEVED_FOR: Duration = Duration::from_secs(3_600);

/// What a list of servers comes to.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// To be tried in this order.
    pub(crate) addresses: Vec<Address>,
    /// What was named as the host of each that is reached over TCP.
    pub(crate) names: Vec<(SocketAddr, String)>,
}

/// All addresses of a list of servers; one that has none is left out as long as another one has. Nobody waits
/// for longer than this for where they lead.
pub(crate) fn resolve_all(servers: &str, within: Duration) -> Result<Resolved, ClientError> {
    resolve_by(&Resolver::new(BELIEVED_FOR), servers, within)
}

fn resolve_by(names: &Resolver, servers: &str, within: Duration) -> Result<Resolved, ClientError> {
    let mut resolved = Resolved { addresses: Vec::new(), names: Vec::new() };
    let mut failed = None;
    let servers: Vec<&str> = servers.split(',').map(str::trim).collect();
    // All at once: the time is that of all.
    servers.iter().filter(|server| is_name(server)).for_each(|server| names.begin(server));
    let part = within / u32::try_from(servers.len()).unwrap_or(u32::MAX);
    for server in servers {
        match resolve(names, server, part) {
            Ok(found) => {
                let host = server.rsplit_once(':').map_or("", |(host, _)| host);
                let over_tcp = found.iter().filter_map(|address| match address {
                    Address::Tcp(socket) => Some((*socket, host.to_owned())),
                    _ => None,
                });
                resolved.names.extend(over_tcp);
                resolved.addresses.extend(found);
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        Some(error) if resolved.addresses.is_empty() => Err(error),
        _ => Ok(resolved),
    }
}

/// All addresses of `host:port`, or the one of `shm:`.
fn resolve(names: &Resolver, server: &str, within: Duration) -> Result<Vec<Address>, ClientError> {
    let no_address = |source| ClientError::Resolve { server: server.into(), source };
    if server.starts_with("shm:") {
        let nonsense = |_| Error::new(ErrorKind::InvalidInput, "not `shm:/path` or `shm:@name`");
        return server.parse().map(|address| vec![address]).map_err(nonsense).map_err(no_address);
    }
    let found = names.find_within(server, within).map_err(no_address)?;
    Ok(found.into_iter().map(Address::Tcp).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;

    const FAR: Duration = Duration::from_secs(120);

    #[test]
    fn resolve_finds_addresses_and_refuses_nonsense() {
        let names = Resolver::new(BELIEVED_FOR);
        let of = |server: &str| resolve(&names, server, FAR);
        assert_eq!(of("127.0.0.1:7000").unwrap(), ["127.0.0.1:7000".parse().unwrap()]);
        assert_eq!(of("shm:/run/cell").unwrap(), ["shm:/run/cell".parse().unwrap()]);
        for wrong in ["shm:x", "127.0.0.1", "127.0.0.1:7000/x", "127.0.0.1:7000/3", "", ":::"] {
            let error = of(wrong).unwrap_err();
            assert!(matches!(error, ClientError::Resolve { .. }), "{wrong}: {error}");
        }
    }

    #[test]
    fn resolve_all_keeps_what_hosts_were_named() {
        let Resolved { addresses, names } =
            resolve_all("127.0.0.1:1, shm:/run/cell, 127.0.0.1", FAR).unwrap();
        assert_eq!(addresses, ["127.0.0.1:1".parse().unwrap(), "shm:/run/cell".parse().unwrap()]);
        assert_eq!(names, [(SocketAddr::from(([127, 0, 0, 1], 1)), "127.0.0.1".to_owned())]);
        assert!(resolve_all("127.0.0.1, shm:x", FAR).is_err());
    }

    /// A system's resolver that was away held `connect` for half a minute a name, however short its time was.
    #[test]
    fn resolve_of_names_that_nobody_looks_up_ends_in_time_and_leaves_the_others() {
        let (held, until) = mpsc::channel::<()>();
        let until = Mutex::new(until);
        let names = Resolver::looked_up_by(BELIEVED_FOR, move |_| {
            let _ = until.lock().unwrap().recv(); // until the test is over
            Ok(Vec::new())
        });
        let soon = Duration::from_millis(30);
        let silent = resolve_by(&names, "a.test:7000,b.test:7000", soon).unwrap_err();
        let is_late = |source: &Error| source.kind() == ErrorKind::TimedOut;
        assert!(
            matches!(&silent, ClientError::Resolve { server, source } if &**server == "a.test:7000" && is_late(source)),
            "{silent}"
        );
        let one = resolve_by(&names, "a.test:7000,127.0.0.1:7000", soon).unwrap();
        assert_eq!(one.addresses, ["127.0.0.1:7000".parse().unwrap()]);
        drop(held);
    }
}
