//! Where to split a full tree node, and what the halves are.
//!
//! The entry that did not fit counts as if it were there (an *item* is an entry or it), so whichever half it
//! goes to has room for it. With keys of at most `key_max` there is always such a boundary near the middle:
//! see [`crate::key_max`] and the test `split_of_longest_keys_always_fits`.

use cell_terms::{Csn, Pointer};

use crate::compose::{Composer, Frame, Value};
use crate::geometry::NodeIndex;
use crate::hint::{self, Trend};
use crate::layout::{HEAD_BYTES, common_prefix, entry_bytes, key_max};
use crate::mutant::{self, Mutant};
use crate::page::Page;
use crate::role::MeganodeRole;
use crate::view::Header;

/// Bytes that a fence must take off every key of a run to be worth a node.
const FENCE_GAIN_MIN: usize = 3;
/// What is copied of a suffix behind its head and then cut: a known length is copied without a call. Of most
/// keys it is all.
const PIECE_BYTES: usize = 64;

/// The shortest key above all that begin with `prefix`.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

/// A full node taken apart, and the item that does not fit. Used again and again in the same memory.
#[derive(Debug, Default)]
pub(crate) struct Overflow {
    /// The items' suffixes, one behind the other.
    suffixes: Vec<u8>,
    /// Where each ends, and what it leads to.
    items: Vec<(usize, Value)>,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    right: Pointer,
    csn_removed: Csn,
    role: MeganodeRole,
    level: u8,
    prefix: usize,
    /// The new item's place.
    at: usize,
    trend: Option<Trend>,
}

/// A boundary: items from `item` on go to the right half.
pub(crate) struct Boundary {
    item: usize,
    separator: Vec<u8>,
}

/// Which half an item belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Left,
    Right,
    /// The right half begins with the new child, so its image holds it.
    InRightImage,
}

impl Boundary {
    pub(crate) fn separator(&self) -> &[u8] {
        &self.separator
    }
}

impl Overflow {
    /// Takes a node apart. `at` is where the new item goes among its entries, `suffix` its key behind the
    /// prefix.
    pub(crate) fn take<const B: usize>(
        &mut self,
        page: &Page<B>,
        header: &Header,
        at: usize,
        suffix: &[u8],
        value: Value,
    ) {
        self.take_frame(page, header);
        self.at = at;
        self.trend = Some(hint::trend(header.hint, at, header.count));
        for i in 0..=header.count {
            if i == at {
                self.suffixes.extend_from_slice(suffix);
                self.items.push((self.suffixes.len(), value));
            }
            if i < header.count {
                self.take_item(page, header, i);
            }
        }
    }

    /// Takes a node apart as it is: nothing new comes.
    pub(crate) fn take_all<const B: usize>(&mut self, page: &Page<B>, header: &Header) {
        self.take_frame(page, header);
        (self.at, self.trend) = (usize::MAX, None);
        (0..header.count).for_each(|i| self.take_item(page, header, i));
    }

    fn take_item<const B: usize>(&mut self, page: &Page<B>, header: &Header, i: usize) {
        let view = page.view();
        let (cell, begin) = (view.cell(header, i), self.suffixes.len());
        // Of a damaged node, a suffix may be said to be longer than the node.
        let behind_head = page.bytes().get(cell.rest..).unwrap_or_default();
        let rest_len = cell.suffix_len.min(key_max(B)).saturating_sub(HEAD_BYTES).min(behind_head.len());
        self.suffixes.extend_from_slice(&view.head(header.heads(), i).to_be_bytes());
        match behind_head.first_chunk::<PIECE_BYTES>() {
            Some(piece) if rest_len <= PIECE_BYTES => self.suffixes.extend_from_slice(piece),
            _ => self.suffixes.extend_from_slice(&behind_head[..rest_len]),
        }
        self.suffixes.truncate(begin + cell.suffix_len.min(HEAD_BYTES + rest_len));
        let value = if header.is_inner() {
            Value::Child(view.child(header, i))
        } else {
            Value::Leaf(view.leaf_entry(&cell))
        };
        self.items.push((self.suffixes.len(), value));
    }

    fn take_frame<const B: usize>(&mut self, page: &Page<B>, header: &Header) {
        let view = page.view();
        self.low.resize(header.low_len.min(B), 0);
        view.low(header, &mut self.low);
        let mut high = self.high.take().unwrap_or_default();
        high.resize(header.high_bytes().unwrap_or(0).min(B), 0);
        self.high = view.high(header, &mut high).map(|len| {
            high.truncate(len);
            high
        });
        (self.right, self.csn_removed) = (view.right(), view.csn_removed());
        if mutant::planted(Mutant::RemovalForgotten) {
            self.csn_removed = Csn::ZERO;
        }
        (self.role, self.level) = (header.role(), header.level());
        self.prefix = header.prefix;
        self.suffixes.clear();
        self.items.clear();
    }

    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    fn is_inner(&self) -> bool {
        self.level > 0
    }

