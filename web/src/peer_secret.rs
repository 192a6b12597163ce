//! The secret by which nodes of one cluster know each other over HTTP. It is a row of the coordinator, made
//! once, of 32 random bytes: who can read the coordinator could change any row of it as well.

use std::error::Error;
use std::sync::{Arc, OnceLock};

use axum::http::HeaderMap;
use cell_cluster::{ClusterError, Coordinator, KeyCondition, Transaction};
use data_encoding::HEXLOWER;
use rustix::rand::{GetRandomFlags, getrandom};
use subtle::ConstantTimeEq;

/// The header that a node's requests to its peers carry.
pub(crate) const PEER_HEADER: &str = "x-cell-peer";
const KEY: &str = "web/peer-secret";
const BYTES: usize = 32;

/// The secret, once it is known.
#[derive(Clone, Default)]
pub(crate) struct PeerSecret {
    coordinator: Option<Arc<dyn Coordinator>>,
    known: Arc<OnceLock<String>>,
}

impl PeerSecret {
    /// Of the cluster that `coordinator` serves; without one there is no secret, and nobody is a peer.
    pub(crate) fn new(coordinator: Option<Arc<dyn Coordinator>>) -> PeerSecret {
        PeerSecret { coordinator, known: Arc::default() }
    }

    /// The secret. The first call asks the coordinator, on a thread that may block; until it answers there is
    /// none.
    pub(crate) async fn get(&self) -> Option<&str> {
        if self.known.get().is_none()
            && let Some(coordinator) = self.coordinator.clone()
        {
            let known = self.known.clone();
            let read = tokio::task::spawn_blocking(move || match read_or_make(&*coordinator) {
                Ok(secret) => drop(known.set(secret)),
                Err(error) => tracing::debug!(%error, "the peers' secret is not known yet"),
            });
            let _ = read.await; // a panic there has been told, and leaves the secret unknown
        }
        self.known.get().map(String::as_str)
    }

    /// Whether a request carries the secret.
    pub(crate) async fn is_in(&self, headers: &HeaderMap) -> bool {
        let Some(given) = headers.get(PEER_HEADER) else { return false };
        let expected = self.get().await;
        expected.is_some_and(|expected| expected.as_bytes().ct_eq(given.as_bytes()).into())
    }
}

/// The row, made if it is not there. Of several nodes that make it at a time one wins.
fn read_or_make(coordinator: &dyn Coordinator) -> Result<String, Box<dyn Error>> {
    if let Some(row) = coordinator.read(KEY)? {
        return Ok(row.value);
    }
    let mut bytes = [0; BYTES];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
    assert_eq!(filled, BYTES, "so few random bytes come at once");
    let absent = KeyCondition::Absent { key: KEY.to_owned() };
    coordinator.transact(Transaction::new().when(absent).put(KEY, HEXLOWER.encode(&bytes)))?;
    match coordinator.read(KEY)? {
        Some(row) => Ok(row.value),
        None => Err(ClusterError::Contended { what: "the peers' secret" }.into()),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use cell_cluster::Sim;

    use super::*;

    fn headers(secret: &str) -> HeaderMap {
        HeaderMap::from_iter([(PEER_HEADER.parse().unwrap(), HeaderValue::from_str(secret).unwrap())])
    }

    #[tokio::test]
    async fn get_by_two_nodes_is_one_secret_and_opens_to_it_alone() {
        let sim = Sim::new(7);
        let secrets = [0, 1].map(|_| PeerSecret::new(Some(Arc::new(sim.link()))));
        let first = secrets[0].get().await.unwrap().to_owned();
        assert_eq!((first.len(), secrets[1].get().await), (2 * BYTES, Some(first.as_str())));
        assert!(secrets[1].is_in(&headers(&first)).await);
        for wrong in ["", &first[1..], &"0".repeat(2 * BYTES)] {
            assert!(!secrets[1].is_in(&headers(wrong)).await, "{wrong}");
        }
        assert!(!secrets[1].is_in(&HeaderMap::new()).await);
    }

    #[tokio::test]
    async fn without_a_coordinator_nobody_is_a_peer() {
        let secret = PeerSecret::new(None);
        assert!(secret.get().await.is_none() && !secret.is_in(&headers("")).await);
    }
}
