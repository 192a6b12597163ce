//! What the provider keeps of one connection.

use crate::close::CloseReason;
use crate::connections::Link;

use super::hello_bytes::HelloBytes;
use super::input::Input;
use super::output::Output;

/// The unfinished input and output of a socket.
#[derive(Debug, Default)]
pub(crate) struct TcpLink {
    /// The hello as far as it came; given back when the connection is open.
    pub(super) hello: HelloBytes,
    pub(super) input: Input,
    pub(super) output: Output,
    /// The acceptor's hello says that its host serves one-sided reads.
    pub(super) one_sided: bool,
    /// A write failed: what the peer sent before is still read, nothing is sent any more.
    pub(super) broken: Option<CloseReason>,
}

impl Link for TcpLink {
    #[inline]
    fn pending(&self) -> usize {
        self.output.pending()
    }

    #[inline]
    fn framed_bytes(length: usize) -> usize {
        Output::framed_bytes(length)
    }

    #[inline]
    fn is_broken(&self) -> bool {
        self.broken.is_some()
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
