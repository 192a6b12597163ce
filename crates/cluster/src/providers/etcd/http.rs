//! The sockets to etcd's members: HTTP, with TLS where an endpoint says so. Connections are kept. Names are
//! looked up anew every few seconds, and at once after a member was not reached: its address may be another
//! one by now. While a resolver does not answer, what was found before counts. Certificates are read anew
//! when there is no connection to be had with those that were read.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use cell_resolver::Resolver;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use ureq::config::Config;
use ureq::http::{Request, Response, Uri};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver as UreqResolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Body};

use crate::etcd_error::EtcdError;
use crate::providers::NAME_BELIEVED_FOR;
use crate::providers::etcd::gateway::Complaint;
use crate::providers::etcd::http_words::{Asked, words};
use crate::providers::etcd::options::EtcdOptions;
use crate::providers::etcd::post::{Gateway, PostFailure, Question};
use crate::providers::etcd::route::TryTimes;

/// An answer that is longer is not read.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Nor is a complaint.
const COMPLAINT_BYTES_MAX: u64 = 64 << 10;
/// Connections to one member that are kept for the next question.
const IDLE_CONNECTIONS_MAX: usize = 4;
/// Addresses of a name that are tried: ureq takes no more.
const ADDRESSES_MAX: usize = 16;

/// Members over HTTP.
pub(super) struct Http {
    endpoints: Vec<String>,
    /// Which of them have.
    have_answered: Vec<AtomicBool>,
    files: TlsFiles,
    loaded: RwLock<Loaded>,
    names: Names,
}

/// Where certificates are.
struct TlsFiles {
    ca: Option<PathBuf>,
    client: Option<(PathBuf, PathBuf)>,
}

/// What stands in them.
#[derive(PartialEq, Eq)]
struct TlsTexts {
    ca: Option<Vec<u8>>,
    client: Option<(Vec<u8>, Vec<u8>)>,
}

struct Loaded {
    texts: TlsTexts,
    agent: Agent,
}

impl Http {
    /// The members that the options name.
    pub(super) fn new(options: &EtcdOptions) -> Result<Http, EtcdError> {
        let endpoints = options.endpoints.clone();
        if endpoints.is_empty() {
            return Err(setup("`etcd_endpoints` names no member of etcd".to_owned()));
        }
        let is_encrypted = endpoints.iter().any(|endpoint| endpoint.starts_with("https://"));
        if is_encrypted && options.ca_file.is_none() {
            let what = "`etcd_endpoints` has members behind https, and `etcd_ca_file` does not say by which \
                        certificates they are known";
            return Err(setup(what.to_owned()));
        }
        let files = TlsFiles { ca: options.ca_file.clone(), client: options.client_certificate.clone() };
        let (names, texts) = (Names(Resolver::new(NAME_BELIEVED_FOR)), files.read()?);
        let agent = agent(&texts, &names)?;
        let have_answered = endpoints.iter().map(|_| AtomicBool::new(false)).collect();
        Ok(Http { endpoints, have_answered, files, loaded: RwLock::new(Loaded { texts, agent }), names })
    }

