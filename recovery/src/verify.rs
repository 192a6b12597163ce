//! Checking what was rebuilt, and rebuilding what is not stored: free tree nodes, free space.
//!
//! Every invariant of the tree, and every extent's checksum against its leaf's. Leaves are taken in the order of their
//! places; the extents of the next one are asked of memory while those of this one are checked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use cell_memory::extent::{self, ExtentReader, ExtentShape};
use cell_memory::{AllocatorRebuild, ExtentAllocator, PairWriter, Region};
use cell_terms::ExtentOffset;
use cell_tree::{Geometry, LeafEntry, Meganode, NodeIndex, Slot, SlotAllocator, TreeStats};

use crate::error::RecoveryError;
use crate::progress::Progress;

/// Tree nodes that a thread takes at a time.
const NODES_AT_A_TIME: usize = 256;

/// What a check found and rebuilt.
pub(crate) struct Verified {
    pub(crate) slots: SlotAllocator,
    pub(crate) extents: ExtentAllocator,
    pub(crate) stats: TreeStats,
}

/// The places of the extents that some leaves name.
type Places = Vec<(ExtentOffset, u32)>;

pub(crate) fn verify(
    memory: &PairWriter,
    geometry: Geometry,
    slot: Slot,
    threads: usize,
    progress: &Progress,
) -> Result<Verified, RecoveryError> {
    let (node, extent) = (memory.node.region(), memory.extent.region());
    let mut rebuild = ExtentAllocator::rebuild(extent.spec().bytes);
    let check = Check { node, extent, geometry, slot, progress };
    let stats = if threads <= 1 {
        let stats = check.tree()?;
        let nodes: Vec<NodeIndex> = check.meganode().valid_nodes().collect();
        check.reserve(&mut rebuild, check.leaves(&nodes)?)?;
        stats
    } else {
        check.side_by_side(threads, &mut rebuild)?
    };
    Ok(Verified { slots: check.meganode().allocator(), extents: rebuild.finish(), stats })
}

#[derive(Clone, Copy)]
struct Check<'a> {
    node: &'a Region,
    extent: &'a Region,
    geometry: Geometry,
    slot: Slot,
    progress: &'a Progress,
}

impl<'a> Check<'a> {
    fn meganode(&self) -> Meganode<'a, Region> {
        Meganode::new(self.node, self.geometry, self.slot)
    }

    fn tree(&self) -> Result<TreeStats, RecoveryError> {
        let checked = self.meganode().validate(true);
        checked.map_err(|source| RecoveryError::Tree { region: self.slot.region, source })
    }

    /// The tree on one thread, the leaves' extents on the others.
    fn side_by_side(
        &self,
        threads: usize,
        rebuild: &mut AllocatorRebuild,
    ) -> Result<TreeStats, RecoveryError> {
        let nodes: Vec<NodeIndex> = self.meganode().valid_nodes().collect();
        let next = AtomicUsize::new(0);
        let (send, receive) = channel();
        std::thread::scope(|scope| {
            let tree = scope.spawn(|| {
                let stats = self.tree();
                self.take_leaves(&nodes, &next, &send); // whatever the others have left
                stats
            });
            for _ in 1..threads {
                scope.spawn(|| self.take_leaves(&nodes, &next, &send.clone()));
            }
            let mut failed = None;
            for _ in 0..nodes.len().div_ceil(NODES_AT_A_TIME) {
                let places = receive.recv().unwrap_or(Err(RecoveryError::Panicked));
                if let Err(error) = places.and_then(|places| self.reserve(rebuild, places)) {
                    failed = Some(error);
                    next.store(nodes.len(), Ordering::Relaxed);
                    break;
                }
            }
            // What is wrong with the tree explains what is wrong with its leaves.
            let stats = tree.join().map_err(|_| RecoveryError::Panicked)??;
            failed.map_or(Ok(stats), Err)
        })
    }

    fn take_leaves(
        &self,
        nodes: &[NodeIndex],
        next: &AtomicUsize,
        send: &Sender<Result<Places, RecoveryError>>,
    ) {
        loop {
            let begin = next.fetch_add(NODES_AT_A_TIME, Ordering::Relaxed);
            let Some(mine) = nodes.get(begin..) else { return };
            if mine.is_empty() || send.send(self.leaves(&mine[..mine.len().min(NODES_AT_A_TIME)])).is_err() {
                return;
            }
        }
    }

    /// Checks the extents of some nodes' entries.
    fn leaves(&self, nodes: &[NodeIndex]) -> Result<Places, RecoveryError> {
        let meganode = self.meganode();
        let mut reader = ExtentReader::new();
        let mut words = vec![0; self.geometry.node_words()];
        let (mut now, mut ahead) = (Vec::new(), Vec::new());
        let mut places = Vec::new();
        let mut node_now = NodeIndex::ROOT;
        for node in nodes.iter().map(Some).chain([None]) {
            ahead.clear();
            if let Some(node) = node
                && let Ok(copy) = meganode.copy_node(*node, &mut words)
            {
                copy.leaf_entries(|entry| {
                    self.prefetch(&entry);
                    ahead.push(entry);
                });
            }
            for entry in &now {
                places.push(self.entry(node_now, entry, &mut reader)?);
            }
            self.progress.verified(now.len() as u64);
            std::mem::swap(&mut now, &mut ahead);
            node_now = node.copied().unwrap_or_default();
        }
        Ok(places)
    }

    fn prefetch(&self, entry: &LeafEntry) {
        if let Some(shape) = ExtentShape::from_bits(entry.value_len) {
            extent::prefetch(self.extent, entry.offset, shape);
        }
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

    fn reserve(&self, rebuild: &mut AllocatorRebuild, places: Places) -> Result<(), RecoveryError> {
        let region = self.extent.spec().id;
        for (offset, bytes) in places {
            rebuild.reserve(offset, bytes).map_err(|source| RecoveryError::Reserve { region, source })?;
        }
        Ok(())
    }
}
