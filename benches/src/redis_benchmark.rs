//! `redis-benchmark`, the tool of Redis's own that its users measure it by. Its keys are of its own kind, so
//! that they are in a server of their own, with the values of the dataset.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use cell_tests::reaper;

use crate::contest;
use crate::data::{Batch, Dataset};
use crate::disk;
use crate::options::BenchError;
use crate::redis::{Keeps, Redis};

const TOOL: &str = "redis-benchmark";
/// Entries that are set at a time while the server is filled, and how many commands are outstanding then.
const BATCH_ENTRIES: u64 = 20_000;
const FILLING: usize = 1024;
/// How often it runs; the run in the middle counts.
const RUNS: usize = 3;

/// Whether there is one.
pub(crate) fn is_installed() -> bool {
    disk::has(TOOL)
}

/// A server whose keys are the tool's.
pub(crate) struct RedisBenchmark {
    redis: Redis,
    entries: u64,
}

impl RedisBenchmark {
    /// Starts a server in a folder, with as many entries as the dataset has.
    ///
    /// # Errors
    /// The process or the connection failed.
    pub(crate) fn start(folder: &Path, data: &Dataset) -> io::Result<Self> {
        let mut redis = Redis::start(folder, Keeps::Dump)?;
        for first in (0..data.entries).step_by(usize::try_from(BATCH_ENTRIES).unwrap_or(1)) {
            let mut batch = Batch::default();
            for ordinal in first..(first + BATCH_ENTRIES).min(data.entries) {
                batch.keys.push_with(|bytes| bytes.extend(format!("key:{ordinal:012}").into_bytes()));
                batch.values.push_with(|bytes| data.push_value(ordinal, bytes));
            }
            redis.put(&batch, FILLING)?;
        }
        Ok(Self { redis, entries: data.entries })
    }

    /// Gets a second of random keys over so many connections with so many outstanding, over TCP or the unix
    /// socket; `count` gets a run.
    ///
    /// # Errors
    /// The tool failed, or asked for keys that are not there.
    pub(crate) fn gets(&mut self, unix: bool, load: (usize, usize), count: usize) -> Result<f64, BenchError> {
        let missed = self.redis.misses()?;
        let rates: Result<Vec<f64>, BenchError> = (0..RUNS).map(|_| self.run(unix, load, count)).collect();
        let rates = rates?;
        match self.redis.misses()? - missed {
            0 => Ok(contest::median(&rates)),
            missed => Err(failed(&format!("{missed} of its keys were not there"))),
        }
    }

    fn run(
        &self,
        unix: bool,
        (connections, outstanding): (usize, usize),
        count: usize,
    ) -> Result<f64, BenchError> {
        let mut command = Command::new(TOOL);
        reaper::mark(&mut command);
        command.args(self.redis.arguments(unix)).args(["-q", "--csv", "-t", "get"]);
        let (clients, requests) = (connections.to_string(), count.to_string());
        command.args(["-c", &clients, "-n", &requests]);
        command.args(["-P", &outstanding.to_string(), "-r", &self.entries.to_string()]);
        let output = command.stdin(Stdio::null()).output()?;
        let [said, complained] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        rate_of(&said).ok_or_else(|| failed(complained.trim()))
    }
}

fn failed(how: &str) -> BenchError {
    BenchError::Io(io::Error::other(format!("{TOOL}: {how}")))
}

/// Gets a second of what the tool prints: a row of each test, since Redis 6.2 below a row of names.
fn rate_of(said: &str) -> Option<f64> {
    let row = said.lines().find_map(|line| line.strip_prefix("\"GET\",\""))?;
    row.split('"').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis;

    #[test]
    fn rate_of_the_tools_rows_is_that_of_gets() {
        let new = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"83333.34\",\"0.089\"\n";
        assert_eq!(rate_of(new), Some(83_333.34));
        assert_eq!(rate_of("\"GET\",\"1000.50\"\n"), Some(1_000.5));
        assert_eq!(rate_of("\"SET\",\"1000.50\"\n"), None);
    }

    #[test]
    fn gets_by_the_tool_are_of_keys_that_are_there() {
        if !redis::is_installed() || !is_installed() {
            println!(
                "SKIPPED: redis-benchmark as a rival: it is missing (apt install redis-server redis-tools)"
            );
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let data = Dataset { entries: 1_000, seed: 1 };
        let mut tool = RedisBenchmark::start(folder.path(), &data).unwrap();
        for unix in [false, true] {
            assert!(tool.gets(unix, (2, 4), 1_000).unwrap() > 0.0);
        }
        tool.entries = 1_000_000;
        assert!(tool.gets(true, (2, 4), 1_000).unwrap_err().to_string().contains("were not there"));
    }
}
