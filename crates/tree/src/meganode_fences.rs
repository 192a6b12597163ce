//! Which keys a meganode has: for who keeps where meganodes are.

use cell_terms::Words;

use crate::geometry::NodeIndex;
use crate::search::{Meganode, ReadError, sized};

/// The keys of a meganode: from `low` on, below `high` if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeganodeFences {
    /// The low fence; empty for the first meganode.
    pub low: Vec<u8>,
    /// The high fence; `None` for the last meganode.
    pub high: Option<Vec<u8>>,
}

impl<W: Words + ?Sized> Meganode<'_, W> {
    /// The meganode's fences, as of one moment: those of its root tree node.
    ///
    /// # Errors
    /// [`ReadError::NotHere`] if the slot holds no meganode of this role, [`ReadError::Retries`] if a writer
    /// is at work in its root.
    pub fn fences(&self) -> Result<MeganodeFences, ReadError> {
        sized!(self.geometry, B => self.fences_sized::<B>())
    }

    fn fences_sized<const B: usize>(&self) -> Result<MeganodeFences, ReadError> {
        let kind = self.root::<B>()?.kind;
        let read = self.view::<B>(NodeIndex::ROOT).stable(|root| {
            let header = root.header();
            (header.kind == kind).then(|| {
                let (mut low, mut high) = (vec![0; header.low_len.min(B)], vec![0; B]);
                root.low(&header, &mut low);
                let high_len = root.high(&header, &mut high);
                MeganodeFences { low, high: high_len.map(|len| high[..len].to_vec()) }
            })
        });
        read.ok_or(ReadError::Retries(0))?.ok_or(ReadError::NotHere)
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::{Csn, ExtentOffset, Pointer, RegionId, SlotIndex};

    use super::*;
    use crate::{BulkFrame, Change, Geometry, LeafEntry, Slot, SlotAllocator, apply, bulk_build};

    #[test]
    fn fences_are_those_that_the_meganode_was_built_with() {
        let geometry = Geometry::new(512, 64 << 10, 4096).unwrap();
        let slots = [0, 1, 2].map(|index| Slot { region: RegionId(2), index: SlotIndex(index) });
        let mut words = vec![0u64; (4096 + 3 * (64 << 10)) / 8];
        let right = Pointer::new(RegionId(2), 4096);
        let frames = [
            BulkFrame::WHOLE,
            BulkFrame { low: b"key-0100", high: Some(b"key-0900"), right, ..BulkFrame::WHOLE },
        ];
        for (slot, frame) in slots.iter().zip(&frames) {
            let mut allocator = SlotAllocator::new(geometry.nodes());
            let entry = LeafEntry { offset: ExtentOffset(1), value_len: 0, crc: 1 };
            let entries = (100..900).map(|number| (format!("key-{number:04}"), entry));
            let emit = |change: Change<'_>| apply(&mut words[..], geometry, *slot, &change, Csn(1));
            bulk_build(geometry, *slot, frame, &mut allocator, entries, emit).unwrap();
        }
        let [whole, part, none] = slots.map(|slot| Meganode::new(&words[..], geometry, slot).fences());
        assert_eq!(whole, Ok(MeganodeFences { low: Vec::new(), high: None }));
        let (low, high) = (b"key-0100".to_vec(), Some(b"key-0900".to_vec()));
        assert_eq!(part, Ok(MeganodeFences { low, high }));
        assert_eq!(none, Err(ReadError::NotHere), "the third slot is empty");
        words[geometry.slot_word(SlotIndex(1))] |= 1;
        let writing = Meganode::new(&words[..], geometry, slots[1]).fences();
        assert_eq!(writing, Err(ReadError::Retries(0)), "a writer is at work");
    }
}
