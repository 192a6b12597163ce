//! The way to a coordinator over a network: TLS, then a hello with a token. Nothing is asked before both ends
//! know each other, so that whatever fails until then was not carried out.

use std::fmt;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use cell_resolver::Resolver;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::providers::NAME_BELIEVED_FOR;
use crate::providers::json_lines::{Hello, WIRE_VERSION, Welcome, answered_in, read_only_line, write_line};
use crate::providers::timed_socket::{Limit, TimedSocket, left};
use crate::request::CoordinatorRefusal;

/// How an address over TLS begins.
const SCHEME: &str = "tls://";

/// By what the coordinator is trusted, and the token that it is shown: looked at for each connection, so that
/// new ones count without a restart.
pub type TlsCredentials = Arc<dyn Fn() -> io::Result<(Arc<ClientConfig>, String)> + Send + Sync>;

/// Where a coordinator listens over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsAddress {
    /// `HOST:PORT`.
    place: String,
    /// What its certificate is for.
    name: ServerName<'static>,
}

impl TlsAddress {
    /// Reads `tls://HOST:PORT`; an IPv6 address stands in brackets. None: it does not begin so.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Option<Result<TlsAddress, String>> {
        text.strip_prefix(SCHEME).map(TlsAddress::of_place)
    }

    fn of_place(place: &str) -> Result<TlsAddress, String> {
        let (host, port) = place.rsplit_once(':').ok_or_else(|| format!("`{place}` has no port"))?;
        if !port.parse::<u16>().is_ok_and(|port| port != 0) {
            return Err(format!("`{port}` is no port"));
        }
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bare.is_none() && host.contains(':') {
            return Err("an IPv6 address stands in brackets".to_owned());
        }
        let name = ServerName::try_from(bare.unwrap_or(host).to_owned());
        let name = name.map_err(|_| format!("`{host}` is no name and no address of a host"))?;
        Ok(TlsAddress { place: place.to_owned(), name })
    }
}

impl fmt::Display for TlsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.place)
    }
}

/// A connection whose ends know each other.
pub(crate) type TlsPipe = StreamOwned<ClientConnection, TimedSocket<TcpStream>>;

/// See the module's text.
pub(crate) struct TlsWay {
    address: TlsAddress,
    names: Resolver,
    credentials: TlsCredentials,
}

/// Why there is no connection.
pub(crate) enum NoWay {
    /// The coordinator was not reached, or one end does not trust the other.
    Failed(io::Error),
    /// The coordinator says no.
    Refused(CoordinatorRefusal),
}

/// Where nobody was reached over TLS, and why.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {why}")]
pub(crate) struct NotConnected {
    address: String,
    why: io::Error,
}

impl NotConnected {
    /// Whether the certificate that was shown is not taken.
    pub(crate) fn is_about_certificate(&self) -> bool {
        let why = self.why.get_ref().and_then(|why| why.downcast_ref::<rustls::Error>());
        matches!(why, Some(rustls::Error::InvalidCertificate(_)))
    }
}

impl From<io::Error> for NoWay {
    fn from(error: io::Error) -> NoWay {
        NoWay::Failed(error)
    }
}

impl TlsWay {
    pub(crate) fn new(address: TlsAddress, credentials: TlsCredentials) -> TlsWay {
        TlsWay { address, names: Resolver::new(NAME_BELIEVED_FOR), credentials }
    }

    /// Looks its name up by this.
    #[cfg(test)]
    pub(crate) fn name_by(&mut self, names: Resolver) {
        self.names = names;
    }

    /// The coordinator does not answer: its name may lead elsewhere by now.
    pub(crate) fn doubt(&self) {
        self.names.doubt();
    }

    /// A new connection, by then.
    pub(crate) fn connect(&self, until_ns: u64) -> Result<TlsPipe, NoWay> {
        self.try_connect(until_ns).map_err(|failed| match failed {
            NoWay::Failed(why) => {
                let address = self.address.to_string();
                NoWay::Failed(io::Error::new(why.kind(), NotConnected { address, why }))
            }
            refused => refused,
        })
    }

