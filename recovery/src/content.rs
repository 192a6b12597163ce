//! Parsing what [`crate::image`] writes: the layout's table is there.

use cell_cluster::PairGeometry;
use cell_terms::ExtentOffset;
use cell_tree::NodeIndex;

use crate::image::ITEM_HEADER_BYTES;

const GEOMETRY_BYTES: usize = 32;

/// The geometry of an image's header; `None` if it is none.
pub(crate) fn decode_geometry(bytes: &[u8]) -> Option<PairGeometry> {
    let bytes: &[u8; GEOMETRY_BYTES] = bytes.try_into().ok()?;
    let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    (u32_at(bytes, 4)? == 0).then_some(PairGeometry {
        node_bytes: u32_at(bytes, 0)?,
        slot_bytes: word(8),
        node_region_bytes: word(16),
        extent_region_bytes: word(24),
    })
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
    fn decode_geometry_of_pinned_bytes() {
        let mut bytes = [0_u8; GEOMETRY_BYTES];
        bytes[1] = 4;
        bytes[10] = 0x80;
        bytes[19] = 2;
        bytes[27] = 4;
        let geometry = PairGeometry {
            node_region_bytes: 0x0200_0000,
            extent_region_bytes: 0x0400_0000,
            slot_bytes: 0x0080_0000,
            node_bytes: 1024,
        };
        assert_eq!(decode_geometry(&bytes), Some(geometry));
        bytes[4] = 1;
        assert_eq!(decode_geometry(&bytes), None);
        assert_eq!(decode_geometry(&bytes[1..]), None);
    }

    #[test]
    fn nodes_of_another_size_do_not_parse() {
        let block = [7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        let words = nodes(&block, 16).map(|item| item.map(|(node, words)| (node, words.len())));
        assert_eq!(words.collect::<Vec<_>>(), [Some((NodeIndex(7), 2))]);
        assert!(nodes(&block, 24).any(|item| item.is_none()));
    }

    #[test]
    fn extents_cut_off_do_not_parse() {
        let block = [5, 0, 0, 0, 3, 0, 0, 0, b'a', b'b', b'c', 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0];
        let parsed: Vec<_> = extents(&block).collect();
        assert_eq!(parsed, [Some((ExtentOffset(5), &b"abc"[..])), Some((ExtentOffset(6), &b""[..]))]);
        for length in 1..block.len() {
            assert_eq!(extents(&block[..length]).any(|item| item.is_none()), length != 16);
        }
    }
}
