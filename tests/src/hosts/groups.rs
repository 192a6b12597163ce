//! Control groups of the machine for what runs on hosts, which systemd wants. Nothing removes them with a
//! host, nor with a test that is killed. So they have the number of the test's process in their names, and
//! whoever starts hosts removes those of processes that have ended.

use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("groups.sh");
/// No process has this number.
const NOBODY: u32 = 0;

/// The control groups of this process's hosts. Whoever wants one makes it, by its name. They are removed when
/// this is dropped, once their hosts are gone.
pub struct HostGroups {
    process: u32,
}

impl HostGroups {
    /// For hosts of this process, which has no groups yet. Those of an earlier one with its number are
    /// removed.
    pub fn begin() -> Self {
        let process = std::process::id();
        remove(process);
        Self { process }
    }

    /// The name of the group of a host, at the top of the machine's groups.
    pub fn name(&self, host: u16) -> String {
        format!("cell-hosts-{}-{host}", self.process)
    }
}

impl Drop for HostGroups {
    fn drop(&mut self) {
        remove(self.process);
    }
}

/// Removes the groups of processes that have ended.
pub(super) fn remove_left() {
    remove(NOBODY);
}

/// The same, and those of one process.
fn remove(process: u32) {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, "groups", &process.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = command.status(); // what stays is empty, or is removed at the next start
}
