//! The host: limits of its processes, large pages, clocks, RDMA devices.

use std::fs;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::finding::Finding;
use crate::output::number::bytes;

const FILES: u64 = 65_536;
/// A wall clock that moved so much against the clock since boot was set.
const STEP_NS: i128 = 100_000_000;

/// Looks at all but the clock's steps, which take time to see.
pub(super) fn look() -> Vec<Finding> {
    let devices = names("/sys/class/infiniband");
    vec![locked_memory(!devices.is_empty()), files(), pages(), clock_source(), rdma(&devices)]
}

fn locked_memory(is_needed: bool) -> Finding {
    const NEXT: &str = "LimitMEMLOCK=infinity in the unit, or `ulimit -l unlimited`";
    match getrlimit(Resource::Memlock).current {
        None => Finding::well("memlock", "unlimited"),
        Some(limit) if is_needed => {
            let seen = format!("{}, and RDMA locks regions whole", bytes(limit));
            Finding::doubtful("memlock", seen, NEXT)
        }
        Some(limit) => Finding::well("memlock", format!("{}; nothing locks regions", bytes(limit))),
    }
}

fn files() -> Finding {
    files_of(getrlimit(Resource::Nofile).maximum)
}

/// For the hard limit of who asks: a node started by them raises its own to that, and one of a unit to the
/// unit's.
fn files_of(maximum: Option<u64>) -> Finding {
    const NEXT: &str =
        "LimitNOFILE=65536 in the unit, or `ulimit -n`; a node of a unit goes by the unit's alone";
    let most = maximum.map_or_else(|| "unlimited".to_owned(), |limit| format!("{limit} at the most"));
    let seen = format!("{most} for a node that is started from here; a unit has its own LimitNOFILE");
    match maximum {
        Some(limit) if limit < FILES => Finding::doubtful("open files", seen, NEXT),
        _ => Finding::well("open files", seen),
    }
}

fn pages() -> Finding {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let shmem = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
    pages_of(&meminfo, &shmem)
}

fn pages_of(meminfo: &str, shmem: &str) -> Finding {
    const NEXT: &str =
        "vm.nr_hugepages, or `echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled`";
    let free = meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Free:"));
    let free: u64 = free.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let transparent = shmem.split(['[', ']']).nth(1).unwrap_or("unknown");
    let seen = format!("{free} huge pages are free, transparent ones for shared memory: {transparent}");
    match (free, transparent) {
        (0, "never" | "deny" | "unknown") => Finding::doubtful("huge pages", seen, NEXT),
        _ => Finding::well("huge pages", seen),
    }
}

fn clock_source() -> Finding {
    const NEXT: &str = "see the kernel's log for why it does not trust the processor's clock";
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = fs::read_to_string(path).unwrap_or_default();
    match source.trim() {
        "" => Finding::doubtful("clock source", "the kernel does not say", NEXT),
        slow @ ("hpet" | "acpi_pm" | "jiffies" | "pit") => {
            Finding::doubtful("clock source", format!("{slow}, which is slow to read"), NEXT)
        }
        source => Finding::well("clock source", source),
    }
}

/// The clock since boot and the wall clock, at one time.
#[derive(Clone, Copy)]
pub(super) struct Clocks {
    boot_ns: i128,
    wall_ns: i128,
}

impl Clocks {
    pub(super) fn read() -> Clocks {
        let read = |clock| {
            let time = clock_gettime(clock);
            i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
        };
        Clocks { boot_ns: read(ClockId::Boottime), wall_ns: read(ClockId::Realtime) }
    }
}

/// How the clocks have gone since then, while all else was looked at.
pub(super) fn clock_since(before: Clocks) -> Finding {
    clock_between(before, Clocks::read())
}

fn clock_between(before: Clocks, after: Clocks) -> Finding {
    const NEXT: &str =
        "let the wall clock be slewed and not set; leases go by the clock since boot and do not mind";
    let boot_ns = after.boot_ns - before.boot_ns;
    let step_ns = after.wall_ns - before.wall_ns - boot_ns;
    let during = boot_ns / 1_000_000;
    match step_ns.abs() {
        step if step > STEP_NS => {
            let seen = format!("the wall clock was set by {} ms within {during} ms", step_ns / 1_000_000);
            Finding::doubtful("clock", seen, NEXT)
        }
        _ => Finding::well("clock", format!("no step within {during} ms")),
    }
}

fn rdma(devices: &[String]) -> Finding {
    let seen = if devices.is_empty() { "no device: tcp is used".to_owned() } else { devices.join(", ") };
    Finding::well("RDMA", seen)
}

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Health;
    use super::*;

    #[test]
    fn open_files_say_whose_limit_was_judged() {
        for (maximum, health) in
            [(Some(FILES - 1), Health::Doubtful), (Some(FILES), Health::Well), (None, Health::Well)]
        {
            let found = files_of(maximum);
            assert_eq!(found.health, health, "{maximum:?}");
            assert!(found.seen.contains("started from here; a unit has its own LimitNOFILE"), "{maximum:?}");
        }
    }

    #[test]
    fn pages_are_doubtful_where_there_is_no_large_one_to_be_had() {
        let health = |meminfo: &str, shmem: &str| pages_of(meminfo, shmem).health;
        assert_eq!(health("HugePages_Free:        0\n", "always within_size [never]\n"), Health::Doubtful);
        assert_eq!(health("HugePages_Free:        0\n", "always [advise] never\n"), Health::Well);
        assert_eq!(health("HugePages_Free:        8\n", "always [never]\n"), Health::Well);
        assert_eq!(health("", ""), Health::Doubtful);
    }

    #[test]
    fn clock_that_was_set_is_doubtful_and_time_that_passes_is_not() {
        let at = |boot_ns, wall_ns| Clocks { boot_ns, wall_ns };
        let second = 1_000_000_000;
        assert_eq!(clock_between(at(0, 0), at(second, second)).health, Health::Well);
        for wall_ns in [2 * second, 0] {
            assert_eq!(clock_between(at(0, 0), at(second, wall_ns)).health, Health::Doubtful, "{wall_ns}");
        }
    }
}
