//! The hello: the first bytes of each connection, in both directions, before any message.
//!
//! The connector speaks first; the acceptor answers when it has read a good hello, so a stranger gets
//! nothing.
//! Little-endian throughout. The first twelve bytes keep their place in every later version, so that two
//! versions can always recognise each other.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `CELLFABR` |
//! | 8 | 2 | format version |
//! | 10 | 2 | status: 0 welcome, else a [`HelloRefusal`]; connectors send 0 |
//! | 12 | 2 | flags of the provider: bit 0 serves one-sided reads; the rest zero |
//! | 14 | 2 | whom the connector wants: 0 the worker, 65,535 the one-sided service; acceptors repeat it |
//! | 16 | 4 | longest message that this end takes, from 1,024 |
//! | 20 | 2 | bytes of greeting and extensions that follow, at most 1,536 |
//! | 22 | 2 | zero |
//! | 24 | 16 | boot id of the host |
//! | 40 | - | greeting: two texts, each a u16 length and UTF-8: shared-memory socket, HTTP address |
//! | - | - | extensions: each a u16 kind, a u16 length and so many bytes |
//!
//! | extension | carries |
//! |---|---|
//! | 1 | the token of who wants one-sided reads, or a connection over `verbs`, at most 1,024 bytes |
//! | 32,769 | the sender's end of a queue pair (`queue_pair_end`): the connection is to be one over `verbs` |
//!
//! Extensions are what a later version can add without another format. Who does not know a kind skips it;
//! from kind 32,768 on it refuses the hello instead, and says why.

use std::fmt;

use crate::close::{CloseReason, HelloRefusal, Stranger};
use crate::error::FabricError;
use crate::greeting::Greeting;
use crate::queue_pair_end::{QUEUE_PAIR_END_BYTES, QueuePairEnd};
use crate::version::FORMAT_VERSION;

/// The worker number of a process's worker.
pub(crate) const WORKER: u16 = 0;
/// The worker number that names its one-sided service.
pub(crate) const WORKER_ONE_SIDED: u16 = u16::MAX;

/// The first bytes of all.
pub(crate) const MAGIC: [u8; 8] = *b"CELLFABR";
const VERSION_AT: usize = MAGIC.len();
const STATUS_AT: usize = VERSION_AT + 2;
const FLAGS_AT: usize = STATUS_AT + 2;
const WORKER_AT: usize = FLAGS_AT + 2;
const MESSAGE_MAX_AT: usize = WORKER_AT + 2;
const GREETING_BYTES_AT: usize = MESSAGE_MAX_AT + 4;
const RESERVED_AT: usize = GREETING_BYTES_AT + 2;
const BOOT_ID_AT: usize = RESERVED_AT + 2;
pub(crate) const HEADER_BYTES: usize = BOOT_ID_AT + 16;
const GREETING_BYTES_MAX: usize = 1_536;
/// Longest token, as in the protocol's hello.
const TOKEN_BYTES_MAX: usize = 1_024;
const MESSAGE_MAX_MIN: u32 = 1_024;
const FLAG_ONE_SIDED: u16 = 1;
/// From this kind on an extension has to be understood.
const EXTENSION_REQUIRED: u16 = 1 << 15;
const EXTENSION_TOKEN: u16 = 1;
const EXTENSION_QUEUE_PAIR: u16 = EXTENSION_REQUIRED + 1;
const EXTENSION_QUEUE_PAIR_BYTES: u16 = 36;

const _: () = assert!(HEADER_BYTES == 40 && EXTENSION_QUEUE_PAIR_BYTES as usize == QUEUE_PAIR_END_BYTES);

/// One end's hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) refusal: Option<HelloRefusal>,
    pub(crate) one_sided: bool,
    pub(crate) worker: u16,
    pub(crate) message_bytes_max: u32,
    pub(crate) greeting: Greeting,
    /// Of a connection over `verbs`.
    pub(crate) queue_pair: Option<Box<QueuePairEnd>>,
    /// Of a connector that wants one-sided reads; empty: it has none.
    pub(crate) token: Box<[u8]>,
}

