//! What the model's machines are: from Table 1, from the figures of a single meganode, and from Table 2's
//! column of searches by the servers alone. Nothing else of the paper goes in.

use crate::card::Card;
use crate::cluster::{Cluster, Group, Machine, Mix, fixed};
use crate::data::{Inputs, RawRow};
use crate::observed::Observed;
use crate::tree::{Areas, Reads, Tree};

use cell_selector::SelectorSettings;

/// What a thread has in hand where the paper pipelines; it does not say how much.
pub(crate) const PIPELINED: usize = 2;

/// A message carries 128 bytes, a read 1 KB.
const PAYLOAD: f64 = 128.0 / 1024.0;

/// Clients of the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Clients {
    pub(crate) processes: usize,
    pub(crate) in_hand: usize,
}

/// The machines, as calibrated. Times in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// What it was made from.
    pub inputs: Inputs,
    /// Cards by the number of servers, one a row of Table 1.
    pub cards: Vec<(f64, Card)>,
    /// A search by a server of 1 to 8 cores, one of several servers.
    pub cpu_ns: Vec<f64>,
    /// A search by a server that stands alone.
    pub single_cpu_ns: f64,
    /// To a server and back.
    pub wire_ns: f64,
    /// Connections of a card above which requests wait for their state.
    pub connections_max: f64,
    /// How long a request does whose state is not there.
    pub state_ns: f64,
    /// How reads depend on their area.
    pub areas: Areas,
}

/// Runs of calibration take so long; not of the machine's time.
const WARM_NS: u64 = 20_000_000;
const UNTIL_NS: u64 = 80_000_000;
const STEPS: usize = 8;
/// Servers of Table 2.
pub(crate) const SERVERS: usize = 4;

impl Calibration {
    /// Finds the machines with which the model does what the inputs say.
    #[must_use]
    pub fn new(inputs: &Inputs) -> Calibration {
        let card = |row: &RawRow| {
            let of_one = |mops: f64| mops / row.servers;
            let (reads, messages) = (of_one(row.read_mops), of_one(row.message_mops));
            (row.servers, Card::of_rates(reads, messages, of_one(row.hybrid_mops), PAYLOAD))
        };
        let mut found = Calibration {
            inputs: inputs.clone(),
            cards: inputs.table1.iter().map(card).collect(),
            cpu_ns: Vec::new(),
            single_cpu_ns: 0.0,
            wire_ns: 0.0,
            connections_max: f64::INFINITY,
            state_ns: 0.0,
            areas: Areas::new(inputs),
        };
        found.find_wire();
        found.find_cpu();
        found.find_state();
        found.find_single();
        found
    }

    /// Who reads in Table 1: as many as its first row has under way, its throughput times its latency.
    pub(crate) fn readers(&self) -> usize {
        let row = &self.inputs.table1[0];
        rounded(row.read_mops * row.read_us)
    }

    /// The way: the longest with which the clients of Table 1's first row reach 95 % of its three rates, as
    /// the paper says that its figures were chosen.
    fn find_wire(&mut self) {
        let (row, card, readers) = (self.inputs.table1[0], self.cards[0].1, self.readers());
        let (mut shortest_ns, mut longest_ns) = (1_000.0, 30_000.0);
        let mut reached = None;
        for _ in 0..14 {
            self.wire_ns = 0.5 * (shortest_ns + longest_ns);
            let least_k = |mops: f64| 950.0 * mops;
            let is_reached = self.raw(card, readers, 0).run().rate_k() >= least_k(row.read_mops)
                && self.raw(card, 0, readers).run().rate_k() >= least_k(row.message_mops)
                && self.reaches_both(card, least_k(row.hybrid_mops), &mut reached);
            if is_reached {
                shortest_ns = self.wire_ns;
            } else {
                longest_ns = self.wire_ns;
            }
        }
    }

