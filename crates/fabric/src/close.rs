//! Why a connection ended, in words that an operator can act on.

use std::fmt;
use std::io;
use std::net::IpAddr;

use rustix::io::Errno;

use crate::tls_failure::TlsFailure;
use crate::version::{FORMAT_VERSION, MEMORY_VERSION};

/// Why an endpoint turns a peer away, as the hello carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloRefusal {
    /// Its limit of connections is reached. Try later.
    TooManyConnections,
    /// It speaks another version of the format.
    Version,
    /// Nobody answers to the number in the hello, or not any more.
    NoSuchWorker,
    /// The user that the peer runs as may not connect.
    NotPermitted,
    /// The hello has an extension that must be understood, and it does not know that.
    ExtensionUnknown,
    /// It has no RDMA device, or was built without the feature `verbs`, or is set not to offer it.
    NoVerbs,
    /// TLS is spoken there, and the hello came without.
    TlsWanted,
    /// Its RDMA device sends no packets from the address by which the connection came.
    NoGid,
    /// A status that this version does not know.
    Unknown(u16),
}

/// Why a connection ended or was never opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer closed it between two messages: an ordinary end.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// The peer's bytes ended in the middle of a message or of the hello.
    #[error("the peer closed the connection in the middle of a message, after {received} bytes of it")]
    Truncated {
        /// Bytes of the unfinished message, its length prefix included.
        received: usize,
    },
    /// The network says so: connection refused or reset, host unreachable, timed out.
    #[error("the network failed: {0}")]
    Network(io::ErrorKind),
    /// What came first is not a fabric's hello; most often a wrong port.
    #[error("the peer speaks {0}, not Cell's fabric")]
    Stranger(Stranger),
    /// There is no TLS with the peer, or none any more.
    #[error("no TLS: {0}")]
    Tls(TlsFailure),
    /// TLS is spoken here, and the peer began without.
    #[error("the peer speaks Cell's fabric without TLS, which is spoken here")]
    TlsWanted,
    /// The peer speaks another version of the fabric's format.
    #[error("the peer speaks version {theirs} of the fabric's format, this is version {FORMAT_VERSION}")]
    VersionUnknown {
        /// The peer's version.
        theirs: u16,
    },
    /// The hello has the right magic and version and still makes no sense.
    #[error("the peer's hello is malformed")]
    HelloInvalid,
    /// The hello has an extension that must be understood, and this version does not.
    #[error("the peer's hello asks for extension {kind}, which this version does not know")]
    ExtensionUnknown {
        /// The extension's number.
        kind: u16,
    },
    /// The peer announced a message longer than this endpoint takes. Nothing was allocated for it.
    #[error("the peer announced a message of {length} bytes, the limit is {max}")]
    TooLong {
        /// What the length prefix says.
        length: u32,
        /// The limit.
        max: usize,
    },
    /// What the peer wrote into the memory that both share, or which memory it shared, cannot be.
    #[error("the peer broke the memory shared with it")]
    SharedMemoryBroken,
    /// The memory that the peer shared is of another version of its format.
    #[error("the peer shares memory of version {theirs} of its format, this is version {MEMORY_VERSION}")]
    SharedMemoryVersion {
        /// The peer's version.
        theirs: u64,
    },
    /// Who listens at that name runs as a user that this endpoint shares no memory with.
    #[error("the server runs as user {user}, with whom no memory is shared")]
    AcceptorNotTrusted {
        /// The user that it ran as when it began to listen.
        user: u32,
    },
    /// No queue pair can be had for the connection, or none can be connected to the peer's.
    #[error("no RDMA queue pair for the connection: {0}; see `ulimit -l` and the limits of the device")]
    NoQueuePair(io::ErrorKind),
    /// The RDMA device sends no packets from the address that this end of the connection has.
    #[error(
        "the RDMA device had no GID of {address}, by which this connection goes, when it was opened: choose \
         the device of that network (`fabric_verbs_device`, `client_verbs_device`), or name one of its GIDs \
         (`fabric_verbs_gid`, `client_verbs_gid`)"
    )]
    NoGid {
        /// The address.
        address: IpAddr,
    },
    /// The device of an acceptor over RDMA answers the peer's reads, and its token is not for reading any
    /// more.
    #[error("the RDMA device answers the peer's reads, and its token is for reading no more")]
    ReadsNoMore,
    /// The RDMA device gave the connection's queue pair up.
    #[error("the RDMA device gave the connection up: {0}")]
    QueuePair(QueuePairFailure),
    /// The peer turned this endpoint away.
    #[error("the peer refused the connection: {0}")]
    RefusedByPeer(HelloRefusal),
    /// This endpoint turned the peer away.
    #[error("the connection was refused: {0}")]
    Refused(HelloRefusal),
    /// No complete hello within the hand-shake time-out.
    #[error("no hello within the hand-shake time-out")]
    HandshakeTimeout,
    /// Nothing came within the idle time-out.
    #[error("nothing came within the idle time-out")]
    Idle,
    /// Output was waiting and the peer took none of it within the idle time-out.
    #[error("the peer did not read within the idle time-out")]
    Stalled,
}

