//! Reading a log's segments in large sequential pieces, on the caller's thread or ahead of it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use crate::buffer::LogBuffer;
use crate::error::{DiskOperation, Errno, StorageError};
use crate::segment::LogName;
use crate::storage::{Access, Storage, StorageFile};

/// A piece of a segment.
pub(crate) struct Chunk {
    pub(crate) generation: u32,
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// How many bytes of the buffer count.
    pub(crate) length: usize,
    /// The file's length.
    pub(crate) file_bytes: u64,
    pub(crate) buffer: LogBuffer,
}

impl Chunk {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer.bytes()[..self.length]
    }

    pub(crate) fn end(&self) -> u64 {
        self.offset + self.length as u64
    }
}

/// Chunks of a log, segment after segment. A segment without a byte yields one empty chunk.
pub(crate) trait ChunkSource {
    fn next(&mut self, used: Option<LogBuffer>) -> Result<Option<Chunk>, StorageError>;
}

/// Reads when asked.
pub(crate) struct DirectSource {
    storage: Arc<dyn Storage>,
    log: LogName,
    generations: std::vec::IntoIter<u32>,
    open: Option<(u32, u64, Box<dyn StorageFile>)>,
    offset: u64,
    /// Where the first segment is read from.
    first_offset: u64,
    /// The next chunk's bytes; each is twice as long as the one before, up to `chunk_bytes`.
    next_bytes: usize,
    chunk_bytes: usize,
}

/// The first piece that is read of what may have come to a log.
const TAIL_BYTES: usize = 64 << 10;

impl DirectSource {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        log: LogName,
        generations: Vec<u32>,
        chunk_bytes: usize,
    ) -> DirectSource {
        DirectSource {
            storage,
            log,
            generations: generations.into_iter(),
            open: None,
            offset: 0,
            first_offset: 0,
            next_bytes: chunk_bytes,
            chunk_bytes,
        }
    }

    /// The same for a log that is followed, of which there is mostly little new: behind that is what was
    /// prepared, which took the disk's time from the log's owner.
    pub(crate) fn of_tail(self) -> DirectSource {
        DirectSource { next_bytes: self.chunk_bytes.min(TAIL_BYTES), ..self }
    }

    /// The same, from this offset in the first segment on.
    pub(crate) fn from(self, first_offset: u64) -> DirectSource {
        DirectSource { first_offset, ..self }
    }

    fn read(&mut self, used: Option<LogBuffer>) -> Result<Option<Chunk>, StorageError> {
        let Some((generation, file_bytes, file)) = &self.open else { return Ok(None) };
        let bytes = self.next_bytes;
        self.next_bytes = bytes.saturating_mul(2).min(self.chunk_bytes);
        let fitting = used.filter(|buffer| buffer.capacity() == bytes);
        let mut buffer = fitting.unwrap_or_else(|| LogBuffer::heap(bytes));
        let length = file.read_at(self.offset, &mut buffer.bytes_mut()[..bytes])?;
        let (generation, file_bytes) = (*generation, *file_bytes);
        let chunk = Chunk { generation, offset: self.offset, length, file_bytes, buffer };
        self.offset = chunk.end();
        if length < bytes || self.offset >= file_bytes {
            self.open = None;
        }
        Ok(Some(chunk))
    }
}

impl ChunkSource for DirectSource {
    fn next(&mut self, used: Option<LogBuffer>) -> Result<Option<Chunk>, StorageError> {
        if self.open.is_none() {
            let Some(generation) = self.generations.next() else { return Ok(None) };
            let file = self.storage.open(&self.log.segment(generation).path(), Access::ReadDirect)?;
            let file_bytes = file.length()?;
            self.open = Some((generation, file_bytes, file));
            self.offset = std::mem::take(&mut self.first_offset);
        }
        self.read(used)
    }
}

/// How many chunks a reading thread may be ahead.
const CHUNKS_AHEAD: usize = 2;

/// Reads on a thread of its own, a few chunks ahead. The thread ends when this is dropped.
pub(crate) struct ReadAhead {
    chunks: Receiver<Result<Chunk, StorageError>>,
    used: Sender<LogBuffer>,
}

impl ReadAhead {
    /// Starts the thread.
    pub(crate) fn start(source: DirectSource) -> Result<ReadAhead, StorageError> {
        let (chunk_sender, chunks) = sync_channel(CHUNKS_AHEAD);
        let (used, used_receiver) = channel();
        let folder = source.log.folder();
        std::thread::Builder::new()
            .name("cell-log-read".to_owned())
            .spawn(move || read_ahead(source, &chunk_sender, &used_receiver))
            .map_err(|error| StorageError::new(DiskOperation::Read, &folder, Errno::of(&error)))?;
        Ok(ReadAhead { chunks, used })
    }
}

fn read_ahead(
    mut source: DirectSource,
    chunks: &SyncSender<Result<Chunk, StorageError>>,
    used: &Receiver<LogBuffer>,
) {
    while let Some(chunk) = source.next(used.try_recv().ok()).transpose() {
        let failed = chunk.is_err();
        if chunks.send(chunk).is_err() || failed {
            return;
        }
    }
}

impl ChunkSource for ReadAhead {
    fn next(&mut self, used: Option<LogBuffer>) -> Result<Option<Chunk>, StorageError> {
        if let Some(buffer) = used {
            let _ = self.used.send(buffer); // the thread may have ended: then nobody needs it
        }
        self.chunks.recv().ok().transpose()
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::{Epoch, RegionId};

    use super::*;
    use crate::sim::SimDisk;
    use crate::storage::create_folders;

    /// A round of a copy that had caught up read 4 MiB of each log that nothing was written to yet.
    #[test]
    fn tail_of_a_log_is_read_in_pieces_that_double_up_to_a_chunk() {
        let (disk, log) = (SimDisk::new(1).process(), LogName { region: RegionId(2), epoch: Epoch(1) });
        create_folders(&disk, &log.folder()).unwrap();
        let file = disk.open(&log.segment(0).path(), Access::Create).unwrap();
        file.write_at(0, &vec![7; 1 << 20]).unwrap();
        let pieces = |chunk_bytes: usize| {
            let source = DirectSource::new(Arc::new(disk.clone()), log, vec![0], chunk_bytes);
            let mut source = source.from(4096).of_tail();
            let (mut pieces, mut used) = (Vec::new(), None);
            while let Some(chunk) = source.next(used).unwrap() {
                assert!(chunk.bytes().iter().all(|byte| *byte == 7));
                pieces.push((chunk.offset, chunk.length));
                used = Some(chunk.buffer);
            }
            pieces
        };
        let lengths: Vec<_> = pieces(4 << 20).iter().map(|(_, length)| length >> 10).collect();
        assert_eq!(lengths, [64, 128, 256, 512, 60]);
        assert_eq!(pieces(256 << 10).iter().map(|(_, length)| length >> 10).max(), Some(256));
        assert_eq!(pieces(4096).first(), Some(&(4096, 4096)));
        let read: usize = pieces(256 << 10).iter().map(|(_, length)| length).sum();
        assert_eq!(read, (1 << 20) - 4096);
    }
}
