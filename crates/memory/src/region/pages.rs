//! Which pages a region stands on: 1 GiB pages where they are reserved, else 2 MiB, else transparent huge
//! pages, else small ones. What the machine has reserved is used, never changed.

use std::fmt;
use std::fs::{self, File};
use std::sync::Arc;

use cell_terms::mutant::{Mutant, planted};
use rustix::fs::{MemfdFlags, Mode, SealFlags};

use super::available::Ledger;
use crate::error::MemoryError;
use crate::mapping::{Access, Mapping, PAGE_BYTES, UNIT_BYTES};

const HUGE_1G: u64 = 1 << 30;
const HUGE_2M: u64 = 2 << 20;
/// 1 GiB pages are not chosen unasked if rounding up to them would waste more than this part of the region.
const ROUNDING_WASTE: u64 = 8;

/// Which pages to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// The largest that the machine has reserved enough of for the whole region, else transparent huge pages
    /// where the kernel makes them, else small pages.
    #[default]
    Auto,
    /// 1 GiB pages or an error.
    Huge1G,
    /// 2 MiB pages or an error.
    Huge2M,
    /// Transparent huge pages where the kernel makes them, else small pages.
    Transparent,
    /// Small pages.
    Small,
}

/// The pages that a region got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Reserved 1 GiB pages.
    Huge1G,
    /// Reserved 2 MiB pages.
    Huge2M,
    /// Transparent 2 MiB pages, wherever the kernel finds them; [`crate::Region::huge_bytes`] says how many
    /// it found.
    Transparent,
    /// Pages of 4 KiB.
    Small,
    /// Memory of this process alone ([`crate::Region::create_private`]).
    Private,
    /// A region that another process made; its pages are that process's affair.
    Foreign,
}

impl Backing {
    /// The word for it in logs, metrics and the console.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Backing::Huge1G => "1g",
            Backing::Huge2M => "2m",
            Backing::Transparent => "transparent",
            Backing::Small => "small",
            Backing::Private => "private",
            Backing::Foreign => "foreign",
        }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Makes, maps and seals a zeroed file of at least `bytes`.
pub(super) fn create(
    name: &str,
    bytes: u64,
    pages: HugePages,
    memory_check: bool,
) -> Result<(Arc<Mapping>, Backing), MemoryError> {
    let mut ledger = Ledger::open();
    let reserved: &[(u64, MemfdFlags, Backing)] = match pages {
        HugePages::Auto => &[GIBIBYTE, MEBIBYTES],
        HugePages::Huge1G => &[GIBIBYTE],
        HugePages::Huge2M => &[MEBIBYTES],
        HugePages::Transparent | HugePages::Small => &[],
    };
    for &(page_bytes, flags, backing) in reserved {
        let rounding = bytes.next_multiple_of(page_bytes) - bytes;
        if pages == HugePages::Auto && rounding > bytes / ROUNDING_WASTE {
            continue;
        }
        match reserved_pages(name, bytes, page_bytes, flags) {
            Ok(mapping) => {
                let mapping = Arc::new(mapping);
                ledger.enter(&mapping);
                return Ok((mapping, backing));
            }
            Err(error) if pages == HugePages::Auto => tracing::debug!(name, %error, "next smaller pages"),
            Err(error) => return Err(error),
        }
    }
    if memory_check {
        ledger.check(bytes).or_else(|_| {
            crate::ready::give_up();
            ledger.check(bytes)
        })?;
    }
    let mapping = ordinary_pages(name, bytes)?;
    let backing = if pages == HugePages::Small { Backing::Small } else { probe(&mapping) };
    let mapping = Arc::new(mapping);
    ledger.enter(&mapping);
    Ok((mapping, backing))
}

const GIBIBYTE: (u64, MemfdFlags, Backing) = (HUGE_1G, MemfdFlags::HUGE_1GB, Backing::Huge1G);
const MEBIBYTES: (u64, MemfdFlags, Backing) = (HUGE_2M, MemfdFlags::HUGE_2MB, Backing::Huge2M);

/// Mapping a file of reserved pages without `MAP_NORESERVE` makes the kernel set all of its pages aside or
/// fail, so no later touch can find the pool empty. The count beforehand is for a clear error.
fn reserved_pages(name: &str, bytes: u64, page_bytes: u64, size: MemfdFlags) -> Result<Mapping, MemoryError> {
    let needed = bytes.div_ceil(page_bytes);
    let free = free_pages(page_bytes);
    if free < needed {
        return Err(MemoryError::HugePagesShort { page_bytes, needed, free });
    }
    let file = memory_file(name, needed * page_bytes, MemfdFlags::HUGETLB | size)?;
    map_and_seal(file, needed * page_bytes, page_bytes)
}

