//! What the other nodes say over HTTP. Each is asked for its own part of a document, all at a time, with a
//! short deadline: whoever does not answer is listed as missing, and the rest is shown.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use cell_cluster::MemberRow;
use cell_node::NodeSnapshot;
use cell_terms::{Incarnation, NodeId};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::as_of::{AS_OF_HEADER, SEEN_PATIENCE};
use crate::body_limit::limited_body;
use crate::coordination::Coordination;
use crate::host::name_of;
use crate::peer_names::PeerNames;
use crate::peer_secret::{PEER_HEADER, PeerClaim, PeerSecret};
use crate::tls::trusting_nobody;

/// How long a peer may take.
pub(crate) const PEER_DEADLINE: Duration = Duration::from_millis(200);
/// A peer's answer that is longer is not read.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Peers that are asked at a time for a document; of a larger cluster each next one as another has answered.
const ASKED_AT_ONCE: usize = 128;
/// A connection that is not used for so long is closed, before the peer does so itself.
const IDLE: Duration = Duration::from_secs(5);

/// A node whose answer is not in a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MissingPeer {
    pub(crate) node: u32,
    /// Its HTTP address.
    pub(crate) address: String,
    pub(crate) why: String,
}

/// One node's part of a document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodePart<T> {
    pub(crate) node: NodeId,
    pub(crate) part: T,
}

/// The parts of all nodes that answered, in the order of their numbers, and who did not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gathered<T> {
    pub(crate) parts: Vec<NodePart<T>>,
    pub(crate) missing: Vec<MissingPeer>,
}

/// What a peer is asked.
#[derive(Clone, Copy)]
struct Question<'a> {
    /// With its query.
    path: &'a str,
    /// The revision of the coordinator that it is to have seen; none: whichever it has.
    as_of: Option<u64>,
    deadline: Duration,
}

/// The other members' HTTP.
#[derive(Clone)]
pub(crate) struct Peers {
    client: Client<HttpsConnector<HttpConnector<PeerNames>>, Body>,
    scheme: &'static str,
    secret: PeerSecret,
    names: PeerNames,
}

impl Peers {
    /// Peers that are asked over TLS, or without a configuration for it over plain HTTP.
    pub(crate) fn new(tls: Option<Arc<ClientConfig>>) -> Peers {
        Peers::by_names(PeerNames::default(), tls)
    }

