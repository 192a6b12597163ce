//! What a checkpoint image holds, and how it is made. The container (blocks, compression, checks) is
//! `cell_wal::image`.
//!
//! Sections, in this order, each in as many blocks as it takes; little-endian:
//!
//! | section | items |
//! |---|---|
//! | 1 nodes | node index `u32`, zero `u32`, the tree node as it lies in memory; the block's tag is the slot |
//! | 2 extents | offset `u32` (16-byte units), length `u32`, the extent, zeros up to a multiple of 8 |
//! | 3 completions | bytes of [`crate::CompletionTable::encode`], cut into blocks anywhere; a block is one item |
//! | 4 roots | the root's word of the node region's header `u64`, see `cell_terms::Root` |
//! | 5 splits | bytes of [`crate::SplitTable::encode`], cut into blocks anywhere; a block is one item |
//! | 6 adopted | bytes of [`crate::CompletionTable::encode_adopted`], likewise; left out where there are none |
//!
//! Blocks of nodes and extents alternate. The tag of a block of extents counts the units of 2 MiB that all
//! extents up to its end lie in, with the region's first unit, so that the last one says what memory they
//! take.
//!
//! The header's geometry: tree node bytes `u32`, zero `u32`, slot bytes `u64`, node region bytes `u64`,
//! extent region bytes `u64`.
//!
//! # Why a copy of a living pair is enough
//!
//! The copier is a reader like any other. The pair changes under it and waits for nothing: freed tree nodes
//! and extents are used again, tree nodes are split, meganodes are split and compacted, slots are adopted and
//! freed. Let B be the durable watermark when the image begins, and let the cut of a later recovery be at or
//! above the highest CSN of the image. Recovery loads the image and replays every record above B up to the
//! cut. It comes to the state of the cut, for these reasons.
//!
//! 1. **Tree nodes.** Each is copied whole, of one moment, with the CSN of its last change. Replay skips the
//!    records that the copy has and applies the others, so the moment does not matter, nor does the order of
//!    the copies, nor how often the place was freed and used again in between: a fill holds the whole node,
//!    and changes of a life that the copy lacks are skipped, because a later record frees or fills the node.
//! 2. **Extents above B** are in the log. Replay writes them over whatever the image has in their places.
//! 3. **Extents at or below B**, as far as the cut needs them, lie still from before the copy to the cut.
//!    With each leaf go those that it leads to; if its checksum fails, one was replaced and its place used
//!    again, and the leaf is copied again. The entry is in some leaf of its slot at each moment (readers need
//!    that too), but it may move to another: by the fill of a leaf, and then by the change that takes it out
//!    of the leaf where it was. The owner notes each fill between these two ([`FilledNodes`]). Of each slot
//!    the copier (a) drops what is noted; (b) asks how far the nodes go, and copies all of them; (c) takes
//!    what is noted since, copies the extents of these leaves, and repeats that until nothing is noted.
//!
//!    So no entry is missed. Take the leaf that has it when (b) begins. If the copier finds the leaf without
//!    it, then it sees the change that took the entry out, and so it will see the note of the fill before
//!    that change, unless (a) has dropped it: then (b) copies the filled leaf as it is later. Either way the
//!    leaf to which the entry has moved is looked at after the entry came there. The same holds for that
//!    leaf, and so on; and as (c) ends when nothing is noted, the last leaf of this chain has the entry.
//!
//!    A packing moves extents (`cell_pair`'s `packing.rs`) byte for byte, so they keep a CSN at or below B.
//!    To log and leaf that is a put: if it is above B, replay writes the extent to its new place, over
//!    whatever the image has there, and the old place is used again only when that is durable.
//!
//!    It must be *between* the two. With the note before the fill: (1) leaf 7 is noted; (2) the copier takes
//!    the note and finds 7 free; (3) 7 is filled with entries of leaf 9; (4) they are cut out of 9; (5) the
//!    copier comes to 9. With the note after the cut: (1) 7, which the copier has passed, is filled; (2) 9 is
//!    cut; (3) the copier comes to 9, finds nothing noted and ends; (4) 7 is noted. Each time nobody has the
//!    extents.
//! 4. **Slots.** Only those that were in use at the start are copied, in any order. Entries do not move
//!    between slots: an adoption copies them, its fills hold whole nodes, and it writes extents of its own.
//!    So what a slot got that was taken since is above B. But of an adoption an entry's extent and its leaf
//!    are in different batches, so **no image may begin while a pair builds an adopted meganode**: (1) an
//!    extent is logged and durable; (2) an image begins, B is above it; (3) its copier passes the slot, where
//!    no leaf leads to the extent yet; (4) the leaf is filled; (5) the log up to B is released, and nobody
//!    has the extent any more. An adoption may begin while an image is made.
//! 5. What the upper half of a split meganode had is freed by one record, `Applied`. If it is at or below B,
//!    its nodes were free before the copy began. If it is above, the image may have some of them, with their
//!    extents of then (a node is freed before its extents are), and replay frees those again; changes of
//!    those that it lacks are skipped, as of any node that is freed later. The same holds for what is
//!    discarded, and for a slot that is taken again afterwards: replay frees no node that has a higher CSN
//!    than the record that frees.
//! 6. **The highest CSN** is that of all that the copier has looked at, tree nodes that it found free among
//!    them: what it finds gone is gone by a record that the cut must have. (Without those: (1) a half is cut
//!    away; (2) the copier finds its nodes free, and leaves them out; (3) the image is recorded; (4) the
//!    `Applied` is lost in a crash, and the half is nowhere.) An extent's place is used again only when the
//!    record that freed it is durable, so what the copier found overwritten is no business of the cut.
//! 7. Whether a node is hidden is copied as it is and means nothing: replay ends by giving all nodes of an
//!    adopted meganode the state that the table of splits says.
//! 8. Completions, those that lie aside for adoptions among them, splits and root are of the moment of B's
//!    capture ([`ImageBase`]): they may be ahead of B, by records that replay repeats without effect. Nothing
//!    of them may be lost with a crash, so the highest CSN in the image is at least the last one that was
//!    appended then.

