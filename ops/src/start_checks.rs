//! What is refused of a node's settings before anything is made.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use cell_fabric::{NodeTls, TLS_CERTIFICATE_FILE, TLS_TRUST_FILE};
use cell_node::AccessRules;
use cell_resolver::look_up_within;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::setting::Settings;
use cell_terms::text::with_causes;
use cell_web::{HttpServer, TOKENS_FILE, WebError, is_self_issued};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

use crate::exit::{Exit, Failure};
use crate::process_settings::AGENT_ADDRESS;

/// Where the fabric listens.
const LISTEN: &str = "listen_address";
/// Where others are to connect to it.
const ADVERTISE: &str = "advertise_address";
/// Where HTTP is served.
const HTTP: &str = "http_address";
/// Where others find it.
const ADVERTISE_HTTP: &str = "advertise_http_address";
/// Whether it may listen beyond loopback though nothing protects it there.
const INSECURE: &str = "insecure_network";

/// A name that nobody has looked up in this time leads nowhere.
const LOOKED_UP_WITHIN: Duration = Duration::from_secs(30);

/// What helps where a certificate is not for a host that is advertised.
pub(crate) const NAMES_NEXT: &str = "make one for all names and addresses of this host (`cell certificates \
    make --renew --host NAME,ADDRESS`), or advertise a name that it has";

/// What is said of a fabric that is not protected.
const OPEN_WORDS: &str = "the fabric is open to its network (insecure_network)";
const WITHOUT_TLS: &str =
    "without TLS whoever is on its network can read and change what goes over the fabric";
const WITHOUT_TOKENS: &str = "without tokens whoever is on its network can do everything over the fabric";

/// The address that a setting is; a name is looked up.
pub(crate) fn address(settings: &Settings, name: &str) -> Result<SocketAddr, Failure> {
    let text = settings.text(name);
    let refused = |why: &dyn fmt::Display| {
        // A name may lead somewhere at the next start.
        Failure::new(Exit::Error, format!("`{name}` cannot be `{text}`: {why}"))
            .next("see that this host knows the name (/etc/hosts, DNS), or give an address")
    };
    // At least one, if any.
    look_up_within(text, LOOKED_UP_WITHIN).map(|found| found[0]).map_err(|error| refused(&error))
}

/// Where others are to connect: a host, by name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advertised {
    host: String,
    port: u16,
}

impl Advertised {
    fn read(text: &str) -> Option<Advertised> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Advertised { host: host.to_owned(), port: port.parse().ok()? })
    }

    /// Without the brackets of an address.
    fn bare_host(&self) -> &str {
        self.host.trim_matches(['[', ']'])
    }

    fn ip(&self) -> Option<IpAddr> {
        self.bare_host().parse().ok()
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The same host with a port that is so much higher.
    pub(crate) fn shifted(&self, by: u16) -> Advertised {
        Advertised { port: self.port + by, ..self.clone() }
    }
}

impl fmt::Display for Advertised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// An address that is given in place of the one that is listened on; none if it is not set.
fn advertised(settings: &Settings, name: &str) -> Result<Option<Advertised>, Failure> {
    let text = settings.text(name);
    if text.is_empty() {
        return Ok(None);
    }
    let given = Advertised::read(text);
    match given.filter(|given| given.port != 0 && given.ip().is_none_or(|ip| !ip.is_unspecified())) {
        Some(given) => Ok(Some(given)),
        None => {
            let what = format!("`{name}` cannot be `{text}`: nobody can connect to it");
            Err(Failure::usage(what).next("give the address and port that others reach"))
        }
    }
}

/// Where others are to connect, if that is not the address that is listened on: what is given, or the name by
/// which that address is given, which may lead elsewhere later.
fn advertised_or_named(
    settings: &Settings,
    given: &str,
    listen: &str,
) -> Result<Option<Advertised>, Failure> {
    let listen = || Advertised::read(settings.text(listen));
    let named = || listen().filter(|listen| listen.port != 0 && listen.ip().is_none());
    Ok(advertised(settings, given)?.or_else(named))
}

/// Where others are to connect to the fabric, if that is not the address on which it listens.
pub(crate) fn advertised_fabric(settings: &Settings) -> Result<Option<Advertised>, Failure> {
    advertised_or_named(settings, ADVERTISE, LISTEN)
}