/// What extensions say.
#[derive(Default)]
struct Extensions {
    queue_pair: Option<Box<QueuePairEnd>>,
    token: Box<[u8]>,
}

/// What the bytes so far amount to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// So many bytes in all are needed before more can be said. Reading no further than this leaves what
    /// follows the hello in the socket.
    Need(usize),
    /// It is whole.
    Whole(Hello),
}

impl Hello {
    /// A connector's hello.
    pub(crate) fn of_connector(worker: u16, message_bytes_max: usize) -> Hello {
        Hello {
            refusal: None,
            one_sided: false,
            worker,
            message_bytes_max: u32::try_from(message_bytes_max).unwrap_or(u32::MAX),
            greeting: Greeting::default(),
            queue_pair: None,
            token: Box::default(),
        }
    }

    /// The bytes.
    ///
    /// # Errors
    /// The greeting's texts, or the token, are too long.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, FabricError> {
        let texts = [&self.greeting.shared_memory_socket, &self.greeting.http_address];
        let extension = self.queue_pair.as_ref().map(|end| end.encode());
        let texts_bytes: usize = texts.iter().map(|text| 2 + text.len()).sum();
        let token_bytes = if self.token.is_empty() { 0 } else { 4 + self.token.len() };
        let length = texts_bytes + extension.map_or(0, |bytes| 4 + bytes.len()) + token_bytes;
        let too_long = FabricError::GreetingTooLong { length, max: GREETING_BYTES_MAX };
        let greeting_bytes =
            u16::try_from(length).ok().filter(|bytes| usize::from(*bytes) <= GREETING_BYTES_MAX);
        let greeting_bytes = greeting_bytes.ok_or(too_long)?;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + length);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.refusal.map_or(0, HelloRefusal::number).to_le_bytes());
        bytes.extend_from_slice(&u16::from(self.one_sided).to_le_bytes());
        bytes.extend_from_slice(&self.worker.to_le_bytes());
        bytes.extend_from_slice(&self.message_bytes_max.to_le_bytes());
        bytes.extend_from_slice(&greeting_bytes.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&self.greeting.boot_id);
        for text in texts {
            // Fits: the sum of both was checked.
            bytes.extend_from_slice(&u16::try_from(text.len()).unwrap_or(0).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        if token_bytes > 0 {
            bytes.extend_from_slice(&EXTENSION_TOKEN.to_le_bytes());
            // Fits: the sum was checked.
            bytes.extend_from_slice(&u16::try_from(self.token.len()).unwrap_or(0).to_le_bytes());
            bytes.extend_from_slice(&self.token);
        }
        if let Some(extension) = extension {
            bytes.extend_from_slice(&EXTENSION_QUEUE_PAIR.to_le_bytes());
            bytes.extend_from_slice(&EXTENSION_QUEUE_PAIR_BYTES.to_le_bytes());
            bytes.extend_from_slice(&extension);
        }
        Ok(bytes)
    }

    /// Judges the bytes that came so far; a stranger is recognised at its first wrong byte.
    ///
    /// # Errors
    /// The reason to close the connection with.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Decoded, CloseReason> {
        let common = bytes.len().min(MAGIC.len());
        if bytes[..common] != MAGIC[..common] {
            return Err(CloseReason::Stranger(Stranger::guess(bytes)));
        }
        if bytes.len() < FLAGS_AT {
            return Ok(Decoded::Need(FLAGS_AT));
        }
        let version = u16_at(bytes, VERSION_AT);
        if version != FORMAT_VERSION {
            return Err(CloseReason::VersionUnknown { theirs: version });
        }
        if bytes.len() < HEADER_BYTES {
            return Ok(Decoded::Need(HEADER_BYTES));
        }
        let greeting_bytes = usize::from(u16_at(bytes, GREETING_BYTES_AT));
        if greeting_bytes > GREETING_BYTES_MAX {
            return Err(CloseReason::HelloInvalid);
        }
        let whole = HEADER_BYTES + greeting_bytes;
        if bytes.len() < whole {
            return Ok(Decoded::Need(whole));
        }
        let (mut hello, extensions) =
            Hello::decode_whole(&bytes[..whole]).ok_or(CloseReason::HelloInvalid)?;
        Extensions { queue_pair: hello.queue_pair, token: hello.token } = decode_extensions(extensions)?;
        Ok(Decoded::Whole(hello))
    }

    /// The hello, and the bytes of its extensions.
    fn decode_whole(bytes: &[u8]) -> Option<(Hello, &[u8])> {
        let flags = u16_at(bytes, FLAGS_AT);
        let message_bytes_max = u32::from_le_bytes(bytes[MESSAGE_MAX_AT..GREETING_BYTES_AT].try_into().ok()?);
        let reserved = u16_at(bytes, RESERVED_AT);
        if flags & !FLAG_ONE_SIDED != 0 || reserved != 0 || message_bytes_max < MESSAGE_MAX_MIN {
            return None;
        }
        let (shared_memory_socket, rest) = text(&bytes[HEADER_BYTES..])?;
        let (http_address, extensions) = text(rest)?;
        let boot_id = bytes[BOOT_ID_AT..HEADER_BYTES].try_into().ok()?;
        let hello = Hello {
            refusal: HelloRefusal::of_number(u16_at(bytes, STATUS_AT)),
            one_sided: flags & FLAG_ONE_SIDED != 0,
            worker: u16_at(bytes, WORKER_AT),
            message_bytes_max,
            greeting: Greeting { boot_id, shared_memory_socket, http_address },
            queue_pair: None,
            token: Box::default(),
        };
        Some((hello, extensions))
    }
}

