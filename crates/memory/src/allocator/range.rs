//! Free ranges of a region in blocks of 1 KiB: two-level segregated fit (Masmano et al., ECRTS 2004) with its
//! boundary tags outside the region. Neighbours join as soon as both are free.
//!
//! A range is found by the bin of its length (eight bins a power of two) and by either of its ends, so taking
//! and giving are O(1), but for the last search of [`FreeRanges::find`], when no larger bin has anything: the
//! region is nearly full then. Tags are 4 bytes a block, 0.4 % of the region, and are touched as the region
//! fills.

use crate::width::narrow;

/// Unit of ranges.
pub(super) const BLOCK_BYTES: u32 = 1024;

/// Bins a power of two.
const STEPS: u32 = 8;
/// Powers of two: lengths below 8, then 2^3 to 2^26 blocks (64 GiB).
const POWERS: usize = 25;
/// How many ranges of the fitting bin are looked at before a larger bin is broken into.
const LOOK: usize = 8;
const NONE: u32 = u32::MAX;

/// A tag of a block: nothing, the first or last of a free range (its node, plus one), or the first of a range
/// that was taken by length.
const NO_TAG: u32 = 0;
const TAKEN: u32 = 1 << 31;

#[derive(Clone, Copy)]
struct Node {
    start: u32,
    blocks: u32,
    previous: u32,
    next: u32,
}

/// The free ranges.
pub(super) struct FreeRanges {
    /// One a block, and one past the end that stays empty.
    tags: Vec<u32>,
    nodes: Vec<Node>,
    spare_nodes: Vec<u32>,
    heads: [[u32; STEPS as usize]; POWERS],
    /// Which powers, and which steps of each, have a range.
    powers: u32,
    steps: [u8; POWERS],
    free_blocks: u32,
    high_water: u32,
}

impl FreeRanges {
    /// None of `blocks` blocks is free yet.
    pub(super) fn new(blocks: u32) -> FreeRanges {
        assert!(blocks < TAKEN >> 4);
        FreeRanges {
            tags: vec![NO_TAG; blocks as usize + 1],
            nodes: Vec::new(),
            spare_nodes: Vec::new(),
            heads: [[NONE; STEPS as usize]; POWERS],
            powers: 0,
            steps: [0; POWERS],
            free_blocks: 0,
            high_water: 0,
        }
    }

    pub(super) fn free_blocks(&self) -> u32 {
        self.free_blocks
    }

    /// The block behind the last one that was ever taken.
    pub(super) fn high_water(&self) -> u32 {
        self.high_water
    }

    /// Whether [`FreeRanges::take`] would find something.
    pub(super) fn has(&self, blocks: u32, align: u32) -> bool {
        self.find(blocks, align).is_some()
    }

    /// Takes `blocks` blocks that begin at a multiple of `align` (a power of two).
    pub(super) fn take(&mut self, blocks: u32, align: u32) -> Option<u32> {
        let node = self.find(blocks, align)?;
        let Node { start, blocks: length, .. } = self.nodes[node as usize];
        let begin = start.next_multiple_of(align);
        self.remove(node);
        if begin > start {
            self.insert(start, begin - start);
        }
        if begin + blocks < start + length {
            self.insert(begin + blocks, start + length - begin - blocks);
        }
        self.note_taken(begin, blocks);
        Some(begin)
    }

    /// Gives blocks back, or for the first time.
    pub(super) fn give(&mut self, start: u32, blocks: u32) {
        let (mut begin, mut end) = (start, start + blocks);
        if let Some(before) = begin.checked_sub(1).and_then(|block| self.free_at(block)) {
            begin = self.nodes[before as usize].start;
            self.remove(before);
        }
        if let Some(after) = self.free_at(end) {
            end += self.nodes[after as usize].blocks;
            self.remove(after);
        }
        self.insert(begin, end - begin);
    }

