//! TLS of the server and of requests to peers: version 1.3 alone, with the provider `ring`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cell_terms::setting::Settings;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use crate::certificate::CertificateWatch;
use crate::setting;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// One of two settings is missing.
    #[error("http_tls_certificate_file and http_tls_key_file go together, and {missing} is not given")]
    Half {
        /// The setting.
        missing: &'static str,
    },
    /// A file cannot be read, or holds nothing of the kind.
    #[error("cannot read the {what} of {}", path.display())]
    Read {
        /// Certificates or key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: pem::Error,
    },
    /// The certificate is none, or the key is not its own.
    #[error("cannot serve TLS with the certificate of {} and the key of {}", certificate.display(), key.display())]
    Pair {
        /// The certificates' file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        #[source]
        error: rustls::Error,
    },
    /// A certificate of the trusted ones is none.
    #[error("cannot trust the certificates of {}", path.display())]
    Trust {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Both sides of TLS of a node.
pub(crate) struct TlsConfigs {
    /// For its server.
    pub(crate) server: Arc<ServerConfig>,
    /// For its requests to peers.
    pub(crate) client: ClientConfig,
    /// The certificates of both.
    pub(crate) certificates: CertificateWatch,
}

impl TlsConfigs {
    /// What the settings say; none if they name no files.
    ///
    /// # Errors
    /// A file is missing or wrong.
    pub(crate) fn of_settings(settings: &Settings) -> Result<Option<TlsConfigs>, TlsError> {
        let [certificate, key, trust] =
            [setting::TLS_CERTIFICATE_FILE, setting::TLS_KEY_FILE, setting::TLS_TRUST_FILE]
                .map(|name| setting::text(settings, name).map(Path::new));
        let (certificate, key) = match (certificate, key) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, None) => return Ok(None),
            (None, Some(_)) => return Err(TlsError::Half { missing: setting::TLS_CERTIFICATE_FILE }),
            (Some(_), None) => return Err(TlsError::Half { missing: setting::TLS_KEY_FILE }),
        };
        let (server, client) = (server(certificate, key)?, client(trust.unwrap_or(certificate))?);
        let mut watch = CertificateWatch::default().with("served", certificate, &certificates(certificate)?);
        if let Some(trust) = trust {
            watch = watch.with("trusted", trust, &certificates(trust)?);
        }
        Ok(Some(TlsConfigs { server: Arc::new(server), client, certificates: watch }))
    }
}

/// A client that trusts nobody, for clusters without TLS.
pub(crate) fn trusting_nobody() -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let builder = builder.expect("the provider has cipher suites of TLS 1.3");
    builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |error| TlsError::Read { what: "certificates", path: path.to_owned(), error };
    let found = CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<Vec<_>, _>>();
    match found.map_err(wrong)? {
        none if none.is_empty() => Err(wrong(pem::Error::NoItemsFound)),
        found => Ok(found),
    }
}

fn server(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let chain = certificates(certificate)?;
    let wrong = |error| TlsError::Read { what: "private key", path: key.to_owned(), error };
    let private = PrivateKeyDer::from_pem_file(key).map_err(wrong)?;
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let config = builder.and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
    config.map_err(|error| TlsError::Pair { certificate: certificate.to_owned(), key: key.to_owned(), error })
}

