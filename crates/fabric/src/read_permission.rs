//! Who may read this host's memory one-sided over a transport on which the kernel does not say who asks.

use std::fmt::Debug;

use crate::address::PeerAddress;

/// What an endpoint asks about its readers, on the thread that serves them.
pub trait ReadPermission: Debug + Send + Sync {
    /// Whether who has this token may read; it is empty where none was said.
    fn permits(&self, token: &[u8]) -> bool;

    /// The same of a peer that shows the token when it comes, at a time from any fixed start. One that has
    /// shown too many which are not known may be refused without a look.
    fn admits(&self, peer: PeerAddress, token: &[u8], now_ns: u64) -> bool {
        let _ = (peer, now_ns);
        self.permits(token)
    }

    /// Another number whenever [`ReadPermission::permits`] may say something else than before: readers are
    /// judged again then.
    fn revision(&self) -> u64;
}
