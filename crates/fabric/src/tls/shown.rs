//! The certificate that an end shows, which may be replaced while the process runs.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// What is shown to who connects from now on.
#[derive(Debug)]
pub(super) struct ShownCertificate(RwLock<Arc<CertifiedKey>>);

impl ShownCertificate {
    pub(super) fn new(key: CertifiedKey) -> ShownCertificate {
        ShownCertificate(RwLock::new(Arc::new(key)))
    }

    pub(super) fn replace(&self, key: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
    }

    /// It, and those that signed it.
    pub(super) fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.current().cert.clone()
    }

    /// Whether it is this certificate.
    pub(super) fn shows(&self, certificate: &CertificateDer<'_>) -> bool {
        self.current().cert.first() == Some(certificate)
    }

    fn current(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for ShownCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}
