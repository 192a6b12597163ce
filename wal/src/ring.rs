//! The real log device: writes past the page cache through io_uring. Each is a data-sync write, or a plain
//! one that is reported when a flush which it shares with other rings is in ([`Ring::share`]).
//!
//! Nothing here waits: writes are queued and sent, completions are read from shared memory without a system
//! call, segments are made ready by a thread of the ring's own. An idle worker sleeps on [`Ring::wake_fd`],
//! which becomes readable when a write ends or a segment is ready.
//!
//! A buffer is owned by the ring until its completion, whatever a submit says: see [`Ring`]'s `flights`. When
//! a ring is dropped with writes in flight their buffers are leaked, because the kernel may still be reading
//! them.
//!
//! Sleep, do not spin. A data-sync write is completed by a kernel thread on the processor that took the
//! disk's interrupt; a worker that spins there keeps it waiting until the next scheduler tick. Measured on
//! two processors at 250 Hz: 0.1 ms a commit for a worker that sleeps on the wake descriptor, 4 ms for one
//! that spins. (Sending writes through io-wq, IOSQE_ASYNC, was measured too: no better for a worker that
//! sleeps, as bad for one that spins.)
//!
//! At most `entries` writes are in the kernel at once, and the completion queue is twice as long, so it
//! cannot overflow (an overflow can hang a waiter and loses the promise that polling needs no system call).
#![allow(unsafe_code)] // submission queue entries point to memory that the kernel reads

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, types};
use rustix::event::EventfdFlags;

use crate::buffer::{BufferPool, LogBuffer};
use crate::check::index;
use crate::device::{LogDevice, LogEvent, LogWrite, PrepareSegment};
use crate::error::{Errno, RingStep, WalError};
use crate::flush_rounds::HeldWrites;
use crate::flusher::Flusher;
use crate::frame::FRAME_ALIGN;
use crate::preparer_thread::{Done, Job, OpenedSegment, PreparerThread};
use crate::real::RealStorage;
use crate::segment::{LogId, SegmentName};

/// How large a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// Writes in the kernel at once; more wait in the process. A power of two.
    pub entries: u32,
    /// Registered buffers; a pair uses four.
    pub buffers: u16,
    /// Bytes of one registered buffer: `log_batch_bytes`.
    pub buffer_bytes: usize,
}

impl Default for RingOptions {
    fn default() -> RingOptions {
        RingOptions { entries: 128, buffers: 16, buffer_bytes: 256 << 10 }
    }
}

struct OpenSegment {
    fd: Arc<OwnedFd>,
    bytes: u64,
    /// The device that its writes go to past the page cache.
    device: Option<u64>,
}

/// A write from [`LogDevice::write`] to its completion.
struct WriteInFlight {
    write: LogWrite,
    /// Kept open until the completion: a closed descriptor's number may soon be another file's.
    fd: Arc<OwnedFd>,
    /// Bytes already written by an earlier, short completion.
    done: usize,
    /// Whether it is left to the shared flush.
    plain: bool,
}

/// An io_uring with the files of the worker's logs.
pub struct Ring {
    ring: IoUring,
    entries: usize,
    files: HashMap<SegmentName, OpenSegment>,
    /// Logs given up: segments that become ready for them are not opened.
    closed: HashSet<LogId>,
    /// By user data. A slot is freed by its completion only.
    flights: Vec<Option<WriteInFlight>>,
    slots_free: Vec<usize>,
    /// Queued, not yet in the submission queue.
    backlog: VecDeque<usize>,
    /// Pushed to the submission queue and not completed.
    pushed: usize,
    /// Pushed, not yet taken by the kernel.
    unsent: bool,
    pool: Arc<BufferPool>,
    pool_registered: bool,
    wake: Arc<OwnedFd>,
    preparer: PreparerThread,
    /// What plain writes are left to.
    flusher: Option<Arc<Flusher>>,
    /// Plain writes that have completed.
    held: HeldWrites,
    broken: Option<Errno>,
}

