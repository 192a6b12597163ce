//! Where to split a full tree node.
//!
//! The entry that did not fit counts as if it were there (an *item* is an entry or it), so whichever half it goes to
//! has room for it. With keys of at most `key_max` there is always such a boundary near the middle: see
//! [`crate::key_max`] and the test `split_of_longest_keys_always_fits`.

use cell_terms::{Csn, Pointer};

use crate::compose::{Composer, Frame, SUFFIX_BUFFER, Value};
use crate::geometry::NodeIndex;
use crate::hint::{self, Trend};
use crate::layout::{common_prefix, entry_bytes};
use crate::page::Page;
use crate::view::Header;

/// Bytes that a fence must take off every key of a run to be worth a node.
const FENCE_GAIN_MIN: usize = 3;

/// The shortest key above all that begin with `prefix`.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

/// A key in a buffer of its own.
#[derive(Clone)]
pub(crate) struct KeyBuffer {
    bytes: [u8; SUFFIX_BUFFER],
    len: usize,
}

impl KeyBuffer {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) const EMPTY: KeyBuffer = KeyBuffer { bytes: [0; SUFFIX_BUFFER], len: 0 };
}

/// A full node and the entry that does not fit.
pub(crate) struct Overflow<'a, const B: usize> {
    page: &'a Page<B>,
    header: Header,
    low: KeyBuffer,
    high: Option<KeyBuffer>,
    /// Where the new item goes among the entries.
    at: usize,
    /// Its key behind the node's prefix.
    suffix: &'a [u8],
}

/// A boundary: items from `item` on go to the right half.
pub(crate) struct Boundary {
    item: usize,
    separator: KeyBuffer,
}

/// Which half an item belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Left,
    Right,
    /// The right half begins with the new child, so its image holds it.
    InRightImage,
}

impl<'a, const B: usize> Overflow<'a, B> {
    pub(crate) fn new(page: &'a Page<B>, at: usize, suffix: &'a [u8]) -> Self {
        let view = page.view();
        let header = view.header();
        let (mut low, mut high) = (KeyBuffer::EMPTY, KeyBuffer::EMPTY);
        low.len = view.low(&header, &mut low.bytes);
        let high_len = view.high(&header, &mut high.bytes);
        high.len = high_len.unwrap_or(0);
        let high = high_len.map(|_| high);
        Overflow { page, header, low, high, at, suffix }
    }

    pub(crate) fn level(&self) -> u8 {
        self.header.level()
    }

    fn items(&self) -> usize {
        self.header.count + 1
    }

    fn high(&self) -> Option<&[u8]> {
        self.high.as_ref().map(KeyBuffer::as_slice)
    }

    fn suffix_len(&self, item: usize) -> usize {
        if item == self.at {
            self.suffix.len()
        } else {
            self.page.view().cell(&self.header, item - usize::from(item > self.at)).suffix_len
        }
    }

    fn suffix_into(&self, item: usize, out: &mut [u8; SUFFIX_BUFFER]) -> usize {
        if item == self.at {
            out[..self.suffix.len()].copy_from_slice(self.suffix);
            self.suffix.len()
        } else {
            self.page.view().suffix(&self.header, item - usize::from(item > self.at), out)
        }
    }

    /// Length behind the prefix of the separator in front of an item: for a leaf the shortest that tells the item from
    /// the one before it, for an inner node the item's own.
    fn separator_suffix(&self, item: usize, out: &mut [u8; SUFFIX_BUFFER]) -> usize {
        let len = self.suffix_into(item, out);
        if self.header.is_inner() {
            return len;
        }
        let mut before = [0; SUFFIX_BUFFER];
        let before_len = self.suffix_into(item - 1, &mut before);
        common_prefix(&before[..before_len], &out[..len]) + 1
    }

    fn boundary(&self, item: usize) -> Boundary {
        let mut separator = self.low.clone();
        let prefix = self.header.prefix;
        let mut suffix = [0; SUFFIX_BUFFER];
        let len = self.separator_suffix(item, &mut suffix);
        separator.bytes[prefix..prefix + len].copy_from_slice(&suffix[..len]);
        separator.len = prefix + len;
        Boundary { item, separator }
    }

