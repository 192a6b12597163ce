//! Whom an end trusts: by a file of certificates that may be replaced while the process runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cell_terms::mutant::{Mutant, planted};
use cell_terms::text::with_causes;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::pem_files::{Stamp, TlsError, certificates, provider};
use super::shown::ShownCertificate;

/// Whom an end trusts that connects. Clones are the same one.
///
/// A certificate of the file itself is trusted as it is, whatever its names and dates are, because it is
/// known byte by byte. Others have to be signed by one of the file, hold now, and be for the name or the
/// address that is connected to.
#[derive(Clone, Debug)]
pub struct TlsTrust(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// Of the file that was read last, or could not be.
    stamp: Mutex<Stamp>,
    /// Why it was refused when it was read last.
    refused: Mutex<Option<String>>,
    verifier: Arc<TrustedVerifier>,
    config: Arc<ClientConfig>,
}

/// The same one.
impl PartialEq for TlsTrust {
    fn eq(&self, other: &TlsTrust) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl TlsTrust {
    /// Trusts the certificates of a PEM file, and what they have signed.
    ///
    /// # Errors
    /// It cannot be read, or holds none.
    pub fn open(path: &Path) -> Result<TlsTrust, TlsError> {
        TlsTrust::with_own(path, None)
    }

    /// The same, and the certificate that the process shows itself: an end that has its key is this process,
    /// or one that shares all with it.
    pub(super) fn with_own(path: &Path, own: Option<Arc<ShownCertificate>>) -> Result<TlsTrust, TlsError> {
        let stamp = Mutex::new(Stamp::of(path));
        let trusted = RwLock::new(Arc::new(Trusted::read(path)?));
        let provider = provider();
        let verifier = Arc::new(TrustedVerifier { trusted, own, provider: Arc::clone(&provider) });
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let builder = builder.expect("the provider has cipher suites of TLS 1.3").dangerous();
        let builder = builder.with_custom_certificate_verifier(verifier.clone());
        let mut config = builder.with_no_client_auth();
        // Who resumes shows no certificate: one that is trusted no longer would do.
        config.resumption = Resumption::disabled();
        let (path, refused, config) = (path.to_owned(), Mutex::default(), Arc::new(config));
        Ok(TlsTrust(Arc::new(Inner { path, stamp, refused, verifier, config })))
    }

    /// For an end that connects. It follows what is read later.
    #[must_use]
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0.config)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The certificates of the file, as they are trusted now.
    #[must_use]
    pub fn certificates(&self) -> Vec<CertificateDer<'static>> {
        self.0.verifier.trusted().known.clone()
    }

    /// Whether who shows this chain is trusted, its own certificate first, whatever names that is for.
    ///
    /// # Errors
    /// Nobody of the file has signed it, or it does not hold now.
    pub fn check(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let Some((own, intermediates)) = chain.split_first() else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        let verifier = &self.0.verifier;
        let trusted = verifier.trusted();
        if trusted.known.contains(own) {
            return Ok(());
        }
        let (own, now) = (ParsedCertificate::try_from(own)?, UnixTime::now());
        let algorithms = verifier.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&own, &trusted.roots, intermediates, now, algorithms)
    }

    /// Reads the file again if it is another one than at the last look; whether it was read.
    ///
    /// # Errors
    /// It is wrong, which is said once: whom this trusts stays what it was.
    pub fn read_if_changed(&self) -> Result<bool, TlsError> {
        let mut stamp = self.0.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Stamp::of(&self.0.path);
        if std::mem::replace(&mut *stamp, now) == now {
            return Ok(false);
        }
        let read = Trusted::read(&self.0.path);
        let refused = read.as_ref().err().map(|error| with_causes(error));
        *self.0.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        let trusted = Arc::new(read?);
        *self.0.verifier.trusted.write().unwrap_or_else(PoisonError::into_inner) = trusted;
        Ok(true)
    }

    /// Why the file was refused when it was read last, whoever had it read; none: what it says is in force.
    #[must_use]
    pub fn refused(&self) -> Option<String> {
        self.0.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What one file says.
#[derive(Debug)]
struct Trusted {
    known: Vec<CertificateDer<'static>>,
    roots: Arc<RootCertStore>,
    signed: Arc<WebPkiServerVerifier>,
}

impl Trusted {
    fn read(path: &Path) -> Result<Trusted, TlsError> {
        let known = certificates(path)?;
        let wrong = |error| TlsError::Trust { path: path.to_owned(), error };
        let mut roots = RootCertStore::empty();
        for certificate in &known {
            roots.add(certificate.clone()).map_err(|error| wrong(error.into()))?;
        }
        let roots = Arc::new(roots);
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider()).build();
        Ok(Trusted { known, roots, signed: signed.map_err(|error| wrong(error.into()))? })
    }
}

/// See [`TlsTrust`]. (The usual check refuses a self-signed certificate that says of itself that it may sign
/// others.)
#[derive(Debug)]
struct TrustedVerifier {
    trusted: RwLock<Arc<Trusted>>,
    own: Option<Arc<ShownCertificate>>,
    provider: Arc<CryptoProvider>,
}

