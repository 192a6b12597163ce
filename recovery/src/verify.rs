//! Checking what was restored, and restoring what is not stored: free tree nodes, free space.
//!
//! Every invariant of the tree, and every extent's checksum against its leaf's. Tree nodes are taken in the
//! order of their places, and only those that were ever filled: a look at the others would give them memory.
//! The extents of the next leaf are asked of memory while those of this one are checked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use cell_memory::extent::{self, ExtentReader, ExtentShape};
use cell_memory::{AllocatorRestore, ExtentAllocator, PairWriter, Region};
use cell_terms::{Csn, ExtentOffset, Root};
use cell_tree::{
    Geometry, LeafEntry, Meganode, NodeIndex, Slot, SlotAllocator, StructureViolation, TreeNodeState,
    TreeStats,
};

use crate::error::RecoveryError;
use crate::progress::Progress;
use crate::recovered::RecoveredMeganode;
use crate::split::SlotUse;

/// Tree nodes that a thread takes at a time.
const NODES_AT_A_TIME: usize = 256;

/// A slot that is checked.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) geometry: Geometry,
    pub(crate) slot: Slot,
    pub(crate) used: SlotUse,
    /// What all of its tree nodes must be: hidden ones are checked like others.
    pub(crate) state: TreeNodeState,
    /// One above the highest tree node that was ever filled.
    pub(crate) nodes_end: NodeIndex,
    /// Tree nodes that were last changed at or below this were checked before, and of leaves the extents.
    pub(crate) checked: Option<Csn>,
}

/// What a check found and restored.
pub(crate) struct Verified {
    pub(crate) meganodes: Vec<RecoveredMeganode>,
    pub(crate) extents: ExtentAllocator,
}

/// What some tree nodes hold.
#[derive(Default)]
struct Seen {
    /// Where they begin.
    begin: usize,
    /// Those in use, ascending.
    built: Vec<NodeIndex>,
    /// The places of their entries' extents, until they are reserved.
    places: Vec<(ExtentOffset, u32)>,
    /// Bytes of those that are.
    extent_bytes: u64,
}

/// Checks every slot that is in use, one after another; the extents of all of them share their region.
pub(crate) fn verify(
    memory: &PairWriter,
    parts: &[Part],
    threads: usize,
    progress: &Progress,
) -> Result<Verified, RecoveryError> {
    let (node, extent) = (memory.node.region(), memory.extent.region());
    let mut restore = ExtentAllocator::restore(extent.spec().bytes);
    let mut meganodes = Vec::new();
    for part in parts {
        let check = Check { node, extent, part: *part, progress };
        if part.state.is_built() && !check.is_unbuilt_router()? {
            meganodes.push(check.meganode_of_part(threads, &mut restore)?);
        } else {
            check.is_free()?;
        }
    }
    Ok(Verified { meganodes, extents: restore.finish() })
}

/// Checks a slot of a copy beside others that go on: what it holds, and nothing of what the extents of all
/// slots share. Whether there was something to check: a router that is still to be built has nothing.
pub(crate) fn verify_part(
    node: &Region,
    extent: &Region,
    part: Part,
    threads: usize,
    progress: &Progress,
) -> Result<bool, RecoveryError> {
    let check = Check { node, extent, part, progress };
    if check.is_unbuilt_router()? {
        return Ok(false);
    }
    let mut restore = ExtentAllocator::restore(extent.spec().bytes);
    check.meganode_of_part(threads, &mut restore)?;
    Ok(true)
}

#[derive(Clone, Copy)]
struct Check<'a> {
    node: &'a Region,
    extent: &'a Region,
    part: Part,
    progress: &'a Progress,
}

impl<'a> Check<'a> {
    /// Checks a meganode.
    fn meganode_of_part(
        &self,
        threads: usize,
        restore: &mut AllocatorRestore,
    ) -> Result<RecoveredMeganode, RecoveryError> {
        let (stats, mut seen) = if threads <= 1 {
            let stats = self.tree()?;
            let mut all = Vec::new();
            for begin in (0..self.nodes()).step_by(NODES_AT_A_TIME) {
                all.push(self.reserve(restore, self.look(begin)?)?);
            }
            (stats, all)
        } else {
            self.side_by_side(threads, restore)?
        };
        seen.sort_unstable_by_key(|seen| seen.begin);
        let built: Vec<NodeIndex> = seen.iter().flat_map(|seen| &seen.built).copied().collect();
        self.all_reached(&stats, &built)?;
        let part = self.part;
        let extent_bytes = seen.iter().map(|seen| seen.extent_bytes).sum();
        let allocator = SlotAllocator::restore(part.geometry.nodes(), stats.height, built.into_iter());
        let mut words = vec![0; part.geometry.node_words()];
        let root = self.meganode().copy_node(NodeIndex::ROOT, &mut words);
        let root = root.map_err(|_| self.violation(StructureViolation::Torn(NodeIndex::ROOT)))?;
        Ok(RecoveredMeganode {
            slot: part.slot,
            used: part.used,
            hidden: part.state == TreeNodeState::Hidden,
            allocator,
            stats,
            extent_bytes,
            low: root.low(),
            high: root.high(),
            right: root.right(),
        })
    }

