//! Whether the supervisor takes drills: then it has its socket in the data folder, or is an agent of which
//! the node knows. A folder that hangs must not hold the web's one thread, so it is looked at on another
//! one, one look at a time.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::one_look::OneLook;

/// What is known of it.
#[derive(Clone, Default)]
pub(crate) struct DrillPermission {
    folder: Option<PathBuf>,
    has_agent: bool,
    is_given: Arc<AtomicBool>,
    looks: OneLook,
}

impl DrillPermission {
    /// Of the supervisor with this data folder, or of an agent; without either there are none.
    pub(crate) fn new(folder: Option<PathBuf>, has_agent: bool) -> DrillPermission {
        DrillPermission { folder, has_agent, ..DrillPermission::default() }
    }

    /// As it was at the last look.
    pub(crate) fn is_given(&self) -> bool {
        self.has_agent || self.is_given.load(Ordering::Relaxed)
    }

    /// Looks, unless a look is under way.
    pub(crate) async fn look(&self) {
        let Some(folder) = self.folder.clone() else { return };
        let is_given = Arc::clone(&self.is_given);
        let look = move || is_given.store(cell_drill::drill_socket(&folder).exists(), Ordering::Relaxed);
        self.looks.take(look).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn look_follows_the_socket() {
        let folder = tempfile::tempdir().unwrap();
        let permission = DrillPermission::new(Some(folder.path().to_owned()), false);
        permission.look().await;
        assert!(!permission.is_given());
        std::fs::write(cell_drill::drill_socket(folder.path()), "").unwrap();
        assert!(!permission.is_given(), "nobody looked");
        permission.look().await;
        assert!(permission.is_given());
        assert!(DrillPermission::new(None, true).is_given());
    }
}
