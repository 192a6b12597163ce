//! Where the names of hosts lead, for whoever must not wait for the system's resolver: it may take half a
//! minute, or hang. A name is looked up on a thread of its own, which goes on when nobody waits any more, and
//! what it has found is kept: while nobody answers, that may still be right.
//!
//! A name is `HOST:PORT`, an IPv6 address in brackets. The caller says how long it waits, if at all.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Lookups at a time: each is a thread, which the system may hold for half a minute. Others wait for their
/// turn.
const LOOKUPS_MAX: usize = 16;
/// Nobody waits for longer, whatever they ask for.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// How a name is looked up. It may block.
type Lookup = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Names, and what was found of each. Clones are one.
#[derive(Clone)]
pub struct Resolver(Arc<Shared>);

struct Shared {
    lookup: Box<Lookup>,
    believed_for: Duration,
    known: Mutex<Known>,
    /// A lookup has ended.
    ended: Condvar,
}

#[derive(Default)]
struct Known {
    names: BTreeMap<String, KnownName>,
    /// Names that wait for a thread.
    waiting: VecDeque<String>,
    threads: usize,
}

#[derive(Default)]
struct KnownName {
    /// Of the last lookup that found any.
    addresses: Vec<SocketAddr>,
    /// Until when they are believed without another lookup.
    until: Option<Instant>,
    /// Why the last lookup found none.
    why: Option<String>,
    /// A lookup is under way, or waits for a thread.
    is_looked_up: bool,
    /// Somebody has waited for that one, and it took longer.
    was_awaited: bool,
    /// Who is notified of its end.
    wakers: Vec<Waker>,
}

impl Resolver {
    /// Names that the system looks up. What was found is believed for so long before a name is looked up
    /// again; zero: it is looked up each time that it is asked for.
    #[must_use]
    pub fn new(believed_for: Duration) -> Resolver {
        Resolver::looked_up_by(believed_for, |name| Ok(name.to_socket_addrs()?.collect()))
    }

