//! What the machine and the process's control group have.

use std::fs;
use std::path::Path;

/// What machine and control group have at all; `None` if the system does not say.
#[must_use]
pub fn total_bytes() -> Option<u64> {
    let machine = meminfo_field(&read("/proc/meminfo")?, "MemTotal")?;
    Some(group_levels().iter().fold(machine, |total, level| total.min(level.limit)))
}

/// What machine and control group could still give, what they would take back from caches included; `None`
/// if the system does not say.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let machine = meminfo_field(&read("/proc/meminfo")?, "MemAvailable")?;
    Some(group_levels().iter().fold(machine, |available, level| available.min(level.available())))
}

/// A control group: the process's own, or one above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GroupLevel {
    limit: u64,
    usage: u64,
    /// Caches of files, which the kernel takes back before it refuses anything.
    reclaimable: u64,
}

impl GroupLevel {
    fn available(&self) -> u64 {
        self.limit.saturating_sub(self.usage.saturating_sub(self.reclaimable))
    }
}

/// The groups whose limits count for this process; none where there are none.
fn group_levels() -> Vec<GroupLevel> {
    let Some(groups) = read("/proc/self/cgroup") else { return Vec::new() };
    group_levels_at(Path::new("/sys/fs/cgroup"), &groups)
}

/// As `groups` (lines of `id:controllers:path`) says, below the folder of all control groups. Where the
/// group's own folder cannot be seen (a container), the mount's root is that group.
fn group_levels_at(mount: &Path, groups: &str) -> Vec<GroupLevel> {
    let Some((path, names)) = group_folder(groups) else { return Vec::new() };
    let mount = mount.join(names.mount);
    let own = Path::new(path.trim_start_matches('/'));
    own.ancestors().filter_map(|level| names.read(&mount.join(level))).collect()
}

struct GroupNames {
    mount: &'static str,
    limit: &'static str,
    usage: &'static str,
    caches: [&'static str; 2],
}

const VERSION_2: GroupNames = GroupNames {
    mount: "",
    limit: "memory.max",
    usage: "memory.current",
    caches: ["inactive_file", "active_file"],
};
const VERSION_1: GroupNames = GroupNames {
    mount: "memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    caches: ["total_inactive_file", "total_active_file"],
};

impl GroupNames {
    /// `None`: no such group, or one without a limit.
    fn read(&self, folder: &Path) -> Option<GroupLevel> {
        let number = |name| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
        let (limit, usage) = (number(self.limit)?, number(self.usage)?);
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let fields = stat.lines().filter_map(|line| line.split_once(' '));
        let caches = fields.filter(|(name, _)| self.caches.contains(name));
        let reclaimable = caches.filter_map(|(_, value)| value.trim().parse::<u64>().ok()).sum();
        Some(GroupLevel { limit, usage, reclaimable })
    }
}

/// The memory controller's folder.
fn group_folder(groups: &str) -> Option<(&str, GroupNames)> {
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

pub(crate) fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// A field of lines such as `MemTotal:  9 kB`, in bytes.
pub(crate) fn meminfo_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_field_is_read_in_bytes() {
        let text = "MemTotal:  9 kB\nMemAvailable:    24313 kB\n";
        assert_eq!(meminfo_field(text, "MemAvailable"), Some(24313 * 1024));
        assert_eq!((meminfo_field(text, "MemTotal"), meminfo_field(text, "Mem")), (Some(9 * 1024), None));
    }

    #[test]
    fn group_folder_memory_controller_wins_over_the_unified_one() {
        let (path, names) = group_folder("8:pids:/\n4:cpu,memory:/a:b\n0::/c\n").unwrap();
        assert_eq!((path, names.limit), ("/a:b", VERSION_1.limit));
        let (path, names) = group_folder("8:pids:/\n0::/c\n").unwrap();
        assert_eq!((path, names.limit), ("/c", VERSION_2.limit));
        assert!(group_folder("nonsense").is_none());
    }

    fn group(folder: &Path, names: &GroupNames, [limit, usage]: [&str; 2], stat: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(names.limit), limit).unwrap();
        fs::write(folder.join(names.usage), usage).unwrap();
        fs::write(folder.join("memory.stat"), stat).unwrap();
    }

    /// Both versions, a level without a limit, one whose cache counts as free, and a container that sees the
    /// mount's root alone.
    #[test]
    fn group_levels_of_both_versions_count_every_level_and_what_caches_would_give_back() {
        let mount = std::env::temp_dir().join(format!("cell-memory-groups-{}", std::process::id()));
        let stat = "anon 50\ninactive_file 30\nactive_file 10\n";
        group(&mount.join("a"), &VERSION_2, ["max\n", "900\n"], stat);
        group(&mount.join("a/b"), &VERSION_2, ["100\n", "90\n"], stat);
        let levels = group_levels_at(&mount, "0::/a/b\n");
        assert_eq!(levels, [GroupLevel { limit: 100, usage: 90, reclaimable: 40 }]);
        assert_eq!(levels[0].available(), 50);

        let v1 = mount.join("memory");
        let stat = "inactive_file 9999\ntotal_inactive_file 20\ntotal_active_file 5\n";
        group(&v1, &VERSION_1, ["1000\n", "400\n"], stat);
        group(&v1.join("a"), &VERSION_1, ["500\n", "450\n"], "");
        let limits: Vec<_> = group_levels_at(&mount, "4:memory:/a\n0::/x\n");
        assert_eq!(limits.iter().map(|level| level.limit).collect::<Vec<_>>(), [500, 1000]);
        assert_eq!(limits.iter().map(GroupLevel::available).collect::<Vec<_>>(), [50, 625]);
        let limits = group_levels_at(&mount, "4:memory:/elsewhere/in/the/host\n");
        assert_eq!(limits.iter().map(|level| level.limit).collect::<Vec<_>>(), [1000]);
        fs::remove_dir_all(&mount).unwrap();
    }
}
