//! A hello on its way in, over a TCP socket.

use std::io::IoSliceMut;

use rustix::io::Errno;

use crate::close::CloseReason;
use crate::hello::{Decoded, Hello};
use crate::tls::Socket;

/// A hello as far as it came; its memory is given back when it is whole.
#[derive(Debug, Default)]
pub(crate) struct HelloBytes(Vec<u8>);

impl HelloBytes {
    /// Reads the other end's hello, as far as it came and not a byte beyond. `readable` is taken back when
    /// there is no more for now, and stays while there may be.
    pub(crate) fn read(
        &mut self,
        socket: &mut Socket,
        readable: &mut bool,
    ) -> Result<Option<Hello>, CloseReason> {
        let bytes = &mut self.0;
        loop {
            let needed = match Hello::decode(bytes)? {
                Decoded::Whole(hello) => {
                    *bytes = Vec::new();
                    return Ok(Some(hello));
                }
                Decoded::Need(needed) => needed,
            };
            let held = bytes.len();
            bytes.resize(needed, 0);
            let read = socket.read(&mut [IoSliceMut::new(&mut bytes[held..])]);
            bytes.truncate(held + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) if held == 0 => return Err(CloseReason::PeerClosed),
                Ok(0) => return Err(CloseReason::Truncated { received: held }),
                Ok(_) => {}
                Err(Errno::INTR) => {
                    *readable = true; // others have their turn first
                    return Ok(None);
                }
                Err(Errno::AGAIN) => {
                    *readable = false;
                    return Ok(None);
                }
                Err(errno) => return Err(socket.why(errno)),
            }
        }
    }
}
