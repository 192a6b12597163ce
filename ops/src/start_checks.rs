//! What is refused of a node's settings before anything is made.

use std::net::SocketAddr;

use cell_fabric::FabricError;
use cell_node::AccessRules;
use cell_terms::setting::Settings;
use cell_terms::text::with_causes;
use cell_web::{HttpServer, TOKENS_FILE, WebError};

use crate::exit::Failure;

/// The address that a setting is.
pub(crate) fn address(settings: &Settings, name: &str) -> Result<SocketAddr, Failure> {
    let text = settings.text(name);
    text.parse().map_err(|_| Failure::usage(format!("`{name}` cannot be `{text}`: it takes IP:PORT")))
}

/// An address that is given in place of the one that is listened on; none if it is not set.
pub(crate) fn advertised(settings: &Settings, name: &str) -> Result<Option<SocketAddr>, Failure> {
    if settings.text(name).is_empty() {
        return Ok(None);
    }
    let given = address(settings, name)?;
    if given.port() == 0 || given.ip().is_unspecified() {
        let what = format!("`{name}` cannot be `{given}`: nobody can connect to it");
        return Err(Failure::usage(what).next("give the address and port that others reach"));
    }
    Ok(Some(given))
}

/// Refuses to serve clients where the fabric would refuse it, too, but only after the data folder is made.
pub(crate) fn refuse_beyond_loopback(listen: SocketAddr) -> Result<(), Failure> {
    if listen.ip().is_loopback() {
        return Ok(());
    }
    let words = with_causes(&FabricError::NotLoopback { address: listen });
    Err(Failure::usage(words).next("give another listen_address"))
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
        WebError::Tls(_) => {
            "mend http_tls_certificate_file, http_tls_key_file and http_tls_trust_file: PEM files"
        }
        WebError::NotLoopback { .. } => "give a loopback address as http_address, or TLS and tokens",
        _ => "give another http_address",
    };
    Failure::usage(with_causes(&error)).next(next)
}
