//! Who may ask a node for what over the fabric, and the file of tokens that says so.
//!
//! The kernel says of a peer over shared memory who it is: the node's own user and root may do everything. Of
//! others nobody says it, so that where there are tokens their hello needs one. Without a file of tokens
//! whoever reaches the node may do everything.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use cell_fabric::{PeerAddress, ReadPermission};
use cell_protocol::Request;
use cell_terms::text::with_causes;
use data_encoding::HEXLOWER_PERMISSIVE;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::failed_logins::{FailedLogins, LoginPlace};

/// A longer file is not read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Names that the history has for callers without a token.
const RESERVED_NAMES: [&str; 4] = ["peer", "cell", "admin", "anonymous"];

type Hash = [u8; 32];

/// By what somebody was let in. It is judged again when the file of tokens has been read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// By what the kernel says of them, or because nobody needs a token.
    Place,
    /// By a token, of which this is the SHA-256.
    Token([u8; 32]),
}

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenRole {
    /// Reads entries.
    Reader,
    /// Reads and writes entries.
    Writer,
    /// Sees figures and states, no keys and no values.
    Viewer,
    /// Sees them, changes settings, begins checks.
    Operator,
    /// May do everything.
    Admin,
}

/// What somebody may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Read entries.
    pub reads: bool,
    /// Write them.
    pub writes: bool,
    /// See figures and states.
    pub sees: bool,
    /// Change settings, begin checks.
    pub operates: bool,
    /// Do everything.
    pub administers: bool,
}

/// Whose a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenHolder {
    /// The name that stands in the history of what they change.
    pub name: String,
    /// What they may do.
    pub grants: Grants,
}

/// Why a file of tokens is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// It cannot be read.
    #[error("cannot read the tokens of {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// A line is wrong.
    #[error("{}, line {line}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// It has no token: nobody could ask anything.
    #[error("{} has no token; a line is `ROLES NAME SHA256`", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Who may do what at a node: its file of tokens, which can be read again while requests come.
#[derive(Debug, Default)]
pub struct AccessRules {
    tokens: Option<TokensFile>,
    /// What the cluster's nodes show each other for entries.
    nodes: OnceLock<Hash>,
    /// Counts how often who may do what has changed.
    revision: AtomicU64,
    /// Why the file was refused when it was last read again.
    refused: Mutex<Option<String>>,
    /// Of those who would read one-sided over `tcp`; their time is that of the thread that serves them.
    readers: Mutex<FailedLogins>,
    /// Hellos of the fabric with a token that is not known, since the start.
    failed_logins: AtomicU64,
}

#[derive(Debug)]
struct TokensFile {
    path: PathBuf,
    tokens: RwLock<Vec<(Hash, TokenHolder)>>,
}

impl TokenRole {
    /// All of them.
    pub const ALL: [TokenRole; 5] =
        [TokenRole::Reader, TokenRole::Writer, TokenRole::Viewer, TokenRole::Operator, TokenRole::Admin];

    /// As it is written.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            TokenRole::Reader => "reader",
            TokenRole::Writer => "writer",
            TokenRole::Viewer => "viewer",
            TokenRole::Operator => "operator",
            TokenRole::Admin => "admin",
        }
    }

    fn from_word(word: &str) -> Option<TokenRole> {
        TokenRole::ALL.into_iter().find(|role| role.word() == word)
    }
}

impl Grants {
    /// Of whoever may do everything.
    pub const ALL: Grants =
        Grants { reads: true, writes: true, sees: true, operates: true, administers: true };

    /// The same, and what a role grants.
    #[must_use]
    pub const fn with(self, role: TokenRole) -> Grants {
        match role {
            TokenRole::Reader => Grants { reads: true, ..self },
            TokenRole::Writer => Grants { reads: true, writes: true, ..self },
            TokenRole::Viewer => Grants { sees: true, ..self },
            TokenRole::Operator => Grants { sees: true, operates: true, ..self },
            TokenRole::Admin => Grants::ALL,
        }
    }

    /// Whether these are what a role grants, or more.
    #[must_use]
    pub const fn has(self, role: TokenRole) -> bool {
        match role {
            TokenRole::Reader => self.reads,
            TokenRole::Writer => self.writes,
            TokenRole::Viewer => self.sees,
            TokenRole::Operator => self.operates,
            TokenRole::Admin => self.administers,
        }
    }

