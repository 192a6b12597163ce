//! Peers: whether this host reaches the fabric of other nodes, whether TLS comes about there, whether they
//! are of this cluster, and how long a hello takes. Whose they are is not known before: beyond loopback none
//! is sent a token without TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cell_client::{AttemptError, Client, ClientError, ClientOptions, Transport};
use cell_cluster::Members;
use cell_fabric::{CloseReason, HelloRefusal, TLS_CERTIFICATE_FILE, TLS_TRUST_FILE, TlsFailure, TlsTrust};
use cell_resolver::look_up_within;
use cell_terms::NodeId;
use cell_terms::setting::Settings;
use cell_terms::text::with_causes;

use super::finding::{Finding, milliseconds, percentiles};
use crate::process_settings::EMBEDDED;
use crate::provider::Provider;
use crate::store::says_nothing;

const PEER: &str = "peer";
/// Connections that are made to a peer, one after the other.
const TRIES: usize = 5;
/// What each may take, and a call of the coordinator.
const WITHIN: Duration = Duration::from_secs(2);
/// A hello takes a few times there and back, and under TLS a signature.
const SLOW: Duration = Duration::from_millis(100);
const OTHER_CLUSTER: &str =
    "see advertise_address and listen_address of the node there, and which coordinator both ends have";

/// What a peer said in its hellos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hello {
    node: NodeId,
    /// Of which cluster it is.
    cluster: u64,
    /// From when it was connected to, in the middle of all tries.
    took: Duration,
}

/// How a peer is talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Tls,
    Clear,
    /// In the clear, so without the token that was given.
    TokenKept,
}

impl Way {
    fn words(self) -> &'static str {
        match self {
            Way::Tls => "over TLS",
            Way::Clear => "in the clear",
            Way::TokenKept => {
                "in the clear (the token was not sent: beyond loopback it is sent over TLS alone)"
            }
        }
    }
}

/// What a peer is asked, and how.
struct Call {
    server: String,
    options: ClientOptions,
    way: Way,
}

impl Call {
    /// Without TLS a token is sent to addresses of loopback alone, and those are not looked up again.
    fn new(place: &str, options: &ClientOptions) -> Call {
        let call = |way| Call { server: place.to_owned(), options: options.clone(), way };
        if options.trust.is_some() {
            return call(Way::Tls);
        }
        if options.token.is_empty() {
            return call(Way::Clear);
        }
        let found = look_up_within(place, WITHIN).unwrap_or_default();
        if found.is_empty() || found.iter().any(|address| !address.ip().to_canonical().is_loopback()) {
            let mut call = call(Way::TokenKept);
            call.options.token.clear();
            return call;
        }
        let found: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
        Call { server: found.join(","), ..call(Way::Clear) }
    }
}

/// What became of it.
struct Asked<'p> {
    place: &'p str,
    way: Way,
    said: Result<Hello, ClientError>,
}

/// Looks at each peer. `token` is what they are shown.
pub(super) fn look(settings: &Settings, peers: &[String], token: Option<&str>) -> Vec<Finding> {
    if peers.is_empty() {
        return Vec::new();
    }
    let options = match options(settings, token) {
        Ok(options) => options,
        Err(why) => return vec![Finding::bad(PEER, why, "see tls_trust_file and tls_certificate_file")],
    };
    let asked = peers.iter().map(|place| {
        let call = Call::new(place, &options);
        Asked { place, way: call.way, said: ask(&call) }
    });
    judge(&asked.collect::<Vec<_>>(), own_cluster(settings))
}

/// How peers are connected to: as the settings have nodes do it.
fn options(settings: &Settings, token: Option<&str>) -> Result<ClientOptions, String> {
    let file = |name| Some(settings.text(name)).filter(|path| !path.is_empty()).map(Path::new);
    let trusted = file(TLS_TRUST_FILE).or_else(|| file(TLS_CERTIFICATE_FILE));
    let trust = trusted.map(TlsTrust::open).transpose().map_err(|error| with_causes(&error))?;
    let within_ms = u64::try_from(WITHIN.as_millis()).unwrap_or(u64::MAX);
    Ok(ClientOptions {
        trust,
        token: token.unwrap_or_default().into(),
        transport: Transport::Tcp,
        connect_timeout_ms: within_ms,
        deadline_ms: within_ms,
        ..ClientOptions::default()
    })
}