/// Where others find HTTP, if that is not the address on which it is served.
pub(crate) fn advertised_http(settings: &Settings) -> Result<Option<Advertised>, Failure> {
    advertised_or_named(settings, ADVERTISE_HTTP, HTTP)
}

/// Where others reach the agent that listens there: at the name or address that it was given, and where that
/// is every address of this host, at the host of the fabric.
///
/// # Errors
/// What is advertised of the fabric is what nobody can connect to.
pub(crate) fn advertised_agent(settings: &Settings, listening: SocketAddr) -> Result<String, Failure> {
    let named = |name: &str| Advertised::read(settings.text(name)).map(|given| given.host);
    let host = match listening.ip().is_unspecified() {
        true => advertised_fabric(settings)?.map(|given| given.host).or_else(|| named(LISTEN)),
        false => named(AGENT_ADDRESS),
    };
    let host = host.unwrap_or_default(); // each of these settings is a host and a port
    Ok(Advertised { host, port: listening.port() }.to_string())
}

/// Whether TLS and tokens keep others on its network from what the fabric serves; what they can do if not.
pub(crate) fn fabric_is_protected(settings: &Settings) -> Result<(), &'static str> {
    match HttpServer::is_guarded(settings) {
        true => Ok(()),
        false if settings.text(TLS_CERTIFICATE_FILE).is_empty() => Err(WITHOUT_TLS),
        false => Err(WITHOUT_TOKENS),
    }
}

/// Refuses to serve clients on an address where they are not safe, or that cannot be advertised. Whether it
/// is one that is not loopback.
pub(crate) fn check_fabric(settings: &Settings, listen: SocketAddr) -> Result<bool, Failure> {
    let ip = listen.ip().to_canonical();
    if ip.is_loopback() {
        return Ok(false);
    }
    if let Err(why) = fabric_is_protected(settings)
        && !settings.flag(INSECURE)
        && !planted(Mutant::OpenNetworkTaken)
    {
        let next = "give a loopback address as listen_address, TLS (tls_certificate_file, tls_key_file) and \
                    tokens_file, or insecure_network = true where everybody on that network is trusted";
        return Err(Failure::usage(format!("{listen} is not a loopback address: {why}")).next(next));
    }
    if ip.is_unspecified() && advertised_fabric(settings)?.is_none() {
        let what = format!("`{LISTEN}` is {listen}, every address of this host, which nobody can connect to");
        return Err(Failure::usage(what).next("give advertise_address: where others reach this host"));
    }
    Ok(true)
}

/// What an operator is to know all the time of a fabric that is reached from elsewhere, and of names by which
/// the fabric and HTTP are not. They listen at these addresses.
pub(crate) fn network_warnings(
    settings: &Settings,
    (listen, beyond_loopback): (SocketAddr, bool),
    http: SocketAddr,
) -> Vec<String> {
    let why = fabric_is_protected(settings).err().filter(|_| beyond_loopback);
    let open = why.map(|why| format!("{OPEN_WORDS}: {why}"));
    let fabric = loopback_name(settings, (LISTEN, ADVERTISE), listen);
    let http = loopback_name(settings, (HTTP, ADVERTISE_HTTP), http);
    open.into_iter().chain(fabric).chain(http).collect()
}

/// What is said of a name that leads to loopback on this host, and that is advertised: Debian's /etc/hosts
/// has the host's own name so. Where another name is advertised than the one that is listened on, something
/// else may answer there and pass on to the node.
fn loopback_name(
    settings: &Settings,
    (listen, advertise): (&str, &str),
    listening: SocketAddr,
) -> Option<String> {
    let given = advertised_or_named(settings, advertise, listen).ok()??; // one that is wrong is refused
    let listened = Advertised::read(settings.text(listen))?;
    let (host, ip) = (&given.host, listening.ip().to_canonical());
    let is_own = given.ip().is_none() && host.eq_ignore_ascii_case(&listened.host);
    let is_local = host.eq_ignore_ascii_case("localhost"); // it says so itself
    (is_own && !is_local && ip.is_loopback()).then(|| {
        format!(
            "`{given}` is advertised and cannot be reached: this host knows {host} as {ip}, a loopback \
             address, and {listen} listens there; give {host} an address that others reach in /etc/hosts, or \
             such an address as {listen} and the name as {advertise}"
        )
    })
}

