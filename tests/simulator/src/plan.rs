//! What one seed is: sizes, rates, and which faults it favours. Each seed leaves some kinds of faults out and
//! sees more of others, so that rare combinations come up (swarm testing, Groce et al., ISSTA 2012).

use std::collections::BTreeSet;
use std::time::Duration;

use cell_client::{ClientOptions, Policy};
use cell_cluster::{Layout, LeaseTerms, PairGeometry};
use cell_fabric::SimOptions;
use cell_memory::HEADER_BYTES;
use cell_node::{BalanceOptions, BalanceRules, WorkerOptions};
use cell_pair::PairOptions;
use cell_random::Random;
use cell_terms::Durability;
use cell_wal::{FlushWay, LogOptions};

/// A microsecond.
pub const US: u64 = 1_000;
/// A millisecond.
pub const MS: u64 = 1_000_000;

/// Hosts on which nodes may run, at most: host `n + 1` is node `n`'s.
pub const HOSTS_MAX: usize = 5;
/// The first client's host.
pub const CLIENT_HOST: u32 = 100;
/// Looks of a node at the cluster in the window of balance, at least.
const LOOKS_OF_A_WINDOW: u64 = 6;
/// Pairs that a node may hold besides where pairs move by themselves.
const FRESH_ROOM: usize = 2;
/// How many nodes.
const NODES: [usize; 8] = [1, 1, 2, 2, 3, 3, 3, 4];
/// Where ranges may begin, so that clients' keys lie in all of them.
const LOWS: [&str; 16] =
    ["-", "0", "1", "4", "7", "a", "ab", "abb", "b", "ba", "c", "e", "hot-", "hot-3", "seq/", "seq/00000200"];
/// Part of a lease that is not relied on, and so the clocks' largest drift.
const DRIFT_MARGIN: f64 = 0.05;
/// Clocks of nodes run so much faster or slower at most, in millionths: within the margin.
const DRIFT_PPM_MAX: u64 = 45_000;

/// Everything that a seed decides at its start.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Operations that the clients begin before the run winds down.
    pub operations: u64,
    /// Clients.
    pub clients: usize,
    /// Operations that a client has outstanding.
    pub outstanding: usize,
    /// Time between an answer and the next operation.
    pub think_ns: u64,
    /// Nodes among which the first pairs are spread, and processes that the operators want.
    pub nodes: usize,
    /// Hosts on which processes may run: never fewer than two.
    pub hosts: usize,
    /// How the first pairs share the key space.
    pub layout: Layout,
    /// How often a node looks at the cluster.
    pub poll_ns: u64,
    /// How long pairs of those who were dead before are left to their own nodes.
    pub grace_ns: u64,
    /// Pairs that a node takes over at a time.
    pub side_by_side: usize,
    /// Of a hundred deaths, after how many the host is left alone until others have taken over.
    pub abandoned_percent: u64,
    /// Sizes of a pair.
    pub geometry: PairGeometry,
    /// Pairs that a node has memory for.
    pub pairs_max: usize,
    /// Pairs that a process has memory for, those that it takes over among them; zero: all.
    pub pairs_fit: usize,
    /// Whether the processes say how much memory they have; else who asks them gets the answer that there is
    /// none.
    pub memory_reported: bool,
    /// The worker's.
    pub worker: WorkerOptions,
    /// The logs'.
    pub log: LogOptions,
    /// How their writes reach stable storage.
    pub log_flush: FlushWay,
    /// The leases'.
    pub lease: LeaseTerms,
    /// The clients'.
    pub client: ClientOptions,
    /// The network without mishaps.
    pub network: SimOptions,
    /// A disk operation's usual time.
    pub disk_ns: u64,
    /// Longest value.
    pub value_bytes_max: usize,
    /// Keys that every client wants.
    pub keys_hot: usize,
    /// Keys that few want.
    pub keys_cold: usize,
    /// Keys that ascend.
    pub keys_ascending: usize,
    /// Whether most entries are deleted from time to time.
    pub thins_out: bool,
    /// Whether all of it is deleted from time to time, in the order of the keys.
    pub empties: bool,
    /// How likely each kind of fault is, beside the others: see `faults`.
    pub fault_weights: Vec<u64>,
    /// Usual time between two faults.
    pub fault_gap_ns: u64,
    /// Usual number of operations between two faults.
    pub fault_gap_operations: u64,
    /// Of a hundred deaths, after how many the next process dies in its recovery.
    pub recovery_deaths_percent: u64,
    /// Of a hundred processes, how many begin with writes to the region table that are carried out late.
    pub late_percent: u64,
    /// Drift of the hosts' clocks, in millionths.
    pub drift_ppm: [i64; HOSTS_MAX],
    /// Drift of the clients' clocks, in millionths.
    pub client_drift_ppm: [i64; 4],
    /// Of a hundred calls of the coordinator, within how many other nodes go on.
    pub interleaved_percent: u64,
    /// How long a call of the coordinator takes, usually.
    pub call_ns: u64,
    /// By what pairs move for balance, or for drains alone; none: only operators move them.
    pub balance: Option<BalanceOptions>,
    /// Before how many of a hundred faults a move begins, so that they befall during one.
    pub moved_percent: u64,
    /// How fast a pair that moves is copied; zero: as fast as may be.
    pub copy_bytes_per_second: u64,
    /// Whether the run ends with damage to the disk.
    pub rot: bool,
    /// Which clients search the nodes' memory themselves, by number.
    pub searches: [bool; 4],
    /// Which clients choose for each read who searches, by number, whatever `searches` says.
    pub chooses: [bool; 4],
}

