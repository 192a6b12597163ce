//! Loading a checkpoint image: its header against the table, then its blocks into the lanes.
//!
//! Blocks are independent of one another (each item names its place), so several threads may read, check and
//! decompress them at once, in any order. Only the few blocks of completion table, splits and root wait until
//! the end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use cell_cluster::{CheckpointRow, PairRow};
use cell_memory::HEADER_BYTES;
use cell_terms::{Root, SlotIndex};
use cell_wal::Storage;
use cell_wal::image::{BlockBuffer, ImageReader};

use crate::completion::CompletionTable;
use crate::content::decode_geometry;
use crate::error::{ContentFault, RecoveryError};
use crate::image::{
    ITEM_HEADER_BYTES, SECTION_ADOPTED, SECTION_COMPLETIONS, SECTION_EXTENTS, SECTION_NODES, SECTION_ROOTS,
    SECTION_SPLITS,
};
use crate::lane::Lane;
use crate::progress::Progress;
use crate::replay::{ExtentApplier, ImageBlock, ImageSource, Kept, NodeApplier, Work};
use crate::split::SplitTable;
use crate::touched::UNIT_BYTES;

/// An image that was found to be the one that the table names.
pub(crate) struct Load {
    image: ImageReader,
    path: Box<str>,
    block_next: usize,
    buffer: BlockBuffer,
    /// Blocks of completions, splits and roots, by number.
    kept: Vec<(usize, Vec<u8>)>,
}

impl Load {
    pub(crate) fn open(
        storage: &dyn Storage,
        row: &PairRow,
        checkpoint: &CheckpointRow,
    ) -> Result<Load, RecoveryError> {
        let image = ImageReader::open(storage, &checkpoint.file)?;
        let path: Box<str> = checkpoint.file.as_str().into();
        let refuse = |why| RecoveryError::Content { path: path.clone(), why };
        let header = image.header();
        let same = header.pair == row.pair
            && header.epoch == checkpoint.epoch
            && header.base == checkpoint.csn
            && image.summary().csn_max == checkpoint.csn_max;
        if !same {
            return Err(refuse(ContentFault::Header));
        }
        if decode_geometry(&header.geometry) != Some(row.geometry) {
            return Err(refuse(ContentFault::Geometry));
        }
        Ok(Load { image, path, block_next: 0, buffer: BlockBuffer::default(), kept: Vec::new() })
    }

    pub(crate) fn source(&self) -> ImageSource {
        ImageSource { path: self.path.clone(), csn_max: self.image.summary().csn_max }
    }

    /// Bytes that will be read.
    pub(crate) fn bytes(&self) -> u64 {
        self.image.summary().stored_bytes
    }

    /// Bytes that the pair's regions take at least, once all of it is loaded: what its tree nodes and extents
    /// lie in.
    pub(crate) fn region_bytes(&self) -> u64 {
        let (mut node_bytes, mut extent_units) = (HEADER_BYTES, 1);
        for block in self.image.blocks() {
            let heads = u64::from(block.items) * ITEM_HEADER_BYTES as u64;
            match block.section {
                SECTION_NODES => node_bytes += u64::from(block.raw_bytes).saturating_sub(heads),
                SECTION_EXTENTS => extent_units = block.tag.max(extent_units),
                _ => {}
            }
        }
        let node_units = node_bytes.div_ceil(UNIT_BYTES);
        node_units.saturating_add(extent_units).saturating_mul(UNIT_BYTES)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.block_next >= self.image.blocks().len()
    }

    /// Loads the next block; `false` once there is none.
    pub(crate) fn step(
        &mut self,
        node: &mut Lane<NodeApplier>,
        extent: &mut Lane<ExtentApplier>,
        progress: &Progress,
    ) -> Result<bool, RecoveryError> {
        let number = self.block_next;
        let Some(entry) = self.image.blocks().get(number).copied() else { return Ok(false) };
        let bytes = self.image.read(number, &mut self.buffer)?.to_vec();
        self.block_next += 1;
        progress.read(entry.stored_bytes.into());
        if is_kept(entry.section) {
            self.kept.push((number, bytes));
            return Ok(true);
        }
        give(&self.image, &self.path, number, bytes, node, extent)?;
        Ok(true)
    }

