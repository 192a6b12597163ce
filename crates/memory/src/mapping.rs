#![allow(unsafe_code)] // mapping memory is what this file is for
//! A shared file mapped whole at an aligned address, or private zeroed memory of the same shape.
//!
//! Address space comes from an anonymous reservation that is larger than the file by one alignment; the file
//! is mapped over its aligned middle, and the whole is unmapped as one. The alignment is what lets the kernel
//! map 2 MiB pages.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::error::MemoryError;
use crate::width::index;

/// What a region is populated in, and the alignment of ordinary mappings: the size of a transparent huge
/// page.
pub(crate) const UNIT_BYTES: u64 = 2 << 20;
/// A small page, and the alignment of private memory.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Mapped memory, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<AtomicU64>,
    bytes: usize,
    owner: Owner,
}

#[derive(Debug)]
enum Owner {
    /// `base` is inside the reservation. The fields are kept for their drop.
    Shared { file: File, _reservation: MmapRaw },
    /// `base` is inside this. The field is kept for its drop.
    Private { _memory: MmapRaw },
}

// SAFETY: the memory belongs to the value, is not tied to a thread, and is reached as atomics only (`Live`).
unsafe impl Send for Mapping {}
// SAFETY: as above; the methods here change no memory.
unsafe impl Sync for Mapping {}

/// Whether a mapping may be stored to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The region's maker.
    Write,
    Read,
}

impl Mapping {
    /// Maps the first `bytes` of a file at a multiple of `align`. Bytes and alignment are multiples of the
    /// file's page.
    pub(crate) fn of_file(
        file: File,
        bytes: u64,
        align: u64,
        access: Access,
    ) -> Result<Mapping, MemoryError> {
        let failed = |source: io::Error| MemoryError::Map { bytes, source };
        assert!(align.is_power_of_two() && bytes > 0);
        let reserved = index(bytes + align);
        let reservation = MmapOptions::new().len(reserved).no_reserve_swap().map_anon().map_err(failed)?;
        let reservation = MmapRaw::from(reservation);
        let start = reservation.as_mut_ptr();
        let aligned = start.wrapping_add(start.align_offset(index(align)));
        let protection = match access {
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
            Access::Read => ProtFlags::READ,
        };
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: `aligned` and `bytes` from it are inside the reservation (it is longer by `align`), which
        // nobody else knows: replacing that part of it changes no memory that anyone refers to.
        let mapped = unsafe { rustix::mm::mmap(aligned.cast(), index(bytes), protection, flags, &file, 0) };
        let base = NonNull::new(mapped.map_err(|errno| failed(errno.into()))?.cast());
        let base = base.ok_or_else(|| failed(io::ErrorKind::AddrNotAvailable.into()))?;
        let mapping =
            Mapping { base, bytes: index(bytes), owner: Owner::Shared { file, _reservation: reservation } };
        // Hints: a core file of all of a node's data helps nobody, and an old kernel without them serves as
        // well.
        mapping.advise(0, bytes, Advice::LinuxDontDump).ok();
        mapping.advise(0, bytes, Advice::LinuxHugepage).ok();
        Ok(mapping)
    }

    /// Zeroed memory of this process alone: no file, nothing to share.
    pub(crate) fn private(bytes: u64) -> Result<Mapping, MemoryError> {
        Mapping::anonymous(bytes, PAGE_BYTES)
    }

    /// A huge page's worth of memory of this process alone, aligned, touched.
    pub(crate) fn unit() -> Result<Mapping, MemoryError> {
        let mapping = Mapping::anonymous(UNIT_BYTES, UNIT_BYTES)?;
        // Small pages serve, only less well.
        mapping.advise(0, UNIT_BYTES, Advice::LinuxHugepage).ok();
        let failed = |source| MemoryError::Map { bytes: UNIT_BYTES, source };
        mapping.populate(0, UNIT_BYTES).map_err(failed)?;
        Ok(mapping)
    }

    fn anonymous(bytes: u64, align: u64) -> Result<Mapping, MemoryError> {
        let failed = |source: io::Error| MemoryError::Map { bytes, source };
        assert!(align.is_multiple_of(PAGE_BYTES) && bytes > 0);
        // Not from the allocator, which would write the zeros: most of a simulated region is never touched.
        // The system's answer is aligned to a page.
        let reserved = index(bytes + align - PAGE_BYTES);
        let memory = MmapRaw::from(MmapOptions::new().len(reserved).map_anon().map_err(failed)?);
        let start = memory.as_mut_ptr();
        let base = NonNull::new(start.wrapping_add(start.align_offset(index(align))).cast());
        let base = base.ok_or_else(|| failed(io::ErrorKind::AddrNotAvailable.into()))?;
        Ok(Mapping { base, bytes: index(bytes), owner: Owner::Private { _memory: memory } })
    }

    pub(crate) fn base(&self) -> NonNull<AtomicU64> {
        self.base
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The file, if it is one.
    pub(crate) fn file(&self) -> Option<&File> {
        match &self.owner {
            Owner::Shared { file, .. } => Some(file),
            Owner::Private { .. } => None,
        }
    }

    /// Bytes that have memory behind them by now.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let Some(file) = self.file() else { return 0 };
        let blocks = rustix::fs::fstat(file).map_or(0, |stat| stat.st_blocks);
        u64::try_from(blocks).map_or(0, |blocks| blocks * 512)
    }

    /// Gives memory to a range, keeping what it holds. Errors instead of a signal where there is none.
    pub(crate) fn populate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.advise(offset, bytes, Advice::LinuxPopulateWrite)
    }

    /// Makes one huge page of an aligned range that has at least one page, keeping what it holds.
    pub(crate) fn collapse(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let (address, bytes) = self.part(offset, bytes);
        // SAFETY: the range is inside this mapping; collapsing changes where its bytes are, not what they
        // are.
        let answer = unsafe { libc::madvise(address, bytes, libc::MADV_COLLAPSE) };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn advise(&self, offset: u64, bytes: u64, advice: Advice) -> io::Result<()> {
        let (address, bytes) = self.part(offset, bytes);
        // SAFETY: the range is inside this mapping, and none of the advices used here (populate, huge pages,
        // no dump) changes the content of shared memory.
        unsafe { rustix::mm::madvise(address, bytes, advice) }.map_err(Into::into)
    }

    fn part(&self, offset: u64, bytes: u64) -> (*mut libc::c_void, usize) {
        let (offset, bytes) = (index(offset), index(bytes));
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "a range outside the mapping");
        (self.base.as_ptr().cast::<u8>().wrapping_add(offset).cast(), bytes)
    }
}
