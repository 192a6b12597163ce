//! A lane applies one region's part of image and log in order: on the caller's thread, or on its own.
//!
//! Each region has one writer, so a pair is restored by at most two lanes side by side. What reaches a lane
//! is already known to be complete in both logs.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use crate::error::RecoveryError;

/// Work that waits for a lane; more makes its giver wait.
const WAITING_MAX: usize = 8;

/// One region's writer and what it needs to know.
pub(crate) trait Applier: Send + 'static {
    type Work: Send + 'static;

    fn apply(&mut self, work: &Self::Work) -> Result<(), RecoveryError>;
}

pub(crate) enum Lane<A: Applier> {
    Here(Box<A>),
    Thread(Box<OwnThread<A>>),
}

pub(crate) struct OwnThread<A: Applier> {
    /// None once the lane has failed.
    thread: Option<JoinHandle<Result<Box<A>, RecoveryError>>>,
    work: SyncSender<A::Work>,
    spent: Receiver<A::Work>,
}

impl<A: Applier> Lane<A> {
    pub(crate) fn start(applier: A, own_thread: bool, name: &str) -> Result<Lane<A>, RecoveryError> {
        let applier = Box::new(applier);
        if !own_thread {
            return Ok(Lane::Here(applier));
        }
        let (work, waiting) = sync_channel(WAITING_MAX);
        let (done, spent) = channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(applier, &waiting, &done))
            .map_err(RecoveryError::Thread)?;
        Ok(Lane::Thread(Box::new(OwnThread { thread: Some(thread), work, spent })))
    }

    /// Applies work, or hands it to the lane's thread. Returns spent work, to be filled again.
    pub(crate) fn put(&mut self, work: A::Work) -> Result<Option<A::Work>, RecoveryError> {
        match self {
            Lane::Here(applier) => {
                applier.apply(&work)?;
                Ok(Some(work))
            }
            Lane::Thread(lane) => match lane.work.send(work) {
                Ok(()) => Ok(lane.spent.try_recv().ok()),
                Err(_) => Err(lane.failure()),
            },
        }
    }

    /// The applier, if it has no thread of its own.
    pub(crate) fn here(&self) -> Option<&A> {
        match self {
            Lane::Here(applier) => Some(applier),
            Lane::Thread(_) => None,
        }
    }

    /// Waits until all work is done.
    pub(crate) fn finish(self) -> Result<A, RecoveryError> {
        match self {
            Lane::Here(applier) => Ok(*applier),
            Lane::Thread(lane) => {
                let OwnThread { thread, work, .. } = *lane;
                drop(work);
                let thread = thread.ok_or(RecoveryError::GivenUp)?;
                thread.join().map_err(|_| RecoveryError::Panicked)?.map(|applier| *applier)
            }
        }
    }
}

impl<A: Applier> OwnThread<A> {
    /// Why the thread takes no more.
    fn failure(&mut self) -> RecoveryError {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => error,
            Some(Err(_)) => RecoveryError::Panicked,
            Some(Ok(Ok(_))) | None => RecoveryError::GivenUp,
        }
    }
}

fn run<A: Applier>(
    mut applier: Box<A>,
    waiting: &Receiver<A::Work>,
    done: &Sender<A::Work>,
) -> Result<Box<A>, RecoveryError> {
    for work in waiting {
        applier.apply(&work)?;
        let _ = done.send(work); // the giver may have gone
    }
    Ok(applier)
}
