//! One listening socket, many workers: accepted sockets go to the endpoint whose worker the hello names.
//!
//! The endpoint that listens reads the hello and nothing beyond it, then leaves the socket on the other
//! endpoint's queue and rings. The other endpoint judges its own limits and answers the hello.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use crate::address::PeerAddress;
use crate::error::FabricError;
use crate::hello::{Hello, WORKER_ONE_SIDED};
use crate::poller::poll_error;

/// The endpoints of one host.
#[derive(Debug)]
pub(crate) struct Group {
    workers: Vec<HandoffQueue>,
    one_sided: Option<HandoffQueue>,
}

/// Where one endpoint finds sockets that were accepted for it.
#[derive(Debug)]
pub(crate) struct HandoffQueue {
    /// Edge-triggered and never drained.
    pub(crate) bell: OwnedFd,
    state: Mutex<QueueState>,
}

#[derive(Debug)]
struct QueueState {
    open: bool,
    waiting: Vec<Handed>,
}

/// An accepted socket whose hello was read and not answered.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: PeerAddress,
    pub(crate) hello: Hello,
}

impl Group {
    pub(crate) fn new(workers: u16, one_sided: bool) -> Result<Group, FabricError> {
        Ok(Group {
            workers: (0..workers).map(|_| HandoffQueue::new()).collect::<Result<_, _>>()?,
            one_sided: if one_sided { Some(HandoffQueue::new()?) } else { None },
        })
    }

    /// The queue of a worker number as a hello names it.
    pub(crate) fn queue(&self, worker: u16) -> Option<&HandoffQueue> {
        if worker == WORKER_ONE_SIDED {
            self.one_sided.as_ref()
        } else {
            self.workers.get(usize::from(worker))
        }
    }
}

impl HandoffQueue {
    fn new() -> Result<HandoffQueue, FabricError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(poll_error)?;
        Ok(HandoffQueue { bell, state: Mutex::new(QueueState { open: true, waiting: Vec::new() }) })
    }

    /// Leaves a socket, or gives it back when nobody sits here any more.
    pub(crate) fn leave(&self, handed: Handed) -> Result<(), Handed> {
        let mut state = self.state();
        if !state.open {
            return Err(handed);
        }
        state.waiting.push(handed);
        drop(state);
        let _ = rustix::io::write(&self.bell, &1_u64.to_le_bytes());
        Ok(())
    }

    /// Takes what was left.
    pub(crate) fn take(&self) -> Vec<Handed> {
        std::mem::take(&mut self.state().waiting)
    }

    /// The endpoint is going: closes what was left and takes no more.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.open = false;
        state.waiting.clear();
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        // No code that can panic runs under the lock; should one, a list of sockets is still a list of
        // sockets.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
