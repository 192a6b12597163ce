//! The PEM files of TLS: read whole, and again when they are other files than before.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cell_terms::setting::{Settings, Value};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::tls_settings::{TLS_CERTIFICATE_FILE, TLS_KEY_FILE, TLS_TRUST_FILE};

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// One of two settings is missing.
    #[error("{TLS_CERTIFICATE_FILE} and {TLS_KEY_FILE} go together, and {missing} is not given")]
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
    #[error(
        "cannot serve TLS with the certificate of {} and the key of {}",
        certificate.display(),
        key.display()
    )]
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

/// The files of a process that serves TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate that is shown, and those that signed it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// By which peers are trusted; none: by the certificates that are shown.
    pub trust: Option<PathBuf>,
}

impl TlsFiles {
    /// What the settings name; none where there is to be no TLS.
    ///
    /// # Errors
    /// One of certificate and key is named alone.
    pub fn from_settings(settings: &Settings) -> Result<Option<TlsFiles>, TlsError> {
        let of = |name| match settings.get(name) {
            Some((Value::Text(path), _)) if !path.is_empty() => Some(PathBuf::from(path)),
            _ => None,
        };
        match (of(TLS_CERTIFICATE_FILE), of(TLS_KEY_FILE)) {
            (Some(certificate), Some(key)) => {
                Ok(Some(TlsFiles { certificate, key, trust: of(TLS_TRUST_FILE) }))
            }
            (None, None) => Ok(None),
            (None, Some(_)) => Err(TlsError::Half { missing: TLS_CERTIFICATE_FILE }),
            (Some(_), None) => Err(TlsError::Half { missing: TLS_KEY_FILE }),
        }
    }
}

/// The ciphers and signatures that are used.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The certificates of a file, of which there is at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |error| TlsError::Read { what: "certificates", path: path.to_owned(), error };
    let found = CertificateDer::pem_file_iter(path).map_err(wrong)?.collect::<Result<Vec<_>, _>>();
    match found.map_err(wrong)? {
        none if none.is_empty() => Err(wrong(pem::Error::NoItemsFound)),
        found => Ok(found),
    }
}

/// A certificate with its key.
pub(super) fn certified_key(files: &TlsFiles) -> Result<CertifiedKey, TlsError> {
    let TlsFiles { certificate, key, .. } = files;
    let chain = certificates(certificate)?;
    let wrong = |error| TlsError::Read { what: "private key", path: key.clone(), error };
    let private = PrivateKeyDer::from_pem_file(key).map_err(wrong)?;
    CertifiedKey::from_der(chain, private, &provider()).map_err(|error| TlsError::Pair {
        certificate: certificate.clone(),
        key: key.clone(),
        error,
    })
}

/// By what a file that was changed or replaced is distinguished from what it was; none: it cannot be looked
/// at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(Option<[i64; 7]>);

impl Stamp {
    /// Of a file as it is. It is taken before the file is read: what changes meanwhile is read again.
    pub(super) fn of(path: &Path) -> Stamp {
        let look = |file: std::fs::Metadata| {
            let numbers = [file.dev(), file.ino(), file.size()].map(u64::cast_signed);
            let [device, inode, size] = numbers;
            [device, inode, size, file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()]
        };
        Stamp(std::fs::metadata(path).ok().map(look))
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::setting::Source;
    use cell_terms::text::with_causes;

    use super::*;
    use crate::tls::test_certificates::Authority;

    #[test]
    fn files_that_are_missing_or_wrong_are_named() {
        let folder = Authority::new("one").folder(&["127.0.0.1"]);
        Authority::new("two").replace(&folder, &["127.0.0.1"]);
        let other = Authority::new("three").folder(&["127.0.0.1"]);
        folder.write("other.key", &std::fs::read_to_string(other.path("node.key")).unwrap());
        folder.write("empty", "");
        let of = |certificate: &str, key: &str| {
            let [certificate, key] = [certificate, key].map(|name| folder.path(name));
            let read = certified_key(&TlsFiles { certificate, key, trust: None });
            read.map(drop).map_err(|error| with_causes(&error))
        };
        assert_eq!(of("node.pem", "node.key"), Ok(()));
        for (certificate, key, wanted) in [
            ("none", "node.key", "cannot read the certificates of "),
            ("empty", "node.key", "empty: no items found"),
            ("node.pem", "none", "cannot read the private key of "),
            ("node.pem", "node.pem", "cannot read the private key of "),
            ("node.pem", "other.key", "other.key: "),
        ] {
            let error = of(certificate, key).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn from_settings_wants_certificate_and_key_or_neither() {
        let of = |given: &[&str]| {
            let mut settings = Settings::new(&[crate::TLS_SETTINGS]);
            given.iter().for_each(|name| settings.set(name, "a.pem", Source::Flag).unwrap());
            TlsFiles::from_settings(&settings).map_err(|error| error.to_string())
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[TLS_TRUST_FILE]), Ok(None));
        let files = of(&[TLS_CERTIFICATE_FILE, TLS_KEY_FILE]).unwrap().unwrap();
        assert_eq!((files.certificate, files.trust), (PathBuf::from("a.pem"), None));
        let half = of(&[TLS_KEY_FILE]).unwrap_err();
        assert!(half.ends_with("tls_certificate_file is not given"), "{half}");
        assert!(of(&[TLS_CERTIFICATE_FILE]).unwrap_err().ends_with("tls_key_file is not given"));
    }

    #[test]
    fn stamp_is_another_once_a_file_is_replaced_or_gone() {
        let folder = Authority::new("one").folder(&["127.0.0.1"]);
        let path = folder.path("node.pem");
        let before = Stamp::of(&path);
        assert_eq!(Stamp::of(&path), before);
        folder.write("node.pem", &std::fs::read_to_string(&path).unwrap());
        assert_ne!(Stamp::of(&path), before, "the same text in another file");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(Stamp::of(&path), Stamp(None));
    }
}