impl HelloRefusal {
    const fn number(self) -> u16 {
        match self {
            HelloRefusal::TooManyConnections => 1,
            HelloRefusal::Version => 2,
            HelloRefusal::NoSuchWorker => 3,
            HelloRefusal::NotPermitted => 4,
            HelloRefusal::ExtensionUnknown => 5,
            HelloRefusal::NoVerbs => 6,
            HelloRefusal::TlsWanted => 7,
            HelloRefusal::NoGid => 8,
            HelloRefusal::Unknown(number) => number,
        }
    }

    const fn of_number(number: u16) -> Option<HelloRefusal> {
        match number {
            0 => None,
            1 => Some(HelloRefusal::TooManyConnections),
            2 => Some(HelloRefusal::Version),
            3 => Some(HelloRefusal::NoSuchWorker),
            4 => Some(HelloRefusal::NotPermitted),
            5 => Some(HelloRefusal::ExtensionUnknown),
            6 => Some(HelloRefusal::NoVerbs),
            7 => Some(HelloRefusal::TlsWanted),
            8 => Some(HelloRefusal::NoGid),
            unknown => Some(HelloRefusal::Unknown(unknown)),
        }
    }
}

impl fmt::Display for HelloRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HelloRefusal::TooManyConnections => f.write_str("too many connections"),
            HelloRefusal::Version => f.write_str("another version of the fabric's format"),
            HelloRefusal::NoSuchWorker => f.write_str("there is no such worker"),
            HelloRefusal::NotPermitted => f.write_str("this user may not connect"),
            HelloRefusal::ExtensionUnknown => f.write_str("it does not know an extension of the hello"),
            HelloRefusal::NoVerbs => f.write_str("it offers no RDMA (transport verbs)"),
            HelloRefusal::TlsWanted => f.write_str("it speaks TLS alone"),
            HelloRefusal::NoGid => {
                f.write_str("its RDMA device has no GID of the address by which the connection came")
            }
            HelloRefusal::Unknown(number) => {
                write!(f, "for reason {number}, which this version does not know")
            }
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// What the extensions say; those that need not be understood are skipped.
fn decode_extensions(mut bytes: &[u8]) -> Result<Extensions, CloseReason> {
    let mut extensions = Extensions::default();
    while !bytes.is_empty() {
        let (kind, rest) = bytes.split_first_chunk::<2>().ok_or(CloseReason::HelloInvalid)?;
        let (content, rest) = sized(rest).ok_or(CloseReason::HelloInvalid)?;
        match u16::from_le_bytes(*kind) {
            EXTENSION_QUEUE_PAIR => {
                let end = QueuePairEnd::decode(content).ok_or(CloseReason::HelloInvalid)?;
                extensions.queue_pair = Some(Box::new(end));
            }
            EXTENSION_TOKEN if content.len() > TOKEN_BYTES_MAX => return Err(CloseReason::HelloInvalid),
            EXTENSION_TOKEN => extensions.token = content.into(),
            kind if kind >= EXTENSION_REQUIRED => return Err(CloseReason::ExtensionUnknown { kind }),
            _ => {}
        }
        bytes = rest;
    }
    Ok(extensions)
}

