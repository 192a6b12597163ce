#![allow(unsafe_code)] // memory that a device writes to behind the compiler's back
//! Memory that a device may access: regions, which peers reach, and buffers, which only this process does.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use cell_memory::Region;
use ibverbs_sys as ffi;
use rustix::mm::{MapFlags, ProtFlags};

use crate::remote_access::{RegionAccess, RegionKey};

use super::device::Device;
use super::error::VerbsError;

/// The low bits of a place that stay zero: a huge page's, so that the device can use its largest pages.
const PLACE_SHIFT: u32 = 30;

/// A registration with a device; it ends with the value.
#[derive(Debug)]
struct Registration {
    handle: NonNull<ffi::ibv_mr>,
    device: Arc<Device>,
}

// SAFETY: libibverbs permits all calls from any thread; a handle is tied to none.
unsafe impl Send for Registration {}
// SAFETY: what is shared is only read: two numbers that never change.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers memory, which peers see at `place`.
    ///
    /// # Safety
    /// The memory must stay mapped for as long as the registration lasts, and if `access` permits writing,
    /// nobody may hold a reference to what is written.
    unsafe fn new(
        device: &Arc<Device>,
        memory: *mut u8,
        bytes: usize,
        place: u64,
        access: ffi::ibv_access_flags,
    ) -> io::Result<Registration> {
        let access = i32::try_from(access.0).unwrap_or(0);
        // SAFETY: the domain is open, because `device` is held; of the memory the caller promises.
        let handle =
            unsafe { ffi::ibv_reg_mr_iova(device.domain().as_ptr(), memory.cast(), bytes, place, access) };
        let handle = NonNull::new(handle).ok_or_else(io::Error::last_os_error)?;
        Ok(Registration { handle, device: Arc::clone(device) })
    }

    fn local_key(&self) -> u32 {
        // SAFETY: the handle lives as long as `self`, and nobody writes to it.
        unsafe { (*self.handle.as_ptr()).lkey }
    }

    fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.handle.as_ptr()).rkey }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: the handle was given by `ibv_reg_mr_iova` and is given back once. When the call returns the
        // device accesses the memory no more.
        let answer = unsafe { ffi::ibv_dereg_mr(self.handle.as_ptr()) };
        if answer != 0 {
            let error = self.device.error("ibv_dereg_mr", answer);
            // Memory that the device may go on reading must not be given to anything else.
            panic!("a registration cannot be ended: {error}");
        }
    }
}

/// A region as peers address it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteRegion {
    /// The device's key.
    pub(crate) key: u32,
    /// Where peers see it.
    pub(crate) place: u64,
    pub(crate) bytes: u64,
    pub(crate) writable: bool,
}

/// A region that peers may access through a device. All of its memory is taken and locked.
#[derive(Debug)]
pub(crate) struct RegisteredRegion {
    registration: Registration,
    place: u64,
    bytes: u64,
    writable: bool,
    /// Keeps the memory mapped for as long as it is registered: the last field to go.
    _region: Region,
}

impl RegisteredRegion {
    /// Registers a region at the place that its key makes.
    ///
    /// # Errors
    /// The memory cannot be had or locked.
    pub(crate) fn new(
        device: &Arc<Device>,
        region: &Region,
        key: RegionKey,
        access: RegionAccess,
    ) -> Result<RegisteredRegion, VerbsError> {
        let (place, bytes) = ((key.0 << PLACE_SHIFT) & (u64::MAX >> 1), region.spec().bytes);
        let failed = |source| VerbsError::Registration { bytes, source };
        // Memory is asked for before it is taken: locking it would take it unasked.
        region.populate(0..bytes).map_err(|source| VerbsError::RegionNotWhole { bytes, source })?;
        let length = usize::try_from(bytes).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
        let writable = access == RegionAccess::ReadAndWrite;
        let mut flags = ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ;
        if writable {
            flags = flags
                | ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE
                | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
                | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC;
        }
        // SAFETY: the region is held in the value, and so stays mapped. Its memory is only ever reached as
        // atomic words, never by reference, because other processes may have it mapped too.
        let registration =
            unsafe { Registration::new(device, region.address().cast_mut(), length, place, flags) };
        let registration = registration.map_err(failed)?;
        Ok(RegisteredRegion { registration, place, bytes, writable, _region: region.clone() })
    }