/// Where a certificate is not for what is advertised, of the fabric and of HTTP: they refuse it there. None
/// as well where it is trusted byte by byte, whatever its names are, and where TLS cannot be served.
pub(crate) fn names_lacking(settings: &Settings) -> Option<String> {
    names_lacking_now(settings, &check_tls(settings).ok()??)
}

/// The same, of the certificate that is shown now.
pub(crate) fn names_lacking_now(settings: &Settings, tls: &NodeTls) -> Option<String> {
    let (path, chain) = tls.shown();
    let own = chain.first()?;
    // One that a CA has signed is not what others trust, though it is in this node's own file.
    let is_shared = !settings.text(TLS_TRUST_FILE).is_empty() || is_self_issued(own);
    if is_shared && tls.trust().certificates().contains(own) {
        return None;
    }
    let advertised = [(LISTEN, ADVERTISE), (HTTP, ADVERTISE_HTTP)];
    let advertised = advertised
        .into_iter()
        .filter_map(|(listen, advertise)| advertised_elsewhere(settings, listen, advertise));
    let lacking = advertised.filter(|advertised| !is_for(own, advertised.bare_host()));
    let mut hosts: Vec<String> = lacking.map(|advertised| advertised.bare_host().to_owned()).collect();
    hosts.dedup();
    (!hosts.is_empty()).then(|| {
        let (path, hosts) = (path.display(), hosts.join(" and "));
        format!(
            "the certificate of {path} is not for {hosts}: that is advertised, and others refuse it there"
        )
    })
}

/// With what helps.
pub(crate) fn with_names_next(lacking: String) -> String {
    format!("{lacking}; {NAMES_NEXT}")
}

/// What is advertised; none of an address on loopback that was not given for that: nobody comes from
/// elsewhere.
fn advertised_elsewhere(settings: &Settings, listen: &str, advertise: &str) -> Option<Advertised> {
    let advertised = advertised_or_named(settings, advertise, listen).ok()?; // one that is wrong is refused
    let is_elsewhere = |ip: IpAddr| !ip.is_unspecified() && !ip.to_canonical().is_loopback();
    let listened = || Advertised::read(settings.text(listen));
    advertised.or_else(|| listened().filter(|listened| listened.ip().is_some_and(is_elsewhere)))
}

/// Whether those who connect to this host take the certificate for its own.
fn is_for(certificate: &CertificateDer<'_>, host: &str) -> bool {
    let (Ok(certificate), Ok(name)) = (ParsedCertificate::try_from(certificate), ServerName::try_from(host))
    else {
        return false;
    };
    verify_server_name(&certificate, &name).is_ok()
}

/// The TLS that the settings ask for, if any.
pub(crate) fn check_tls(settings: &Settings) -> Result<Option<NodeTls>, Failure> {
    NodeTls::from_settings(settings).map_err(|error| explain_web(error.into()))
}

/// Refuses an address of HTTP that needs more than is given, and files of it that are wrong.
pub(crate) fn check_http(settings: &Settings, http: SocketAddr) -> Result<AccessRules, Failure> {
    HttpServer::check_address(http, Some(settings)).map_err(explain_web)?;
    AccessRules::open(settings.text(TOKENS_FILE)).map_err(|error| explain_web(error.into()))
}

/// Why a node cannot serve HTTP, and what helps.
pub(crate) fn explain_web(error: WebError) -> Failure {
    let next = match error {
        WebError::Tokens(_) => "mend the file that tokens_file names: `ROLES NAME SHA256` a line",
        WebError::Tls(_) => "mend tls_certificate_file, tls_key_file and tls_trust_file: PEM files",
        WebError::NotLoopback { .. } => "give a loopback address as http_address, or TLS and tokens",
        _ => "give another http_address",
    };
    // An address may be there, or let go, at the next start.
    let exit = if matches!(error, WebError::Bind { .. }) { Exit::Error } else { Exit::Usage };
    Failure::new(exit, with_causes(&error)).next(next)
}

#[cfg(test)]
mod tests {
    use cell_fabric::TLS_KEY_FILE;
    use rcgen::{CertificateParams, KeyPair};
    use tempfile::TempDir;

    use super::*;
    use crate::settings::tests::settings;

