//! Where a name leads: looked up on a thread of its own, so that a resolver which hangs holds up no call past
//! its end, and again when what was found is old, or led nowhere.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::boottime_ns;

/// For how long an address is believed to be a name's.
const NAME_NS: u64 = 5_000_000_000;

/// How a name is looked up.
pub(crate) type Look = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// A host by name or address, and a port.
pub(crate) struct Name {
    text: String,
    look: Arc<Look>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    known: Mutex<Known>,
    looked: Condvar,
}

#[derive(Default)]
struct Known {
    /// Of the last look that found any.
    found: Vec<SocketAddr>,
    /// Until when that is believed.
    until_ns: u64,
    is_under_way: bool,
    /// Somebody has waited for the look that is under way, and it took longer.
    was_awaited: bool,
    /// Why the last look found none.
    why: Option<String>,
}

impl Name {
    /// `HOST:PORT`, an IPv6 address in brackets.
    pub(crate) fn new(text: String) -> Name {
        Name::looked_up_by(text, Arc::new(look_up))
    }

    pub(crate) fn looked_up_by(text: String, look: Arc<Look>) -> Name {
        Name { text, look, shared: Arc::default() }
    }

    /// Its addresses, at least one. What was found before is gone by if nobody says in time where it leads
    /// now. One call waits for that in vain, and those after it not at all.
    pub(crate) fn addresses(&self, until_ns: u64) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = self.text.parse() {
            return Ok(vec![address]);
        }
        let now_ns = boottime_ns();
        let mut known = self.shared.lock();
        if now_ns < known.until_ns {
            return Ok(known.found.clone());
        }
        if !known.is_under_way {
            match self.begin() {
                Ok(()) => (known.is_under_way, known.was_awaited) = (true, false),
                Err(error) if known.found.is_empty() => return Err(error),
                Err(_) => {} // no thread just now: what was found before may still be right
            }
        }
        // The rest of the time is for what is known already.
        let parts = if known.found.is_empty() { 1 } else { 2 };
        let wait_until_ns = now_ns + until_ns.saturating_sub(now_ns) / parts;
        while known.is_under_way && (known.found.is_empty() || !known.was_awaited) {
            let left_ns = wait_until_ns.saturating_sub(boottime_ns());
            if left_ns == 0 {
                known.was_awaited = true;
                break;
            }
            let waited = self.shared.looked.wait_timeout(known, Duration::from_nanos(left_ns));
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        match (known.found.is_empty(), &known.why) {
            (false, _) => Ok(known.found.clone()),
            (true, Some(why)) => Err(io::Error::new(io::ErrorKind::NotFound, why.clone())),
            (true, None) => {
                let why = "nobody says in time where that name leads";
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
        }
    }

    /// It led nowhere: it is looked up when it is next asked for.
    pub(crate) fn doubt(&self) {
        self.shared.lock().until_ns = 0;
    }

    /// Under the lock of what is known.
    fn begin(&self) -> io::Result<()> {
        let (shared, look, text) = (self.shared.clone(), self.look.clone(), self.text.clone());
        let look = move || {
            let found = look(&text);
            let mut known = shared.lock();
            known.is_under_way = false;
            match found {
                Ok(found) if !found.is_empty() => {
                    known.found = found;
                    known.until_ns = boottime_ns().saturating_add(NAME_NS);
                    known.why = None;
                }
                Ok(_) => known.why = Some("that name has no address".to_owned()),
                Err(error) => known.why = Some(error.to_string()),
            }
            drop(known);
            shared.looked.notify_all();
        };
        std::thread::Builder::new().name("coordinator-name".to_owned()).spawn(look).map(drop)
    }
}

pub(crate) fn look_up(text: &str) -> io::Result<Vec<SocketAddr>> {
    Ok(text.to_socket_addrs()?.collect())
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn far_ns() -> u64 {
        boottime_ns() + 120_000_000_000
    }

    #[test]
    fn addresses_of_an_address_are_itself_and_of_a_name_what_is_found() {
        assert_eq!(Name::new("[::1]:7".to_owned()).addresses(0).unwrap(), ["[::1]:7".parse().unwrap()]);
        let found = Name::new("localhost:7".to_owned()).addresses(far_ns()).unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 7), "{found:?}");
        let none = |_: &str| -> io::Result<Vec<SocketAddr>> { Ok(Vec::new()) };
        let nowhere = Name::looked_up_by("a:7".to_owned(), Arc::new(none));
        assert!(nowhere.addresses(far_ns()).unwrap_err().to_string().contains("no address"));
    }

    #[test]
    fn addresses_are_looked_up_again_once_they_are_doubted_and_kept_while_nobody_answers() {
        let (answers, asked) = mpsc::sync_channel::<io::Result<Vec<SocketAddr>>>(1);
        let asked = Mutex::new(asked);
        let look = move |_: &str| -> io::Result<Vec<SocketAddr>> { asked.lock().unwrap().recv().unwrap() };
        let name = Name::looked_up_by("coordinator.test:7".to_owned(), Arc::new(look));
        answers.send(Ok(vec![address(1)])).unwrap();
        assert_eq!(name.addresses(far_ns()).unwrap(), [address(1)]);
        assert_eq!(name.addresses(far_ns()).unwrap(), [address(1)], "nobody is asked again yet");
        name.doubt();
        let soon_ns = || boottime_ns() + 5_000_000;
        assert_eq!(name.addresses(soon_ns()).unwrap(), [address(1)], "the resolver hangs");
        let end_ns = far_ns();
        assert_eq!(name.addresses(end_ns).unwrap(), [address(1)]);
        assert!(boottime_ns() < end_ns - 90_000_000_000, "nobody waits for it twice");
        answers.send(Err(io::ErrorKind::NotFound.into())).unwrap();
        assert_eq!(name.addresses(soon_ns()).unwrap(), [address(1)], "it may be right still");
        answers.send(Ok(vec![address(2)])).unwrap();
        while name.addresses(soon_ns()).unwrap() != [address(2)] {
            assert!(boottime_ns() < end_ns);
            std::thread::yield_now();
        }
    }
}