    /// What a peer needs to address it.
    pub(crate) fn remote(&self) -> RemoteRegion {
        let RegisteredRegion { place, bytes, writable, .. } = *self;
        RemoteRegion { key: self.registration.remote_key(), place, bytes, writable }
    }
}

/// Bytes of this process that its device reads and writes for posted work. Peers cannot address them.
#[derive(Debug)]
pub(super) struct Buffer {
    /// Ends before the memory is unmapped: the first field to go.
    registration: Registration,
    mapping: Mapping,
}

/// Memory of this process alone.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the value and is tied to no thread.
unsafe impl Send for Mapping {}
// SAFETY: `&Mapping` gives addresses and no more.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(bytes: usize) -> io::Result<Mapping> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at a place that the kernel chooses touches nothing that exists.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) };
        let base = NonNull::new(base?.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, bytes })
    }

    /// Where a part begins.
    fn at(&self, span: Span) -> NonNull<u8> {
        let end = span.offset.checked_add(span.length);
        assert!(end.is_some_and(|end| end <= self.bytes), "a part lies within its buffer");
        // SAFETY: just seen to: the part lies within the mapping.
        unsafe { self.base.add(span.offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with the value, and nobody has a reference into it that outlives the value.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A part of a [`Buffer`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) offset: usize,
    pub(super) length: usize,
}

impl Buffer {
    /// So many bytes of zeros, locked in memory.
    ///
    /// # Errors
    /// No memory, or no more that may be locked.
    pub(super) fn new(device: &Arc<Device>, bytes: usize) -> Result<Buffer, VerbsError> {
        let failed = |source| VerbsError::Call { call: "ibv_reg_mr", device: device.name.clone(), source };
        let mapping = Mapping::new(bytes).map_err(failed)?;
        let (base, local) = (mapping.base.as_ptr(), ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE);
        // SAFETY: the mapping goes with the value, after the registration. References to it are made by
        // `bytes` and `words` alone, of parts that no posted work is to write.
        let registration = unsafe { Registration::new(device, base, bytes, base.addr() as u64, local) };
        Ok(Buffer { registration: registration.map_err(failed)?, mapping })
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.registration.device
    }

    /// What a request names a part of it by.
    pub(super) fn element(&self, span: Span) -> ffi::ibv_sge {
        ffi::ibv_sge {
            addr: self.mapping.at(span).as_ptr().addr() as u64,
            length: u32::try_from(span.length).unwrap_or(0),
            lkey: self.registration.local_key(),
        }
    }

    /// A part that no posted work is to write.
    pub(super) fn bytes(&self, span: Span) -> &[u8] {
        let start = self.mapping.at(span);
        // SAFETY: all of it is initialised, from zeros on, and lives as long as `self`. The device writes to
        // parts of posted work alone, and its completion was polled before this is called: nothing changes it
        // under the reference.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), span.length) }
    }

    /// Likewise, as words: a part that begins at a word.
    pub(super) fn words(&self, span: Span) -> &[u64] {
        assert!(span.offset.is_multiple_of(8), "words begin at a word");
        let bytes = self.bytes(span);
        // SAFETY: the mapping begins at a page and the part at a word of it, so the pointer is aligned; any
        // eight bytes are a word.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / 8) }
    }

    /// Fills a part that no posted work reads or writes.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let start = self.mapping.at(Span { offset, length: bytes.len() });
        // SAFETY: both are valid for so many bytes, and do not overlap: nobody else has a reference to the
        // mapping while it is borrowed for writing.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), bytes.len()) };
    }
}
