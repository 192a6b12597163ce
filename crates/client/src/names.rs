//! Addresses of servers that are named, looked up anew each time that a connection is to be made: a name may
//! lead elsewhere by then. A look may take seconds, so it is done on a thread of its own, and whoever asks
//! gets what the last look found.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cell_fabric::Address;

/// What was found of each name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Arc<Mutex<BTreeMap<String, Lookup>>>);

#[derive(Debug, Default)]
struct Lookup {
    /// Of the last look that found any.
    addresses: Vec<SocketAddr>,
    is_under_way: bool,
}

impl Names {
    /// What the last look at `name:port` found; empty: nothing is known yet, ask again. A new look is begun.
    pub(crate) fn addresses(&self, name: &str) -> Vec<SocketAddr> {
        let mut known = self.lock();
        let lookup = known.entry(name.to_owned()).or_default();
        let found = lookup.addresses.clone();
        if !lookup.is_under_way {
            lookup.is_under_way = self.look(name);
        }
        found
    }

    /// Begins a look; false if there is no thread for it.
    fn look(&self, name: &str) -> bool {
        let (names, name) = (self.clone(), name.to_owned());
        let look = move || {
            let found: Vec<SocketAddr> = name.to_socket_addrs().into_iter().flatten().collect();
            let mut known = names.lock();
            let lookup = known.entry(name).or_default();
            lookup.is_under_way = false;
            if !found.is_empty() {
                lookup.addresses = found; // while nobody answers, what was known may still be right
            }
        };
        std::thread::Builder::new().name("cell-names".to_owned()).spawn(look).is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Lookup>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this is `name:port`, and so has to be looked up: what is an address already is none.
pub(crate) fn is_name(text: &str) -> bool {
    let is_address = text.parse::<Address>().is_ok();
    !is_address
        && text.rsplit_once(':').is_some_and(|(host, port)| {
            let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
            !host.is_empty() && host.chars().all(is_host) && port.parse::<u16>().is_ok()
        })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn is_name_of_a_host_and_a_port_alone() {
        for name in ["localhost:7000", "node-3.example.org:1"] {
            assert!(is_name(name), "{name}");
        }
        for address in ["127.0.0.1:7000", "[::1]:7000", "sim:5", "verbs:127.0.0.1:7000", "shm:/a/b"] {
            assert!(!is_name(address), "{address}");
        }
        for other in ["localhost", ":7000", "localhost:x", "verbs:a:7000"] {
            assert!(!is_name(other), "{other}");
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "another thread's look is waited for")]
    fn addresses_of_a_name_are_there_once_it_was_looked_up_and_stay() {
        let names = Names::default();
        let wait = |names: &Names| {
            for _ in 0..6_000 {
                let found = names.addresses("localhost:7000");
                if !found.is_empty() {
                    return found;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            panic!("localhost has no address");
        };
        let found = wait(&names);
        assert!(
            found.iter().all(|address| address.ip().is_loopback() && address.port() == 7000),
            "{found:?}"
        );
        assert_eq!(names.addresses("localhost:7000"), found, "at once: the next look goes on meanwhile");
    }
}