/// What a peer says, of several connections of which none fails.
fn ask(call: &Call) -> Result<Hello, ClientError> {
    let mut times = Vec::with_capacity(TRIES);
    let mut said = (NodeId(0), 0);
    for _ in 0..TRIES {
        let before = Instant::now();
        let client = Client::connect_within(&call.server, call.options.clone(), WITHIN)?;
        times.push(before.elapsed());
        if let Some(server) = client.server() {
            said = (server.node, server.incarnation.cluster());
        }
    }
    let (took, _) = percentiles(&mut times).unwrap_or_default();
    let (node, cluster) = said;
    Ok(Hello { node, cluster, took })
}

/// The cluster whose members the coordinator of the settings knows; none: it has none, is one's own process,
/// or does not answer, which is reported elsewhere.
fn own_cluster(settings: &Settings) -> Option<u64> {
    let place = settings.text("coordinator_address");
    if place == EMBEDDED {
        return None;
    }
    let provider = Provider::open(place, settings, WITHIN).ok()?;
    let members = Members::new(Arc::new(provider)).list().ok()?;
    members.first().map(|member| member.incarnation.cluster())
}

/// Of all peers. Where nobody says of which cluster they should be, the first one does.
fn judge(asked: &[Asked<'_>], own: Option<u64>) -> Vec<Finding> {
    let first = asked.iter().find_map(|of| Some((of.place, of.said.as_ref().ok()?.cluster)));
    let (whose, wanted) = match (own, first) {
        (Some(own), _) => ("the coordinator's members", Some(own)),
        (None, Some((place, cluster))) => (place, Some(cluster)),
        (None, None) => ("", None),
    };
    let of = |Asked { place, way, said }: &Asked<'_>| match said {
        Ok(hello) if wanted.is_some_and(|wanted| wanted != hello.cluster) => {
            let seen = format!("{place}: node {} is of another cluster than {whose}", hello.node.0);
            Finding::bad(PEER, seen, OTHER_CLUSTER)
        }
        Ok(hello) => of_hello(place, *hello, *way),
        Err(error) => of_error(place, *way, error),
    };
    asked.iter().map(of).collect()
}

fn of_hello(place: &str, hello: Hello, way: Way) -> Finding {
    const NEXT: &str =
        "see to the network between the two hosts, and to how busy that one is: requests take as long";
    let Hello { node, took, .. } = hello;
    let seen = format!(
        "{place}: node {} says hello {}, after {} in the middle of {TRIES} tries",
        node.0,
        way.words(),
        milliseconds(took)
    );
    if took > SLOW { Finding::doubtful(PEER, seen, NEXT) } else { Finding::well(PEER, seen) }
}

fn of_error(place: &str, way: Way, error: &ClientError) -> Finding {
    let seen = format!("{place}: {}", with_causes(error));
    match error {
        ClientError::Unauthorized if way == Way::TokenKept => Finding::doubtful(
            PEER,
            format!("{seen}; it is reached {}, and does not say of which cluster it is", way.words()),
            "give this host a tls_trust_file if that node serves TLS; else look from that node's own host, at \
             a loopback address",
        ),
        ClientError::Unauthorized => Finding::doubtful(
            PEER,
            format!("{seen}; it is reached, and does not say of which cluster it is"),
            "give a token of any role as CELL_TOKEN or --token, if it has to say that, too",
        ),
        ClientError::TooManyConnections { .. } => {
            Finding::doubtful(PEER, seen, "close clients there, or raise fabric_connections_max")
        }
        error => Finding::bad(PEER, seen, next(error)),
    }
}