    fn check(values: &[(&str, &str)]) -> Result<bool, String> {
        let settings = settings(values);
        let listen = address(&settings, LISTEN).unwrap();
        check_fabric(&settings, listen).map_err(|failure| failure.what)
    }

    #[test]
    fn check_fabric_refuses_what_is_not_loopback_unless_the_network_is_trusted() {
        for loopback in ["127.0.0.1:7000", "127.9.9.9:7000", "[::1]:7000", "[::ffff:127.0.0.1]:7000"] {
            assert_eq!(check(&[(LISTEN, loopback)]), Ok(false), "{loopback}");
        }
        for other in ["192.0.2.1:7000", "[2001:db8::1]:7000", "[::ffff:192.0.2.1]:7000", "0.0.0.0:7000"] {
            let refused = check(&[(LISTEN, other)]).unwrap_err();
            assert!(refused.contains(other) && refused.contains("is not a loopback address"), "{refused}");
        }
        assert_eq!(check(&[(LISTEN, "192.0.2.1:7000"), (INSECURE, "true")]), Ok(true));
    }

    #[test]
    fn check_fabric_wants_tls_and_tokens_both_where_the_network_is_not_trusted() {
        let (listen, tls, tokens) =
            ((LISTEN, "192.0.2.1:7000"), (TLS_CERTIFICATE_FILE, "node.crt"), (TOKENS_FILE, "tokens"));
        assert!(check(&[listen, tokens]).unwrap_err().contains(WITHOUT_TLS));
        assert!(check(&[listen, tls]).unwrap_err().contains(WITHOUT_TOKENS));
        assert_eq!(check(&[listen, tls, tokens]), Ok(true));
        assert_eq!(check(&[listen, tls, (INSECURE, "true")]), Ok(true));
    }

    #[test]
    fn check_fabric_of_every_address_requires_what_is_advertised() {
        for any in ["0.0.0.0:7000", "[::]:7000"] {
            let refused = check(&[(LISTEN, any), (INSECURE, "true")]).unwrap_err();
            assert!(refused.contains("every address of this host"), "{refused}");
            let advertised = [(LISTEN, any), (INSECURE, "true"), (ADVERTISE, "node-1.example:7000")];
            assert_eq!(check(&advertised), Ok(true));
        }
    }

    #[test]
    fn advertised_keeps_names_and_counts_ports_up() {
        let of = |listen: &str, advertise: &str| {
            let settings = settings(&[(LISTEN, listen), (ADVERTISE, advertise)]);
            advertised_fabric(&settings).map(|given| given.map(|given| given.shifted(2).to_string()))
        };
        assert_eq!(of("127.0.0.1:7000", "").unwrap(), None);
        assert_eq!(of("127.0.0.1:7000", "[2001:db8::1]:7000").unwrap().unwrap(), "[2001:db8::1]:7002");
        assert_eq!(of("node-1:7000", "").unwrap().unwrap(), "node-1:7002");
        assert_eq!(of("node-1:7000", "other:7100").unwrap().unwrap(), "other:7102");
        for nobody in ["127.0.0.1:0", "0.0.0.0:7000", "[::]:7000"] {
            assert!(of("127.0.0.1:7000", nobody).is_err(), "{nobody}");
        }
        let of = |http: &str, advertise: &str| {
            let settings = settings(&[(HTTP, http), (ADVERTISE_HTTP, advertise)]);
            advertised_http(&settings).map(|given| given.map(|given| given.shifted(1).to_string()))
        };
        assert_eq!(of("127.0.0.1:7080", "").unwrap(), None);
        assert_eq!(of("node-1:7080", "").unwrap().unwrap(), "node-1:7081");
        assert_eq!(of("0.0.0.0:7080", "node-1.example:80").unwrap().unwrap(), "node-1.example:81");
        assert!(of("node-1:7080", "[::]:7080").is_err());
    }

