//! Authorities and what they sign, for tests of this crate and of those above it.

use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
};
use tempfile::TempDir;

/// The year in which certificates end that are to hold.
const FAR: i32 = 2_999;

/// Who signs certificates.
pub(crate) struct Authority {
    /// Its own certificate.
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate for these names and addresses that ends with the year before, and its key. One for none
    /// has no common name either.
    pub(crate) fn sign(&self, names: &[&str], until: i32) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let all: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(all).unwrap();
        if names.is_empty() {
            params.distinguished_name = DistinguishedName::new();
        }
        params.not_before = date_time_ymd(2_000, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// A folder with `ca.pem`, and `node.pem` and `node.key` for these names.
    pub(crate) fn folder(&self, names: &[&str]) -> Folder {
        self.folder_until(names, FAR)
    }

    /// The same, and the node's certificate ends with the year before.
    pub(crate) fn folder_until(&self, names: &[&str], until: i32) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.write("ca.pem", &self.pem);
        let (certificate, key) = self.sign(names, until);
        folder.write("node.pem", &certificate);
        folder.write("node.key", &key);
        folder
    }

    /// Replaces the node's certificate and key in a folder by others that this authority has signed.
    pub(crate) fn replace(&self, folder: &Folder, names: &[&str]) {
        let (certificate, key) = self.sign(names, FAR);
        folder.write("node.pem", &certificate);
        folder.write("node.key", &key);
    }
}

/// A folder of files; it goes with this.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Puts another file in the place of one: whoever reads it sees all of the old one or all of the new one.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let beside = self.path(&format!("{name}.new"));
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(beside, self.path(name)).unwrap();
    }
}
