//! How long certificates hold, and who else may read or write the files of TLS and tokens. No library of this
//! program says when a certificate ends, so its dates are read here.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// A certificate that ends sooner is warned of.
const SOON_SECONDS: i64 = 30 * DAY_SECONDS;
const DAY_SECONDS: i64 = 24 * 3_600;

// Tags of DER.
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// From when until when a certificate holds, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Validity {
    not_before: i64,
    not_after: i64,
}

impl Validity {
    /// As a certificate has it; none if that is none.
    fn of(der: &[u8]) -> Option<Validity> {
        let (_, fields) = issuer(der)?;
        let (times, _) = element(fields, SEQUENCE)?;
        let (not_before, rest) = time(times)?;
        let (not_after, _) = time(rest)?;
        Some(Validity { not_before, not_after })
    }

    /// The time in which both hold.
    fn and(self, other: Validity) -> Validity {
        Validity {
            not_before: self.not_before.max(other.not_before),
            not_after: self.not_after.min(other.not_after),
        }
    }
}

/// Who issued a certificate, and the fields that follow.
fn issuer(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (certificate, _) = element(der, SEQUENCE)?;
    let (mut fields, _) = element(certificate, SEQUENCE)?;
    if let Some((_, rest)) = element(fields, VERSION) {
        fields = rest;
    }
    // The serial number, the algorithm.
    for tag in [INTEGER, SEQUENCE] {
        (_, fields) = element(fields, tag)?;
    }
    element(fields, SEQUENCE)
}

/// Whether a certificate names itself as who issued it, as self-signed ones do.
#[must_use]
pub fn is_self_issued(der: &[u8]) -> bool {
    let names = || {
        let (issuer, fields) = issuer(der)?;
        let (_times, fields) = element(fields, SEQUENCE)?;
        Some((issuer, element(fields, SEQUENCE)?.0))
    };
    names().is_some_and(|(issuer, subject)| issuer == subject)
}

/// What is in the first element, which must have this tag, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let ([found, first], rest) = bytes.split_first_chunk::<2>()?;
    if *found != tag {
        return None;
    }
    let (length, rest) = match *first {
        short @ 0..=0x7f => (usize::from(short), rest),
        long @ 0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

/// The time in the first element, and what follows it.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let ((text, rest), year_digits) = match element(bytes, UTC_TIME) {
        Some(found) => (found, 2),
        None => (element(bytes, GENERALIZED_TIME)?, 4),
    };
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, text) = text.split_at_checked(year_digits)?;
    let year: i64 = match (year.parse::<i64>().ok()?, year_digits) {
        (year @ 0..50, 2) => 2_000 + year,
        (year, 2) => 1_900 + year,
        (year, _) => year,
    };
    let two = |at: usize| text.get(at..at + 2)?.parse::<i64>().ok();
    let (month, day) = (two(0)?, two(2)?);
    let seconds = (two(4)? * 60 + two(6)?) * 60 + two(8)?;
    (1..=12).contains(&month).then_some((days(year, month, day) * DAY_SECONDS + seconds, rest))
}

/// Days since 1970.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here: the day of leap years is their last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// How a certificate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Holds,
    /// So many days are left.
    EndsSoon(i64),
    Ended,
    NotYet,
    /// Its dates do not read.
    Unknown,
}

impl Standing {
    fn of(validity: Option<Validity>, now: i64) -> Standing {
        let Some(validity) = validity else { return Standing::Unknown };
        match validity.not_after - now {
            left if left <= 0 => Standing::Ended,
            _ if now < validity.not_before => Standing::NotYet,
            left if left < SOON_SECONDS => Standing::EndsSoon(left / DAY_SECONDS),
            _ => Standing::Holds,
        }
    }

    /// What to say of it, if it is shown to these; nothing if all is well.
    fn warning(self, whom: &str) -> Option<String> {
        let next = format!("put another one, which {whom} trust already, in its place");
        Some(match self {
            Standing::Holds => return None,
            Standing::EndsSoon(0) => format!("ends within a day; {next}"),
            Standing::EndsSoon(days) => format!("ends in {days} days; {next}"),
            Standing::Ended => format!("has ended: {whom} refuse it; {next}"),
            Standing::NotYet => {
                format!("does not hold yet: {whom} refuse it; see this machine's clock, or {next}")
            }
            Standing::Unknown => {
                format!("has dates that cannot be read: nobody is warned when it ends; {next}")
            }
        })
    }
}

/// What a certificate's file is for, as metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CertificateLeft {
    /// `served`: what the server shows. `trusted`: what peers are trusted by.
    pub(crate) role: &'static str,
    /// Until the first of the file ends, below 0 if it has.
    pub(crate) seconds: i64,
}

