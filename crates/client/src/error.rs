//! What an operation answers when it cannot do what was asked, and what is then known of its fate.

use std::io;

use cell_fabric::{Address, CloseReason, FabricError, HelloRefusal, TlsFailure};
use cell_protocol::{DecodeError, EncodeError, OwnedState, Refusal, RequestKind};
use cell_terms::{PairId, Version};

/// Why an attempt failed. The last one stands in the error of an operation that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttemptError {
    /// The server refused.
    #[error("the server refused: {0}")]
    Refused(Refusal),
    /// Nobody serves the keys at present, as far as the region table says.
    #[error("nobody serves {pair} now: {}", Unserved(*state))]
    Unserved {
        /// The pair that has them.
        pair: PairId,
        /// What is known of it.
        state: OwnedState,
    },
    /// The connection was lost or could not be opened.
    #[error("the connection was lost: {0}")]
    Closed(CloseReason),
    /// No connection could be started; this process lacks a socket, or the address is not reachable by this
    /// provider.
    #[error("no connection could be started")]
    NotStarted,
    /// An answer was due and the server said nothing, not even when asked for a sign of life.
    #[error("the server fell silent for {silence_ms} ms")]
    Silent {
        /// For how long.
        silence_ms: u64,
    },
    /// The server goes on talking, and has passed over a question that it answers promptly: a message was
    /// lost on the way.
    #[error("the server left a question unanswered for {silence_ms} ms")]
    PassedOver {
        /// For how long.
        silence_ms: u64,
    },
    /// The server talks on, and has not answered the client's question for a session, which its writes need:
    /// the node asks its coordinator for it.
    #[error("the server has opened no session yet, for which it asks its coordinator: that may be away")]
    SessionAwaited,
    /// The address leads to a node of another cluster than the one that this client met first.
    #[error("a node of another cluster answers at this address: nothing was sent to it")]
    OtherCluster,
    /// The server did not welcome the client in time.
    #[error("no hello from the server within {timeout_ms} ms")]
    NoHello {
        /// How long it was waited for: `client_connect_timeout`, or until the client was given up.
        timeout_ms: u64,
    },
    /// The server has as many connections as it takes, and said so when it had heard who this is.
    #[error("the server has as many connections as it takes")]
    NoPlace,
    /// What the server sent is not a reply.
    #[error("the server sent what is no reply: {0}")]
    Undecodable(DecodeError),
    /// What the server sent is a reply, but not to what was asked.
    #[error("the server's reply does not fit the request")]
    Unfitting,
    /// A value that came in chunks does not have the CRC that was announced.
    #[error("a value of {value_len} bytes arrived damaged")]
    Damaged {
        /// Its length.
        value_len: u32,
    },
}

impl AttemptError {
    /// Whether the server has as many connections as it takes (`fabric_connections_max`).
    #[must_use]
    pub fn is_for_lack_of_room(&self) -> bool {
        let refused = CloseReason::RefusedByPeer(HelloRefusal::TooManyConnections);
        let before_tls = CloseReason::Tls(TlsFailure::NoRoom);
        match self {
            AttemptError::Closed(reason) => [refused, before_tls].contains(reason),
            AttemptError::NoPlace => true,
            _ => false,
        }
    }

    /// Whether a server that was reached said so.
    pub(crate) fn is_word_of_server(&self) -> bool {
        matches!(self, AttemptError::Refused(_) | AttemptError::Unserved { .. })
    }

    /// Whether TLS did not come about for a reason that waiting does not mend. (Whoever ends without a word
    /// of TLS may just have died.)
    #[must_use]
    pub fn is_about_tls(&self) -> bool {
        match self {
            AttemptError::Closed(CloseReason::Tls(TlsFailure::Unanswered | TlsFailure::NoRoom)) => false,
            AttemptError::Closed(CloseReason::Tls(_)) => true,
            AttemptError::Closed(reason) => *reason == CloseReason::RefusedByPeer(HelloRefusal::TlsWanted),
            _ => false,
        }
    }
}