    /// Loads everything that is left, `threads` blocks at a time.
    pub(crate) fn run(
        &mut self,
        threads: usize,
        node: &mut Lane<NodeApplier>,
        extent: &mut Lane<ExtentApplier>,
        progress: &Progress,
    ) -> Result<(), RecoveryError> {
        if threads <= 1 {
            while self.step(node, extent, progress)? {}
            return Ok(());
        }
        let next = AtomicUsize::new(self.block_next);
        let image = &self.image;
        let (send, receive) = sync_channel(threads);
        let mut blocks = Vec::new();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let (send, next) = (send.clone(), &next);
                scope.spawn(move || {
                    let mut buffer = BlockBuffer::default();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= image.blocks().len() {
                            return;
                        }
                        let block = image.read(number, &mut buffer).map(|bytes| (number, bytes.to_vec()));
                        if send.send(block).is_err() {
                            return; // somebody failed
                        }
                    }
                });
            }
            drop(send);
            // Ends when every reader has; `receive` goes with an early return, which ends the readers.
            for block in receive {
                let (number, bytes) = block?;
                progress.read(image.blocks()[number].stored_bytes.into());
                if is_kept(image.blocks()[number].section) {
                    blocks.push((number, bytes));
                } else {
                    give(image, &self.path, number, bytes, node, extent)?;
                }
            }
            Ok::<(), RecoveryError>(())
        })?;
        self.kept.append(&mut blocks);
        self.block_next = self.image.blocks().len();
        Ok(())
    }

    /// What is not items, once everything is loaded.
    pub(crate) fn finish(mut self) -> Result<Kept, RecoveryError> {
        let refuse = |why| RecoveryError::Content { path: self.path.clone(), why };
        self.kept.sort_unstable_by_key(|(number, _)| *number);
        let (mut table, mut adopted, mut splits_table) = (Vec::new(), Vec::new(), Vec::new());
        let mut root = Root::NONE;
        for (number, bytes) in &self.kept {
            match self.image.blocks()[*number].section {
                SECTION_COMPLETIONS => table.extend_from_slice(bytes),
                SECTION_ADOPTED => adopted.extend_from_slice(bytes),
                SECTION_SPLITS => splits_table.extend_from_slice(bytes),
                _ => {
                    let word = bytes
                        .as_slice()
                        .try_into()
                        .map_err(|_| refuse(ContentFault::Block(block_number(*number))))?;
                    root = Root::from_word(u64::from_le_bytes(word));
                }
            }
        }
        let completions =
            CompletionTable::decode(&table, &adopted).map_err(|_| refuse(ContentFault::Completions))?;
        let splits = SplitTable::decode(&splits_table)
            .ok()
            .filter(|splits_table| splits_table.pair() == self.image.header().pair);
        Ok(Kept { completions, splits: splits.ok_or_else(|| refuse(ContentFault::Splits))?, root })
    }
}

fn is_kept(section: u16) -> bool {
    matches!(section, SECTION_COMPLETIONS | SECTION_ROOTS | SECTION_SPLITS | SECTION_ADOPTED)
}

fn block_number(block: usize) -> u32 {
    u32::try_from(block).expect("an image has less than 2^32 blocks")
}

fn give(
    image: &ImageReader,
    path: &str,
    block: usize,
    bytes: Vec<u8>,
    node: &mut Lane<NodeApplier>,
    extent: &mut Lane<ExtentApplier>,
) -> Result<(), RecoveryError> {
    let number = block_number(block);
    let entry = &image.blocks()[block];
    let refuse = |why| RecoveryError::Content { path: path.into(), why };
    let slot = u32::try_from(entry.tag).map_err(|_| refuse(ContentFault::Block(number)))?;
    let work = Work::Image(ImageBlock { number, slot: SlotIndex(slot), bytes });
    match entry.section {
        SECTION_NODES => node.put(work).map(|_| ()),
        SECTION_EXTENTS => extent.put(work).map(|_| ()),
        _ => Err(refuse(ContentFault::Section(number))),
    }
}