    /// Takes every part of the free ranges for which `is_open` says no of its unit of so many blocks: those
    /// parts, joined, the highest first.
    pub(super) fn withhold(&mut self, unit_blocks: u32, is_open: impl Fn(u32) -> bool) -> Vec<(u32, u32)> {
        let bins = (0..narrow(POWERS as u64)).flat_map(|power| (0..STEPS).map(move |step| (power, step)));
        let mut free: Vec<u32> = bins.flat_map(|(power, step)| self.bin_nodes(power, step)).collect();
        free.sort_unstable_by_key(|node| self.nodes[*node as usize].start);
        let mut withheld: Vec<(u32, u32)> = Vec::new();
        for node in free {
            let Node { start, blocks, .. } = self.nodes[node as usize];
            self.remove(node);
            let (mut begin, end) = (start, start + blocks);
            while begin < end {
                let open = is_open(begin / unit_blocks);
                let mut next = begin;
                while next < end && is_open(next / unit_blocks) == open {
                    next = ((next / unit_blocks + 1) * unit_blocks).min(end);
                }
                if open {
                    self.insert(begin, next - begin);
                } else {
                    withheld.push((begin, next - begin));
                }
                begin = next;
            }
        }
        withheld.reverse();
        withheld
    }

    /// Remembers that a range was taken by length, so that giving it back can be checked.
    pub(super) fn tag_taken(&mut self, start: u32, blocks: u32) {
        self.tags[start as usize] = TAKEN | blocks;
    }

    /// Whether a range was tagged so.
    pub(super) fn is_tagged(&self, start: u32, blocks: u32) -> bool {
        self.tags.get(start as usize) == Some(&(TAKEN | blocks))
    }

    /// Gives a tagged range back.
    ///
    /// # Panics
    /// If it is not tagged: freed twice, or with another length.
    pub(super) fn give_tagged(&mut self, start: u32, blocks: u32) {
        assert!(
            self.is_tagged(start, blocks),
            "freed {blocks} blocks at {start}, which were not allocated so"
        );
        self.tags[start as usize] = NO_TAG;
        self.give(start, blocks);
    }

    /// Raises the high water mark over a range that is in use.
    pub(super) fn note_taken(&mut self, start: u32, blocks: u32) {
        self.high_water = self.high_water.max(start + blocks);
    }

    /// The free range that begins or ends with a block.
    fn free_at(&self, block: u32) -> Option<u32> {
        match self.tags[block as usize] {
            NO_TAG => None,
            tag if tag & TAKEN != 0 => None,
            tag => Some(tag - 1),
        }
    }

    fn find(&self, blocks: u32, align: u32) -> Option<u32> {
        // A range this long has room at any place.
        let sure = blocks + align - 1;
        let (power, step) = bin(blocks);
        let fits = |node: &u32| fits(&self.nodes[*node as usize], blocks, align);
        if let Some(node) = self.bin_nodes(power, step).take(LOOK).find(fits) {
            return Some(node);
        }
        if align > 1 {
            let near = (power * STEPS + step + 1..=flat(sure)).map(|at| (at / STEPS, at % STEPS));
            let mut near = near.flat_map(|(power, step)| self.bin_nodes(power, step).take(LOOK));
            if let Some(node) = near.find(fits) {
                return Some(node);
            }
        }
        self.first_above(flat(sure)).or_else(|| {
            let all = flat(blocks)..=flat(sure);
            all.flat_map(|at| self.bin_nodes(at / STEPS, at % STEPS)).find(fits)
        })
    }

    /// The first range of the first bin with one behind `at`.
    fn first_above(&self, at: u32) -> Option<u32> {
        let (power, step) = ((at + 1) / STEPS, (at + 1) % STEPS);
        if power as usize >= POWERS {
            return None;
        }
        let here = self.steps[power as usize] & (u8::MAX << step);
        if here != 0 {
            return Some(self.heads[power as usize][here.trailing_zeros() as usize]);
        }
        let above = self.powers.checked_shr(power + 1).unwrap_or(0).checked_shl(power + 1).unwrap_or(0);
        if above == 0 {
            return None;
        }
        let power = above.trailing_zeros() as usize;
        Some(self.heads[power][self.steps[power].trailing_zeros() as usize])
    }

