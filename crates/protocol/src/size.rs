//! The sizes that the wire itself sets. A server's own limits, sent in its hello, are at most these.

/// The version that this crate speaks.
pub const PROTOCOL_VERSION: u16 = 2;

/// The oldest version that this crate still understands.
pub const PROTOCOL_VERSION_MIN: u16 = 2;

/// Longest message, header included: what the fabric delivers in one piece.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Longest key that the wire carries. A server's limit is lower and depends on its tree node size.
pub const KEY_BYTES_MAX: usize = 1024;

/// Longest value that lengths on the wire can express. A server's limit is lower (16 MiB by default).
pub const VALUE_BYTES_WIRE_MAX: usize = u32::MAX as usize;

/// Most keys of one multi-get.
pub const MULTI_GET_KEYS_MAX: usize = 1024;

/// Longest name that a client or a server gives itself in a hello.
pub const NAME_BYTES_MAX: usize = 256;

/// Longest token in a hello.
pub const TOKEN_BYTES_MAX: usize = 1024;

// A scan page has room for an entry of the longest key without its value, beside the longest resume bound.
const _: () = assert!(MESSAGE_BYTES_MAX > 4 * KEY_BYTES_MAX);
const _: () = assert!(KEY_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(MULTI_GET_KEYS_MAX <= u16::MAX as usize);
const _: () = assert!(PROTOCOL_VERSION_MIN <= PROTOCOL_VERSION);
