//! Slabs: 64 KiB of slots of one class each, a bitmap of the free ones, and a list per class of slabs that
//! have some.
//!
//! Sparse slabs can be *drained*: nothing is taken from them until they are empty, or are drained no more.
//! Whoever drains them moves what they hold to other slabs of their class.

use super::class::{CLASSES, Class};

/// No slab: ends a list.
const NONE: u32 = u32::MAX;
/// Bitmaps are made so many at a time, so that a new slab rarely asks the heap.
const POOL_CHUNK: u32 = 64;

/// What is known about one 64 KiB unit of the region.
#[derive(Clone, Copy)]
struct Slab {
    /// `None`: the unit is no slab.
    class: Option<Class>,
    free: u16,
    /// Its bitmap in the class's pool.
    bitmap: u32,
    /// One bit a word of the bitmap: whether it has a free slot.
    summary: u64,
    previous: u32,
    next: u32,
    /// It is in no list, whatever it has free.
    drained: bool,
}

const NO_SLAB: Slab =
    Slab { class: None, free: 0, bitmap: 0, summary: 0, previous: NONE, next: NONE, drained: false };

/// Every unit of a region, by index.
pub(super) struct Slabs {
    units: Box<[Slab]>,
    /// First slab of each class with a free slot.
    partial: [u32; CLASSES],
    pools: [BitmapPool; CLASSES],
    count: u32,
    /// Free slots of each class, those of drained slabs included.
    free: [u32; CLASSES],
    /// Units that were slabs when they began to be drained.
    drained: Vec<u32>,
}

/// Where a slot was found, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It was free and is taken now.
    Taken,
    /// It was taken before.
    Overlap,
    /// The slab is of another class, or the offset is between slots.
    Misplaced,
}

impl Slabs {
    pub(super) fn new(units: u32) -> Slabs {
        Slabs {
            units: vec![NO_SLAB; units as usize].into_boxed_slice(),
            partial: [NONE; CLASSES],
            pools: std::array::from_fn(|_| BitmapPool::default()),
            count: 0,
            free: [0; CLASSES],
            drained: Vec::new(),
        }
    }

    /// How many slabs there are.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of free slots.
    pub(super) fn free_bytes(&self) -> u64 {
        Class::all().map(|class| u64::from(self.free[class.index()]) * u64::from(class.slot_bytes())).sum()
    }

    /// How many slabs could be emptied, if what they hold went to free slots of others.
    pub(super) fn drainable(&self) -> u32 {
        Class::all().map(|class| self.free[class.index()] / class.slots()).sum()
    }

    /// Begins to drain the sparsest slabs of each class, as many as the free slots of the others take in.
    /// Whether there are some.
    pub(super) fn drain(&mut self) -> bool {
        for class in Class::all() {
            let mut slabs = self.free[class.index()] / class.slots();
            if slabs == 0 {
                continue;
            }
            let mut sparse = Vec::new();
            let mut unit = self.partial[class.index()];
            while unit != NONE {
                let slab = &self.units[unit as usize];
                sparse.push((std::cmp::Reverse(slab.free), unit));
                unit = slab.next;
            }
            sparse.sort_unstable();
            for (_, unit) in sparse {
                if slabs == 0 {
                    break;
                }
                slabs -= 1;
                self.unlink(unit, class);
                self.units[unit as usize].drained = true;
                self.drained.push(unit);
            }
        }
        !self.drained.is_empty()
    }

    /// Whether a unit is a slab that is drained.
    #[inline]
    pub(super) fn is_drained(&self, unit: u32) -> bool {
        self.units.get(unit as usize).is_some_and(|slab| slab.drained)
    }

    /// What is not empty is used again.
    pub(super) fn end_draining(&mut self) {
        for unit in std::mem::take(&mut self.drained) {
            let slab = &mut self.units[unit as usize];
            if let Some(class) = slab.class.filter(|_| std::mem::take(&mut slab.drained)) {
                self.link(unit, class);
            }
        }
    }

    /// Whether a slot of a class is free in some slab.
    #[inline]
    pub(super) fn has_free(&self, class: Class) -> bool {
        self.partial[class.index()] != NONE
    }

    /// The class of the slab in a unit.
    pub(super) fn class_of(&self, unit: u32) -> Option<Class> {
        self.units.get(unit as usize).and_then(|slab| slab.class)
    }

