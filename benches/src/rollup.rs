//! What the kernel says of all memory of a process together.

use std::io;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

/// What a process has in memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Taken {
    /// Its own alone: heap, stacks, and what it has changed of files.
    pub(crate) private: u64,
    /// Of files and of shared memory, on huge pages or others. It may be mapped by others too, as a store is,
    /// or by this process and one more, as the rings of a connection are.
    pub(crate) mapped: u64,
}

impl Taken {
    /// What has come since then.
    pub(crate) fn since(self, before: Taken) -> Taken {
        let Taken { private, mapped } = before;
        Taken { private: self.private.saturating_sub(private), mapped: self.mapped.saturating_sub(mapped) }
    }

    /// Both.
    pub(crate) fn and(self, other: Taken) -> Taken {
        Taken { private: self.private + other.private, mapped: self.mapped + other.mapped }
    }
}

/// The sums over all that a process has mapped.
pub(crate) struct Rollup(String);

impl Rollup {
    /// Of this process.
    ///
    /// # Errors
    /// The kernel does not say.
    pub(crate) fn own() -> io::Result<Rollup> {
        std::fs::read_to_string("/proc/self/smaps_rollup").map(Rollup)
    }

    /// Of another one of this user.
    ///
    /// # Errors
    /// There is no such process.
    pub(crate) fn of(process: Pid) -> io::Result<Rollup> {
        std::fs::read_to_string(format!("/proc/{}/smaps_rollup", process.as_raw_nonzero())).map(Rollup)
    }

    /// A sum.
    pub(crate) fn bytes(&self, name: &str) -> u64 {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned);
        let line = self.0.lines().find_map(value).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse().unwrap_or(0) * 1024
    }

    /// What the process has.
    pub(crate) fn taken(&self) -> Taken {
        let private = self.bytes("Anonymous");
        // Huge pages of shared memory are in no other sum, and are private to the first who has them mapped.
        let huge = self.bytes("Shared_Hugetlb") + self.bytes("Private_Hugetlb");
        Taken { private, mapped: self.bytes("Rss").saturating_sub(private) + huge }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_is_what_is_anonymous_and_the_rest_with_huge_pages() {
        let text = "00400000-7ffd000 ---p 00000000 00:00 0    [rollup]\n\
                    Rss:                1000 kB\nPss:                 300 kB\nPss_Anon:            100 kB\n\
                    Anonymous:           120 kB\nAnonHugePages:         0 kB\nShared_Hugetlb:     4096 kB\n\
                    Private_Hugetlb:    2048 kB\n";
        let taken = Rollup(text.to_owned()).taken();
        assert_eq!(taken, Taken { private: 120 << 10, mapped: (880 + 4096 + 2048) << 10 });
        let before = Taken { private: 100 << 10, mapped: 8000 << 10 };
        assert_eq!(taken.since(before), Taken { private: 20 << 10, mapped: 0 });
        assert_eq!(taken.since(taken).and(before), before);
    }

    #[test]
    fn memory_that_was_written_to_is_private() {
        let written = vec![1_u8; 64 << 20];
        let own = Rollup::own().unwrap().taken();
        let seen = Rollup::of(rustix::process::getpid()).unwrap().taken();
        assert!(std::hint::black_box(&written).iter().all(|byte| *byte == 1));
        for taken in [own, seen] {
            assert!(taken.private >= 64 << 20 && taken.mapped > 0, "{taken:?}");
        }
    }
}