    /// Whether both halves have room, each with the new item if it belongs there.
    fn fits(&self, boundary: &Boundary) -> bool {
        let separator = boundary.separator.as_slice();
        let halves = [
            (self.frame(self.low.as_slice(), Some(separator), Pointer::NULL), 0..boundary.item),
            (self.frame(separator, self.high(), Pointer::NULL), boundary.item..self.items()),
        ];
        halves.into_iter().all(|(frame, items)| {
            let shorter = frame.prefix() - self.header.prefix;
            let first = items.start;
            let bytes: usize = items
                .map(|item| {
                    let len = self.suffix_len(item).saturating_sub(shorter);
                    entry_bytes(B, frame.is_inner(), if frame.is_inner() && item == first { 0 } else { len })
                })
                .sum();
            bytes <= frame.room::<B>()
        })
    }

    fn frame<'f>(&self, low: &'f [u8], high: Option<&'f [u8]>, right: Pointer) -> Frame<'f> {
        Frame {
            level: self.header.level(),
            valid: true,
            low,
            high,
            right,
            csn_changed: Csn::ZERO,
            csn_removed: self.page.view().csn_removed(),
        }
    }

    /// The boundary to split at. Inserts that go one way leave the side that they come from as full as it is;
    /// otherwise near the middle by bytes, where the separator is shortest.
    pub(crate) fn choose(&self) -> Option<Boundary> {
        let trend = hint::trend(self.header.hint, self.at, self.header.count);
        let one_way = match trend {
            Trend::Ascending if self.at > 0 => Some(self.at),
            Trend::Descending if self.at < self.header.count => Some(self.at + 1),
            _ => None,
        };
        let fenced = self.fence_of_run(trend).filter(|boundary| self.fits(boundary));
        let one_way = || one_way.map(|item| self.boundary(item)).filter(|boundary| self.fits(boundary));
        if let Some(boundary) = fenced.or_else(one_way) {
            return Some(boundary);
        }
        let middle = self.middle();
        let reach = (self.items() / 8).max(1);
        let window = middle.saturating_sub(reach).max(1)..=(middle + reach).min(self.items() - 1);
        let mut scratch = [0; SUFFIX_BUFFER];
        let shortest =
            window.min_by_key(|item| (self.separator_suffix(*item, &mut scratch), item.abs_diff(middle)));
        if let Some(boundary) =
            shortest.map(|item| self.boundary(item)).filter(|boundary| self.fits(boundary))
        {
            return Some(boundary);
        }
        self.nearest_that_fits(middle)
    }

    /// A fence close to a run's newest key, where the node's own fence on that side is far off.
    ///
    /// The leaf that a run of inserts has come to often ends at plus infinity, or where another run begins, so its
    /// keys share no prefix with the fence and lie there at full length; once split they shrink, and leave room that
    /// nobody fills. So the run is fenced first: keys go on into the same node, now with a long prefix.
    fn fence_of_run(&self, trend: Trend) -> Option<Boundary> {
        if self.header.is_inner() {
            return None;
        }
        let new = [&self.low.as_slice()[..self.header.prefix], self.suffix].concat();
        let mut fence = match trend {
            Trend::Ascending => successor(&new[..common_prefix(self.low.as_slice(), &new)])?,
            Trend::Descending => new[..common_prefix(self.high()?, &new)].to_vec(),
            Trend::None => return None,
        };
        let item = self.at + usize::from(trend == Trend::Ascending);
        let (below, above) = (self.key_of(item.checked_sub(1)), self.key_of(Some(item)));
        let parts = below.is_none_or(|below| below < fence) && above.is_none_or(|above| fence <= above);
        let inside = self.low.as_slice() < &fence[..] && self.high().is_none_or(|high| &fence[..] < high);
        let prefix = match trend {
            Trend::Ascending => common_prefix(self.low.as_slice(), &fence),
            _ => common_prefix(&fence, self.high()?),
        };
        if !parts || !inside || prefix < self.header.prefix + FENCE_GAIN_MIN {
            return None;
        }
        let mut separator = KeyBuffer::EMPTY;
        separator.len = fence.len();
        separator.bytes[..fence.len()].swap_with_slice(&mut fence);
        Some(Boundary { item, separator })
    }