    /// Whether [`Calibration::both`] does so much. One mix that does is enough: `reached` is the one that did
    /// last, which is tried first.
    fn reaches_both(&self, card: Card, least_k: f64, reached: &mut Option<usize>) -> bool {
        let first = *reached;
        let mut mixes = first.into_iter().chain(self.mixes());
        let found = mixes.find(|readers| self.mixed(card, *readers).rate_k() >= least_k);
        *reached = found.or(first);
        found.is_some()
    }

    /// Messages and reads at once, by twice as many clients. Whether as many read as send messages, the paper
    /// does not say: it searched for the highest throughput.
    pub(crate) fn both(&self, card: Card) -> Observed {
        let runs = self.mixes().map(|readers| self.mixed(card, readers));
        let highest = runs.max_by(|one, other| one.rate_k().total_cmp(&other.rate_k()));
        highest.expect("there are several clients")
    }

    /// How many of these clients read, of each mix that is tried.
    fn mixes(&self) -> impl Iterator<Item = usize> + use<> {
        (4..2 * self.readers()).step_by(2)
    }

    /// So many of them read, and the others send messages.
    fn mixed(&self, card: Card, readers: usize) -> Observed {
        self.raw(card, readers, 2 * self.readers() - readers).run()
    }

    /// A core's time for a search, of each number of cores: that with which the servers alone do what Table 2
    /// says. No core is faster than the one of a server with one. The last row is another matter.
    fn find_cpu(&mut self) {
        for cores in 1..self.inputs.server_only_k.len() {
            let wanted_k = self.inputs.server_only_k[cores - 1];
            let least_ns = self.cpu_ns.first().copied().unwrap_or(0.0);
            self.cpu_ns.push((SERVERS * cores) as f64 * 1e6 / wanted_k);
            for _ in 0..STEPS {
                let part = self.server_only_k(cores) / wanted_k;
                self.cpu_ns[cores - 1] = (self.cpu_ns[cores - 1] * part).max(least_ns);
            }
        }
    }

    /// With eight cores the paper's servers do less than with seven, for the state of connections. So the
    /// card has room for those of seven, and a request that finds its connection's state gone takes so much
    /// longer.
    fn find_state(&mut self) {
        let cores = self.inputs.server_only_k.len();
        let wanted_k = self.inputs.server_only_k[cores - 1];
        self.cpu_ns.push(self.cpu_ns[cores - 2]);
        let connections = |cores: usize| (self.processes(SERVERS * cores) * cores) as f64;
        let missing = 1.0 - connections(cores - 1) / connections(cores);
        self.connections_max = connections(cores - 1);
        let wanted_ns = SERVERS as f64 * 1e6 / wanted_k;
        let more_ns = (wanted_ns - self.card(SERVERS, 0.0).message_processing_ns).max(0.0);
        self.state_ns = more_ns / missing;
        for _ in 0..STEPS {
            let part = self.server_only_k(cores) / wanted_k;
            self.state_ns = (self.state_ns + (part - 1.0) * wanted_ns / missing).max(0.0);
        }
    }

    /// One core of one server that has one meganode.
    fn find_single(&mut self) {
        let wanted_k = self.inputs.single("single_server_only_k");
        self.single_cpu_ns = 1e6 / wanted_k;
        for _ in 0..STEPS {
            let clients = Clients { processes: 12, in_hand: 1 };
            let rate_k = self.cluster((1, 1), clients, &fixed(1.0)).lasting(WARM_NS, UNTIL_NS).run().rate_k();
            self.single_cpu_ns *= rate_k / wanted_k;
        }
    }

    /// Processes of clients that keep so many cores busy.
    pub(crate) fn processes(&self, cores: usize) -> usize {
        rounded(self.inputs.single("processes_per_core") * cores as f64)
    }

    /// What four servers do by themselves with so many cores each, in thousands a second.
    pub(crate) fn server_only_k(&self, cores: usize) -> f64 {
        let clients = Clients { processes: self.processes(SERVERS * cores), in_hand: PIPELINED };
        self.cluster((SERVERS, cores), clients, &fixed(1.0)).lasting(WARM_NS, UNTIL_NS).run().rate_k()
    }