    /// The roles that these are as much as, in the order of [`TokenRole::ALL`].
    pub fn roles(self) -> impl Iterator<Item = TokenRole> {
        TokenRole::ALL.into_iter().filter(move |role| self.has(*role))
    }

    /// Whether a request may be carried out. The places of pairs are no secret of the cluster's, and steps of
    /// a stream go with what began it.
    #[must_use]
    pub fn permit(self, request: &Request<'_>) -> bool {
        match request {
            Request::Search { .. }
            | Request::Get { .. }
            | Request::MultiGet(_)
            | Request::Scan(_)
            | Request::Regions
            | Request::Tree { .. } => self.reads,
            Request::Put(_)
            | Request::PutBegin(_)
            | Request::Delete(_)
            | Request::OpenSession
            | Request::CloseSession { .. } => self.writes,
            Request::Status => self.sees,
            Request::Check => self.operates,
            Request::Hello(_)
            | Request::KeepAlive { .. }
            | Request::Table { .. }
            | Request::Report(_)
            | Request::Chunk(_)
            | Request::Credit { .. }
            | Request::Cancel => true,
        }
    }
}

impl AccessRules {
    /// By the tokens of this file; of an empty path: nobody needs one.
    ///
    /// # Errors
    /// The file cannot be read, a line of it is wrong, or it has no token.
    pub fn open(path: &str) -> Result<AccessRules, TokensError> {
        if path.is_empty() {
            return Ok(AccessRules::default());
        }
        let path = Path::new(path).to_owned();
        let tokens = RwLock::new(read(&path)?);
        Ok(AccessRules { tokens: Some(TokensFile { path, tokens }), ..AccessRules::default() })
    }

    /// Lets clients of the cluster's nodes read and write entries with this token; the first one counts.
    pub fn know_nodes(&self, token: &[u8]) {
        let _ = self.nodes.set(Sha256::digest(token).into());
    }

    /// Whether tokens are asked for.
    #[must_use]
    pub fn wants_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Whether some token is of this role, or of more.
    #[must_use]
    pub fn knows_one_of(&self, role: TokenRole) -> bool {
        self.tokens.as_ref().is_some_and(|file| {
            let tokens = file.tokens.read().unwrap_or_else(PoisonError::into_inner);
            tokens.iter().any(|(_, holder)| holder.grants.has(role))
        })
    }

    /// Reads the file again, if there is one; how many tokens it has. Those that it no longer has are refused
    /// from then on, and open connections are judged again: see [`AccessRules::revision`].
    ///
    /// # Errors
    /// As [`AccessRules::open`]; the tokens stay what they were.
    pub fn read_again(&self) -> Result<Option<usize>, TokensError> {
        let Some(file) = &self.tokens else { return Ok(None) };
        let found = read(&file.path);
        let refused = found.as_ref().err().map(|error| with_causes(error));
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        let tokens = found?;
        let count = tokens.len();
        *file.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
        // After the tokens: who sees the number finds them.
        self.revision.fetch_add(1, Ordering::Release);
        Ok(Some(count))
    }

