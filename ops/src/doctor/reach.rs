//! Who is reached, and who is let in: ports, the coordinator, tokens and certificates.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use cell_cluster::{Coordinator, Remote};
use cell_node::AccessRules;
use cell_terms::setting::Settings;
use cell_terms::text::with_causes;
use cell_web::TOKENS_FILE;

use super::finding::{Finding, milliseconds, percentiles};
use crate::process_settings::EMBEDDED;
use crate::start_checks::{address, check_fabric};

const CALLS: usize = 50;
const DAY_SECONDS: i64 = 24 * 3_600;
const SOON_DAYS: i64 = 30;
const CERTIFICATES: [(&str, &str); 2] =
    [("certificate", "http_tls_certificate_file"), ("trusted certificates", "http_tls_trust_file")];

pub(super) fn look(settings: &Settings) -> Vec<Finding> {
    let mut findings = vec![
        port(settings, "fabric's port", "listen_address"),
        port(settings, "HTTP's port", "http_address"),
        network(settings),
        coordinator(settings),
        tokens(settings),
    ];
    findings.extend(secret(settings));
    findings.extend(CERTIFICATES.into_iter().filter_map(|(name, of)| certificates(settings, name, of)));
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
        Ok(true) => {
            let seen = "the fabric is reached from elsewhere without TLS";
            Finding::doubtful("network", seen, "have everybody on that network trusted (insecure_network)")
        }
        Err(failure) => Finding::bad("network", failure.what, "see listen_address and insecure_network"),
    }
}

fn coordinator(settings: &Settings) -> Finding {
    const NAME: &str = "coordinator";
    let place = settings.text("coordinator_address");
    if place == EMBEDDED {
        return Finding::well(NAME, "embedded: in the node's own process");
    }
    let deadline = Duration::from_millis(settings.integer("coordinator_deadline_ms"));
    let remote = Remote::new(place, deadline);
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let before = Instant::now();
        if let Err(error) = remote.read("cluster/terms") {
            let seen = format!("{place} does not answer: {}", with_causes(&error));
            return Finding::bad(NAME, seen, "start it, or see coordinator_address and whose the socket is");
        }
        times.push(before.elapsed());
    }
    let (middle, late) = percentiles(&mut times).unwrap_or_default();
    let seen = format!("{CALLS} reads: p50 {}, p99 {}", milliseconds(middle), milliseconds(late));
    let lease = Duration::from_millis(settings.integer("lease_ms"));
    if late > lease / 10 {
        return Finding::doubtful(NAME, seen, "a longer lease_ms, or a coordinator that is less busy");
    }
    Finding::well(NAME, seen)
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

fn secret(settings: &Settings) -> Option<Finding> {
    let path = settings.text("http_tls_key_file");
    if path.is_empty() {
        return None;
    }
    Some(match (std::fs::metadata(path), cell_web::exposed(Path::new(path), true)) {
        (Err(error), _) => Finding::bad("private key", format!("{path}: {error}"), "see http_tls_key_file"),
        (Ok(_), Some(why)) => Finding::bad("private key", why, "take the rights of others away"),
        (Ok(_), None) => Finding::well("private key", format!("{path} is its user's")),
    })
}

fn certificates(settings: &Settings, name: &'static str, of: &str) -> Option<Finding> {
    const NEXT: &str = "`cell certificates make --renew`, or ask who signs; then start the nodes again";
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