    fn by_names(names: PeerNames, tls: Option<Arc<ClientConfig>>) -> Peers {
        let mut connector = HttpConnector::new_with_resolver(names.clone());
        connector.set_connect_timeout(Some(PEER_DEADLINE));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let connector = HttpsConnector::from((connector, tls.unwrap_or_else(|| Arc::new(trusting_nobody()))));
        let mut builder = Client::builder(TokioExecutor::new());
        let client = builder.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).build(connector);
        Peers { client, scheme, secret: PeerSecret::default(), names }
    }

    /// Looks up the names of peers that are not known yet. Called each second: a question to a peer has no
    /// time for a slow resolver.
    pub(crate) fn learn_names(&self, snapshot: &NodeSnapshot) {
        let names = others(snapshot).map(|member| name_of(&member.http));
        let is_name = |name: &&str| !name.is_empty() && name.parse::<IpAddr>().is_err();
        self.names.learn(&names.filter(is_name).collect());
    }

    /// Whether a request comes from another node of the cluster.
    pub(crate) fn claim_in(&self, headers: &HeaderMap, own: Incarnation) -> PeerClaim {
        self.secret.claim_in(headers, own)
    }

    /// See [`PeerSecret::entries_token`].
    pub(crate) fn entries_token(&self) -> Option<String> {
        self.secret.entries_token()
    }

    /// Learns the secret of the cluster's nodes if it is not known. Called each second.
    pub(crate) async fn learn_secret(&self, coordination: &Coordination) {
        self.secret.learn(coordination).await;
    }

    /// Asks every other living member for `GET path`, and puts this node's own part to what they say. The
    /// members are those of the node's last look: the coordinator need not be there. `path` has the query
    /// with it, and `scope=node`: a peer answers for itself and asks nobody.
    pub(crate) async fn gather<T>(&self, snapshot: &NodeSnapshot, own: T, path: &str) -> Gathered<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.gather_within(snapshot, own, path, PEER_DEADLINE).await
    }

    /// The same where each may take so long.
    pub(crate) async fn gather_within<T>(
        &self,
        snapshot: &NodeSnapshot,
        own: T,
        path: &str,
        deadline: Duration,
    ) -> Gathered<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.gather_by(snapshot, own, Question { path, as_of: None, deadline }).await
    }

    /// The same of what each has seen up to this revision: whoever has not waits until it has.
    pub(crate) async fn gather_as_of<T>(
        &self,
        snapshot: &NodeSnapshot,
        own: T,
        path: &str,
        revision: u64,
    ) -> Gathered<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let deadline = SEEN_PATIENCE + PEER_DEADLINE;
        self.gather_by(snapshot, own, Question { path, as_of: Some(revision), deadline }).await
    }

    async fn gather_by<T>(&self, snapshot: &NodeSnapshot, own: T, question: Question<'_>) -> Gathered<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let Question { path, as_of, deadline } = question;
        let mut parts = vec![NodePart { node: snapshot.node, part: own }];
        let mut missing = Vec::new();
        let mut asked = JoinSet::new();
        let turns = Arc::new(Semaphore::new(ASKED_AT_ONCE));
        for member in others(snapshot) {
            let (peers, member, path) = (self.clone(), member.clone(), path.to_owned());
            let turns = Arc::clone(&turns);
            asked.spawn(async move {
                let _turn = turns.acquire_owned().await;
                let answer = peers.ask_by(&member, Question { path: &path, as_of, deadline }).await;
                (member, answer)
            });
        }
        while let Some(answered) = asked.join_next().await {
            match answered {
                Ok((member, Ok(part))) => parts.push(NodePart { node: member.node, part }),
                Ok((member, Err(why))) => {
                    missing.push(MissingPeer { node: member.node.0, address: member.http, why });
                }
                Err(error) => tracing::error!(%error, "asking a peer failed"),
            }
        }
        parts.sort_by_key(|part| part.node);
        missing.sort_by_key(|peer| peer.node);
        Gathered { parts, missing }
    }

    /// What one member says to `GET path`, or why that is not known.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, member: &MemberRow, path: &str) -> Result<T, String> {
        self.ask_by(member, Question { path, as_of: None, deadline: PEER_DEADLINE }).await
    }

    async fn ask_by<T: DeserializeOwned>(
        &self,
        member: &MemberRow,
        question: Question<'_>,
    ) -> Result<T, String> {
        let (status, body) = self.exchange(member, Method::GET, question, None).await?;
        if status != StatusCode::OK {
            return Err(format!("it answers {status}"));
        }
        serde_json::from_slice(&body).map_err(|error| format!("its answer cannot be read: {error}"))
    }

    /// Whether nobody on the way to a member reads what is sent to it: it goes over TLS, or stays on this
    /// host.
    pub(crate) fn keeps_secrets(&self, member: &MemberRow) -> bool {
        let is_here = |host: &str| match name_of(host).parse::<IpAddr>() {
            Ok(address) => address.to_canonical().is_loopback(),
            Err(_) => host.eq_ignore_ascii_case("localhost"),
        };
        // As the client reads it, which goes to what comes after an `@`.
        let place = member.http.parse::<Authority>();
        self.scheme == "https" || place.is_ok_and(|place| is_here(place.host()))
    }

    /// A request to one member: status and body of its answer. A body is JSON.
    pub(crate) async fn send(
        &self,
        member: &MemberRow,
        method: Method,
        path: &str,
        body: Option<String>,
        deadline: Duration,
    ) -> Result<(StatusCode, Bytes), String> {
        self.exchange(member, method, Question { path, as_of: None, deadline }, body).await
    }

    async fn exchange(
        &self,
        member: &MemberRow,
        method: Method,
        Question { path, as_of, deadline }: Question<'_>,
        body: Option<String>,
    ) -> Result<(StatusCode, Bytes), String> {
        if member.http.is_empty() {
            return Err("it has no HTTP address".to_owned());
        }
        let exchange = async {
            let address = format!("{}://{}{path}", self.scheme, member.http);
            let mut request = Request::builder().method(method).uri(address);
            if let Some(proof) = self.secret.proof_for(member.incarnation) {
                request = request.header(PEER_HEADER, proof);
            }
            if let Some(revision) = as_of {
                request = request.header(AS_OF_HEADER, revision);
            }
            let body = match body {
                Some(json) => {
                    request = request.header(header::CONTENT_TYPE, "application/json");
                    Body::from(json)
                }
                None => Body::empty(),
            };
            let request = request.body(body).map_err(|error| format!("it cannot be asked: {error}"))?;
            let response = self.client.request(request).await;
            let response = response.map_err(|error| in_words(&error))?;
            let status = response.status();
            let body = limited_body(response.into_body(), ANSWER_BYTES_MAX).await;
            Ok((status, body.map_err(|error| format!("its answer broke off: {error}"))?))
        };
        match tokio::time::timeout(deadline, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no answer within {} ms", deadline.as_millis())),
        }
    }
}

