//! The coordinator's folder: which of its tables counts, and whether there is room to change it.
//!
//! Memory has all of the store, and what is there has been acknowledged or may be. So when the disk was too
//! full for a write, and nobody knows what of it is on stable storage, the table is given up, and another one
//! is built from memory as soon as there is room:
//!
//! ```text
//! 1. the folder of the next table is made and filled, and all of it synced
//! 2. `current` is replaced by a file with its name, and that synced: from here on it counts
//! 3. the table before it is removed
//! ```
//!
//! A crash before 2 leaves the table that failed. It has all that was acknowledged, and perhaps the change at
//! which it failed; nothing has been changed since, so that this one may as well be carried out then.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cell_durable::Syncer;

use crate::error::ClusterError;
use crate::lock::FolderLock;
use crate::providers::room::{Room, RoomLeft};
use crate::providers::sled_table::{self, SledTable};
use crate::providers::store::{Delta, StoreImage, StoreMeta};
use crate::request::CoordinatorRefusal;

/// The first table's folder; later ones have a number after it.
pub(crate) const TABLE: &str = "table";
/// Says which table counts; missing: the first one.
const CURRENT: &str = "current";
/// What replaces it.
const CURRENT_NEW: &str = "current.new";
/// How long to wait before a table is built anew after there was no room for it.
const REBUILD_NS: u64 = 1_000_000_000;

/// See the module's text.
pub(crate) struct StoreFolder {
    path: PathBuf,
    syncer: Arc<dyn Syncer>,
    room: Room,
    /// None: it was given up. After a full disk it is built anew; after any other failure the store stops.
    table: Option<SledTable>,
    /// Of the table that was opened or built last.
    number: u64,
    /// Not before that is a table built.
    rebuild_ns: u64,
    left: RoomLeft,
    _lock: FolderLock,
}

impl StoreFolder {
    /// Opens the table that counts, with what it has; none: nothing yet.
    pub(crate) fn open(
        path: &Path,
        syncer: Arc<dyn Syncer>,
        lock: FolderLock,
    ) -> Result<(StoreFolder, Option<StoreImage>), ClusterError> {
        let failed = |source| ClusterError::Folder { path: path.to_owned(), source };
        let mut room = Room::open(path, syncer.clone()).map_err(failed)?;
        let number = read_current(path).map_err(failed)?;
        let folder = table_folder(path, number);
        let open = || {
            let mut table = SledTable::open(&folder, syncer.clone())?;
            table.load().map(|image| (table, image))
        };
        let (table, image) = match open() {
            Err(error) if error.is_disk_full() => {
                room.give_up().map_err(failed)?;
                open()?
            }
            opened => opened?,
        };
        let mut folder = StoreFolder {
            path: path.to_owned(),
            syncer,
            room,
            table: Some(table),
            number,
            rebuild_ns: 0,
            left: RoomLeft::Enough,
            _lock: lock,
        };
        folder.remove_others();
        Ok((folder, image))
    }

    /// Writes the numbers of a store that has nothing else yet.
    pub(crate) fn begin(&mut self, meta: &StoreMeta) -> Result<(), ClusterError> {
        self.table.as_mut().map_or(Ok(()), |table| table.begin(meta))
    }

    /// Sees to room for a change and says how much there is; builds a table of `image` where there is none.
    ///
    /// # Errors
    /// [`CoordinatorRefusal::NoRoom`]: nothing was changed. After any other one nobody knows what is on
    /// stable storage.
    pub(crate) fn make_ready(
        &mut self,
        now_ns: u64,
        image: impl FnOnce() -> StoreImage,
    ) -> Result<RoomLeft, ClusterError> {
        if self.table.is_none() {
            let has_reserve = self.room.refill(now_ns).map_err(|source| self.failed(source))?;
            if now_ns < self.rebuild_ns || !has_reserve {
                return Err(no_room());
            }
            self.rebuild_ns = now_ns.saturating_add(REBUILD_NS);
            self.rebuild(image()).map_err(|error| if error.is_disk_full() { no_room() } else { error })?;
            tracing::info!(table = self.number, "the coordinator's table is built anew: changes go on");
        }
        let Some(table) = &self.table else { return Err(no_room()) };
        let left = self.room.see_to(table.file(), now_ns).map_err(|source| self.failed(source))?;
        self.report(left);
        if left == RoomLeft::Nothing { Err(no_room()) } else { Ok(left) }
    }

