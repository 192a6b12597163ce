//! Which processes the operators are to start, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crate::nodes_wanted::NodesWanted;

/// What the operators are about.
#[derive(Debug, Default)]
pub(crate) struct Operators {
    /// Hosts on which a process is to be started, and when.
    pub(crate) due: Vec<(u32, u64)>,
    /// The host whose process ended last.
    pub(crate) last: Option<u32>,
    /// Nobody starts anything before this time.
    pub(crate) idle_until_ns: u64,
    /// How the next process to take something over dies in it, if it does.
    pub(crate) fuse: Option<(u64, bool)>,
    /// Which nodes there are to be.
    pub(crate) wanted: NodesWanted,
    /// The host on which the log root is not mounted.
    pub(crate) unmounted: Option<u32>,
    /// Pairs that nodes are about to create, all of them together. One whose node died first stays here: its
    /// row may still come.
    pub(crate) pairs_coming: Arc<AtomicUsize>,
    /// The next creation of a pair is to be broken off once its row is there.
    pub(crate) breaks_creation: Arc<AtomicBool>,
}

impl Operators {
    /// When something is to be started.
    pub(crate) fn due_ns(&self) -> u64 {
        self.due.iter().map(|(_, due_ns)| *due_ns).min().unwrap_or(u64::MAX)
    }

    /// A host's process has ended.
    pub(crate) fn ended(&mut self, host: u32) {
        self.last = Some(host);
    }

    /// Nobody starts anything for a while.
    pub(crate) fn rest(&mut self, until_ns: u64) {
        self.idle_until_ns = self.idle_until_ns.max(until_ns);
    }
}