mod filled;

use std::borrow::Borrow;
use std::ops::Range;
use std::sync::Arc;

use cell_memory::Region;
use cell_memory::extent::{self, EXTENT_BYTES_MAX, ExtentReader, ExtentShape, byte_offset};
use cell_terms::{Csn, Epoch, ExtentOffset, PairId, Root, SlotIndex};
use cell_tree::{Geometry, LeafSnapshot, Meganode, MeganodeRole, NODE_BYTES, NodeIndex, Slot};
use cell_wal::image::{BLOCK_BYTES_MAX, ImageHeader, ImageSummary, ImageWriter};
use cell_wal::segment::ImageName;
use cell_wal::{Storage, WalError};

use crate::completion::CompletionTable;
use crate::mutant::{self, Mutant};
use crate::split::{SlotUse, SplitTable};
use crate::touched::TouchedUnits;

pub use filled::FilledNodes;

/// Section of tree nodes.
pub const SECTION_NODES: u16 = 1;
/// Section of extents.
pub const SECTION_EXTENTS: u16 = 2;
/// Section of the completion table.
pub const SECTION_COMPLETIONS: u16 = 3;
/// Section of the root.
pub const SECTION_ROOTS: u16 = 4;
/// Section of the table of splits.
pub const SECTION_SPLITS: u16 = 5;
/// Section of results that came with adoptions that are not open.
pub const SECTION_ADOPTED: u16 = 6;

/// Bytes of an item of nodes or extents before its content.
pub const ITEM_HEADER_BYTES: usize = 8;