impl Ring {
    /// Sets a ring up over a log root.
    ///
    /// # Errors
    /// [`WalError::RingUnavailable`] names the step that failed.
    pub fn open(storage: &RealStorage, options: RingOptions) -> Result<Ring, WalError> {
        let unavailable = |step| move |errno: Errno| WalError::RingUnavailable { step, errno };
        let ring = IoUring::builder()
            .setup_cqsize(options.entries * 2)
            .build(options.entries)
            .map_err(|error| unavailable(RingStep::Setup)(Errno::of(&error)))?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| unavailable(RingStep::EventFd)(errno.into()))?;
        let registered = ring.submitter().register_eventfd(wake.as_raw_fd());
        registered.map_err(|error| unavailable(RingStep::EventFd)(Errno::of(&error)))?;
        let pool = BufferPool::new(options.buffers, options.buffer_bytes);
        let pool_registered = register_pool(&ring, &pool);
        let wake = Arc::new(wake);
        let preparer = PreparerThread::start(storage.clone(), Arc::clone(&wake))
            .map_err(|error| unavailable(RingStep::Thread)(Errno::of(&error)))?;
        Ok(Ring {
            ring,
            entries: index(u64::from(options.entries)),
            files: HashMap::new(),
            closed: HashSet::new(),
            flights: Vec::new(),
            slots_free: Vec::new(),
            backlog: VecDeque::new(),
            pushed: 0,
            unsent: false,
            pool,
            pool_registered,
            wake,
            preparer,
            flusher: None,
            held: HeldWrites::default(),
            broken: None,
        })
    }

    /// Leaves writes from here on to a flush that other rings share, while that is chosen, and where it
    /// covers a write's file. One thread has to poll all of them, or a flush may wait for a write whose
    /// completion nobody looks for. Watch [`Flusher::wake_fd`] beside [`Ring::wake_fd`].
    pub fn share(&mut self, flusher: &Arc<Flusher>) {
        self.flusher = Some(Arc::clone(flusher));
    }

    /// Readable when [`LogDevice::poll`] may have something. Wait on it only after a poll that yielded
    /// nothing, call [`Ring::clear_wake`] when it fires, then poll.
    #[must_use]
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Makes [`Ring::wake_fd`] unreadable until something new happens. Call it before the poll, never after.
    pub fn clear_wake(&self) {
        let mut count = [0; 8];
        // EAGAIN: nothing had happened.
        let _ = rustix::io::read(&self.wake, &mut count);
    }

    /// Writes that have not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flights.len() - self.slots_free.len()
    }

    /// Whether normal batches are written from registered buffers. They are not where locked memory is
    /// limited.
    #[must_use]
    pub const fn has_registered_buffers(&self) -> bool {
        self.pool_registered
    }

    /// Waits until nothing is in flight and the preparer has ended. For orderly ends and tests; it blocks.
    /// Nobody is notified any more, so no flush is waited for.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn close(mut self) -> Result<(), WalError> {
        let mut events = Vec::new();
        while self.in_flight() > 0 && self.broken.is_none() {
            self.send()?;
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => self.fail(Errno::of(&error)),
                Ok(_) | Err(_) => {}
            }
            self.poll(&mut events);
            events.clear();
        }
        self.preparer.join();
        self.broken.map_or(Ok(()), |errno| Err(broken(errno)))
    }

    /// Moves queued writes into the submission queue, as many as may be in the kernel.
    fn push(&mut self) {
        while self.pushed < self.entries {
            let Some(slot) = self.backlog.front().copied() else { return };
            let flight = self.flights[slot].as_ref().expect("a queued write is in its slot");
            let entry = self.entry(flight).user_data(slot as u64);
            // SAFETY: the entry points into a buffer that `flights[slot]` owns, whose memory does not move
            // with it and is released only by this entry's completion (or leaked with the ring).
            let pushed = unsafe { self.ring.submission().push(&entry) };
            if pushed.is_err() {
                return; // full until the kernel takes some
            }
            self.backlog.pop_front();
            self.pushed += 1;
            self.unsent = true;
        }
    }

    fn entry(&self, flight: &WriteInFlight) -> io_uring::squeue::Entry {
        let remaining = &flight.write.buffer.bytes()[flight.done..flight.write.length];
        let length = u32::try_from(remaining.len()).expect("a frame is shorter than 4 GiB");
        let offset = flight.write.offset + flight.done as u64;
        let fd = types::Fd(flight.fd.as_raw_fd());
        let slot = flight.write.buffer.slot_in(&self.pool).filter(|_| self.pool_registered);
        let flags = if flight.plain { 0 } else { libc::RWF_DSYNC };
        match slot {
            Some(slot) => opcode::WriteFixed::new(fd, remaining.as_ptr(), length, slot)
                .offset(offset)
                .rw_flags(flags)
                .build(),
            None => opcode::Write::new(fd, remaining.as_ptr(), length).offset(offset).rw_flags(flags).build(),
        }
    }

    /// One completion; true if the write goes on with its remainder.
    fn complete(&mut self, slot: usize, result: i32, events: &mut Vec<LogEvent>) {
        let mut flight = self.flights[slot].take().expect("one completion a write");
        self.pushed -= 1;
        let result = match u32::try_from(result) {
            Err(_) => Err(Errno(-result)),
            Ok(count) => {
                let count = index(u64::from(count));
                flight.done += count;
                if flight.done == flight.write.length {
                    Ok(())
                } else if count > 0 && count.is_multiple_of(FRAME_ALIGN) {
                    // Part of it was written, without an error: the rest follows.
                    self.flights[slot] = Some(flight);
                    self.backlog.push_front(slot);
                    return;
                } else {
                    Err(Errno::EIO)
                }
            }
        };
        self.slots_free.push(slot);
        let LogWrite { log, kind, segment, offset, length, buffer } = flight.write;
        let event = LogEvent::Written { log, kind, segment, offset, buffer: Some(buffer), result };
        match self.flusher.as_ref().filter(|_| flight.plain) {
            // In the disk's cache, and no further: reported when its flush is in.
            Some(flusher) if result.is_ok() => {
                let number = flusher.completed(length, &flight.fd);
                self.held.hold(number, event);
            }
            Some(flusher) => {
                flusher.given_up(length);
                events.push(event);
            }
            None => events.push(event),
        }
    }

    /// Sends what is queued.
    fn send(&mut self) -> Result<(), WalError> {
        loop {
            if let Some(errno) = self.broken {
                return Err(broken(errno));
            }
            self.push();
            if !self.unsent {
                return Ok(());
            }
            match self.ring.submit().map_err(|error| error.raw_os_error()) {
                Ok(_) => self.unsent = !self.ring.submission().is_empty(),
                Err(Some(libc::EINTR)) => {}
                // Out of kernel memory for the moment: what was not taken stays queued for the next call.
                Err(Some(libc::EAGAIN | libc::EBUSY)) => return Ok(()),
                Err(errno) => self.fail(Errno(errno.unwrap_or(libc::EIO))),
            }
        }
    }

    fn fail(&mut self, errno: Errno) {
        tracing::error!(%errno, "io_uring broke: every pair of this worker has to be given up");
        self.broken = Some(errno);
    }

    /// Notifies every writer of a broken ring; their buffers stay with the kernel.
    fn drain_broken(&mut self, errno: Errno, events: &mut Vec<LogEvent>) {
        for slot in 0..self.flights.len() {
            let Some(flight) = self.flights[slot].take() else { continue };
            self.give_up(&flight);
            let LogWrite { log, kind, segment, offset, buffer, .. } = flight.write;
            std::mem::forget(buffer);
            self.slots_free.push(slot);
            events.push(LogEvent::Written { log, kind, segment, offset, buffer: None, result: Err(errno) });
        }
        self.backlog.clear();
        self.held.fail(errno, events);
    }

    /// A write of which nobody will see that it completed: no flush waits for it.
    fn give_up(&self, flight: &WriteInFlight) {
        if let Some(flusher) = self.flusher.as_ref().filter(|_| flight.plain) {
            flusher.given_up(flight.write.length);
        }
    }

    fn poll_preparer(&mut self, events: &mut Vec<LogEvent>) {
        while let Some(Done { request, result }) = self.preparer.next_done() {
            let PrepareSegment { log, kind, segment, bytes, .. } = request;
            if self.closed.contains(&log) {
                continue;
            }
            let result = result.map(|OpenedSegment { fd, device }| {
                self.files.insert(segment, OpenSegment { fd: Arc::new(fd), bytes, device });
            });
            if let Err(errno) = result {
                tracing::warn!(%segment, %errno, "a log segment could not be prepared");
            }
            events.push(LogEvent::Prepared { log, kind, segment, result });
        }
    }
}

