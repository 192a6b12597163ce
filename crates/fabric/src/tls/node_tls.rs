//! Both sides of TLS of a process that serves it: what it shows, and whom it trusts. One certificate is for
//! all of its doors.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cell_terms::setting::Settings;
use cell_terms::text::with_causes;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;

use super::pem_files::{Stamp, TlsError, TlsFiles, certified_key, provider};
use super::shown::ShownCertificate;
use super::trust::TlsTrust;

/// TLS of a process that serves it. Clones are the same one.
#[derive(Clone, Debug)]
pub struct NodeTls(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    files: TlsFiles,
    /// Of certificate and key as they were read last, or could not be.
    stamps: Mutex<[Stamp; 2]>,
    /// Why they were refused when they were read last.
    refused: Mutex<Option<String>>,
    shown: Arc<ShownCertificate>,
    server: Arc<ServerConfig>,
    trust: TlsTrust,
    own_trust: TlsTrust,
}

impl NodeTls {
    /// As the settings say; none if they name no files.
    ///
    /// # Errors
    /// A file is missing or wrong.
    pub fn from_settings(settings: &Settings) -> Result<Option<NodeTls>, TlsError> {
        TlsFiles::from_settings(settings)?.map(NodeTls::open).transpose()
    }

    /// With these files.
    ///
    /// # Errors
    /// One is missing or wrong.
    pub fn open(files: TlsFiles) -> Result<NodeTls, TlsError> {
        let stamps = Mutex::new(stamps(&files));
        let shown = Arc::new(ShownCertificate::new(certified_key(&files)?));
        let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
        let builder = builder.expect("the provider has cipher suites of TLS 1.3").with_no_client_auth();
        let mut server = builder.with_cert_resolver(shown.clone());
        // Nothing is resumed: see `TlsTrust`.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let trusted = files.trust.as_ref().unwrap_or(&files.certificate);
        let trust = TlsTrust::open(trusted)?;
        let own_trust = TlsTrust::with_own(trusted, Some(shown.clone()))?;
        let (server, refused) = (Arc::new(server), Mutex::default());
        Ok(NodeTls(Arc::new(Inner { files, stamps, refused, shown, server, trust, own_trust })))
    }

    /// For an end that accepts. It follows what is read later.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.server)
    }

    /// By what peers are trusted.
    #[must_use]
    pub fn trust(&self) -> &TlsTrust {
        &self.0.trust
    }

    /// The same, and this process itself, whatever address it is reached by.
    #[must_use]
    pub fn own_trust(&self) -> &TlsTrust {
        &self.0.own_trust
    }

    /// The file of the certificate that is shown, and what it holds as it is shown now.
    #[must_use]
    pub fn shown(&self) -> (&Path, Vec<CertificateDer<'static>>) {
        (&self.0.files.certificate, self.0.shown.chain())
    }

    /// Reads those files again that are others than at the last look; whether any was read. It may block.
    ///
    /// # Errors
    /// What is wrong with each of them, which is said once: what it says stays what it was.
    pub fn read_if_changed(&self) -> Result<bool, Vec<TlsError>> {
        let read = [self.read_shown(), self.0.trust.read_if_changed(), self.0.own_trust.read_if_changed()];
        let mut any = false;
        let mut errors = Vec::new();
        for (at, read) in read.into_iter().enumerate() {
            match read {
                Ok(was_read) => any |= was_read,
                // The last two are of one file.
                Err(_) if at == 2 && !errors.is_empty() => {}
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(any) } else { Err(errors) }
    }

    fn read_shown(&self) -> Result<bool, TlsError> {
        let mut known = self.0.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamps(&self.0.files);
        if std::mem::replace(&mut *known, now) == now {
            return Ok(false);
        }
        let read = certified_key(&self.0.files);
        let refused = read.as_ref().err().map(|error| with_causes(error));
        *self.0.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        self.0.shown.replace(read?);
        Ok(true)
    }

    /// Why files were refused when they were read last, by whomever: what they said before is in force.
    #[must_use]
    pub fn refused(&self) -> Vec<String> {
        let of_shown = self.0.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let of_trust = self.0.trust.refused().or_else(|| self.0.own_trust.refused());
        let of_trust = of_trust.filter(|why| of_shown.as_ref() != Some(why)); // both may be of one file
        of_shown.into_iter().chain(of_trust).collect()
    }
}

fn stamps(files: &TlsFiles) -> [Stamp; 2] {
    [&files.certificate, &files.key].map(|path| Stamp::of(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::test_certificates::Authority;

    /// Between the two files that are replaced one after the other, what was shown before is.
    #[test]
    fn certificate_and_key_that_are_replaced_are_shown_once_they_fit() {
        let authority = Authority::new("one");
        let folder = authority.folder(&["127.0.0.1"]);
        let [certificate, key] = ["node.pem", "node.key"].map(|name| folder.path(name));
        let tls = NodeTls::open(TlsFiles { certificate, key, trust: None }).unwrap();
        let before = tls.shown().1;
        assert!(!tls.read_if_changed().unwrap());
        let (certificate, key) = authority.sign(&["127.0.0.1"], 2_999);
        folder.write("node.pem", &certificate);
        let errors = tls.read_if_changed().unwrap_err();
        assert!(matches!(errors.as_slice(), [TlsError::Pair { .. }]), "{errors:?}");
        assert_eq!(tls.shown().1, before, "it is not its key's");
        assert!(!tls.read_if_changed().unwrap(), "it is said once");
        let refused = tls.refused();
        assert!(refused.len() == 1 && refused[0].starts_with("cannot serve TLS with "), "{refused:?}");
        folder.write("node.key", &key);
        assert!(tls.read_if_changed().unwrap());
        assert!(tls.refused().is_empty());
        folder.write("node.pem", "nothing");
        assert_eq!(tls.read_if_changed().unwrap_err().len(), 2);
        assert_eq!(tls.refused().len(), 1, "what is shown and who is trusted are one file");
        folder.write("node.pem", &certificate);
        assert!(tls.read_if_changed().unwrap());
        assert!(tls.refused().is_empty());
        assert_ne!(tls.shown().1, before);
        let other = authority.sign(&["127.0.0.1"], 2_999).0;
        let [other, own] = [other.as_str(), certificate.as_str()].map(|text| {
            folder.write("look.pem", text);
            super::super::pem_files::certificates(&folder.path("look.pem")).unwrap().remove(0)
        });
        assert!(tls.0.shown.shows(&own) && !tls.0.shown.shows(&other));
    }
}
