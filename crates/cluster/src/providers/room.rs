//! Room that the coordinator's table has for itself on a disk that others fill.
//!
//! It is kept in two places:
//!
//! 1. Blocks behind the end of sled's file. What a change makes the file longer by is there already, and
//!    nobody takes it in between: sled never learns that the disk is full, after which it would be of no
//!    use. When sled cuts its file's end off, they are lost with it.
//! 2. A file, `reserve`. A part of it is given up when there is no room for the blocks ahead, and all of it
//!    when a table has to be opened or built and finds no room.
//!
//! Both are filled up as soon as the disk has room again. File systems that keep room for nobody have
//! neither; there a write may fail, and the table is built anew (`store_folder`).

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use cell_durable::Syncer;

use crate::error::is_full;

/// The reserve, in the coordinator's folder.
const RESERVE_FILE: &str = "reserve";
/// How much it is.
const RESERVE_BYTES: u64 = 4 << 20;
/// How much of it is given up at a time. The last part is for the next start.
const PART_BYTES: u64 = 1 << 20;
/// Blocks ahead: more than the largest change makes sled's file longer by.
const AHEAD_BYTES: u64 = 2 << 20;
/// sled's file grows by segments.
const SEGMENT_BYTES: u64 = 512 << 10;
/// Bytes of disk that a coordinator takes before anything is in its table.
pub const COORDINATOR_BYTES_MIN: u64 = RESERVE_BYTES + AHEAD_BYTES + SEGMENT_BYTES;
/// How long the disk is left alone after it was asked for the reserve.
const RETRY_NS: u64 = 1_000_000_000;
/// What a file's blocks are counted in.
const BLOCK_BYTES: u64 = 512;

/// How much room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoomLeft {
    /// Most of what is to be kept.
    Enough,
    /// The disk is full, and less than half of the reserve is left.
    Reserve,
    /// Not even for one change.
    Nothing,
}

/// The room of one coordinator.
pub(crate) struct Room {
    syncer: Arc<dyn Syncer>,
    reserve: File,
    /// The disk is not asked for the reserve before that time.
    due_ns: u64,
    /// The file system keeps room for files.
    is_kept: bool,
}

impl Room {
    /// Of the coordinator with this folder. Nothing is taken yet.
    pub(crate) fn open(folder: &Path, syncer: Arc<dyn Syncer>) -> io::Result<Room> {
        let mut options = OpenOptions::new();
        let reserve = options.write(true).create(true).truncate(false).open(folder.join(RESERVE_FILE))?;
        Ok(Room { syncer, reserve, due_ns: 0, is_kept: true })
    }

    /// Sees to room for a change of sled's file, and for the changes after it.
    pub(crate) fn see_to(&mut self, table: &File, now_ns: u64) -> io::Result<RoomLeft> {
        if !self.keep_ahead(table)? {
            return Ok(RoomLeft::Nothing);
        }
        Ok(if self.refill(now_ns)? { RoomLeft::Enough } else { RoomLeft::Reserve })
    }

    /// Fills the reserve up, as far as the disk has room. Whether most of it is there.
    pub(crate) fn refill(&mut self, now_ns: u64) -> io::Result<bool> {
        self.fill_reserve(now_ns)?;
        Ok(!self.is_kept || kept_bytes(&self.reserve)? >= RESERVE_BYTES / 2)
    }

    /// Gives the whole reserve back to the disk, for something that the caller cannot do without.
    pub(crate) fn give_up(&mut self) -> io::Result<()> {
        self.due_ns = 0;
        self.reserve.set_len(0)
    }

    /// Sees to the blocks ahead alone: after a change, in the course of which sled may have cut them off.
    pub(crate) fn keep_ahead(&mut self, table: &File) -> io::Result<bool> {
        let wanted = table.metadata()?.len().next_multiple_of(SEGMENT_BYTES) + AHEAD_BYTES;
        if kept_bytes(table)? >= wanted {
            return Ok(true);
        }
        while !keep(&*self.syncer, table, wanted)? {
            let held = kept_bytes(&self.reserve)?;
            if held < 2 * PART_BYTES {
                return Ok(false);
            }
            // The next call takes what this one gives: others have no time for it.
            self.reserve.set_len(held.saturating_sub(PART_BYTES))?;
        }
        Ok(true)
    }