    /// Names that are looked up so.
    pub fn looked_up_by(
        believed_for: Duration,
        lookup: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Resolver {
        let (known, ended) = (Mutex::default(), Condvar::new());
        Resolver(Arc::new(Shared { lookup: Box::new(lookup), believed_for, known, ended }))
    }

    /// Begins to look a name up, unless that is under way, or what was found is believed.
    pub fn begin(&self, name: &str) {
        let mut known = self.0.lock();
        let found = known.names.entry(name.to_owned()).or_default();
        if found.is_looked_up || found.until.is_some_and(|until| now() < until) {
            return;
        }
        (found.is_looked_up, found.was_awaited) = (true, false);
        known.waiting.push_back(name.to_owned());
        if known.threads == LOOKUPS_MAX {
            return;
        }
        let shared = Arc::clone(&self.0);
        match std::thread::Builder::new().name("cell-resolver".to_owned()).spawn(move || shared.look_up_all())
        {
            Ok(_) => known.threads += 1,
            Err(error) => {
                tracing::warn!(%error, "no thread to look up a name");
                // Another thread does it. If there is none, it is started anew when it is next asked for.
                if known.threads == 0 {
                    let why = format!("no thread to look it up: {error}");
                    for name in std::mem::take(&mut known.waiting) {
                        known.names.entry(name).or_default().end(Err(why.clone()), None);
                    }
                    self.0.ended.notify_all();
                }
            }
        }
    }

    /// What is known of a name now. A lookup is started.
    ///
    /// # Errors
    /// See [`Resolver::find_within`].
    pub fn find_now(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = name.parse() {
            return Ok(vec![address]);
        }
        self.begin(name);
        self.known(name)
    }

    /// What the lookups so far have found of a name.
    ///
    /// # Errors
    /// See [`Resolver::find_within`].
    pub fn known(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        self.0.lock().found(name)
    }

    /// Where a name leads, at least one address. If nobody says that in time, what was found before counts:
    /// half of the time is kept for who uses it. One call waits so in vain, and those after it not at all.
    ///
    /// # Errors
    /// The lookup's last one, as text; [`io::ErrorKind::TimedOut`] if there was none, and nobody says in time
    /// where the name leads.
    pub fn find_within(&self, name: &str, within: Duration) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = name.parse() {
            return Ok(vec![address]);
        }
        let asked_at = now();
        self.begin(name);
        let mut known = self.0.lock();
        let parts = if known.has_addresses(name) { 2 } else { 1 };
        let until = asked_at + within.min(WAIT_MAX) / parts;
        while let Some(found) = known.names.get_mut(name) {
            if !found.is_looked_up || (!found.addresses.is_empty() && found.was_awaited) {
                break;
            }
            let left = until.saturating_duration_since(now());
            if left.is_zero() {
                found.was_awaited = true;
                break;
            }
            let waited = self.0.ended.wait_timeout(known, left);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        known.found(name)
    }

    /// Ready once no lookup of the name is under way: for who cannot block, and bounds the time by itself.
    pub fn poll_looked_up(&self, name: &str, context: &mut Context<'_>) -> Poll<()> {
        let mut known = self.0.lock();
        match known.names.get_mut(name) {
            Some(found) if found.is_looked_up => {
                if !found.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                    found.wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Looks up those of these names that are not known yet, and forgets all others.
    pub fn learn(&self, names: &BTreeSet<String>) {
        let unknown: Vec<&String> = {
            let mut known = self.0.lock();
            known.names.retain(|name, found| found.is_looked_up || names.contains(name));
            names.iter().filter(|name| !known.has_addresses(name)).collect()
        };
        unknown.into_iter().for_each(|name| self.begin(name));
    }

    /// Names led nowhere: each is looked up when it is next asked for, whatever is believed.
    pub fn doubt(&self) {
        self.0.lock().names.values_mut().for_each(|found| found.until = None);
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

/// Where a name leads, looked up now, for this process and all who ask so; see [`Resolver::find_within`].
///
/// # Errors
/// As there.
pub fn look_up_within(name: &str, within: Duration) -> io::Result<Vec<SocketAddr>> {
    static NAMES: LazyLock<Resolver> = LazyLock::new(|| Resolver::new(Duration::ZERO));
    NAMES.find_within(name, within)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The work of a thread: looks names up until none waits.
    fn look_up_all(&self) {
        while let Some(name) = self.next() {
            let looked_up = (self.lookup)(&name).map_err(|error| error.to_string());
            let mut known = self.lock();
            known.names.entry(name).or_default().end(looked_up, now().checked_add(self.believed_for));
            drop(known);
            self.ended.notify_all();
        }
    }

    /// The next name for a thread; none: the thread ends.
    fn next(&self) -> Option<String> {
        let mut known = self.lock();
        let next = known.waiting.pop_front();
        known.threads -= usize::from(next.is_none());
        next
    }
}

impl Known {
    fn has_addresses(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|found| !found.addresses.is_empty())
    }

    fn found(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        match self.names.get(name) {
            Some(found) if !found.addresses.is_empty() => Ok(found.addresses.clone()),
            Some(KnownName { why: Some(why), .. }) => {
                Err(io::Error::new(io::ErrorKind::NotFound, why.clone()))
            }
            _ => {
                let why = "nobody says in time where that name leads";
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
        }
    }
}

impl KnownName {
    /// A lookup has ended; what it found is believed until then.
    fn end(&mut self, looked_up: Result<Vec<SocketAddr>, String>, until: Option<Instant>) {
        self.is_looked_up = false;
        match looked_up {
            Ok(addresses) if !addresses.is_empty() => {
                (self.addresses, self.until, self.why) = (addresses, until, None);
            }
            Ok(_) => self.why = Some("that name has no address".to_owned()),
            Err(why) => self.why = Some(why),
        }
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

#[allow(clippy::disallowed_methods, reason = "a shell: it waits for the system's resolver, and no longer")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    type Answer = io::Result<Vec<SocketAddr>>;

    const FAR: Duration = Duration::from_secs(120);
    const SOON: Duration = Duration::from_millis(5);
    const NAME: &str = "host.test:7";

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 7))
    }

    /// A system's resolver that takes until it is given what to answer.
    fn hanging(believed_for: Duration) -> (mpsc::Sender<Answer>, Resolver) {
        let (answers, asked) = mpsc::channel::<Answer>();
        let asked = Mutex::new(asked);
        let lookup = move |_: &str| -> Answer {
            asked.lock().unwrap().recv().unwrap_or_else(|_| Err(io::ErrorKind::NotFound.into()))
        };
        (answers, Resolver::looked_up_by(believed_for, lookup))
    }

    /// Asks until this is found: a busy machine may keep the thread from its answer.
    fn find_in_the_end(names: &Resolver, wanted: SocketAddr) {
        let given_up = now() + FAR;
        while !names.find_within(NAME, SOON).is_ok_and(|found| found == [wanted]) {
            assert!(now() < given_up, "{wanted} is not found");
            std::thread::yield_now();
        }
    }

    #[test]
    fn find_of_an_address_is_itself_and_of_a_name_what_is_found() {
        let names = Resolver::new(FAR);
        assert_eq!(names.find_within("[::1]:7", Duration::ZERO).unwrap(), ["[::1]:7".parse().unwrap()]);
        assert_eq!(names.find_now("127.0.0.1:7").unwrap(), [address(1)]);
        let found = names.find_within("localhost:7", FAR).unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 7), "{found:?}");
    }

    #[test]
    fn find_of_a_name_that_leads_nowhere_says_why() {
        let names = Resolver::looked_up_by(Duration::ZERO, |name| match name {
            "empty.test:7" => Ok(Vec::new()),
            _ => Err(io::Error::other("there is no such name")),
        });
        for (name, why) in
            [("empty.test:7", "that name has no address"), ("no.test:7", "there is no such name")]
        {
            assert_eq!(names.find_within(name, FAR).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn find_waits_for_no_lookup_that_hangs_and_keeps_what_it_finds_later() {
        let (answers, names) = hanging(Duration::ZERO);
        assert_eq!(names.find_now(NAME).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(names.find_within(NAME, SOON).unwrap_err().kind(), io::ErrorKind::TimedOut);
        answers.send(Ok(vec![address(1)])).unwrap();
        find_in_the_end(&names, address(1));
        assert_eq!(names.find_now(NAME).unwrap(), [address(1)], "the next lookup hangs");
        answers.send(Err(io::ErrorKind::NotFound.into())).unwrap();
        assert_eq!(names.find_within(NAME, SOON).unwrap(), [address(1)], "it may be right still");
        answers.send(Ok(vec![address(2)])).unwrap();
        find_in_the_end(&names, address(2));
    }

    #[test]
    fn find_looks_up_again_once_what_was_found_is_doubted_and_waits_for_that_once() {
        let (answers, names) = hanging(FAR);
        answers.send(Ok(vec![address(1)])).unwrap();
        assert_eq!(names.find_within(NAME, FAR).unwrap(), [address(1)]);
        assert_eq!(names.find_within(NAME, FAR).unwrap(), [address(1)], "nothing is looked up again yet");
        names.doubt();
        assert_eq!(names.find_within(NAME, SOON).unwrap(), [address(1)], "the lookup hangs");
        let given_up = now() + FAR / 2;
        assert_eq!(names.find_within(NAME, FAR).unwrap(), [address(1)]);
        assert!(now() < given_up, "nobody waits for it twice");
        answers.send(Ok(vec![address(2)])).unwrap();
        find_in_the_end(&names, address(2));
    }

    #[test]
    fn poll_is_ready_and_wakes_once_the_lookup_has_ended() {
        struct Unparks(std::thread::Thread);
        impl std::task::Wake for Unparks {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let (answers, names) = hanging(Duration::ZERO);
        let waker = Waker::from(Arc::new(Unparks(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        names.begin(NAME);
        assert!(names.poll_looked_up(NAME, &mut context).is_pending());
        answers.send(Ok(vec![address(1)])).unwrap();
        let given_up = now() + FAR;
        while names.poll_looked_up(NAME, &mut context).is_pending() {
            std::thread::park_timeout(FAR);
            assert!(now() < given_up, "nobody is woken");
        }
        assert_eq!(names.known(NAME).unwrap(), [address(1)]);
    }

    /// A thousand peers with names, and a resolver that is away.
    #[test]
    fn lookups_at_a_time_are_bounded_and_all_are_done() {
        let (answers, names) = hanging(Duration::ZERO);
        let hosts: BTreeSet<String> =
            (0..3 * LOOKUPS_MAX).map(|host| format!("host-{host}.test:7")).collect();
        names.learn(&hosts);
        assert_eq!(names.0.lock().threads, LOOKUPS_MAX);
        hosts.iter().for_each(|_| answers.send(Ok(vec![address(1)])).unwrap());
        let given_up = now() + FAR;
        while names.0.lock().threads > 0 {
            assert!(now() < given_up, "some are not looked up");
            std::thread::yield_now();
        }
        assert!(hosts.iter().all(|name| names.known(name).is_ok()));
        names.learn(&hosts);
        assert_eq!(names.0.lock().threads, 0, "what is known is not looked up again");
        names.learn(&BTreeSet::from(["host-7.test:7".to_owned()]));
        assert_eq!(names.0.lock().names.len(), 1, "who is no member any more is forgotten");
    }
}
