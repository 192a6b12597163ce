//! `cell certificates`: a certification authority (CA) of the cluster's own, and certificates that it signs
//! for hosts. Nothing is asked of any server.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use cell_durable::{SystemSyncer, create_folders};
use clap::{Args, Subcommand, value_parser};
use data_encoding::HEXLOWER;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;

use crate::args::Global;
use crate::exit::{Exit, Failure};
use crate::output::message;

const CA_CERTIFICATE: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const NODE_CERTIFICATE: &str = "node.crt";
const NODE_KEY: &str = "node.key";
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Clocks of hosts differ.
const EARLIER: Duration = Duration::from_secs(3_600);
/// Bytes of a key's digest that its CA is named by.
const NAME_BYTES: usize = 8;

/// Arguments of `cell certificates`.
#[derive(Debug, Args)]
pub(crate) struct CertificatesArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a host's key and certificate, and the CA that signs it if there is none yet
    Make(MakeArgs),
}

/// Arguments of `cell certificates make`.
#[derive(Debug, Args)]
struct MakeArgs {
    /// Folder of the CA: ca.crt, ca.key. Made if missing; keep it where no node runs
    #[arg(long, value_name = "DIR")]
    ca: PathBuf,
    /// The names and IP addresses under which the host is reached, separated by commas; can be given several
    /// times
    #[arg(long, value_name = "NAME|IP", required = true, value_delimiter = ',')]
    host: Vec<String>,
    /// Folder of the host's files: node.crt, node.key, ca.crt. Made if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// For how many days the host's certificate holds
    #[arg(long, value_name = "N", default_value_t = 397, value_parser = value_parser!(u16).range(1..=3650))]
    days: u16,
    /// For how many days the CA's certificate holds, if it is made
    #[arg(long, value_name = "N", default_value_t = 3650, value_parser = value_parser!(u16).range(1..=7300))]
    ca_days: u16,
    /// Replace the host's key and certificate, which are there
    #[arg(long)]
    renew: bool,
}

/// Makes what is wanted.
pub(crate) fn run(global: &Global, arguments: &CertificatesArgs) -> anyhow::Result<Exit> {
    let What::Make(arguments) = &arguments.what;
    let is_new = make(arguments)?;
    let [ca, out] = [&arguments.ca, &arguments.out].map(|path| path.display().to_string());
    let document = json!({"ca": ca, "ca_made": is_new, "out": out, "hosts": arguments.host});
    message::print_document(global.json, document, || {
        let made = if is_new {
            format!("{ca}/{CA_CERTIFICATE} and {CA_KEY} are made: keep the key\n")
        } else {
            String::new()
        };
        let names = arguments.host.join(", ");
        format!("{made}{out}/{NODE_CERTIFICATE} and {NODE_KEY} are made for {names}\n")
    })?;
    Ok(Exit::Ok)
}

/// Whether the CA was made, too.
fn make(arguments: &MakeArgs) -> anyhow::Result<bool> {
    let MakeArgs { ca, host, out, days, ca_days, renew } = arguments;
    let [certificate, key] = [NODE_CERTIFICATE, NODE_KEY].map(|name| out.join(name));
    // All that can be wrong is said before anything is made.
    host.iter().try_for_each(|host| refuse_no_host(host))?;
    let mut params = CertificateParams::new(host.clone())
        .map_err(|error| Failure::usage(format!("--host takes names and IP addresses: {error}")))?;
    refuse_presence([certificate.as_path(), key.as_path()], *renew)?;
    let is_new = is_missing(ca)?;
    let authority = if is_new { Authority::make(ca, *ca_days)? } else { Authority::open(ca)? };
    params.distinguished_name = name(&host[0]);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    hold_for(&mut params, *days);
    let own = KeyPair::generate().context("cannot make a key")?;
    let signed = params.signed_by(&own, &authority.issuer).context("cannot sign the certificate")?;
    make_folder(out)?;
    // What is read between the two is noticed: the key is not the certificate's.
    replace(&key, &own.serialize_pem(), 0o600)?;
    replace(&certificate, &signed.pem(), 0o644)?;
    let trusted = out.join(CA_CERTIFICATE);
    // While a CA is rolled the old one stands there, too: hosts that it has signed are trusted by it.
    if !fs::read_to_string(&trusted).is_ok_and(|text| text.contains(authority.pem.trim())) {
        replace(&trusted, &authority.pem, 0o644)?;
    }
    Ok(is_new)
}

/// Half of a pair, as a command that was broken off leaves it, can be renewed.
fn refuse_presence(pair: [&Path; 2], renew: bool) -> Result<(), Failure> {
    let found = pair.into_iter().find(|path| path.symlink_metadata().is_ok());
    let shown = found.unwrap_or(pair[0]).display();
    match (found.is_some(), renew) {
        (true, false) => {
            let next = "give another --out, or --renew to replace the host's key and certificate";
            Err(Failure::usage(format!("{shown} is there already")).next(next))
        }
        (false, true) => {
            Err(Failure::usage(format!("there is no {shown} to renew")).next("leave --renew out"))
        }
        _ => Ok(()),
    }
}

