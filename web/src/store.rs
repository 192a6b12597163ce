//! The store as any client sees it, for what people look up: a few clients of the cluster, connected when
//! they are first needed, searching by messages alone. Their calls block, so they run on threads that may.
//!
//! A call for a key of a pair that nobody serves takes until its deadline. Others have their own client
//! meanwhile; if all clients are taken, calls wait for a short time, few at a time, and else are refused.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use cell_client::{AttemptError, Client, ClientError, ClientOptions, Search, Transport};
use cell_fabric::TlsTrust;
use cell_protocol::Refusal;
use cell_terms::text::with_causes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::{FieldProblem, Problem};

/// Time that an operation has.
const DEADLINE_MS: u64 = 3_000;
/// Time for a connection.
const CONNECT_MS: u64 = 1_000;

/// Clients, and so calls under way at a time.
const CLIENTS_MAX: usize = 3;
/// Calls that wait for a client at a time.
const WAITING_MAX: usize = 16;
/// How long a call waits for a client.
const PATIENCE: Duration = Duration::from_secs(1);

/// The clients of one node's web.
pub(crate) struct Store {
    fabric: Option<SocketAddr>,
    transport: Transport,
    /// What its clients show, once there is one.
    token: OnceLock<Vec<u8>>,
    /// Whom its clients trust under TLS; none: they connect in the clear.
    pub(crate) trust: Option<TlsTrust>,
    /// Those that nobody uses now.
    idle: Arc<Mutex<Vec<Client>>>,
    calls: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Store {
    /// By way of the node that serves its fabric there.
    pub(crate) fn new(fabric: Option<SocketAddr>) -> Store {
        let (calls, waiting) = (Arc::new(Semaphore::new(CLIENTS_MAX)), Semaphore::new(WAITING_MAX));
        Store {
            fabric,
            transport: Transport::Tcp,
            token: OnceLock::new(),
            trust: None,
            idle: Arc::default(),
            calls,
            waiting,
        }
    }

    /// The same where tokens are asked for: over shared memory the kernel says that it is the node's own
    /// user.
    pub(crate) fn of_own_user(fabric: Option<SocketAddr>) -> Store {
        Store { transport: Transport::Auto, ..Store::new(fabric) }
    }

    /// What clients of this node show from now on; the first one counts.
    pub(crate) fn know_token(&self, token: Vec<u8>) {
        let _ = self.token.set(token);
    }

    /// What clients of this node show; empty: nothing.
    pub(crate) fn token(&self) -> Vec<u8> {
        self.token.get().cloned().unwrap_or_default()
    }

    /// Runs `work` with a client. `pointer` is where the request names the key.
    ///
    /// # Errors
    /// 503 `busy`: other calls take too long. Else what the store says.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        pointer: &'static str,
        work: impl FnOnce(&mut Client) -> Result<T, ClientError> + Send + 'static,
    ) -> Result<T, Problem> {
        let Some(fabric) = self.fabric else {
            return Err(Problem::unavailable("This node does not say where clients reach it."));
        };
        let permit = self.permit(PATIENCE).await?;
        let (token, trust) = (self.token(), self.trust.clone());
        let options = ClientOptions { transport: self.transport, token, trust, ..options() };
        let idle = Arc::clone(&self.idle);
        let called = tokio::task::spawn_blocking(move || {
            let _permit = permit; // held by the thread, also when nobody waits for it any more
            let kept = lock(&idle).pop();
            let mut client = match kept {
                Some(client) => client,
                None => Client::connect(&fabric.to_string(), options)?,
            };
            let outcome = work(&mut client);
            lock(&idle).push(client);
            outcome
        });
        match called.await {
            Ok(outcome) => outcome.map_err(|error| explain(&error, pointer)),
            Err(error) => {
                tracing::error!(%error, "a look into the store panicked");
                Err(Problem::internal())
            }
        }
    }