/// What is known of an operation that ended in an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was not done and never will be.
    NotDone,
    /// It may have been done, or may be yet, until a later write of the same client to the same pair is
    /// answered that was submitted when no earlier write was outstanding.
    Unknown,
}

/// An operation, or a client, that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server's name has no address. Check spelling and name service.
    #[error("cannot find an address for `{server}`")]
    Resolve {
        /// The name, as given.
        server: Box<str>,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A constant of the selector is out of its bounds, or there is no such policy.
    #[error(transparent)]
    Selector(#[from] cell_selector::SelectorError),
    /// The cache may grow past the memory that there is. Set a smaller `client_cache_bytes`, or turn
    /// `client_cache_inner` off.
    #[error(
        "client_cache_bytes is {cache_bytes} bytes, and this machine or control group has {memory_bytes} bytes \
         of memory"
    )]
    CacheTooLarge {
        /// The setting.
        cache_bytes: u64,
        /// What machine and control group have.
        memory_bytes: u64,
    },
    /// Nobody serves there. Check that the server runs and that the port is its fabric's.
    #[error("cannot reach a Cell server at {server}: {reason}")]
    Unreachable {
        /// The address that was tried last.
        server: Box<Address>,
        /// Why not.
        reason: AttemptError,
    },
    /// The server has as many connections as it takes, and none ended while the client had time to wait for
    /// it. Close clients that are not needed, or raise `fabric_connections_max`.
    #[error("the server at {server} has as many connections as it takes; none ended within {waited_ms} ms")]
    TooManyConnections {
        /// The address that was tried last.
        server: Box<Address>,
        /// How long the client tried.
        waited_ms: u64,
    },
    /// Something else serves on that port; most often it is the HTTP port. Use the fabric's.
    #[error("{server} is not a Cell server's fabric port: {reason}")]
    WrongService {
        /// The address.
        server: Box<Address>,
        /// What came from there.
        reason: AttemptError,
    },
    /// One of client and server speaks TLS and the other does not, or the client does not trust the server's
    /// certificate. See `ClientOptions::trust`.
    #[error("cannot talk to the server at {server}: {reason}")]
    NoTls {
        /// The address that was tried last.
        server: Box<Address>,
        /// Why not.
        reason: AttemptError,
    },
    /// Shared memory was asked for, and the server is on another host, or offers none (`fabric_shm`).
    #[error("the server at {server} offers no shared memory to this host")]
    NoSharedMemory {
        /// The server.
        server: Box<Address>,
    },
    /// The server speaks other versions of the protocol. Use a client of its release.
    #[error("the server speaks protocol versions {min} to {max}, this client {PROTOCOL_VERSION}",
        PROTOCOL_VERSION = cell_protocol::PROTOCOL_VERSION)]
    VersionUnsupported {
        /// The oldest that the server speaks.
        min: u16,
        /// The newest that the server speaks.
        max: u16,
    },
    /// The server does not accept the token. Give one with the needed role.
    #[error("the server does not accept the token, or asks for one")]
    Unauthorized,
    /// The token is known, and is not for this. Not done. Give one that has the role.
    #[error("not done: this needs a token with the role {role}")]
    RoleMissing {
        /// The role, as the file of tokens writes it.
        role: &'static str,
    },
    /// The process lacks what a connection needs.
    #[error("the fabric cannot be used")]
    Fabric(
        /// What is lacking. In a box, because each completion has room for an error.
        #[source]
        Box<FabricError>,
    ),
    /// The client was closed, or the runtime that moved it on has ended, while the operation was under way or
    /// before.
    #[cfg(feature = "aio")]
    #[error("the client was closed{}", if *fate == Fate::Unknown { ": it is not known whether the write was done" } else { "" })]
    Closed {
        /// What is known of the operation.
        fate: Fate,
    },
    /// The asynchronous runtime cannot watch the client's descriptor. Enable its I/O, or raise the limit of
    /// open files.
    #[cfg(feature = "aio")]
    #[error("the runtime cannot watch the client's connections")]
    Runtime {
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The client's own queue is full: take completions, then submit again. Not done.
    #[error("{max} operations are waiting in this client, the limit")]
    QueueFull {
        /// In flight and queued together.
        max: usize,
    },
    /// The operation cannot be put into a message. Not done. Do not repeat.
    #[error("the operation cannot be sent")]
    Unsendable(
        /// Why.
        #[from]
        EncodeError,
    ),
    /// The condition of a write does not hold. Not done. Look at the current version and decide anew.
    #[error("the condition does not hold")]
    ConditionFailed {
        /// The entry's version, if there is an entry.
        current: Option<Version>,
    },
    /// The server refused, for good or more often than the client retries. Not done.
    #[error("not done: {0}")]
    Refused(
        /// The server's words.
        Refusal,
    ),
    /// The deadline passed, or retries ran out, and the operation was surely not done.
    #[error("not done within {waited_ms} ms: {}", Because(*last))]
    Deadline {
        /// How long the client tried.
        waited_ms: u64,
        /// Why the last attempt failed, if there was one.
        last: Option<AttemptError>,
    },
    /// The deadline passed, retries ran out or the session ended, and whether the write was done is not
    /// known. Read the key to find out; do not assume either.
    #[error("unknown after {waited_ms} ms whether the write was done: {}", Because(*last))]
    Unknown {
        /// How long the client tried.
        waited_ms: u64,
        /// Why the last attempt failed.
        last: Option<AttemptError>,
    },
}

