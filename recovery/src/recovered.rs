//! What a takeover leaves in a new owner's hands.

use cell_memory::{ExtentAllocator, PairWriter};
use cell_terms::{Csn, Epoch, PairId};
use cell_tree::{Geometry, Slot, SlotAllocator};
use cell_wal::PairLog;

use crate::completion::CompletionTable;

/// A recovered pair: verified, its cut recorded, its new logs open, published. Whoever holds it is its owner.
pub struct Recovered {
    /// The pair.
    pub pair: PairId,
    /// The new owner's epoch.
    pub epoch: Epoch,
    /// Sizes of its tree.
    pub geometry: Geometry,
    /// The meganode.
    pub slot: Slot,
    /// Both regions, with everything up to the cut; their watermarks stand at the cut.
    pub memory: PairWriter,
    /// Free tree nodes of the meganode.
    pub slots: SlotAllocator,
    /// Free space of the extent region.
    pub extents: ExtentAllocator,
    /// The new epoch's logs, open; `None` with `durability = none`.
    pub log: Option<PairLog>,
    /// The last CSN that counts.
    pub csn_cut: Csn,
    /// The base of the checkpoint in force; zero if there is none.
    pub csn_checkpoint: Csn,
    /// Results and floors of the sessions that have not ended.
    pub completions: CompletionTable,
    /// Entries in the tree.
    pub entries: u64,
    /// Log bytes that were replayed: what the next recovery would read again.
    pub log_bytes: u64,
}
