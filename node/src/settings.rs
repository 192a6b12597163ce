//! Settings of a storage node.

use std::sync::Arc;

use cell_fabric::FabricLimits;
use cell_pair::PairOptions;
use cell_terms::Durability;
use cell_terms::setting::{Applies, Bounds, Setting, Settings};
use cell_wal::{LogOptions, LogTimes};

/// Why the first ranges do not change later.
const SPREAD_ONCE: &str = "The key space is spread once, when the store is created.";

/// Declarations; see `cell settings`.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "durability",
        meaning: "When a write is acknowledged: sync after both logs are on stable storage; async after memory is \
                  changed, so that a crash loses what the log had not caught up with; none writes no log at all.",
        default: "sync",
        bounds: Bounds::Choice(&["sync", "async", "none"]),
        applies: Applies::Restart(
            "A pair is published, and taken over, with the durability that its owner began to serve it \
             with.",
        ),
    },
    Setting {
        name: "value_bytes_max",
        meaning: "Longest value that is accepted. Clients learn of a change when they connect; longer \
                  values that are there can be read. Never more than a quarter of extent_region_bytes, \
                  so that a value can be replaced. Less where nobody gave it and memory_limit_bytes \
                  leaves little for pairs.",
        default: "16 MiB",
        bounds: Bounds::Bytes { min: 1 << 10, max: 16 << 20, power_of_two: false },
        applies: Applies::Live,
    },
    Setting {
        name: "reuse_grace_ms",
        meaning: "How long freed memory is left alone before it is used again, counted from when its freeing is \
                  durable; a one-sided read may take four fifths of it.",
        default: "250 ms",
        bounds: Bounds::Milliseconds { min: 50, max: 60_000 },
        applies: Applies::Restart(
            "Clients go by the time that they were given for their reads; memory that is used again \
             earlier would change under one.",
        ),
    },
    Setting {
        name: "one_sided_reads",
        meaning: "Whether clients may read this node's memory themselves.",
        default: "on",
        bounds: Bounds::Choice(&["on", "off"]),
        applies: Applies::Restart(
            "Clients that have the keys of regions, or have mapped them, keep them until the process \
             ends.",
        ),
    },
    Setting {
        name: "stream_bytes_max",
        meaning: "Memory for values that are on their way in or out in chunks; past it, requests get Busy. While a node \
                  runs it cannot grow beyond what was set aside at the start.",
        default: "256 MiB",
        bounds: Bounds::Bytes { min: 32 << 20, max: 64 << 30, power_of_two: false },
        applies: Applies::Live,
    },
    Setting {
        name: "scan_page_entries_max",
        meaning: "Most entries in one page of a scan. It has fewer where leaves hold few.",
        default: "1000",
        bounds: Bounds::Integer { min: 1, max: 100_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "checkpoint_log_ratio",
        meaning: "A checkpoint starts when the log since the last one is this many times the live bytes.",
        default: "1.0",
        bounds: Bounds::Real { min: 0.05, max: 100.0 },
        applies: Applies::Live,
    },
    Setting {
        name: "checkpoint_log_bytes_min",
        meaning: "No checkpoint starts before the log since the last one has this size.",
        default: "256 MiB",
        bounds: Bounds::Bytes { min: 1 << 20, max: 1 << 40, power_of_two: false },
        applies: Applies::Live,
    },
    Setting {
        name: "checkpoint_age_ms",
        meaning: "A checkpoint starts when the last one is this old and anything was written since.",
        default: "1 h",
        bounds: Bounds::Milliseconds { min: 1_000, max: 604_800_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "checkpoint_niceness",
        meaning: "The niceness of the thread that writes a checkpoint. Where cores are short a higher one \
                  slows writes less, and checkpoints take longer. Those that a stop asks for are written \
                  at the node's own.",
        default: "10",
        bounds: Bounds::Integer { min: 0, max: 19 },
        applies: Applies::Live,
    },
    Setting {
        name: "memory_limit_bytes",
        meaning: "All that this node may hold in memory: regions, ready memory, buffers. At the limit writes \
                  that need more are refused; reads and deletes go on. Sizes that are not given follow \
                  from it. 0 takes what the machine, or the control group, has. `cell dev` divides that \
                  between its nodes, anew as they come and go, `cell node --processes` what is given, or \
                  that, between its processes.",
        default: "0",
        bounds: Bounds::Bytes { min: 0, max: 1 << 46, power_of_two: false },
        applies: Applies::Restart(
            "What is set aside for buffers, and the sizes that were not given, follow from it at the \
             start.",
        ),
    },
    Setting {
        name: "cluster_nodes",
        meaning: "Nodes over which the key space is spread when the store is created: nodes 0 to N - 1. With one, \
                  there is one range.",
        default: "1",
        bounds: Bounds::Integer { min: 1, max: 64 },
        applies: Applies::Creation(SPREAD_ONCE),
    },
    Setting {
        name: "initial_ranges",
        meaning: "Ranges of keys that each of several nodes begins with, evenly over keys that begin with \
                  digits and letters.",
        default: "4",
        bounds: Bounds::Integer { min: 1, max: 64 },
        applies: Applies::Creation(SPREAD_ONCE),
    },
    Setting {
        name: "initial_split_keys",
        meaning: "The keys at which ranges begin, separated by commas, in place of initial_ranges; the first \
                  range begins below all of them.",
        default: "",
        bounds: Bounds::Text { max: 4096 },
        applies: Applies::Creation(SPREAD_ONCE),
    },
    Setting {
        name: "membership_poll_ms",
        meaning: "How often a node looks for changes of the cluster: of the table, of who lives, of incidents.",
        default: "50 ms",
        bounds: Bounds::Milliseconds { min: 5, max: 500 },
        applies: Applies::Live,
    },
    Setting {
        name: "unclaimed_grace_ms",
        meaning: "How long pairs that belong to nobody, or to nodes that were dead before this one came, are left \
                  to their own nodes before others take them over.",
        default: "5 s",
        bounds: Bounds::Milliseconds { min: 100, max: 3_600_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "move_bytes_per_second",
        meaning: "What a copy of a pair that moves to this node reads at most, of image and logs. A lower rate \
                  leaves more of disk and processor to others, and takes longer.",
        default: "256 MiB",
        bounds: Bounds::Bytes { min: 1 << 20, max: 1 << 40, power_of_two: false },
        applies: Applies::Live,
    },
    Setting {
        name: "balance",
        meaning: "Whether pairs move between nodes by themselves, so that each has about as many bytes and as much \
                  load. off: only drains and operators move pairs.",
        default: "on",
        bounds: Bounds::Choice(&["on", "off"]),
        applies: Applies::Live,
    },
    Setting {
        name: "balance_tolerance",
        meaning: "By how many percent of the mean a node's bytes or load may be off before a pair moves.",
        default: "20",
        bounds: Bounds::Integer { min: 2, max: 100 },
        applies: Applies::Live,
    },
    Setting {
        name: "balance_window_ms",
        meaning: "Over how long a node's load is measured. Balance waits for so long after a node or the balancer \
                  has started to serve, and after a drain.",
        default: "1 m",
        bounds: Bounds::Milliseconds { min: 100, max: 86_400_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "balance_pair_rest_ms",
        meaning: "For how long a pair that balance or an operator has moved stays where it is, unless its node \
                  drains.",
        default: "10 m",
        bounds: Bounds::Milliseconds { min: 0, max: 86_400_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "balance_node_rest_ms",
        meaning: "For how long a node that took a pair gives none for balance, and one that gave a pair takes none.",
        default: "1 m",
        bounds: Bounds::Milliseconds { min: 0, max: 86_400_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "balance_retry_ms",
        meaning: "For how long a pair is not sent again to a node that could not take it.",
        default: "1 m",
        bounds: Bounds::Milliseconds { min: 1, max: 86_400_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "balance_stall_ms",
        meaning: "After how long a pair that keeps a node from being emptied is reported, with its reason.",
        default: "30 s",
        bounds: Bounds::Milliseconds { min: 0, max: 86_400_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "balance_bytes_floor",
        meaning: "While the nodes have fewer bytes than this on average, bytes are not balanced.",
        default: "16 MiB",
        bounds: Bounds::Bytes { min: 0, max: 1 << 50, power_of_two: false },
        applies: Applies::Live,
    },
    Setting {
        name: "balance_load_floor_us",
        meaning: "While the nodes' workers are busy for fewer microseconds a second on average, load is not \
                  balanced.",
        default: "10000",
        bounds: Bounds::Integer { min: 0, max: 1_000_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "split_fill_percent",
        meaning: "A meganode is split when so much of its slot is in use, in percent.",
        default: "85",
        bounds: Bounds::Integer { min: 20, max: 100 },
        applies: Applies::Live,
    },
    Setting {
        name: "compaction_ratio",
        meaning: "After deletes, neighbouring tree nodes of which entries take less than this part are packed \
                  densely while they are read and written. 0 packs none.",
        default: "0.4",
        bounds: Bounds::Real { min: 0.0, max: 0.75 },
        applies: Applies::Live,
    },
    Setting {
        name: "session_idle_ms",
        meaning: "A session without a connection and without a write for this long is ended. Clients keep theirs alive by \
                  the time that they were given when they began it.",
        default: "10 m",
        bounds: Bounds::Milliseconds { min: 10_000, max: 604_800_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "worker_spin_us",
        meaning: "Microseconds that a worker without work goes on looking for some before it sleeps; while it looks, \
                  clients need not wake it, and a core is busy. Where requests take longer to come, or \
                  others want the core, it looks ever more seldom. It does not look while its logs are \
                  written, nor where it may use one core only.",
        default: "20",
        bounds: Bounds::Integer { min: 0, max: 1_000_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "recovery_threads",
        meaning: "Threads that replay a pair; 0 takes one a core.",
        default: "0",
        bounds: Bounds::Integer { min: 0, max: 256 },
        applies: Applies::Live,
    },
];

/// What an extent's record takes in the log besides the value, at the most.
const LOG_OVERHEAD_BYTES: usize = 128;

/// What the cluster has set for its clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSettings {
    /// Grows with each change; clients that have it get no values.
    pub revision: u64,
    /// Names of settings and values, as people write them; all that the cluster sets.
    pub values: Vec<(String, String)>,
}

/// What a worker needs of the settings, as numbers.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// How its pairs are kept.
    pub pair: PairOptions,
    /// Bytes of a tree node, which limit the key.
    pub tree_node_bytes: usize,
    /// Longest value, in bytes.
    pub value_bytes_max: usize,
    /// Whether clients may read this node's memory themselves.
    pub one_sided_reads: bool,
    /// Writes that wait for splits.
    pub parked_bytes_max: usize,
    /// Results of writes, kept for repeats: past it sessions have a short window each.
    pub result_bytes_max: usize,
    /// Memory for streams.
    pub stream_bytes_max: usize,
    /// Most entries a scan page.
    pub scan_page_entries_max: usize,
    /// Log bytes over live bytes that start a checkpoint.
    pub checkpoint_log_ratio: f64,
    /// Least log bytes that start a checkpoint.
    pub checkpoint_log_bytes_min: u64,
    /// Age that starts a checkpoint.
    pub checkpoint_age_ns: u64,
    /// How long an idle session lives.
    pub session_idle_ns: u64,
    /// For how long at most clients believe what they read themselves.
    pub trust_max_ns: u64,
    /// For how long a meganode must have been empty to be merged into its left neighbour.
    pub merge_rest_ns: u64,
    /// How long the worker's thread looks for work before it sleeps.
    pub spin_ns: u64,
    /// When logs are sealed and segments tried again; none: as each pair was brought up with.
    pub log_times: Option<LogTimes>,
    /// What connections may hold; none: as the endpoint was made with.
    pub fabric: Option<FabricLimits>,
    /// What clients are given with the answers to their reports; none: nothing is set for them.
    pub client_settings: Option<Arc<ClientSettings>>,
}

/// See [`WorkerOptions::merge_rest_ns`]: keys of a meganode that is emptied may come again at once.
const MERGE_REST_NS: u64 = 1_000_000_000;

impl WorkerOptions {
    /// Reads the settings.
    #[must_use]
    pub fn from_settings(settings: &Settings) -> WorkerOptions {
        let bytes = |name| usize::try_from(settings.integer(name)).unwrap_or(usize::MAX);
        WorkerOptions {
            pair: PairOptions {
                durability: match settings.text("durability") {
                    "async" => Durability::Async,
                    "none" => Durability::None,
                    _ => Durability::Sync,
                },
                reuse_grace_ns: settings.integer("reuse_grace_ms") * 1_000_000,
                grant_chunk_bytes: settings.integer("populate_chunk_bytes"),
                split_fill_percent: bytes("split_fill_percent"),
                compaction_permille: permille(settings.real("compaction_ratio")),
            },
            tree_node_bytes: bytes("tree_node_bytes"),
            // A value's record must fit a frame of the log.
            value_bytes_max: bytes("value_bytes_max").min(
                LogOptions::from_settings(settings).operation_bytes_max().saturating_sub(LOG_OVERHEAD_BYTES),
            ),
            one_sided_reads: settings.text("one_sided_reads") == "on",
            // They follow from the memory limit: the node's start says them.
            parked_bytes_max: usize::MAX,
            result_bytes_max: usize::MAX,
            stream_bytes_max: bytes("stream_bytes_max"),
            scan_page_entries_max: bytes("scan_page_entries_max"),
            checkpoint_log_ratio: settings.real("checkpoint_log_ratio"),
            checkpoint_log_bytes_min: settings.integer("checkpoint_log_bytes_min"),
            checkpoint_age_ns: settings.integer("checkpoint_age_ms") * 1_000_000,
            session_idle_ns: settings.integer("session_idle_ms") * 1_000_000,
            trust_max_ns: settings.integer("trust_max_ms") * 1_000_000,
            merge_rest_ns: MERGE_REST_NS,
            spin_ns: settings.integer("worker_spin_us") * 1_000,
            log_times: Some(LogTimes::from_settings(settings)),
            fabric: Some(FabricLimits::from_settings(settings)),
            client_settings: None,
        }
    }

    /// Takes over what applies live; the rest stays.
    pub(crate) fn apply_live(&mut self, new: &WorkerOptions) {
        self.value_bytes_max = new.value_bytes_max;
        self.stream_bytes_max = new.stream_bytes_max;
        self.session_idle_ns = new.session_idle_ns;
        self.spin_ns = new.spin_ns;
        (self.log_times, self.fabric) = (new.log_times, new.fabric);
        self.scan_page_entries_max = new.scan_page_entries_max;
        self.checkpoint_log_ratio = new.checkpoint_log_ratio;
        self.checkpoint_log_bytes_min = new.checkpoint_log_bytes_min;
        self.checkpoint_age_ns = new.checkpoint_age_ns;
        self.pair.grant_chunk_bytes = new.pair.grant_chunk_bytes;
        self.pair.split_fill_percent = new.pair.split_fill_percent;
        self.pair.compaction_permille = new.pair.compaction_permille;
        self.client_settings.clone_from(&new.client_settings);
    }

    /// Longest key.
    #[must_use]
    pub fn key_bytes_max(&self) -> usize {
        cell_tree::key_max(self.tree_node_bytes)
    }
}

/// A ratio between 0 and 1 in thousandths.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
fn permille(ratio: f64) -> usize {
    (ratio.clamp(0.0, 1.0) * 1_000.0).round() as usize
}
