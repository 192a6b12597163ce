//! A real node as a child, and pipelined load on it from this process: what `put` and `restart` measure.

use std::path::Path;
use std::time::Duration;

use cell_client::{
    Client, ClientError, ClientOptions, Completion, Condition, Operation, Output, Search, Transport,
};
use cell_fabric::TlsTrust;
use cell_tests::lease::LONG_LEASE;
use cell_tests::program;
use cell_tests::server::Server;
use cell_tests::wait;
use rustix::process::Pid;

use crate::data::{Batch, Dataset, Packed};
use crate::figure::Report;
use crate::options::{BenchError, ENTRIES_MEANT, Options};
use crate::patience;

/// How long a poll for completions waits.
const POLL: Duration = Duration::from_millis(100);
/// Writes outstanding while a store is filled.
const FILLING: usize = 1024;
/// What [`many_meganodes`] and [`several_pairs`] are made of.
const SLOT_BYTES: u64 = 8 << 20;
const PAIRS: u64 = 4;
/// Pairs that a node of [`several_pairs`] has at least.
const PAIRS_A_NODE: u64 = 4;
/// Memory for an entry of those in extents, as everywhere, and in the tree, at most.
const EXTENT_BYTES_MAX: u64 = 400;
const TREE_BYTES_MAX: u64 = 320;
/// No pair moves by itself.
pub(crate) const BALANCE_OFF: (&str, &str) = ("--balance", "off");
/// Entries made at a time while a store is filled.
const BATCH_ENTRIES: u64 = 20_000;

/// A node that serves some entries of a dataset, and a client of it.
pub struct Served {
    /// The node.
    pub server: Server,
    client: Client,
    /// Its process, the first one where there are several.
    node: Option<Pid>,
}

/// Sizes for so many entries, and what every bench of a node sets alike.
pub(crate) fn flags(entries: u64, more: &[(&str, &str)]) -> Vec<String> {
    let sizes = crate::ours::Sizes::for_entries(entries);
    let all = [
        ("--slot-bytes", sizes.slot_bytes.to_string()),
        // Whole slots and a header.
        ("--node-region-bytes", (sizes.slot_bytes + (2 << 20)).to_string()),
        ("--extent-region-bytes", (sizes.extent_bytes * 2 + (256 << 20)).to_string()),
        ("--populate-chunk-bytes", "64MiB".to_owned()),
        ("--log-segment-bytes", "64MiB".to_owned()),
        ("--tracing-filter", "warn,cell_recovery=info,cell_node=info".to_owned()),
    ];
    let given = |name: &str| more.iter().any(|(given, _)| *given == name);
    let own =
        all.into_iter().filter(|(name, _)| !given(name)).flat_map(|(name, value)| [name.to_owned(), value]);
    own.chain(more.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()])).collect()
}

