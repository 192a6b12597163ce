//! Whether a tree node's bytes keep the rules of the layout.

use crate::compose::SUFFIX_BUFFER;
use crate::geometry::Geometry;
use crate::layout::key_max;
use crate::layout::{
    COUNT, FENCES, FLAG_HIDDEN, FLAG_VALID, HEAD_BYTES, HIGH_INFINITE, cell_bytes, common_prefix,
    heads_offset, heap_end, kind_of,
};
use crate::page::Page;
use crate::state::TreeNodeState;
use crate::view::Header;

/// The rule that a tree node breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeImageError {
    /// An image of another size.
    #[error("an image of {0} bytes")]
    Size(usize),
    /// Unknown flags, or a level that does not go with them.
    #[error("a kind of {0:#x}")]
    Kind(u8),
    /// Fences out of order, too long, or a prefix that is not theirs.
    #[error("its fences are wrong")]
    Fences,
    /// Arrays and heap overlap, or end outside of the node.
    #[error("its arrays or its heap are out of bounds")]
    Bounds,
    /// The right link leads nowhere, or there is one without a high fence.
    #[error("its right link is wrong")]
    RightLink,
    /// An entry's cell is outside of the heap or overlaps another.
    #[error("the cell of entry {0} is out of bounds or overlaps another")]
    Cell(usize),
    /// An entry's head is not its key's, or the key is too long or outside of the fences.
    #[error("the key of entry {0} is wrong")]
    Key(usize),
    /// An entry is not above the one before it.
    #[error("entry {0} is out of order")]
    Order(usize),
    /// A child is not in the slot.
    #[error("entry {0} leads out of the slot")]
    Child(usize),
    /// The heap has more or less garbage than the header says.
    #[error("its garbage is {counted} bytes, not {stated}")]
    Garbage {
        /// What the header says.
        stated: usize,
        /// What is there.
        counted: usize,
    },
    /// An inner node without children, or whose first has a separator.
    #[error("an inner node without a first child")]
    FirstChild,
}

/// Checks everything that can be checked within one node.
pub(crate) fn check_page<const B: usize>(geometry: Geometry, page: &Page<B>) -> Result<(), NodeImageError> {
    let header = page.view().header();
    let both = header.kind & FLAG_VALID != 0 && header.kind & FLAG_HIDDEN != 0;
    if both || TreeNodeState::Valid.mark(header.kind) != kind_of(header.role(), header.level()) {
        return Err(NodeImageError::Kind(header.kind));
    }
    let (low, high) = check_fences(page, &header)?;
    let right = page.view().right();
    if right.is_null() != high.is_none() || !right.is_null() && geometry.locate(right).is_none() {
        return Err(NodeImageError::RightLink);
    }
    if page.get_u16(COUNT) != header.count
        || header.arrays_end() > header.heap_low
        || header.heap_low > heap_end(B)
    {
        return Err(NodeImageError::Bounds);
    }
    check_entries(geometry, page, &header, &low, high.as_deref())
}

type Fences = (Vec<u8>, Option<Vec<u8>>);

fn check_fences<const B: usize>(page: &Page<B>, header: &Header) -> Result<Fences, NodeImageError> {
    let infinite = header.high_len == HIGH_INFINITE;
    if header.low_len > key_max(B)
        || !infinite && header.high_len > key_max(B)
        || header.prefix > header.low_len
        || !infinite && header.prefix > header.high_len
    {
        return Err(NodeImageError::Fences);
    }
    let end = FENCES + header.low_len + header.high_stored();
    let heads = heads_offset(header.low_len, header.high_stored());
    if header.heads() != heads || heads > heap_end(B) {
        return Err(NodeImageError::Bounds);
    }
    let bytes = page.bytes();
    let low = bytes[FENCES..FENCES + header.low_len].to_vec();
    let high = (!infinite).then(|| [&low[..header.prefix], &bytes[FENCES + header.low_len..end]].concat());
    let prefix = high.as_ref().map_or(0, |high| common_prefix(&low, high));
    let ordered = high.as_ref().is_none_or(|high| low < *high);
    if prefix != header.prefix || !ordered || bytes[end..header.heads()].iter().any(|byte| *byte != 0) {
        return Err(NodeImageError::Fences);
    }
    Ok((low, high))
}

fn check_entries<const B: usize>(
    geometry: Geometry,
    page: &Page<B>,
    header: &Header,
    low: &[u8],
    high: Option<&[u8]>,
) -> Result<(), NodeImageError> {
    let view = page.view();
    let mut used = [false; B];
    let mut cells = 0;
    let (mut buffer, mut key, mut last) = ([0; SUFFIX_BUFFER], Vec::new(), Vec::new());
    for i in 0..header.count {
        let cell = view.cell(header, i);
        let size = cell_bytes(B, header.is_inner(), cell.suffix_len);
        let range = cell.offset..cell.offset + size;
        let placed = if size == 0 {
            cell.offset == 0
        } else {
            range.start >= header.heap_low && range.end <= heap_end(B)
        };
        if !placed || used[range.clone()].iter().any(|used| *used) && size > 0 {
            return Err(NodeImageError::Cell(i));
        }
        used[range].fill(true);
        cells += size;
        if header.prefix + cell.suffix_len > key_max(B) {
            return Err(NodeImageError::Key(i));
        }
        let len = view.suffix(header, i, &mut buffer);
        let head = view.head(header.heads(), i).to_be_bytes();
        key.clear();
        key.extend_from_slice(&low[..header.prefix]);
        key.extend_from_slice(&buffer[..len]);
        if header.is_inner() {
            check_child(geometry, page, header, i, len)?;
        }
        let stands_for_low = header.is_inner() && i == 0;
        let inside =
            stands_for_low || *low <= *key && !key.is_empty() && high.is_none_or(|high| *key < *high);
        if head[len.min(HEAD_BYTES)..].iter().any(|byte| *byte != 0) || !inside {
            return Err(NodeImageError::Key(i));
        }
        if i > 0 && last >= key {
            return Err(NodeImageError::Order(i));
        }
        std::mem::swap(&mut last, &mut key);
    }
    if header.is_inner() && header.count == 0 {
        return Err(NodeImageError::FirstChild);
    }
    let counted = (heap_end(B) - header.heap_low).saturating_sub(cells);
    if counted != header.garbage {
        return Err(NodeImageError::Garbage { stated: header.garbage, counted });
    }
    Ok(())
}

fn check_child<const B: usize>(
    geometry: Geometry,
    page: &Page<B>,
    header: &Header,
    i: usize,
    suffix_len: usize,
) -> Result<(), NodeImageError> {
    let child = page.view().child(header, i);
    if child.get() >= geometry.nodes() || child.get() == 0 {
        return Err(NodeImageError::Child(i));
    }
    if (suffix_len == 0) != (i == 0) { Err(NodeImageError::FirstChild) } else { Ok(()) }
}
