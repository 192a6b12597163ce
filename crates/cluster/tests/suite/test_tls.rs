//! Both ends of TLS for tests: a certificate that is made for them, and one token.

use std::io;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

type Credentials = Arc<dyn Fn() -> io::Result<(Arc<ClientConfig>, String)> + Send + Sync>;

/// The token that is let in.
pub(crate) const TOKEN: &str = "of the nodes";

/// A certificate for this machine's own names, with its key.
pub(crate) struct Ends {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Ends {
    pub(crate) fn new() -> Ends {
        let key = KeyPair::generate().unwrap();
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        Ends { certificate: certificate.der().clone(), key: key.serialize_der() }
    }

    /// For a server that shows the certificate.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_protocol_versions(&[&TLS13]).unwrap().with_no_client_auth();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let mut config = builder.with_single_cert(vec![self.certificate.clone()], key).unwrap();
        config.send_tls13_tickets = 0;
        Arc::new(config)
    }

    /// For a client that trusts it and nobody else.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_protocol_versions(&[&TLS13]).unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.resumption = Resumption::disabled();
        Arc::new(config)
    }

    /// Of who trusts the certificate and shows this token.
    pub(crate) fn credentials(&self, token: &str) -> Credentials {
        let (client, token) = (self.client(), token.to_owned());
        Arc::new(move || -> io::Result<(Arc<ClientConfig>, String)> { Ok((client.clone(), token.clone())) })
    }

    /// Lets in who has the token.
    pub(crate) fn check() -> Arc<dyn Fn(&str) -> bool + Send + Sync> {
        Arc::new(|token: &str| token == TOKEN)
    }
}