/// A block is closed with the item by which it comes to so many bytes. So it has fewer than these and one
/// item more, however many extents a leaf leads to.
const BLOCK_BYTES: usize = 512 << 10;
const TABLE_BLOCK_BYTES: usize = 4 << 20;
/// How often a tree node that a writer keeps changing is tried.
const COPY_COUNT_MAX: u32 = 100_000;

const _: () = assert!(BLOCK_BYTES + ITEM_HEADER_BYTES + (EXTENT_BYTES_MAX as usize) + 8 < BLOCK_BYTES_MAX);
const _: () = assert!(BLOCK_BYTES + ITEM_HEADER_BYTES + NODE_BYTES[3] < BLOCK_BYTES_MAX);
const _: () = assert!(TABLE_BLOCK_BYTES <= BLOCK_BYTES_MAX);

/// What is copied.
pub struct ImageSource {
    /// The pair.
    pub pair: PairId,
    /// Its owner's epoch.
    pub epoch: Epoch,
    /// The node region.
    pub node: Region,
    /// The extent region.
    pub extent: Region,
    /// Sizes.
    pub geometry: Geometry,
    /// The tree nodes that the owner fills.
    pub filled: Arc<FilledNodes>,
}

/// What the owner notes of a pair in the moment in which an image begins.
#[derive(Clone, Debug)]
pub struct ImageBase {
    /// The durable watermark: everything above is replayed.
    pub csn: Csn,
    /// The last CSN that was appended: nothing here is newer.
    pub csn_appended: Csn,
    /// The root, of the pair that keeps it.
    pub root: Root,
    /// The slots in use and what they hold.
    pub slots: Vec<(SlotIndex, SlotUse)>,
    /// The completion table, which is encoded at the end of the copy.
    pub completions: CompletionTable,
    /// Bytes of the table of splits.
    pub splits: Vec<u8>,
    /// Which of its owner's attempts at an image of the pair it is: no two have the same number.
    pub attempt: u32,
}

impl ImageBase {
    /// Notes everything, for the owner's first attempt. Not while the pair builds an adopted meganode: see
    /// point 4 of the module's text.
    #[must_use]
    pub fn capture(
        csn: Csn,
        csn_appended: Csn,
        root: Root,
        completions: &CompletionTable,
        splits: &SplitTable,
    ) -> ImageBase {
        let mut splits_table = Vec::new();
        if mutant::planted(Mutant::BookDropped) {
            SplitTable::new(splits.pair()).encode(&mut splits_table);
        } else {
            splits.encode(&mut splits_table);
        }
        let slots = splits.slots().collect();
        ImageBase {
            csn,
            csn_appended,
            root,
            slots,
            completions: completions.clone(),
            splits: splits_table,
            attempt: 0,
        }
    }

    fn path(&self, source: &ImageSource) -> String {
        let name = ImageName { epoch: source.epoch, base: self.csn, attempt: self.attempt };
        name.path(source.pair)
    }
}

/// Why no image was made. What was written of it is removed; the log has everything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The disk failed or is full.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// A tree node could not be copied however often it was tried.
    #[error("{0} could not be copied: its writer was always at it")]
    Busy(NodeIndex),
    /// A leaf leads to an extent that is not it, and nobody is changing it: memory is damaged.
    #[error("{node} leads to {offset}, which is damaged")]
    Damaged {
        /// The leaf.
        node: NodeIndex,
        /// The extent.
        offset: ExtentOffset,
    },
}

/// A finished image.
#[derive(Clone, Debug)]
pub struct WrittenImage {
    /// Its file, below the log root.
    pub path: String,
    /// The highest CSN in it: it may be recorded once that is durable.
    pub csn_max: Csn,
    /// Sizes.
    pub summary: ImageSummary,
}

