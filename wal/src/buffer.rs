//! Memory that logs are written from and read into: aligned for O_DIRECT, owned, moved into the device for a
//! write and back with its completion. While a device holds a buffer nobody else can name it; that is how
//! "the buffer belongs to the ring until its completion" is enforced.
#![allow(unsafe_code)] // aligned allocation, and slices of it

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::frame::FRAME_ALIGN;

/// One aligned allocation, zeroed when made.
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the allocation is plain bytes, owned by this value alone; no thread is attached to it.
unsafe impl Send for Memory {}
// SAFETY: shared access reads nothing: bytes are reached through an owner's `&` or `&mut`, or a pool's
// exclusive slot.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: usize) -> Memory {
        let size = bytes.max(1).next_multiple_of(FRAME_ALIGN);
        let layout = Layout::from_size_align(size, FRAME_ALIGN).expect("a buffer's size fits an allocation");
        // SAFETY: the layout's size is at least one page, so it is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Memory { start, layout }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this layout and is freed once, here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A number of equal buffers in one allocation, which a ring may register with the kernel.
pub(crate) struct BufferPool {
    memory: Memory,
    slot_bytes: usize,
    free: Mutex<Vec<u16>>,
}

impl BufferPool {
    /// A pool of `slots` buffers of `slot_bytes` each.
    pub(crate) fn new(slots: u16, slot_bytes: usize) -> Arc<BufferPool> {
        let slot_bytes = slot_bytes.next_multiple_of(FRAME_ALIGN);
        let memory = Memory::new(slot_bytes * usize::from(slots));
        Arc::new(BufferPool { memory, slot_bytes, free: Mutex::new((0..slots).rev().collect()) })
    }

    /// A free buffer of the pool, as long as there is one and it is large enough.
    pub(crate) fn take(self: &Arc<BufferPool>, bytes: usize) -> Option<LogBuffer> {
        if bytes > self.slot_bytes {
            return None;
        }
        let slot = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(LogBuffer { home: Home::Pool { pool: Arc::clone(self), slot } })
    }

    /// Address and length of every buffer, in slot order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (*mut u8, usize)> + '_ {
        let count = self.memory.layout.size() / self.slot_bytes.max(1);
        (0..count).map(|slot| (self.slot_start(slot), self.slot_bytes))
    }

    fn slot_start(&self, slot: usize) -> *mut u8 {
        assert!((slot + 1) * self.slot_bytes <= self.memory.layout.size());
        // SAFETY: the offset is within the allocation, asserted above.
        unsafe { self.memory.start.as_ptr().add(slot * self.slot_bytes) }
    }
}

enum Home {
    Heap(Memory),
    Pool { pool: Arc<BufferPool>, slot: u16 },
}

/// An owned, aligned buffer; its bytes are zeros when allocated and whatever they were when used again.
pub struct LogBuffer {
    home: Home,
}

impl LogBuffer {
    /// A buffer of its own allocation, of at least so many bytes.
    #[must_use]
    pub fn heap(bytes: usize) -> LogBuffer {
        LogBuffer { home: Home::Heap(Memory::new(bytes)) }
    }

    /// How many bytes it holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        match &self.home {
            Home::Heap(memory) => memory.layout.size(),
            Home::Pool { pool, .. } => pool.slot_bytes,
        }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: start and capacity are one initialised allocation (or one slot that this value alone owns),
        // and `&self` keeps writers out for the slice's life.
        unsafe { std::slice::from_raw_parts(self.start(), self.capacity()) }
    }

    /// The bytes, to be changed.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.capacity()) }
    }

    /// The slot that this buffer has in a pool, if it is of that pool.
    pub(crate) fn slot_in(&self, owner: &Arc<BufferPool>) -> Option<u16> {
        match &self.home {
            Home::Pool { pool, slot } if Arc::ptr_eq(pool, owner) => Some(*slot),
            Home::Heap(_) | Home::Pool { .. } => None,
        }
    }

    pub(crate) fn start(&self) -> *mut u8 {
        match &self.home {
            Home::Heap(memory) => memory.start.as_ptr(),
            Home::Pool { pool, slot } => pool.slot_start(usize::from(*slot)),
        }
    }
}

impl Drop for LogBuffer {
    fn drop(&mut self) {
        if let Home::Pool { pool, slot } = &self.home {
            pool.free.lock().unwrap_or_else(PoisonError::into_inner).push(*slot);
        }
    }
}

impl fmt::Debug for LogBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogBuffer")
            .field("capacity", &self.capacity())
            .field("pooled", &matches!(self.home, Home::Pool { .. }))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heap_buffer_is_aligned_zeroed_and_large_enough() {
        let buffer = LogBuffer::heap(5000);
        assert_eq!(buffer.start() as usize % FRAME_ALIGN, 0);
        assert_eq!(buffer.capacity(), 8192);
        assert!(buffer.bytes().iter().all(|b| *b == 0));
    }

    #[test]
    fn pool_slots_are_disjoint_and_come_back() {
        let pool = BufferPool::new(2, 4096);
        let mut one = pool.take(4096).unwrap();
        let mut two = pool.take(1).unwrap();
        assert!(pool.take(1).is_none() && pool.take(4097).is_none());
        one.bytes_mut().fill(1);
        two.bytes_mut().fill(2);
        assert!(one.bytes().iter().all(|b| *b == 1));
        drop(one);
        assert!(pool.take(1).is_some());
    }
}