    fn high(&self) -> Option<&[u8]> {
        self.high.as_deref()
    }

    fn suffix(&self, item: usize) -> &[u8] {
        let from = if item == 0 { 0 } else { self.items[item - 1].0 };
        &self.suffixes[from..self.items[item].0]
    }

    /// Length behind the prefix of the separator in front of an item: for a leaf the shortest that separates
    /// the item from the one before it, for an inner node the item's own.
    fn separator_len(&self, item: usize) -> usize {
        if self.is_inner() {
            self.suffix(item).len()
        } else {
            common_prefix(self.suffix(item - 1), self.suffix(item)) + 1
        }
    }

    fn boundary(&self, item: usize) -> Boundary {
        let suffix = &self.suffix(item)[..self.separator_len(item)];
        Boundary { item, separator: [&self.low[..self.prefix], suffix].concat() }
    }

    /// The boundary at a key; `None` if there are not items on both sides of it, or a half would not fit.
    pub(crate) fn boundary_at<const B: usize>(&self, key: &[u8]) -> Option<Boundary> {
        let item = (0..self.items.len()).find(|item| *self.key(*item) >= *key)?;
        let boundary = Boundary { item, separator: key.to_vec() };
        (item > 0 && self.fits::<B>(&boundary)).then_some(boundary)
    }

    /// Whether both halves have room, each with the new item if it belongs there.
    fn fits<const B: usize>(&self, boundary: &Boundary) -> bool {
        let separator = boundary.separator();
        let halves = [
            (self.frame(&self.low, Some(separator), Pointer::NULL), 0..boundary.item),
            (self.frame(separator, self.high(), Pointer::NULL), boundary.item..self.items.len()),
        ];
        halves.into_iter().all(|(frame, items)| {
            let shorter = frame.prefix() - self.prefix;
            let (first, inner) = (items.start, self.is_inner());
            let bytes: usize = items
                .map(|item| {
                    let len = self.suffix(item).len().saturating_sub(shorter);
                    entry_bytes(B, inner, if inner && item == first { 0 } else { len })
                })
                .sum();
            bytes <= frame.room::<B>()
        })
    }

    fn frame<'f>(&self, low: &'f [u8], high: Option<&'f [u8]>, right: Pointer) -> Frame<'f> {
        Frame { right, ..Frame::anew((self.role, self.level), low, high, self.csn_removed) }
    }

    /// The boundary to split at. Inserts that go one way leave the side that they come from as full as it is;
    /// otherwise near the middle by bytes, where the separator is shortest.
    pub(crate) fn choose<const B: usize>(&self) -> Option<Boundary> {
        let count = self.items.len() - 1;
        let one_way = match self.trend {
            Some(Trend::Ascending) if self.at > 0 => Some(self.at),
            Some(Trend::Descending) if self.at < count => Some(self.at + 1),
            _ => None,
        };
        let fenced = self.fence_of_run().filter(|boundary| self.fits::<B>(boundary));
        let one_way = || one_way.map(|item| self.boundary(item)).filter(|boundary| self.fits::<B>(boundary));
        if let Some(boundary) = fenced.or_else(one_way) {
            return Some(boundary);
        }
        let middle = self.middle::<B>();
        let reach = (self.items.len() / 8).max(1);
        let window = middle.saturating_sub(reach).max(1)..=(middle + reach).min(count);
        let shortest = window.min_by_key(|item| (self.separator_len(*item), item.abs_diff(middle)));
        if let Some(boundary) = shortest.map(|item| self.boundary(item)).filter(|at| self.fits::<B>(at)) {
            return Some(boundary);
        }
        self.nearest_that_fits::<B>(middle)
    }

    #[cold]
    fn nearest_that_fits<const B: usize>(&self, middle: usize) -> Option<Boundary> {
        let fitting = (1..self.items.len()).map(|item| self.boundary(item)).filter(|at| self.fits::<B>(at));
        fitting.min_by_key(|boundary| boundary.item.abs_diff(middle))
    }