/// The geometry bytes of an image's header.
#[must_use]
pub fn encode_geometry(source: &ImageSource) -> Vec<u8> {
    let node_bytes = u32::try_from(source.geometry.node_bytes()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(32);
    bytes.extend_from_slice(&node_bytes.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(source.geometry.slot_bytes() as u64).to_le_bytes());
    bytes.extend_from_slice(&source.node.spec().bytes.to_le_bytes());
    bytes.extend_from_slice(&source.extent.spec().bytes.to_le_bytes());
    bytes
}

/// Copies a living pair into an image, in one go.
///
/// `base` is what the owner noted at the start, and `nodes_end` says how far a slot's nodes go *now*: one
/// above the highest that was ever handed out.
///
/// # Errors
/// See [`ImageError`].
pub fn write_image(
    source: &ImageSource,
    storage: Arc<dyn Storage>,
    level: i32,
    base: ImageBase,
    nodes_end: &dyn Fn(SlotIndex) -> NodeIndex,
) -> Result<WrittenImage, ImageError> {
    let mut copy = ImageCopy::begin(source, storage, level, base)?;
    loop {
        match copy.step(nodes_end, u32::MAX) {
            Ok(true) => {}
            Ok(false) => return copy.finish(),
            Err(error) => {
                copy.abandon();
                return Err(error);
            }
        }
    }
}

/// Items of one section on their way into a block.
struct Block {
    section: u16,
    tag: u64,
    bytes: Vec<u8>,
    items: u32,
}

impl Block {
    fn new(section: u16, tag: u64) -> Block {
        Block { section, tag, bytes: Vec::with_capacity(BLOCK_BYTES * 2), items: 0 }
    }

    fn begin_item(&mut self, place: u32, length: u32) {
        self.bytes.extend_from_slice(&place.to_le_bytes());
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.items += 1;
    }

    fn close(&mut self, writer: &mut ImageWriter, least: usize) -> Result<(), WalError> {
        if self.items > 0 && self.bytes.len() >= least {
            writer.append(self.section, self.tag, self.items, &self.bytes)?;
            self.bytes.clear();
            self.items = 0;
        }
        Ok(())
    }
}

/// An image in progress: a core that is stepped. [`write_image`] steps one to its end.
pub struct ImageCopy<S> {
    source: S,
    base: ImageBase,
    writer: ImageWriter,
    /// Which of the slots is copied.
    at: usize,
    /// Its tree nodes that are still to be copied; none before that begins.
    pass: Option<Range<u32>>,
    /// Those of its leaves that were filled meanwhile, and are to be looked at again.
    again: Vec<NodeIndex>,
    nodes: Block,
    extents: Block,
    /// Where in their region the extents of the image lie.
    touched: TouchedUnits,
    reader: ExtentReader,
    leaf: LeafSnapshot,
    /// Extents of the leaf that is copied now: those that are in the image, or need not be.
    copied: Vec<(ExtentOffset, u64)>,
    words: Vec<u64>,
    csn_max: Csn,
}

impl<S: Borrow<ImageSource>> ImageCopy<S> {
    /// Begins an image; `base` is what the owner notes now.
    ///
    /// # Errors
    /// What the disk says.
    pub fn begin(
        source: S,
        storage: Arc<dyn Storage>,
        level: i32,
        base: ImageBase,
    ) -> Result<ImageCopy<S>, ImageError> {
        let from = source.borrow();
        let path = base.path(from);
        let geometry = encode_geometry(from);
        let header = ImageHeader { pair: from.pair, epoch: from.epoch, base: base.csn, geometry };
        Ok(ImageCopy {
            writer: ImageWriter::create(storage, &path, &header, level)?,
            csn_max: base.csn.max(base.csn_appended),
            base,
            at: 0,
            pass: None,
            again: Vec::new(),
            nodes: Block::new(SECTION_NODES, 0),
            extents: Block::new(SECTION_EXTENTS, 0),
            touched: TouchedUnits::with_header(from.extent.spec().bytes),
            reader: ExtentReader::new(),
            leaf: LeafSnapshot::new(),
            copied: Vec::new(),
            words: vec![0; from.geometry.node_words()],
            source,
        })
    }

    /// Copies up to so many tree nodes, each with its extents. `nodes_end` says how far a slot's nodes go
    /// *now*; `false` when everything is copied.
    ///
    /// # Errors
    /// See [`ImageError`]; the image is lost then: [`ImageCopy::abandon`].
    pub fn step(
        &mut self,
        nodes_end: &dyn Fn(SlotIndex) -> NodeIndex,
        nodes_max: u32,
    ) -> Result<bool, ImageError> {
        let Some((slot, used)) = self.base.slots.get(self.at).copied() else { return Ok(false) };
        let Range { start, end } = self.pass.take().unwrap_or_else(|| {
            // In this order: what is filled from here on is noted, what was filled before lies before the
            // end.
            self.source.borrow().filled.take(slot, &mut self.again);
            self.again.clear();
            0..nodes_end(slot).0
        });
        if start >= end {
            self.pass = Some(end..end);
            return self.look_again(slot, used, nodes_max);
        }
        let to = end.min(start.saturating_add(nodes_max));
        self.nodes.tag = slot.0.into();
        for node in start..to {
            self.copy_node(slot, used, NodeIndex(node), false)?;
        }
        self.pass = Some(to..end);
        Ok(true)
    }

    /// Copies the extents of leaves that were filled since the slot's nodes were copied; when there are none,
    /// the next slot's turn comes. Each look has fewer before it than the last one: what it copies takes a
    /// fraction of the writes that fill a leaf, and with each split the leaves have fewer entries at or below
    /// B.
    fn look_again(&mut self, slot: SlotIndex, used: SlotUse, nodes_max: u32) -> Result<bool, ImageError> {
        if self.again.is_empty() && used != SlotUse::Router {
            self.source.borrow().filled.take(slot, &mut self.again);
        }
        if self.again.is_empty() || mutant::planted(Mutant::FilledNotCopied) {
            // The next slot's nodes go into blocks of their own.
            self.nodes.close(&mut self.writer, 0)?;
            (self.at, self.pass) = (self.at + 1, None);
            return Ok(self.at < self.base.slots.len());
        }
        for _ in 0..nodes_max {
            let Some(node) = self.again.pop() else { break };
            self.copy_node(slot, used, node, true)?;
        }
        Ok(true)
    }

    /// Completes the image.
    ///
    /// # Errors
    /// See [`ImageError`]; there is no image then.
    pub fn finish(mut self) -> Result<WrittenImage, ImageError> {
        if let Err(error) = self.copy_rest() {
            self.abandon();
            return Err(error.into());
        }
        let path = self.base.path(self.source.borrow());
        let csn_max = self.csn_max;
        let summary = self.writer.finish(csn_max)?;
        Ok(WrittenImage { path, csn_max, summary })
    }

    /// Gives the image up and removes what was written of it.
    pub fn abandon(self) {
        if let Err(left) = self.writer.abandon() {
            tracing::warn!(error = %left, "an unfinished image could not be removed");
        }
    }

    fn copy_rest(&mut self) -> Result<(), WalError> {
        self.nodes.close(&mut self.writer, 0)?;
        self.extents.close(&mut self.writer, 0)?;
        let ImageBase { completions, splits, root, .. } = &self.base;
        let (mut table, mut adopted) = (Vec::new(), Vec::new());
        completions.encode(&mut table);
        completions.encode_adopted(&mut adopted);
        let tables = [(SECTION_COMPLETIONS, &table), (SECTION_SPLITS, splits), (SECTION_ADOPTED, &adopted)];
        for (section, bytes) in tables {
            for block in bytes.chunks(TABLE_BLOCK_BYTES) {
                self.writer.append(section, 0, 1, block)?;
            }
        }
        self.writer.append(SECTION_ROOTS, 0, 1, &root.to_word().to_le_bytes())
    }

    /// Copies a node and, if it is a leaf, its extents; or only those. A node that is free, or was handed out
    /// and not filled yet, is left out: what it will be is above B.
    fn copy_node(
        &mut self,
        slot: SlotIndex,
        used: SlotUse,
        node: NodeIndex,
        extents_alone: bool,
    ) -> Result<(), ImageError> {
        self.source.borrow().filled.note_copied();
        self.copied.clear();
        let mut suspect = None;
        for _ in 0..COPY_COUNT_MAX {
            let from = self.source.borrow();
            let there = Slot { region: from.node.spec().id, index: slot };
            let meganode = Meganode::new(&from.node, from.geometry, there);
            let Ok(copy) = meganode.copy_node(node, &mut self.words) else {
                std::thread::yield_now();
                continue;
            };
            let (csn_changed, built) = (copy.csn_changed(), copy.state().is_built());
            let has_entries = used != SlotUse::Router && copy.is_of(MeganodeRole::Data);
            let has_extents = built && has_entries && copy.snapshot_built(&mut self.leaf);
            match if has_extents { self.copy_extents()? } else { None } {
                None => {
                    if built || !mutant::planted(Mutant::FreedNotCounted) {
                        self.csn_max = self.csn_max.max(csn_changed);
                    }
                    if built && !extents_alone {
                        self.nodes.begin_item(node.0, 0);
                        self.nodes.bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
                    }
                    self.nodes.close(&mut self.writer, BLOCK_BYTES)?;
                    return Ok(());
                }
                // An extent may have been replaced and reused; then its leaf has changed. Twice the same leaf
                // with the same extent that is not it is damage.
                Some(offset) if suspect == Some((csn_changed, offset)) => {
                    return Err(ImageError::Damaged { node, offset });
                }
                Some(offset) => suspect = Some((csn_changed, offset)),
            }
        }
        Err(ImageError::Busy(node))
    }

    /// Copies the extents of the leaf snapshot, those that are not in the log above the base; or says which
    /// one is not what the leaf says.
    ///
    /// What was copied before such a one stays copied, and the next attempt at the leaf leaves it out: were
    /// all copied anew, a leaf of large values, one of which is written all the time, would have no end. An
    /// extent that no leaf leads to any more does no harm. It is at or below the base, so it lay in its place
    /// when the image began, or a packing above the base has moved it there. What came there later did so
    /// above the base: replay writes it.
    fn copy_extents(&mut self) -> Result<Option<ExtentOffset>, WalError> {
        let before = self.copied.len();
        let region = &self.source.borrow().extent;
        for (_, entry) in self.leaf.iter() {
            if let Some(shape) = ExtentShape::from_bits(entry.value_len) {
                extent::prefetch(region, entry.offset, shape);
            }
        }
        for (_, entry) in self.leaf.iter() {
            let of_leaf = (entry.offset, entry.crc);
            if self.copied[..before].contains(&of_leaf) {
                continue;
            }
            let Some(shape) = ExtentShape::from_bits(entry.value_len) else { return Ok(Some(entry.offset)) };
            let Ok(view) = self.reader.read(region, entry.offset, shape, entry.crc) else {
                if mutant::planted(Mutant::UnreadCounted) {
                    continue;
                }
                return Ok(Some(entry.offset));
            };
            self.copied.push(of_leaf);
            if view.header.csn > self.base.csn {
                continue;
            }
            let bytes = self.reader.extent();
            let begin = byte_offset(entry.offset);
            self.extents.tag = self.touched.touch_all(begin..begin + u64::from(shape.stored_bytes()));
            self.extents.begin_item(entry.offset.0, shape.extent_bytes());
            self.extents.bytes.extend_from_slice(bytes);
            self.extents.bytes.resize(self.extents.bytes.len().next_multiple_of(8), 0);
            self.extents.close(&mut self.writer, BLOCK_BYTES)?;
        }
        Ok(None)
    }
}