impl Plan {
    /// What the seed says.
    #[must_use]
    pub fn new(seed: u64, operations: u64, fault_kinds: usize) -> Plan {
        let mut random = Random::new(seed ^ 0x7061_6e73);
        let geometry = geometry(&mut random);
        let log = log_options(&mut random);
        let value_bytes_max = value_bytes_max(&log, &geometry);
        // A number that meant a setting which is gone: seeds go on meaning what they meant.
        let _ = random.pick(&[0_u64, 64 << 10]);
        let worker = worker_options(seed, geometry.node_bytes as usize, value_bytes_max, &mut random);
        let lease_ms = random.pick(&[100, 100, 300]);
        // The last kinds came later, see `with_unmounted` and `with_drains`; what is drawn after them stays
        // what it was.
        let fault_weights = fault_weights(fault_kinds.saturating_sub(8), seed, &mut random);
        let plan = Plan {
            seed,
            operations,
            clients: random.pick(&[1, 1, 2, 3]),
            outstanding: random.pick(&[1, 4, 16, 32]),
            think_ns: random.pick(&[1, 10, 100]) * US,
            nodes: 1,
            hosts: 2,
            layout: Layout::single(),
            poll_ns: 10 * MS,
            grace_ns: 1_000 * MS,
            side_by_side: Random::new(seed ^ 0x7369_6465).pick(&[1, 1, 2, 3]),
            abandoned_percent: 0,
            geometry,
            pairs_max: random.pick(&[1, 2, 3]),
            pairs_fit: 0,
            memory_reported: false,
            worker,
            log,
            log_flush: FlushWay::PerWrite,
            lease: LeaseTerms::new(lease_ms, DRIFT_MARGIN),
            client: client_options(&mut random),
            network: network(&mut random),
            disk_ns: random.pick(&[10, 30, 100]) * US,
            value_bytes_max,
            keys_hot: random.pick(&[1, 4, 10]),
            keys_cold: random.pick(&[50, 300, 1_000]),
            keys_ascending: random.pick(&[0, 400, 1_200]),
            thins_out: Random::new(seed ^ 0x7468_696e).percent(40),
            empties: Random::new(seed ^ 0x656d_7074).percent(30),
            fault_weights,
            fault_gap_ns: lease_ms * random.pick(&[1, 2, 4]) * MS,
            fault_gap_operations: operations / random.between(12, 40),
            late_percent: Random::new(seed ^ 0x6c61_7465).pick(&[0, 0, 20, 50]),
            recovery_deaths_percent: random.pick(&[0, 20, 50]),
            drift_ppm: [(); HOSTS_MAX].map(|()| drift(&mut random)),
            client_drift_ppm: [0; 4],
            interleaved_percent: 0,
            call_ns: 100 * US,
            balance: None,
            moved_percent: 0,
            copy_bytes_per_second: 0,
            rot: random.percent(30),
            searches: [(); 4].map(|()| random.percent(60)),
            chooses: [false; 4],
        };
        plan.with_later()
    }

    /// What came later, each drawn from numbers of its own: seeds go on meaning what they meant.
    fn with_later(self) -> Plan {
        let seed = self.seed;
        self.with_window(&mut Random::new(seed ^ 0x7769_6e64))
            .with_calls(&mut Random::new(seed ^ 0x6361_6c6c))
            .of_several(&mut Random::new(seed ^ 0x6e6f_6465))
            .with_choice(&mut Random::new(seed ^ 0x6175_746f))
            .with_unmounted(&mut Random::new(seed ^ 0x6d6f_756e))
            .with_flushes(&mut Random::new(seed ^ 0x666c_7573))
            .with_balance(&mut Random::new(seed ^ 0x6261_6c61))
            .with_drains(&mut Random::new(seed ^ 0x6472_6169))
    }

