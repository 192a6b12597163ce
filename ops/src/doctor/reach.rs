//! Who is reached, and who is let in: ports, the coordinator, tokens and certificates.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use cell_cluster::Coordinator;
use cell_fabric::{TLS_CERTIFICATE_FILE, TLS_KEY_FILE, TLS_TRUST_FILE};
use cell_node::AccessRules;
use cell_terms::setting::Settings;
use cell_terms::text::with_causes;
use cell_web::TOKENS_FILE;

use super::finding::{Finding, milliseconds, percentiles};
use crate::etcd_settings;
use crate::process_settings::{AGENT_ADDRESS, COORDINATOR_TOKEN_FILE, EMBEDDED, ETCD};
use crate::provider::Provider;
use crate::start_checks::{NAMES_NEXT, address, check_fabric, check_tls, fabric_is_protected, names_lacking};

const COORDINATOR: &str = "coordinator";
/// Reads of the coordinator that are counted.
const CALLS: usize = 50;
const DAY_SECONDS: i64 = 24 * 3_600;
const SOON_DAYS: i64 = 30;
const SECRETS: [(&str, &str); 4] = [
    ("private key", TLS_KEY_FILE),
    ("token for the coordinator", COORDINATOR_TOKEN_FILE),
    ("private key for etcd", "etcd_client_key_file"),
    ("password for etcd", "etcd_password_file"),
];
const CERTIFICATES: [(&str, &str); 4] = [
    ("certificate", TLS_CERTIFICATE_FILE),
    ("trusted certificates", TLS_TRUST_FILE),
    ("certificate for etcd", "etcd_client_certificate_file"),
    ("trusted certificates of etcd", "etcd_ca_file"),
];

pub(super) fn look(settings: &Settings) -> Vec<Finding> {
    let mut findings = vec![
        port(settings, "fabric's port", "listen_address"),
        port(settings, "HTTP's port", "http_address"),
        network(settings),
        coordinator(settings),
        tokens(settings),
    ];
    if !settings.text(AGENT_ADDRESS).is_empty() {
        findings.push(port(settings, "agent's port", AGENT_ADDRESS));
    }
    findings.extend(tls(settings));
    findings.extend(SECRETS.into_iter().filter_map(|(name, of)| secret(settings, name, of)));
    findings.extend(CERTIFICATES.into_iter().filter_map(|(name, of)| certificates(settings, name, of)));
    let lacking = names_lacking(settings);
    findings.extend(lacking.map(|seen| Finding::doubtful("certificate's names", seen, NAMES_NEXT)));
    findings
}

fn port(settings: &Settings, name: &'static str, of: &str) -> Finding {
    let address = match address(settings, of) {
        Ok(address) => address,
        Err(failure) => return Finding::bad(name, failure.what, "see that the name is known on this host"),
    };
    match TcpListener::bind(address) {
        Ok(_) => Finding::well(name, format!("{address} is free")),
        Err(error) => {
            let seen = format!("{address} cannot be listened on: {error}");
            Finding::doubtful(
                name,
                seen,
                "well if the node runs; else give another address, or see who is there",
            )
        }
    }
}

fn network(settings: &Settings) -> Finding {
    let checked = address(settings, "listen_address").and_then(|listen| check_fabric(settings, listen));
    match checked {
        Ok(false) => Finding::well("network", "the fabric is on loopback"),
        Ok(true) => match fabric_is_protected(settings) {
            Ok(()) => Finding::well("network", "the fabric is reached from elsewhere, over TLS and by token"),
            Err(why) => {
                let next =
                    "have everybody on that network trusted (insecure_network), or give TLS and tokens";
                Finding::doubtful("network", why, next)
            }
        },
        Err(failure) => {
            let next = "see listen_address; beyond loopback it takes TLS and tokens, or insecure_network";
            Finding::bad("network", failure.what, next)
        }
    }
}

fn coordinator(settings: &Settings) -> Finding {
    const NEXT: &str = "start it; see coordinator_address, whose the socket is, which token is shown";
    let [deadline, lease] =
        ["coordinator_deadline_ms", "lease_ms"].map(|name| Duration::from_millis(settings.integer(name)));
    match settings.text("coordinator_address") {
        EMBEDDED => Finding::well(COORDINATOR, "embedded: in the node's own process"),
        ETCD => match etcd_settings::open_each(settings) {
            Ok(members) => {
                let members = members.into_iter().map(|(place, member)| {
                    let answer = read_often(&member);
                    EtcdMember { place, answer, cluster: member.cluster_id() }
                });
                of_etcd(&members.collect::<Vec<_>>(), lease)
            }
            Err(failure) => Finding::bad(COORDINATOR, failure.what, "see the settings that begin with etcd_"),
        },
        place => match ask(place, settings, deadline) {
            Ok(reads) => of_reads(reads.words(), reads.late, lease),
            Err(why) => Finding::bad(COORDINATOR, format!("{place} does not answer: {why}"), NEXT),
        },
    }
}

