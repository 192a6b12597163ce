//! A check of a whole pair on the operator's wish: every structural invariant of the tree, every extent's checksum.
//! It reads as any reader does. While the structure is walked, writes wait (see `Store::begin_check`), so that what it
//! finds is damage and not a moment between two changes.

use std::fmt::Write as _;

use cell_memory::Region;
use cell_memory::extent::{self, ExtentReader};
use cell_tree::{Geometry, LeafSnapshot, Meganode, Slot};

use crate::store::shape_of;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckOutcome {
    /// Meganodes seen.
    pub meganodes: u64,
    /// Tree nodes seen.
    pub tree_nodes: u64,
    /// Entries seen.
    pub entries: u64,
    /// Bytes of extents whose checksum was compared.
    pub extent_bytes: u64,
    /// Violations.
    pub violations: u64,
    /// How long it took, as its caller measured it.
    pub duration_us: u64,
    /// The first violation, in words.
    pub first_violation: String,
}

/// What a check reads.
#[derive(Debug)]
pub struct CheckTarget {
    /// The node region.
    pub node: Region,
    /// The extent region.
    pub extent: Region,
    /// Sizes.
    pub geometry: Geometry,
    /// The meganode.
    pub slot: Slot,
}

impl CheckOutcome {
    fn violation(&mut self, what: std::fmt::Arguments<'_>) {
        self.violations += 1;
        if self.first_violation.is_empty() {
            let _ = self.first_violation.write_fmt(what); // a String takes all
        }
    }
}

/// Checks a pair whose writer waits.
#[must_use]
pub fn check(target: &CheckTarget) -> CheckOutcome {
    let mut outcome = CheckOutcome { meganodes: 1, ..CheckOutcome::default() };
    let meganode = Meganode::new(&target.node, target.geometry, target.slot);
    match meganode.validate(true) {
        Ok(stats) => {
            outcome.tree_nodes = stats.nodes();
            outcome.entries = stats.entries;
        }
        Err(violation) => outcome.violation(format_args!("{violation}")),
    }
    check_extents(target, &meganode, &mut outcome);
    outcome
}

fn check_extents(target: &CheckTarget, meganode: &Meganode<'_, Region>, outcome: &mut CheckOutcome) {
    let mut reader = ExtentReader::new();
    let mut leaf = LeafSnapshot::new();
    let mut more = meganode.leaf_first(&mut leaf).map(|()| true);
    while matches!(more, Ok(true)) {
        for (_, entry) in leaf.iter() {
            if let Some(shape) = shape_of(&entry) {
                extent::prefetch(&target.extent, entry.offset, shape);
            }
        }
        for (_, entry) in leaf.iter() {
            let Some(shape) = shape_of(&entry) else {
                outcome.violation(format_args!("the leaf entry for {} has no valid shape", entry.offset));
                continue;
            };
            match reader.read(&target.extent, entry.offset, shape, entry.crc) {
                Ok(_) => outcome.extent_bytes += u64::from(shape.extent_bytes()),
                Err(error) => outcome.violation(format_args!("{} is damaged: {error}", entry.offset)),
            }
        }
        more = meganode.leaf_after(&mut leaf);
    }
    if let Err(error) = more {
        outcome.violation(format_args!("the leaves cannot be walked to their end: {error}"));
    }
}
