//! Whether the machine has the memory for a region: a region is sparse at first, so a promise that is too
//! large would only be noticed later, as a killed process.

use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::mapping::Mapping;
use crate::error::MemoryError;

/// Every shared mapping that this process made. What they have not taken yet is promised already.
static MAPPINGS: Mutex<Vec<Weak<Mapping>>> = Mutex::new(Vec::new());

/// Held from the check of a new region to its entry, so that two that are made at once see each other.
pub(crate) struct Ledger(MutexGuard<'static, Vec<Weak<Mapping>>>);

impl Ledger {
    pub(crate) fn open() -> Ledger {
        let mut mappings = MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner);
        mappings.retain(|mapping| mapping.strong_count() > 0);
        Ledger(mappings)
    }

    /// Whether there is memory for `needed` more bytes. If the system does not tell, there is.
    pub(crate) fn check(&self, needed: u64) -> Result<(), MemoryError> {
        let Some(available) = available_bytes() else { return Ok(()) };
        let available = available.saturating_sub(self.promised());
        if needed <= available { Ok(()) } else { Err(MemoryError::MemoryShort { needed, available }) }
    }

    pub(super) fn enter(&mut self, mapping: &Arc<Mapping>) {
        self.0.push(Arc::downgrade(mapping));
    }

    fn promised(&self) -> u64 {
        let mappings = self.0.iter().filter_map(Weak::upgrade);
        mappings.map(|mapping| (mapping.bytes() as u64).saturating_sub(mapping.resident_bytes())).sum()
    }
}

fn available_bytes() -> Option<u64> {
    let machine = mem_available(&fs::read_to_string("/proc/meminfo").ok()?)?;
    Some(control_group_bytes().map_or(machine, |group| group.min(machine)))
}

fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// What the process's control group may still take, by version 2 or 1 of the interface; `None` without a
/// limit.
fn control_group_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let (folder, names) = control_group_folder(&groups)?;
    // Where the group's own folder cannot be seen (a container), the mount's root is that group.
    let folders =
        [format!("/sys/fs/cgroup{}{folder}", names.mount), format!("/sys/fs/cgroup{}", names.mount)];
    folders.iter().find_map(|folder| {
        let read =
            |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok()?.trim().parse::<u64>().ok();
        Some(read(names.limit)?.saturating_sub(read(names.usage)?))
    })
}

struct GroupNames {
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
}

const VERSION_2: GroupNames = GroupNames { mount: "", limit: "memory.max", usage: "memory.current" };
const VERSION_1: GroupNames =
    GroupNames { mount: "/memory", limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes" };

/// The memory controller's folder, from lines of `id:controllers:path`.
fn control_group_folder(groups: &str) -> Option<(&str, GroupNames)> {
    let mut lines = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let version_1 =
        lines.clone().find(|(controllers, _)| controllers.split(',').any(|name| name == "memory"));
    match version_1 {
        Some((_, path)) => Some((path, VERSION_1)),
        None => lines.find(|(controllers, _)| controllers.is_empty()).map(|(_, path)| (path, VERSION_2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mem_available_is_read_in_bytes() {
        assert_eq!(mem_available("MemTotal:  9 kB\nMemAvailable:    24313 kB\n"), Some(24313 * 1024));
        assert_eq!(mem_available("MemTotal:  9 kB\n"), None);
    }

    #[test]
    fn control_group_memory_controller_wins_over_the_unified_one() {
        let (path, names) = control_group_folder("8:pids:/\n4:cpu,memory:/a:b\n0::/c\n").unwrap();
        assert_eq!((path, names.limit), ("/a:b", VERSION_1.limit));
        let (path, names) = control_group_folder("8:pids:/\n0::/c\n").unwrap();
        assert_eq!((path, names.limit), ("/c", VERSION_2.limit));
        assert!(control_group_folder("nonsense").is_none());
    }

    #[test]
    fn available_on_this_machine_is_some_and_a_petabyte_is_short() {
        assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 20));
        let short = Ledger::open().check(1 << 50);
        assert!(matches!(short, Err(MemoryError::MemoryShort { needed: 0x4_0000_0000_0000, .. })));
    }
}