/// As a peer without TLS ends it; one that just died may, too, so that it is no [`ClientError::NoTls`].
const NO_WORD_OF_TLS: AttemptError = AttemptError::Closed(CloseReason::Tls(TlsFailure::Unanswered));

fn next(error: &ClientError) -> &'static str {
    match error {
        ClientError::Resolve { .. } => "see that this host knows the name (/etc/hosts, DNS)",
        ClientError::Unreachable { reason, .. } if says_nothing(reason) => {
            "see whether a node runs there and holds its lease (its /readyz says), and that no firewall drops \
             what goes to this port"
        }
        ClientError::Unreachable { reason, .. } if *reason == NO_WORD_OF_TLS => {
            "give the node there a tls_certificate_file, if it has none: all nodes of a cluster serve TLS, \
             or none does; else see what it has logged"
        }
        ClientError::Unreachable { .. } => {
            "start the node there; see its listen_address, and that no firewall refuses this port"
        }
        ClientError::WrongService { .. } => {
            "give the fabric's port, which is advertised (advertise_address), and not that of HTTP"
        }
        ClientError::NoTls { reason, .. } => about_tls(reason),
        ClientError::VersionUnsupported { .. } => "run one version of Cell on all hosts",
        _ => "see what the node there has logged",
    }
}