    /// A slot that was taken for a router by a record that is the last one of it that counts: the root does
    /// not lead there, and the slot is to be freed ([`crate::Settlement::FreeRouter`]).
    fn is_unbuilt_router(&self) -> Result<bool, RecoveryError> {
        let root = self.part.geometry.pointer(self.part.slot, NodeIndex::ROOT);
        if self.part.used != SlotUse::Router || Root::from_word(self.node.first_word()).pointer == root {
            return Ok(false);
        }
        let mut words = vec![0; self.part.geometry.node_words()];
        let copy = self.meganode().copy_node(NodeIndex::ROOT, &mut words);
        let copy = copy.map_err(|_| self.violation(StructureViolation::Torn(NodeIndex::ROOT)))?;
        Ok(!copy.state().is_built())
    }

    /// A slot that is not in use has no tree node in use.
    fn is_free(&self) -> Result<(), RecoveryError> {
        let mut words = vec![0; self.part.geometry.node_words()];
        for node in (0..self.part.nodes_end.0).map(NodeIndex) {
            let copy = self.meganode().copy_node(node, &mut words);
            let copy = copy.map_err(|_| self.violation(StructureViolation::Torn(node)))?;
            if copy.state().is_built() {
                return Err(self.violation(StructureViolation::Orphan(node)));
            }
        }
        Ok(())
    }