    #[test]
    fn advertised_agent_is_at_its_own_host_or_where_that_is_every_address_at_the_fabrics() {
        let of = |agent: &str, listen: &str, advertise: &str| {
            let settings = settings(&[(AGENT_ADDRESS, agent), (LISTEN, listen), (ADVERTISE, advertise)]);
            advertised_agent(&settings, agent.replace("localhost", "127.0.0.1").parse().unwrap()).unwrap()
        };
        assert_eq!(of("localhost:7090", "node-1:7000", ""), "localhost:7090");
        assert_eq!(of("[2001:db8::1]:7090", "node-1:7000", ""), "[2001:db8::1]:7090");
        assert_eq!(of("0.0.0.0:7090", "0.0.0.0:7000", "node-1.example:7000"), "node-1.example:7090");
        assert_eq!(of("[::]:7090", "node-1:7000", ""), "node-1:7090");
        assert_eq!(of("0.0.0.0:7090", "[2001:db8::1]:7000", ""), "[2001:db8::1]:7090");
        // The system has chosen the port.
        let settings = settings(&[(AGENT_ADDRESS, "127.0.0.1:0")]);
        let advertised = advertised_agent(&settings, "127.0.0.1:4711".parse().unwrap());
        assert_eq!(advertised.unwrap(), "127.0.0.1:4711");
    }

    #[test]
    fn address_that_is_a_name_is_looked_up_and_one_that_leads_nowhere_is_reported() {
        let of = |text: &str| address(&settings(&[(HTTP, text)]), HTTP);
        assert!(of("localhost:7080").unwrap().ip().is_loopback());
        let refused = of("nowhere.invalid:7080").unwrap_err();
        assert_eq!(refused.exit, Exit::Error, "it may be known at the next start");
        assert!(refused.what.starts_with("`http_address` cannot be `nowhere.invalid:7080`: "), "{refused}");
        assert!(refused.next.is_some_and(|next| next.contains("DNS")));
    }

    #[test]
    fn network_that_is_open_is_warned_of_unless_it_is_loopback_or_protected() {
        let (listen, http) = ("192.0.2.1:7000".parse().unwrap(), "127.0.0.1:7080".parse().unwrap());
        let warned =
            |values: &[(&str, &str)], beyond| network_warnings(&settings(values), (listen, beyond), http);
        let (insecure, tls, tokens) =
            ((INSECURE, "true"), (TLS_CERTIFICATE_FILE, "node.crt"), (TOKENS_FILE, "tokens"));
        assert_eq!(warned(&[insecure], true), [format!("{OPEN_WORDS}: {WITHOUT_TLS}")]);
        assert_eq!(warned(&[insecure, tokens], true), [format!("{OPEN_WORDS}: {WITHOUT_TLS}")]);
        assert_eq!(warned(&[insecure, tls], true), [format!("{OPEN_WORDS}: {WITHOUT_TOKENS}")]);
        assert!(warned(&[insecure], false).is_empty());
        assert!(warned(&[insecure, tls, tokens], true).is_empty());
    }

    /// Other nodes got a name at which the node listened for itself alone, and it said nothing.
    #[test]
    fn name_that_is_advertised_and_is_loopback_here_is_warned_of() {
        let warned = |values: &[(&str, &str)], listen: &str, http: &str| {
            let (listen, http) = (listen.parse().unwrap(), http.parse().unwrap());
            network_warnings(&settings(values), (listen, false), http)
        };
        let (loopback, own) = (["127.0.1.1:7000", "127.0.1.1:7080"], ["192.0.2.1:7000", "192.0.2.1:7080"]);
        let both = [(LISTEN, "host-1:7000"), (HTTP, "host-1:7080")];
        let found = warned(&both, loopback[0], loopback[1]);
        assert_eq!(found.len(), 2, "{found:?}");
        for (warning, advertised, next) in
            [(&found[0], "`host-1:7000`", ADVERTISE), (&found[1], "`host-1:7080`", ADVERTISE_HTTP)]
        {
            assert!(warning.contains(advertised) && warning.contains("127.0.1.1"), "{warning}");
            assert!(warning.contains("/etc/hosts") && warning.contains(next), "{warning}");
        }
        assert!(warned(&both, own[0], own[1]).is_empty(), "others reach it");
        assert_eq!(warned(&both, loopback[0], own[1]).len(), 1);
        let given = [(HTTP, "host-1:7080"), (ADVERTISE_HTTP, "HOST-1:80")];
        assert_eq!(warned(&given, loopback[0], loopback[1]).len(), 1, "it is the same name");
        for well in [
            &[(HTTP, "localhost:7080")][..],
            &[(HTTP, "127.0.0.1:7080")],
            &[(HTTP, "127.0.0.1:7080"), (ADVERTISE_HTTP, "proxy.example:80")],
        ] {
            assert!(warned(well, loopback[0], loopback[1]).is_empty(), "{well:?}");
        }
    }