    /// The card of one of so many servers, with so many connections: between rows of Table 1 by the logarithm
    /// of the servers.
    pub(crate) fn card(&self, servers: usize, connections: f64) -> Card {
        let servers = servers as f64;
        let after = self.cards.iter().position(|(of, _)| *of >= servers).unwrap_or(self.cards.len() - 1);
        let ((low, one), (high, other)) = (self.cards[after.saturating_sub(1)], self.cards[after]);
        let part = if high > low { ((servers / low).ln() / (high / low).ln()).clamp(0.0, 1.0) } else { 0.0 };
        let missing = (1.0 - self.connections_max / connections.max(1.0)).max(0.0);
        Card { state_ns: missing * self.state_ns, ..Card::between(&one, &other, part) }
    }

    /// A core's time for a search. A server that stands alone is as much faster as the paper's is.
    pub(crate) fn cpu_ns(&self, servers: usize, cores: usize) -> f64 {
        let cpu_ns = self.cpu_ns[cores.min(self.cpu_ns.len()) - 1];
        if servers == 1 { cpu_ns * self.single_cpu_ns / self.cpu_ns[0] } else { cpu_ns }
    }

    /// Messages and reads on one server that does nothing else, as in Table 1.
    pub(crate) fn raw(&self, card: Card, readers: usize, messengers: usize) -> Cluster {
        let group = |threads, share| Group { settings: fixed(share), ..group(threads, 1) };
        let groups = [group(readers, 0.0), group(messengers, 1.0)];
        Cluster {
            groups: groups.into_iter().filter(|group| group.threads > 0).collect(),
            reads: Reads::each(vec![1.0]),
            ..self.machines(vec![Machine { card, processes: 1, cores: 1, cpu_ns: 0.0 }])
        }
    }

    /// Machines without clients.
    pub(crate) fn machines(&self, machines: Vec<Machine>) -> Cluster {
        let processes: usize = machines.iter().map(|machine| machine.processes).sum();
        Cluster {
            asked: vec![1.0 / processes as f64; processes],
            machines,
            groups: Vec::new(),
            reads: Reads::each(Vec::new()),
            extent_area: 1.0,
            wire_ns: self.wire_ns,
            splits: None,
            step: None,
            host: None,
            seed: 7,
            warm_ns: WARM_NS,
            until_ns: UNTIL_NS,
            window_ns: 5_000_000,
        }
    }

    /// So many servers of so many cores with the paper's tree, and one group of clients.
    pub(crate) fn cluster(
        &self,
        (servers, cores): (usize, usize),
        clients: Clients,
        settings: &SelectorSettings,
    ) -> Cluster {
        let card = self.card(servers, (clients.processes * cores) as f64);
        let cpu_ns = self.cpu_ns(servers, cores);
        let machine = Machine { card, processes: cores, cores, cpu_ns };
        let threads = clients.processes * rounded(self.inputs.single("threads_per_process"));
        let uncached = u32::try_from(rounded(self.inputs.single("uncached_levels"))).unwrap_or(u32::MAX);
        let tree = Tree::of_the_paper(&self.inputs, servers);
        Cluster {
            groups: vec![Group { settings: settings.clone(), ..group(threads, clients.in_hand) }],
            reads: tree.reads_below(uncached, self.areas),
            ..self.machines(vec![machine; servers])
        }
    }
}

impl Cluster {
    /// The same for so long.
    pub(crate) fn lasting(self, warm_ns: u64, until_ns: u64) -> Cluster {
        Cluster { warm_ns, until_ns, ..self }
    }
}

/// Threads that search one key after another.
pub(crate) fn group(threads: usize, in_hand: usize) -> Group {
    Group {
        threads,
        in_hand,
        mix: Mix::default(),
        every_ns: None,
        works_ns: (0, u64::MAX),
        settings: SelectorSettings::default(),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
pub(crate) fn rounded(number: f64) -> usize {
    number.round() as usize
}