impl TrustedVerifier {
    fn trusted(&self) -> Arc<Trusted> {
        Arc::clone(&self.trusted.read().unwrap_or_else(PoisonError::into_inner))
    }
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
        let trusted = self.trusted();
        let is_own = || self.own.as_ref().is_some_and(|own| own.shows(end_entity));
        if trusted.known.contains(end_entity) || is_own() || planted(Mutant::CertificateUnjudged) {
            return Ok(ServerCertVerified::assertion());
        }
        trusted.signed.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
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
    use std::net::IpAddr;

    use rustls::CertificateError;

    use super::*;
    use crate::tls::test_certificates::{Authority, Folder};

    /// What a trust says of the node's certificate in a folder, asked for by an address.
    fn verdict(trust: &TlsTrust, folder: &Folder, address: [u8; 4]) -> Result<(), rustls::Error> {
        let chain = certificates(&folder.path("node.pem")).unwrap();
        let name = ServerName::IpAddress(IpAddr::from(address).into());
        let verifier = &trust.0.verifier;
        verifier.verify_server_cert(&chain[0], &[], &name, &[], UnixTime::now()).map(drop)
    }

    #[test]
    fn certificate_is_trusted_by_who_signed_it_its_names_and_its_dates() {
        let (one, two) = (Authority::new("one"), Authority::new("two"));
        let folder = one.folder(&["127.0.0.1"]);
        let trust = TlsTrust::open(&folder.path("ca.pem")).unwrap();
        assert_eq!(verdict(&trust, &folder, [127, 0, 0, 1]), Ok(()));
        let wrong = verdict(&trust, &folder, [127, 0, 0, 2]).unwrap_err();
        assert!(
            matches!(
                wrong,
                rustls::Error::InvalidCertificate(
                    CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
                )
            ),
            "{wrong}"
        );
        let ended = verdict(&trust, &one.folder_until(&["127.0.0.1"], 2_001), [127, 0, 0, 1]).unwrap_err();
        assert!(
            matches!(
                ended,
                rustls::Error::InvalidCertificate(
                    CertificateError::Expired | CertificateError::ExpiredContext { .. }
                )
            ),
            "{ended}"
        );
        let other = verdict(&trust, &two.folder(&["127.0.0.1"]), [127, 0, 0, 1]).unwrap_err();
        assert_eq!(other, rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer));
    }

    #[test]
    fn check_goes_by_who_signed_and_not_by_names() {
        let (one, two) = (Authority::new("one"), Authority::new("two"));
        let folder = one.folder(&["elsewhere.example"]);
        let chain = |folder: &Folder| certificates(&folder.path("node.pem")).unwrap();
        let trust = TlsTrust::open(&folder.path("ca.pem")).unwrap();
        assert_eq!(trust.check(&chain(&folder)), Ok(()));
        let other = trust.check(&chain(&two.folder(&["elsewhere.example"])));
        assert_eq!(other, Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)));
        assert!(trust.check(&[]).is_err());
        let itself = TlsTrust::open(&folder.path("node.pem")).unwrap();
        assert_eq!(itself.check(&chain(&folder)), Ok(()));
    }

    #[test]
    fn certificate_of_the_file_itself_is_trusted_as_it_is() {
        let folder = Authority::new("one").folder(&["elsewhere.example"]);
        let trust = TlsTrust::open(&folder.path("node.pem")).unwrap();
        assert_eq!(verdict(&trust, &folder, [127, 0, 0, 1]), Ok(()));
    }

    /// One authority takes the place of another: both are trusted side by side, then the new one alone.
    #[test]
    fn file_that_is_replaced_counts_and_one_that_is_wrong_does_not() {
        let (one, two) = (Authority::new("one"), Authority::new("two"));
        let (folder, new) = (one.folder(&["127.0.0.1"]), two.folder(&["127.0.0.1"]));
        let trust = TlsTrust::open(&folder.path("ca.pem")).unwrap();
        let trusts = || [&folder, &new].map(|of| verdict(&trust, of, [127, 0, 0, 1]).is_ok());
        assert_eq!((trusts(), trust.read_if_changed().unwrap()), ([true, false], false));
        folder.write("ca.pem", &[one.pem.as_str(), &two.pem].concat());
        assert_eq!((trust.read_if_changed().unwrap(), trusts()), (true, [true, true]));
        assert_eq!(trust.certificates().len(), 2);
        folder.write("ca.pem", "nothing");
        assert!(trust.read_if_changed().is_err());
        assert_eq!((trust.read_if_changed().unwrap(), trusts()), (false, [true, true]), "it is said once");
        assert!(trust.refused().is_some_and(|why| why.ends_with("ca.pem: no items found")));
        folder.write("ca.pem", &two.pem);
        assert_eq!((trust.read_if_changed().unwrap(), trusts()), (true, [false, true]));
        assert_eq!(trust.refused(), None);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_certificate_unjudged_is_caught() {
        use cell_terms::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::CertificateUnjudged));
            let passed =
                std::panic::catch_unwind(certificate_is_trusted_by_who_signed_it_its_names_and_its_dates)
                    .is_ok();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-fabric's trust", Mutant::CertificateUnjudged.name());
        });
    }
}