    fn fill_reserve(&mut self, now_ns: u64) -> io::Result<()> {
        if kept_bytes(&self.reserve)? >= RESERVE_BYTES || now_ns < self.due_ns {
            return Ok(());
        }
        self.due_ns = now_ns.saturating_add(RETRY_NS);
        // Only what lies before a file's end can be given back in parts.
        self.reserve.set_len(RESERVE_BYTES)?;
        self.is_kept = true;
        match self.syncer.allocate(&self.reserve, RESERVE_BYTES) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                self.is_kept = false;
                Ok(())
            }
            Err(error) if !is_full(&error) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Has the disk keep room for the first bytes of a file. False: it has not so much.
fn keep(syncer: &dyn Syncer, file: &File, bytes: u64) -> io::Result<bool> {
    match syncer.allocate(file, bytes) {
        Ok(()) => Ok(true),
        Err(error) if is_full(&error) => Ok(false),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(true), // nobody knows
        Err(error) => Err(error),
    }
}

fn kept_bytes(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.blocks() * BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A disk on which others leave so many bytes to the two files together.
    struct Tight {
        bytes: AtomicU64,
        files: [File; 2],
    }

    impl Syncer for Tight {
        fn sync_file(&self, _: &File) -> io::Result<()> {
            Ok(())
        }

        fn sync_folder(&self, _: &Path) -> io::Result<()> {
            Ok(())
        }

        fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
            let held: u64 = self.files.iter().map(|file| kept_bytes(file).unwrap()).sum();
            let more = bytes.saturating_sub(kept_bytes(file)?);
            if held + more > self.bytes.load(Ordering::SeqCst) {
                return Err(ErrorKind::StorageFull.into());
            }
            cell_durable::SystemSyncer.allocate(file, bytes)
        }
    }

    #[test]
    fn see_to_takes_parts_of_the_reserve_while_the_disk_is_full_and_fills_it_up_again() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let path = folder.path().join(name);
            OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap()
        };
        let files = [open("table"), open(RESERVE_FILE)];
        let whole = RESERVE_BYTES + AHEAD_BYTES + (64 << 10); // a file's own blocks count, too
        let tight = Arc::new(Tight { bytes: AtomicU64::new(whole), files });
        let mut room = Room::open(folder.path(), tight.clone()).unwrap();
        let table = open("table");
        assert_eq!(room.see_to(&table, 0).unwrap(), RoomLeft::Enough);
        assert!(kept_bytes(&table).unwrap() >= AHEAD_BYTES && table.metadata().unwrap().len() == 0);
        for grown in 1..=(RESERVE_BYTES - PART_BYTES) / SEGMENT_BYTES {
            table.set_len(grown * SEGMENT_BYTES).unwrap();
            let half_left = grown * SEGMENT_BYTES <= RESERVE_BYTES / 2;
            let expected = if half_left { RoomLeft::Enough } else { RoomLeft::Reserve };
            assert_eq!(room.see_to(&table, 0).unwrap(), expected, "{grown}");
            assert!(kept_bytes(&table).unwrap() >= grown * SEGMENT_BYTES + AHEAD_BYTES);
        }
        table.set_len(RESERVE_BYTES - PART_BYTES + 1).unwrap();
        assert_eq!(room.see_to(&table, 0).unwrap(), RoomLeft::Nothing);
        tight.bytes.store(whole + RESERVE_BYTES + SEGMENT_BYTES, Ordering::SeqCst);
        assert_eq!(room.see_to(&table, 0).unwrap(), RoomLeft::Reserve, "the disk was asked a moment ago");
        assert_eq!(room.see_to(&table, RETRY_NS).unwrap(), RoomLeft::Enough);
        assert!(kept_bytes(&room.reserve).unwrap() >= RESERVE_BYTES);
    }
}
