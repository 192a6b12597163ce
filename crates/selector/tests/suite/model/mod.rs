//! A model of the paper's Table 2: servers with cores and a network card as queueing stations, closed-loop
//! clients that step the real selector in simulated time.
//!
//! Each server has a CPU station of `cores` (first come, first served) and a card of two stations in a row:
//! *processing*, which messages and reads share, and *transmission*, which is mostly the reads' because
//! they carry 1 KB. Service times are the paper's: Table 1 gives the card (1.04 M reads/s, 0.74 M
//! messages/s alone, 1.6 M of both), the first column of Table 2 the CPU. What the paper does not give is
//! chosen so that its figures come out: the wire, the client's own time and the number of clients.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cell_selector::{MeganodeId, Question, Sample, SearchKind, SearchPath, Selector, SelectorSettings};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// What the CPU alone can do. The paper's eighth core gains nothing because the card has too many
/// connections for its memory, which its selector, with fewer clients, does not feel.
const CPU_K: [u64; 8] = [505, 991, 1447, 1831, 2145, 2478, 2901, 3315];

/// Percentage of server-side searches by the paper's selector.
pub(crate) const PAPER_SHARE: [u64; 8] = [30, 41, 53, 62, 77, 88, 99, 99];

/// On the wire, there and back.
const WIRE_NS: u64 = 7_000;
/// The client's own time for a search or a read.
const CLIENT_NS: u64 = 1_500;
/// The card's processing of a message, there and back, and of a read.
const PROCESS_MESSAGE_NS: u64 = 1_350;
const PROCESS_READ_NS: u64 = 450;
/// The card's transmission of a reply, and of 1 KB.
const TRANSMIT_REPLY_NS: u64 = 100;
const TRANSMIT_READ_NS: u64 = 960;

/// Meganodes of a server; one of four needs a read more.
const MEGANODES: u64 = 16;
const READS: u32 = 3;

/// What is simulated.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) servers: usize,
    pub(crate) clients: usize,
    pub(crate) cores: usize,
    pub(crate) settings: SelectorSettings,
    pub(crate) seed: u64,
    /// From this time on the servers have so many cores.
    pub(crate) step: Option<(u64, usize)>,
    /// Results are counted in windows of this length.
    pub(crate) window_ns: u64,
}

/// What was done within a window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    pub(crate) searches: u64,
    pub(crate) server_side: u64,
}

impl Window {
    /// Searches in thousands a second.
    pub(crate) fn rate_k(windows: &[Window], window_ns: u64) -> f64 {
        let searches: u64 = windows.iter().map(|window| window.searches).sum();
        searches as f64 * 1e6 / (windows.len() as u64 * window_ns) as f64
    }

    /// Percentage of server-side searches.
    pub(crate) fn share(windows: &[Window]) -> f64 {
        let searches: u64 = windows.iter().map(|window| window.searches).sum();
        let server_side: u64 = windows.iter().map(|window| window.server_side).sum();
        100.0 * server_side as f64 / searches.max(1) as f64
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("64 bits")
}

struct Server {
    cores: [u64; 8],
    processing: u64,
    transmission: u64,
}

/// A station serves in the order of arrival; the end of the service.
fn serve(free_ns: &mut u64, now_ns: u64, service_ns: u64) -> u64 {
    *free_ns = now_ns.max(*free_ns) + service_ns;
    *free_ns
}

#[derive(Clone, Copy)]
enum Stage {
    Begin,
    /// At the card's processing.
    Processing,
    Computing,
    Transmission,
    Answered,
}

struct Client {
    selectors: Vec<Selector>,
    random: Xoshiro256PlusPlus,
    server: usize,
    meganode: u64,
    path: SearchPath,
    started_ns: u64,
    posted_ns: u64,
    reads_left: u32,
    reads: u32,
}

struct Run<'a> {
    model: &'a Model,
    servers: Vec<Server>,
    clients: Vec<Client>,
    events: BinaryHeap<Reverse<(u64, usize, u8)>>,
    windows: Vec<Window>,
}

impl Model {
    /// Four servers and their clients.
    pub(crate) fn of_the_paper(cores: usize, settings: SelectorSettings) -> Model {
        Model { servers: 4, clients: 96, cores, settings, seed: 7, step: None, window_ns: 5_000_000 }
    }

    /// A quarter of it: one server.
    pub(crate) fn of_one_server(cores: usize, settings: SelectorSettings) -> Model {
        Model { servers: 1, clients: 24, ..Model::of_the_paper(cores, settings) }
    }

    /// Runs for so long.
    pub(crate) fn run(&self, until_ns: u64) -> Vec<Window> {
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut stream = || Xoshiro256PlusPlus::seed_from_u64(seeds.next_u64());
        let clients: Vec<Client> = (0..self.clients)
            .map(|_| Client {
                selectors: (0..self.servers)
                    .map(|_| Selector::new(self.settings.clone(), stream()))
                    .collect(),
                random: stream(),
                server: 0,
                meganode: 0,
                path: SearchPath::Server,
                started_ns: 0,
                posted_ns: 0,
                reads_left: 0,
                reads: 0,
            })
            .collect();
        let idle = |_| Server { cores: [0; 8], processing: 0, transmission: 0 };
        let mut run = Run {
            model: self,
            servers: (0..self.servers).map(idle).collect(),
            events: (0..self.clients)
                .map(|at| Reverse((1 + at as u64 * 100, at, Stage::Begin as u8)))
                .collect(),
            clients,
            windows: vec![Window::default(); index(until_ns / self.window_ns)],
        };
        while let Some(Reverse((now_ns, client, stage))) = run.events.pop()
            && now_ns < until_ns
        {
            run.step(now_ns, client, stage);
        }
        run.windows
    }
}

