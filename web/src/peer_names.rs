//! Where the names of the other nodes lead. A question to a peer has a fifth of a second, and the system's
//! resolver may take many: who asks waits for a part of that, and goes by what was found before.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use cell_resolver::Resolver;
use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

/// For how long who asks waits for a lookup: half of what a question to a peer may take.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// The addresses of a name.
type Found = vec::IntoIter<SocketAddr>;

/// The names of the other nodes' hosts. Each is looked up whenever it is asked for.
#[derive(Clone)]
pub(crate) struct PeerNames(Resolver);

impl Default for PeerNames {
    fn default() -> PeerNames {
        PeerNames(Resolver::new(Duration::ZERO))
    }
}

impl PeerNames {
    /// Names that are looked up so, as `HOST:0`.
    #[cfg(test)]
    pub(crate) fn looked_up_by(
        lookup: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> PeerNames {
        PeerNames(Resolver::looked_up_by(Duration::ZERO, lookup))
    }

    /// Looks up those of these hosts that are not known yet, so that the first question has its whole time,
    /// and forgets all others.
    pub(crate) fn learn(&self, hosts: &BTreeSet<&str>) {
        self.0.learn(&hosts.iter().map(|host| place(host)).collect());
    }

    /// Where a host's name leads now, or if that is not known soon, where it led when it was last looked up.
    async fn find(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        let name = place(host);
        self.0.begin(&name);
        let looked_up = poll_fn(|context| self.0.poll_looked_up(&name, context));
        let _ = tokio::time::timeout(WAIT_MAX, looked_up).await; // what is known counts then
        self.0.known(&name)
    }
}

/// What is looked up of a host: the caller has a port of its own.
fn place(host: &str) -> String {
    format!("{host}:0")
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
    use std::sync::{Mutex, mpsc};

    use super::*;

    #[tokio::test]
    async fn find_waits_for_no_resolver_that_hangs_and_has_what_it_finds_later() {
        let (answers, asked) = mpsc::channel::<io::Result<Vec<SocketAddr>>>();
        let asked = Mutex::new(asked);
        let names = PeerNames::looked_up_by(move |name| {
            assert_eq!(name, "peer.test:0");
            asked.lock().unwrap().recv().unwrap_or_else(|_| Err(io::ErrorKind::NotFound.into()))
        });
        assert_eq!(names.find("peer.test").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        answers.send(Ok(vec![address])).unwrap();
        // A busy machine may keep the thread from its answer.
        let mut found = names.find("peer.test").await;
        for _ in 0..100 {
            if found.is_ok() {
                break;
            }
            found = names.find("peer.test").await;
        }
        assert_eq!(found.unwrap(), [address]);
        assert_eq!(names.find("peer.test").await.unwrap(), [address], "it hangs again");
    }
}
