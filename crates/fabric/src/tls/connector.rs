//! How an endpoint connects: in the clear, or under TLS to ends that it knows by their names.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustls::pki_types::ServerName;

use super::socket::Socket;
use super::trust::TlsTrust;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct TlsConnector {
    /// None: in the clear.
    trust: Option<TlsTrust>,
    /// Addresses that were found by a name, which their certificates are for.
    names: HashMap<SocketAddr, ServerName<'static>>,
}

impl TlsConnector {
    /// Connects under TLS from now on.
    pub(crate) fn trust(&mut self, trust: TlsTrust) {
        self.trust = Some(trust);
    }

    /// The end at that address is known by this name of a host, or by its address if that is what is said;
    /// what is neither changes nothing.
    pub(crate) fn name(&mut self, address: SocketAddr, host: &str) {
        match ServerName::try_from(host.to_owned()) {
            Ok(name @ ServerName::DnsName(_)) => {
                self.names.insert(address, name);
            }
            Ok(ServerName::IpAddress(_)) => {
                self.names.remove(&address);
            }
            _ => {}
        }
    }

    /// A socket that connects to that address.
    ///
    /// # Errors
    /// No random bytes.
    pub(crate) fn socket(&self, descriptor: OwnedFd, target: SocketAddr) -> io::Result<Socket> {
        let Some(trust) = &self.trust else { return Ok(Socket::plain(descriptor)) };
        match trust.read_if_changed() {
            Ok(false) => {}
            Ok(true) => tracing::info!(path = %trust.path().display(), "whom to trust was read again"),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "whom to trust stays what it was");
            }
        }
        let by_address = || ServerName::IpAddress(target.ip().into());
        let name = self.names.get(&target).cloned().unwrap_or_else(by_address);
        Socket::connector(descriptor, trust.client(), name)
    }
}