    /// A certificate for these names, and its key.
    fn make(folder: &TempDir, file: &str, names: &[&str]) -> [String; 2] {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let [shown, private] = ["crt", "key"].map(|end| folder.path().join(format!("{file}.{end}")));
        std::fs::write(&shown, certificate.pem()).unwrap();
        std::fs::write(&private, key.serialize_pem()).unwrap();
        [shown, private].map(|path| path.to_str().unwrap().to_owned())
    }

    /// Nobody could connect, and the node and `cell doctor` called the certificate well.
    #[test]
    fn certificate_that_is_not_for_what_is_advertised_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let [shown, key] = make(&folder, "node", &["node-1.example", "*.cell.example", "192.0.2.1"]);
        let [other, _] = make(&folder, "other", &["other.example"]);
        let lacking = |more: &[(&str, &str)]| {
            let tls = [(TLS_CERTIFICATE_FILE, &*shown), (TLS_KEY_FILE, &*key), (TLS_TRUST_FILE, &*other)];
            names_lacking(&settings(&[&tls[..], more].concat()))
        };
        for well in [
            &[(LISTEN, "192.0.2.1:7000")][..],
            &[],
            &[(LISTEN, "0.0.0.0:7000"), (ADVERTISE, "NODE-1.example:7000")],
            &[(ADVERTISE, "a.cell.example:7000"), (ADVERTISE_HTTP, "node-1.example:80")],
            &[(ADVERTISE, "node-2.example:7000"), (TLS_TRUST_FILE, &*shown)],
            &[(ADVERTISE, "node-2.example:7000"), (TLS_TRUST_FILE, "")],
        ] {
            assert_eq!(lacking(well), None, "{well:?}");
        }
        let wrong: [(&[(&str, &str)], &str); 7] = [
            (&[(LISTEN, "192.0.2.2:7000")], "not for 192.0.2.2:"),
            (&[(LISTEN, "node-2.example:7000")], "not for node-2.example:"),
            (&[(ADVERTISE, "127.0.0.1:7000")], "not for 127.0.0.1:"),
            (&[(ADVERTISE, "[2001:db8::1]:7000")], "not for 2001:db8::1:"),
            (&[(ADVERTISE_HTTP, "a.b.cell.example:80")], "not for a.b.cell.example:"),
            (&[(ADVERTISE, "a.example:1"), (ADVERTISE_HTTP, "a.example:2")], "not for a.example:"),
            (&[(ADVERTISE, "a.example:1"), (ADVERTISE_HTTP, "b.example:2")], "a.example and b.example:"),
        ];
        for (advertised, hosts) in wrong {
            let found = lacking(advertised).unwrap_or_default();
            assert!(found.contains(hosts) && found.contains(&*shown), "{advertised:?}: {found}");
        }
    }

    /// Nobody said so but `cell doctor`: the node had looked at its names when it started.
    #[test]
    fn certificate_that_takes_another_one_s_place_is_looked_at_as_it_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let [shown, key] = make(&folder, "node", &["node-1.example"]);
        let [other, _] = make(&folder, "other", &["other.example"]);
        let given = settings(&[
            (ADVERTISE, "node-1.example:7000"),
            (TLS_CERTIFICATE_FILE, &*shown),
            (TLS_KEY_FILE, &*key),
            (TLS_TRUST_FILE, &*other),
        ]);
        let tls = check_tls(&given).unwrap().unwrap();
        assert_eq!(names_lacking_now(&given, &tls), None);
        let [replacing, its_key] = make(&folder, "replacing", &["node-2.example"]);
        std::fs::rename(replacing, &shown).unwrap();
        std::fs::rename(its_key, &key).unwrap();
        assert!(tls.read_if_changed().unwrap());
        assert!(names_lacking_now(&given, &tls).is_some_and(|found| found.contains("node-1.example")));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_open_network_taken_is_caught() {
        use cell_terms::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::OpenNetworkTaken));
            let passed = std::panic::catch_unwind(
                check_fabric_wants_tls_and_tokens_both_where_the_network_is_not_trusted,
            )
            .is_ok();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-ops' checks of addresses", Mutant::OpenNetworkTaken.name());
        });
    }
}
