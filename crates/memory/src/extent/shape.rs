//! The lower half of an extent's first word: all that its length depends on.

use std::fmt;

/// Unit of extent offsets and of the allocator.
pub const GRANULE_BYTES: u32 = 16;
/// Longest value.
pub const VALUE_BYTES_MAX: u32 = 16 << 20;
/// What every extent has before its value.
pub const HEADER_BYTES_MIN: u32 = 16;
/// What an extent can have before its value.
pub const HEADER_BYTES_MAX: u32 = HEADER_BYTES_MIN + MOVED_BYTES + EXPIRY_BYTES;
/// Longest extent.
pub const EXTENT_BYTES_MAX: u32 = HEADER_BYTES_MAX + VALUE_BYTES_MAX;

pub(super) const MOVED_BYTES: u32 = 16;
pub(super) const EXPIRY_BYTES: u32 = 8;

const LENGTH_BITS: u32 = 25;
const LENGTH_MASK: u32 = (1 << LENGTH_BITS) - 1;
const MOVED: u32 = 1 << LENGTH_BITS;
const EXPIRY: u32 = MOVED << 1;
const RESERVED: u32 = !(LENGTH_MASK | MOVED | EXPIRY);

const _: () = assert!(VALUE_BYTES_MAX <= LENGTH_MASK);
// What is not above the longest value has no flag.
const _: () = assert!(VALUE_BYTES_MAX < MOVED && VALUE_BYTES_MAX < EXPIRY && LENGTH_MASK & RESERVED == 0);
const _: () = assert!(
    HEADER_BYTES_MIN.is_multiple_of(8) && MOVED_BYTES.is_multiple_of(8) && EXPIRY_BYTES.is_multiple_of(8)
);
const _: () = assert!(EXTENT_BYTES_MAX == (16 << 20) + 40);
const _: () = assert!(HEADER_BYTES_MIN <= GRANULE_BYTES, "the shortest extent is one granule");

/// Value length and flags in 32 bits, as they stand in an extent's first word and may stand in its leaf.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtentShape(u32);

impl ExtentShape {
    /// Joins them; `None` if the value is too long.
    #[must_use]
    pub const fn new(value_bytes: u32, moved: bool, expiry: bool) -> Option<ExtentShape> {
        if value_bytes > VALUE_BYTES_MAX {
            return None;
        }
        let flags = if moved { MOVED } else { 0 } | if expiry { EXPIRY } else { 0 };
        Some(ExtentShape(value_bytes | flags))
    }

    /// From 32 bits; `None` for what [`ExtentShape::new`] does not make.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<ExtentShape> {
        if ExtentShape(bits).is_plain() {
            return Some(ExtentShape(bits));
        }
        if bits & RESERVED != 0 || bits & LENGTH_MASK > VALUE_BYTES_MAX {
            None
        } else {
            Some(ExtentShape(bits))
        }
    }

    /// The 32 bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether it is a length alone, as nearly all are: one comparison says that no flag is set, and that a
    /// value can have the length.
    #[inline]
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.0 <= VALUE_BYTES_MAX
    }

    /// Length of the value.
    #[must_use]
    pub const fn value_bytes(self) -> u32 {
        self.0 & LENGTH_MASK
    }

    /// Whether the entry's version is that of another place.
    #[must_use]
    pub const fn moved(self) -> bool {
        self.0 & MOVED != 0
    }

    /// Whether the entry ends at a time.
    #[must_use]
    pub const fn expiry(self) -> bool {
        self.0 & EXPIRY != 0
    }

    /// Where the value begins.
    #[must_use]
    pub const fn header_bytes(self) -> u32 {
        if self.is_plain() {
            return HEADER_BYTES_MIN;
        }
        HEADER_BYTES_MIN
            + if self.moved() { MOVED_BYTES } else { 0 }
            + if self.expiry() { EXPIRY_BYTES } else { 0 }
    }

    /// Length of the extent without padding: what is allocated, and what the checksum covers.
    #[must_use]
    pub const fn extent_bytes(self) -> u32 {
        self.header_bytes() + self.value_bytes()
    }

    /// Length of the extent with its padding, in whole words.
    #[must_use]
    pub const fn stored_bytes(self) -> u32 {
        self.extent_bytes().next_multiple_of(8)
    }
}

impl fmt::Debug for ExtentShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [(self.moved(), "+moved"), (self.expiry(), "+expiry")];
        write!(f, "{}", self.value_bytes())?;
        flags.iter().filter(|(set, _)| *set).try_for_each(|(_, name)| f.write_str(name))
    }
}