/// What reads of the coordinator at a socket, or over TLS, took; else why it cannot be asked.
fn ask(place: &str, settings: &Settings, deadline: Duration) -> Result<Reads, String> {
    let provider = Provider::open(place, settings, deadline).map_err(|failure| failure.what)?;
    read_often(&provider)
}

/// What reads of a coordinator took.
#[derive(Clone, Copy, Debug)]
struct Reads {
    middle: Duration,
    /// The 99th of a hundred.
    late: Duration,
}

impl Reads {
    fn words(self) -> String {
        format!("{CALLS} reads: p50 {}, p99 {}", milliseconds(self.middle), milliseconds(self.late))
    }
}

/// Reads, after one read that connects and logs in and is not counted; else why there is no answer.
fn read_often(coordinator: &dyn Coordinator) -> Result<Reads, String> {
    let mut times = Vec::with_capacity(CALLS);
    for call in 0..=CALLS {
        let before = Instant::now();
        coordinator.read("cluster/terms").map_err(|error| with_causes(&error))?;
        if call > 0 {
            times.push(before.elapsed());
        }
    }
    let (middle, late) = percentiles(&mut times).unwrap_or_default();
    Ok(Reads { middle, late })
}

fn of_reads(seen: String, late: Duration, lease: Duration) -> Finding {
    if late > lease / 10 {
        return Finding::doubtful(COORDINATOR, seen, "a longer lease_ms, or a coordinator that is less busy");
    }
    Finding::well(COORDINATOR, seen)
}

/// A member of etcd that was asked by itself.
struct EtcdMember {
    place: String,
    answer: Result<Reads, String>,
    /// Which cluster of etcd it is of; none: it has not said.
    cluster: Option<u64>,
}

/// Of the members of etcd. One that answers has most of the others.
fn of_etcd(members: &[EtcdMember], lease: Duration) -> Finding {
    const NEXT: &str =
        "start what does not answer, or see etcd_endpoints, its certificates, user and password";
    const ONE_CLUSTER: &str = "leave in etcd_endpoints the members of one cluster: no node starts with these";
    let clusters: BTreeSet<u64> = members.iter().filter_map(|member| member.cluster).collect();
    let words = members.iter().map(|EtcdMember { place, answer, cluster }| {
        let of = cluster.filter(|_| clusters.len() > 1).map(|id| format!(" of the cluster {id:x}"));
        let of = of.unwrap_or_default();
        match answer {
            Ok(reads) => format!("{place}{of}: {}", reads.words()),
            Err(why) => format!("{place}{of} does not answer: {why}"),
        }
    });
    let seen = words.collect::<Vec<_>>().join("; ");
    if clusters.len() > 1 {
        return Finding::bad(COORDINATOR, seen, ONE_CLUSTER);
    }
    let answered = members.iter().filter_map(|member| member.answer.as_ref().ok());
    match answered.map(|reads| reads.late).max() {
        None => Finding::bad(COORDINATOR, seen, NEXT),
        Some(_) if members.iter().any(|member| member.answer.is_err()) => {
            Finding::doubtful(COORDINATOR, seen, NEXT)
        }
        Some(late) => of_reads(seen, late, lease),
    }
}

fn tokens(settings: &Settings) -> Finding {
    let path = settings.text(TOKENS_FILE);
    if path.is_empty() {
        return Finding::well("tokens", "none: whoever reaches the node may do everything");
    }
    match (AccessRules::open(path), cell_web::exposed(Path::new(path), true)) {
        (Err(error), _) => {
            Finding::bad("tokens", with_causes(&error), "mend the file: `ROLES NAME SHA256` a line")
        }
        (Ok(_), Some(why)) => Finding::bad("tokens", why, "take the rights of others away"),
        (Ok(_), None) => Finding::well("tokens", format!("{path} reads, and nobody else can")),
    }
}

/// Whether a node could not serve TLS as its settings say.
fn tls(settings: &Settings) -> Option<Finding> {
    const NEXT: &str = "see that the files are there, and that key and certificate belong together";
    check_tls(settings).err().map(|failure| Finding::bad("TLS", failure.what, NEXT))
}

