//! Which fabric a client talks over, and how it finds shared memory behind a TCP address.

#![allow(clippy::disallowed_methods, reason = "part of the blocking client, whose shell owns the clock")]

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use cell_fabric::{
    Address, ConnectionId, Endpoint, Event, FabricError, FabricLimits, Greeting, HostEndpoint, Poller,
    SocketName, VerbsOptions,
};

use cell_protocol::ReportTransport;

use crate::error::ClientError;

/// Which fabric a client talks over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory where the server offers it on this host, else TCP.
    #[default]
    Auto,
    /// TCP alone.
    Tcp,
    /// Shared memory alone.
    Shm,
    /// RDMA alone, in builds with the feature `verbs`.
    Verbs,
}

impl Transport {
    /// The address by which a server at that address is reached: its own, or over RDMA.
    pub(crate) fn to_reach(self, address: Address) -> Address {
        match (self, address) {
            (Transport::Verbs, Address::Tcp(socket)) => Address::Verbs(socket),
            _ => address,
        }
    }

    /// An endpoint for it, that shares memory with servers of these users.
    pub(crate) fn endpoint(
        self,
        shm_users: &[u32],
        verbs: &VerbsOptions,
    ) -> Result<HostEndpoint, FabricError> {
        let limits = FabricLimits::default();
        match self {
            Transport::Verbs => HostEndpoint::client_over_verbs(limits, shm_users, verbs),
            _ => HostEndpoint::client_of(limits, shm_users),
        }
    }

    /// Its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Auto => "auto",
            Transport::Tcp => "tcp",
            Transport::Shm => "shm",
            Transport::Verbs => "verbs",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Transport {
    type Err = ();

    fn from_str(text: &str) -> Result<Transport, ()> {
        [Transport::Auto, Transport::Tcp, Transport::Shm, Transport::Verbs]
            .into_iter()
            .find(|transport| transport.name() == text)
            .ok_or(())
    }
}

/// What an address is reached by, for reports.
pub(crate) fn for_report(address: &Address) -> ReportTransport {
    match address {
        Address::Shm(_) => ReportTransport::Shm,
        Address::Verbs(_) => ReportTransport::Verbs,
        Address::Sim(_) => ReportTransport::Sim,
        _ => ReportTransport::Tcp,
    }
}

/// So long a server has to say what it is before the next one of the list is asked, too.
const HEAD_START: Duration = Duration::from_millis(250);

/// The addresses to try in turn for what the user named. The first server that answers comes first, so that
/// one which is dead, or takes connections and says nothing, costs no time-out; where it is on this host, its
/// socket comes before all.
///
/// # Errors
/// [`ClientError::NoSharedMemory`] where nothing else will do.
pub(crate) fn choose(
    endpoint: &mut HostEndpoint,
    poller: &mut Poller,
    named: Vec<Address>,
    transport: Transport,
    patience: Duration,
) -> Result<Vec<Address>, ClientError> {
    if transport == Transport::Verbs {
        return Ok(named.into_iter().map(|address| transport.to_reach(address)).collect());
    }
    let is_shm = |address: &Address| matches!(address, Address::Shm(_));
    if named.iter().all(is_shm) || (transport == Transport::Tcp && named.len() == 1) {
        return Ok(named);
    }
    let Some((address, greeting)) = ask(endpoint, poller, &named, patience) else {
        // Nobody is there: the attempt to connect says so with its reason.
        return Ok(named);
    };
    let others = named.iter().copied().filter(|other| *other != address);
    let named: Vec<Address> = std::iter::once(address).chain(others).collect();
    let shm = if is_shm(&address) { Some(address) } else { shared_memory(transport, &greeting, address) };
    match (transport, shm) {
        (Transport::Shm, Some(shm)) => Ok(vec![shm]),
        (Transport::Shm, None) => Err(ClientError::NoSharedMemory { server: Box::new(address) }),
        (_, Some(shm)) if shm != address => Ok(std::iter::once(shm).chain(named).collect()),
        _ => Ok(named),
    }
}

/// A TCP address's place over shared memory, if its host is this one and offers it, and it is wanted.
pub(crate) fn shared_memory(transport: Transport, greeting: &Greeting, address: Address) -> Option<Address> {
    if transport == Transport::Tcp || !matches!(address, Address::Tcp(_)) {
        return None;
    }
    let name = SocketName::new(&greeting.shared_memory_socket)?;
    let here = Greeting::of_this_host().boot_id;
    let is_here = greeting.boot_id == here && here != [0; 16];
    is_here.then_some(Address::Shm(name))
}

/// The first of these servers that answers, and what its host says of itself; none if nobody does in time.
/// They are asked in their order: the next one when those before it have failed, or have kept silent for a
/// while.
fn ask(
    endpoint: &mut HostEndpoint,
    poller: &mut Poller,
    servers: &[Address],
    patience: Duration,
) -> Option<(Address, Greeting)> {
    let until = Instant::now() + patience;
    let mut unasked = servers.iter();
    let mut asked: Vec<(ConnectionId, Address)> = Vec::new();
    let mut next_at = Instant::now();
    let mut met = None;
    while met.is_none() {
        let now = Instant::now();
        if (asked.is_empty() || now >= next_at)
            && let Some(server) = unasked.next()
        {
            asked.extend(endpoint.connect(server).ok().map(|connection| (connection, *server)));
            next_at = now + HEAD_START;
        }
        if now >= until || (asked.is_empty() && unasked.as_slice().is_empty()) {
            break;
        }
        let events = endpoint.poll(&mut |event| match event {
            Event::Connected { connection, greeting } => {
                let from = asked.iter().find(|(of, _)| *of == connection);
                met = met.take().or_else(|| from.map(|(_, server)| (*server, greeting.clone())));
            }
            Event::Closed { connection, .. } => asked.retain(|(of, _)| *of != connection),
            _ => {}
        });
        endpoint.flush();
        if events == 0 && !asked.is_empty() && endpoint.prepare_sleep() {
            let wake = if unasked.as_slice().is_empty() { until } else { next_at.min(until) };
            poller.wait(Some(wake.saturating_duration_since(Instant::now())));
        }
    }
    asked.into_iter().for_each(|(connection, _)| endpoint.close(connection));
    met
}