    /// A fence close to a run's newest key, where the node's own fence on that side is far off.
    ///
    /// The leaf that a run of inserts has come to often ends at plus infinity, or where another run begins,
    /// so its keys share no prefix with the fence and lie there at full length; once split they shrink, and
    /// leave room that nobody fills. So the run is fenced first: keys go on into the same node, now with a
    /// long prefix.
    fn fence_of_run(&self) -> Option<Boundary> {
        let ascending = match self.trend {
            Some(Trend::Ascending) if !self.is_inner() => true,
            Some(Trend::Descending) if !self.is_inner() => false,
            _ => return None,
        };
        let new = self.key(self.at);
        let separator = if ascending {
            successor(&new[..common_prefix(&self.low, &new)])?
        } else {
            new[..common_prefix(self.high()?, &new)].to_vec()
        };
        let item = self.at + usize::from(ascending);
        let parts = (item == 0 || self.key(item - 1) < separator)
            && (item == self.items.len() || separator <= self.key(item));
        let inside = self.low < separator && self.high().is_none_or(|high| &separator[..] < high);
        let prefix = match self.high() {
            _ if ascending => common_prefix(&self.low, &separator),
            Some(high) => common_prefix(&separator, high),
            None => 0,
        };
        let gains = prefix >= self.prefix + FENCE_GAIN_MIN;
        (parts && inside && gains).then_some(Boundary { item, separator })
    }

    /// An item's whole key.
    fn key(&self, item: usize) -> Vec<u8> {
        [&self.low[..self.prefix], self.suffix(item)].concat()
    }

    /// The boundary that halves the bytes best.
    fn middle<const B: usize>(&self) -> usize {
        let bytes = |item| entry_bytes(B, self.is_inner(), self.suffix(item).len());
        let total: usize = (0..self.items.len()).map(bytes).sum();
        let (mut left, mut best) = (0, (usize::MAX, 1));
        for item in 1..self.items.len() {
            left += bytes(item - 1);
            best = best.min((left.abs_diff(total - left), item));
        }
        best.1
    }

    /// Where the new item goes.
    pub(crate) fn half_of_new(&self, boundary: &Boundary) -> Half {
        if self.at < boundary.item {
            Half::Left
        } else if self.is_inner() && self.at == boundary.item {
            Half::InRightImage
        } else {
            Half::Right
        }
    }

    /// The left half's image, for a push-down: a split leaves the left half where it is and truncates it.
    pub(crate) fn left_image<const B: usize>(&self, boundary: &Boundary, right: Pointer) -> Option<Page<B>> {
        let frame = self.frame(&self.low, Some(boundary.separator()), right);
        self.image(&frame, 0..boundary.item, true)
    }

    /// The right half's image. It holds the new item only if that is the first child: see [`Half`]. `taken`
    /// is the node that was taken apart: a leaf's entries stay as they are there if the prefix does.
    pub(crate) fn right_image<const B: usize>(
        &self,
        boundary: &Boundary,
        taken: &Page<B>,
    ) -> Option<Page<B>> {
        let frame = self.frame(boundary.separator(), self.high(), self.right);
        if !self.is_inner() && frame.prefix() == self.prefix {
            let header = taken.view().header();
            let first = boundary.item - usize::from(self.at < boundary.item);
            let mut composer = Composer::begin(&frame, header.count - first)?;
            composer.push_cells(taken, &header, first..header.count)?;
            return Some(composer.finish());
        }
        self.image(&frame, boundary.item..self.items.len(), self.half_of_new(boundary) != Half::InRightImage)
    }

    fn image<const B: usize>(
        &self,
        frame: &Frame<'_>,
        items: std::ops::Range<usize>,
        without_new: bool,
    ) -> Option<Page<B>> {
        let without = |item: &usize| !(without_new && *item == self.at);
        let mut composer = Composer::begin(frame, items.clone().filter(without).count())?;
        let shorter = composer.prefix() - self.prefix;
        for item in items.filter(without) {
            let suffix = self.suffix(item);
            let suffix =
                if composer.wants_first_child() { &[] } else { &suffix[shorter.min(suffix.len())..] };
            composer.push(suffix, self.items[item].1)?;
        }
        Some(composer.finish())
    }

    /// The root after a push-down: a level up, with the two halves as children.
    pub(crate) fn root_image<const B: usize>(
        &self,
        boundary: &Boundary,
        halves: [NodeIndex; 2],
    ) -> Option<Page<B>> {
        let separator = boundary.separator();
        let frame = Frame { level: self.level + 1, ..self.frame(&self.low, self.high(), self.right) };
        let mut composer = Composer::begin(&frame, 2)?;
        composer.push(&[], Value::Child(halves[0]))?;
        composer.push(&separator[composer.prefix()..], Value::Child(halves[1]))?;
        Some(composer.finish())
    }
}