fn broken(errno: Errno) -> WalError {
    WalError::RingUnavailable { step: RingStep::Submit, errno }
}

fn register_pool(ring: &IoUring, pool: &BufferPool) -> bool {
    let slots: Vec<libc::iovec> =
        pool.slots().map(|(start, bytes)| libc::iovec { iov_base: start.cast(), iov_len: bytes }).collect();
    if slots.is_empty() {
        return false;
    }
    // SAFETY: the memory stays allocated as long as the ring: the ring holds the pool and is dropped before
    // it, or both are leaked.
    match unsafe { ring.submitter().register_buffers(&slots) } {
        Ok(()) => true,
        Err(error) => {
            tracing::info!(%error, "log buffers are not registered; check the limit of locked memory");
            false
        }
    }
}

impl LogDevice for Ring {
    fn buffer(&mut self, bytes: usize) -> LogBuffer {
        self.pool.take(bytes).unwrap_or_else(|| LogBuffer::heap(bytes))
    }

    fn write(&mut self, write: LogWrite) {
        let file = self.files.get(&write.segment).expect("a segment is prepared before it is written");
        let end = write.offset + write.length as u64;
        let aligned =
            write.offset.is_multiple_of(FRAME_ALIGN as u64) && write.length.is_multiple_of(FRAME_ALIGN);
        assert!(
            aligned && write.length > 0 && end <= file.bytes,
            "a write is aligned and within its segment"
        );
        assert!(write.length <= write.buffer.capacity(), "a write is within its buffer");
        let fd = Arc::clone(&file.fd);
        let plain = self.flusher.as_ref().filter(|flusher| flusher.covers(file.device));
        plain.into_iter().for_each(|flusher| flusher.sent(write.length));
        let plain = plain.is_some();
        let slot = self.slots_free.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() - 1
        });
        self.flights[slot] = Some(WriteInFlight { write, fd, done: 0, plain });
        self.backlog.push_back(slot);
    }

    fn prepare(&mut self, request: PrepareSegment) {
        if let Some(released) = request.recycle {
            let file = self.files.remove(&released);
            assert!(
                file.is_none_or(|file| file.bytes == request.bytes),
                "a recycled segment is of the same length"
            );
        }
        self.preparer.send(Job::Prepare(request));
    }

    fn remove(&mut self, segment: SegmentName) {
        self.files.remove(&segment);
        self.preparer.send(Job::Remove(segment));
    }

    fn close(&mut self, log: LogId) {
        let regions = [log.pair.node_region(), log.pair.extent_region()];
        let of_log = |name: &SegmentName| regions.contains(&name.log.region) && name.log.epoch == log.epoch;
        self.files.retain(|name, _| !of_log(name));
        self.closed.insert(log);
    }

    fn submit(&mut self) -> Result<(), WalError> {
        self.send()?;
        if let Some(flusher) = self.flusher.as_ref().filter(|_| !self.held.is_empty()) {
            flusher.begin_if_due();
        }
        Ok(())
    }

    fn poll(&mut self, events: &mut Vec<LogEvent>) {
        self.poll_preparer(events);
        if let Some(errno) = self.broken {
            self.drain_broken(errno, events);
            return;
        }
        while let Some((slot, result)) = self.next_completion() {
            self.complete(slot, result, events);
        }
        if let Some(flusher) = self.flusher.as_ref().filter(|_| !self.held.is_empty()) {
            flusher.release(&mut self.held, events);
        }
        if !self.backlog.is_empty() || self.unsent {
            // A short write's rest, or what found no room before. If the ring breaks here, the next poll
            // reports it.
            let _ = self.send();
        }
    }
}

impl Ring {
    fn next_completion(&mut self) -> Option<(usize, i32)> {
        let entry = self.ring.completion().next()?;
        Some((index(entry.user_data()), entry.result()))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let in_flight: Vec<WriteInFlight> = self.flights.iter_mut().filter_map(Option::take).collect();
        in_flight.iter().for_each(|flight| self.give_up(flight));
        if !in_flight.is_empty() {
            // The kernel may read these buffers after this process has forgotten the ring; each one of the
            // pool keeps the pool allocated.
            std::mem::forget(in_flight);
        }
    }
}
