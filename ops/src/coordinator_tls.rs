//! Both ends of a coordinator that is reached over TLS: how nodes and commands connect to it, and its door.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cell_cluster::{Coordinator, CoordinatorTlsServer, Remote, TlsAddress};
use cell_fabric::{NodeTls, TLS_CERTIFICATE_FILE, TLS_KEY_FILE, TLS_TRUST_FILE, TlsTrust};
use cell_node::{AccessRules, TokenRole};
use cell_terms::setting::Settings;
use cell_terms::text::with_causes;
use cell_web::TOKENS_FILE;
use rustls::ClientConfig;

use crate::exit::{Exit, Failure};
use crate::output::message;
use crate::process_settings::{COORDINATOR_LISTEN, COORDINATOR_TOKEN_FILE};
use crate::reload;
use crate::start_checks::{address as address_of, check_tls, explain_web};

/// What to do where a coordinator's certificate is not taken.
pub(crate) const NEXT_OF_CERTIFICATE: &str = "give the certificate of the CA that signed the coordinator's as \
     tls_trust_file, name it as its certificate does, and see to the clocks of both hosts";
/// A longer token is none.
const TOKEN_BYTES_MAX: u64 = 1 << 10;

/// The address of a coordinator over TLS; none: the place is something else.
pub(crate) fn address(place: &str) -> Result<Option<TlsAddress>, Failure> {
    let parsed = TlsAddress::parse(place).transpose();
    parsed.map_err(|why| Failure::usage(format!("`{place}` is no coordinator's address: {why}")))
}

/// The coordinator at that address. Nothing is asked of it yet. Certificates and token are looked at for each
/// connection.
pub(crate) fn open(address: TlsAddress, settings: &Settings, deadline: Duration) -> Result<Remote, Failure> {
    let of = |name| Some(settings.text(name)).filter(|path| !path.is_empty()).map(PathBuf::from);
    let missing = |what: &str, next: &'static str| {
        Err(Failure::usage(format!("nobody says {what} the coordinator at {address}")).next(next))
    };
    let Some(trusted) = of(TLS_TRUST_FILE).or_else(|| of(TLS_CERTIFICATE_FILE)) else {
        return missing("by which certificates to trust", "give the cluster's CA as tls_trust_file");
    };
    let Some(token_file) = of(COORDINATOR_TOKEN_FILE) else {
        return missing(
            "which token to show",
            "give the file of a token of role admin as coordinator_token_file",
        );
    };
    let trust = TlsTrust::open(&trusted).map_err(|error| explain_web(error.into()))?;
    // One that is missing is found at the start; later it may be replaced.
    token(&token_file).map_err(|error| Failure::usage(error.to_string()))?;
    let credentials = move || -> io::Result<(Arc<ClientConfig>, String)> {
        if let Err(error) = trust.read_if_changed() {
            tracing::error!(error = with_causes(&error), "whom to trust stays what it was");
        }
        Ok((trust.client(), token(&token_file)?))
    };
    Ok(Remote::over_tls(address, Arc::new(credentials), deadline))
}

/// The token of a file: its first line.
fn token(path: &Path) -> io::Result<String> {
    let named = |why: &dyn std::fmt::Display| format!("cannot read the token of {}: {why}", path.display());
    let mut text = String::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|error| io::Error::new(error.kind(), named(&error)))?;
    match text.lines().next().map(str::trim).filter(|token| !token.is_empty()) {
        Some(token) => Ok(token.to_owned()),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, named(&"it is empty"))),
    }
}

/// Where it is that listens by this setting, and the port that it has got: by the name that was given, for
/// which its certificate is.
fn place(given: &str, port: u16) -> String {
    let host = given.rsplit_once(':').map_or(given, |(host, _)| host);
    format!("tls://{host}:{port}")
}

/// A coordinator's door to the network, and the files by which it opens.
pub(crate) struct Door {
    _server: CoordinatorTlsServer,
    /// Where it is, for people.
    place: String,
    tls: NodeTls,
    access: Arc<AccessRules>,
}

