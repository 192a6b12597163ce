//! Writes a checkpoint image. It compresses and waits for the disk, so it belongs on a thread of its own, off
//! the commit path.

use std::sync::Arc;

use cell_terms::Csn;

use super::layout::{
    BLOCK_ALIGN, BLOCK_BYTES_MAX, BlockEntry, Codec, ENTRY_BYTES, FILE_ALIGN, FOOTER_BYTES, Footer,
    ImageHeader, ImageSummary,
};
use crate::buffer::LogBuffer;
use crate::check::crc64;
use crate::error::{Errno, WalError};
use crate::frame::read_u64;
use crate::mutant::{Mutant, planted};
use crate::segment::UNFINISHED_SUFFIX;
use crate::storage::{Access, Storage, StorageFile, create_folders, parent};

/// Bytes gathered for one write.
const STAGING_BYTES: usize = 4 << 20;
/// Small images get by with this: larger buffers take longer to clear than such an image to write.
const STAGING_BYTES_FIRST: usize = 256 << 10;
/// A block is stored raw unless compression saves more than one part in so many.
const SAVED_LEAST: usize = 20;

/// A block made ready for an image, perhaps by another thread.
#[derive(Clone, Debug)]
pub struct EncodedBlock {
    bytes: Vec<u8>,
    codec: Codec,
    raw_bytes: u32,
    check: u64,
}

/// Compresses blocks; one a thread.
pub struct BlockEncoder {
    compressor: zstd::bulk::Compressor<'static>,
}

impl BlockEncoder {
    /// An encoder of one zstd level.
    ///
    /// # Panics
    /// If there is no memory for zstd's tables.
    #[must_use]
    pub fn new(level: i32) -> BlockEncoder {
        BlockEncoder {
            compressor: zstd::bulk::Compressor::new(level).expect("zstd finds memory for its tables"),
        }
    }

    /// Compresses and checks a block.
    ///
    /// # Errors
    /// [`WalError::BlockLength`] if it is empty or longer than [`BLOCK_BYTES_MAX`].
    pub fn encode(&mut self, raw: &[u8]) -> Result<EncodedBlock, WalError> {
        let wrong = WalError::BlockLength { bytes: raw.len(), max: BLOCK_BYTES_MAX };
        if raw.is_empty() || raw.len() > BLOCK_BYTES_MAX {
            return Err(wrong);
        }
        let raw_bytes = u32::try_from(raw.len()).map_err(|_| wrong)?;
        // What does not shrink, or what zstd will not take, is stored as it is.
        let limit = raw.len() - raw.len() / SAVED_LEAST;
        let compressed = self.compressor.compress(raw).ok().filter(|bytes| bytes.len() < limit);
        let (bytes, codec) = match compressed {
            Some(bytes) => (bytes, Codec::Zstd),
            None => (raw.to_vec(), Codec::Raw),
        };
        let check = crc64(&bytes);
        Ok(EncodedBlock { bytes, codec, raw_bytes, check })
    }
}

/// Streams an image to its file. Nothing has the final name before [`ImageWriter::finish`] has synced it.
pub struct ImageWriter {
    storage: Arc<dyn Storage>,
    path: String,
    path_writing: String,
    file: Box<dyn StorageFile>,
    encoder: BlockEncoder,
    staging: LogBuffer,
    staged: usize,
    /// Bytes already written to the file.
    written: u64,
    header_check: u64,
    index: Vec<BlockEntry>,
    summary: ImageSummary,
}