/// A store of many meganodes over several pairs, with a router over them: what a store of real size looks
/// like. The slots are those of `cell dev`; the regions are small, so that pairs are added as it fills.
pub fn many_meganodes(entries: u64) -> [(&'static str, String); 4] {
    let sizes = crate::ours::Sizes::for_entries(entries);
    let slots = (sizes.slot_bytes as u64 / PAIRS / SLOT_BYTES + 2).next_multiple_of(2);
    [
        ("--slot-bytes", SLOT_BYTES.to_string()),
        ("--node-region-bytes", (slots * SLOT_BYTES + (2 << 20)).to_string()),
        (
            "--extent-region-bytes",
            (sizes.extent_bytes / PAIRS + (64 << 20)).next_multiple_of(2 << 20).to_string(),
        ),
        ("--memory-limit-bytes", "16GiB".to_owned()),
    ]
}

/// A cluster of so many nodes, each with several pairs, which survivors can share. A node's first pair begins
/// with so many ranges, each a meganode, and has room for as many more, the router among them.
pub(crate) fn several_pairs(entries: u64, nodes: u16, ranges: u64) -> [(&'static str, String); 4] {
    let pairs = u64::from(nodes) * PAIRS_A_NODE;
    // Not less than the smallest pair.
    let extents = (entries * EXTENT_BYTES_MAX / pairs).max(48 << 20);
    let tree = (entries * TREE_BYTES_MAX / pairs).max(2 * ranges * SLOT_BYTES);
    [
        ("--extent-region-bytes", extents.to_string()),
        ("--node-region-bytes", tree.to_string()),
        ("--slot-bytes", SLOT_BYTES.to_string()),
        ("--memory-limit-bytes", "64GiB".to_owned()),
    ]
}

/// What a survivor takes over, at most, when one of the nodes of [`several_pairs`] dies.
pub(crate) fn ready_bytes(entries: u64, nodes: u16) -> u64 {
    let nodes = u64::from(nodes);
    let entries = entries / nodes / (nodes - 1);
    (entries * (EXTENT_BYTES_MAX + TREE_BYTES_MAX)).next_multiple_of(2 << 20)
}

impl Served {
    /// Starts a node with its data in `folder` and connects. Where figures mean nothing its lease is one that
    /// a busy machine leaves it: see [`Self::check_node`].
    ///
    /// # Errors
    /// The client's.
    pub fn start(folder: &Path, entries: u64, more: &[(&str, &str)]) -> Result<Self, BenchError> {
        Self::start_cluster(folder, entries, more, leases_of(entries))
    }

    /// As [`Served::start`], of a node that speaks TLS, with a client that trusts it so.
    ///
    /// # Errors
    /// The client's.
    pub fn start_under(
        folder: &Path,
        entries: u64,
        more: &[(&str, &str)],
        trust: &TlsTrust,
    ) -> Result<Self, BenchError> {
        let mut server = prepared(folder, entries, more, leases_of(entries));
        server.launch();
        let options = ClientOptions { trust: Some(trust.clone()), transport: Transport::Tcp, ..patient() };
        let address = server.address().to_string();
        let client = wait::until_some("the node answers over TLS", || {
            Client::connect_within(&address, options.clone(), POLL).ok()
        });
        let node = server.node();
        Ok(Self { server, client, node })
    }

    /// As [`Served::start`], of a cluster: `words` are flags without values.
    ///
    /// # Errors
    /// The client's.
    pub fn start_cluster(
        folder: &Path,
        entries: u64,
        more: &[(&str, &str)],
        words: &[&str],
    ) -> Result<Self, BenchError> {
        Self::resume(prepared(folder, entries, more, words))
    }

    /// As [`Served::start_cluster`], of so many nodes that an agent supervises; any coordinator may be
    /// theirs.
    ///
    /// # Errors
    /// The client's.
    pub fn start_by_agent(
        folder: &Path,
        entries: u64,
        more: &[(&str, &str)],
        words: &[&str],
        nodes: u16,
    ) -> Result<Self, BenchError> {
        Self::resume(prepared(folder, entries, more, words).by_agent(nodes))
    }

    fn resume(mut server: Server) -> Result<Self, BenchError> {
        server.resume();
        let client = connect(&server, patient())?;
        let node = server.node();
        Ok(Self { server, client, node })
    }

    /// Refuses what was measured of a node that has ended since it was started, or since
    /// [`Self::reconnect`]: the supervisor starts another one, and clients wait for that. Ask it before rows
    /// are printed.
    ///
    /// # Errors
    /// [`BenchError::NodeEnded`].
    pub fn check_node(&self) -> Result<(), BenchError> {
        if self.server.node() == self.node { Ok(()) } else { Err(BenchError::NodeEnded) }
    }

    /// One more client of it.
    ///
    /// # Errors
    /// The client's.
    pub fn client(&self, options: ClientOptions) -> Result<Client, BenchError> {
        Ok(connect(&self.server, options)?)
    }

    /// Kills all of it, and removes its folder.
    ///
    /// # Panics
    /// If a process lives on.
    pub fn remove(mut self) {
        self.server.kill_all();
        // What cannot be removed is left: it goes with the bench's folder.
        let _ = std::fs::remove_dir_all(self.server.folder());
    }

    /// Processor time that the node has used, all threads together, in nanoseconds.
    pub fn processor_ns(&self) -> u64 {
        self.server.node().map_or(0, crate::processor::time_ns)
    }

    /// How often the node's threads have gone to sleep.
    pub fn sleeps(&self) -> u64 {
        self.server.node().map_or(0, crate::processor::sleeps)
    }

    /// Sets a setting while the node runs, or takes that back; it is in force then.
    ///
    /// # Errors
    /// The command's words.
    pub fn tune(&self, name: &str, value: Option<&str>) -> Result<(), BenchError> {
        let set = value.map(|value| format!("{name}={value}"));
        let change = set.as_deref().map_or_else(|| vec!["--unset", name], |set| vec![set]);
        let http = self.server.http_address().to_string();
        let ends: [&[&str]; 3] = [&["tune", "set"], &change, &["--wait=2m", "--http", &http]];
        let said = program::run(&ends.concat());
        if said.code == Some(0) { Ok(()) } else { Err(std::io::Error::other(said.err).into()) }
    }

    /// Connects anew, as a client whose reads go by messages: the node carries each of them out.
    ///
    /// # Errors
    /// The client's.
    pub fn read_by_messages(&mut self) -> Result<(), BenchError> {
        self.client = self.client(ClientOptions { search: Search::Server, ..patient() })?;
        Ok(())
    }

    /// Connects anew, after the node was restarted.
    ///
    /// # Errors
    /// The client's.
    pub fn reconnect(&mut self) -> Result<(), BenchError> {
        self.client = connect(&self.server, patient())?;
        self.node = self.server.node();
        Ok(())
    }

    /// Puts all entries of a dataset.
    ///
    /// # Errors
    /// A put that failed.
    pub fn fill(&mut self, data: &Dataset) -> Result<(), BenchError> {
        for first in (0..data.entries).step_by(usize::try_from(BATCH_ENTRIES).unwrap_or(1)) {
            let batch = data.batch(first, (first + BATCH_ENTRIES).min(data.entries));
            self.put(&batch, FILLING)?;
        }
        Ok(())
    }

    /// Puts a batch with so many outstanding; returns how many puts it was.
    ///
    /// # Errors
    /// A put that failed.
    pub fn put(&mut self, batch: &Batch, outstanding: usize) -> Result<u64, BenchError> {
        let operation = |index: usize| Operation::Put {
            key: batch.keys.get(index),
            value: batch.values.get(index),
            condition: Condition::Always,
        };
        pipelined(&mut self.client, batch.keys.len(), outstanding, operation)
    }

    /// Gets the keys `[first, last)` with so many outstanding.
    ///
    /// # Errors
    /// A get that failed.
    pub fn get(
        &mut self,
        keys: &Packed,
        first: usize,
        last: usize,
        outstanding: usize,
    ) -> Result<u64, BenchError> {
        let operation = |index: usize| Operation::Get { key: keys.get(first + index) };
        pipelined(&mut self.client, last - first, outstanding, operation)
    }

    /// Bytes of tree nodes and extents in use.
    ///
    /// # Errors
    /// The client's.
    pub fn memory_used(&mut self) -> Result<f64, BenchError> {
        let status = self.client.status()?;
        let pairs = status.report().pairs;
        Ok(pairs.iter().map(|pair| (pair.node_bytes_used + pair.extent_bytes_used) as f64).sum())
    }

    /// How many meganodes it has, and in how many pairs.
    ///
    /// # Errors
    /// The client's.
    pub fn shape(&mut self) -> Result<[usize; 2], BenchError> {
        let meganodes = self.client.tree(0)?.report().meganodes;
        let status = self.client.status()?;
        Ok([usize::try_from(meganodes).unwrap_or(usize::MAX), status.report().pairs.len()])
    }

    /// Whether there are many meganodes, so that rows may say so. Where all entries are in one, that is
    /// printed.
    ///
    /// # Errors
    /// The client's.
    pub(crate) fn has_many_meganodes(&mut self, report: &Report<'_>) -> Result<bool, BenchError> {
        let [meganodes, pairs] = self.shape()?;
        if meganodes > 1 {
            report.note(&format!("many meganodes: {meganodes} in {pairs} pairs, with a router"));
        } else {
            report.note("SKIPPED: rows of many meganodes: so few entries are one (200,000 are several)");
        }
        Ok(meganodes > 1)
    }

    /// A figure of `/metrics`, all pairs together.
    ///
    /// # Errors
    /// The node does not answer, or shows none of that name.
    pub fn metric(&self, name: &str) -> Result<f64, BenchError> {
        self.metric_of(0, name)
    }

    /// As [`Served::metric`], of one node of several.
    ///
    /// # Errors
    /// As [`Served::metric`].
    pub fn metric_of(&self, node: u16, name: &str) -> Result<f64, BenchError> {
        // A zero for an answer that did not come would pass for a figure.
        patience::until_some(&format!("node {node} shows {name}"), || {
            let (_, text) = self.server.http_of(node, "/metrics").filter(|(status, _)| *status == 200)?;
            sum_of(&text, name)
        })
    }
}

/// The sum of all series of a name; none if there is no such series.
fn sum_of(text: &str, name: &str) -> Option<f64> {
    let values = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        (series.split('{').next() == Some(name)).then(|| value.parse::<f64>().ok())?
    });
    values.reduce(|sum, value| sum + value)
}