fn client(trusted: &Path) -> Result<ClientConfig, TlsError> {
    let known = certificates(trusted)?;
    let wrong = |error| TlsError::Trust { path: trusted.to_owned(), error };
    let mut roots = RootCertStore::empty();
    for certificate in &known {
        roots.add(certificate.clone()).map_err(|error| wrong(error.into()))?;
    }
    let provider = provider();
    let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let signed = signed.map_err(|error| wrong(error.into()))?;
    let verifier = Arc::new(TrustedVerifier { known, signed, provider: Arc::clone(&provider) });
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(|error| wrong(error.into()))?;
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// Trusts the certificates of a file, and those that they have signed for the name that was asked for. A
/// certificate of the file itself is trusted whatever its names are, because it is known byte by byte; the
/// usual check refuses a self-signed one that says of itself that it may sign others.
#[derive(Debug)]
struct TrustedVerifier {
    known: Vec<CertificateDer<'static>>,
    signed: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for TrustedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.known.contains(end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        self.signed.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::{ClientConnection, StreamOwned};
    use serde_json::Value;
    use tempfile::TempDir;

    use super::*;
    use crate::test_cluster::TestCluster;

    /// A folder with `NAME.pem`, which has no name of any host in it and may sign others, and `NAME.key`.
    fn folder(names: &[&str]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(["nowhere.example".to_owned()]).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let certificate = params.self_signed(&key).unwrap();
            std::fs::write(folder.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
            std::fs::write(folder.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        folder
    }

    fn path(folder: &TempDir, name: &str) -> String {
        folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn start(folder: &TempDir, trust: &str) -> TestCluster {
        let [certificate, key, trust] = ["a.pem", "a.key", trust].map(|name| path(folder, name));
        let settings = [
            ("http_tls_certificate_file", &*certificate),
            ("http_tls_key_file", &key),
            ("http_tls_trust_file", &trust),
        ];
        TestCluster::start_with(2, &settings, |sources| sources)
    }

    /// What a server answers over TLS to one who trusts the certificates of a file.
    fn get(address: SocketAddr, trusted: &Path, target: &str) -> std::io::Result<String> {
        let name = ServerName::IpAddress(address.ip().into());
        let connection = ClientConnection::new(Arc::new(client(trusted).unwrap()), name).unwrap();
        let mut stream = StreamOwned::new(connection, TcpStream::connect(address).unwrap());
        write!(stream, "GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn missing(answer: &str) -> usize {
        let document: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        document["missing"].as_array().unwrap().len()
    }

    #[test]
    fn server_with_tls_answers_who_trusts_it_and_asks_peers_over_tls() {
        let folder = folder(&["a", "b"]);
        let cluster = start(&folder, "a.pem");
        let address = cluster.nodes[0].server.address();
        let answer = get(address, &folder.path().join("a.pem"), "/api/v1/nodes").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(missing(&answer), 0, "{answer}");
        let error = get(address, &folder.path().join("b.pem"), "/api/v1/nodes").unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
    }

    #[test]
    fn metrics_have_how_long_certificates_hold() {
        let folder = folder(&["a", "b"]);
        let cluster = start(&folder, "b.pem");
        let answer =
            get(cluster.nodes[0].server.address(), &folder.path().join("a.pem"), "/metrics").unwrap();
        for role in ["served", "trusted"] {
            let name = format!("cell_http_certificate_left_seconds{{role=\"{role}\"}} ");
            let left = answer.lines().find_map(|line| line.strip_prefix(&*name)).expect("it is a metric");
            assert!(left.parse::<f64>().unwrap() > 1e9, "{left}: rcgen's are for two thousand years");
        }
    }

    #[test]
    fn peers_with_a_certificate_that_is_not_trusted_are_missing() {
        let folder = folder(&["a", "b"]);
        let cluster = start(&folder, "b.pem");
        let answer =
            get(cluster.nodes[0].server.address(), &folder.path().join("a.pem"), "/api/v1/nodes").unwrap();
        assert_eq!(missing(&answer), 1, "{answer}");
    }

    #[test]
    fn plain_http_to_a_server_with_tls_is_closed() {
        let cluster = start(&folder(&["a"]), "a.pem");
        let mut stream = TcpStream::connect(cluster.nodes[0].server.address()).unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }

    #[test]
    fn files_that_are_missing_or_wrong_are_named() {
        let folder = folder(&["a", "b"]);
        let of = |certificate: &str, key: &str| {
            let [certificate, key] = [certificate, key].map(|name| folder.path().join(name));
            server(&certificate, &key).map(drop).map_err(|error| cell_terms::text::with_causes(&error))
        };
        std::fs::write(folder.path().join("empty"), "").unwrap();
        assert_eq!(of("a.pem", "a.key"), Ok(()));
        for (certificate, key, wanted) in [
            ("none", "a.key", "cannot read the certificates of "),
            ("empty", "a.key", "empty: no items found"),
            ("a.pem", "none", "cannot read the private key of "),
            ("a.pem", "a.pem", "cannot read the private key of "),
            ("a.pem", "b.key", "b.key: "),
        ] {
            let error = of(certificate, key).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
        let mut settings = Settings::new(&[setting::SETTINGS]);
        settings.set("http_tls_key_file", "a.key", cell_terms::setting::Source::Flag).unwrap();
        let half = TlsConfigs::of_settings(&settings).map(drop).unwrap_err().to_string();
        assert!(half.ends_with("http_tls_certificate_file is not given"), "{half}");
    }
}