/// The other nodes that live, by the node's last look, each once ([`MemberRow::present_rows`]). No life of
/// this node is among them.
pub(crate) fn others(snapshot: &NodeSnapshot) -> impl Iterator<Item = &MemberRow> {
    MemberRow::present_rows(&snapshot.cluster.members).filter(move |member| member.node != snapshot.node)
}

/// The innermost cause, which distinguishes a refused connection from one that broke.
fn in_words(error: &hyper_util::client::legacy::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if error.is_connect() { format!("it cannot be reached: {cause}") } else { cause.to_string() }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::sync::{Mutex, mpsc};

    use cell_cluster::Sim;
    use cell_node::ClusterSnapshot;
    use serde_json::Value;

    use super::*;
    use crate::test_members::{self, life};
    use crate::test_snapshot::snapshot;
    use crate::{HttpServer, Sources};

    fn member(node: u32, http: &str) -> MemberRow {
        MemberRow { http: http.to_owned(), ..test_members::member(node) }
    }

    /// A node of a cluster with these members.
    fn node_of(node: u32, members: Vec<MemberRow>) -> NodeSnapshot {
        let cluster = Arc::new(ClusterSnapshot { members, ..ClusterSnapshot::default() });
        let incarnation = Incarnation(70 + u64::from(node));
        NodeSnapshot { node: NodeId(node), incarnation, cluster, ..snapshot() }
    }

    fn serve(node: u32, coordinator: &Sim) -> HttpServer {
        let snapshot = Arc::new(node_of(node, Vec::new()));
        let sources =
            Sources::new(Arc::new(move || snapshot.clone())).coordinator(Arc::new(coordinator.link()));
        HttpServer::start("127.0.0.1:0".parse().unwrap(), sources).unwrap()
    }

    async fn gather(peers: &Peers, snapshot: &NodeSnapshot) -> Gathered<Value> {
        peers.gather(snapshot, Value::Null, "/api/v1/status?scope=node").await
    }

    fn nodes<T>(gathered: &Gathered<T>) -> (Vec<u32>, Vec<u32>) {
        let answered = gathered.parts.iter().map(|part| part.node.0);
        (answered.collect(), gathered.missing.iter().map(|peer| peer.node).collect())
    }

    #[tokio::test]
    async fn gather_has_who_answers_and_names_who_does_not() {
        let coordinator = Sim::new(1);
        let (first, second) = (serve(1, &coordinator), serve(2, &coordinator));
        // One that takes connections and says nothing, one that is not there, one without HTTP.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let members = vec![
            member(0, "127.0.0.1:1"),
            member(1, &first.address().to_string()),
            member(2, &second.address().to_string()),
            member(3, &silent.local_addr().unwrap().to_string()),
            member(4, "127.0.0.1:2"),
            member(5, ""),
        ];
        let peers = Peers::new(None);
        let node = node_of(0, members);
        let mut gathered = gather(&peers, &node).await;
        // A busy machine may keep those who are there from answering in time.
        for _ in 0..100 {
            if gathered.parts.len() == 3 {
                break;
            }
            gathered = gather(&peers, &node).await;
        }
        assert_eq!(nodes(&gathered), (vec![0, 1, 2], vec![3, 4, 5]));
        assert_eq!(gathered.parts[2].part["node"], 2);
        let why = |at: usize| gathered.missing[at].why.as_str();
        assert_eq!((why(0), why(2)), ("no answer within 200 ms", "it has no HTTP address"));
        assert!(why(1).starts_with("it cannot be reached: "), "{}", why(1));
    }

    #[test]
    fn keeps_secrets_over_tls_or_on_this_host() {
        let (plain, over_tls) = (Peers::new(None), Peers::new(Some(Arc::new(trusting_nobody()))));
        for (http, is_here) in [
            ("127.0.0.1:7080", true),
            ("localhost:7080", true),
            ("[::1]:7080", true),
            ("[::ffff:127.0.0.1]:7080", true),
            ("192.0.2.1:7080", false),
            ("127.0.0.1.example:7080", false),
            ("localhost:7080@192.0.2.1:7080", false),
            ("", false),
        ] {
            let member = member(1, http);
            assert_eq!(
                (plain.keeps_secrets(&member), over_tls.keeps_secrets(&member)),
                (is_here, true),
                "{http}"
            );
        }
    }

    /// A resolver that takes longer than a question, each time: the peer was looked up anew for each, and so
    /// was missing for good.
    #[tokio::test]
    async fn gather_has_a_peer_whose_name_takes_longer_to_look_up_than_a_question() {
        let coordinator = Sim::new(1);
        let first = serve(1, &coordinator);
        let (answer, asked) = mpsc::channel::<()>();
        let asked = Mutex::new(asked);
        let names = PeerNames::looked_up_by(move |_| {
            let _ = asked.lock().unwrap().recv(); // or the test is over
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))])
        });
        let peers = Peers::by_names(names, None);
        let node = node_of(0, vec![member(1, &format!("localhost:{}", first.address().port()))]);
        peers.learn_names(&node);
        assert_eq!(nodes(&gather(&peers, &node).await), (vec![0], vec![1]));
        answer.send(()).unwrap();
        let mut gathered = gather(&peers, &node).await;
        // A busy machine may keep those who are there from answering in time.
        for _ in 0..100 {
            if gathered.missing.is_empty() {
                break;
            }
            gathered = gather(&peers, &node).await;
        }
        assert_eq!(nodes(&gathered), (vec![0, 1], vec![]));
    }

    /// A node that left in order and is back has two rows for a while: it was asked twice.
    #[test]
    fn others_are_the_present_lives_of_the_other_nodes() {
        let node = node_of(0, vec![life(0, 7), life(1, 8), life(0, 70), life(1, 71), life(2, 9)]);
        let others: Vec<u64> = others(&node).map(|member| member.incarnation.0).collect();
        assert_eq!(others, [71, 9]);
        // Its own row is not seen yet, and the one of its life before is.
        let node = node_of(0, vec![life(0, 7), life(1, 8)]);
        assert_eq!(super::others(&node).map(|member| member.node.0).collect::<Vec<_>>(), [1]);
    }

    /// Those past the 64th were neither asked nor missed.
    #[tokio::test]
    async fn gather_of_a_thousand_nodes_names_each_one() {
        let members = (1..1_024).map(|node| member(node, "")).collect();
        let gathered = gather(&Peers::new(None), &node_of(0, members)).await;
        assert_eq!(nodes(&gathered), (vec![0], (1..1_024).collect::<Vec<u32>>()));
    }

    #[tokio::test]
    async fn gather_without_a_coordinator_still_has_the_peers_of_the_last_look() {
        let coordinator = Sim::new(1);
        let first = serve(1, &coordinator);
        let members = vec![member(1, &first.address().to_string())];
        coordinator.cut_power();
        let peers = Peers::new(None);
        assert_eq!(nodes(&gather(&peers, &node_of(0, members)).await), (vec![0, 1], vec![]));
    }

    #[tokio::test]
    async fn ask_what_is_no_answer_of_that_kind_says_why() {
        let coordinator = Sim::new(1);
        let first = serve(1, &coordinator);
        let peers = Peers::new(None);
        let member = member(1, &first.address().to_string());
        let error = peers.ask::<Value>(&member, "/api/v1/nothing").await.unwrap_err();
        assert_eq!(error, "it answers 404 Not Found");
        let error = peers.ask::<Vec<u32>>(&member, "/api/v1/status").await.unwrap_err();
        assert!(error.starts_with("its answer cannot be read: "), "{error}");
    }
}
