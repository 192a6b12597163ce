//! The settings of regions.

use cell_terms::setting::{Applies, Bounds, Setting, Settings};
use cell_terms::{Epoch, PairId};

use crate::error::MemoryError;
use crate::region::{
    EXTENT_REGION_BYTES_MAX, HugePages, NODE_BYTES, RegionOptions, RegionSpec, SLOT_BYTES_MIN,
};

const NODE_REGION_BYTES: &str = "node_region_bytes";
const EXTENT_REGION_BYTES: &str = "extent_region_bytes";
const SLOT_BYTES: &str = "slot_bytes";
const TREE_NODE_BYTES: &str = "tree_node_bytes";
const HUGE_PAGES: &str = "huge_pages";
const MEMORY_CHECK: &str = "memory_check";
const POPULATE_CHUNK_BYTES: &str = "populate_chunk_bytes";
const READY_MEMORY_BYTES: &str = "ready_memory_bytes";

/// Largest node region that can be asked for; the format permits 1 TiB.
const NODE_REGION_BYTES_MAX: u64 = 512 << 30;
const PAGE_CHOICES: [(&str, HugePages); 5] = [
    ("auto", HugePages::Auto),
    ("1g", HugePages::Huge1G),
    ("2m", HugePages::Huge2M),
    ("transparent", HugePages::Transparent),
    ("small", HugePages::Small),
];
const PAGE_WORDS: &[&str] =
    &[PAGE_CHOICES[0].0, PAGE_CHOICES[1].0, PAGE_CHOICES[2].0, PAGE_CHOICES[3].0, PAGE_CHOICES[4].0];

/// Why sizes of regions do not change later.
const SIZES_SHARED: &str =
    "All regions have the sizes of the first ones, because pointers are computed from them.";

/// What a person may set about regions.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: NODE_REGION_BYTES,
        meaning: "Memory for the slots of a pair's node region; a header page comes on top. Rounded down \
                  to whole slots. Memory is taken as the tree grows. Less where nobody gave it and eight \
                  pairs would not fit memory_limit_bytes.",
        default: "2 GiB",
        bounds: Bounds::Bytes { min: SLOT_BYTES_MIN, max: NODE_REGION_BYTES_MAX, power_of_two: false },
        applies: Applies::Creation(SIZES_SHARED),
    },
    Setting {
        name: EXTENT_REGION_BYTES,
        meaning: "Size of a pair's extent region, which holds its values. Memory is taken as values are \
                  written. A value has at most a quarter of it. Less where nobody gave it and eight pairs \
                  would not fit memory_limit_bytes.",
        default: "8 GiB",
        bounds: Bounds::Bytes { min: 1 << 20, max: EXTENT_REGION_BYTES_MAX, power_of_two: false },
        applies: Applies::Creation(SIZES_SHARED),
    },
    Setting {
        name: SLOT_BYTES,
        meaning: "Size of a slot, which holds one meganode: a tree that is split into two slots when it \
                  fills its own. `cell dev` takes 8 MiB, so that splits can be watched.",
        default: "64 MiB",
        bounds: Bounds::Bytes { min: SLOT_BYTES_MIN, max: NODE_REGION_BYTES_MAX, power_of_two: true },
        applies: Applies::Creation(SIZES_SHARED),
    },
    Setting {
        name: TREE_NODE_BYTES,
        meaning: "Size of a tree node, the unit of a one-sided read. Larger ones make a lower tree and \
                  longer reads. The longest key goes by it: 76 bytes with 512 B, 178 with 1 KiB, 383 with \
                  2 KiB, 793 with 4 KiB.",
        default: "1 KiB",
        bounds: Bounds::Bytes { min: NODE_BYTES.start, max: NODE_BYTES.end - 1, power_of_two: true },
        applies: Applies::Creation(SIZES_SHARED),
    },
    Setting {
        name: HUGE_PAGES,
        meaning: "Pages that regions stand on. auto: reserved 1 GiB pages if they suffice, else 2 MiB, \
                  else transparent, else small. 1g and 2m refuse to start where too few are reserved.",
        default: "auto",
        bounds: Bounds::Choice(PAGE_WORDS),
        applies: Applies::Creation("A region keeps the pages that it was made of."),
    },
    Setting {
        name: MEMORY_CHECK,
        meaning: "Refuse to start where the sizes that were given for a pair's regions exceed \
                  memory_limit_bytes. Off, they may be larger: the limit holds in any case.",
        default: "true",
        bounds: Bounds::Flag,
        applies: Applies::Creation("Sizes are checked once, when the process starts."),
    },
    Setting {
        name: POPULATE_CHUNK_BYTES,
        meaning: "How far ahead of the allocators memory is taken. Larger values move more work off the \
                  write path and hold more unused memory.",
        default: "64 MiB",
        bounds: Bounds::Bytes { min: 2 << 20, max: 1 << 30, power_of_two: true },
        applies: Applies::Live,
    },
    Setting {
        name: READY_MEMORY_BYTES,
        meaning: "Memory that a node holds ready for takeovers, touched beforehand while it is quiet, on top of \
                  its regions: the first touch can take longer than the replay, above all in a virtual \
                  machine. It is given up for a region that would not fit otherwise. `cell \
                  dev` takes 0.",
        default: "256 MiB",
        bounds: Bounds::Bytes { min: 0, max: 1 << 40, power_of_two: false },
        applies: Applies::Restart(
            "The memory is taken and touched from the start on, and counts against memory_limit_bytes.",
        ),
    },
];

