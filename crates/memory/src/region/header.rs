//! The first page of a region.
//!
//! | word | holds | changes |
//! |---|---|---|
//! | 0 | for what lives in the region; a tree's root, in its lowest node region (the paper's "offset 0") | yes |
//! | 1 | magic, `CELLRGN` and a zero | |
//! | 2 | low: format version; high: 1 node region, 2 extent region | |
//! | 3 | low: region id; high: pair id | |
//! | 4 | region size in bytes, this page included | |
//! | 5 | slot size in bytes; zero in extent regions | |
//! | 6 | low: tree node size in bytes, zero in extent regions; high: size of this page in bytes | |
//! | 7 | reserved, zero | |
//! | 8 | epoch; with words 9 and 10 in a cache line of its own, read by one small one-sided read | when its owner takes it back |
//! | 9 | durable CSN | yes |
//! | 10 | visible CSN, never below the durable one | yes |
//! | 11..512 | reserved, zero | |
//!
//! Little-endian. The words that change are stored with release order after what they vouch for, visible
//! before durable; a reader loads durable before visible, so that it never sees visible below durable.

use cell_terms::{Csn, Epoch, PairId, RegionId, RegionKind};

use super::spec::{HEADER_BYTES, RegionSpec};
use crate::error::{GeometryFault, MemoryError};
use crate::width::{high, index, join, low, narrow};

/// Indexes of the header's words, for those who read a header from afar.
pub mod header_word {
    /// For what lives in the region.
    pub const FIRST: usize = 0;
    /// Magic.
    pub const MAGIC: usize = FIRST + 1;
    /// Format version and kind.
    pub const FORMAT: usize = MAGIC + 1;
    /// Region id and pair id.
    pub const IDS: usize = FORMAT + 1;
    /// Region size.
    pub const BYTES: usize = IDS + 1;
    /// Slot size.
    pub const SLOT_BYTES: usize = BYTES + 1;
    /// Tree node size and header size.
    pub const NODE_BYTES: usize = SLOT_BYTES + 1;
    /// Reserved.
    pub const RESERVED: usize = NODE_BYTES + 1;
    /// Epoch, first word of the watermarks' cache line.
    pub const EPOCH: usize = RESERVED + 1;
    /// Durable CSN.
    pub const DURABLE: usize = EPOCH + 1;
    /// Visible CSN.
    pub const VISIBLE: usize = DURABLE + 1;
    /// First of the reserved words up to the header's end.
    pub const END: usize = VISIBLE + 1;
}

use header_word::{
    BYTES, DURABLE, END, EPOCH, FIRST, FORMAT, IDS, MAGIC, NODE_BYTES, RESERVED, SLOT_BYTES, VISIBLE,
};

const _: () = assert!(FIRST == 0, "the paper's client finds the root at offset 0");
const _: () = assert!(EPOCH * 8 == 64 && VISIBLE * 8 < 128, "watermarks are one cache line");
const _: () = assert!(END == 11 && END < WORDS);

/// Words of a header.
pub(crate) const WORDS: usize = index(HEADER_BYTES / 8);
const FORMAT_VERSION: u32 = 1;
const REGION_MAGIC: u64 = u64::from_le_bytes(*b"CELLRGN\0");
const KIND_NODE: u32 = 1;
const KIND_EXTENT: u32 = 2;

/// How far a pair's writes may be seen, as its owner last said, under one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// The owner's epoch.
    pub epoch: Epoch,
    /// Everything at or below is on stable storage in both logs.
    pub durable: Csn,
    /// Everything at or below may be returned to readers; never below `durable`.
    pub visible: Csn,
}

/// A region's header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionHeader {
    /// Identity and geometry; the epoch is the watermarks'.
    pub spec: RegionSpec,
    /// The word at offset 0, whose meaning is that of what lives in the region.
    pub first_word: u64,
    /// Watermarks at the time of the read.
    pub watermarks: Watermarks,
}

impl RegionHeader {
    /// The words of a new region's header.
    pub(crate) fn encode(spec: &RegionSpec) -> [u64; END] {
        let kind = match spec.kind {
            RegionKind::Node => KIND_NODE,
            RegionKind::Extent => KIND_EXTENT,
        };
        let mut words = [0; END];
        words[MAGIC] = REGION_MAGIC;
        words[FORMAT] = join(FORMAT_VERSION, kind);
        words[IDS] = join(spec.id.0, spec.pair.0);
        words[BYTES] = spec.bytes;
        words[SLOT_BYTES] = spec.slot_bytes;
        words[NODE_BYTES] = join(spec.node_bytes, narrow(HEADER_BYTES));
        words[EPOCH] = spec.epoch.0.into();
        words
    }

