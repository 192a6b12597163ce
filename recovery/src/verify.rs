//! Checking what was rebuilt, and rebuilding what is not stored: free tree nodes, free space.
//!
//! Every invariant of the tree, and every extent's checksum against its leaf's. Tree nodes are taken in the
//! order of their places, and only those that were ever filled: a look at the others would give them memory.
//! The extents of the next leaf are asked of memory while those of this one are checked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};

use cell_memory::extent::{self, ExtentReader, ExtentShape};
use cell_memory::{AllocatorRebuild, ExtentAllocator, PairWriter, Region};
use cell_terms::ExtentOffset;
use cell_tree::{Geometry, LeafEntry, Meganode, NodeIndex, Slot, SlotAllocator, TreeStats, Violation};

use crate::error::RecoveryError;
use crate::progress::Progress;

/// Tree nodes that a thread takes at a time.
const NODES_AT_A_TIME: usize = 256;

/// What is checked.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) geometry: Geometry,
    pub(crate) slot: Slot,
    /// One above the highest tree node that was ever filled.
    pub(crate) nodes_end: NodeIndex,
}

/// What a check found and rebuilt.
pub(crate) struct Verified {
    pub(crate) slots: SlotAllocator,
    pub(crate) extents: ExtentAllocator,
    pub(crate) stats: TreeStats,
}

/// What some tree nodes hold.
#[derive(Default)]
struct Seen {
    /// Where they begin.
    begin: usize,
    /// Those in use, ascending.
    valid: Vec<NodeIndex>,
    /// The places of their entries' extents.
    places: Vec<(ExtentOffset, u32)>,
}

pub(crate) fn verify(
    memory: &PairWriter,
    part: Part,
    threads: usize,
    progress: &Progress,
) -> Result<Verified, RecoveryError> {
    let check = Check { node: memory.node.region(), extent: memory.extent.region(), part, progress };
    let mut rebuild = ExtentAllocator::rebuild(check.extent.spec().bytes);
    let (stats, mut seen) = if threads <= 1 {
        let stats = check.tree()?;
        let mut all = Vec::new();
        for begin in (0..check.nodes()).step_by(NODES_AT_A_TIME) {
            let seen = check.look(begin)?;
            check.reserve(&mut rebuild, &seen)?;
            all.push(seen);
        }
        (stats, all)
    } else {
        check.side_by_side(threads, &mut rebuild)?
    };
    seen.sort_unstable_by_key(|seen| seen.begin);
    let valid: Vec<NodeIndex> = seen.iter().flat_map(|seen| &seen.valid).copied().collect();
    check.all_reached(&stats, &valid)?;
    let slots = SlotAllocator::rebuild(part.geometry.nodes(), stats.height, valid.into_iter());
    Ok(Verified { slots, extents: rebuild.finish(), stats })
}

#[derive(Clone, Copy)]
struct Check<'a> {
    node: &'a Region,
    extent: &'a Region,
    part: Part,
    progress: &'a Progress,
}

impl<'a> Check<'a> {
    fn meganode(&self) -> Meganode<'a, Region> {
        Meganode::new(self.node, self.part.geometry, self.part.slot)
    }

    fn nodes(&self) -> usize {
        self.part.nodes_end.0 as usize
    }

    fn violation(&self, source: Violation) -> RecoveryError {
        RecoveryError::Tree { region: self.part.slot.region, source }
    }

    fn tree(&self) -> Result<TreeStats, RecoveryError> {
        self.meganode().validate(false).map_err(|source| self.violation(source))
    }

    /// Whether the tree reaches as many nodes as are valid. Each that it reaches is valid and reached once,
    /// so there is no other then.
    fn all_reached(&self, stats: &TreeStats, valid: &[NodeIndex]) -> Result<(), RecoveryError> {
        if stats.nodes() == valid.len() as u64 {
            return Ok(());
        }
        // Which one it is takes a look at the whole slot.
        let full = self.meganode().validate(true).map_err(|source| self.violation(source));
        full.and(Err(self.violation(Violation::Orphan(valid.last().copied().unwrap_or_default()))))
    }

    /// The tree on one thread, the leaves' extents on the others.
    fn side_by_side(
        &self,
        threads: usize,
        rebuild: &mut AllocatorRebuild,
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
                match seen.and_then(|seen| self.reserve(rebuild, &seen).map(|()| seen)) {
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
        for at in begin..=end {
            let node = NodeIndex(u32::try_from(at).unwrap_or(u32::MAX));
            ahead.clear();
            if at < end {
                let copy = meganode.copy_node(node, &mut words);
                let copy = copy.map_err(|_| self.violation(Violation::Torn(node)))?;
                if copy.is_valid() {
                    seen.valid.push(node);
                }
                copy.leaf_entries(|entry| {
                    self.prefetch(&entry);
                    ahead.push(entry);
                });
            }
            for entry in &now {
                seen.places.push(self.entry(node_now, entry, &mut reader)?);
            }
            self.progress.verified(now.len() as u64);
            std::mem::swap(&mut now, &mut ahead);
            node_now = node;
        }
        Ok(seen)
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

    fn reserve(&self, rebuild: &mut AllocatorRebuild, seen: &Seen) -> Result<(), RecoveryError> {
        let region = self.extent.spec().id;
        for (offset, bytes) in &seen.places {
            rebuild.reserve(*offset, *bytes).map_err(|source| RecoveryError::Reserve { region, source })?;
        }
        Ok(())
    }
}