    /// In some runs one flush makes the writes of all a process's logs durable.
    fn with_flushes(mut self, random: &mut Random) -> Plan {
        if random.percent(25) {
            self.log_flush = FlushWay::PerDevice;
        }
        self
    }

    /// In some runs of several nodes pairs move by themselves, by figures over a moment, so that much moves.
    fn with_balance(mut self, random: &mut Random) -> Plan {
        let window_ms = random.pick(&[20_u64, 60, 200]);
        if self.may_unmount() && random.percent(25) {
            let rules = BalanceRules {
                tolerance_percent: random.pick(&[2_u32, 10, 20]),
                pair_rest_ms: random.pick(&[0, 2 * window_ms]),
                node_rest_ms: random.pick(&[0, window_ms]),
                ..self.rules(window_ms)
            };
            self.balance = Some(BalanceOptions::new(true, rules));
            // Room for pairs that are made for other nodes, of meganodes that split early.
            self.pairs_max += FRESH_ROOM;
            self.take_time(random);
        }
        self
    }

    /// Clients ask less in most of these runs: between two faults a pair can move.
    fn take_time(&mut self, random: &mut Random) {
        if random.percent(75) {
            self.think_ns = random.pick(&[1, 2, 5]) * MS;
            self.outstanding = self.outstanding.min(8);
        }
    }

    /// Rules of so long a window: longer than the nodes' looks, or all figures were old.
    fn rules(&self, window_ms: u64) -> BalanceRules {
        let window_ms = window_ms.max(LOOKS_OF_A_WINDOW * self.poll_ns / MS);
        BalanceRules {
            window_ms,
            retry_ms: window_ms,
            stall_ms: window_ms,
            bytes_floor: 1,
            load_floor_ns: 100 * US,
            ..BalanceRules::default()
        }
    }

    /// In some runs of several nodes operators drain nodes, take that back, add empty ones, and remove them.
    fn with_drains(mut self, random: &mut Random) -> Plan {
        if !self.may_unmount() || !random.percent(35) {
            self.fault_weights.extend([0; 4]);
            return self;
        }
        self.fault_weights.push(random.pick(&[3, 6, 12]));
        self.fault_weights.push(random.pick(&[1, 2, 4]));
        self.fault_weights.push(random.pick(&[0, 2, 4]));
        self.fault_weights.push(random.pick(&[2, 4, 8]));
        self.moved_percent = random.pick(&[20, 40, 60]);
        self.take_time(random);
        self.hosts = (self.nodes + 2).clamp(self.hosts, HOSTS_MAX);
        self.copy_bytes_per_second = random.pick(&[0, 0, 4 << 20]);
        let window_ms = random.pick(&[20_u64, 60, 200]);
        if self.balance.is_none() {
            self.balance = Some(BalanceOptions::new(false, self.rules(window_ms)));
        }
        self
    }

    /// How often a worker reports what it has; zero: it does not.
    #[must_use]
    pub fn figures_every_ns(&self) -> u64 {
        self.balance.as_ref().map_or(0, |balance| balance.rules.window_ms * MS / 4)
    }

    /// In some runs of several nodes one host loses its log root. The others have memory for all pairs.
    fn with_unmounted(mut self, random: &mut Random) -> Plan {
        let weight = random.pick(&[0, 0, 1, 3]);
        let weight = if self.may_unmount() { weight } else { 0 };
        self.fault_weights.push(weight);
        self.fault_weights.push(Random::new(self.seed ^ 0x6c65_6176).pick(&[0, 0, 1, 4]));
        let moves = Random::new(self.seed ^ 0x6d6f_7665).pick(&[0, 1, 4, 8]);
        self.fault_weights.push(if self.nodes > 1 { moves } else { 0 });
        self
    }

    /// The same without what goes wrong by itself, and with clients that ask little: a move takes its time.
    #[must_use]
    pub fn with_leisure(self) -> Plan {
        let think_ns = 5 * MS;
        Plan { think_ns, outstanding: 2, recovery_deaths_percent: 0, late_percent: 0, ..self }
    }

    /// Whether what one host does not see is served by others.
    #[must_use]
    pub fn may_unmount(&self) -> bool {
        self.nodes > 1 && self.pairs_fit == 0
    }

    /// In some runs clients choose who searches, by any policy.
    fn with_choice(mut self, random: &mut Random) -> Plan {
        if random.percent(40) {
            self.chooses = [(); 4].map(|()| random.percent(60));
            self.client.selector.policy = random.pick(&[Policy::Adaptive, Policy::Paper, Policy::Fixed]);
        }
        self
    }

