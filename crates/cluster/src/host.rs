//! Which host a process runs on: as far as that, its locks and its clock are good.
//!
//! A lock on a file excludes the processes of one kernel, and CLOCK_BOOTTIME is the clock of one. What
//! another machine holds, or how long ago something was there, neither of them shows:
//!
//! 1. node 3 serves on machine A, and holds the lock on its folder there;
//! 2. somebody starts a node 3 on machine B as well: nobody there holds the lock;
//! 3. if B cut A's logs because it holds "the" lock, what A acknowledges from then on would be lost.
//!
//! So a row says on which host its owner runs. Of an owner on another host, or on an unknown one, only the
//! end of its lease shows that it is gone.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One boot of one machine, over one log root. Two processes with equal ids share a kernel, its locks and its
/// CLOCK_BOOTTIME, and the log folders. After a reboot, or over another log root, a machine is another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct HostId {
    boot: u128,
    log_root: u128,
}

impl HostId {
    /// A host by the kernel's boot id and the id that lies in the log root.
    #[must_use]
    pub const fn new(boot: u128, log_root: u128) -> HostId {
        HostId { boot, log_root }
    }

    /// The id that lies in the log root.
    pub(crate) const fn log_root(self) -> u128 {
        self.log_root
    }

    /// The host of this process, over the log root with this id. None where the kernel does not give its boot
    /// id: then only leases count.
    #[must_use]
    pub fn of_this_process(log_root: u128) -> Option<HostId> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let boot = u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()?;
        Some(HostId { boot, log_root })
    }
}

/// Both ids in hexadecimal, as rows have them.
impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}/{:032x}", self.boot, self.log_root)
    }
}

impl From<HostId> for String {
    fn from(host: HostId) -> String {
        host.to_string()
    }
}

impl FromStr for HostId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<HostId, &'static str> {
        let (boot, log_root) = text.split_once('/').ok_or("a host has two ids")?;
        let id = |text| u128::from_str_radix(text, 16).map_err(|_| "an id of a host is hexadecimal");
        Ok(HostId { boot: id(boot)?, log_root: id(log_root)? })
    }
}

impl TryFrom<String> for HostId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<HostId, &'static str> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_id_text_is_pinned() {
        let host = HostId::new(0x12, u128::MAX);
        let text = r#""00000000000000000000000000000012/ffffffffffffffffffffffffffffffff""#;
        assert_eq!(serde_json::to_string(&host).unwrap(), text);
        assert_eq!(serde_json::from_str::<HostId>(text).unwrap(), host);
        for other in ["12", "x/1", "1/"] {
            assert!(other.parse::<HostId>().is_err(), "{other}");
        }
    }

    #[test]
    fn host_of_this_process_differs_by_log_root_alone() {
        let host = HostId::of_this_process(1).unwrap();
        assert_eq!(HostId::of_this_process(1), Some(host));
        assert_ne!(HostId::of_this_process(2), Some(host));
        assert_ne!(host.boot, 0);
    }
}
