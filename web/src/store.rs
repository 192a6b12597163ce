//! The store as any client sees it, for what people look up: one client of the cluster, connected when it is
//! first needed, searching by messages alone. Its calls block, so they run on a thread that may.

use std::net::SocketAddr;
use std::sync::Arc;

use cell_client::{AttemptError, Client, ClientError, ClientOptions, Search, Transport};
use cell_protocol::Refusal;
use cell_terms::text::with_causes;
use tokio::sync::Mutex;

use crate::problem::{FieldProblem, Problem};

/// Time that an operation has.
const DEADLINE_MS: u64 = 3_000;
/// Time for a connection.
const CONNECT_MS: u64 = 1_000;

/// The client of one node's web.
pub(crate) struct Store {
    fabric: Option<SocketAddr>,
    kept: Arc<Mutex<Option<Client>>>,
}

impl Store {
    /// By way of the node that serves its fabric there.
    pub(crate) fn new(fabric: Option<SocketAddr>) -> Store {
        Store { fabric, kept: Arc::default() }
    }

    /// Runs `work` with the client; one call runs at a time. `pointer` is where the request names the key.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        pointer: &'static str,
        work: impl FnOnce(&mut Client) -> Result<T, ClientError> + Send + 'static,
    ) -> Result<T, Problem> {
        let Some(fabric) = self.fabric else {
            return Err(Problem::unavailable("This node does not tell where clients reach it."));
        };
        let mut kept = Arc::clone(&self.kept).lock_owned().await;
        let called = tokio::task::spawn_blocking(move || {
            let client = match &mut *kept {
                Some(client) => client,
                none => none.insert(Client::connect(&fabric.to_string(), options())?),
            };
            work(client)
        });
        match called.await {
            Ok(outcome) => outcome.map_err(|error| explain(&error, pointer)),
            Err(error) => {
                tracing::error!(%error, "a look into the store panicked");
                Err(Problem::internal())
            }
        }
    }
}

fn options() -> ClientOptions {
    ClientOptions {
        name: format!("console, {}", std::process::id()),
        search: Search::Server,
        transport: Transport::Tcp,
        deadline_ms: DEADLINE_MS,
        connect_timeout_ms: CONNECT_MS,
        spin_us: 0,
        report_ms: 0,
        ..ClientOptions::default()
    }
}

/// A client's error as the API tells it.
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
                .next("wait: its pair is taken over; the overview tells how far that is")
        }
        _ => Problem::unavailable(detail()).next("ask again in a second, or ask another node"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn call_of_a_node_that_is_not_there_says_so_and_is_tried_anew() {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let store = Store::new(Some(gone));
        for _ in 0..2 {
            let problem = store.call("/query/key", |client| client.search(b"k")).await.unwrap_err();
            assert_eq!((problem.status.as_u16(), problem.code), (503, "unavailable"));
            assert!(problem.detail.contains(&gone.to_string()), "{}", problem.detail);
        }
        let problem = Store::new(None).call("/query/key", |client| client.search(b"k")).await.unwrap_err();
        assert_eq!(problem.status.as_u16(), 503);
    }

    #[test]
    fn key_that_the_store_refuses_is_named() {
        let refused = ClientError::Refused(Refusal::KeyInvalid { len: 900, max: 178 });
        let problem = explain(&refused, "/path/key");
        assert_eq!((problem.status.as_u16(), &*problem.errors[0].pointer), (400, "/path/key"));
        assert_eq!(problem.errors[0].max.as_deref(), Some("178"));
    }
}