/// A certificate for what is no name of a host would be refused by all, for no reason that they could give.
fn refuse_no_host(host: &str) -> Result<(), Failure> {
    let checked = host.strip_prefix("*.").unwrap_or(host);
    match ServerName::try_from(checked) {
        Ok(_) => Ok(()),
        Err(_) => {
            Err(Failure::usage(format!("--host takes names and IP addresses, and `{host}` is neither")))
        }
    }
}

/// Whether there is no CA in a folder. Half of one is nobody's.
fn is_missing(ca: &Path) -> Result<bool, Failure> {
    match [CA_CERTIFICATE, CA_KEY].map(|name| ca.join(name).symlink_metadata().is_ok()) {
        [true, true] => Ok(false),
        [false, false] => Ok(true),
        [has_certificate, _] => {
            let missing = if has_certificate { CA_KEY } else { CA_CERTIFICATE };
            let what = format!("{} has no {missing}, but the other half of a CA", ca.display());
            Err(Failure::usage(what).next("bring it back, or give another --ca"))
        }
    }
}

/// Who signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// A new one, its key on stable storage before anybody trusts its certificate.
    fn make(folder: &Path, days: u16) -> anyhow::Result<Authority> {
        let key = KeyPair::generate().context("cannot make a key")?;
        let mut params = authority_params(&key);
        hold_for(&mut params, days);
        let certificate: Certificate =
            params.self_signed(&key).context("cannot make the CA's certificate")?;
        make_folder(folder)?;
        create(&folder.join(CA_KEY), &key.serialize_pem(), 0o600)?;
        create(&folder.join(CA_CERTIFICATE), &certificate.pem(), 0o644)?;
        Ok(Authority { issuer: Issuer::new(params, key), pem: certificate.pem() })
    }

    /// One that this command has made before. It is named by its key, so the key is all that signing takes.
    fn open(folder: &Path) -> anyhow::Result<Authority> {
        let [path, key_path] = [CA_CERTIFICATE, CA_KEY].map(|name| folder.join(name));
        let cannot = |path: &Path| format!("cannot read {}", path.display());
        let text = fs::read_to_string(&key_path).with_context(|| cannot(&key_path))?;
        let key = KeyPair::from_pem(&text).with_context(|| cannot(&key_path))?;
        let pem = fs::read_to_string(&path).with_context(|| cannot(&path))?;
        let der = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| Failure::usage(format!("{} is no certificate: {error}", path.display())))?;
        let params = authority_params(&key);
        let has = |bytes: &[u8]| der.windows(bytes.len()).any(|window| window == bytes);
        if !has(key.public_key_raw()) || !has(authority_name(&key).as_bytes()) {
            let what = format!("{} is not of the CA whose key is {}", path.display(), key_path.display());
            let next = "bring back the two that `cell certificates make` has made together";
            return Err(Failure::usage(what).next(next).into());
        }
        Ok(Authority { issuer: Issuer::new(params, key), pem })
    }
}

