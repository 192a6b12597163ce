//! The addresses of servers as users name them.

use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};

use cell_fabric::Address;

use crate::error::ClientError;

/// What a list of servers comes to.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// To be tried in this order.
    pub(crate) addresses: Vec<Address>,
    /// What was named as the host of each that is reached over TCP.
    pub(crate) names: Vec<(SocketAddr, String)>,
}

/// All addresses of a list of servers; one that has none is left out as long as another one has.
pub(crate) fn resolve_all(servers: &str) -> Result<Resolved, ClientError> {
    let mut resolved = Resolved { addresses: Vec::new(), names: Vec::new() };
    let mut failed = None;
    for server in servers.split(',').map(str::trim) {
        match resolve(server) {
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
fn resolve(server: &str) -> Result<Vec<Address>, ClientError> {
    let no_address = |source| ClientError::Resolve { server: server.into(), source };
    if server.starts_with("shm:") {
        let nonsense = |_| Error::new(ErrorKind::InvalidInput, "not `shm:/path` or `shm:@name`");
        return server.parse().map(|address| vec![address]).map_err(nonsense).map_err(no_address);
    }
    let addresses: Vec<Address> = server.to_socket_addrs().map_err(no_address)?.map(Address::Tcp).collect();
    let nonsense = || Error::new(ErrorKind::InvalidInput, "not `host:port`");
    if addresses.is_empty() { Err(no_address(nonsense())) } else { Ok(addresses) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolve_finds_addresses_and_refuses_nonsense() {
        assert_eq!(resolve("127.0.0.1:7000").unwrap(), ["127.0.0.1:7000".parse().unwrap()]);
        assert_eq!(resolve("shm:/run/cell").unwrap(), ["shm:/run/cell".parse().unwrap()]);
        for wrong in ["shm:x", "127.0.0.1", "127.0.0.1:7000/x", "127.0.0.1:7000/3", "", ":::"] {
            let error = resolve(wrong).unwrap_err();
            assert!(matches!(error, ClientError::Resolve { .. }), "{wrong}: {error}");
        }
    }

    #[test]
    fn resolve_all_keeps_what_hosts_were_named() {
        let Resolved { addresses, names } = resolve_all("127.0.0.1:1, shm:/run/cell, 127.0.0.1").unwrap();
        assert_eq!(addresses, ["127.0.0.1:1".parse().unwrap(), "shm:/run/cell".parse().unwrap()]);
        assert_eq!(names, [(SocketAddr::from(([127, 0, 0, 1], 1)), "127.0.0.1".to_owned())]);
        assert!(resolve_all("127.0.0.1, shm:x").is_err());
    }
}
