//! What a checkpoint image holds. `cell_wal` carries blocks without knowing.
//!
//! | section | block |
//! |---|---|
//! | 1 tree nodes | tag: slot. Items: node `u32`, zero `u32`, the node's words |
//! | 2 extents | tag: zero. Items: offset `u32` (16-byte units), length `u32`, the extent, zero padded to 8 |
//! | 3 completions | tag: zero. Part of the completion table's bytes; the parts are joined in order |
//!
//! Geometry (the image header's opaque bytes): version `u32`, tree node bytes `u32`, then `u64` each: slot bytes, node
//! region bytes, extent region bytes, the node region's root pointer. Little-endian throughout.

use cell_cluster::Geometry;
use cell_terms::{ExtentOffset, Pointer};
use cell_tree::NodeIndex;

/// Tree nodes that were valid.
pub(crate) const SECTION_NODES: u16 = 1;
/// Extents that a leaf of the image names.
pub(crate) const SECTION_EXTENTS: u16 = 2;
/// The completion table.
pub(crate) const SECTION_COMPLETIONS: u16 = 3;

/// A block is closed once it has so many bytes.
pub(crate) const BLOCK_BYTES: usize = 1 << 20;

const VERSION: u32 = 1;
const GEOMETRY_BYTES: usize = 40;
const ITEM_HEADER_BYTES: usize = 8;

/// What an image says of the regions that it was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Regions {
    pub(crate) geometry: Geometry,
    pub(crate) root: Pointer,
}

impl Regions {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Regions { geometry, root } = self;
        let mut bytes = Vec::with_capacity(GEOMETRY_BYTES);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&geometry.node_bytes.to_le_bytes());
        let words = [geometry.slot_bytes, geometry.node_region_bytes, geometry.extent_region_bytes, root.0];
        words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Regions> {
        let bytes: &[u8; GEOMETRY_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let geometry = Geometry {
            node_bytes: u32_at(bytes, 4)?,
            slot_bytes: word(8),
            node_region_bytes: word(16),
            extent_region_bytes: word(24),
        };
        (u32_at(bytes, 0)? == VERSION).then_some(Regions { geometry, root: Pointer(word(32)) })
    }
}

/// Gathers the items of one section.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) bytes: Vec<u8>,
    pub(crate) items: u32,
}

impl Block {
    pub(crate) fn push_node(&mut self, node: NodeIndex, words: &[u64]) {
        self.bytes.extend_from_slice(&node.0.to_le_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        words.iter().for_each(|word| self.bytes.extend_from_slice(&word.to_le_bytes()));
        self.items += 1;
    }

    /// Makes room for an extent and returns it.
    pub(crate) fn push_extent(&mut self, offset: ExtentOffset, extent_bytes: u32) -> &mut [u8] {
        self.bytes.extend_from_slice(&offset.0.to_le_bytes());
        self.bytes.extend_from_slice(&extent_bytes.to_le_bytes());
        let begin = self.bytes.len();
        let length = extent_bytes as usize;
        self.bytes.resize(begin + length.next_multiple_of(8), 0);
        self.items += 1;
        &mut self.bytes[begin..begin + length]
    }

    /// Takes back what was pushed since the block had this length.
    pub(crate) fn truncate(&mut self, bytes: usize, items: u32) {
        self.bytes.truncate(bytes);
        self.items = items;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= BLOCK_BYTES
    }

    pub(crate) fn clear(&mut self) {
        self.truncate(0, 0);
    }
}

/// The tree nodes of a block; `None` in place of one that does not parse.
pub(crate) fn nodes(
    block: &[u8],
    node_bytes: usize,
) -> impl Iterator<Item = Option<(NodeIndex, &[[u8; 8]])>> {
    block.chunks(ITEM_HEADER_BYTES + node_bytes).map(move |item| {
        let (head, words) = item.split_at_checked(ITEM_HEADER_BYTES)?;
        let whole = words.len() == node_bytes && u32_at(head, 4)? == 0;
        whole.then_some((NodeIndex(u32_at(head, 0)?), words.as_chunks().0))
    })
}

/// The extents of a block; `None` in place of one that does not parse, which is the last then.
pub(crate) fn extents(block: &[u8]) -> impl Iterator<Item = Option<(ExtentOffset, &[u8])>> {
    let mut rest = block;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let item = take_extent(rest);
        rest = item.map_or(&[], |(_, _, after)| after);
        Some(item.map(|(offset, extent, _)| (offset, extent)))
    })
}

fn take_extent(bytes: &[u8]) -> Option<(ExtentOffset, &[u8], &[u8])> {
    let (head, body) = bytes.split_at_checked(ITEM_HEADER_BYTES)?;
    let length = u32_at(head, 4)? as usize;
    let (padded, after) = body.split_at_checked(length.next_multiple_of(8))?;
    Some((ExtentOffset(u32_at(head, 0)?), &padded[..length], after))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map(|bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_bytes_are_pinned_and_parse_back() {
        let geometry = Geometry {
            node_region_bytes: 0x0200_1000,
            extent_region_bytes: 0x0400_0000,
            slot_bytes: 0x0080_0000,
            node_bytes: 1024,
        };
        let regions = Regions { geometry, root: Pointer(0x0200_0000_1000) };
        let golden = [
            1, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0x10, 0, 2, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0,
            0, 0x10, 0, 0, 0, 2, 0, 0,
        ];
        assert_eq!(regions.encode(), golden);
        assert_eq!(Regions::decode(&golden), Some(regions));
        let mut other = golden;
        other[0] = 2;
        assert_eq!(Regions::decode(&other), None);
        assert_eq!(Regions::decode(&golden[1..]), None);
    }

    #[test]
    fn blocks_are_pinned_and_parse_back() {
        let mut block = Block::default();
        block.push_node(NodeIndex(7), &[1, 2]);
        assert_eq!(block.bytes, [7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        let parsed: Vec<_> = nodes(&block.bytes, 16).map(|item| item.map(|(node, words)| (node, words.len()))).collect();
        assert_eq!(parsed, [Some((NodeIndex(7), 2))]);
        assert!(nodes(&block.bytes, 24).any(|item| item.is_none()));
        block.clear();
        block.push_extent(ExtentOffset(5), 3).copy_from_slice(b"abc");
        block.push_extent(ExtentOffset(6), 0);
        assert_eq!(block.bytes, [5, 0, 0, 0, 3, 0, 0, 0, b'a', b'b', b'c', 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
        let parsed: Vec<_> = extents(&block.bytes).collect();
        assert_eq!(parsed, [Some((ExtentOffset(5), &b"abc"[..])), Some((ExtentOffset(6), &b""[..]))]);
        for length in 1..block.bytes.len() {
            let cut_within = length != 16;
            assert_eq!(extents(&block.bytes[..length]).any(|item| item.is_none()), cut_within);
        }
    }
}