    fn try_connect(&self, until_ns: u64) -> Result<TlsPipe, NoWay> {
        let (config, token) = (self.credentials)()?;
        let found = self.names.find_within(&self.address.place, left(until_ns)?)?;
        let stream = connect_to_any(&found, until_ns)?;
        stream.set_nodelay(true)?;
        let connection =
            ClientConnection::new(config, self.address.name.clone()).map_err(io::Error::other)?;
        let socket = TimedSocket::new(Arc::new(stream), Limit::Until(until_ns));
        let mut pipe = StreamOwned::new(connection, socket);
        let mut line = Vec::new();
        write_line(&mut pipe, &mut line, &Hello { version: WIRE_VERSION, token })?;
        pipe.flush()?;
        read_only_line(&mut pipe, &mut line)?;
        match serde_json::from_slice::<Welcome>(&line).map_err(io::Error::from)? {
            Welcome::Welcome => Ok(pipe),
            Welcome::Refused(refusal) => Err(no_way(refusal)),
        }
    }
}

/// What it comes to that a hello is refused.
fn no_way(refusal: CoordinatorRefusal) -> NoWay {
    match refusal {
        CoordinatorRefusal::Busy => {
            NoWay::Failed(io::Error::new(io::ErrorKind::ConnectionRefused, "it takes no more connections"))
        }
        // It knew no hello but its own before there were two of them.
        CoordinatorRefusal::Unreadable => NoWay::Refused(answered_in(0)),
        refusal => NoWay::Refused(refusal),
    }
}

/// Each address gets an equal part of what is left when its turn comes.
fn connect_to_any(addresses: &[SocketAddr], until_ns: u64) -> io::Result<TcpStream> {
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for (turn, address) in addresses.iter().enumerate() {
        let turns = u32::try_from(addresses.len() - turn).unwrap_or(u32::MAX);
        let part = (left(until_ns)? / turns).max(Duration::from_micros(1));
        match TcpStream::connect_timeout(address, part) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_takes_a_host_and_a_port_and_says_what_is_wrong() {
        let of = |text: &str| TlsAddress::parse(text).unwrap().map(|address| address.to_string());
        for right in ["tls://cell-1.example:7200", "tls://192.0.2.1:7200", "tls://[2001:db8::1]:7200"] {
            assert_eq!(of(right).unwrap(), right);
        }
        for (wrong, words) in [
            ("tls://cell-1.example", "has no port"),
            ("tls://cell-1.example:0", "`0` is no port"),
            ("tls://cell-1.example:7200/", "is no port"),
            ("tls://::1:7200", "in brackets"),
            ("tls://a b:7200", "is no name and no address"),
            ("tls://:7200", "is no name and no address"),
        ] {
            let why = of(wrong).unwrap_err();
            assert!(why.contains(words), "{wrong}: {why}");
        }
        for other in ["/run/coordinator.socket", "etcd", "http://a:7200", "embedded"] {
            assert_eq!(TlsAddress::parse(other), None, "{other}");
        }
    }

    /// "The request could not be read", of a node that was upgraded before its coordinator.
    #[test]
    fn coordinator_that_does_not_read_a_hello_is_of_another_version() {
        let refused = |refusal| match no_way(refusal) {
            NoWay::Refused(refusal) => Some(refusal),
            NoWay::Failed(_) => None,
        };
        let of = |known| CoordinatorRefusal::Version { asked: WIRE_VERSION, known };
        assert_eq!(refused(CoordinatorRefusal::Unreadable), Some(of(0)));
        for said in [CoordinatorRefusal::Token, of(2)] {
            assert_eq!(refused(said), Some(said));
        }
        assert_eq!(refused(CoordinatorRefusal::Busy), None, "it is tried again");
    }

    #[test]
    fn connect_to_any_goes_on_after_an_address_that_leads_nowhere() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = SocketAddr::from(([127, 0, 0, 1], 1));
        let far_ns = crate::clock::boottime_ns() + 120_000_000_000;
        let there = listener.local_addr().unwrap();
        assert_eq!(connect_to_any(&[closed, there], far_ns).unwrap().peer_addr().unwrap(), there);
        assert!(connect_to_any(&[closed], far_ns).is_err());
    }
}
