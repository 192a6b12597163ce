#![allow(unsafe_code)] // one call of the C library
//! The heap of the process: what is freed of it goes back to the system.
//!
//! glibc gives a large block pages of its own, and gives them back with it, but only until the first such
//! block is freed: from then on it keeps what is up to that size (32 MiB at most) in its arenas, of which
//! nearly each thread has one, below whatever small block came after. A node that had moved some values of
//! 16 MiB held hundreds of megabytes so that nobody used, and that the budget has to take off its regions.

/// Has large blocks of the heap given back to the system whenever they are freed. Call it first, before there
/// are threads. It does nothing where the C library is not glibc.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back_freed() {
    /// A block of this size or more has pages of its own. For a smaller one they are not worth their making.
    const OWN_PAGES_BYTES: i32 = 1 << 20;
    /// So much free at an arena's end goes back: twice as much, which is glibc's own rule.
    const TRIM_BYTES: i32 = 2 * OWN_PAGES_BYTES;

    // Either of them also ends the rising of both. A refusal (0) leaves all as it was.
    let parameters = [(libc::M_MMAP_THRESHOLD, OWN_PAGES_BYTES), (libc::M_TRIM_THRESHOLD, TRIM_BYTES)];
    for (parameter, bytes) in parameters {
        // SAFETY: it takes two numbers and no pointers. Under a lock of glibc's it stores a word that says
        // how later blocks are made; who makes one meanwhile on another thread finds the old value or the
        // new, and each block notes itself how it is to be freed.
        unsafe { libc::mallopt(parameter, bytes) };
    }
}

/// Nothing: only glibc keeps them.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back_freed() {}