/// Why an RDMA device gave a queue pair up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueuePairFailure {
    /// The peer's device refused a one-sided operation: the region's registration has ended.
    AccessRefused,
    /// The peer's device does not answer.
    PeerSilent,
    /// The peer's device answers that it has no room, time after time.
    PeerFull,
    /// It ended with others, or because the peer ended it.
    Flushed,
    /// Anything else, by the number of the completion's status in `ibv_wc_status`.
    Status(u32),
}

impl fmt::Display for QueuePairFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueuePairFailure::AccessRefused => f.write_str("the peer's region is not registered any more"),
            QueuePairFailure::PeerSilent => f.write_str("the peer's device does not answer"),
            QueuePairFailure::PeerFull => f.write_str("the peer's device has no room"),
            QueuePairFailure::Flushed => f.write_str("the peer gave up its end"),
            QueuePairFailure::Status(status) => write!(f, "completion status {status}"),
        }
    }
}

impl CloseReason {
    /// Whether the peer just went: it closed the connection, was gone when it was written to or read from, or
    /// had only asked what answers here ([`Stranger::Probe`]).
    #[must_use]
    pub fn is_departure(self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        matches!(
            self,
            CloseReason::PeerClosed
                | CloseReason::Network(BrokenPipe | ConnectionReset)
                | CloseReason::Stranger(Stranger::Probe)
        )
    }

    /// The answer to a peer whose hello is refused for this reason; `None`: no answer, as for strangers.
    pub(crate) fn refusal(self) -> Option<HelloRefusal> {
        match self {
            CloseReason::VersionUnknown { .. } => Some(HelloRefusal::Version),
            CloseReason::ExtensionUnknown { .. } => Some(HelloRefusal::ExtensionUnknown),
            CloseReason::TlsWanted => Some(HelloRefusal::TlsWanted),
            CloseReason::NoGid { .. } => Some(HelloRefusal::NoGid),
            _ => None,
        }
    }

    /// A failed system call on a connection, as the reason to close it.
    pub(crate) fn network(errno: Errno) -> CloseReason {
        CloseReason::Network(io::Error::from(errno).kind())
    }
}

/// What a stranger's first bytes look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// A browser, curl, a health check; or a web server.
    Http,
    /// A Redis client or server.
    Redis,
    /// A TLS client hello, or the alert of a server that waited for one.
    Tls,
    /// An SSH client or server.
    Ssh,
    /// A command of Cell that was given no hello in time, and asks by [`Stranger::PROBE`] what answers.
    Probe,
    /// None of the known ones.
    Unknown,
}

impl Stranger {
    /// What Cell's commands send to a service that said nothing. Redis answers it as an unknown command, a
    /// web server as a request with an unknown method, and others most often with an error. A node that stood
    /// still meanwhile recognises it.
    pub const PROBE: &'static [u8] = b"CELLPING / HTTP/1.0\r\n\r\n";

