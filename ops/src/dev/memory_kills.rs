//! Whether the kernel has ended processes for want of memory: the one SIGKILL that nobody sends.

use std::fs;

/// The kernel's counts, of the whole machine.
const COUNTS: &str = "/proc/vmstat";

/// How many processes the kernel had ended so at a moment; none: it does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryKills(Option<u64>);

impl MemoryKills {
    /// As of now.
    pub(crate) fn now() -> MemoryKills {
        MemoryKills(fs::read_to_string(COUNTS).ok().and_then(|counts| count(&counts)))
    }

    /// Who may have killed a process that began then and has just ended.
    pub(crate) fn who(self) -> &'static str {
        self.who_by(MemoryKills::now())
    }

    fn who_by(self, now: MemoryKills) -> &'static str {
        match (self.0, now.0) {
            (Some(then), Some(now)) if now > then => {
                "maybe by the kernel: it has ended a process for want of memory since this one was started"
            }
            (Some(_), Some(_)) => "from outside, and not by the kernel for want of memory",
            _ => "from outside, maybe by the kernel for want of memory",
        }
    }
}

fn count(counts: &str) -> Option<u64> {
    counts.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_the_kernel_if_it_has_killed_since_and_unknown_if_it_does_not_tell() {
        assert_eq!(count("pgfault 7\noom_kill 12\noom_kill_x 3\n"), Some(12));
        assert_eq!(count("pgfault 7\n"), None);
        let who = |then, now| MemoryKills(then).who_by(MemoryKills(now));
        assert!(who(Some(3), Some(4)).starts_with("maybe by the kernel"));
        assert!(who(Some(3), Some(3)).starts_with("from outside, and not"));
        assert!(who(None, Some(3)).contains("maybe by the kernel"));
    }
}
