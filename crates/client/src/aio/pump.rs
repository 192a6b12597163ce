//! The task that lets a client's operations go on while their futures sleep.
//!
//! The descriptor reports its edges alone, so the order matters:
//!
//! 1. the edge is taken down;
//! 2. the client is stepped until it has nothing to do, and what is still readable makes it step again;
//! 3. the task sleeps. What became readable since 1 has made a new edge.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::shared::{Shared, Turn};
use crate::ClientError;

/// Starts the pump on the present runtime. It ends with the client; a runtime that ends takes the client
/// with it.
#[expect(
    deprecated,
    reason = "what replaces it is unsafe, for descriptors that others may close; this one is owned"
)]
pub(super) fn start(shared: Arc<Shared>, descriptor: OwnedFd) -> Result<(), ClientError> {
    let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE)
        .map_err(|source| ClientError::Runtime { source })?;
    tokio::spawn(run(Pump(shared), descriptor));
    Ok(())
}

struct Pump(Arc<Shared>);

impl Drop for Pump {
    fn drop(&mut self) {
        drop(self.0.end());
    }
}

async fn run(pump: Pump, descriptor: AsyncFd<OwnedFd>) {
    loop {
        match pump.0.turn() {
            Turn::Over => return,
            Turn::Again => tokio::task::yield_now().await,
            Turn::Sleep(rest) => tokio::select! {
                ready = descriptor.readable() => {
                    if let Ok(mut ready) = ready {
                        ready.clear_ready();
                    }
                }
                () = pump.0.work() => {}
                () = tokio::time::sleep(rest) => {}
            },
        }
    }
}