    /// Guesses from the first bytes, of which there is at least one: a client's, that came to the wrong port,
    /// or the answer of a server to one that came to the wrong port.
    #[must_use]
    pub fn guess(first: &[u8]) -> Stranger {
        const METHODS: [&[u8]; 8] = [b"GET ", b"POST", b"PUT ", b"HEAD", b"PRI ", b"OPTI", b"DELE", b"CONN"];
        let like = |known: &[u8]| {
            let common = known.len().min(first.len());
            known[..common] == first[..common]
        };
        match first {
            [0x15 | 0x16, rest @ ..] if rest.first().is_none_or(|major| *major == 3) => Stranger::Tls,
            [b'*' | b'$', rest @ ..] if rest.first().is_none_or(u8::is_ascii_digit) => Stranger::Redis,
            // An error; its first word is in capitals.
            [b'-', rest @ ..] if rest.first().is_none_or(u8::is_ascii_uppercase) => Stranger::Redis,
            _ if like(b"HTTP/") || METHODS.iter().any(|method| like(method)) => Stranger::Http,
            _ if like(b"PING") || like(b"AUTH") || like(b"INFO") => Stranger::Redis,
            _ if like(b"SSH-") => Stranger::Ssh,
            _ if like(b"CELLPING") => Stranger::Probe,
            _ => Stranger::Unknown,
        }
    }
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stranger::Http => "HTTP",
            Stranger::Redis => "the Redis protocol",
            Stranger::Tls => "TLS",
            Stranger::Ssh => "SSH",
            Stranger::Probe => "a command's probe of the port",
            Stranger::Unknown => "an unknown protocol",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_that_went_is_distinguished_from_a_network_that_fails() {
        let probe = CloseReason::Stranger(Stranger::Probe);
        let departs = [CloseReason::PeerClosed, CloseReason::network(Errno::PIPE), probe];
        assert!(departs.into_iter().all(CloseReason::is_departure));
        assert!(CloseReason::network(Errno::CONNRESET).is_departure());
        assert!(!CloseReason::Stranger(Stranger::Redis).is_departure());
        for other in [CloseReason::network(Errno::HOSTUNREACH), CloseReason::Truncated { received: 1 }] {
            assert!(!other.is_departure(), "{other}");
        }
    }

    #[test]
    fn stranger_first_bytes_are_recognised() {
        assert_eq!(Stranger::guess(b"GET / HTTP/1.1\r\n"), Stranger::Http);
        assert_eq!(Stranger::guess(b"*1\r\n$4\r\nPING\r\n"), Stranger::Redis);
        assert_eq!(Stranger::guess(b"PING\r\n"), Stranger::Redis);
        assert_eq!(Stranger::guess(Stranger::PROBE), Stranger::Probe);
        assert_eq!(Stranger::guess(&[0x16, 3, 1, 2, 0]), Stranger::Tls);
        assert_eq!(Stranger::guess(b"SSH-2.0-OpenSSH"), Stranger::Ssh);
        assert_eq!(Stranger::guess(b"HTTP/1.1 400 Bad Request\r\n"), Stranger::Http);
        assert_eq!(Stranger::guess(b"-DENIED Redis is running in protected mode"), Stranger::Redis);
        assert_eq!(Stranger::guess(b"-ERR unknown command 'CELLFABR'\r\n"), Stranger::Redis);
        assert_eq!(Stranger::guess(&[0x15, 3, 3, 0, 2, 2, 50]), Stranger::Tls);
        assert_eq!(Stranger::guess(b"-1"), Stranger::Unknown);
        assert_eq!(Stranger::guess(&[0, 1, 2]), Stranger::Unknown);
        let reason = CloseReason::Stranger(Stranger::Http);
        assert_eq!(reason.to_string(), "the peer speaks HTTP, not Cell's fabric");
    }
}