impl ImageWriter {
    /// Begins an image; its folder is made if need be. Never under a name that may be recorded already.
    ///
    /// # Errors
    /// What the disk says.
    ///
    /// # Panics
    /// If the geometry is too long.
    pub fn create(
        storage: Arc<dyn Storage>,
        path: &str,
        header: &ImageHeader,
        level: i32,
    ) -> Result<ImageWriter, WalError> {
        create_folders(&*storage, parent(path))?;
        let path_writing = format!("{path}{UNFINISHED_SUFFIX}");
        match storage.unlink(&path_writing) {
            Err(error) if error.errno != Errno::ENOENT => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
        let file = storage.open(&path_writing, Access::CreateDirect)?;
        let mut writer = ImageWriter {
            storage,
            path: path.to_owned(),
            path_writing,
            file,
            encoder: BlockEncoder::new(level),
            staging: LogBuffer::heap(STAGING_BYTES_FIRST),
            staged: 0,
            written: 0,
            header_check: 0,
            index: Vec::new(),
            summary: ImageSummary::default(),
        };
        let header = header.encode();
        writer.header_check = read_u64(&header, header.len() - 8);
        writer.put(&header)?;
        Ok(writer)
    }

    /// Appends a block. Its order in the file is the order of the calls.
    ///
    /// # Errors
    /// [`WalError::BlockLength`], or what the disk says; the image is lost then.
    pub fn append(&mut self, section: u16, tag: u64, items: u32, raw: &[u8]) -> Result<(), WalError> {
        let block = self.encoder.encode(raw)?;
        self.append_encoded(section, tag, items, &block)
    }

    /// Appends a block that a [`BlockEncoder`] has made ready.
    ///
    /// # Errors
    /// What the disk says; the image is lost then.
    pub fn append_encoded(
        &mut self,
        section: u16,
        tag: u64,
        items: u32,
        block: &EncodedBlock,
    ) -> Result<(), WalError> {
        self.pad(BLOCK_ALIGN)?;
        let entry = BlockEntry {
            offset: self.position(),
            stored_bytes: u32::try_from(block.bytes.len()).expect("a block's length is limited"),
            raw_bytes: block.raw_bytes,
            section,
            codec: block.codec,
            items,
            tag,
            check: block.check,
        };
        self.put(&block.bytes)?;
        self.summary.blocks = self.summary.blocks.checked_add(1).expect("an image has less than 2^32 blocks");
        self.summary.items += u64::from(items);
        self.summary.raw_bytes += u64::from(block.raw_bytes);
        self.summary.stored_bytes += u64::from(entry.stored_bytes);
        self.index.push(entry);
        Ok(())
    }

    /// Bytes of blocks so far: in memory and in the file.
    #[must_use]
    pub const fn progress(&self) -> (u64, u64) {
        (self.summary.raw_bytes, self.summary.stored_bytes)
    }

    /// Completes the image: index and footer, sync, rename, folder sync. `csn_max` is the highest CSN in it;
    /// the checkpoint may be recorded only once the durable watermark has passed that.
    ///
    /// # Errors
    /// What the disk says; there is no image then, and what was written of it is removed.
    pub fn finish(mut self, csn_max: Csn) -> Result<ImageSummary, WalError> {
        let finished = self.complete(csn_max);
        if finished.is_err() {
            // On a full disk its room is needed. The first failure is the one that counts.
            let _ = self.storage.unlink(&self.path_writing);
        }
        finished
    }

    fn complete(&mut self, csn_max: Csn) -> Result<ImageSummary, WalError> {
        self.pad(BLOCK_ALIGN)?;
        let index_offset = self.position();
        let mut index = vec![0; self.index.len() * ENTRY_BYTES];
        for (entry, bytes) in self.index.iter().zip(index.chunks_exact_mut(ENTRY_BYTES)) {
            entry.encode(bytes);
        }
        self.put(&index)?;
        let end = self.position() + FOOTER_BYTES as u64;
        let file_bytes = end.next_multiple_of(FILE_ALIGN as u64);
        self.put_zeros(crate::check::index(file_bytes - end))?;
        self.summary.file_bytes = file_bytes;
        self.summary.csn_max = csn_max;
        let footer = Footer {
            summary: self.summary,
            index_offset,
            header_check: self.header_check,
            index_check: crc64(&index),
        };
        self.put(&footer.encode())?;
        self.flush()?;
        if !planted(Mutant::SkipImageSync) {
            self.file.sync()?;
        }
        self.storage.rename(&self.path_writing, &self.path)?;
        self.storage.sync_folder(parent(&self.path))?;
        Ok(self.summary)
    }

    /// Gives an unfinished image up and removes its file.
    ///
    /// # Errors
    /// What the disk says; the file is then removed by the next image of this name, or with its folder.
    pub fn abandon(self) -> Result<(), WalError> {
        Ok(self.storage.unlink(&self.path_writing)?)
    }

    fn position(&self) -> u64 {
        self.written + self.staged as u64
    }

    fn pad(&mut self, align: usize) -> Result<(), WalError> {
        let position = self.position();
        self.put_zeros(crate::check::index(position.next_multiple_of(align as u64) - position))
    }

    fn put_zeros(&mut self, count: usize) -> Result<(), WalError> {
        const ZEROS: [u8; FILE_ALIGN] = [0; FILE_ALIGN];
        self.put(&ZEROS[..count])
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), WalError> {
        while !bytes.is_empty() {
            let room = self.staging.bytes().len();
            let count = bytes.len().min(room - self.staged);
            self.staging.bytes_mut()[self.staged..self.staged + count].copy_from_slice(&bytes[..count]);
            self.staged += count;
            bytes = &bytes[count..];
            if self.staged == room {
                self.flush()?;
                if room < STAGING_BYTES {
                    self.staging = LogBuffer::heap(STAGING_BYTES);
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), WalError> {
        if self.staged > 0 {
            self.file.write_at(self.written, &self.staging.bytes()[..self.staged])?;
            self.written += self.staged as u64;
            self.staged = 0;
        }
        Ok(())
    }
}
