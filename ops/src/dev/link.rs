//! What a supervisor and a node say to each other: lines over the node's stdin and stdout.
//!
//! To the node: `stop` (take a last checkpoint and exit); `partition both`, `partition in`, `partition out`
//! and `partition off` (a drill cuts the node off from its peers and the coordinator, and lets it back);
//! `slow disk N ms` and `slow disk off` (each write and sync of its logs takes so much longer, or no longer);
//! `memory limit N bytes` (what it may hold from here on: others have come or gone).
//! The end of the stream means that the supervisor is gone: exit at once, because the coordinator went with
//! it.
//!
//! To the supervisor: one JSON object a line, a [`Report`], at each change of state, and one with the error
//! of a node that ends by it.

use std::io::{self, BufRead, Write};
use std::thread;

use anyhow::Context;
use cell_drill::wire::PartitionWay;
use cell_fabric::Blocked;
use serde::{Deserialize, Serialize};

use crate::exit::classify;
use crate::output::message::in_words;

/// What the supervisor asks for.
pub(crate) const STOP: &str = "stop";
const PARTITION: &str = "partition ";
const SLOW_DISK: &str = "slow disk ";
const MEMORY_LIMIT: &str = "memory limit ";
const OFF: &str = "off";

/// Faults of a node that last until they are taken back, also when another process takes its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastingFaults {
    pub(crate) partition: Option<PartitionWay>,
    /// Zero: its disk is as ever.
    pub(crate) disk_delay_ms: u64,
}

impl LastingFaults {
    /// The line that sets a process's partition.
    pub(crate) fn partition_line(self) -> String {
        format!("{PARTITION}{}", self.partition.map_or(OFF, PartitionWay::word))
    }

    /// The line that sets a process's disk.
    pub(crate) fn slow_disk_line(self) -> String {
        match self.disk_delay_ms {
            0 => format!("{SLOW_DISK}{OFF}"),
            ms => format!("{SLOW_DISK}{ms} ms"),
        }
    }

    /// Arguments of `cell node` for a process that begins with them.
    pub(crate) fn arguments(self) -> Vec<String> {
        let partition = self.partition.map(|way| format!("--partitioned={}", way.word()));
        let delay = (self.disk_delay_ms > 0).then(|| format!("--slow-disk-ms={}", self.disk_delay_ms));
        partition.into_iter().chain(delay).collect()
    }
}

/// The line that says what a node may hold in memory.
pub(crate) fn memory_line(bytes: u64) -> String {
    format!("{MEMORY_LIMIT}{bytes} bytes")
}

/// The argument of `cell node` for a process that may hold so much from its start on.
pub(crate) fn memory_argument(bytes: u64) -> String {
    format!("--memory-share={bytes}")
}

/// Longest reason that is passed on, in bytes.
const REASON_BYTES_MAX: usize = 500;

/// The argument of `cell node` for a process that follows others which ended the same way.
pub(crate) fn restarted_argument(why: &str) -> String {
    format!("--restarted-because={}", &why[..why.floor_char_boundary(REASON_BYTES_MAX)])
}

/// What a filter drops in such a partition.
pub(crate) fn blocked(way: Option<PartitionWay>) -> Blocked {
    match way {
        None => Blocked::Nothing,
        Some(PartitionWay::Both) => Blocked::Both,
        Some(PartitionWay::In) => Blocked::Inbound,
        Some(PartitionWay::Out) => Blocked::Outbound,
    }
}

/// A node's state, as far as its supervisor cares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The state in one word.
    pub(crate) state: String,
    /// More of it, for people.
    pub(crate) detail: String,
    /// Of the last report of a node that fails: what can be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// The state of the last report of a node that fails.
const LAST: &str = "ended";

impl Report {
    /// The last report of a node that ends with this error.
    pub(crate) fn last(error: &anyhow::Error) -> Report {
        let next = classify(error).1.map(str::to_owned);
        Report { state: LAST.to_owned(), detail: in_words(error), next }
    }

    /// Whether the node ends after it.
    pub(crate) fn is_last(&self) -> bool {
        self.state == LAST
    }
}

/// What a node receives from its supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Stop in good order.
    Stop,
    /// Be cut off, or be it no longer.
    Partition(Option<PartitionWay>),
    /// Have a disk that is so many milliseconds slower; zero: no longer.
    SlowDisk(u64),
    /// Hold no more in memory than so many bytes.
    MemoryLimit(u64),
    /// The supervisor is gone.
    Gone,
}

/// Reports to the supervisor. A supervisor that does not read any more is noticed by its silence on stdin.
pub(crate) fn send_report(report: &Report) {
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        let mut out = io::stdout().lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}

fn word(line: &str) -> Option<Word> {
    if let Some(way) = line.strip_prefix(PARTITION) {
        let way = if way == OFF { None } else { Some(PartitionWay::from_word(way)?) };
        return Some(Word::Partition(way));
    }
    if let Some(delay) = line.strip_prefix(SLOW_DISK) {
        let ms = if delay == OFF { 0 } else { delay.strip_suffix(" ms")?.parse().ok()? };
        return Some(Word::SlowDisk(ms));
    }
    if let Some(limit) = line.strip_prefix(MEMORY_LIMIT) {
        return Some(Word::MemoryLimit(limit.strip_suffix(" bytes")?.parse().ok()?));
    }
    (line == STOP).then_some(Word::Stop)
}

/// Listens to stdin on a thread of its own.
pub(crate) fn listen(mut take: impl FnMut(Word) + Send + 'static) -> anyhow::Result<()> {
    let run = move || {
        for line in io::stdin().lock().lines() {
            match line {
                Ok(line) => word(line.trim()).into_iter().for_each(&mut take),
                Err(_) => break,
            }
        }
        take(Word::Gone);
    };
    thread::Builder::new().name("supervised".into()).spawn(run).context("cannot start a thread")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_of_each_line_is_what_it_was_made_of_and_of_others_nothing() {
        for partition in [None, Some(PartitionWay::Both), Some(PartitionWay::In), Some(PartitionWay::Out)] {
            for disk_delay_ms in [0, 1, 2_000] {
                let faults = LastingFaults { partition, disk_delay_ms };
                assert_eq!(word(&faults.partition_line()), Some(Word::Partition(partition)));
                assert_eq!(word(&faults.slow_disk_line()), Some(Word::SlowDisk(disk_delay_ms)));
                let arguments = usize::from(partition.is_some()) + usize::from(disk_delay_ms > 0);
                assert_eq!(faults.arguments().len(), arguments);
            }
        }
        assert_eq!(word(STOP), Some(Word::Stop));
        assert_eq!(word(&memory_line(7 << 30)), Some(Word::MemoryLimit(7 << 30)));
        let memory = ["memory limit", "memory limit x bytes", "memory limit 5"];
        let others = ["", "partition", "partition sideways", "slow disk", "slow disk 5", "slow disk x ms"];
        for line in memory.into_iter().chain(others) {
            assert_eq!(word(line), None, "{line}");
        }
    }
}