    fn bin_nodes(&self, power: u32, step: u32) -> impl Iterator<Item = u32> + '_ {
        let head = self.heads[power as usize][step as usize];
        let real = |node: u32| (node != NONE).then_some(node);
        std::iter::successors(real(head), move |&node| real(self.nodes[node as usize].next))
    }

    fn insert(&mut self, start: u32, blocks: u32) {
        let (power, step) = bin(blocks);
        let head = self.heads[power as usize][step as usize];
        let node = self.spare_nodes.pop().unwrap_or_else(|| {
            self.nodes.push(Node { start: 0, blocks: 0, previous: NONE, next: NONE });
            // Room for all of them to come back, so that taking never asks the heap.
            self.spare_nodes.reserve(self.nodes.capacity());
            narrow(self.nodes.len() as u64 - 1)
        });
        self.nodes[node as usize] = Node { start, blocks, previous: NONE, next: head };
        if let Some(head) = self.nodes.get_mut(head as usize) {
            head.previous = node;
        }
        self.heads[power as usize][step as usize] = node;
        self.powers |= 1 << power;
        self.steps[power as usize] |= 1 << step;
        self.tags[start as usize] = node + 1;
        self.tags[(start + blocks - 1) as usize] = node + 1;
        self.free_blocks += blocks;
    }

    fn remove(&mut self, node: u32) {
        let Node { start, blocks, previous, next } = self.nodes[node as usize];
        let (power, step) = bin(blocks);
        if let Some(after) = self.nodes.get_mut(next as usize) {
            after.previous = previous;
        }
        match self.nodes.get_mut(previous as usize) {
            Some(before) => before.next = next,
            None => self.heads[power as usize][step as usize] = next,
        }
        if self.heads[power as usize][step as usize] == NONE {
            self.steps[power as usize] &= !(1 << step);
            if self.steps[power as usize] == 0 {
                self.powers &= !(1 << power);
            }
        }
        self.tags[start as usize] = NO_TAG;
        self.tags[(start + blocks - 1) as usize] = NO_TAG;
        self.spare_nodes.push(node);
        self.free_blocks -= blocks;
    }

    /// Ranges are disjoint, joined, in their bins, and tagged at both ends and nowhere else.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut ranges = Vec::new();
        for power in 0..narrow(POWERS as u64) {
            assert_eq!(self.powers >> power & 1 == 1, self.steps[power as usize] != 0);
            for step in 0..STEPS {
                let nodes: Vec<u32> = self.bin_nodes(power, step).collect();
                assert_eq!(self.steps[power as usize] >> step & 1 == 1, !nodes.is_empty());
                for node in nodes {
                    let Node { start, blocks, .. } = self.nodes[node as usize];
                    assert_eq!(bin(blocks), (power, step));
                    assert_eq!(
                        (self.free_at(start), self.free_at(start + blocks - 1)),
                        (Some(node), Some(node))
                    );
                    ranges.push((start, blocks));
                }
            }
        }
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0), "joined and disjoint");
        assert_eq!(ranges.iter().map(|range| range.1).sum::<u32>(), self.free_blocks);
        let ends = ranges.iter().map(|range| if range.1 == 1 { 1 } else { 2 }).sum::<usize>();
        assert_eq!(self.tags.iter().filter(|&&tag| tag != NO_TAG && tag & TAKEN == 0).count(), ends);
    }
}

fn fits(node: &Node, blocks: u32, align: u32) -> bool {
    node.start.next_multiple_of(align) + blocks <= node.start + node.blocks
}

/// Power and step of a length's bin.
fn bin(blocks: u32) -> (u32, u32) {
    let at = flat(blocks);
    (at / STEPS, at % STEPS)
}

/// A length's bin, counted through.
fn flat(blocks: u32) -> u32 {
    if blocks < STEPS {
        return blocks;
    }
    let log = blocks.ilog2();
    (log - 2) * STEPS + (blocks >> (log - 3)) % STEPS
}

const _: () = assert!(POWERS == 26 - 2 + 1, "2^26 blocks of 1 KiB are the largest region");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_rise_with_length_and_end_at_the_largest_region() {
        let lengths = (1..5000).chain((13..=26).map(|log| 1 << log));
        let bins: Vec<u32> = lengths.map(flat).collect();
        assert!(bins.is_sorted());
        assert_eq!(flat(1 << 26) / STEPS, narrow(POWERS as u64) - 1);
    }

    #[test]
    fn take_aligned_finds_the_only_fitting_range_among_many() {
        let mut ranges = FreeRanges::new(100_000);
        // Ranges of 100 blocks that hold no aligned 64, and one of 64 that does.
        for i in 0..300u32 {
            ranges.give(128 + i * 192 + 33, 94);
        }
        ranges.give(90_048, 64);
        ranges.check();
        assert_eq!(ranges.take(64, 64), Some(90_048));
        assert_eq!(ranges.take(64, 64), None);
        assert!(ranges.has(94, 1) && !ranges.has(95, 1));
    }
}
