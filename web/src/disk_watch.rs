//! How much room the file system of the log root has. A disk that hangs must not hold the web's one
//! thread, so it is asked on another one, by one question at a time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::now;
use crate::one_look::OneLook;

/// What was seen longer ago says nothing of now.
const OLD: Duration = Duration::from_secs(30);

/// Room of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskRoom {
    /// What who is not root can still write.
    pub(crate) free_bytes: u64,
    pub(crate) all_bytes: u64,
}

/// See the module's text.
pub(crate) struct DiskWatch {
    folder: Option<PathBuf>,
    looks: OneLook,
    /// The last answer, and when it came.
    last: Arc<Mutex<Option<(Instant, DiskRoom)>>>,
}

impl DiskWatch {
    /// Of the file system of a log root; without one nothing is known.
    pub(crate) fn new(folder: Option<PathBuf>) -> DiskWatch {
        DiskWatch { folder, looks: OneLook::default(), last: Arc::default() }
    }

    /// Looks, unless a look is under way.
    pub(crate) async fn look(&self) {
        let Some(folder) = self.folder.clone() else { return };
        let last = Arc::clone(&self.last);
        let look = move || match room(&folder) {
            Ok(room) => *lock(&last) = Some((now(), room)),
            Err(error) => tracing::debug!(%error, "the disk does not say how much room it has"),
        };
        self.looks.take(look).await;
    }

    /// As of the last look, unless that was long ago.
    pub(crate) fn room(&self) -> Option<DiskRoom> {
        let (at, room) = (*lock(&self.last))?;
        (now().saturating_duration_since(at) < OLD).then_some(room)
    }
}

fn room(folder: &Path) -> rustix::io::Result<DiskRoom> {
    let found = rustix::fs::statvfs(folder)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(DiskRoom { free_bytes: bytes(found.f_bavail), all_bytes: bytes(found.f_blocks) })
}

fn lock(last: &Mutex<Option<(Instant, DiskRoom)>>) -> MutexGuard<'_, Option<(Instant, DiskRoom)>> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn look_finds_the_room_and_a_folder_that_is_gone_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let watch = DiskWatch::new(Some(folder.path().to_owned()));
        assert_eq!(watch.room(), None, "nobody looked");
        watch.look().await;
        let room = watch.room().unwrap();
        assert!(0 < room.all_bytes && room.free_bytes <= room.all_bytes, "{room:?}");
        folder.close().unwrap();
        watch.look().await;
        assert_eq!(watch.room(), Some(room));
        *lock(&watch.last) = now().checked_sub(OLD).map(|long_ago| (long_ago, room));
        assert_eq!(watch.room(), None);
    }
}