    fn agent(&self) -> Agent {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).agent.clone()
    }

    /// A member was not reached: its name may lead elsewhere by now, and certificates may be others.
    fn look_again(&self) {
        self.names.0.doubt();
        let Ok(texts) = self.files.read() else { return };
        if self.loaded.read().unwrap_or_else(PoisonError::into_inner).texts == texts {
            return;
        }
        match agent(&texts, &self.names) {
            Ok(agent) => {
                *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Loaded { texts, agent };
            }
            Err(error) => tracing::warn!(%error, "certificates for etcd have changed and cannot be used"),
        }
    }

    fn request(&self, question: Question<'_>) -> Result<Request<String>, PostFailure> {
        let Question { member, path, body, token, .. } = question;
        let request = Request::post(format!("{}{path}", self.endpoints[member]));
        let request = request.header("content-type", "application/json");
        // A member without a leader says so, and does not wait for one; a watch of it ends.
        let request = request.header("grpc-metadata-hasleader", "true");
        let request = match token {
            Some(token) => request.header("authorization", token),
            None => request,
        };
        request.body(body.to_owned()).map_err(|error| PostFailure::Unanswered {
            sent: false,
            source: io::Error::new(io::ErrorKind::InvalidInput, error),
        })
    }

    /// The body of an answer that is one.
    fn body(
        &self,
        (member, times): (usize, TryTimes),
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<Body, PostFailure> {
        let response = answer.map_err(|error| self.failure(member, times, &error))?;
        self.have_answered[member].store(true, Ordering::Relaxed);
        let status = response.status().as_u16();
        let mut body = response.into_body();
        if status == 200 {
            return Ok(body);
        }
        let text = body.with_config().limit(COMPLAINT_BYTES_MAX).read_to_vec();
        let text = text.map_err(|error| self.broken_off(member, times, &error))?;
        Err(PostFailure::Complained(Complaint::read(status, &text)))
    }

    /// Why there is no answer of a member, or no whole one.
    fn words(&self, member: usize, times: TryTimes, error: &ureq::Error) -> String {
        let asked = Asked {
            endpoint: &self.endpoints[member],
            shows_certificate: self.files.client.is_some(),
            has_answered: self.have_answered[member].load(Ordering::Relaxed),
            times,
        };
        words(asked, error)
    }

    /// An answer was started, and did not end.
    fn broken_off(&self, member: usize, times: TryTimes, error: &ureq::Error) -> PostFailure {
        let kind = match error {
            ureq::Error::Timeout(_) => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::BrokenPipe,
        };
        let source = io::Error::new(kind, self.words(member, times, error));
        PostFailure::Unanswered { sent: true, source }
    }

    fn failure(&self, member: usize, times: TryTimes, error: &ureq::Error) -> PostFailure {
        let sent = was_sent(error);
        if !sent || matches!(error, ureq::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData) {
            self.look_again();
        }
        let kind = match error {
            ureq::Error::Timeout(_) => io::ErrorKind::TimedOut,
            ureq::Error::HostNotFound => io::ErrorKind::NotFound,
            ureq::Error::Io(error) => error.kind(),
            _ => io::ErrorKind::Other,
        };
        let source = io::Error::new(kind, self.words(member, times, error));
        PostFailure::Unanswered { sent, source }
    }
}

impl Gateway for Http {
    fn members(&self) -> usize {
        self.endpoints.len()
    }

    fn endpoint(&self, member: usize) -> &str {
        &self.endpoints[member]
    }

    fn post(&self, question: Question<'_>) -> Result<Vec<u8>, PostFailure> {
        let Question { member, times, .. } = question;
        let agent = self.agent();
        let request = agent.configure_request(self.request(question)?);
        let request = request.timeout_resolve(Some(times.connect)).timeout_connect(Some(times.connect));
        let request = request.timeout_global(Some(times.whole)).build();
        let mut body = self.body((member, times), agent.run(request))?;
        let answer = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        answer.map_err(|error| self.broken_off(member, times, &error))
    }

    fn open(&self, question: Question<'_>) -> Result<Box<dyn Read + Send>, PostFailure> {
        let Question { member, times, .. } = question;
        let agent = self.agent();
        let request = agent.configure_request(self.request(question)?);
        let request = request.timeout_resolve(Some(times.connect)).timeout_connect(Some(times.connect));
        let request = request.timeout_recv_response(Some(times.whole));
        let request = request.timeout_per_read(Some(times.whole)).build();
        let body = self.body((member, times), agent.run(request))?;
        Ok(Box::new(body.into_reader()))
    }
}

/// Whether the member may have got the question.
fn was_sent(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::BadUri(_)
        | ureq::Error::Tls(_)
        | ureq::Error::Http(_) => false,
        ureq::Error::Io(error) => error.kind() != io::ErrorKind::ConnectionRefused,
        ureq::Error::Timeout(stage) => !matches!(stage, ureq::Timeout::Connect | ureq::Timeout::Resolve),
        _ => true,
    }
}

fn setup(what: String) -> EtcdError {
    EtcdError::Setup { what: what.into() }
}

impl TlsFiles {
    fn read(&self) -> Result<TlsTexts, EtcdError> {
        let read = |setting: &str, path: &Path| {
            let wrong =
                |error: io::Error| setup(format!("cannot read {} of `{setting}`: {error}", path.display()));
            std::fs::read(path).map_err(wrong)
        };
        let ca = self.ca.as_deref().map(|path| read("etcd_ca_file", path)).transpose()?;
        let client = match &self.client {
            Some((certificate, key)) => {
                Some((read("etcd_client_certificate_file", certificate)?, read("etcd_client_key_file", key)?))
            }
            None => None,
        };
        Ok(TlsTexts { ca, client })
    }
}