    /// An item's whole key.
    fn key_of(&self, item: Option<usize>) -> Option<Vec<u8>> {
        let item = item.filter(|item| *item < self.items())?;
        let mut suffix = [0; SUFFIX_BUFFER];
        let len = self.suffix_into(item, &mut suffix);
        Some([&self.low.as_slice()[..self.header.prefix], &suffix[..len]].concat())
    }

    #[cold]
    fn nearest_that_fits(&self, middle: usize) -> Option<Boundary> {
        let fitting =
            (1..self.items()).map(|item| self.boundary(item)).filter(|boundary| self.fits(boundary));
        fitting.min_by_key(|boundary| boundary.item.abs_diff(middle))
    }

    /// The boundary that halves the bytes best.
    fn middle(&self) -> usize {
        let bytes = |item| entry_bytes(B, self.header.is_inner(), self.suffix_len(item));
        let total: usize = (0..self.items()).map(bytes).sum();
        let (mut left, mut best) = (0, (usize::MAX, 1));
        for item in 1..self.items() {
            left += bytes(item - 1);
            best = best.min((left.abs_diff(total - left), item));
        }
        best.1
    }

    /// Entries of the node (without the new item) that stay left.
    fn entries_left(&self, boundary: &Boundary) -> usize {
        boundary.item - usize::from(boundary.item > self.at)
    }

    /// Where the new item goes.
    pub(crate) fn half_of_new(&self, boundary: &Boundary) -> Half {
        if self.at < boundary.item {
            Half::Left
        } else if self.header.is_inner() && self.at == boundary.item {
            Half::InRightImage
        } else {
            Half::Right
        }
    }

    /// The left half's image, for a push-down: a split leaves the left half where it is and cuts it.
    pub(crate) fn left_image(&self, boundary: &Boundary, right: Pointer) -> Option<Page<B>> {
        let frame = self.frame(self.low.as_slice(), Some(boundary.separator.as_slice()), right);
        let entries = self.entries_left(boundary);
        let mut composer = Composer::begin(&frame, entries)?;
        composer.push_from(&self.page.view(), &self.header, 0..entries)?;
        Some(composer.finish())
    }

    /// The right half's image; it begins with `child` if that is the new item and belongs there.
    pub(crate) fn right_image(&self, boundary: &Boundary, child: Option<NodeIndex>) -> Option<Page<B>> {
        let frame = self.frame(boundary.separator.as_slice(), self.high(), self.page.view().right());
        let entries = self.entries_left(boundary)..self.header.count;
        let child = child.filter(|_| self.half_of_new(boundary) == Half::InRightImage);
        let mut composer = Composer::begin(&frame, entries.len() + usize::from(child.is_some()))?;
        if let Some(child) = child {
            composer.push(&[], Value::Child(child))?;
        }
        composer.push_from(&self.page.view(), &self.header, entries)?;
        Some(composer.finish())
    }

    /// The root after a push-down: a level up, with the two halves as children.
    pub(crate) fn root_image(&self, boundary: &Boundary, halves: [NodeIndex; 2]) -> Option<Page<B>> {
        let separator = boundary.separator.as_slice();
        let frame = Frame {
            level: self.header.level() + 1,
            ..self.frame(self.low.as_slice(), self.high(), self.page.view().right())
        };
        let mut composer = Composer::begin(&frame, 2)?;
        composer.push(&[], Value::Child(halves[0]))?;
        composer.push(&separator[composer.prefix()..], Value::Child(halves[1]))?;
        Some(composer.finish())
    }
}

impl Boundary {
    pub(crate) fn separator(&self) -> &[u8] {
        self.separator.as_slice()
    }
}
