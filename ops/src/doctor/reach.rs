//! Who is reached, and who is let in: ports, tokens and certificates.

use std::net::TcpListener;
use std::path::Path;
use std::time::SystemTime;

use cell_fabric::{TLS_CERTIFICATE_FILE, TLS_KEY_FILE, TLS_TRUST_FILE};
use cell_node::AccessRules;
use cell_terms::setting::Settings;
use cell_terms::text::with_causes;
use cell_web::TOKENS_FILE;
use rustls::CertificateError;

use super::coordinator;
use super::finding::Finding;
use crate::process_settings::{AGENT_ADDRESS, COORDINATOR_TOKEN_FILE};
use crate::start_checks::{NAMES_NEXT, address, check_fabric, check_tls, fabric_is_protected, names_lacking};

const RIGHTS_NEXT: &str = "take the rights of others away: chmod o-rwx";
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
        coordinator::look(settings),
        tokens(settings),
    ];
    if !settings.text(AGENT_ADDRESS).is_empty() {
        findings.push(port(settings, "agent's port", AGENT_ADDRESS));
    }
    findings.extend(tls(settings));
    findings.extend(SECRETS.into_iter().filter_map(|(name, of)| secret(settings, name, of)));
    findings.extend(CERTIFICATES.into_iter().filter_map(|(name, of)| certificates(settings, name, of)));
    findings.extend(own_certificate(settings));
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

fn tokens(settings: &Settings) -> Finding {
    let path = settings.text(TOKENS_FILE);
    if path.is_empty() {
        return Finding::well("tokens", "none: whoever reaches the node may do everything");
    }
    match (AccessRules::open(path), cell_web::exposed(Path::new(path), true)) {
        (Err(error), _) => {
            Finding::bad("tokens", with_causes(&error), "mend the file: `ROLES NAME SHA256` a line")
        }
        (Ok(_), Some(why)) => Finding::bad("tokens", what_is_exposed(&why), RIGHTS_NEXT),
        (Ok(_), None) => Finding::well("tokens", format!("{path} reads, and nobody else can")),
    }
}

/// Without what helps, which a finding says in its own place.
fn what_is_exposed(why: &str) -> &str {
    why.split_once("; next: ").map_or(why, |(what, _)| what)
}

/// Whether a node could not serve TLS as its settings say.
fn tls(settings: &Settings) -> Option<Finding> {
    const NEXT: &str = "see that the files are there, and that key and certificate belong together";
    check_tls(settings).err().map(|failure| Finding::bad("TLS", failure.what, NEXT))
}

/// Where the certificate that the node shows is none that its own file of trusted ones has, or has signed.
/// One that has ended is reported elsewhere.
fn own_certificate(settings: &Settings) -> Option<Finding> {
    const NEXT: &str = "give a certificate of a CA that is in tls_trust_file, or add its CA there, at every \
                        node and client; to roll a CA, have both there first (docs/CLI.md)";
    let trusted = settings.text(TLS_TRUST_FILE);
    if trusted.is_empty() {
        return None; // the certificate itself is what is trusted
    }
    let tls = check_tls(settings).ok()??;
    let (shown, chain) = tls.shown();
    let error = tls.trust().check(&chain).err()?;
    if matches!(
        error,
        rustls::Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. }
        )
    ) {
        return None;
    }
    let shown = shown.display();
    let seen = format!("whoever trusts by {trusted} refuses the certificate of {shown}: {error}");
    Some(Finding::bad("certificate's CA", seen, NEXT))
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
        (Ok(_), Some(why)) => Finding::bad(name, what_is_exposed(&why), RIGHTS_NEXT),
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
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

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

    /// `next:` stood there twice.
    #[test]
    fn tokens_that_others_read_have_one_thing_to_do() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("admin root {}\n", "0".repeat(64))).unwrap();
        std::fs::set_permissions(file.path(), Permissions::from_mode(0o644)).unwrap();
        let path = file.path().to_str().unwrap();
        for found in [
            tokens(&settings(&[(TOKENS_FILE, path)])),
            secret(&settings(&[(TLS_KEY_FILE, path)]), "private key", TLS_KEY_FILE).unwrap(),
        ] {
            assert!(found.health == Health::Bad && found.seen.ends_with(path), "{found:?}");
            assert!(found.next.is_some_and(|next| next.contains("chmod o-rwx")), "{found:?}");
        }
    }

    /// A CA of this name signs a certificate, in this folder.
    fn signed(folder: &Path, ca: &str) -> [String; 3] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, ca);
        let authority = params.self_signed(&key).unwrap().pem();
        let (issuer, own) = (Issuer::new(params, key), KeyPair::generate().unwrap());
        let own_params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = own_params.signed_by(&own, &issuer).unwrap().pem();
        [("ca", authority), ("crt", certificate), ("key", own.serialize_pem())].map(|(name, text)| {
            let path = folder.join(format!("{ca}.{name}"));
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        })
    }

    /// Each was well by itself, and no peer took the node.
    #[test]
    fn certificate_of_a_ca_that_is_not_trusted_is_bad() {
        let folder = tempfile::tempdir().unwrap();
        let [[one, certificate, key], [two, ..]] = ["one", "two"].map(|ca| signed(folder.path(), ca));
        let of = |trust: &str| {
            let files = [(TLS_CERTIFICATE_FILE, &*certificate), (TLS_KEY_FILE, &*key)];
            own_certificate(&settings(&[&files[..], &[(TLS_TRUST_FILE, trust)]].concat()))
        };
        assert_eq!(of(&one), None);
        assert_eq!(of(""), None);
        let found = of(&two).unwrap();
        assert!(found.health == Health::Bad && found.seen.contains(&*two), "{found:?}");
        assert!(found.next.is_some_and(|next| next.contains("tls_trust_file")), "{found:?}");
    }
}
