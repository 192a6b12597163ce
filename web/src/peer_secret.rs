//! The secret by which nodes of one cluster know each other over HTTP. It is a row of the coordinator, made
//! once, of 32 random bytes: who can read the coordinator could change any row of it as well.
//!
//! It is learned in the background, because the coordinator may take longer than a request to a peer has, and
//! because no request may start a call of it. Until then a node asks its peers without it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::HeaderMap;
use cell_cluster::{ClusterError, Coordinator, KeyCondition, Transaction};
use cell_terms::Incarnation;
use cell_terms::text::with_causes;
use data_encoding::HEXLOWER;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::coordination::{Coordination, Unanswered};

/// The header that a node's requests to its peers carry, with a proof that it knows the secret.
pub(crate) const PEER_HEADER: &str = "x-cell-peer";
const KEY: &str = cell_cluster::KEY_PEER_SECRET;
const BYTES: usize = 32;
/// How long one attempt to learn it waits.
const PATIENCE: Duration = Duration::from_secs(4);

/// What a request's header says of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerClaim {
    /// It is no peer, or has no right to say so.
    NoPeer,
    /// It is a peer.
    Peer,
    /// It says that it is one, and the secret is not known yet.
    Unknown,
}

/// The secret, once it is known.
#[derive(Clone, Default)]
pub(crate) struct PeerSecret {
    known: Arc<OnceLock<String>>,
    is_asking: Arc<AtomicBool>,
}

impl PeerSecret {
    /// Reads the secret if it is not known, unless that is under way.
    pub(crate) async fn learn(&self, coordination: &Coordination) {
        if self.known.get().is_some() || self.is_asking.swap(true, Ordering::AcqRel) {
            return;
        }
        // The flag belongs to the call, not to this future, which may end before.
        let (known, asking) = (Arc::clone(&self.known), Asking(Arc::clone(&self.is_asking)));
        let read = move |coordinator: Arc<dyn Coordinator>| {
            let _asking = asking;
            let secret = read_or_make(&*coordinator)?;
            let _ = known.set(secret); // known already: it is the same
            Ok(())
        };
        match coordination.call(PATIENCE, read).await {
            Ok(()) | Err(Unanswered::Absent) => {}
            Err(error) => tracing::debug!(error = with_causes(&error), "the peers' secret is not known yet"),
        }
    }

    /// The secret, if it is known. Never waits.
    fn get(&self) -> Option<&str> {
        self.known.get().map(String::as_str)
    }

    /// What shows a peer of this lease that a request comes from another node, if the secret is known. It
    /// shows that to no other one: whoever listens where a dead node did learns nothing that opens a living
    /// one.
    pub(crate) fn proof_for(&self, peer: Incarnation) -> Option<String> {
        self.derived(&format!("peer {:016x}", peer.0))
    }

    /// The token by which nodes let each other's clients read and write entries, if the secret is known.
    pub(crate) fn entries_token(&self) -> Option<String> {
        self.derived("entries")
    }

    /// The secret comes last: what is derived cannot be made longer into something else.
    fn derived(&self, purpose: &str) -> Option<String> {
        let secret = self.get()?;
        Some(HEXLOWER.encode(&Sha256::digest(format!("cell {purpose} {secret}"))))
    }

    /// Whether a request carries the proof for this node. Never waits.
    pub(crate) fn claim_in(&self, headers: &HeaderMap, own: Incarnation) -> PeerClaim {
        match (headers.get(PEER_HEADER), self.proof_for(own)) {
            (None, _) => PeerClaim::NoPeer,
            (Some(_), None) => PeerClaim::Unknown,
            (Some(given), Some(known)) if known.as_bytes().ct_eq(given.as_bytes()).into() => PeerClaim::Peer,
            (Some(_), Some(_)) => PeerClaim::NoPeer,
        }
    }
}

/// A call that is under way, also where it was dropped before it began.
struct Asking(Arc<AtomicBool>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The row, made if it is not there. Of several nodes that make it at a time one wins.
fn read_or_make(coordinator: &dyn Coordinator) -> Result<String, ClusterError> {
    if let Some(row) = coordinator.read(KEY)? {
        return Ok(row.value);
    }
    let mut bytes = [0; BYTES];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty()).expect("the kernel has random bytes");
    assert_eq!(filled, BYTES, "so few random bytes come at once");
    let absent = KeyCondition::Absent { key: KEY.to_owned() };
    coordinator.transact(Transaction::new().when(absent).put(KEY, HEXLOWER.encode(&bytes)))?;
    match coordinator.read(KEY)? {
        Some(row) => Ok(row.value),
        None => Err(ClusterError::Contended { what: "the peers' secret" }),
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
    async fn learn_by_two_nodes_is_one_secret_and_opens_to_it_alone() {
        let sim = Sim::new(7);
        let secrets = [0, 1].map(|_| PeerSecret::default());
        for secret in &secrets {
            secret.learn(&Coordination::new(Some(Arc::new(sim.link())))).await;
        }
        let first = secrets[0].get().unwrap().to_owned();
        assert_eq!((first.len(), secrets[1].get()), (2 * BYTES, Some(first.as_str())));
        let [own, dead] = [Incarnation(71), Incarnation(17)];
        let proof = secrets[0].proof_for(own).unwrap();
        let claim = |headers: &HeaderMap| secrets[1].claim_in(headers, own);
        assert_eq!(claim(&headers(&proof)), PeerClaim::Peer);
        // What was sent to a node that is gone, where another process listens by now, opens nobody else.
        let of_dead = secrets[0].proof_for(dead).unwrap();
        let entries = secrets[0].entries_token().unwrap();
        for wrong in ["", &proof[1..], &"0".repeat(2 * BYTES), &first, &of_dead, &entries] {
            assert_eq!(claim(&headers(wrong)), PeerClaim::NoPeer, "{wrong}");
        }
        assert_eq!(claim(&HeaderMap::new()), PeerClaim::NoPeer);
    }

    #[tokio::test]
    async fn learn_without_a_coordinator_knows_nobody_and_asks_anew() {
        let (link, secret) = (Sim::new(7).link(), PeerSecret::default());
        secret.learn(&Coordination::new(None)).await;
        link.set_cut(true);
        let coordination = Coordination::new(Some(Arc::new(link.clone())));
        secret.learn(&coordination).await;
        assert_eq!(
            (secret.get(), secret.claim_in(&headers("x"), Incarnation(1))),
            (None, PeerClaim::Unknown)
        );
        link.set_cut(false);
        secret.learn(&coordination).await;
        assert_eq!(
            (secret.get().is_some(), secret.claim_in(&headers("x"), Incarnation(1))),
            (true, PeerClaim::NoPeer)
        );
    }

    #[tokio::test]
    async fn learn_while_one_is_under_way_asks_nobody() {
        let (coordination, secret) =
            (Coordination::new(Some(Arc::new(Sim::new(7).link()))), PeerSecret::default());
        let asking = Asking(Arc::clone(&secret.is_asking));
        secret.is_asking.store(true, Ordering::Release);
        secret.learn(&coordination).await;
        assert_eq!(secret.get(), None);
        drop(asking);
        secret.learn(&coordination).await;
        assert!(secret.get().is_some());
    }
}