    /// Some clients have hundreds of operations outstanding, so that their sessions have results for more
    /// than one record of an adoption.
    fn with_window(mut self, random: &mut Random) -> Plan {
        if let Some(window) = random.pick(&[None, None, None, None, None, Some(150), Some(300), Some(600)]) {
            (self.outstanding, self.client.in_flight_max) = (window, window);
        }
        self
    }

    /// How clients' clocks drift, and how calls of the coordinator go.
    fn with_calls(mut self, random: &mut Random) -> Plan {
        self.client_drift_ppm = [(); 4].map(|()| drift(random));
        self.interleaved_percent = random.pick(&[0, 10, 30]);
        self.call_ns = random.pick(&[100, 500, 2_000]) * US;
        self
    }

    /// How many nodes there are, and what follows.
    fn of_several(mut self, random: &mut Random) -> Plan {
        self.nodes = random.pick(&NODES);
        self.hosts = (self.nodes + usize::from(random.percent(20))).clamp(2, HOSTS_MAX);
        self.poll_ns = random.pick(&[5, 20, 50]) * MS;
        self.grace_ns = self.lease_ns() * random.pick(&[2, 5]);
        self.abandoned_percent = random.pick(&[0, 30, 60]);
        if self.nodes == 1 {
            return self;
        }
        let nodes = u32::try_from(self.nodes).unwrap_or(1);
        let each = random.between(1, 3);
        self.layout = if random.percent(25) {
            Layout::even(nodes, u32::try_from(each).unwrap_or(1))
        } else {
            let wanted = self.nodes * usize::try_from(each).unwrap_or(1);
            let mut lows = BTreeSet::new();
            while lows.len() + 1 < wanted {
                lows.insert(random.pick(&LOWS).to_owned());
            }
            Layout::new(nodes, lows.into_iter().collect())
        };
        self.pairs_max += 1;
        let (slot_bytes, slots) = (self.geometry.slot_bytes, u64::from(self.layout.slots_max()) + 1);
        self.geometry.node_region_bytes =
            self.geometry.node_region_bytes.max(HEADER_BYTES + slots * slot_bytes);
        let mut memory = Random::new(self.seed ^ 0x6d65_6d6f);
        if memory.percent(25) {
            // What a node begins with fits, and sometimes one more.
            let most = (self.layout.pairs() as usize).div_ceil(self.nodes);
            self.pairs_fit = most + memory.index(2);
            self.memory_reported = memory.percent(50);
        }
        self
    }

    /// The hosts.
    pub fn hosts(&self) -> impl Iterator<Item = u32> + use<> {
        (1..=self.hosts).map(|host| u32::try_from(host).unwrap_or(1))
    }

    /// A lease's time.
    #[must_use]
    pub fn lease_ns(&self) -> u64 {
        self.lease.ttl_ms * MS
    }
}

/// The longest value that a log takes and a node accepts: where a region is small, that is a part of it.
fn value_bytes_max(log: &LogOptions, geometry: &PairGeometry) -> usize {
    let quarter = usize::try_from(geometry.extent_region_bytes / 4).unwrap_or(usize::MAX);
    (log.operation_bytes_max() - 256).min(quarter)
}

fn geometry(random: &mut Random) -> PairGeometry {
    let node_bytes = random.pick(&[512, 512, 512, 512, 1024, 1024, 4096]);
    let slot_bytes = (random.pick(&[64, 64, 128, 128, 512, 1_024]) * u64::from(node_bytes)).max(64 << 10);
    let slots = random.pick(&[1, 3, 4, 8, 16, 16]);
    PairGeometry {
        node_region_bytes: HEADER_BYTES + slots * slot_bytes,
        extent_region_bytes: random.pick(&[1 << 20, 4 << 20, 4 << 20, 4 << 20, 4 << 20]),
        slot_bytes,
        node_bytes,
    }
}

fn log_options(random: &mut Random) -> LogOptions {
    let segment_bytes = random.pick(&[128 << 10, 256 << 10, 256 << 10, 512 << 10, 1 << 20]);
    LogOptions {
        segment_bytes,
        first_segment_bytes: (segment_bytes / 4).max(64 << 10),
        batch_bytes: random.pick(&[16 << 10, 32 << 10, 64 << 10]),
        seal_idle: Duration::from_millis(random.pick(&[1, 5, 20])),
        prepare_retry: Duration::from_millis(random.pick(&[10, 50])),
    }
}