/// The settings of regions, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSettings {
    /// Memory for the slots of a node region.
    pub node_region_bytes: u64,
    /// Size of an extent region.
    pub extent_region_bytes: u64,
    /// Size of a slot.
    pub slot_bytes: u64,
    /// Size of a tree node.
    pub tree_node_bytes: u32,
    /// How regions are made.
    pub options: RegionOptions,
    /// How far ahead of the allocators memory is taken.
    pub populate_chunk_bytes: u64,
    /// What is held ready: for [`crate::make_ready`].
    pub ready_memory_bytes: u64,
}

impl RegionSettings {
    /// Reads them.
    ///
    /// # Panics
    /// If [`SETTINGS`] are not among the declarations.
    #[must_use]
    pub fn new(settings: &Settings) -> RegionSettings {
        let word = settings.text(HUGE_PAGES);
        let pages = PAGE_CHOICES.iter().find(|(name, _)| *name == word).map(|(_, pages)| *pages);
        let tree_node_bytes = u32::try_from(settings.integer(TREE_NODE_BYTES));
        RegionSettings {
            node_region_bytes: settings.integer(NODE_REGION_BYTES),
            extent_region_bytes: settings.integer(EXTENT_REGION_BYTES),
            slot_bytes: settings.integer(SLOT_BYTES),
            tree_node_bytes: tree_node_bytes.expect("bounded by its declaration"),
            options: RegionOptions {
                pages: pages.expect("bounded by its declaration"),
                memory_check: settings.flag(MEMORY_CHECK),
            },
            populate_chunk_bytes: settings.integer(POPULATE_CHUNK_BYTES),
            ready_memory_bytes: settings.integer(READY_MEMORY_BYTES),
        }
    }

    /// The node region of a pair.
    ///
    /// # Errors
    /// [`MemoryError::Geometry`] if a slot is larger than the region.
    pub fn node_spec(&self, pair: PairId, epoch: Epoch) -> Result<RegionSpec, MemoryError> {
        RegionSpec::node(pair, epoch, self.node_region_bytes, self.slot_bytes, self.tree_node_bytes)
    }

    /// The extent region of a pair.
    ///
    /// # Errors
    /// [`MemoryError::Geometry`] for an id out of bounds.
    pub fn extent_spec(&self, pair: PairId, epoch: Epoch) -> Result<RegionSpec, MemoryError> {
        RegionSpec::extent(pair, epoch, self.extent_region_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cell_terms::setting::Source;

    #[test]
    fn defaults_make_many_slots_and_fit() {
        let settings = RegionSettings::new(&Settings::new(&[SETTINGS]));
        let node = settings.node_spec(PairId(1), Epoch(1)).unwrap();
        assert_eq!((node.slots(), node.node_bytes), (32, 1024));
        assert_eq!(settings.extent_spec(PairId(1), Epoch(1)).unwrap().bytes, 8 << 30);
        assert_eq!(settings.options, RegionOptions::default());
    }

    #[test]
    fn every_page_choice_is_understood() {
        for (word, pages) in PAGE_CHOICES {
            let mut settings = Settings::new(&[SETTINGS]);
            settings.set(HUGE_PAGES, word, Source::Flag).unwrap();
            assert_eq!(RegionSettings::new(&settings).options.pages, pages);
        }
    }
}