fn about_tls(reason: &AttemptError) -> &'static str {
    match reason {
        AttemptError::Closed(CloseReason::RefusedByPeer(HelloRefusal::TlsWanted)) => {
            "give this host certificates as the peer has them: tls_certificate_file, tls_key_file and \
             tls_trust_file"
        }
        AttemptError::Closed(CloseReason::Tls(TlsFailure::PeerPlain)) => {
            "give the node there a tls_certificate_file: all nodes of a cluster serve TLS, or none does"
        }
        AttemptError::Closed(CloseReason::Tls(TlsFailure::WrongName)) => {
            "name the peer as its certificate does, or give it one for this name (`cell certificates make`)"
        }
        AttemptError::Closed(CloseReason::Tls(TlsFailure::Untrusted)) => {
            "give the certificate of the CA that signed the peer's as tls_trust_file"
        }
        AttemptError::Closed(CloseReason::Tls(TlsFailure::CertificateWanted)) => {
            "give the fabric's port, which is advertised (advertise_address): etcd's wants certificates"
        }
        _ => "see to the peer's certificate (tls_certificate_file) and to the clocks of both hosts",
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Health;
    use super::*;

    fn hello(cluster: u64, took_ms: u64) -> Result<Hello, ClientError> {
        Ok(Hello { node: NodeId(1), cluster, took: Duration::from_millis(took_ms) })
    }

    fn over_tls<const N: usize>(said: [(&str, Result<Hello, ClientError>); N]) -> [Asked<'_>; N] {
        said.map(|(place, said)| Asked { place, way: Way::Tls, said })
    }

    fn health(asked: &[Asked<'_>], own: Option<u64>) -> Vec<Health> {
        judge(asked, own).iter().map(|finding| finding.health).collect()
    }

    /// Whoever listened at the name of a peer was sent `CELL_TOKEN`.
    #[test]
    fn token_is_sent_in_the_clear_to_loopback_alone_and_the_answer_says_so() {
        let with = |token: &str| ClientOptions { token: token.into(), ..ClientOptions::default() };
        let of = |place: &str| {
            let Call { options, way, .. } = Call::new(place, &with("secret"));
            (way, options.token)
        };
        for here in ["127.0.0.1:7000", "[::1]:7000", "[::ffff:127.0.0.1]:7000", "localhost:7000"] {
            assert_eq!(of(here), (Way::Clear, b"secret".to_vec()), "{here}");
        }
        for there in ["192.0.2.1:7000", "[2001:db8::1]:7000", "0.0.0.0:7000", "nowhere.invalid:7000"] {
            assert_eq!(of(there), (Way::TokenKept, Vec::new()), "{there}");
        }
        assert_eq!(Call::new("192.0.2.1:7000", &with("")).way, Way::Clear, "there is none");
        let said = of_hello("a:1", hello(7, 1).unwrap(), Way::TokenKept);
        assert!(said.seen.contains("says hello in the clear (the token was not sent"), "{said:?}");
        let said = of_error("a:1", Way::TokenKept, &ClientError::Unauthorized);
        assert!(said.seen.contains("the token was not sent"), "{said:?}");
        assert!(said.next.is_some_and(|next| next.contains("tls_trust_file")), "{said:?}");
    }

    #[test]
    fn peers_are_of_the_coordinators_cluster_or_else_of_the_first_ones() {
        let asked = over_tls([("a:1", hello(7, 1)), ("b:1", hello(8, 1)), ("c:1", hello(7, 1))]);
        assert_eq!(health(&asked, None), [Health::Well, Health::Bad, Health::Well]);
        assert_eq!(health(&asked, Some(8)), [Health::Bad, Health::Well, Health::Bad]);
        let other = &judge(&asked, None)[1];
        assert_eq!(other.seen, "b:1: node 1 is of another cluster than a:1");
        assert_eq!(other.next, Some(OTHER_CLUSTER));
    }

    #[test]
    fn peer_whose_hello_takes_its_time_is_doubtful_and_how_long_is_said() {
        let asked = over_tls([("a:1", hello(7, 100)), ("b:1", hello(7, 101))]);
        assert_eq!(health(&asked, None), [Health::Well, Health::Doubtful]);
        let words = "b:1: node 1 says hello over TLS, after 101.00 ms in the middle of 5 tries";
        assert_eq!(judge(&asked, None)[1].seen, words);
    }

    #[test]
    fn peer_that_is_not_let_in_or_not_met_says_what_to_do() {
        let server = || Box::new("127.0.0.1:7000".parse().unwrap());
        let closed = AttemptError::Closed;
        let unreachable = |reason| ClientError::Unreachable { server: server(), reason };
        let no_tls = |reason| ClientError::NoTls { server: server(), reason: closed(reason) };
        let stranger = cell_fabric::Stranger::Http;
        for (error, wanted, words) in [
            (unreachable(AttemptError::NoHello { timeout_ms: 9 }), Health::Bad, "holds its lease"),
            (unreachable(AttemptError::NotStarted), Health::Bad, "start the node there"),
            (unreachable(NO_WORD_OF_TLS), Health::Bad, "if it has none"),
            (
                ClientError::WrongService {
                    server: server(),
                    reason: closed(CloseReason::Stranger(stranger)),
                },
                Health::Bad,
                "fabric's port",
            ),
            (
                no_tls(CloseReason::RefusedByPeer(HelloRefusal::TlsWanted)),
                Health::Bad,
                "as the peer has them",
            ),
            (no_tls(CloseReason::Tls(TlsFailure::PeerPlain)), Health::Bad, "or none does"),
            (no_tls(CloseReason::Tls(TlsFailure::WrongName)), Health::Bad, "as its certificate does"),
            (no_tls(CloseReason::Tls(TlsFailure::Untrusted)), Health::Bad, "tls_trust_file"),
            (no_tls(CloseReason::Tls(TlsFailure::Ended)), Health::Bad, "clocks of both"),
            (no_tls(CloseReason::Tls(TlsFailure::CertificateWanted)), Health::Bad, "fabric's port"),
            (ClientError::Unauthorized, Health::Doubtful, "CELL_TOKEN"),
            (ClientError::TooManyConnections { server: server(), waited_ms: 9 }, Health::Doubtful, "raise"),
        ] {
            let finding = of_error("a:1", Way::Tls, &error);
            assert_eq!(finding.health, wanted, "{error}");
            assert!(finding.next.is_some_and(|next| next.contains(words)), "{finding:?}");
            assert!(finding.seen.starts_with("a:1: "), "{finding:?}");
        }
    }
}