/// Why a pair is not served, in words.
struct Unserved(OwnedState);

impl std::fmt::Display for Unserved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            OwnedState::Recovering => "it is being recovered",
            OwnedState::Unavailable => "it could not be recovered",
            OwnedState::Released => "its owner has gone away",
            OwnedState::Orphaned => "its owner has died, and nobody has taken it over",
            OwnedState::New => "it was never served yet",
            OwnedState::Serving => "its owner has just lost it",
        })
    }
}

/// The error of an attempt in words.
struct Because(Option<AttemptError>);

impl std::fmt::Display for Because {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(attempt_error) => attempt_error.fmt(f),
            None => f.write_str("no answer came"),
        }
    }
}

impl From<FabricError> for ClientError {
    fn from(error: FabricError) -> ClientError {
        ClientError::Fabric(Box::new(error))
    }
}

impl ClientError {
    /// A refusal that is final, of a request of this kind.
    pub(crate) fn refused(refusal: Refusal, kind: RequestKind) -> ClientError {
        let role = match (refusal, kind) {
            (Refusal::Unauthorized, RequestKind::Put | RequestKind::PutBegin | RequestKind::Delete) => {
                "writer"
            }
            (Refusal::Unauthorized, RequestKind::Status) => "viewer",
            (Refusal::Unauthorized, RequestKind::Check) => "operator",
            (Refusal::Unauthorized, _) => "reader",
            (refusal, _) => return ClientError::Refused(refusal),
        };
        ClientError::RoleMissing { role }
    }

    /// What is known of the operation.
    #[must_use]
    pub fn fate(&self) -> Fate {
        match self {
            ClientError::Unknown { .. } => Fate::Unknown,
            #[cfg(feature = "aio")]
            ClientError::Closed { fate } => *fate,
            _ => Fate::NotDone,
        }
    }
}

/// Why no operation of this client can succeed any more, from the server's answer to the hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dismissal {
    /// No common version.
    VersionUnsupported {
        min: u16,
        max: u16,
    },
    Unauthorized,
    /// The hello itself was refused: a limit of the server or a defect.
    Refused(Refusal),
    /// The hello cannot be said: name or token are too long.
    Unsendable(EncodeError),
}

impl From<Dismissal> for ClientError {
    fn from(dismissal: Dismissal) -> ClientError {
        match dismissal {
            Dismissal::VersionUnsupported { min, max } => ClientError::VersionUnsupported { min, max },
            Dismissal::Unauthorized => ClientError::Unauthorized,
            Dismissal::Refused(refusal) => ClientError::Refused(refusal),
            Dismissal::Unsendable(error) => ClientError::Unsendable(error),
        }
    }
}