impl Run<'_> {
    fn cores(&self, now_ns: u64) -> usize {
        self.model.step.filter(|(from_ns, _)| now_ns >= *from_ns).map_or(self.model.cores, |(_, cores)| cores)
    }

    fn at(&mut self, time_ns: u64, client: usize, stage: Stage) {
        self.events.push(Reverse((time_ns, client, stage as u8)));
    }

    fn step(&mut self, now_ns: u64, at: usize, stage: u8) {
        let stages =
            [Stage::Begin, Stage::Processing, Stage::Computing, Stage::Transmission, Stage::Answered];
        let cores = self.cores(now_ns);
        let client = &mut self.clients[at];
        let server = &mut self.servers[client.server];
        let is_message = client.path == SearchPath::Server;
        match stages[usize::from(stage)] {
            Stage::Begin => self.begin(now_ns, at),
            Stage::Processing => {
                let service_ns = if is_message { PROCESS_MESSAGE_NS } else { PROCESS_READ_NS };
                let end_ns = serve(&mut server.processing, now_ns, service_ns);
                self.at(end_ns, at, if is_message { Stage::Computing } else { Stage::Transmission });
            }
            Stage::Computing => {
                let service_ns = 4_000_000 * cores as u64 / CPU_K[cores - 1];
                let jitter = client.random.next_u64() % service_ns;
                let core = server.cores[..cores].iter_mut().min().expect("a server has a core");
                let end_ns = serve(core, now_ns, service_ns / 2 + jitter);
                self.at(end_ns, at, Stage::Transmission);
            }
            Stage::Transmission => {
                let service_ns = if is_message { TRANSMIT_REPLY_NS } else { TRANSMIT_READ_NS };
                let end_ns = serve(&mut server.transmission, now_ns, service_ns);
                self.at(end_ns + WIRE_NS / 2, at, Stage::Answered);
            }
            Stage::Answered => self.answered(now_ns, at),
        }
    }

    fn begin(&mut self, now_ns: u64, at: usize) {
        let client = &mut self.clients[at];
        client.server = index(client.random.next_u64() % self.model.servers as u64);
        client.meganode = client.random.next_u64() % MEGANODES;
        let question = Question {
            now_ns,
            kind: SearchKind::Point,
            meganode: Some(MeganodeId(client.meganode << 26)),
            one_sided: Ok(()),
            in_hand: 0,
        };
        client.path = client.selectors[client.server].decide(&question).path;
        client.started_ns = now_ns;
        client.reads = if client.path == SearchPath::Server { 0 } else { READS };
        client.reads += u32::from(client.reads > 0 && client.meganode.is_multiple_of(4));
        client.reads_left = client.reads;
        self.post(now_ns, at);
    }

    fn post(&mut self, now_ns: u64, at: usize) {
        let client = &mut self.clients[at];
        client.posted_ns = now_ns + CLIENT_NS;
        // The wire's time differs a little each time, so that clients do not run in step.
        let wire_ns = WIRE_NS / 2 + client.random.next_u64() % 1_000;
        let arrives_ns = client.posted_ns + wire_ns;
        self.at(arrives_ns, at, Stage::Processing);
    }

    fn answered(&mut self, now_ns: u64, at: usize) {
        let client = &mut self.clients[at];
        let selector = &mut client.selectors[client.server];
        let (kind, latency_ns) = (SearchKind::Point, now_ns - client.started_ns);
        if client.path == SearchPath::Server {
            let latency_ns = now_ns - client.posted_ns;
            selector.on_sample(now_ns, Sample::Server { kind, latency_ns });
        } else {
            selector.on_sample(now_ns, Sample::Read { kind, latency_ns: now_ns - client.posted_ns });
            client.reads_left -= 1;
            if client.reads_left > 0 {
                return self.post(now_ns, at);
            }
            let meganode = Some(MeganodeId(client.meganode << 26));
            let reads = client.reads;
            selector.on_sample(now_ns, Sample::OneSided { kind, meganode, latency_ns, reads });
        }
        let server_side = client.path == SearchPath::Server;
        let window = index(now_ns / self.model.window_ns);
        self.windows[window].searches += 1;
        self.windows[window].server_side += u64::from(server_side);
        self.at(now_ns + 1, at, Stage::Begin);
    }
}

/// The settings of a policy; `fixed` of a share.
pub(crate) fn settings(policy: &str, share: f64) -> SelectorSettings {
    SelectorSettings {
        policy: policy.parse().expect("a policy"),
        fixed_share: share,
        ..SelectorSettings::default()
    }
}

/// The throughput of the best of eleven fixed shares, in thousands a second, and that share.
pub(crate) fn best_fixed(model: &Model, until_ns: u64) -> (f64, f64) {
    let rate = |tenth: u32| {
        let share = f64::from(tenth) / 10.0;
        let windows = Model { settings: settings("fixed", share), ..model.clone() }.run(until_ns);
        (Window::rate_k(&windows[windows.len() / 2..], model.window_ns), share)
    };
    (0..=10).map(rate).max_by(|one, other| one.0.total_cmp(&other.0)).expect("eleven shares")
}
