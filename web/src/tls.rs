//! TLS of the server and of requests to peers: the node's own, as its fabric has it. Its files are looked at
//! each second, on a thread that may wait for them.

use std::sync::Arc;

use cell_fabric::NodeTls;
use cell_terms::text::with_causes;
use rustls::crypto::ring;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore};

use crate::certificate::CertificateWatch;
use crate::one_look::OneLook;
use crate::source::NamesCheck;

/// The node's TLS, where it serves any, and the certificates of both sides.
#[derive(Clone, Default)]
pub(crate) struct WatchedTls {
    tls: Option<NodeTls>,
    names_check: Option<NamesCheck>,
    certificates: Arc<CertificateWatch>,
    looks: OneLook,
}

impl WatchedTls {
    pub(crate) fn new(tls: Option<NodeTls>, names_check: Option<NamesCheck>) -> WatchedTls {
        let watched = WatchedTls { tls, names_check, ..WatchedTls::default() };
        watched.show();
        watched
    }

    /// For requests to peers; none: over plain HTTP.
    pub(crate) fn asking(&self) -> Option<Arc<ClientConfig>> {
        self.tls.as_ref().map(|tls| tls.trust().client())
    }

    /// What is wrong at this time, in seconds since 1970: with the certificates in use, and with files that
    /// were to take their place, until these read.
    pub(crate) fn warnings(&self, now: i64) -> Vec<String> {
        let mut warnings = self.certificates.look(now);
        let refused = self.tls.as_ref().map(NodeTls::refused).unwrap_or_default();
        let wrong = |why| format!("a file of TLS is wrong, and what it said before holds: {why}");
        warnings.extend(refused.into_iter().map(wrong));
        warnings
    }

    /// How the certificates stand.
    pub(crate) fn certificates(&self) -> &CertificateWatch {
        &self.certificates
    }

    /// Reads files again that were replaced, unless that is under way.
    pub(crate) async fn look(&self) {
        if self.tls.is_some() {
            let watched = self.clone();
            self.looks.take(move || watched.look_now()).await;
        }
    }

    /// The same, at once. It may block.
    pub(crate) fn look_now(&self) {
        let Some(tls) = &self.tls else { return };
        match tls.read_if_changed() {
            Ok(false) => return,
            Ok(true) => tracing::info!("certificates were read again"),
            Err(errors) => {
                for error in errors {
                    let error = with_causes(&error);
                    tracing::error!(error, "a file of TLS is wrong: what it said before counts on");
                }
            }
        }
        self.show();
    }

    /// Has the watch look at what is shown and trusted now.
    fn show(&self) {
        let Some(tls) = &self.tls else { return };
        let (path, shown) = tls.shown();
        self.certificates.set("served", path, &shown);
        if tls.trust().path() != path {
            self.certificates.set("trusted", tls.trust().path(), &tls.trust().certificates());
        }
        self.certificates.set_names(self.names_check.as_ref().and_then(|check| check(tls)));
    }
}

/// A client that trusts nobody, for clusters without TLS.
pub(crate) fn trusting_nobody() -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let builder = builder.expect("the provider has cipher suites of TLS 1.3");
    builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::path::Path;

    use cell_fabric::{TlsFiles, TlsTrust};
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::pki_types::ServerName;
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
        let settings =
            [("tls_certificate_file", &*certificate), ("tls_key_file", &key), ("tls_trust_file", &trust)];
        TestCluster::start_with(2, &settings, |sources| sources)
    }

    /// What a server answers over TLS to one who trusts the certificates of a file.
    fn get(address: SocketAddr, trusted: &Path, target: &str) -> std::io::Result<String> {
        let name = ServerName::IpAddress(address.ip().into());
        let connection = ClientConnection::new(TlsTrust::open(trusted).unwrap().client(), name).unwrap();
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

    /// Nodes had to be started anew for it.
    #[test]
    fn certificate_that_is_replaced_is_shown_without_a_restart() {
        let folder = folder(&["a", "b"]);
        let cluster = start(&folder, "a.pem");
        let node = &cluster.nodes[0].server;
        let new = folder.path().join("new.pem");
        std::fs::copy(folder.path().join("b.pem"), &new).unwrap();
        let get = || get(node.address(), &new, "/livez");
        assert!(get().is_err(), "it is not shown yet");
        for kind in ["pem", "key"] {
            let [from, to] = ["b", "a"].map(|name| folder.path().join(format!("{name}.{kind}")));
            std::fs::rename(from, to).unwrap();
        }
        node.reload();
        let answer = get().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// Whoever connected anew was refused, and `cell doctor` alone said so.
    #[test]
    fn certificate_without_this_node_s_names_is_warned_of_once_it_takes_another_one_s_place() {
        let folder = folder(&["a", "b"]);
        let [certificate, key] = ["a.pem", "a.key"].map(|name| folder.path().join(name));
        let tls = NodeTls::open(TlsFiles { certificate, key, trust: None }).unwrap();
        let first = tls.shown().1;
        let check = move |tls: &NodeTls| (tls.shown().1 != first).then(|| "it is not for node-1".to_owned());
        let check: NamesCheck = Arc::new(check);
        let watched = WatchedTls::new(Some(tls), Some(check));
        assert!(watched.certificates().look(0).iter().all(|warning| !warning.contains("node-1")));
        for kind in ["pem", "key"] {
            let [from, to] = ["b", "a"].map(|name| folder.path().join(format!("{name}.{kind}")));
            std::fs::rename(from, to).unwrap();
        }
        watched.look_now();
        let warnings = watched.certificates().look(0);
        assert!(warnings.contains(&"it is not for node-1".to_owned()), "{warnings:?}");
    }

    /// The log alone said it, and a node that is started again with such files does not come up.
    #[test]
    fn file_that_does_not_read_is_warned_of_until_it_reads_again() {
        let folder = folder(&["a"]);
        let [certificate, key] = ["a.pem", "a.key"].map(|name| folder.path().join(name));
        let files = TlsFiles { certificate, key: key.clone(), trust: None };
        let watched = WatchedTls::new(Some(NodeTls::open(files).unwrap()), None);
        assert!(watched.warnings(0).iter().all(|warning| !warning.contains("a.key")));
        let away = folder.path().join("away");
        std::fs::rename(&key, &away).unwrap();
        for _ in 0..2 {
            watched.look_now();
            let warnings = watched.warnings(0);
            let said =
                "a file of TLS is wrong, and what it said before holds: cannot read the private key of ";
            assert!(warnings.iter().any(|warning| warning.starts_with(said)), "{warnings:?}");
        }
        std::fs::rename(&away, &key).unwrap();
        watched.look_now();
        assert!(watched.warnings(0).iter().all(|warning| !warning.contains("a.key")));
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
}
