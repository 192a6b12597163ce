//! A listening socket: who waits at it, and who may come in.

use std::fmt::Debug;

use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::address::PeerAddress;
use crate::tls::Socket;

/// A provider's listening socket.
pub(crate) trait Listener: Debug {
    /// Readable while somebody waits.
    fn socket(&self) -> &OwnedFd;

    /// Accepts the next one who waits, set up for the provider; `None` for one of whom it is not known who
    /// it is.
    ///
    /// # Errors
    /// The kernel's; `AGAIN` while nobody waits.
    fn accept(&self) -> Result<Option<(Socket, PeerAddress)>, Errno>;

    /// Whether that peer may connect.
    fn admits(&self, _peer: &PeerAddress) -> bool {
        true
    }

    /// Whether that peer is one for whom places are kept.
    fn knows(&self, _peer: &PeerAddress) -> bool {
        false
    }
}

/// A listener and what is known of it.
#[derive(Debug)]
pub(super) struct Listening<S> {
    pub(super) listener: S,
    /// Somebody may be waiting.
    pub(super) ready: bool,
    /// The process was out of descriptors; tried again with each look for time-outs, not in a busy loop.
    out_of_descriptors: bool,
}

impl<S: Listener> Listening<S> {
    pub(super) fn new(listener: S) -> Listening<S> {
        Listening { listener, ready: true, out_of_descriptors: false }
    }

    pub(super) fn retry(&mut self) {
        self.ready |= std::mem::take(&mut self.out_of_descriptors);
    }

    /// The next one who waits; none for now.
    pub(super) fn next(&mut self) -> Option<(Socket, PeerAddress)> {
        while self.ready {
            match self.listener.accept() {
                Ok(Some(accepted)) => return Some(accepted),
                // The peer was gone before it was accepted.
                Ok(None) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => {
                    self.ready = false;
                    self.out_of_descriptors = errno != Errno::AGAIN;
                }
            }
        }
        None
    }
}
