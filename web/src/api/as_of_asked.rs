//! As of when the document is to be that a request asks for: [`AsOf`] of a handler's arguments.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::as_of::AsOf;
use crate::peer_secret::PeerClaim;
use crate::shared::Shared;

impl FromRequestParts<Arc<Shared>> for AsOf {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<AsOf, Infallible> {
        let headers = &parts.headers;
        Ok(AsOf::in_headers(headers, || shared.claim_in(headers) == PeerClaim::Peer))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, Request};
    use cell_cluster::Sim;

    use super::*;
    use crate::Sources;
    use crate::as_of::AS_OF_HEADER;
    use crate::coordination::Coordination;
    use crate::peer_secret::{PEER_HEADER, PeerSecret};
    use crate::test_snapshot::snapshot;

    /// As of when a document is for who names a revision and, perhaps, proves to be a peer.
    async fn of_revision(shared: &Arc<Shared>, proof: Option<&str>) -> AsOf {
        let mut request = Request::new(());
        request.headers_mut().insert(AS_OF_HEADER, HeaderValue::from_static("7"));
        if let Some(proof) = proof {
            request.headers_mut().insert(PEER_HEADER, HeaderValue::from_str(proof).unwrap());
        }
        let (mut parts, ()) = request.into_parts();
        AsOf::from_request_parts(&mut parts, shared).await.unwrap()
    }

    /// Whoever named a revision that nobody has seen had each request wait for as long as one waits at most.
    #[tokio::test]
    async fn revision_is_heeded_of_a_peer_alone() {
        let sim = Sim::new(7);
        let sources = Sources::new(Arc::new(|| Arc::new(snapshot()))).coordinator(Arc::new(sim.link()));
        let shared = Arc::new(Shared::new(sources));
        let secret = PeerSecret::default();
        secret.learn(&Coordination::new(Some(Arc::new(sim.link())))).await;
        let proof = secret.proof_for(snapshot().incarnation).unwrap();
        assert_eq!(of_revision(&shared, Some(&proof)).await, AsOf::Kept, "who is one is not known yet");
        shared.learn().await;
        assert_eq!(of_revision(&shared, Some(&proof)).await, AsOf::Revision(7));
        assert_eq!(of_revision(&shared, Some("x")).await, AsOf::Kept);
        assert_eq!(of_revision(&shared, None).await, AsOf::Kept);
    }
}