    /// Why the file was refused when it was last read again; none: its tokens are those in force.
    #[must_use]
    pub fn refused(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Another number each time that who may do what has changed.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Whose a token is, if it is known.
    #[must_use]
    pub fn holder(&self, token: &[u8]) -> Option<TokenHolder> {
        self.holder_of(&Sha256::digest(token).into())
    }

    fn holder_of(&self, hash: &Hash) -> Option<TokenHolder> {
        let file = self.tokens.as_ref()?;
        let mut found = None;
        // All are compared, so that the time reveals nothing of which one it is like.
        for (known, holder) in &*file.tokens.read().unwrap_or_else(PoisonError::into_inner) {
            if hash.ct_eq(known).into() {
                found = Some(holder.clone());
            }
        }
        if self.nodes.get().is_some_and(|known| hash.ct_eq(known).into()) {
            let grants = Grants::default().with(TokenRole::Writer);
            found = Some(TokenHolder { name: "cell".to_owned(), grants });
        }
        found
    }

    /// By what a peer that has this token is judged.
    #[must_use]
    pub fn credential(&self, peer: Option<PeerAddress>, token: &[u8]) -> Credential {
        if !self.wants_tokens() || peer.is_some_and(PeerAddress::is_own_user) {
            return Credential::Place;
        }
        Credential::Token(Sha256::digest(token).into())
    }

    /// Hellos of the fabric with a token that is not known.
    #[must_use]
    pub fn failed_logins(&self) -> u64 {
        self.failed_logins.load(Ordering::Relaxed)
    }

    pub(crate) fn count_failed_login(&self) {
        self.failed_logins.fetch_add(1, Ordering::Relaxed);
    }

    /// What somebody may do by this; none: they are to be turned away.
    #[must_use]
    pub fn grants(&self, credential: &Credential) -> Option<Grants> {
        match credential {
            Credential::Place => Some(Grants::ALL),
            Credential::Token(hash) => self.holder_of(hash).map(|holder| holder.grants),
        }
    }
}

/// Of one-sided reads over `tcp` and `verbs`, where the kernel does not say who asks.
impl ReadPermission for AccessRules {
    fn permits(&self, token: &[u8]) -> bool {
        self.grants(&self.credential(None, token)).is_some_and(|grants| grants.reads)
    }

    fn admits(&self, peer: PeerAddress, token: &[u8], now_ns: u64) -> bool {
        let (place, now) = (LoginPlace::of_peer(Some(peer)), Duration::from_nanos(now_ns));
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_looked_at = !self.wants_tokens() || readers.check(place, now).is_ok();
        let grants = self.grants(&self.credential(None, token)).filter(|_| is_looked_at);
        if grants.is_none() && is_looked_at {
            let _ = readers.count(place, now);
            self.count_failed_login();
        }
        grants.is_some_and(|grants| grants.reads)
    }

    fn revision(&self) -> u64 {
        AccessRules::revision(self)
    }
}

/// Reads a file: one `ROLES NAME SHA256` a line, the roles separated by commas, the token's SHA-256 in
/// hexadecimal digits. Empty lines and those that begin with `#` mean nothing.
fn read(path: &Path) -> Result<Vec<(Hash, TokenHolder)>, TokensError> {
    let of_file = |error| TokensError::Read { path: path.to_owned(), error };
    let mut text = String::new();
    let file = File::open(path).map_err(of_file)?;
    // One byte more than it may have, and never more, however long it is.
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(of_file)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(of_file(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 1 MiB")));
    }
    let (mut tokens, mut names, mut hashes) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for (line, text) in (1..).zip(text.lines()) {
        let wrong = |what| TokensError::Line { path: path.to_owned(), line, what };
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (hash, holder) = parse(text).map_err(wrong)?;
        if !names.insert(holder.name.clone()) || !hashes.insert(hash) {
            return Err(wrong("a line above has this name or this token"));
        }
        tokens.push((hash, holder));
    }
    if tokens.is_empty() {
        return Err(TokensError::Empty { path: path.to_owned() });
    }
    Ok(tokens)
}

fn parse(line: &str) -> Result<(Hash, TokenHolder), &'static str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [roles, name, digits] = words.as_slice() else { return Err("a line is `ROLES NAME SHA256`") };
    let mut grants = Grants::default();
    for role in roles.split(',') {
        let role = TokenRole::from_word(role);
        grants = grants.with(role.ok_or("a role is reader, writer, viewer, operator or admin")?);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err("a name has at most 64 bytes");
    }
    if RESERVED_NAMES.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        return Err("the names peer, cell, admin and anonymous are taken by callers without a token");
    }
    let hash = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok();
    let hash = hash.and_then(|bytes| Hash::try_from(bytes).ok());
    let hash = hash.ok_or("the SHA-256 of a token has 64 hexadecimal digits")?;
    Ok((hash, TokenHolder { name: (*name).to_owned(), grants }))
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;

    fn hash(token: &str) -> String {
        HEXLOWER.encode(&Sha256::digest(token))
    }

