//! Reads a checkpoint image: the index first, then blocks in any order, by several threads at once.

use super::ImageFault;
use super::layout::{
    BlockEntry, Codec, ENTRY_BYTES, FILE_ALIGN, FOOTER_BYTES, Footer, HEADER_BYTES, ImageHeader, ImageSummary,
};
use crate::buffer::LogBuffer;
use crate::check::{crc64, index};
use crate::error::WalError;
use crate::storage::{Access, Storage, StorageFile};

/// An image whose header, index and footer are sound. Blocks are checked as they are read.
pub struct ImageReader {
    path: Box<str>,
    file: Box<dyn StorageFile>,
    header: ImageHeader,
    summary: ImageSummary,
    blocks: Vec<BlockEntry>,
}

/// Memory that blocks are read into; one a thread.
pub struct BlockBuffer {
    stored: LogBuffer,
    raw: Vec<u8>,
    decompressor: zstd::bulk::Decompressor<'static>,
}

impl Default for BlockBuffer {
    fn default() -> BlockBuffer {
        BlockBuffer {
            stored: LogBuffer::heap(FILE_ALIGN),
            raw: Vec::new(),
            decompressor: zstd::bulk::Decompressor::new().expect("zstd finds memory for its tables"),
        }
    }
}

impl ImageReader {
    /// Opens an image and checks that it is whole.
    ///
    /// # Errors
    /// [`WalError::Image`] if it must not be used, or what the disk says.
    pub fn open(storage: &dyn Storage, path: &str) -> Result<ImageReader, WalError> {
        let refuse = |why| WalError::Image { path: path.into(), why };
        let file = storage.open(path, Access::ReadDirect)?;
        let file_bytes = file.length()?;
        let mut buffer = LogBuffer::heap(HEADER_BYTES);
        let header_bytes = read(&*file, &mut buffer, 0, HEADER_BYTES).map_err(|e| e.refused(path))?;
        let (header, header_check) = ImageHeader::decode(header_bytes).map_err(refuse)?;
        let least = (HEADER_BYTES + FILE_ALIGN) as u64;
        if file_bytes < least || !file_bytes.is_multiple_of(FILE_ALIGN as u64) {
            return Err(refuse(ImageFault::Truncated));
        }
        let at = file_bytes - FOOTER_BYTES as u64;
        let bytes = read(&*file, &mut buffer, at, FOOTER_BYTES).map_err(|e| e.refused(path))?;
        let footer = Footer::decode(bytes).map_err(refuse)?;
        let index_bytes = u64::from(footer.summary.blocks) * ENTRY_BYTES as u64;
        let index_end = footer.index_offset.checked_add(index_bytes);
        let sound = footer.header_check == header_check && footer.summary.file_bytes == file_bytes;
        if !sound || index_end.is_none_or(|end| end > at) {
            return Err(refuse(ImageFault::Contradiction));
        }
        let index_length = index(index_bytes);
        let bytes =
            read(&*file, &mut buffer, footer.index_offset, index_length).map_err(|e| e.refused(path))?;
        if crc64(bytes) != footer.index_check {
            return Err(refuse(ImageFault::IndexCheck));
        }
        let blocks = decode_index(bytes, &footer).map_err(refuse)?;
        Ok(ImageReader { path: path.into(), file, header, summary: footer.summary, blocks })
    }

    /// Whose image it is. The caller compares pair, epoch and base with the region table.
    #[must_use]
    pub const fn header(&self) -> &ImageHeader {
        &self.header
    }

    /// What it holds.
    #[must_use]
    pub const fn summary(&self) -> &ImageSummary {
        &self.summary
    }

    /// The blocks, in file order.
    #[must_use]
    pub fn blocks(&self) -> &[BlockEntry] {
        &self.blocks
    }

    /// Reads, checks and decompresses a block. Several threads may read at once, each with its own buffer.
    ///
    /// # Errors
    /// [`WalError::Image`] if it is damaged, or what the disk says.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn read<'b>(&self, block: usize, buffer: &'b mut BlockBuffer) -> Result<&'b [u8], WalError> {
        let number = u32::try_from(block).expect("an image has less than 2^32 blocks");
        let refuse = |why| WalError::Image { path: self.path.clone(), why };
        let entry = &self.blocks[block];
        let length = index(u64::from(entry.stored_bytes));
        let stored = read(&*self.file, &mut buffer.stored, entry.offset, length);
        let stored = stored.map_err(|error| error.refused(&self.path))?;
        if crc64(stored) != entry.check {
            return Err(refuse(ImageFault::BlockCheck(number)));
        }
        if entry.codec == Codec::Raw {
            return Ok(stored);
        }
        let raw_bytes = index(u64::from(entry.raw_bytes));
        buffer.raw.resize(raw_bytes, 0);
        let decoded = buffer.decompressor.decompress_to_buffer(stored, &mut buffer.raw[..raw_bytes]);
        if decoded.ok() != Some(raw_bytes) {
            return Err(refuse(ImageFault::BlockDecode(number)));
        }
        Ok(&buffer.raw[..raw_bytes])
    }
}

fn decode_index(bytes: &[u8], footer: &Footer) -> Result<Vec<BlockEntry>, ImageFault> {
    let mut blocks = Vec::with_capacity(bytes.len() / ENTRY_BYTES);
    let mut sum = ImageSummary {
        file_bytes: footer.summary.file_bytes,
        csn_max: footer.summary.csn_max,
        ..ImageSummary::default()
    };
    let mut end = HEADER_BYTES as u64;
    for entry in bytes.chunks_exact(ENTRY_BYTES) {
        let block = BlockEntry::decode(entry)?;
        if block.offset < end {
            return Err(ImageFault::Contradiction);
        }
        end = block.offset.checked_add(u64::from(block.stored_bytes)).ok_or(ImageFault::Contradiction)?;
        sum.blocks += 1;
        sum.items += u64::from(block.items);
        sum.raw_bytes += u64::from(block.raw_bytes);
        sum.stored_bytes += u64::from(block.stored_bytes);
        blocks.push(block);
    }
    if end > footer.index_offset || sum != footer.summary {
        return Err(ImageFault::Contradiction);
    }
    Ok(blocks)
}

enum ReadFault {
    Disk(WalError),
    Truncated,
}

impl ReadFault {
    fn refused(self, path: &str) -> WalError {
        match self {
            ReadFault::Disk(error) => error,
            ReadFault::Truncated => WalError::Image { path: path.into(), why: ImageFault::Truncated },
        }
    }
}

/// Reads any range through an aligned buffer that grows when need be.
fn read<'b>(
    file: &dyn StorageFile,
    buffer: &'b mut LogBuffer,
    offset: u64,
    length: usize,
) -> Result<&'b [u8], ReadFault> {
    let align = FILE_ALIGN as u64;
    let begin = offset - offset % align;
    let skip = index(offset - begin);
    let span = (skip + length).next_multiple_of(FILE_ALIGN);
    if span > buffer.capacity() {
        *buffer = LogBuffer::heap(span.next_power_of_two());
    }
    let count = file.read_at(begin, &mut buffer.bytes_mut()[..span]);
    let count = count.map_err(|error| ReadFault::Disk(error.into()))?;
    if count < skip + length {
        return Err(ReadFault::Truncated);
    }
    Ok(&buffer.bytes()[skip..skip + length])
}
