//! Which fabric a client talks over, and how it finds shared memory behind a TCP address.

#![allow(clippy::disallowed_methods, reason = "part of the blocking client, whose shell owns the clock")]

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use cell_fabric::{Address, Endpoint, Event, Greeting, Host, HostEndpoint, Poller, SocketName};

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
}

impl Transport {
    /// Its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Auto => "auto",
            Transport::Tcp => "tcp",
            Transport::Shm => "shm",
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
        [Transport::Auto, Transport::Tcp, Transport::Shm]
            .into_iter()
            .find(|transport| transport.name() == text)
            .ok_or(())
    }
}

/// The addresses to try in turn for what the user named. A TCP address is asked once what its host says of
/// itself; where that is this host, its socket comes first.
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
    let is_shm = |address: &Address| matches!(address.host, Host::Shm(_));
    if transport == Transport::Tcp || named.iter().all(is_shm) {
        return Ok(named);
    }
    let until = Instant::now() + patience;
    let met = named.iter().find_map(|address| Some((*address, ask(endpoint, poller, *address, until)?)));
    let Some((address, greeting)) = met else {
        // Nobody is there: the attempt to connect says so with its reason.
        return Ok(named);
    };
    let shm = shared_memory(transport, &greeting, address);
    match (transport, shm) {
        (Transport::Shm, Some(shm)) => Ok(vec![shm]),
        (Transport::Shm, None) => Err(ClientError::NoSharedMemory { server: Box::new(address) }),
        (_, Some(shm)) => Ok(std::iter::once(shm).chain(named).collect()),
        (_, None) => Ok(named),
    }
}

/// A TCP address's place over shared memory, if its host is this one and offers it, and it is wanted.
pub(crate) fn shared_memory(transport: Transport, greeting: &Greeting, address: Address) -> Option<Address> {
    if transport == Transport::Tcp || !matches!(address.host, Host::Tcp(_)) {
        return None;
    }
    let name = SocketName::new(&greeting.shared_memory_socket)?;
    let here = Greeting::of_this_host().boot_id;
    let is_here = greeting.boot_id == here && here != [0; 16];
    is_here.then(|| Address::shm(name).with_worker(address.worker))
}

/// What the host behind an address says of itself; none if nobody answers in time.
fn ask(
    endpoint: &mut HostEndpoint,
    poller: &mut Poller,
    address: Address,
    until: Instant,
) -> Option<Greeting> {
    let connection = endpoint.connect(&address).ok()?;
    let mut said = None;
    let mut ended = false;
    while said.is_none() && !ended {
        let events = endpoint.poll(&mut |event| match event {
            Event::Connected { greeting, .. } => said = Some(greeting.clone()),
            Event::Closed { .. } => ended = true,
            _ => {}
        });
        endpoint.flush();
        let left = until.saturating_duration_since(Instant::now());
        ended |= left.is_zero();
        if events == 0 && !ended && endpoint.prepare_sleep() {
            poller.wait(Some(left));
        }
    }
    endpoint.close(connection);
    said
}
