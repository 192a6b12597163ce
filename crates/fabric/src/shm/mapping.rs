#![allow(unsafe_code)] // mapping memory and reading it as atomics is what this file is for
//! Memory that two processes share and that either may change at will: sealed files, mapped, reached one
//! word at a time. No reference to it but as atomics ever exists, and every index is checked against what
//! was mapped, never against what the memory says.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use cell_terms::Words;
use cell_terms::mutant::{Mutant, planted};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::ring::RingWords;

/// A file of memory that keeps its size for ever. Its memory is taken at once, so that nobody who maps it
/// meets a page that cannot be had.
pub(crate) fn sealed_file(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know NOEXEC_SEAL.
    let file = match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags)?,
        made => made?,
    };
    // Whoever is handed a descriptor has what that one permits: nobody else may open the file anew.
    if !planted(Mutant::HandedReopenable) {
        rustix::fs::fchmod(&file, Mode::RUSR)?;
    }
    rustix::fs::ftruncate(&file, bytes as u64)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(file)
}

/// The bytes of a file that a peer handed over, if it is memory that keeps its size and on ordinary pages: a
/// load or a store of it ends at once, with a word. (A page of the reserved huge ones, given back by the
/// peer, may not be had again, and who touches it dies.) The seals are asked for first, because no other
/// question can be put to a file of a file system that the peer itself serves, and answers when it likes.
///
/// # Errors
/// Another kind of file.
pub(crate) fn judge_file(file: &OwnedFd) -> io::Result<usize> {
    /// As the kernel names its file system of memory.
    const TMPFS: u64 = 0x0102_1994;
    let seals = rustix::fs::fcntl_get_seals(file).unwrap_or(SealFlags::empty());
    let sound = seals.contains(SealFlags::SHRINK)
        && u64::try_from(rustix::fs::fstatfs(file)?.f_type).is_ok_and(|kind| kind == TMPFS);
    if !sound && !planted(Mutant::PeerFileUnjudged) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    usize::try_from(rustix::fs::fstat(file)?.st_size).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// No further seal: both ends write.
pub(crate) fn seal_for_writers(file: &OwnedFd) -> io::Result<()> {
    Ok(rustix::fs::fcntl_add_seals(file, SealFlags::SEAL)?)
}

/// From now on the file can be mapped for reading only; a mapping to write with was made before. Returns what
/// to hand out: a descriptor without the right to write, with which the file could be made to take memory.
pub(crate) fn seal_for_readers(file: &OwnedFd) -> io::Result<OwnedFd> {
    rustix::fs::fcntl_add_seals(file, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
    if planted(Mutant::HandedWritable) {
        return file.try_clone();
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// A mapping of shared words.
#[derive(Debug)]
pub(crate) struct SharedWords {
    base: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to the value and is not tied to a thread; its words are reached as atomics
// only.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps the first `words` words of a file for reading and writing.
    ///
    /// # Errors
    /// A file that is not that large for ever, or a refusal of the kernel.
    pub(crate) fn map_writable(file: &OwnedFd, words: usize) -> io::Result<SharedWords> {
        SharedWords::map(file, words, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Maps them for reading: a store ends the process.
    ///
    /// # Errors
    /// As for [`SharedWords::map_writable`].
    pub(crate) fn map_readable(file: &OwnedFd, words: usize) -> io::Result<SharedWords> {
        SharedWords::map(file, words, ProtFlags::READ)
    }

    fn map(file: &OwnedFd, words: usize, protection: ProtFlags) -> io::Result<SharedWords> {
        let bytes = judge_file(file)?;
        if words == 0 || bytes / 8 < words {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let null = std::ptr::null_mut();
        // SAFETY: the kernel chooses a place where nothing is mapped, so nobody's memory changes.
        let mapped =
            unsafe { rustix::mm::mmap(null, words * 8, protection, MapFlags::SHARED, file.as_fd(), 0) }?;
        let base = NonNull::new(mapped.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(SharedWords { base, words })
    }

    /// The words from `start` on, `count` of them.
    ///
    /// # Panics
    /// If they are not all mapped: a broken promise of the caller, who knows the geometry.
    #[inline(always)]
    fn span(&self, start: usize, count: usize) -> &[AtomicU64] {
        assert!(start <= self.words && count <= self.words - start, "words outside the mapping");
        // SAFETY: `start <= words`, so this is inside the mapping or one past its last word.
        let first = unsafe { self.base.add(start) };
        // SAFETY: `count` aligned (the mapping is page aligned), mapped words from `first`, checked above,
        // whose file keeps its size; the mapping outlives the borrow of `self`; memory of a file is
        // initialised; other processes change it only as a race of atomic words would.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), count) }
    }

    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.span(at, 1)[0]
    }

    /// Stores a word after everything stored before.
    #[inline(always)]
    pub(crate) fn store_release(&self, at: usize, word: u64) {
        self.word(at).store(word, Ordering::Release);
    }
}

impl Words for SharedWords {
    #[inline(always)]
    fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.words
    }

    #[inline(always)]
    fn prefetch(&self, _index: usize) {}
}

impl RingWords for SharedWords {
    #[inline(always)]
    fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn load_acquire(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    #[inline(always)]
    fn store(&self, at: usize, word: u64) {
        self.word(at).store(word, Ordering::Relaxed);
    }

    #[inline(always)]
    fn store_release(&self, at: usize, word: u64) {
        self.word(at).store(word, Ordering::Release);
    }

    #[inline(always)]
    fn swap(&self, at: usize, word: u64) -> u64 {
        self.word(at).swap(word, Ordering::AcqRel)
    }

    #[inline]
    fn copy_out(&self, at: usize, out: &mut [[u8; 8]]) {
        let span = self.span(at, out.len());
        for (to, from) in out.iter_mut().zip(span) {
            *to = from.load(Ordering::Relaxed).to_le_bytes();
        }
    }

    #[inline]
    fn copy_in(&self, at: usize, words: &[[u8; 8]]) {
        for (to, from) in self.span(at, words.len()).iter().zip(words) {
            to.store(u64::from_le_bytes(*from), Ordering::Relaxed);
        }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: this is what `map` mapped, whole, and nobody borrows it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.words * 8) };
        debug_assert!(unmapped.is_ok());
    }
}
