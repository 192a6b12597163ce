//! The command line of the benches, and why one broke off.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use cell_paper::existing_folder;
use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::ours::OursError;

/// Which `cell` is started.
const PROGRAM: &str = "\
Environment:
  CELL_BIN  The `cell` that is started, where nodes are: target/release/cell, say, after
            cargo build --release. Without it one is built, in the benches' own workspace alone";

/// Figures of Cell beside those of rivals and limits, measured in the same run.
#[derive(Debug, Parser)]
#[command(name = "cell-benches", version, after_help = PROGRAM)]
pub struct Cli {
    /// Which figures.
    #[command(subcommand)]
    pub command: Command,
}

/// The benches.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Tree and extents in this process beside in-memory rivals: search, get, batches, inserts, scans
    Local(Options),
    /// Bytes taken after random inserts, each engine in a process of its own
    Memory(Options),
    /// Durable puts through client and node beside a node without a log, a raw loop and fio
    Put(Options),
    /// Durable puts over a log root on a file system that replicates, beside fio's synced writes of the same
    /// bytes
    Gluster(GlusterOptions),
    /// Gets over TCP of a node that speaks TLS beside one that does not, and beside Redis without TLS
    Tls(Options),
    /// Reads of a served store by its clients, one-sided and by messages, beside local reads and Redis
    Onesided(PartOptions),
    /// What `search = auto` reaches of the best fixed share of server-side searches, while a competitor takes
    /// the worker's core
    Selector(PartOptions),
    /// Starting empty, from the log after a kill, from the image after a stop
    Restart(Options),
    /// Random inserts while meganodes split and checkpoints are taken beside the same without checkpoints
    Checkpoint(Options),
    /// Random inserts while meganodes split beside the same into one meganode
    Split(Options),
    /// Gets beside more writes than a slow disk takes, and what those cost each other
    Stall(Options),
    /// kill -9 of one of several nodes that hold data: until its first pair and all of them are served again
    Takeover(Options),
    /// kill -9 of one of three nodes on etcd, whose leader goes on or is killed too, beside the same under
    /// the embedded coordinator; and etcd away under load: what fails, and how long operations take
    Coordinator(Options),
    /// Pairs that move between nodes under load: the longest stalls by size, what the source does meanwhile,
    /// and what one-sided readers lose
    Moves(MovesOptions),
    /// Loads into three nodes, by how their keys fall: how balance shares bytes and operations out, beside
    /// balance off and nodes that were split by hand
    Balance(PartOptions),
    /// A rolling restart of three nodes under load: what fails, and how long operations take
    Rolling(Options),
    /// Two node processes under one supervisor beside one process: operations by processor time
    Processes(Options),
    /// What a browser and a scraper that watch a node cost its gets
    Console(Options),
    /// Round trips, messages under way and one-sided reads of each provider, beside what the machine can
    Fabric(PartOptions),
    /// Commits of a pair's log beside a raw loop; group commit, writing and reading in one go
    Log(Options),
    /// Commits of 1 to 16 pairs: a sync of each write beside one flush of the disk for all
    Flush(Options),
    /// Reads of a region by what backs it, the allocator of extents, extents
    Regions(Options),
    /// A pair restored from its log and from an image, by core and by stage
    Restore(Options),
    /// The paper's tables and figures by a model of its servers that steps our selector; with --measured,
    /// one server and its clients on this machine beside the model made from its single client
    Paper(PaperBenchOptions),
    /// The tree by itself, with nodes of any size
    Tree(TreeOptions),
    /// One engine of `memory`, for that command's own use
    #[command(hide = true)]
    MemoryOf(MemoryOf),
    /// One reader of `onesided`, for that command's own use
    #[command(hide = true)]
    Reader(ReaderOptions),
}

impl Command {
    /// Whether it starts nodes, and wants a `cell` for them.
    #[must_use]
    pub fn starts_nodes(&self) -> bool {
        match self {
            Self::Put(_)
            | Self::Gluster(_)
            | Self::Tls(_)
            | Self::Onesided(_)
            | Self::Selector(_)
            | Self::Restart(_)
            | Self::Checkpoint(_)
            | Self::Split(_)
            | Self::Stall(_)
            | Self::Takeover(_)
            | Self::Coordinator(_)
            | Self::Moves(_)
            | Self::Balance(_)
            | Self::Rolling(_)
            | Self::Processes(_)
            | Self::Console(_) => true,
            Self::Paper(options) => options.measured,
            Self::Local(_)
            | Self::Memory(_)
            | Self::Fabric(_)
            | Self::Log(_)
            | Self::Flush(_)
            | Self::Regions(_)
            | Self::Restore(_)
            | Self::Tree(_)
            | Self::MemoryOf(_)
            | Self::Reader(_) => false,
        }
    }
}