/// Words for [`Served::start_cluster`]: where figures mean nothing, leases that a busy machine leaves to the
/// nodes. One that lost its lease would end.
pub(crate) fn leases(options: &Options) -> &'static [&'static str] {
    leases_of(options.entries)
}

fn leases_of(entries: u64) -> &'static [&'static str] {
    if entries < ENTRIES_MEANT { &LONG_LEASE } else { &[] }
}

/// A server in `folder` that is not started yet, with sizes for so many entries; `words` are flags without
/// values.
fn prepared(folder: &Path, entries: u64, more: &[(&str, &str)], words: &[&str]) -> Server {
    let flags = flags(entries, more);
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(words.iter().copied()).collect();
    Server::prepared(folder, &flags)
}

/// Connects with what the server wants to be shown.
fn connect(server: &Server, options: ClientOptions) -> Result<Client, ClientError> {
    let options = ClientOptions { token: server.token().into(), ..options };
    Client::connect(&server.address().to_string(), options)
}

/// Options of a client that measures: time enough, which no number of retries ends, and room for all that is
/// outstanding.
pub(crate) fn patient() -> ClientOptions {
    let retries_max = u32::MAX;
    ClientOptions { deadline_ms: 60_000, retries_max, in_flight_max: 4096, ..ClientOptions::default() }
}

