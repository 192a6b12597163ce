//! The tokens that a node knows: their hashes, each with a role and a name, in a file.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use axum::http::{HeaderMap, StatusCode, header};
use data_encoding::HEXLOWER_PERMISSIVE;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::access::{Caller, Role};
use crate::problem::Problem;

/// A longer file is not read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Names that the history has for callers without a token.
const RESERVED_NAMES: [&str; 4] = ["peer", "cell", "admin", "anonymous"];

type Hash = [u8; 32];

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
    #[error("{} has no token; a line is `ROLE NAME SHA256`", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// The tokens of a file, which can be read again while requests come.
#[derive(Debug)]
pub(crate) struct TokensFile {
    path: PathBuf,
    tokens: RwLock<Tokens>,
}

impl TokensFile {
    /// Reads the file.
    ///
    /// # Errors
    /// As [`Tokens::read`].
    pub(crate) fn open(path: &Path) -> Result<TokensFile, TokensError> {
        Ok(TokensFile { path: path.to_owned(), tokens: RwLock::new(Tokens::read(path)?) })
    }

    /// Reads the file again; how many tokens it has. Those that it no longer has are refused from then on.
    ///
    /// # Errors
    /// As [`Tokens::read`]; the tokens stay what they were.
    pub(crate) fn read_again(&self) -> Result<usize, TokensError> {
        let tokens = Tokens::read(&self.path)?;
        let count = tokens.0.len();
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
        Ok(count)
    }

    /// See [`Tokens::caller`].
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).caller(headers)
    }
}

/// Who has which token.
#[derive(Debug)]
pub(crate) struct Tokens(Vec<(Hash, Caller)>);

impl Tokens {
    /// Reads a file: one `ROLE NAME SHA256` a line, the token's SHA-256 in hexadecimal digits. Empty lines
    /// and those that begin with `#` mean nothing.
    ///
    /// # Errors
    /// It cannot be read, a line of it is wrong, or it has no token.
    pub(crate) fn read(path: &Path) -> Result<Tokens, TokensError> {
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
            let (hash, caller) = parse(text).map_err(wrong)?;
            if !names.insert(caller.name.clone()) || !hashes.insert(hash) {
                return Err(wrong("a line above has this name or this token"));
            }
            tokens.push((hash, caller));
        }
        if tokens.is_empty() {
            return Err(TokensError::Empty { path: path.to_owned() });
        }
        Ok(Tokens(tokens))
    }

    /// Who sent a request.
    ///
    /// # Errors
    /// 401: it has no token, or one that this node does not know.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = given.and_then(|value| value.split_once(' '));
        let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let hash: Option<Hash> = token.map(|(_, token)| Sha256::digest(token.trim()).into());
        let mut found = None;
        // All are compared, so that the time reveals nothing of which one it is like.
        for (known, caller) in &self.0 {
            if hash.is_some_and(|hash| hash.ct_eq(known).into()) {
                found = Some(caller.clone());
            }
        }
        found.ok_or_else(|| {
            let detail = "Tokens are configured on this node, and this request has none that it knows.";
            Problem::new(StatusCode::UNAUTHORIZED, "unauthorised", detail)
                .next("send `Authorization: Bearer` with a token of the role viewer or higher")
        })
    }
}

fn parse(line: &str) -> Result<(Hash, Caller), &'static str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [role, name, digits] = words.as_slice() else { return Err("a line is `ROLE NAME SHA256`") };
    let role = [Role::Viewer, Role::Operator, Role::Admin].into_iter().find(|known| known.word() == *role);
    let role = role.ok_or("a role is viewer, operator or admin")?;
    if name.len() > NAME_BYTES_MAX {
        return Err("a name has at most 64 bytes");
    }
    if RESERVED_NAMES.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        return Err("the names peer, cell, admin and anonymous are taken by callers without a token");
    }
    let hash = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok();
    let hash = hash.and_then(|bytes| Hash::try_from(bytes).ok());
    let hash = hash.ok_or("the SHA-256 of a token has 64 hexadecimal digits")?;
    Ok((hash, Caller { name: (*name).to_owned(), role }))
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;

    fn hash(token: &str) -> String {
        HEXLOWER.encode(&Sha256::digest(token))
    }

    fn read(text: &str) -> Result<Tokens, TokensError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Tokens::read(file.path())
    }

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn caller_is_who_has_the_token() {
        let [a, b] = ["a", "b"].map(hash);
        let tokens =
            read(&format!("# who\n\nviewer screen {a}\n  admin root {}\n", b.to_uppercase())).unwrap();
        let who = |value| tokens.caller(&headers(value)).map(|caller| (caller.name, caller.role));
        assert_eq!(who("Bearer a"), Ok(("screen".to_owned(), Role::Viewer)));
        assert_eq!(who("bearer b"), Ok(("root".to_owned(), Role::Admin)));
        for wrong in ["Bearer c", "Bearer ", "Basic a", "a", &format!("Bearer {a}")] {
            assert_eq!(who(wrong).unwrap_err().status, StatusCode::UNAUTHORIZED, "{wrong}");
        }
        assert_eq!(tokens.caller(&HeaderMap::new()).unwrap_err().code, "unauthorised");
    }

    #[test]
    fn read_a_line_that_is_wrong_says_which_and_why() {
        let a = hash("a");
        for (text, wanted) in [
            (format!("viewer x {a}\nroot y {a}\n"), "line 2: a role is viewer"),
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
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        let endless = Tokens::read(Path::new("/dev/zero")).unwrap_err();
        assert!(
            matches!(endless, TokensError::Read { error, .. } if error.kind() == io::ErrorKind::FileTooLarge)
        );
        assert!(matches!(Tokens::read(Path::new("/nowhere")), Err(TokensError::Read { .. })));
    }
}