/// Bytes behind their u16 length, and what follows them.
fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))
}

fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (text, rest) = sized(bytes)?;
    Some((std::str::from_utf8(text).ok()?.to_owned(), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn example() -> Hello {
        Hello {
            refusal: None,
            one_sided: true,
            worker: 3,
            message_bytes_max: 65_536,
            greeting: Greeting {
                boot_id: [7; 16],
                shared_memory_socket: "/run/c".to_owned(),
                http_address: "[::1]:80".to_owned(),
            },
            queue_pair: None,
            token: Box::default(),
        }
    }

    #[test]
    fn encode_example_is_the_golden_bytes() {
        let golden: Vec<u8> = [
            b"CELLFABR".as_slice(),
            &[1, 0, 0, 0, 1, 0, 3, 0, 0, 0, 1, 0, 18, 0, 0, 0],
            &[7; 16],
            &[6, 0],
            b"/run/c",
            &[8, 0],
            b"[::1]:80",
        ]
        .concat();
        assert_eq!(example().encode().unwrap(), golden);
    }

    #[test]
    fn decode_each_prefix_needs_more_and_the_whole_round_trips() {
        let bytes = example().encode().unwrap();
        for length in 0..bytes.len() {
            let Ok(Decoded::Need(needed)) = Hello::decode(&bytes[..length]) else { panic!("{length}") };
            assert!(needed > length && needed <= bytes.len());
        }
        assert_eq!(Hello::decode(&bytes), Ok(Decoded::Whole(example())));
        for refusal in
            [HelloRefusal::TooManyConnections, HelloRefusal::NotPermitted, HelloRefusal::Unknown(99)]
        {
            let hello = Hello { refusal: Some(refusal), ..example() };
            assert_eq!(Hello::decode(&hello.encode().unwrap()), Ok(Decoded::Whole(hello)));
        }
    }

    #[test]
    fn decode_stranger_or_other_version_is_refused_by_name() {
        assert_eq!(Hello::decode(b"G"), Err(CloseReason::Stranger(Stranger::Http)));
        assert_eq!(Hello::decode(b"*1\r\n"), Err(CloseReason::Stranger(Stranger::Redis)));
        let mut bytes = example().encode().unwrap();
        bytes[8] = 9;
        assert_eq!(Hello::decode(&bytes), Err(CloseReason::VersionUnknown { theirs: 9 }));
    }

    #[test]
    fn decode_malformed_field_is_refused() {
        let bytes = example().encode().unwrap();
        for (at, value) in [(12, 2), (22, 1), (18, 0), (20, 255), (21, 255), (40, 200), (42, 0xff)] {
            let mut wrong = bytes.clone();
            wrong[at] = value;
            let decoded = Hello::decode(&wrong);
            let longer = matches!(decoded, Ok(Decoded::Need(needed)) if needed > bytes.len());
            assert!(longer || decoded == Err(CloseReason::HelloInvalid), "{at}: {decoded:?}");
        }
    }

    /// The example with something behind its greeting.
    fn extended(extensions: &[u8]) -> Vec<u8> {
        let mut bytes = example().encode().unwrap();
        bytes[GREETING_BYTES_AT] += u8::try_from(extensions.len()).unwrap();
        bytes.extend_from_slice(extensions);
        bytes
    }

    #[test]
    fn decode_unknown_extensions_are_skipped() {
        for extensions in [[9, 0, 3, 0, 1, 2, 3].as_slice(), &[0xff, 0x7f, 0, 0, 2, 0, 1, 0, 7]] {
            let bytes = extended(extensions);
            assert_eq!(Hello::decode(&bytes), Ok(Decoded::Whole(example())), "{extensions:?}");
            let cut = Hello::decode(&bytes[..bytes.len() - 1]);
            assert_eq!(cut, Ok(Decoded::Need(bytes.len())));
        }
    }

    #[test]
    fn token_round_trips_and_one_that_is_too_long_is_refused() {
        let hello = |bytes| Hello { token: vec![7; bytes].into(), ..example() };
        for bytes in [1, TOKEN_BYTES_MAX] {
            let encoded = hello(bytes).encode().unwrap();
            assert_eq!(encoded.len(), example().encode().unwrap().len() + 4 + bytes);
            assert_eq!(Hello::decode(&encoded), Ok(Decoded::Whole(hello(bytes))));
        }
        let longer = hello(TOKEN_BYTES_MAX + 1).encode().unwrap();
        assert_eq!(Hello::decode(&longer), Err(CloseReason::HelloInvalid));
        assert!(hello(1 << 16).encode().is_err());
    }

    #[test]
    fn queue_pair_round_trips_in_its_extension_and_a_malformed_one_is_refused() {
        let queue_pair = QueuePairEnd {
            number: 9,
            packet: 1,
            gid: [1; 16],
            lid: 0,
            packet_size: 3,
            reads_at_once: 1,
            slot_bytes: 4_096,
            slots: 16,
        };
        let hello = Hello { queue_pair: Some(Box::new(queue_pair)), ..example() };
        let mut bytes = hello.encode().unwrap();
        assert_eq!(bytes.len(), example().encode().unwrap().len() + 4 + QUEUE_PAIR_END_BYTES);
        assert_eq!(Hello::decode(&bytes), Ok(Decoded::Whole(hello)));
        *bytes.last_mut().unwrap() = 1;
        assert_eq!(Hello::decode(&bytes), Err(CloseReason::HelloInvalid));
    }

    #[test]
    fn decode_unknown_extension_that_must_be_understood_is_refused_by_its_kind() {
        let bytes = extended(&[9, 0, 0, 0, 7, 0x80, 1, 0, 5]);
        assert_eq!(Hello::decode(&bytes), Err(CloseReason::ExtensionUnknown { kind: 0x8007 }));
    }

    #[test]
    fn decode_extension_that_is_cut_is_refused() {
        for extensions in [[9].as_slice(), &[9, 0, 1], &[9, 0, 2, 0, 1], &[9, 0, 0, 0, 1]] {
            assert_eq!(
                Hello::decode(&extended(extensions)),
                Err(CloseReason::HelloInvalid),
                "{extensions:?}"
            );
        }
    }

    #[test]
    fn encode_greeting_too_long_is_refused() {
        let mut hello = example();
        hello.greeting.http_address = "x".repeat(2_000);
        assert!(matches!(hello.encode(), Err(FabricError::GreetingTooLong { max: 1_536, .. })));
    }

    proptest! {
        #[test]
        fn decode_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Hello::decode(&bytes);
            let mut spoiled = example().encode().unwrap();
            for (at, byte) in bytes.chunks_exact(2).map(|pair| (usize::from(pair[0]), pair[1])) {
                let at = at % spoiled.len();
                spoiled[at] = byte;
            }
            let _ = Hello::decode(&spoiled);
        }
    }
}