/// Carries out `count` operations with at most `outstanding` of them under way.
pub(crate) fn pipelined<'a>(
    client: &mut Client,
    count: usize,
    outstanding: usize,
    operation: impl Fn(usize) -> Operation<'a>,
) -> Result<u64, BenchError> {
    let (mut submitted, mut completed) = (0, 0);
    while completed < count {
        while submitted < count && submitted - completed < outstanding {
            client.submit(&operation(submitted))?;
            submitted += 1;
        }
        // One wait, then whatever else has come.
        let mut next = client.poll(POLL);
        while let Some(completion) = next {
            completion.outcome?;
            completed += 1;
            next = if submitted - completed > 0 { client.poll(Duration::ZERO) } else { None };
        }
    }
    Ok(completed as u64)
}

/// Carries out `count` operations over several connections, each with so many outstanding; returns how many
/// bytes the values have that were read.
///
/// # Errors
/// An operation that failed.
pub fn spread<'a>(
    clients: &mut [Client],
    count: usize,
    outstanding: usize,
    operation: impl Fn(usize) -> Operation<'a>,
) -> Result<u64, BenchError> {
    let (mut bytes, mut next) = (0, 0);
    let mut left = vec![0; clients.len()];
    while next < count {
        for (client, left) in clients.iter_mut().zip(&mut left) {
            *left = outstanding.min(count - next);
            for index in next..next + *left {
                client.submit(&operation(index))?;
            }
            next += *left;
            // What was submitted leaves with the first look for answers.
            if let Some(completion) = client.poll(Duration::ZERO) {
                bytes += value_bytes(completion)?;
                *left -= 1;
            }
        }
        for (client, left) in clients.iter_mut().zip(&mut left) {
            while *left > 0 {
                if let Some(completion) = client.poll(Duration::from_secs(1)) {
                    bytes += value_bytes(completion)?;
                    *left -= 1;
                }
            }
        }
    }
    Ok(bytes)
}

fn value_bytes(completion: Completion) -> Result<u64, BenchError> {
    Ok(match completion.outcome? {
        Output::Value(item) => item.map_or(0, |item| item.value.len() as u64),
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_of_a_metric_is_over_its_series_and_none_without_one() {
        let text = "# TYPE cell_pair_batches counter\ncell_pair_batches_total{pair=\"1\"} 2\n\
                    cell_pair_batches_total{pair=\"2\"} 3\ncell_splits_in_progress 0\n";
        let sums = ["cell_pair_batches_total", "cell_splits_in_progress", "cell_pair_batches"];
        assert_eq!(sums.map(|name| sum_of(text, name)), [Some(5.0), Some(0.0), None]);
    }
}