fn secret(settings: &Settings, name: &'static str, of: &str) -> Option<Finding> {
    let path = settings.text(of);
    if path.is_empty() {
        return None;
    }
    Some(match (std::fs::metadata(path), cell_web::exposed(Path::new(path), true)) {
        (Err(error), _) => {
            Finding::bad(name, format!("{path}: {error}"), "see that it is there, and its setting")
        }
        (Ok(_), Some(why)) => Finding::bad(name, why, "take the rights of others away"),
        (Ok(_), None) => Finding::well(name, format!("{path} is its user's")),
    })
}

fn certificates(settings: &Settings, name: &'static str, of: &str) -> Option<Finding> {
    const NEXT: &str = "`cell certificates make --renew`, or ask who signs; nodes read it again";
    let path = settings.text(of);
    if path.is_empty() {
        return None;
    }
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX);
    let Some(end) = cell_web::certificates_end(Path::new(path)) else {
        return Some(Finding::bad(name, format!("{path} has no certificate that reads"), NEXT));
    };
    let days = (end - now).div_euclid(DAY_SECONDS);
    let seen = format!("{path}: {days} days left");
    Some(match days {
        days if days < 0 => Finding::bad(name, format!("{path} has ended"), NEXT),
        days if days < SOON_DAYS => Finding::doubtful(name, seen, NEXT),
        _ => Finding::well(name, seen),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Health;
    use crate::settings::tests::settings;

    #[test]
    fn network_beyond_loopback_is_well_with_tls_and_tokens_alone() {
        let of = |more: &[(&str, &str)]| {
            let listen = ("listen_address", "192.0.2.1:7000");
            network(&settings(&[&[listen][..], more].concat())).health
        };
        let (insecure, tls) = (("insecure_network", "true"), (TLS_CERTIFICATE_FILE, "node.crt"));
        assert_eq!(network(&settings(&[])).health, Health::Well, "it is on loopback");
        assert_eq!(of(&[]), Health::Bad);
        assert_eq!(of(&[insecure]), Health::Doubtful);
        assert_eq!(of(&[insecure, tls]), Health::Doubtful);
        assert_eq!(of(&[tls, (TOKENS_FILE, "tokens")]), Health::Well);
    }

    #[test]
    fn tls_that_cannot_be_served_is_bad() {
        assert_eq!(tls(&settings(&[])), None);
        let half = tls(&settings(&[(TLS_KEY_FILE, "node.key")])).unwrap();
        assert!(half.health == Health::Bad && half.seen.contains(TLS_CERTIFICATE_FILE), "{half:?}");
    }

    /// A member that has answered so late; none: not at all.
    fn member(late_ms: Option<u64>, cluster: u64) -> EtcdMember {
        let late = late_ms.map(Duration::from_millis).ok_or_else(|| "refused".to_owned());
        let answer = late.map(|late| Reads { middle: Duration::ZERO, late });
        EtcdMember { place: "http://etcd:2379".to_owned(), answer, cluster: late_ms.map(|_| cluster) }
    }

    #[test]
    fn etcd_is_bad_when_members_are_of_different_clusters() {
        let lease = Duration::from_secs(5);
        let apart = of_etcd(&[member(Some(1), 0xa1), member(Some(1), 0xb2), member(None, 0)], lease);
        assert_eq!(apart.health, Health::Bad);
        assert!(apart.seen.contains("http://etcd:2379 of the cluster b2: "), "{}", apart.seen);
        let one = of_etcd(&[member(Some(1), 0xa1), member(Some(1), 0xa1)], lease);
        assert!(one.health == Health::Well && !one.seen.contains("cluster"), "{one:?}");
    }

    #[test]
    fn etcd_is_bad_when_no_member_answers_and_doubtful_when_one_does_not_or_is_slow() {
        let lease = Duration::from_secs(5);
        let of = |members: &[Option<u64>]| {
            let members = members.iter().map(|late| member(*late, 7));
            of_etcd(&members.collect::<Vec<_>>(), lease)
        };
        assert_eq!(of(&[Some(1), Some(500), Some(2)]).health, Health::Well);
        assert_eq!(of(&[Some(1), Some(501), Some(2)]).health, Health::Doubtful);
        let silent = of(&[Some(1), None, Some(2)]);
        assert_eq!(silent.health, Health::Doubtful);
        assert!(silent.seen.contains("http://etcd:2379 does not answer: refused"), "{}", silent.seen);
        assert!(silent.next.is_some_and(|next| next.contains("etcd_endpoints")));
        assert_eq!(of(&[None, None]).health, Health::Bad);
    }
}