/// What all benches take.
#[derive(Clone, Debug, Args)]
#[command(after_help = PROGRAM)]
pub struct Options {
    /// Entries of the paper's data (keys 8-64, values 8-256 printable characters), 1000 or more, 1000000000
    /// at most
    #[arg(long, value_name = "N", default_value_t = 5_000_000, value_parser = entries())]
    pub entries: u64,
    /// One JSON row a figure on standard output
    #[arg(long)]
    pub json: bool,
    /// What data and probes are made from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Rounds that count, for each figure. Of less than three no row says whether its goal is met; what takes
    /// seconds is measured in one round of four
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Where data is written, if any is: a folder on the disk that is to be measured, which TMPDIR need not
    /// be. It is in a folder of its own there, which is removed in the end [default: the current folder]
    #[arg(long, value_name = "DIR", value_parser = existing_folder())]
    pub dir: Option<PathBuf>,
}

/// With fewer entries a run shows that the bench works, and measures nothing.
pub(crate) const ENTRIES_MEANT: u64 = 100_000;

impl Options {
    /// How often something is measured whose one run takes seconds: 3 times for the default rounds.
    #[must_use]
    pub fn repeats(&self) -> usize {
        usize::from(self.rounds).div_ceil(4)
    }

    /// How long something lasts that is not counted in operations: a quarter for so few entries that figures
    /// mean nothing.
    #[must_use]
    pub fn lasting(&self, whole: Duration) -> Duration {
        if self.is_rehearsal() { whole / 4 } else { whole }
    }

    /// Whether there are so few entries that figures mean nothing.
    #[must_use]
    pub fn is_rehearsal(&self) -> bool {
        self.entries < ENTRIES_MEANT
    }
}

/// Fewer entries than these leave rounds without work. More than these are more than any memory holds, and
/// their bytes are to be a number of 64 bits.
fn entries() -> RangedU64ValueParser {
    clap::value_parser!(u64).range(1_000..=1_000_000_000)
}

/// What benches of several parts take.
#[derive(Clone, Debug, Args)]
pub struct PartOptions {
    /// Only the parts whose names have this text in them, or one of several that are each given so; one that
    /// no name has lists the names
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
    /// The common options
    #[command(flatten)]
    pub options: Options,
}

impl PartOptions {
    /// Refuses a text that is in no part's name: nothing would be measured.
    ///
    /// # Errors
    /// [`BenchError::NoPart`].
    pub fn check(&self, parts: &[String]) -> Result<(), BenchError> {
        let is_in_none = |only: &&String| !parts.iter().any(|part| part.contains(only.as_str()));
        match self.only.iter().find(is_in_none) {
            Some(only) => Err(BenchError::NoPart { only: only.clone(), parts: parts.join("; ") }),
            None => Ok(()),
        }
    }

    /// Whether a part is to be measured.
    #[must_use]
    pub fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| part.contains(only.as_str()))
    }
}

/// What `moves` takes.
#[derive(Clone, Debug, Args)]
pub struct MovesOptions {
    /// Megabytes of the pairs that move, the smallest first
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "10,100,1000")]
    pub sizes_mb: Vec<u64>,
    /// Moves of each
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    pub moves: u16,
    /// The common options
    #[command(flatten)]
    pub options: Options,
}

/// What `gluster` takes.
#[derive(Clone, Debug, Args)]
pub struct GlusterOptions {
    /// A folder on the file system that is to be measured; --dir, on a local disk, has the rest. Without it
    /// that of --dir is measured
    #[arg(long, value_name = "DIR", value_parser = existing_folder())]
    pub log_root: Option<PathBuf>,
    /// The common options
    #[command(flatten)]
    pub options: Options,
}

/// What `paper` takes.
#[derive(Clone, Debug, Args)]
#[command(after_help = PROGRAM)]
pub struct PaperBenchOptions {
    /// One server and its clients on this machine; that alone, if no table and no figure is named
    #[arg(long)]
    pub measured: bool,
    /// With --measured: entries of the paper's data that the server has, 1000 or more, 1000000000 at
    /// most
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = entries())]
    #[arg(requires = "measured")]
    pub entries: u64,
    /// With --measured: rounds that count, for each figure
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    #[arg(requires = "measured")]
    pub rounds: u16,
    /// With --measured: where the server's data is written, in a folder of its own, which is removed in the
    /// end [default: the current folder]
    #[arg(long, value_name = "DIR", requires = "measured", value_parser = existing_folder())]
    pub dir: Option<PathBuf>,
    /// With --measured: a flag of `cell dev`, which is the server, such as --lease-ms=3s on a machine that is
    /// slow; may be given several times
    #[arg(long, value_name = "FLAG", requires = "measured", allow_hyphen_values = true)]
    pub server_flag: Vec<String>,
    /// What the model takes
    #[command(flatten)]
    pub model: cell_paper::PaperOptions,
}