fn worker_options(
    seed: u64,
    tree_node_bytes: usize,
    value_bytes_max: usize,
    random: &mut Random,
) -> WorkerOptions {
    let durability = match Random::new(seed ^ 0x6173_796e).percent(6) {
        true => Durability::Async,
        false => Durability::Sync,
    };
    let reuse_grace_ns = random.pick(&[1, 5, 50]) * MS;
    // Few writes may wait for splits, and few results are kept: the others are answered `Busy`.
    let is_narrow = Random::new(seed ^ 0x6275_7379).percent(10);
    WorkerOptions {
        tree_node_bytes,
        value_bytes_max,
        one_sided_reads: true,
        parked_bytes_max: if is_narrow { 8 << 10 } else { 32 << 20 },
        result_bytes_max: if is_narrow { 1 << 10 } else { 32 << 20 },
        stream_bytes_max: random.pick(&[1 << 20, 32 << 20]),
        scan_page_entries_max: random.pick(&[8, 100, 1000]),
        checkpoint_log_ratio: random.pick(&[0.5, 1.0, 4.0]),
        checkpoint_log_bytes_min: random.pick(&[64 << 10, 256 << 10, 1 << 20]),
        checkpoint_age_ns: random.pick(&[200, 1_000, 10_000]) * MS,
        session_idle_ns: random.pick(&[1_000, 1_000, 10_000, 600_000]) * MS,
        trust_max_ns: Random::new(seed ^ 0x7472_7573).pick(&[20, 60, 300]) * MS,
        merge_rest_ns: Random::new(seed ^ 0x6d65_7267).pick(&[0, 5, 50]) * MS,
        spin_ns: 0,
        log_times: None,
        fabric: None,
        pair: PairOptions {
            durability,
            reuse_grace_ns,
            grant_chunk_bytes: 2 << 20,
            split_fill_percent: random.pick(&[8, 8, 15, 30, 85]),
            compaction_permille: Random::new(seed ^ 0x7265_6275).pick(&[0, 400, 400, 750]),
        },
        client_settings: None,
    }
}

/// Each kind of fault is left out, or has a weight: so many kinds, and one more, which came later and is
/// drawn apart.
fn fault_weights(kinds: usize, seed: u64, random: &mut Random) -> Vec<u64> {
    let kinds_used = random.between(30, 90);
    let weights = (0..kinds).map(|_| u64::from(random.percent(kinds_used)) * random.between(1, 5));
    let mut weights: Vec<u64> = weights.collect();
    weights.push(Random::new(seed ^ 0x7374_696c).pick(&[0, 0, 1, 3]));
    weights
}

/// A time, multiplied and divided. Almost all are short enough for 64 bits, which divide much faster.
pub(crate) fn scaled(ns: u64, times: i64, by: i64) -> i128 {
    match i64::try_from(ns).ok().and_then(|ns| ns.checked_mul(times)) {
        Some(product) => i128::from(product / by),
        None => i128::from(ns) * i128::from(times) / i128::from(by),
    }
}

/// How a clock drifts, in millionths.
fn drift(random: &mut Random) -> i64 {
    let ppm = random.below(2 * DRIFT_PPM_MAX + 1);
    i64::try_from(ppm).unwrap_or(0) - i64::try_from(DRIFT_PPM_MAX).unwrap_or(0)
}

fn client_options(random: &mut Random) -> ClientOptions {
    ClientOptions {
        name: "simulated".to_owned(),
        deadline_ms: 600_000,
        in_flight_max: random.pick(&[1, 8, 64]),
        queue_max: 4096,
        retries_max: 1_000_000,
        retry_shortest_ms: 1,
        retry_longest_ms: random.pick(&[10, 50]),
        connect_timeout_ms: random.pick(&[50, 300]),
        silence_ms: random.pick(&[50, 300]),
        stream_credit_bytes: random.pick(&[4 << 10, 64 << 10, 1 << 20]),
        cache_inner: random.percent(70),
        cache_bytes: random.pick(&[8 << 10, 1 << 20]),
        ..ClientOptions::default()
    }
}

fn network(random: &mut Random) -> SimOptions {
    SimOptions {
        delay_min_ns: random.pick(&[US, 5 * US]),
        delay_max_ns: random.pick(&[10, 50, 500]) * US,
        spike_per_million: random.pick(&[0, 1_000]),
        spike_ns: 20 * MS,
        reset_per_million: random.pick(&[0, 100]),
        heal_spread_ns: random.pick(&[0, 200, 1_000]) * MS,
        window_bytes: random.pick(&[64 << 10, 256 << 10]),
        reads_mapped: random.percent(30),
        ..SimOptions::calm()
    }
}