    /// The right to use a client.
    async fn permit(&self, patience: Duration) -> Result<OwnedSemaphorePermit, Problem> {
        if let Ok(permit) = Arc::clone(&self.calls).try_acquire_owned() {
            return Ok(permit);
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| busy())?;
        let waited = tokio::time::timeout(patience, Arc::clone(&self.calls).acquire_owned()).await;
        waited.ok().and_then(Result::ok).ok_or_else(busy)
    }
}

fn busy() -> Problem {
    let detail = "Other lookups of this node take too long.";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
        .next("try again in a second, or ask another node")
        .retry_after(PATIENCE)
}

fn lock(clients: &Mutex<Vec<Client>>) -> MutexGuard<'_, Vec<Client>> {
    clients.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options() -> ClientOptions {
    ClientOptions {
        name: format!("console, {}", std::process::id()),
        search: Search::Server,
        deadline_ms: DEADLINE_MS,
        connect_timeout_ms: CONNECT_MS,
        spin_us: 0,
        report_ms: 0,
        ..ClientOptions::default()
    }
}

/// A client's error as the API returns it.
fn explain(error: &ClientError, pointer: &'static str) -> Problem {
    let wrong = |detail: String, max: Option<String>| {
        let field = FieldProblem { pointer: pointer.to_owned(), detail, max, ..FieldProblem::default() };
        Problem::bad_request(FieldProblem { unit: Some("bytes"), ..field })
    };
    let detail = || format!("The store does not answer: {}.", with_causes(error));
    match error {
        ClientError::Refused(Refusal::KeyInvalid { len, max }) => {
            wrong(format!("a key has 1 to {max} bytes, and this one has {len}"), Some(max.to_string()))
        }
        ClientError::Unsendable(error) => wrong(format!("no server takes this: {error}"), None),
        ClientError::Deadline { last: Some(AttemptError::Unserved { .. }), .. } => {
            Problem::unavailable(detail())
                .next("wait: its pair is taken over; the overview shows how far that is")
        }
        _ => Problem::unavailable(detail()).next("ask again in a second, or ask another node"),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn call_of_a_node_that_is_not_there_says_so_and_is_tried_anew() {
        let gone = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let store = Store::new(Some(gone));
        for _ in 0..2 {
            let problem = store.call("/query/key", |client| client.search(b"k")).await.unwrap_err();
            assert_eq!((problem.status.as_u16(), problem.code), (503, "unavailable"));
            assert!(problem.detail.contains(&gone.to_string()), "{}", problem.detail);
        }
        let problem = Store::new(None).call("/query/key", |client| client.search(b"k")).await.unwrap_err();
        assert_eq!(problem.status.as_u16(), 503);
    }

    #[tokio::test]
    async fn permit_when_all_clients_are_taken_waits_a_bounded_time_in_a_bounded_queue() {
        let store = Store::new(None);
        let mut taken = Vec::new();
        for _ in 0..CLIENTS_MAX {
            taken.push(store.permit(Duration::ZERO).await.unwrap());
        }
        let problem = store.permit(Duration::from_millis(1)).await.unwrap_err();
        assert_eq!((problem.status.as_u16(), problem.code, problem.retry_after), (503, "busy", Some(1)));
        let forever = Duration::from_secs(3_600);
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| Box::pin(store.permit(forever))).collect();
        for call in &mut waiting {
            assert!(call.now_or_never().is_none());
        }
        assert_eq!(store.permit(forever).await.unwrap_err().code, "busy", "the queue is full");
        drop(taken.pop());
        drop(waiting.swap_remove(0).await.unwrap());
    }

    #[test]
    fn key_that_the_store_refuses_is_named() {
        let refused = ClientError::Refused(Refusal::KeyInvalid { len: 900, max: 178 });
        let problem = explain(&refused, "/path/key");
        assert_eq!((problem.status.as_u16(), &*problem.errors[0].pointer), (400, "/path/key"));
        assert_eq!(problem.errors[0].max.as_deref(), Some("178"));
    }
}