fn ordinary_pages(name: &str, bytes: u64) -> Result<Mapping, MemoryError> {
    let bytes = bytes.next_multiple_of(UNIT_BYTES);
    map_and_seal(memory_file(name, bytes, MemfdFlags::empty())?, bytes, UNIT_BYTES)
}

/// Free pages of the pool that nobody has been promised.
fn free_pages(page_bytes: u64) -> u64 {
    let pool = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", page_bytes / 1024);
    let count = |name: &str| fs::read_to_string(format!("{pool}/{name}")).ok()?.trim().parse::<u64>().ok();
    let free = count("free_hugepages").unwrap_or(0) + surplus_pages(&count);
    free.saturating_sub(count("resv_hugepages").unwrap_or(0))
}

/// Pages that the kernel may still add to the pool because its operator said so (`nr_overcommit_hugepages`).
fn surplus_pages(count: &impl Fn(&str) -> Option<u64>) -> u64 {
    let permitted = count("nr_overcommit_hugepages").unwrap_or(0);
    permitted.saturating_sub(count("surplus_hugepages").unwrap_or(0))
}

fn memory_file(name: &str, bytes: u64, flags: MemfdFlags) -> Result<File, MemoryError> {
    let failed = |errno: rustix::io::Errno| MemoryError::Create { bytes, source: errno.into() };
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL);
    // Kernels before 6.3 do not know NOEXEC_SEAL.
    let file = match made {
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        made => made,
    };
    let file = file.map_err(failed)?;
    // Seals stop new writers, but not who opens the file anew through /proc and lets it take memory: that
    // takes the right to write, which its mode gives nobody (root needs none, and its owner can change the
    // mode).
    if !planted(Mutant::HandedReopenable) {
        rustix::fs::fchmod(&file, Mode::RUSR).map_err(failed)?;
    }
    rustix::fs::ftruncate(&file, bytes).map_err(failed)?;
    Ok(file.into())
}

/// The writer's mapping comes first: the seal forbids every later one.
fn map_and_seal(file: File, bytes: u64, align: u64) -> Result<Mapping, MemoryError> {
    let mapping = Mapping::of_file(file, bytes, align, Access::Write)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    if let Some(file) = mapping.file() {
        rustix::fs::fcntl_add_seals(file, seals)
            .map_err(|errno| MemoryError::Seal { source: errno.into() })?;
    }
    Ok(mapping)
}

/// Whether the kernel makes a huge page of the first 2 MiB. Asking is the only way to know: it depends on
/// version, configuration and free memory.
fn probe(mapping: &Mapping) -> Backing {
    let collapsed = mapping.populate(0, PAGE_BYTES).and_then(|()| collapse_patiently(mapping, 0));
    match collapsed {
        Ok(()) => Backing::Transparent,
        Err(error) => {
            tracing::info!(%error, "no transparent huge pages, using small pages");
            Backing::Small
        }
    }
}

/// The kernel may be short of a free huge page for a moment.
pub(super) fn collapse_patiently(mapping: &Mapping, offset: u64) -> std::io::Result<()> {
    let once = || mapping.collapse(offset, UNIT_BYTES);
    once().or_else(|error| match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EBUSY) => once(),
        _ => Err(error),
    })
}

/// Maps a region that another process made, for reading. Its size must be sealed, and nobody may still write
/// to it by its descriptor, or a reader could be killed by it: pages that are taken back by either may not be
/// had again.
pub(super) fn open(file: File) -> Result<Mapping, MemoryError> {
    let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE) {
        return Err(MemoryError::NotSealed);
    }
    let failed = |source: std::io::Error| MemoryError::Map { bytes: 0, source };
    let bytes = file.metadata().map_err(failed)?.len();
    let filesystem = rustix::fs::fstatfs(&file).map_err(|errno| failed(errno.into()))?;
    let page_bytes = u64::try_from(filesystem.f_bsize).unwrap_or(0);
    if bytes == 0 || !page_bytes.is_power_of_two() {
        return Err(failed(std::io::ErrorKind::InvalidData.into()));
    }
    Mapping::of_file(file, bytes, page_bytes.max(UNIT_BYTES), Access::Read)
}