fn authority_params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = name(&authority_name(key));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Of one CA and no other: an old and a new one are trusted side by side.
fn authority_name(key: &KeyPair) -> String {
    let identifier = CertificateParams::default().key_identifier(key);
    format!("Cell CA {}", HEXLOWER.encode(&identifier[..NAME_BYTES.min(identifier.len())]))
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

fn hold_for(params: &mut CertificateParams, days: u16) {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_1970.saturating_sub(EARLIER);
    params.not_after = epoch + (since_1970 + DAY * u32::from(days));
}

/// A folder that is made is its user's alone.
fn make_folder(folder: &Path) -> anyhow::Result<()> {
    let make = || -> std::io::Result<()> {
        if folder.is_dir() {
            return Ok(());
        }
        create_folders(&SystemSyncer, folder)?;
        fs::set_permissions(folder, Permissions::from_mode(0o700))
    };
    make().with_context(|| format!("cannot create {}", folder.display()))
}

/// A file that must not be there yet.
fn create(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// A file that is there whole, or as it was.
fn replace(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    create(&unfinished, text, mode)?;
    let renamed = fs::rename(&unfinished, path);
    if renamed.is_err() {
        let _ = fs::remove_file(&unfinished); // what failed is said
    }
    renamed.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::UnixTime;

    use super::*;

    fn arguments(folder: &Path, host: &str, renew: bool) -> MakeArgs {
        MakeArgs {
            ca: folder.join("ca"),
            host: vec![host.to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()],
            out: folder.join("out"),
            days: 10,
            ca_days: 100,
            renew,
        }
    }

    /// Whether a client that trusts these certificates takes the host's for one of this name.
    fn is_trusted(folder: &Path, trusted: &str, host: &str) -> bool {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let own = CertificateDer::from_pem_file(folder.join("out").join(NODE_CERTIFICATE)).unwrap();
        let name = ServerName::try_from(host.to_owned()).unwrap();
        verifier.verify_server_cert(&own, &[], &name, &[], UnixTime::now()).is_ok()
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn certificates_are_trusted_by_their_ca_under_their_names_alone() {
        let folder = tempfile::tempdir().unwrap();
        assert!(make(&arguments(folder.path(), "node-1.example", false)).unwrap());
        let trusted = read(&folder.path().join("out").join(CA_CERTIFICATE));
        assert_eq!(trusted, read(&folder.path().join("ca").join(CA_CERTIFICATE)));
        for host in ["node-1.example", "127.0.0.1", "::1"] {
            assert!(is_trusted(folder.path(), &trusted, host), "{host}");
        }
        assert!(!is_trusted(folder.path(), &trusted, "node-2.example"));
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode("ca/ca.key"), mode("out/node.key"), mode("ca")], [0o600, 0o600, 0o700]);
        let key = KeyPair::from_pem(&read(&folder.path().join("out").join(NODE_KEY))).unwrap();
        let own = CertificateDer::from_pem_file(folder.path().join("out").join(NODE_CERTIFICATE)).unwrap();
        assert!(own.windows(key.public_key_raw().len()).any(|window| window == key.public_key_raw()));
    }

    #[test]
    fn certificates_that_are_there_are_replaced_by_a_renewal_alone() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("out").join(NODE_KEY);
        let refused = |renew| make(&arguments(folder.path(), "a", renew)).unwrap_err().to_string();
        assert!(refused(true).contains("to renew"), "there is none");
        assert!(!folder.path().join("ca").exists(), "nothing was made");
        make(&arguments(folder.path(), "a", false)).unwrap();
        let first = read(&key);
        assert!(refused(false).contains("is there already"));
        assert_eq!(read(&key), first);
        assert!(!make(&arguments(folder.path(), "b", true)).unwrap(), "by the CA that is there");
        assert_ne!(read(&key), first);
        let trusted = read(&folder.path().join("ca").join(CA_CERTIFICATE));
        assert!(is_trusted(folder.path(), &trusted, "b"));
        // Broken off between the two, each of the two ways was refused and named the other.
        fs::remove_file(folder.path().join("out").join(NODE_CERTIFICATE)).unwrap();
        assert!(refused(false).contains("is there already"));
        make(&arguments(folder.path(), "c", true)).unwrap();
        assert!(is_trusted(folder.path(), &trusted, "c"));
    }

    /// `localhost,127.0.0.1` became one name, which no client ever asks for.
    #[test]
    fn host_that_is_no_name_is_refused_before_anything_is_made() {
        let folder = tempfile::tempdir().unwrap();
        for host in ["localhost,127.0.0.1", "a b", "", "https://a", "a:7000"] {
            let refused = make(&arguments(folder.path(), host, false)).unwrap_err().to_string();
            assert!(refused.contains("is neither"), "{host}: {refused}");
        }
        assert!(!folder.path().join("ca").exists());
        make(&arguments(folder.path(), "*.example.org", false)).unwrap();
        assert!(is_trusted(folder.path(), &read(&folder.path().join("ca/ca.crt")), "a.example.org"));
    }

    /// How a CA is rolled: the new one is trusted beside the old one before anybody shows its certificates.
    #[test]
    fn certificates_of_an_old_and_a_new_ca_are_trusted_side_by_side() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [&old, &new] {
            make(&arguments(folder.path(), "a", false)).unwrap();
        }
        let [of_old, of_new] =
            [&old, &new].map(|folder| read(&folder.path().join("ca").join(CA_CERTIFICATE)));
        let both = format!("{of_old}{of_new}");
        for folder in [&old, &new] {
            assert!(is_trusted(folder.path(), &both, "a"));
        }
        assert!(!is_trusted(old.path(), &of_new, "a") && !is_trusted(new.path(), &of_old, "a"));
    }

    /// A renewal took away by what the other hosts are trusted, which have the old CA's certificates still.
    #[test]
    fn renewal_leaves_an_old_ca_that_stands_beside_its_own() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [&old, &new] {
            make(&arguments(folder.path(), "a", false)).unwrap();
        }
        let trusted = old.path().join("out").join(CA_CERTIFICATE);
        let of_new = read(&new.path().join("ca").join(CA_CERTIFICATE));
        let both = format!("{}{of_new}", read(&trusted));
        fs::write(&trusted, &both).unwrap();
        let renewal = MakeArgs { ca: new.path().join("ca"), ..arguments(old.path(), "a", true) };
        make(&renewal).unwrap();
        assert_eq!(read(&trusted), both);
        assert!(is_trusted(old.path(), &of_new, "a"));
        fs::write(&trusted, "").unwrap();
        make(&renewal).unwrap();
        assert_eq!(read(&trusted), of_new);
    }

    #[test]
    fn ca_that_is_half_or_mixed_is_refused() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [&folder, &other] {
            make(&arguments(folder.path(), "a", false)).unwrap();
        }
        let ca = |folder: &Path| folder.join("ca").join(CA_CERTIFICATE);
        let refused = || make(&arguments(folder.path(), "a", true)).unwrap_err().to_string();
        fs::copy(ca(other.path()), ca(folder.path())).unwrap();
        assert!(refused().contains("is not of the CA whose key is"));
        fs::remove_file(ca(folder.path())).unwrap();
        assert!(refused().contains("has no ca.crt"));
    }
}