impl PaperBenchOptions {
    /// What of them all benches take.
    #[must_use]
    pub fn common(&self) -> Options {
        Options {
            entries: self.entries,
            json: self.model.json,
            seed: self.model.seed,
            rounds: self.rounds,
            dir: self.dir.clone(),
        }
    }
}

/// What `tree` takes.
#[derive(Clone, Debug, Args)]
pub struct TreeOptions {
    /// Of a tree node
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub node_bytes: usize,
    /// The common options
    #[command(flatten)]
    pub options: Options,
}

/// Which engine fills itself and says what it takes.
#[derive(Clone, Debug, Args)]
pub struct MemoryOf {
    /// Its name in the rows
    #[arg(long)]
    pub engine: String,
    /// The common options
    #[command(flatten)]
    pub options: Options,
}

/// What a reader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReaderEngine {
    /// A node's memory, by one-sided reads over shm
    Cell,
    /// LMDB's file, in a transaction a read
    Lmdb,
    /// The same, in one that is renewed for each read
    LmdbRenewed,
}

impl ReaderEngine {
    /// Its word on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Cell => "cell",
            Self::Lmdb => "lmdb",
            Self::LmdbRenewed => "lmdb-renewed",
        }
    }
}

/// Where a reader reads, and what.
#[derive(Clone, Debug, Args)]
pub struct ReaderOptions {
    /// What it reads
    #[arg(long, value_enum)]
    pub engine: ReaderEngine,
    /// Where that is: a node's address, or a folder
    #[arg(long)]
    pub at: String,
    /// Which of several readers it is
    #[arg(long, value_name = "N")]
    pub number: u64,
    /// Keys that are drawn beforehand
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub keys: usize,
    /// The common options
    #[command(flatten)]
    pub options: Options,
}

/// Why a bench broke off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// Our own side failed.
    #[error(transparent)]
    Ours(#[from] OursError),
    /// A region could not be made or populated.
    #[error(transparent)]
    Memory(#[from] cell_memory::MemoryError),
    /// An endpoint or a connection could not be made.
    #[error(transparent)]
    Fabric(#[from] cell_fabric::FabricError),
    /// A message could not be sent.
    #[error(transparent)]
    Send(#[from] cell_fabric::SendError),
    /// A log's ring broke.
    #[error(transparent)]
    Wal(#[from] cell_wal::WalError),
    /// The disk refused.
    #[error(transparent)]
    Storage(#[from] cell_wal::StorageError),
    /// A server did not do what was asked.
    #[error(transparent)]
    Client(#[from] cell_client::ClientError),
    /// The paper's tables could not be printed.
    #[error(transparent)]
    Paper(#[from] cell_paper::PaperError),
    /// A file, a process or the output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is no place for data.
    #[error("the folder {} cannot be made: {why}; --dir names one in which it can be", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// What is to be `cell` is not.
    #[error(
        "CELL_BIN names {}, which is no `cell`: {why}; name one, such as target/release/cell after cargo build \
         --release",
        path.display()
    )]
    Program {
        /// Where it is looked for.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// No program is named, and none may be built.
    #[error(
        "CELL_BIN is not set: name a `cell` by it, such as target/release/cell after cargo build --release; one \
         is built in {} alone",
        workspace.display()
    )]
    NoProgram {
        /// What the benches were built from.
        workspace: PathBuf,
    },
    /// A row of a child process was not one.
    #[error("a child's answer cannot be read")]
    Child(#[from] serde_json::Error),
    /// Contenders that did the same work do not agree on its outcome: no figure would mean anything.
    #[error("contenders disagree: {ours} here, {theirs} there")]
    Disagreement {
        /// Our proof of work.
        ours: u64,
        /// The rival's.
        theirs: u64,
    },
    /// Who was measured is not there any more: what was measured since is another node's, or of its start.
    #[error("the node ended while it was measured: no figure would mean anything")]
    NodeEnded,
    /// Searches that were to be one-sided.
    #[error(
        "over {transport} the server did {by_server} of {searches} searches that were to be one-sided: no \
         figure would mean anything"
    )]
    ByServer {
        /// Over what.
        transport: &'static str,
        /// Those that clients did not do themselves.
        by_server: u64,
        /// All of them.
        searches: u64,
    },
    /// No part has that text in its name.
    #[error("no part has {only:?} in its name; the parts are: {parts}")]
    NoPart {
        /// The text.
        only: String,
        /// The names.
        parts: String,
    },
    /// No engine of that name.
    #[error("there is no such engine")]
    Engine,
}

impl BenchError {
    /// With what the process ends: with 2, as for a wrong flag, where it was asked for what there is not.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Program { .. } | Self::NoProgram { .. } | Self::NoPart { .. } => 2,
            _ => 1,
        }
    }
}