    /// Takes a free slot: (unit, byte offset in it). `None` if every slab of the class is full.
    #[inline]
    pub(super) fn take(&mut self, class: Class) -> Option<(u32, u32)> {
        let unit = self.partial[class.index()];
        if unit == NONE {
            return None;
        }
        let slab = &mut self.units[unit as usize];
        let word = slab.summary.trailing_zeros();
        let bits = &mut self.pools[class.index()].bitmap(class, slab.bitmap)[word as usize];
        let slot = word * 64 + bits.trailing_zeros();
        *bits &= *bits - 1;
        slab.summary &= !(u64::from(*bits == 0) << word);
        slab.free -= 1;
        self.free[class.index()] -= 1;
        if slab.free == 0 {
            self.unlink(unit, class);
        }
        Some((unit, slot * class.slot_bytes()))
    }

    /// Takes one slot by name.
    pub(super) fn claim(&mut self, unit: u32, within: u32, class: Class) -> Claim {
        let slab = &mut self.units[unit as usize];
        let Some(slot) = slot_at(slab, within, class) else { return Claim::Misplaced };
        let (word, bit) = (slot / 64, 1 << (slot % 64));
        let bits = &mut self.pools[class.index()].bitmap(class, slab.bitmap)[word as usize];
        if *bits & bit == 0 {
            return Claim::Overlap;
        }
        *bits &= !bit;
        slab.summary &= !(u64::from(*bits == 0) << word);
        slab.free -= 1;
        self.free[class.index()] -= 1;
        if slab.free == 0 {
            self.unlink(unit, class);
        }
        Claim::Taken
    }

    /// Whether a slot is taken.
    pub(super) fn is_taken(&self, unit: u32, within: u32, class: Class) -> bool {
        let slab = &self.units[unit as usize];
        slot_at(slab, within, class).is_some_and(|slot| {
            let words = self.pools[class.index()].bitmap_ref(class, slab.bitmap);
            words[(slot / 64) as usize] & 1 << (slot % 64) == 0
        })
    }

    /// Gives a slot back. Returns whether the slab is now empty; it is no slab any more then, and its unit is
    /// free.
    ///
    /// # Panics
    /// If the slot is not taken: freed twice, or with another length than it was allocated with.
    #[inline]
    pub(super) fn give(&mut self, unit: u32, within: u32, class: Class) -> bool {
        let slab = &mut self.units[unit as usize];
        let Some(slot) = slot_at(slab, within, class) else {
            panic!("freed {within} in unit {unit}, which is no slot of {} bytes", class.slot_bytes());
        };
        let (word, bit) = (slot / 64, 1 << (slot % 64));
        let bits = &mut self.pools[class.index()].bitmap(class, slab.bitmap)[word as usize];
        assert!(*bits & bit == 0, "freed twice: slot {slot} in unit {unit}");
        *bits |= bit;
        slab.summary |= 1 << word;
        slab.free += 1;
        self.free[class.index()] += 1;
        let (free, drained) = (slab.free, slab.drained);
        if u32::from(free) == class.slots() {
            // A slab of one slot would never have been linked, but there is no such class.
            if !drained {
                self.unlink(unit, class);
            }
            self.close(unit, class);
            return true;
        }
        if free == 1 && !drained {
            self.link(unit, class);
        }
        false
    }

    /// Makes a free unit a slab with all slots free.
    pub(super) fn open(&mut self, unit: u32, class: Class) {
        let slots = class.slots();
        let bitmap = self.pools[class.index()].take(class);
        let words = self.pools[class.index()].bitmap(class, bitmap);
        words.fill(u64::MAX);
        if !slots.is_multiple_of(64) {
            words[words.len() - 1] = (1 << (slots % 64)) - 1;
        }
        let slab = &mut self.units[unit as usize];
        assert!(slab.class.is_none(), "unit {unit} is a slab already");
        slab.class = Some(class);
        slab.free = u16::try_from(slots).expect("at most 4,096 slots");
        slab.bitmap = bitmap;
        slab.summary = u64::MAX >> (64 - class.bitmap_words());
        self.count += 1;
        self.free[class.index()] += slots;
        self.link(unit, class);
    }

