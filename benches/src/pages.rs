//! Huge pages for rivals that live in this process: our regions have them, and a search is mostly misses, so
//! a rival on small pages would be flattered by nothing but the page table.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::rollup::Rollup;

/// What the C library's allocator is configured by, at the start of a process.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// It asks for huge pages, takes all memory from one heap, and keeps what is freed of that: who fills a
/// second time finds the memory in place.
const HUGE: &str = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:\
    glibc.malloc.trim_threshold=17179869184:glibc.malloc.arena_max=1";

/// Starts this program anew, so that its allocator asks for huge pages; returns where it does already, or was
/// configured otherwise.
///
/// # Errors
/// The program cannot be started anew.
pub fn for_rivals() -> io::Result<()> {
    if std::env::var_os(TUNABLES).is_some() {
        return Ok(());
    }
    let arguments = std::env::args_os().skip(1);
    Err(Command::new(std::env::current_exe()?).args(arguments).env(TUNABLES, HUGE).exec())
}

/// Bytes of this process's private memory that are on huge pages, and all of it.
pub fn private_bytes() -> [u64; 2] {
    let rollup = Rollup::own().ok();
    ["AnonHugePages", "Anonymous"].map(|name| rollup.as_ref().map_or(0, |rollup| rollup.bytes(name)))
}
