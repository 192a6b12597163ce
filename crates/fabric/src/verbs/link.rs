//! What the provider keeps of one connection.

use crate::connections::Link;
use crate::tcp::{HelloBytes, Input, Output, PREFIX_BYTES};

use super::channel::Channel;
use super::control::Unfinished;
use super::operations::Operations;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct VerbsLink {
    /// The hello as far as it came; given back when the connection is open.
    pub(super) hello: HelloBytes,
    /// From when the own hello is made.
    pub(super) channel: Option<Channel>,
    pub(super) input: Input,
    pub(super) output: Output,
    pub(super) operations: Operations,
    pub(super) control: Unfinished,
    /// An acceptor's: the device answers the peer's reads.
    pub(super) allows_reads: bool,
    /// The peer's end of the socket is closed, and all that it had sent there was taken.
    pub(super) ended: bool,
    /// The transport looks at it with its next look.
    pub(super) touched: bool,
}

impl Link for VerbsLink {
    #[inline]
    fn pending(&self) -> usize {
        self.output.pending()
    }

    #[inline]
    fn framed_bytes(length: usize) -> usize {
        PREFIX_BYTES + length
    }

    #[inline]
    fn push(&mut self, length: u32, parts: &[&[u8]]) {
        self.output.push(length, parts);
    }

    fn relax(&mut self) {
        self.input.relax();
        self.output.relax();
    }
}