/// A file of certificates that is in use.
#[derive(Debug)]
struct WatchedFile {
    role: &'static str,
    path: PathBuf,
    /// None: it does not read.
    validity: Option<Validity>,
    /// Of the last look.
    standing: Option<Standing>,
}

/// What is wrong with the names of the certificate that is served.
#[derive(Debug, Default)]
struct NamesWarning {
    text: Option<String>,
    /// Not seen by a look yet.
    is_new: bool,
}

/// The certificates in use. One that comes to its end is warned of, in the log once a day, and so is one that
/// is not for what is advertised of this node, in the log once.
#[derive(Debug, Default)]
pub(crate) struct CertificateWatch {
    files: Mutex<Vec<WatchedFile>>,
    names: Mutex<NamesWarning>,
}

impl CertificateWatch {
    /// The certificates of the file of this role, as they were read last.
    pub(crate) fn set(&self, role: &'static str, path: &Path, found: &[CertificateDer<'_>]) {
        let validities = found.iter().filter_map(|certificate| Validity::of(certificate));
        let validity = validities.reduce(Validity::and);
        let file = WatchedFile { role, path: path.to_owned(), validity, standing: None };
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match files.iter_mut().find(|file| file.role == role) {
            Some(before) => *before = file,
            None => files.push(file),
        }
    }

    /// What is wrong with the names of the one that is served now; none: nothing.
    pub(crate) fn set_names(&self, wrong: Option<String>) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        *names = NamesWarning { text: wrong, is_new: true };
    }

    /// What is wrong at this time, in seconds since 1970. What is new of it the log says, too.
    pub(crate) fn look(&self, now: i64) -> Vec<String> {
        let warnings = self.warnings(now);
        warnings.iter().filter(|(_, is_new)| *is_new).for_each(|(warning, _)| tracing::warn!("{warning}"));
        warnings.into_iter().map(|(warning, _)| warning).collect()
    }

    /// What is wrong, and whether it is new since the last look.
    fn warnings(&self, now: i64) -> Vec<(String, bool)> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = std::mem::take(&mut names.is_new);
        let of_names = names.text.clone().map(|text| (text, is_new));
        let look = |file: &mut WatchedFile| {
            let standing = Standing::of(file.validity, now);
            let is_new = file.standing.replace(standing) != Some(standing);
            let warning = standing.warning("clients and peers")?;
            Some((format!("a certificate of {} {warning}", file.path.display()), is_new))
        };
        files.iter_mut().filter_map(look).chain(of_names).collect()
    }

    /// How long those of each file hold.
    pub(crate) fn left(&self, now: i64) -> Vec<CertificateLeft> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let left = |file: &WatchedFile| {
            Some(CertificateLeft { role: file.role, seconds: file.validity?.not_after - now })
        };
        files.iter().filter_map(left).collect()
    }
}

/// When the first of a PEM file's certificates ends, in seconds since 1970; none if they do not read.
#[must_use]
pub fn certificates_end(path: &Path) -> Option<i64> {
    let found = CertificateDer::pem_file_iter(path).ok()?.collect::<Result<Vec<_>, _>>().ok()?;
    let ends = found.iter().map(|der| Some(Validity::of(der)?.not_after));
    ends.collect::<Option<Vec<i64>>>()?.into_iter().min()
}

/// A warning where a certificate of a file, which is shown to these, comes to its end; `now` is in seconds
/// since 1970. None as well where none of the file reads: who shows it says so.
pub(crate) fn ending(path: &Path, whom: &str, now: i64) -> Option<String> {
    let found = CertificateDer::pem_file_iter(path).ok()?.collect::<Result<Vec<_>, _>>().ok()?;
    let validities = found.iter().filter_map(|certificate| Validity::of(certificate));
    let validity = validities.reduce(Validity::and)?;
    let warning = Standing::of(Some(validity), now).warning(whom)?;
    Some(format!("a certificate of {} {warning}", path.display()))
}

