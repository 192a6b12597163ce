//! The thread that makes a ring's segments ready and unlinks those that nothing needs any more: both wait for
//! the disk, so neither may happen on a worker.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use rustix::fs::OFlags;

use crate::device::PrepareSegment;
use crate::error::Errno;
use crate::flush_ground::direct_device;
use crate::preparer::prepare;
use crate::real::RealStorage;
use crate::segment::SegmentName;
use crate::storage::Storage;

/// What the thread is asked to do.
pub(crate) enum Job {
    Prepare(PrepareSegment),
    Remove(SegmentName),
}

/// A prepared segment, open for writing.
pub(crate) struct OpenedSegment {
    pub(crate) fd: OwnedFd,
    /// The device that its writes go to past the page cache; none if they do not surely.
    pub(crate) device: Option<u64>,
}

/// A segment that was asked for, or why there is none.
pub(crate) struct Done {
    pub(crate) request: PrepareSegment,
    pub(crate) result: Result<OpenedSegment, Errno>,
}

/// The thread and its queues.
pub(crate) struct PreparerThread {
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    handle: Option<JoinHandle<()>>,
}

impl PreparerThread {
    /// Starts the thread; it makes `wake` readable after each job that has an answer.
    pub(crate) fn start(storage: RealStorage, wake: Arc<OwnedFd>) -> std::io::Result<PreparerThread> {
        let (jobs, job_receiver) = channel();
        let (done_sender, done) = channel();
        let handle = std::thread::Builder::new()
            .name("cell-log-files".to_owned())
            .spawn(move || run(&storage, &wake, &job_receiver, &done_sender))?;
        Ok(PreparerThread { jobs: Some(jobs), done, handle: Some(handle) })
    }

    pub(crate) fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            jobs.send(job).expect("the thread lives as long as its queue");
        }
    }

    pub(crate) fn next_done(&self) -> Option<Done> {
        self.done.try_recv().ok()
    }

    /// Waits for the jobs asked for so far, and ends the thread.
    pub(crate) fn join(&mut self) {
        self.jobs = None;
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

fn run(storage: &RealStorage, wake: &OwnedFd, jobs: &Receiver<Job>, done: &Sender<Done>) {
    for job in jobs {
        match job {
            Job::Prepare(request) => {
                let result = prepare_and_open(storage, &request);
                if done.send(Done { request, result }).is_err() {
                    return;
                }
                // The counter saturates at worst: it is readable then, which is all that matters.
                let _ = rustix::io::write(wake, &1u64.to_le_bytes());
            }
            Job::Remove(segment) => {
                if let Err(error) = storage.unlink(&segment.path()) {
                    tracing::warn!(%error, "a released log segment is left over");
                }
            }
        }
    }
}

fn prepare_and_open(storage: &RealStorage, request: &PrepareSegment) -> Result<OpenedSegment, Errno> {
    prepare(storage, request).map_err(|error| error.errno)?;
    let opened = storage.open_descriptor(&request.segment.path(), OFlags::RDWR, true);
    let (fd, is_direct) = opened.map_err(|error| error.errno)?;
    let device = if is_direct { direct_device(&fd) } else { None };
    Ok(OpenedSegment { fd, device })
}