fn agent(texts: &TlsTexts, names: &Names) -> Result<Agent, EtcdError> {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .max_idle_connections_per_host(IDLE_CONNECTIONS_MAX)
        .user_agent(concat!("cell/", env!("CARGO_PKG_VERSION")));
    let config = match &texts.ca {
        Some(ca) => config.tls_config(tls(ca, texts.client.as_ref())?),
        None => config,
    };
    Ok(Agent::with_parts(config.build(), DefaultConnector::default(), names.clone()))
}

fn certificates(setting: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, EtcdError> {
    let wrong = |why: String| setup(format!("cannot read the certificates of `{setting}`: {why}"));
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() { Err(wrong("it has none".to_owned())) } else { Ok(found) }
}

/// TLS that trusts these certificates, and nobody else.
fn tls(ca: &[u8], client: Option<&(Vec<u8>, Vec<u8>)>) -> Result<TlsConfig, EtcdError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trusted = certificates("etcd_ca_file", ca)?;
    let of_ureq = |found: &[CertificateDer<'static>]| -> Vec<Certificate<'static>> {
        found.iter().map(|der| Certificate::from_der(der).to_owned()).collect()
    };
    let mut config = TlsConfig::builder().root_certs(RootCerts::from(of_ureq(&trusted)));
    if let Some((certificate, key)) = client {
        let chain = certificates("etcd_client_certificate_file", certificate)?;
        let wrong = |why: String| setup(format!("cannot use the key of `etcd_client_key_file`: {why}"));
        let private = PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong(error.to_string()))?;
        // A key that is another certificate's would end the process where it is used.
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted);
        let versions = rustls::ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(error.to_string()))?;
        let fits = versions.with_root_certificates(roots).with_client_auth_cert(chain.clone(), private);
        fits.map_err(|error| wrong(error.to_string()))?;
        let private = PrivateKey::from_pem(key).map_err(|error| wrong(error.to_string()))?;
        config = config.client_cert(Some(ClientCert::new_with_certs(&of_ureq(&chain), private)));
    }
    Ok(config.unversioned_rustls_crypto_provider(provider).build())
}

/// The members' names, and where they lead. ureq asks before it takes a connection that is there, so that a
/// resolver which is away would keep members from being asked that are reached. Clones are the same.
#[derive(Clone, Debug)]
struct Names(Resolver);

impl UreqResolver for Names {
    fn resolve(
        &self,
        uri: &Uri,
        _config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(ureq::Error::HostNotFound);
        };
        let place = DefaultResolver::host_and_port(scheme, authority).ok_or(ureq::Error::HostNotFound)?;
        let wait_ns = u64::try_from(timeout.after.as_nanos()).unwrap_or(u64::MAX);
        let addresses =
            self.0.find_within(&place, Duration::from_nanos(wait_ns)).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::TimedOut => ureq::Error::Timeout(ureq::Timeout::Resolve),
                    _ => ureq::Error::HostNotFound,
                }
            })?;
        let mut found = self.empty();
        addresses.into_iter().take(ADDRESSES_MAX).for_each(|address| found.push(address));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::{Mutex, mpsc};

    use ureq::unversioned::transport::time;

    use super::*;
    use crate::clock::boottime_ns;

    /// All nodes were silent once a resolver had been away for five seconds, though they had connections to
    /// an etcd that answered.
    #[test]
    fn members_are_asked_on_while_a_resolver_is_away() {
        let (answers, asked) = mpsc::channel::<io::Result<Vec<SocketAddr>>>();
        let asked = Mutex::new(asked);
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let look = move |_: &str| asked.lock().unwrap().recv().unwrap_or_else(|_| Err(gone()));
        let names = Names(Resolver::looked_up_by(NAME_BELIEVED_FOR, look));
        let uri: Uri = "http://member.test:2379/a".parse().unwrap();
        let config = Agent::config_builder().build();
        let ask = || {
            let timeout = NextTimeout { after: time::Duration::from_millis(20), ..NextTimeout::default() };
            names.resolve(&uri, &config, timeout).map(|found| found.to_vec())
        };
        assert!(matches!(ask(), Err(ureq::Error::Timeout(ureq::Timeout::Resolve))), "it was never known");
        let member = SocketAddr::from(([192, 0, 2, 1], 2379));
        answers.send(Ok(vec![member])).unwrap();
        let end_ns = boottime_ns() + 120_000_000_000;
        while ask().is_err() {
            assert!(boottime_ns() < end_ns, "its answer counts");
        }
        names.0.doubt();
        assert_eq!(ask().unwrap(), [member], "the resolver hangs");
        answers.send(Err(gone())).unwrap();
        assert_eq!(ask().unwrap(), [member], "and knows nothing");
    }
}