    /// Decodes and checks a header that was read from afar or from a file: at least the first eleven words;
    /// reserved words that were read too must be zero.
    ///
    /// # Errors
    /// Another magic, version or geometry than this build can use.
    ///
    /// # Panics
    /// If there are fewer than eleven words.
    pub fn decode(words: &[u64]) -> Result<RegionHeader, MemoryError> {
        if words[MAGIC] != REGION_MAGIC {
            return Err(MemoryError::Magic { found: words[MAGIC] });
        }
        let (version, kind) = (low(words[FORMAT]), high(words[FORMAT]));
        if version != FORMAT_VERSION {
            return Err(MemoryError::FormatVersion { found: version, supported: FORMAT_VERSION });
        }
        let reserved = std::iter::once(RESERVED).chain(END..words.len().min(WORDS));
        if let Some(word) = { reserved }.find(|&word| words[word] != 0) {
            return Err(MemoryError::Reserved { word, found: words[word] });
        }
        let header_bytes = high(words[NODE_BYTES]);
        if u64::from(header_bytes) != HEADER_BYTES {
            return geometry(GeometryFault::HeaderBytes, header_bytes.into());
        }
        if words[EPOCH] > u32::MAX.into() {
            return geometry(GeometryFault::Epoch, words[EPOCH]);
        }
        let spec = RegionSpec {
            id: RegionId(low(words[IDS])),
            pair: PairId(high(words[IDS])),
            kind: match kind {
                KIND_NODE => RegionKind::Node,
                KIND_EXTENT => RegionKind::Extent,
                other => return geometry(GeometryFault::Kind, other.into()),
            },
            bytes: words[BYTES],
            slot_bytes: words[SLOT_BYTES],
            node_bytes: low(words[NODE_BYTES]),
            epoch: Epoch(low(words[EPOCH])),
        };
        let watermarks =
            Watermarks { epoch: spec.epoch, durable: Csn(words[DURABLE]), visible: Csn(words[VISIBLE]) };
        Ok(RegionHeader { spec: spec.checked()?, first_word: words[FIRST], watermarks })
    }
}

fn geometry<T>(fault: GeometryFault, value: u64) -> Result<T, MemoryError> {
    Err(MemoryError::Geometry { fault, value })
}

#[cfg(test)]
mod tests {

    use super::*;

    fn spec() -> RegionSpec {
        RegionSpec::node(PairId(0x21), Epoch(7), 8 << 20, 4 << 20, 1024).unwrap()
    }

    fn page() -> Vec<u64> {
        let mut page = RegionHeader::encode(&spec()).to_vec();
        page.resize(WORDS, 0);
        page
    }

    #[test]
    fn header_golden_bytes_do_not_change() {
        let golden = include_bytes!("../../tests/golden/region-header-v1.bin");
        let bytes: Vec<u8> = page().iter().flat_map(|word| word.to_le_bytes()).take(golden.len()).collect();
        assert_eq!(bytes, golden);
    }

    #[test]
    fn header_round_trip_keeps_everything() {
        let mut page = page();
        (page[FIRST], page[DURABLE], page[VISIBLE]) = (0x42_0000_0000_1000, 8, 9);
        let header = RegionHeader::decode(&page).unwrap();
        assert_eq!(header.spec, spec());
        assert_eq!(header.first_word, 0x42_0000_0000_1000);
        assert_eq!(header.watermarks, Watermarks { epoch: Epoch(7), durable: Csn(8), visible: Csn(9) });
        assert_eq!(RegionHeader::decode(&page[..END]).unwrap(), header);
    }

    #[test]
    fn header_of_another_version_is_refused_by_name() {
        let mut page = page();
        page[FORMAT] = join(2, KIND_NODE);
        let error = RegionHeader::decode(&page).unwrap_err();
        assert_eq!(error.to_string(), "region format 2, this build reads format 1");
    }

    #[test]
    fn header_with_any_word_changed_is_refused_or_differs() {
        let sound = RegionHeader::decode(&page()).unwrap();
        for word in 0..WORDS {
            for bit in 0..64 {
                let mut page = page();
                page[word] ^= 1 << bit;
                assert_ne!(RegionHeader::decode(&page).ok(), Some(sound), "word {word} bit {bit}");
            }
        }
    }

    #[test]
    fn header_reserved_words_must_be_zero() {
        for word in [RESERVED, END, WORDS - 1] {
            let mut page = page();
            page[word] = 5;
            match RegionHeader::decode(&page) {
                Err(MemoryError::Reserved { word: named, found: 5 }) => assert_eq!(named, word),
                other => panic!("{other:?}"),
            }
        }
    }
}