    fn meganode(&self) -> Meganode<'a, Region> {
        Meganode::new(self.node, self.part.geometry, self.part.slot).with_role(self.part.used.role())
    }

    fn nodes(&self) -> usize {
        self.part.nodes_end.0 as usize
    }

    fn violation(&self, source: StructureViolation) -> RecoveryError {
        RecoveryError::Tree { region: self.part.slot.region, source }
    }

    fn tree(&self) -> Result<TreeStats, RecoveryError> {
        let stats = self.meganode().validate_again(self.part.state, self.part.checked);
        stats.map_err(|source| self.violation(source))
    }

    /// Whether the tree reaches as many nodes as are in use. Each that it reaches is and is reached once,
    /// so there is no other then.
    fn all_reached(&self, stats: &TreeStats, built: &[NodeIndex]) -> Result<(), RecoveryError> {
        if stats.nodes() == built.len() as u64 {
            return Ok(());
        }
        // Which one it is takes a look at the whole slot.
        let full =
            self.meganode().validate_as(self.part.state, true).map_err(|source| self.violation(source));
        full.and(Err(self.violation(StructureViolation::Orphan(built.last().copied().unwrap_or_default()))))
    }

    /// The tree on one thread, the leaves' extents on the others.
    fn side_by_side(
        &self,
        threads: usize,
        restore: &mut AllocatorRestore,
    ) -> Result<(TreeStats, Vec<Seen>), RecoveryError> {
        let next = AtomicUsize::new(0);
        let (send, receive) = channel();
        std::thread::scope(|scope| {
            let tree = scope.spawn(|| {
                let stats = self.tree();
                self.take(&next, &send); // whatever the others have left
                stats
            });
            for _ in 1..threads {
                let send = send.clone();
                let next = &next;
                scope.spawn(move || self.take(next, &send));
            }
            let (mut all, mut failed) = (Vec::new(), None);
            for _ in 0..self.nodes().div_ceil(NODES_AT_A_TIME) {
                let seen = receive.recv().unwrap_or(Err(RecoveryError::Panicked));
                match seen.and_then(|seen| self.reserve(restore, seen)) {
                    Ok(seen) => all.push(seen),
                    Err(error) => {
                        failed = Some(error);
                        next.store(self.nodes(), Ordering::Relaxed);
                        break;
                    }
                }
            }
            // What is wrong with the tree explains what is wrong with its leaves.
            let stats = tree.join().map_err(|_| RecoveryError::Panicked)??;
            failed.map_or(Ok((stats, all)), Err)
        })
    }

    fn take(&self, next: &AtomicUsize, send: &Sender<Result<Seen, RecoveryError>>) {
        loop {
            let begin = next.fetch_add(NODES_AT_A_TIME, Ordering::Relaxed);
            if begin >= self.nodes() || send.send(self.look(begin)).is_err() {
                return;
            }
        }
    }

    /// Looks at some tree nodes and checks the extents of their entries.
    fn look(&self, begin: usize) -> Result<Seen, RecoveryError> {
        let end = (begin + NODES_AT_A_TIME).min(self.nodes());
        let meganode = self.meganode();
        let mut reader = ExtentReader::new();
        let mut words = vec![0; self.part.geometry.node_words()];
        let (mut now, mut ahead): (Vec<LeafEntry>, Vec<LeafEntry>) = (Vec::new(), Vec::new());
        let mut seen = Seen { begin, ..Seen::default() };
        let mut node_now = NodeIndex::ROOT;
        let (mut checked_now, mut checked_ahead) = (false, false);
        for at in begin..=end {
            let node = NodeIndex(u32::try_from(at).unwrap_or(u32::MAX));
            ahead.clear();
            if at < end {
                let copy = meganode.copy_node(node, &mut words);
                let copy = copy.map_err(|_| self.violation(StructureViolation::Torn(node)))?;
                if copy.state().is_built() {
                    seen.built.push(node);
                }
                checked_ahead = self.part.checked.is_some_and(|checked| copy.csn_changed() <= checked);
                copy.leaf_entries(|entry| {
                    if !checked_ahead {
                        self.prefetch(&entry);
                    }
                    ahead.push(entry);
                });
            }
            for entry in &now {
                if self.part.used == SlotUse::Router {
                    self.routes(node_now, entry)?;
                } else if checked_now {
                    seen.places.push(self.place(node_now, entry)?);
                } else {
                    seen.places.push(self.entry(node_now, entry, &mut reader)?);
                }
            }
            self.progress.verified(now.len() as u64);
            std::mem::swap(&mut now, &mut ahead);
            (node_now, checked_now) = (node, checked_ahead);
        }
        Ok(seen)
    }

    fn prefetch(&self, entry: &LeafEntry) {
        if self.part.used == SlotUse::Router {
            return;
        }
        if let Some(shape) = ExtentShape::from_bits(entry.value_len) {
            extent::prefetch(self.extent, entry.offset, shape);
        }
    }

    /// A router's entry leads to the root of a meganode, in whatever region.
    fn routes(&self, node: NodeIndex, entry: &LeafEntry) -> Result<(), RecoveryError> {
        let to_root =
            self.part.geometry.locate(entry.meganode()).is_some_and(|(_, at)| at == NodeIndex::ROOT);
        if to_root && *entry == LeafEntry::to_meganode(entry.meganode()) {
            return Ok(());
        }
        Err(RecoveryError::Router { slot: self.part.slot.index, node })
    }

    /// The place of an entry's extent, as its leaf says.
    fn place(&self, node: NodeIndex, entry: &LeafEntry) -> Result<(ExtentOffset, u32), RecoveryError> {
        let (region, offset) = (self.extent.spec().id, entry.offset);
        let shape = ExtentShape::from_bits(entry.value_len);
        let shape = shape.ok_or(RecoveryError::ExtentMismatch { region, offset, node })?;
        Ok((offset, shape.extent_bytes()))
    }

    fn entry(
        &self,
        node: NodeIndex,
        entry: &LeafEntry,
        reader: &mut ExtentReader,
    ) -> Result<(ExtentOffset, u32), RecoveryError> {
        let (region, offset) = (self.extent.spec().id, entry.offset);
        let mismatch = RecoveryError::ExtentMismatch { region, offset, node };
        let Some(shape) = ExtentShape::from_bits(entry.value_len) else { return Err(mismatch) };
        match reader.read(self.extent, offset, shape, entry.crc) {
            Ok(view) if view.shape == shape => Ok((offset, shape.extent_bytes())),
            _ => Err(mismatch),
        }
    }

    fn reserve(&self, restore: &mut AllocatorRestore, mut seen: Seen) -> Result<Seen, RecoveryError> {
        let region = self.extent.spec().id;
        for (offset, bytes) in std::mem::take(&mut seen.places) {
            restore.reserve(offset, bytes).map_err(|source| RecoveryError::Reserve { region, source })?;
            seen.extent_bytes += u64::from(bytes);
        }
        Ok(seen)
    }
}
