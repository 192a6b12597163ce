//! Who may read this host's memory one-sided over a transport on which the kernel does not say who asks.

use std::fmt::Debug;

/// What an endpoint asks about its readers, on the thread that serves them.
pub trait ReadPermission: Debug + Send + Sync {
    /// Whether who has this token may read; it is empty where none was said.
    fn permits(&self, token: &[u8]) -> bool;

    /// Another number whenever [`ReadPermission::permits`] may say something else than before: readers are
    /// judged again then.
    fn revision(&self) -> u64;
}