    /// Makes a change durable, for which [`StoreFolder::make_ready`] has seen to room.
    ///
    /// # Errors
    /// [`ClusterError::OutcomeUnknown`]: there was no room for it all the same, and the table is given up.
    pub(crate) fn write(&mut self, delta: &Delta) -> Result<(), ClusterError> {
        let table = self.table.as_mut().ok_or_else(no_room)?;
        match table.write(delta) {
            Err(error) if error.is_disk_full() => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "the coordinator's table is given up and built anew from memory");
                self.table.take().into_iter().for_each(SledTable::abandon);
                self.rebuild_ns = 0;
                Err(ClusterError::OutcomeUnknown(io::ErrorKind::StorageFull.into()))
            }
            Ok(()) => {
                // What goes wrong here shows before the next change.
                let _ = self.room.keep_ahead(table.file());
                Ok(())
            }
            Err(error) => {
                self.table.take().into_iter().for_each(SledTable::abandon);
                Err(error)
            }
        }
    }

    /// See the module's text.
    fn rebuild(&mut self, image: StoreImage) -> Result<(), ClusterError> {
        self.room.give_up().map_err(|source| self.failed(source))?;
        self.number += 1; // never one that `current` may have named
        let folder = table_folder(&self.path, self.number);
        let mut table = SledTable::open(&folder, self.syncer.clone()).inspect_err(|_| give_back(&folder))?;
        if let Err(error) = table.fill(image) {
            table.abandon();
            give_back(&folder);
            return Err(error);
        }
        if let Err(source) = self.write_current() {
            table.abandon();
            give_back(&folder);
            return Err(self.failed(source));
        }
        if let Err(source) = self.syncer.sync_folder(&self.path) {
            table.abandon(); // its folder stays: it may be the one that counts after a power cut
            return Err(self.failed(source));
        }
        self.table = Some(table);
        self.remove_others();
        Ok(())
    }

    /// Has the last table count, once the folder is synced.
    fn write_current(&self) -> io::Result<()> {
        let new = self.path.join(CURRENT_NEW);
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(true).open(&new)?;
        file.write_all(table_name(self.number).as_bytes())?;
        self.syncer.sync_file(&file)?;
        std::fs::rename(&new, self.path.join(CURRENT))
    }

    /// Removes tables that do not count.
    fn remove_others(&mut self) {
        let own = table_name(self.number);
        for entry in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name != own && table_number(name).is_some()) {
                give_back(&entry.path());
            }
        }
    }

    /// Says when the disk becomes full, and when it has room again.
    fn report(&mut self, left: RoomLeft) {
        let before = std::mem::replace(&mut self.left, left);
        match (before, left) {
            (_, RoomLeft::Nothing) if before != left => {
                tracing::error!(
                    "the disk under the coordinator is full: it changes nothing, and renews leases"
                );
            }
            (RoomLeft::Enough, RoomLeft::Reserve) => {
                tracing::warn!(
                    "the disk under the coordinator is full: it lives on its reserve, without new sessions"
                );
            }
            (_, RoomLeft::Enough) if before != left => {
                tracing::info!("the disk under the coordinator has room again");
            }
            _ => {}
        }
    }

    fn failed(&self, source: io::Error) -> ClusterError {
        ClusterError::Folder { path: self.path.clone(), source }
    }
}

impl Drop for StoreFolder {
    /// A disk may have failed since the last change.
    fn drop(&mut self) {
        if let Some(table) = self.table.take()
            && table.file().sync_all().is_err()
        {
            table.abandon();
        }
    }
}

/// Whether a coordinator has its table in this folder.
pub(crate) fn has_table(path: &Path) -> bool {
    read_current(path).is_ok_and(|number| table_folder(path, number).is_dir())
}

fn no_room() -> ClusterError {
    ClusterError::Refused(CoordinatorRefusal::NoRoom)
}

/// Removes a table's folder; one that stays is removed at the next start.
fn give_back(folder: &Path) {
    if let Err(error) = sled_table::remove(folder) {
        tracing::warn!(%error, folder = %folder.display(), "a table that does not count is left over");
    }
}

fn table_name(number: u64) -> String {
    if number == 1 { TABLE.to_owned() } else { format!("{TABLE}-{number}") }
}

fn table_number(name: &str) -> Option<u64> {
    match name.strip_prefix(TABLE)? {
        "" => Some(1),
        rest => rest.strip_prefix('-')?.parse().ok().filter(|number| table_name(*number) == name),
    }
}

fn table_folder(path: &Path, number: u64) -> PathBuf {
    path.join(table_name(number))
}

/// The number of the table that counts.
fn read_current(path: &Path) -> io::Result<u64> {
    match std::fs::read_to_string(path.join(CURRENT)) {
        Ok(name) => {
            let number = table_number(&name).filter(|number| table_folder(path, *number).is_dir());
            number.ok_or_else(|| {
                let what = format!("`{CURRENT}` names a table, `{}`, that is not there", name.escape_debug());
                io::Error::new(io::ErrorKind::InvalidData, what)
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(1),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_number_is_that_of_tables_names_alone() {
        for number in [1, 2, 71] {
            assert_eq!(table_number(&table_name(number)), Some(number));
        }
        for other in ["", "tables", "table-", "table-01", "table-1", "table-x", "current", "reserve"] {
            assert_eq!(table_number(other), None, "{other}");
        }
    }
}
