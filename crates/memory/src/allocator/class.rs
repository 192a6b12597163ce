//! Size classes: a function of an extent's length alone, so that a slab's class can be learnt from any extent
//! in it.
//!
//! Up to 512 bytes there is a class every 16 bytes. Above, classes are the even divisions of a slab: by 120,
//! 112 .. 64, by 60, 56 .. 32, by 30 .. 16, by 15 .. 8. So consecutive classes differ by at most an eighth,
//! and a slab of them has no unused end to speak of. What is longer than an eighth of a slab comes from the
//! free ranges, in units of 1 KiB.

use crate::extent::GRANULE_BYTES;
use crate::width::narrow;

/// Size of a slab, and its alignment from the region's start.
pub(super) const SLAB_BYTES: u32 = 64 << 10;
/// Longest extent that slabs hold.
pub(super) const SLAB_EXTENT_BYTES_MAX: u32 = SLAB_BYTES / 8;
/// Number of classes.
pub(super) const CLASSES: usize = FINE + COARSE;
/// Words of a slab's bitmap in the class with the most slots.
pub(super) const BITMAP_WORDS_MAX: usize = (SLAB_BYTES / GRANULE_BYTES / 64) as usize;

const FINE: usize = 32;
const COARSE: usize = 32;

/// A size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class(u8);

/// Slot sizes by class.
const SLOT_BYTES: [u32; CLASSES] = slot_sizes();
/// Slots of a slab by class: each allocation asks, and a division takes a dozen cycles.
const SLOTS: [u32; CLASSES] = slots();
/// Classes by length in granules, rounded up.
const BY_GRANULES: [u8; (SLAB_EXTENT_BYTES_MAX / GRANULE_BYTES) as usize + 1] = classes_by_granules();

const _: () = assert!(SLOT_BYTES[CLASSES - 1] == SLAB_EXTENT_BYTES_MAX);
const _: () = assert!(BITMAP_WORDS_MAX <= 64, "a summary of a slab's bitmap is one word");

const fn slot_sizes() -> [u32; CLASSES] {
    let mut sizes = [0; CLASSES];
    let mut class = 0;
    while class < FINE {
        sizes[class] = narrow(class as u64 + 1) * GRANULE_BYTES;
        class += 1;
    }
    while class < CLASSES {
        let step = narrow((class - FINE) as u64);
        let slots = (15 - step % 8) << (3 - step / 8);
        sizes[class] = SLAB_BYTES / slots / GRANULE_BYTES * GRANULE_BYTES;
        assert!(sizes[class] > sizes[class - 1], "classes rise");
        class += 1;
    }
    sizes
}

const fn slots() -> [u32; CLASSES] {
    let mut slots = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        slots[class] = SLAB_BYTES / SLOT_BYTES[class];
        class += 1;
    }
    slots
}

const fn classes_by_granules() -> [u8; (SLAB_EXTENT_BYTES_MAX / GRANULE_BYTES) as usize + 1] {
    let mut classes = [0; (SLAB_EXTENT_BYTES_MAX / GRANULE_BYTES) as usize + 1];
    let mut class = 0u8;
    let mut granules = 0;
    while granules < classes.len() {
        if granules * GRANULE_BYTES as usize > SLOT_BYTES[class as usize] as usize {
            class += 1;
        }
        classes[granules] = class;
        granules += 1;
    }
    classes
}

impl Class {
    /// The class of an extent that slabs hold; `None` for a longer one.
    #[inline]
    pub(super) fn of(extent_bytes: u32) -> Option<Class> {
        BY_GRANULES.get(extent_bytes.div_ceil(GRANULE_BYTES) as usize).map(|&class| Class(class))
    }

    /// All of them, the shortest first.
    pub(super) fn all() -> impl Iterator<Item = Class> {
        (0..CLASSES).filter_map(|class| u8::try_from(class).ok()).map(Class)
    }

    #[inline]
    pub(super) fn index(self) -> usize {
        self.0.into()
    }

    #[inline]
    pub(super) fn slot_bytes(self) -> u32 {
        SLOT_BYTES[self.index()]
    }

    /// Slots of a slab.
    #[inline]
    pub(super) fn slots(self) -> u32 {
        SLOTS[self.index()]
    }

    /// Words of a slab's bitmap.
    #[inline]
    pub(super) fn bitmap_words(self) -> usize {
        self.slots().div_ceil(64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_of_every_length_holds_it_and_wastes_at_most_a_ninth_above_512() {
        for bytes in 1..=SLAB_EXTENT_BYTES_MAX {
            let slot = Class::of(bytes).unwrap().slot_bytes();
            assert!(slot >= bytes && slot.is_multiple_of(GRANULE_BYTES), "{bytes} in {slot}");
            if bytes <= 512 {
                assert!(slot - bytes < GRANULE_BYTES);
            } else {
                // The ninth, and the granule to which both were rounded.
                assert!(slot - bytes <= slot / 9 + GRANULE_BYTES, "{bytes} in {slot}");
            }
        }
        assert_eq!(Class::of(SLAB_EXTENT_BYTES_MAX + 1), None);
        assert_eq!(Class::of(512).unwrap().index(), FINE - 1);
    }

    #[test]
    fn slab_of_every_class_has_a_small_unused_end() {
        for bytes in SLOT_BYTES {
            let class = Class::of(bytes).unwrap();
            assert_eq!(class.slot_bytes(), bytes);
            assert!(SLAB_BYTES - class.slots() * bytes < SLAB_BYTES / 64, "{bytes}");
            assert!(class.bitmap_words() <= BITMAP_WORDS_MAX);
        }
    }
}