    fn close(&mut self, unit: u32, class: Class) {
        let slab = &mut self.units[unit as usize];
        self.pools[class.index()].spare.push(slab.bitmap);
        *slab = NO_SLAB;
        self.count -= 1;
        self.free[class.index()] -= class.slots();
    }

    fn link(&mut self, unit: u32, class: Class) {
        let first = std::mem::replace(&mut self.partial[class.index()], unit);
        let slab = &mut self.units[unit as usize];
        (slab.previous, slab.next) = (NONE, first);
        if let Some(first) = self.units.get_mut(first as usize) {
            first.previous = unit;
        }
    }

    fn unlink(&mut self, unit: u32, class: Class) {
        let slab = &mut self.units[unit as usize];
        let (previous, next) = (slab.previous, slab.next);
        (slab.previous, slab.next) = (NONE, NONE);
        match self.units.get_mut(previous as usize) {
            Some(before) => before.next = next,
            None => self.partial[class.index()] = next,
        }
        if let Some(after) = self.units.get_mut(next as usize) {
            after.previous = previous;
        }
    }

    /// Every slab's counts, bitmap and list agree.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut listed = vec![false; self.units.len()];
        for class in 0..CLASSES {
            let (mut unit, mut previous) = (self.partial[class], NONE);
            while unit != NONE {
                let slab = &self.units[unit as usize];
                assert_eq!((slab.class.map(Class::index), slab.previous), (Some(class), previous));
                assert!(slab.free > 0 && !slab.drained);
                assert!(!std::mem::replace(&mut listed[unit as usize], true));
                (previous, unit) = (unit, slab.next);
            }
        }
        let mut free = [0; CLASSES];
        for (slab, listed) in self.units.iter().zip(listed) {
            let Some(class) = slab.class else {
                assert!(!listed && !slab.drained);
                continue;
            };
            free[class.index()] += u32::from(slab.free);
            let words = self.pools[class.index()].bitmap_ref(class, slab.bitmap);
            assert_eq!(words.iter().map(|word| word.count_ones()).sum::<u32>(), slab.free.into());
            assert!(u32::from(slab.free) < class.slots(), "an empty slab is none");
            assert_eq!(listed, slab.free > 0 && !slab.drained);
            for word in 0..64 {
                let free = words.get(word).is_some_and(|&bits| bits != 0);
                assert_eq!(slab.summary >> word & 1 == 1, free);
            }
        }
        assert_eq!(free, self.free);
    }
}

/// The slot that begins at a byte offset in a slab of a class.
#[inline]
fn slot_at(slab: &Slab, within: u32, class: Class) -> Option<u32> {
    let (slot, between) = (within / class.slot_bytes(), within % class.slot_bytes());
    (slab.class == Some(class) && between == 0 && slot < class.slots()).then_some(slot)
}

/// The bitmaps of one class's slabs; one bit a slot, set where it is free.
#[derive(Default)]
struct BitmapPool {
    chunks: Vec<Box<[u64]>>,
    spare: Vec<u32>,
}

impl BitmapPool {
    #[inline]
    fn bitmap(&mut self, class: Class, bitmap: u32) -> &mut [u64] {
        let (words, at) = (class.bitmap_words(), (bitmap % POOL_CHUNK) as usize);
        &mut self.chunks[(bitmap / POOL_CHUNK) as usize][at * words..][..words]
    }

    fn bitmap_ref(&self, class: Class, bitmap: u32) -> &[u64] {
        let (words, at) = (class.bitmap_words(), (bitmap % POOL_CHUNK) as usize);
        &self.chunks[(bitmap / POOL_CHUNK) as usize][at * words..][..words]
    }

    /// A bitmap of arbitrary content.
    fn take(&mut self, class: Class) -> u32 {
        if self.spare.is_empty() {
            let made = u32::try_from(self.chunks.len()).expect("fewer bitmaps than units") * POOL_CHUNK;
            self.chunks.push(vec![0; class.bitmap_words() * POOL_CHUNK as usize].into_boxed_slice());
            // Room for all of them to come back, so that freeing never asks the heap.
            self.spare.reserve(self.chunks.len() * POOL_CHUNK as usize);
            self.spare.extend((made..made + POOL_CHUNK).rev());
        }
        self.spare.pop().expect("just filled")
    }
}