    fn open(text: &str) -> Result<AccessRules, TokensError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        AccessRules::open(file.path().to_str().unwrap())
    }

    fn tcp() -> Option<PeerAddress> {
        Some(PeerAddress::Tcp("127.0.0.1:1".parse().unwrap()))
    }

    #[test]
    fn grants_follow_the_roles_of_the_token_and_the_user_that_the_kernel_names() {
        let [a, b, c] = ["a", "b", "c"].map(hash);
        let lines =
            format!("# who\n\nreader web {a}\n writer,viewer job {}\nadmin root {c}\n", b.to_uppercase());
        let access = open(&lines).unwrap();
        let of = |access: &AccessRules, peer, token: &[u8]| access.grants(&access.credential(peer, token));
        let reader = Grants::default().with(TokenRole::Reader);
        assert_eq!(of(&access, tcp(), b"a"), Some(reader));
        assert_eq!(
            of(&access, tcp(), b"b"),
            Some(Grants { reads: true, writes: true, sees: true, ..reader })
        );
        assert_eq!(of(&access, tcp(), b"c"), Some(Grants::ALL));
        for wrong in [&b""[..], b"d", a.as_bytes()] {
            assert_eq!(of(&access, tcp(), wrong), None);
        }
        let own = rustix::process::geteuid().as_raw();
        for user in [0, own] {
            assert_eq!(of(&access, Some(PeerAddress::Shm { user }), b""), Some(Grants::ALL));
        }
        let other = Some(PeerAddress::Shm { user: own + 1 });
        assert_eq!((of(&access, other, b""), of(&access, other, b"a")), (None, Some(reader)));
        assert_eq!(of(&AccessRules::default(), tcp(), b""), Some(Grants::ALL));
        assert_eq!(access.holder(b"b").unwrap().name, "job");
        assert_eq!(
            [&b"a"[..], b"c", b"", b"d"].map(|token| access.permits(token)),
            [true, true, false, false]
        );
        assert!(AccessRules::default().permits(b""));
    }

    #[test]
    fn roles_permit_what_they_are_for() {
        let of = |role| Grants::default().with(role);
        let get = Request::Get { key: b"k" };
        let (status, check, open) = (Request::Status, Request::Check, Request::OpenSession);
        let permitted = |role| [&get, &open, &status, &check].map(|request| of(role).permit(request));
        assert_eq!(permitted(TokenRole::Reader), [true, false, false, false]);
        assert_eq!(permitted(TokenRole::Writer), [true, true, false, false]);
        assert_eq!(permitted(TokenRole::Viewer), [false, false, true, false]);
        assert_eq!(permitted(TokenRole::Operator), [false, false, true, true]);
        assert_eq!(permitted(TokenRole::Admin), [true; 4]);
        assert!(!Grants::default().permit(&Request::Regions), "memory is read by who may read entries");
        assert!(Grants::default().permit(&Request::Table { from: Default::default() }));
    }

    #[test]
    fn open_a_line_that_is_wrong_says_which_and_why() {
        let a = hash("a");
        for (text, wanted) in [
            (format!("viewer x {a}\nroot y {a}\n"), "line 2: a role is reader"),
            (format!("viewer,root x {a}"), "line 1: a role is reader"),
            (format!("viewer x {}", &a[1..]), "line 1: the SHA-256"),
            (format!("viewer {a}"), "line 1: a line is"),
            (format!("viewer x {a}\nadmin y {a}"), "line 2: a line above"),
            (format!("viewer x {a}\nadmin x {}", hash("b")), "line 2: a line above"),
            (format!("viewer {} {a}", "x".repeat(65)), "line 1: a name"),
            (format!("admin Peer {a}"), "line 1: the names peer, cell"),
            (format!("admin cell {a}"), "line 1: the names peer, cell"),
            (format!("admin admin {a}"), "line 1: the names peer, cell"),
            (format!("viewer anonymous {a}"), "line 1: the names peer, cell"),
            ("# none\n".to_owned(), "has no token"),
        ] {
            let error = open(&text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        let endless = AccessRules::open("/dev/zero").unwrap_err();
        assert!(
            matches!(endless, TokensError::Read { error, .. } if error.kind() == io::ErrorKind::FileTooLarge)
        );
        assert!(matches!(AccessRules::open("/nowhere"), Err(TokensError::Read { .. })));
    }
}