impl Door {
    /// Opens it where the settings say so: never without TLS, and never without tokens.
    pub(crate) fn open(
        settings: &Settings,
        coordinator: Arc<dyn Coordinator>,
    ) -> Result<Option<Door>, Failure> {
        if settings.text(COORDINATOR_LISTEN).is_empty() {
            return Ok(None);
        }
        let address = address_of(settings, COORDINATOR_LISTEN)?;
        let tls = check_tls(settings)?;
        let access =
            AccessRules::open(settings.text(TOKENS_FILE)).map_err(|error| explain_web(error.into()))?;
        let Some(tls) = tls.filter(|_| access.wants_tokens()) else {
            let what =
                format!("`{COORDINATOR_LISTEN}` is {address}: the coordinator is reached over TLS, by token");
            let next = "give TLS (tls_certificate_file, tls_key_file) and tokens_file, also on loopback";
            return Err(Failure::usage(what).next(next));
        };
        if !access.knows_one_of(TokenRole::Admin) {
            let what =
                format!("{} has no token of role admin: no node could ask", settings.text(TOKENS_FILE));
            return Err(Failure::usage(what).next("add a line `admin NAME SHA256` for the nodes' token"));
        }
        for name in [TLS_KEY_FILE, TOKENS_FILE] {
            if let Some(why) = cell_web::exposed(Path::new(settings.text(name)), true) {
                message::warning(&why);
            }
        }
        let access = Arc::new(access);
        let known = access.clone();
        let check =
            move |token: &str| known.holder(token.as_bytes()).is_some_and(|holder| holder.grants.administers);
        let server = CoordinatorTlsServer::start(coordinator, address, tls.server(), Arc::new(check));
        let server = server.map_err(|error| {
            // Its address may be there, or let go, at the next start.
            Failure::new(Exit::Error, with_causes(&error)).next("give another coordinator_listen_address")
        })?;
        let place = place(settings.text(COORDINATOR_LISTEN), server.address().port());
        Ok(Some(Door { _server: server, place, tls, access }))
    }

    /// Where it is, for people.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Reads certificates again that were replaced.
    pub(crate) fn look_at_certificates(&self) {
        reload::certificates(&self.tls);
    }

    /// Reads certificates and tokens again. Whose token is gone is answered nothing more.
    pub(crate) fn reload(&self) {
        self.look_at_certificates();
        reload::tokens(&self.access);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::settings;

    #[test]
    fn open_says_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let of = |more: &[(&str, &str)]| {
            let address = address("tls://cell-1.example:7200").unwrap().unwrap();
            let failure = open(address, &settings(more), Duration::from_secs(1)).err().unwrap();
            assert_eq!(failure.exit, Exit::Usage);
            failure.what
        };
        assert!(
            of(&[]).contains("by which certificates to trust the coordinator at tls://cell-1.example:7200")
        );
        let trust = (TLS_TRUST_FILE, "/nowhere/ca.crt");
        assert!(of(&[trust]).contains("which token to show"));
        assert!(of(&[trust, (COORDINATOR_TOKEN_FILE, "/nowhere/token")]).contains("/nowhere/ca.crt"));
        let path = folder.path().join("token");
        assert!(token(&path).unwrap_err().to_string().contains("cannot read the token of"));
        std::fs::write(&path, "\n").unwrap();
        assert!(token(&path).unwrap_err().to_string().ends_with("it is empty"));
        std::fs::write(&path, "secret\n").unwrap();
        assert_eq!(token(&path).unwrap(), "secret");
        assert!(address("/run/coordinator.socket").unwrap().is_none() && address("tls://x").is_err());
    }

    /// An address was shown, which the certificate need not have.
    #[test]
    fn place_has_the_name_that_was_given_and_the_port_that_it_has_got() {
        assert_eq!(place("localhost:0", 7200), "tls://localhost:7200");
        assert_eq!(place("[::1]:7200", 7200), "tls://[::1]:7200");
    }

    #[test]
    fn door_is_never_open_without_tls_and_tokens_on_loopback_neither() {
        let coordinator = || Arc::new(cell_cluster::Sim::new(1).link());
        let of =
            |more: &[(&str, &str)]| Door::open(&settings(more), coordinator()).map(|door| door.is_some());
        assert!(!of(&[]).unwrap(), "nobody wants it");
        let listen = (COORDINATOR_LISTEN, "127.0.0.1:0");
        for more in [&[listen][..], &[listen, ("insecure_network", "true")]] {
            let refused = of(more).unwrap_err();
            assert!(refused.what.contains("over TLS, by token") && refused.next.is_some(), "{refused}");
        }
    }
}
