#![allow(unsafe_code)] // calls of libibverbs: each block says why its pointers are good
//! The completion queue of an endpoint, which all of its queue pairs share, and the channel that notifies a
//! sleeper of it.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ibverbs_sys as ffi;

use super::device::Device;
use super::error::VerbsError;
use super::work::RequestId;

/// Completions that one poll takes.
pub(super) const COMPLETIONS_PER_POLL: usize = 64;
/// Entries of a queue that has no queue pairs yet.
const ENTRIES_FIRST: usize = 1_024;

/// One request that ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) request: RequestId,
    /// The status of `ibv_wc_status` if it failed.
    pub(super) failed: Option<u32>,
    /// Of a message that came: its bytes, and the number that came with it.
    pub(super) length: usize,
    pub(super) number: u32,
}

/// See the module's text. Queue pairs hold it, so it ends after them.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    queue: NonNull<ffi::ibv_cq>,
    /// Ends after the queue: fields go when `drop` has run.
    channel: OwnedChannel,
    device: Arc<Device>,
    /// Entries that queue pairs can fill at once.
    promised: AtomicUsize,
}

// SAFETY: libibverbs permits all calls from any thread; a handle is tied to none.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above: what two threads do with one handle at a time the library orders itself.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// An empty queue.
    ///
    /// # Errors
    /// The device has no more of them, or the process is out of descriptors.
    pub(super) fn new(device: &Arc<Device>) -> Result<Arc<CompletionQueue>, VerbsError> {
        // SAFETY: the context is open, because `device` is held.
        let channel = unsafe { ffi::ibv_create_comp_channel(device.context().as_ptr()) };
        let channel = NonNull::new(channel).ok_or_else(|| device.last_error("ibv_create_comp_channel"))?;
        let channel = OwnedChannel(channel);
        rustix::io::ioctl_fionbio(channel.descriptor(), true)
            .map_err(|errno| device.error("ioctl", errno.raw_os_error()))?;
        let entries = i32::try_from(ENTRIES_FIRST.min(device.limits.completions)).unwrap_or(1);
        let (context, nothing) = (device.context().as_ptr(), std::ptr::null_mut());
        // SAFETY: context and channel are open.
        let queue = unsafe { ffi::ibv_create_cq(context, entries, nothing, channel.0.as_ptr(), 0) };
        let queue = NonNull::new(queue).ok_or_else(|| device.last_error("ibv_create_cq"))?;
        let device = Arc::clone(device);
        Ok(Arc::new(CompletionQueue { queue, channel, device, promised: AtomicUsize::new(0) }))
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn handle(&self) -> NonNull<ffi::ibv_cq> {
        self.queue
    }

    /// Makes room for the completions of another queue pair: a queue that overflows is lost.
    ///
    /// # Errors
    /// The device's queues are not that large.
    pub(super) fn promise(&self, entries: usize) -> Result<(), VerbsError> {
        let promised = self.promised.fetch_add(entries, Ordering::Relaxed) + entries;
        // SAFETY: the queue lives as long as `self`; its size is written by `ibv_resize_cq` alone, which
        // the endpoint's own thread calls, as it calls this.
        let size = usize::try_from(unsafe { (*self.queue.as_ptr()).cqe }).unwrap_or(0);
        if promised <= size {
            return Ok(());
        }
        let wanted = promised.next_power_of_two().min(self.device.limits.completions);
        let wanted = i32::try_from(wanted.max(promised)).unwrap_or(i32::MAX);
        // SAFETY: the queue lives as long as `self`.
        let answer = unsafe { ffi::ibv_resize_cq(self.queue.as_ptr(), wanted) };
        if answer == 0 {
            return Ok(());
        }
        self.release(entries);
        Err(self.device.error("ibv_resize_cq", answer))
    }

    /// A queue pair has ended.
    pub(super) fn release(&self, entries: usize) {
        self.promised.fetch_sub(entries, Ordering::Relaxed);
    }

    /// Appends what has ended, at most [`COMPLETIONS_PER_POLL`]; how many there were.
    pub(super) fn poll(&self, completions: &mut Vec<Completion>) -> usize {
        let mut entries = [ffi::ibv_wc::default(); COMPLETIONS_PER_POLL];
        let count = i32::try_from(COMPLETIONS_PER_POLL).unwrap_or(0);
        // SAFETY: the context of a queue that lives is open.
        let operations = unsafe { (*self.device.context().as_ptr()).ops.poll_cq };
        let Some(poll) = operations else { return 0 };
        // SAFETY: the function is the driver's own for this queue, and writes at most `count` entries.
        let count = unsafe { poll(self.queue.as_ptr(), count, entries.as_mut_ptr()) };
        let count = usize::try_from(count).unwrap_or(0);
        completions.extend(entries[..count].iter().map(|entry| Completion {
            request: RequestId::of(entry.wr_id()),
            failed: entry.error().map(|(status, _)| status),
            length: entry.len(),
            number: u32::from_be(entry.imm_data().unwrap_or(0)),
        }));
        count
    }

    /// Lets the next completion be signalled by the channel.
    pub(super) fn arm(&self) -> bool {
        // SAFETY: the context of a queue that lives is open.
        let operations = unsafe { (*self.device.context().as_ptr()).ops.req_notify_cq };
        let Some(notify) = operations else { return false };
        // SAFETY: the function is the driver's own for this queue.
        unsafe { notify(self.queue.as_ptr(), 0) == 0 }
    }

    /// Takes what the channel signalled.
    pub(super) fn drain(&self) {
        let (mut queue, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the channel is open, and both places outlive the call.
        let answer =
            unsafe { ffi::ibv_get_cq_event(self.channel.0.as_ptr(), &raw mut queue, &raw mut context) };
        if answer == 0 {
            // SAFETY: the event was of this channel's one queue, and is acknowledged once.
            unsafe { ffi::ibv_ack_cq_events(self.queue.as_ptr(), 1) };
        }
    }

    /// Readable when the queue was armed and something has ended since.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.descriptor()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold the queue and are gone; each event was acknowledged.
        unsafe { ffi::ibv_destroy_cq(self.queue.as_ptr()) };
    }
}

/// A channel that no queue outlives.
#[derive(Debug)]
struct OwnedChannel(NonNull<ffi::ibv_comp_channel>);

impl OwnedChannel {
    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as `self`, and its descriptor never changes.
        let number = unsafe { (*self.0.as_ptr()).fd };
        // SAFETY: the descriptor is open for as long as the channel lives.
        unsafe { BorrowedFd::borrow_raw(number) }
    }
}

impl Drop for OwnedChannel {
    fn drop(&mut self) {
        // SAFETY: it was made, no queue uses it any more, and nobody else has it.
        unsafe { ffi::ibv_destroy_comp_channel(self.0.as_ptr()) };
    }
}
