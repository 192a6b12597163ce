//! A check of whole pairs on the operator's wish: every structural invariant of the trees, every extent's
//! checksum. It reads as any reader does. While the structure is walked, writes wait
//! ([`crate::Pair::begin_check`]), so that what it finds is damage and not a moment between two changes; the
//! extents are compared beside them.

use std::fmt::Write as _;

use cell_memory::Region;
use cell_memory::extent::{self, ExtentReader};
use cell_recovery::image::ImageSource;
use cell_terms::ExtentOffset;
use cell_tree::{Geometry, LeafSnapshot, Meganode, MeganodeRole, NodeIndex, ReadError, Slot};

use crate::meganodes::SlotEnds;
use crate::read::shape_of;

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
    /// One above the highest tree node that was ever used: a look behind it would give the slot memory.
    pub nodes_end: NodeIndex,
    /// Whether its entries lead to meganodes, and to no extents.
    pub router: bool,
}

impl CheckTarget {
    fn meganode(&self) -> Meganode<'_, Region> {
        let role = if self.router { MeganodeRole::Router } else { MeganodeRole::Data };
        Meganode::new(&self.node, self.geometry, self.slot).with_role(role)
    }
}

/// Every meganode of a pair that is served.
#[must_use]
pub fn check_targets(source: &ImageSource, ends: &SlotEnds) -> Vec<CheckTarget> {
    let target = |slot| CheckTarget {
        node: source.node.clone(),
        extent: source.extent.clone(),
        geometry: source.geometry,
        slot: Slot { region: source.node.spec().id, index: slot },
        nodes_end: ends.end(slot),
        router: ends.is_router(slot),
    };
    ends.used().map(target).collect()
}

impl CheckOutcome {
    fn violation(&mut self, what: std::fmt::Arguments<'_>) {
        self.violations += 1;
        if self.first_violation.is_empty() {
            let _ = self.first_violation.write_fmt(what); // a String takes all
        }
    }
}

/// Checks meganodes. Their writer waits until `structure_is_done` is called; then writes go on beside the
/// check of the extents.
pub fn check(targets: &[CheckTarget], structure_is_done: impl FnOnce()) -> CheckOutcome {
    let mut outcome = CheckOutcome::default();
    targets.iter().for_each(|target| check_structure(target, &mut outcome));
    structure_is_done();
    for target in targets.iter().filter(|target| !target.router && !is_hidden(target)) {
        let meganode = target.meganode();
        if let Err(error) = check_extents(target, &meganode, &mut outcome) {
            outcome.violation(format_args!("the leaves cannot be walked to their end: {error}"));
        }
    }
    outcome
}

/// Whether a meganode is no reader's business: it is being adopted, or was thrown away.
fn is_hidden(target: &CheckTarget) -> bool {
    let mut words = vec![0; target.geometry.node_words()];
    target.meganode().copy_node(NodeIndex::ROOT, &mut words).is_ok_and(|root| !root.is_valid())
}

fn check_structure(target: &CheckTarget, outcome: &mut CheckOutcome) {
    if is_hidden(target) {
        return; // that no key is without a meganode, the owner's directory says
    }
    outcome.meganodes += 1;
    let meganode = target.meganode();
    match meganode.validate(false) {
        Ok(stats) => {
            outcome.tree_nodes += stats.nodes();
            outcome.entries += if target.router { 0 } else { stats.entries };
            match valid_nodes(target, &meganode) {
                Ok(valid) if valid == stats.nodes() => {}
                Ok(valid) => outcome.violation(format_args!(
                    "{valid} tree nodes are valid and {} can be reached: some are orphans",
                    stats.nodes()
                )),
                Err(error) => outcome.violation(format_args!("the tree nodes cannot be counted: {error}")),
            }
        }
        Err(violation) => outcome.violation(format_args!("{violation}")),
    }
}

fn valid_nodes(target: &CheckTarget, meganode: &Meganode<'_, Region>) -> Result<u64, ReadError> {
    let mut words = vec![0; target.geometry.node_words()];
    let mut valid = 0;
    for node in (0..target.nodes_end.0).map(NodeIndex) {
        valid += u64::from(meganode.copy_node(node, &mut words)?.is_valid());
    }
    Ok(valid)
}

fn check_extents(
    target: &CheckTarget,
    meganode: &Meganode<'_, Region>,
    outcome: &mut CheckOutcome,
) -> Result<(), ReadError> {
    let mut reader = ExtentReader::new();
    let mut leaf = LeafSnapshot::new();
    let mut again = LeafSnapshot::new();
    meganode.leaf_first(&mut leaf)?;
    loop {
        // An extent may be replaced and its place reused meanwhile; then its leaf has changed, and is looked
        // at again.
        while let Err(offset) = check_leaf(target, &leaf, &mut reader, outcome) {
            match leaf.low() {
                [] => meganode.leaf_first(&mut again)?,
                low => meganode.leaf(low, &mut again)?,
            }
            if again.csn_changed() == leaf.csn_changed() {
                outcome.violation(format_args!("{offset}, to which {} leads, is damaged", leaf.node()));
                break;
            }
            std::mem::swap(&mut leaf, &mut again);
        }
        // The last leaf's right link leads to the next meganode, which is checked for itself.
        match meganode.leaf_after(&mut leaf) {
            Ok(true) => {}
            Ok(false) | Err(ReadError::Beyond(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Compares the checksums of a leaf's extents; the first that does not match.
fn check_leaf(
    target: &CheckTarget,
    leaf: &LeafSnapshot,
    reader: &mut ExtentReader,
    outcome: &mut CheckOutcome,
) -> Result<(), ExtentOffset> {
    for (_, entry) in leaf.iter() {
        if let Some(shape) = shape_of(&entry) {
            extent::prefetch(&target.extent, entry.offset, shape);
        }
    }
    let mut bytes = 0;
    for (_, entry) in leaf.iter() {
        let shape = shape_of(&entry).ok_or(entry.offset)?;
        reader.read(&target.extent, entry.offset, shape, entry.crc).map_err(|_| entry.offset)?;
        bytes += u64::from(shape.extent_bytes());
    }
    outcome.extent_bytes += bytes;
    Ok(())
}
