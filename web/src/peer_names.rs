//! Where the names of the other nodes lead. A question to a peer has a fifth of a second, and a resolver may
//! take many: a name is looked up on a thread that goes on when nobody waits any more, and what it has found
//! is kept for the next question.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::watch;
use tower_service::Service;

/// For how long who asks waits for a look: half of what a question to a peer may take.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Looks at a time: each is a thread, which a resolver may hold for half a minute.
const LOOKS_MAX: usize = 16;

/// How a name is looked up. It may block.
type Look = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;
/// The addresses of a name.
type Found = vec::IntoIter<SocketAddr>;

/// The names, and what was found of each.
#[derive(Clone)]
pub(crate) struct PeerNames(Arc<Shared>);

struct Shared {
    look: Box<Look>,
    known: Mutex<Known>,
    /// Changes with the end of each look.
    ended: watch::Sender<()>,
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
    /// Of the last look that found any: while nobody answers, it may still be right.
    addresses: Vec<SocketAddr>,
    /// Why the last look found none.
    why: Option<String>,
    /// A look is under way, or waits for a thread.
    is_looked_up: bool,
}

impl Default for PeerNames {
    fn default() -> PeerNames {
        PeerNames::looked_up_by(|name| Ok((name, 0).to_socket_addrs()?.collect()))
    }
}

