//! A memory control group of a test's own, of either version of the interface: what runs in it gets so much
//! memory, and it shows whether anything was killed for want of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A group that limits memory; removed when dropped, when its processes are gone.
#[derive(Debug)]
pub struct ControlGroup {
    folder: PathBuf,
    names: &'static Names,
}

#[derive(Debug)]
struct Names {
    /// Where groups are made.
    mount: &'static str,
    limit: &'static str,
    /// Has a line `oom_kill N`.
    events: &'static str,
    /// The most that was held at any time.
    peak: &'static str,
}

const VERSIONS: [Names; 2] = [
    Names {
        mount: "/sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        events: "memory.oom_control",
        peak: "memory.max_usage_in_bytes",
    },
    Names { mount: "/sys/fs/cgroup", limit: "memory.max", events: "memory.events", peak: "memory.peak" },
];

impl ControlGroup {
    /// A group of so many bytes; `None`, said loudly, where none can be made: that takes root and a mounted
    /// controller.
    pub fn new(bytes: u64) -> Option<ControlGroup> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("cell-test-{}-{number}", std::process::id());
        let made = VERSIONS.iter().find_map(|names| {
            let folder = Path::new(names.mount).join(&name);
            fs::create_dir(&folder).ok()?;
            let group = ControlGroup { folder, names };
            fs::write(group.folder.join(names.limit), bytes.to_string()).ok()?;
            group.kills().map(|_| group)
        });
        if made.is_none() {
            println!(
                "SKIPPED: a memory control group: making one takes root and a mounted memory controller"
            );
        }
        made
    }

    /// The file that a process writes its number to, to be in the group.
    pub fn procs_file(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Processes that were killed for want of memory; `None` if the group does not say.
    pub fn kills(&self) -> Option<u64> {
        let events = fs::read_to_string(self.folder.join(self.names.events)).ok()?;
        events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    }

    /// The most bytes that the group has held, caches included, where it says so.
    pub fn peak_bytes(&self) -> Option<u64> {
        fs::read_to_string(self.folder.join(self.names.peak)).ok()?.trim().parse().ok()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder); // a process that is still dying holds it
    }
}