/// A warning where every user of this machine may write a file, or read one that is secret.
#[must_use]
pub fn exposed(path: &Path, is_secret: bool) -> Option<String> {
    const OTHERS_READ: u32 = 0o004;
    const OTHERS_WRITE: u32 = 0o002;
    let mode = std::fs::metadata(path).ok()?.mode();
    let what = match (is_secret && mode & OTHERS_READ != 0, mode & OTHERS_WRITE != 0) {
        (_, true) => "write",
        (true, false) => "read",
        (false, false) => return None,
    };
    let path = path.display();
    let rights = if is_secret { "o-rwx" } else { "o-w" };
    Some(format!("every user of this machine may {what} {path}; next: chmod {rights} {path}"))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use rcgen::{CertificateParams, DnType, Issuer, KeyPair, date_time_ymd};

    use super::*;

    /// 2026-01-01 and 2061-07-01, which DER writes in its two ways.
    const FROM: i64 = 1_767_225_600;
    const UNTIL: i64 = 2_887_401_600;

    fn certificate() -> CertificateDer<'static> {
        let mut params = CertificateParams::new(["nowhere.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2061, 7, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn validity_is_read_out_of_a_certificate_and_of_nothing_else() {
        let der = certificate();
        assert_eq!(Validity::of(&der), Some(Validity { not_before: FROM, not_after: UNTIL }));
        for end in 0..der.len().min(120) {
            assert_eq!(Validity::of(&der[..end]), None, "{end}");
        }
        for (year, month, day, wanted) in [(1970, 1, 1, 0), (2000, 2, 29, 11_016), (1969, 12, 31, -1)] {
            assert_eq!(days(year, month, day), wanted);
        }
    }

    #[test]
    fn self_issued_is_what_no_other_one_has_signed() {
        assert!(is_self_issued(&certificate()) && !is_self_issued(&[0]));
        let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
        authority.distinguished_name.push(DnType::CommonName, "a CA");
        let issuer = Issuer::new(authority, KeyPair::generate().unwrap());
        let params = CertificateParams::new(["nowhere.example".to_owned()]).unwrap();
        let signed = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        assert!(!is_self_issued(signed.der()));
    }

    #[test]
    fn time_takes_both_forms_and_nothing_else() {
        let of = |tag: u8, text: &str| {
            let bytes = [&[tag, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
            time(&bytes).map(|(seconds, rest)| (seconds, rest.len()))
        };
        assert_eq!(of(UTC_TIME, "260101000000Z"), Some((FROM, 0)));
        assert_eq!(of(UTC_TIME, "700101000001Z"), Some((1, 0)));
        assert_eq!(of(GENERALIZED_TIME, "20610701000000Z"), Some((UNTIL, 0)));
        for wrong in ["", "Z", "2601010000Z", "261301000000Z", "260101000000", "2601ö1000000Z"] {
            assert_eq!(of(UTC_TIME, wrong), None, "{wrong}");
        }
    }

    /// Certificates ended without a word before, and then with one in the log alone.
    #[test]
    fn warnings_come_when_a_certificate_comes_to_its_end() {
        let (now, path) = (UNTIL - 31 * DAY_SECONDS, Path::new("/etc/cell/a.pem"));
        let watch = CertificateWatch::default();
        watch.set("served", path, &[certificate()]);
        assert!(watch.look(now).is_empty());
        assert_eq!(watch.left(now), [CertificateLeft { role: "served", seconds: 31 * DAY_SECONDS }]);
        for (now, wanted) in [
            (UNTIL - 20 * DAY_SECONDS, "a certificate of /etc/cell/a.pem ends in 20 days; put another one"),
            (UNTIL - 19 * DAY_SECONDS, "ends in 19 days"),
            (UNTIL - 60, "ends within a day"),
            (UNTIL, "has ended"),
            (FROM - 1, "does not hold yet"),
        ] {
            let said = watch.warnings(now);
            assert!(said.len() == 1 && said[0].0.contains(wanted) && said[0].1, "{said:?} {wanted}");
            assert_eq!(watch.look(now), [said[0].0.clone()], "it stands");
            assert!(!watch.warnings(now)[0].1, "the log has it once");
        }
        assert!(watch.left(UNTIL + 5)[0].seconds < 0);
        let unread = CertificateWatch::default();
        unread.set("served", path, &[CertificateDer::from(vec![0])]);
        assert!(unread.look(now)[0].contains("has dates that cannot be read"));
        assert_eq!(unread.left(now), []);
        unread.set("served", path, &[certificate()]);
        assert!(unread.look(now).is_empty(), "another one is in its place");
    }

    #[test]
    fn names_that_are_wrong_are_warned_of_until_another_certificate_is_served() {
        let watch = CertificateWatch::default();
        watch.set_names(Some("it is not for node-1".to_owned()));
        let said = |is_new| vec![("it is not for node-1".to_owned(), is_new)];
        assert_eq!(watch.warnings(FROM), said(true));
        assert_eq!(watch.warnings(FROM), said(false), "the log has it once");
        watch.set_names(None);
        assert_eq!(watch.warnings(FROM), []);
    }

    #[test]
    fn exposed_are_secrets_that_all_may_read_and_files_that_all_may_write() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let of = |mode, is_secret| {
            std::fs::set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            exposed(file.path(), is_secret)
        };
        assert_eq!((of(0o640, true), of(0o644, false)), (None, None));
        assert!(of(0o644, true).unwrap().contains("may read"));
        assert!(of(0o646, true).unwrap().contains("may write"));
        assert!(of(0o606, false).unwrap().contains("chmod o-w"));
        assert_eq!(exposed(Path::new("/nowhere"), true), None, "whoever reads it says so");
    }
}