impl PeerNames {
    /// Names that are looked up so.
    pub(crate) fn looked_up_by(
        look: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> PeerNames {
        let ended = watch::Sender::new(());
        PeerNames(Arc::new(Shared { look: Box::new(look), known: Mutex::default(), ended }))
    }

    /// Looks up those of these names that are not known yet, so that the first question has its whole time,
    /// and forgets all others.
    pub(crate) fn learn(&self, names: &BTreeSet<&str>) {
        let unknown: Vec<&str> = {
            let mut known = self.0.lock();
            known.names.retain(|name, found| found.is_looked_up || names.contains(name.as_str()));
            let is_unknown = |name: &&&str| known.names.get(**name).is_none_or(|it| it.addresses.is_empty());
            names.iter().filter(is_unknown).copied().collect()
        };
        unknown.into_iter().for_each(|name| self.begin(name));
    }

    /// Where a name leads now, or if that is not known soon, where it led when it was last looked up.
    async fn find(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let mut ended = self.0.ended.subscribe();
        self.begin(name);
        let looked_up = async { while self.0.is_looked_up(name) && ended.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(WAIT_MAX, looked_up).await; // what is known counts then
        self.0.found(name)
    }

    /// Begins a look at a name, unless one is under way.
    fn begin(&self, name: &str) {
        let mut known = self.0.lock();
        let found = known.names.entry(name.to_owned()).or_default();
        if std::mem::replace(&mut found.is_looked_up, true) {
            return;
        }
        known.waiting.push_back(name.to_owned());
        if known.threads == LOOKS_MAX {
            return;
        }
        let shared = Arc::clone(&self.0);
        match std::thread::Builder::new().name("cell-peer-names".into()).spawn(move || shared.look_up_all()) {
            Ok(_) => known.threads += 1,
            // Another one does it, or it is begun anew when the name is asked for again.
            Err(error) => {
                tracing::warn!(%error, "no thread to look up a peer's name");
                if known.threads == 0 {
                    known.waiting.clear();
                    known.names.values_mut().for_each(|found| found.is_looked_up = false);
                }
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_looked_up(&self, name: &str) -> bool {
        self.lock().names.get(name).is_some_and(|found| found.is_looked_up)
    }

    /// What is known of a name.
    fn found(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let known = self.lock();
        match known.names.get(name) {
            Some(found) if !found.addresses.is_empty() => Ok(found.addresses.clone()),
            Some(KnownName { why: Some(why), .. }) => {
                Err(io::Error::new(io::ErrorKind::NotFound, why.clone()))
            }
            _ => Err(io::Error::new(io::ErrorKind::TimedOut, "nobody says in time where its name leads")),
        }
    }

    /// The work of a thread: looks at names until none waits.
    fn look_up_all(&self) {
        while let Some(name) = self.next() {
            let looked = (self.look)(&name);
            let mut known = self.lock();
            let found = known.names.entry(name).or_default();
            found.is_looked_up = false;
            match looked {
                Ok(addresses) if !addresses.is_empty() => {
                    (found.addresses, found.why) = (addresses, None);
                }
                Ok(_) => found.why = Some("its name has no address".to_owned()),
                Err(error) => found.why = Some(error.to_string()),
            }
            drop(known);
            self.ended.send_replace(());
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

impl Service<Name> for PeerNames {
    type Response = Found;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Found>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let names = self.clone();
        Box::pin(async move { Ok(names.find(name.as_str()).await?.into_iter()) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    type Answer = io::Result<Vec<SocketAddr>>;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 0))
    }

    /// A resolver that takes until it is told what to answer.
    fn hanging() -> (mpsc::Sender<Answer>, PeerNames) {
        let (answers, asked) = mpsc::channel::<Answer>();
        let asked = Mutex::new(asked);
        let look = move |_: &str| -> Answer {
            asked.lock().unwrap().recv().unwrap_or_else(|_| Err(io::ErrorKind::NotFound.into()))
        };
        (answers, PeerNames::looked_up_by(look))
    }

    async fn find_soon(names: &PeerNames, wanted: SocketAddr) {
        // A busy machine may keep the thread from its answer.
        for _ in 0..100 {
            if names.find("peer.test").await.is_ok_and(|found| found == [wanted]) {
                return;
            }
        }
        panic!("{wanted} is not found");
    }

    #[tokio::test]
    async fn find_waits_for_no_resolver_that_hangs_and_keeps_what_it_finds_later() {
        let (answers, names) = hanging();
        assert_eq!(names.find("peer.test").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        answers.send(Ok(vec![address(1)])).unwrap();
        find_soon(&names, address(1)).await;
        assert_eq!(names.find("peer.test").await.unwrap(), [address(1)], "it hangs again");
        answers.send(Err(io::ErrorKind::NotFound.into())).unwrap();
        assert_eq!(names.find("peer.test").await.unwrap(), [address(1)], "it may be right still");
        answers.send(Ok(vec![address(2)])).unwrap();
        find_soon(&names, address(2)).await;
    }

    #[tokio::test]
    async fn find_of_a_name_that_leads_nowhere_says_why() {
        let names = PeerNames::looked_up_by(|name| match name {
            "empty.test" => Ok(Vec::new()),
            _ => Err(io::Error::other("there is no such name")),
        });
        for (name, why) in [("empty.test", "its name has no address"), ("no.test", "there is no such name")] {
            let mut found = names.find(name).await;
            while found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
                found = names.find(name).await;
            }
            assert_eq!(found.unwrap_err().to_string(), why);
        }
    }

    /// A thousand peers with names, and a resolver that is away.
    #[tokio::test]
    async fn looks_at_a_time_are_bounded_and_all_are_done() {
        let (answers, names) = hanging();
        let hosts: Vec<String> = (0..3 * LOOKS_MAX).map(|host| format!("host-{host}.test")).collect();
        let hosts: BTreeSet<&str> = hosts.iter().map(String::as_str).collect();
        names.learn(&hosts);
        assert_eq!(names.0.lock().threads, LOOKS_MAX);
        let mut ended = names.0.ended.subscribe();
        hosts.iter().for_each(|_| answers.send(Ok(vec![address(1)])).unwrap());
        while names.0.lock().threads > 0 {
            let _ = tokio::time::timeout(Duration::from_millis(10), ended.changed()).await;
        }
        assert!(hosts.iter().all(|name| names.0.found(name).is_ok()));
        names.learn(&hosts);
        assert_eq!(names.0.lock().threads, 0, "what is known is not looked up again");
        names.learn(&BTreeSet::from(["host-7.test"]));
        assert_eq!(names.0.lock().names.len(), 1, "who is no member any more is forgotten");
    }
}
