//! A run: events in the order of their time. Whoever decides on a search is the selector of
//! `crates/selector`, one for each client and process, asked and fed as the client does it. What these
//! selectors count of their decisions must be what was stepped, or there is no outcome.

use cell_selector::{Decisions, MeganodeId, Question, Reason, Sample, SearchKind, SearchPath, Selector};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::card::{CardQueue, Station};
use crate::cluster::{Cluster, WRITE_SEARCHES};
use crate::event::Events;
use crate::host::{Cores, Host, Job};
use crate::observed::{Observed, Window};

/// Meganodes of a process.
const MEGANODES: u64 = 16;
/// The way differs a little each time, so that clients do not run in step.
const WIRE_JITTER_NS: f64 = 1_000.0;
/// Clients begin within such a time.
const BEGIN_WITHIN_NS: u64 = 10_000;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Search,
    Get,
    Update,
    Insert,
}

/// What happens at an event.
const BEGIN: u8 = 0;
const ARRIVE: u8 = 1;
const ANSWERED: u8 = 2;
const SPLIT: u8 = 3;
/// Of threads that share a machine's cores: an answer waits for its client's thread; a thread's job is done.
const TAKE_IN: u8 = 4;
const WORKED: u8 = 5;

/// One operation in hand of a thread.
#[derive(Clone, Debug)]
struct Slot {
    group: usize,
    thread: usize,
    work: Work,
    path: SearchPath,
    process: usize,
    meganode: u64,
    plan: usize,
    /// Reads that are done.
    done: usize,
    /// When it was to begin, when its turn came, and when its last message or read was posted.
    due_ns: u64,
    began_ns: u64,
    posted_ns: u64,
}

struct Thread {
    selectors: Vec<Option<Box<Selector>>>,
    random: Xoshiro256PlusPlus,
    in_hand: u32,
    /// When its next operation is due, of those that come at a pace.
    next_ns: u64,
}

#[derive(Clone, Copy, Default)]
struct Process {
    machine: usize,
    /// Among those of its machine.
    number: usize,
    inserts: u32,
    pieces_left: u32,
}

struct Run<'a> {
    cluster: &'a Cluster,
    slots: Vec<Slot>,
    threads: Vec<Thread>,
    processes: Vec<Process>,
    /// By machine.
    cores: Vec<Vec<Station>>,
    cards: Vec<CardQueue>,
    /// Of a machine that clients share with the servers: threads of clients, of processes, of cards.
    shared: Option<Cores>,
    events: Events,
    /// How often each process is asked, summed up; the last is the part of those simulated.
    asked: Vec<f64>,
    /// Slots whose operations are with servers that are not simulated.
    elsewhere: Vec<usize>,
    observed: Observed,
    is_warm: bool,
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("64 bits")
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are positive and below 2^53"
)]
fn whole(ns: f64) -> u64 {
    ns as u64
}

/// From 0 to below 1.
fn draw(random: &mut Xoshiro256PlusPlus) -> f64 {
    (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

impl Cluster {
    /// Steps it to its end.
    pub(crate) fn run(&self) -> Observed {
        Run::new(self).finish()
    }
}

impl<'a> Run<'a> {
    fn new(cluster: &'a Cluster) -> Run<'a> {
        assert_eq!(cluster.asked.len(), cluster.processes(), "each process is asked so often");
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(cluster.seed);
        let here = cluster.asked.iter().sum::<f64>() + 1e-9;
        let (mut slots, mut threads) = (Vec::new(), Vec::new());
        for (group, of) in cluster.groups.iter().enumerate() {
            for _ in 0..of.threads {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seeds.next_u64());
                let pace_ns = of.every_ns.unwrap_or(BEGIN_WITHIN_NS) as f64;
                let next_ns = of.works_ns.0 + 1 + whole(pace_ns * draw(&mut random));
                let idle = Slot {
                    group,
                    thread: threads.len(),
                    work: Work::Search,
                    path: SearchPath::Server,
                    process: 0,
                    meganode: 0,
                    plan: 0,
                    done: 0,
                    due_ns: next_ns,
                    began_ns: 0,
                    posted_ns: 0,
                };
                slots.extend(std::iter::repeat_n(idle, of.in_hand));
                let in_hand = u32::try_from(of.in_hand - 1).unwrap_or(u32::MAX);
                let selectors = (0..cluster.processes()).map(|_| None).collect();
                threads.push(Thread { selectors, random, in_hand, next_ns });
            }
        }
        let mut asked = cluster.asked.clone();
        (1..asked.len()).for_each(|at| asked[at] += asked[at - 1]);
        // The slots of a thread stand side by side: those that are here at first are taken evenly from all.
        let is_here = |at: usize| whole((at + 1) as f64 * here) > whole(at as f64 * here);
        let (begin, elsewhere): (Vec<usize>, Vec<usize>) = (0..slots.len()).partition(|at| is_here(*at));
        let mut events = Events::default();
        begin.into_iter().for_each(|at| events.push(slots[at].due_ns, at, BEGIN));
        let sharing = threads.len() + cluster.processes() + cluster.machines.len();
        Run {
            cluster,
            slots,
            threads,
            processes: Run::processes(cluster),
            cores: cluster.machines.iter().map(|of| vec![Station::default(); of.processes]).collect(),
            cards: vec![CardQueue::default(); cluster.machines.len()],
            shared: cluster.host.map(|host| Cores::new(host.cores, sharing)),
            events,
            asked,
            elsewhere,
            observed: Run::nothing_observed(cluster),
            is_warm: false,
        }
    }

    /// Their meganodes are at any point between two splits.
    fn processes(cluster: &Cluster) -> Vec<Process> {
        let of_machine = |(machine, processes): (usize, usize)| {
            (0..processes).map(move |number| Process { machine, number, ..Process::default() })
        };
        let machines = cluster.machines.iter().map(|machine| machine.processes).enumerate();
        let mut processes: Vec<Process> = machines.flat_map(of_machine).collect();
        if let Some(splits) = cluster.splits {
            let apart = splits.inserts / u32::try_from(processes.len()).unwrap_or(u32::MAX);
            for (at, process) in (0..).zip(&mut processes) {
                process.inserts = at * apart + apart / 2;
            }
        }
        processes
    }

    fn nothing_observed(cluster: &Cluster) -> Observed {
        let windows = index(cluster.until_ns.div_ceil(cluster.window_ns));
        Observed {
            window_ns: cluster.window_ns,
            warm: index(cluster.warm_ns / cluster.window_ns),
            windows: vec![vec![Window::default(); windows]; cluster.groups.len()],
            done: vec![0; cluster.processes()],
            ..Observed::default()
        }
    }

    fn finish(mut self) -> Observed {
        while let Some((now_ns, at, what)) = self.events.pop()
            && now_ns < self.cluster.until_ns
        {
            if !self.is_warm && now_ns >= self.cluster.warm_ns {
                self.is_warm = true;
                self.cores.iter_mut().flatten().for_each(|core| core.busy_ns = 0.0);
                for card in &mut self.cards {
                    (card.processing.busy_ns, card.memory.busy_ns) = (0.0, 0.0);
                }
            }
            match what {
                BEGIN => self.begin(now_ns, at),
                ARRIVE => self.arrive(now_ns, at),
                ANSWERED => self.answered(now_ns, at),
                TAKE_IN => self.take_in(now_ns, at),
                WORKED => self.worked(now_ns, at),
                _ => self.split(now_ns, at),
            }
        }
        self.demand_decided();
        let counted_ns = (self.cluster.until_ns - self.cluster.warm_ns) as f64;
        let busy = |station: &Station| station.busy_ns / counted_ns;
        self.observed.core_busy = self.cores.iter().flatten().map(busy).collect();
        self.observed.card_busy =
            self.cards.iter().map(|card| [busy(&card.processing), busy(&card.memory)]).collect();
        self.observed
    }

    /// Each search went as a selector had decided it: by their own counts, and but for those in hand.
    fn demand_decided(&self) {
        let mut decided = Decisions::default();
        for selector in self.threads.iter().flat_map(|thread| thread.selectors.iter().flatten()) {
            decided.add(selector.decisions());
        }
        let (mut server, mut one_sided) = (0, 0);
        for window in self.observed.windows.iter().flatten() {
            server += window.server_side;
            one_sided += window.searches - window.server_side;
        }
        let in_hand = self.slots.len() as u64;
        for (decided, done) in [(decided.server, server), (decided.one_sided, one_sided)] {
            assert!(
                (done..=done + in_hand).contains(&decided),
                "selectors have decided on {decided} searches, and {done} were done so"
            );
        }
    }

    fn at(&mut self, time_ns: f64, slot: usize, what: u8) {
        self.events.push(whole(time_ns), slot, what);
    }

    fn begin(&mut self, now_ns: u64, at: usize) {
        let (cluster, slot) = (self.cluster, &mut self.slots[at]);
        let group = &cluster.groups[slot.group];
        if now_ns >= group.works_ns.1 {
            return;
        }
        let thread = &mut self.threads[slot.thread];
        let here = draw(&mut thread.random) * self.asked[self.asked.len() - 1];
        slot.process = self.asked.partition_point(|up_to| *up_to <= here).min(self.asked.len() - 1);
        slot.meganode = thread.random.next_u64() % MEGANODES;
        let (kind, mix) = (draw(&mut thread.random), group.mix);
        slot.work = match kind {
            kind if kind < mix.gets => Work::Get,
            kind if kind < mix.gets + mix.updates => Work::Update,
            kind if kind < mix.gets + mix.updates + mix.inserts => Work::Insert,
            _ => Work::Search,
        };
        slot.plan = cluster.reads.draw(draw(&mut thread.random));
        (slot.done, slot.began_ns) = (0, now_ns);
        slot.path = SearchPath::Server;
        if matches!(slot.work, Work::Search | Work::Get) {
            let is_alone = cluster.host.is_some_and(|host| host.is_alone(SearchPath::OneSided));
            let seed = cluster.seed ^ ((slot.thread as u64) << 32) ^ ((slot.process as u64) << 1) ^ 1;
            let selector = thread.selectors[slot.process].get_or_insert_with(|| {
                Box::new(Selector::new(group.settings.clone(), Xoshiro256PlusPlus::seed_from_u64(seed)))
            });
            let decision = selector.decide(&Question {
                now_ns,
                kind: SearchKind::Point,
                meganode: (!is_alone).then_some(MeganodeId(slot.meganode << 26)),
                one_sided: Ok(()),
                in_hand: thread.in_hand,
            });
            slot.path = decision.path;
            if self.is_warm {
                self.observed.decided += 1;
                let is_unknown = matches!(decision.reason, Reason::NotEnoughSamples | Reason::IdleReset);
                self.observed.unknown += u64::from(is_unknown);
            }
        }
        self.post(now_ns, at);
    }

    fn post(&mut self, now_ns: u64, at: usize) {
        if let Some(host) = self.cluster.host {
            return self.post_by_thread(now_ns, at, &host);
        }
        let slot = &mut self.slots[at];
        slot.posted_ns = now_ns;
        let jitter_ns = WIRE_JITTER_NS * (draw(&mut self.threads[slot.thread].random) - 0.5);
        self.at(now_ns as f64 + self.cluster.wire_ns / 2.0 + jitter_ns, at, ARRIVE);
    }

    /// The client's thread sends, or searches in place.
    fn post_by_thread(&mut self, now_ns: u64, at: usize, host: &Host) {
        let Slot { thread, path, .. } = self.slots[at];
        let trip = host.trip(path);
        let work_ns = trip.client_ns * self.varied(thread);
        let job = if host.is_alone(path) {
            Job { slot: at, work_ns, after_ns: 0.0, event: ANSWERED, posts: true }
        } else {
            let after_ns = trip.way_each_ns();
            Job { slot: at, work_ns: work_ns / 2.0, after_ns, event: ARRIVE, posts: true }
        };
        self.work(now_ns, thread, job);
    }

    /// At the server's thread that answers: the process's worker, or who serves reads. What a device reads
    /// takes no thread.
    fn arrive_at_thread(&mut self, now_ns: u64, at: usize, host: &Host) {
        let Slot { thread, path, process, .. } = self.slots[at];
        let (workers, readers) = (self.threads.len(), self.threads.len() + self.processes.len());
        let server = match path {
            SearchPath::Server => workers + process,
            SearchPath::OneSided => readers + self.processes[process].machine,
        };
        let trip = host.trip(path);
        if trip.server_ns <= 0.0 {
            return self.at(now_ns as f64 + trip.way_each_ns(), at, TAKE_IN);
        }
        let varied = self.varied(thread);
        let work_ns = trip.server_ns * varied;
        let after_ns = trip.way_each_ns() - trip.early_ns() * varied;
        self.work(now_ns, server, Job { slot: at, work_ns, after_ns, event: TAKE_IN, posts: false });
    }

    /// The client's thread takes an answer in.
    fn take_in(&mut self, now_ns: u64, at: usize) {
        let Some(host) = self.cluster.host else { return };
        let Slot { thread, path, .. } = self.slots[at];
        let work_ns = host.trip(path).client_ns * self.varied(thread) / 2.0;
        self.work(now_ns, thread, Job { slot: at, work_ns, after_ns: 0.0, event: ANSWERED, posts: false });
    }

    /// Work takes half as long to half as long again.
    fn varied(&mut self, thread: usize) -> f64 {
        0.5 + draw(&mut self.threads[thread].random)
    }

    /// One more job of a thread.
    fn work(&mut self, now_ns: u64, thread: usize, job: Job) {
        if let Some(shared) = &mut self.shared {
            shared.add(thread, job);
        }
        self.begin_jobs(now_ns);
    }

    fn worked(&mut self, now_ns: u64, thread: usize) {
        if let Some(shared) = &mut self.shared {
            shared.end(thread);
        }
        self.begin_jobs(now_ns);
    }

    /// Jobs begin while cores are idle.
    fn begin_jobs(&mut self, now_ns: u64) {
        while let Some((thread, job)) = self.shared.as_mut().and_then(Cores::begin) {
            if job.posts {
                let slot = &mut self.slots[job.slot];
                slot.posted_ns = now_ns;
                if slot.done == 0 {
                    slot.began_ns = now_ns;
                }
            }
            let end_ns = now_ns as f64 + job.work_ns;
            self.at(end_ns + job.after_ns, job.slot, job.event);
            self.at(end_ns, thread, WORKED);
        }
    }

    /// The core that a process has now.
    fn core(&mut self, now_ns: u64, process: usize) -> &mut Station {
        let Process { machine, number, .. } = self.processes[process];
        let step = self.cluster.step.filter(|(from_ns, _)| now_ns >= *from_ns);
        let cores = step.map_or(self.cluster.machines[machine].cores, |(_, cores)| cores);
        &mut self.cores[machine][number % cores]
    }

    /// At the server's card, and for a message at its process.
    fn arrive(&mut self, now_ns: u64, at: usize) {
        if let Some(host) = self.cluster.host {
            return self.arrive_at_thread(now_ns, at, &host);
        }
        let cluster = self.cluster;
        let Slot { process, work, path, plan, done, thread, .. } = self.slots[at];
        let machine = self.processes[process].machine;
        let card = &mut self.cards[machine];
        let machine = &cluster.machines[machine];
        let served_ns = match path {
            SearchPath::OneSided => {
                let area = cluster.reads.areas(plan).get(done).copied().unwrap_or(cluster.extent_area);
                card.read(&machine.card, now_ns as f64, area)
            }
            SearchPath::Server => {
                let gone_ns = card.message(&machine.card, now_ns as f64);
                let searches = match work {
                    Work::Search | Work::Get => 1.0,
                    Work::Update => WRITE_SEARCHES,
                    Work::Insert => WRITE_SEARCHES + self.insert(process),
                };
                let service_ns = machine.cpu_ns * searches * self.varied(thread);
                let end_ns = self.core(now_ns, process).serve(gone_ns, service_ns);
                if work == Work::Insert {
                    self.inserted(process, end_ns);
                }
                end_ns
            }
        };
        self.at(served_ns + cluster.wire_ns / 2.0, at, ANSWERED);
    }

    /// One more pair; what the nodes take that split for it, in searches.
    fn insert(&mut self, at: usize) -> f64 {
        let (Some(splits), process) = (self.cluster.splits, &mut self.processes[at]) else { return 0.0 };
        process.inserts += 1;
        splits.searches_at(process.inserts)
    }

    /// The pair is there; perhaps its meganode is to be split.
    fn inserted(&mut self, at: usize, now_ns: f64) {
        let (Some(splits), process) = (self.cluster.splits, &mut self.processes[at]) else { return };
        if process.inserts >= splits.inserts {
            process.inserts = 0;
            process.pieces_left += splits.pieces;
            self.observed.splits += 1;
            self.at(now_ns, at, SPLIT);
        }
    }

    /// The core copies a piece, then serves who has come meanwhile.
    fn split(&mut self, now_ns: u64, at: usize) {
        let (Some(splits), process) = (self.cluster.splits, &mut self.processes[at]) else { return };
        if process.pieces_left > 0 {
            process.pieces_left -= 1;
            let end_ns = self.core(now_ns, at).serve(now_ns as f64, splits.piece_ns);
            self.at(end_ns, at, SPLIT);
        }
    }

    fn answered(&mut self, now_ns: u64, at: usize) {
        let host = self.cluster.host;
        let slot = &mut self.slots[at];
        let selector = self.threads[slot.thread].selectors[slot.process].as_deref_mut();
        let (kind, is_search) = (SearchKind::Point, matches!(slot.work, Work::Search | Work::Get));
        let latency_ns = now_ns - slot.posted_ns;
        match (slot.path, selector) {
            (path, Some(selector)) if host.is_some_and(|host| host.is_alone(path)) => {
                selector.on_sample(now_ns, Sample::InPlace { kind, latency_ns: latency_ns.max(1) });
            }
            (SearchPath::OneSided, Some(selector)) => {
                selector.on_sample(now_ns, Sample::Read { kind, latency_ns });
                slot.done += 1;
                let reads = self.cluster.reads.areas(slot.plan).len() + usize::from(slot.work == Work::Get);
                if slot.done < reads {
                    return self.post(now_ns, at);
                }
                let meganode = Some(MeganodeId(slot.meganode << 26));
                let (reads, latency_ns) = (u32::try_from(reads).unwrap_or(u32::MAX), now_ns - slot.began_ns);
                selector.on_sample(now_ns, Sample::OneSided { kind, meganode, latency_ns, reads });
            }
            (SearchPath::Server, Some(selector)) if is_search => {
                selector.on_sample(now_ns, Sample::Server { kind, latency_ns });
            }
            _ => {}
        }
        self.count(now_ns, at, is_search);
        self.next(now_ns, at);
    }

    fn count(&mut self, now_ns: u64, at: usize, is_search: bool) {
        let slot = &self.slots[at];
        let latency_ns = now_ns - slot.due_ns;
        let window = &mut self.observed.windows[slot.group][index(now_ns / self.cluster.window_ns)];
        window.done += 1;
        if is_search {
            window.searches += 1;
            window.server_side += u64::from(slot.path == SearchPath::Server);
            window.latencies.add(latency_ns);
        }
        self.observed.done[slot.process] += u64::from(self.is_warm);
    }

    /// The next operation: when the thread's pace says; or when this one is done, of the same slot or, with
    /// servers that are not simulated, of one that is there until now.
    fn next(&mut self, now_ns: u64, at: usize) {
        let slot = &self.slots[at];
        let thread = &mut self.threads[slot.thread];
        let (mut next, mut due_ns) = (at, now_ns + 1);
        if let Some(every_ns) = self.cluster.groups[slot.group].every_ns {
            thread.next_ns += every_ns;
            due_ns = thread.next_ns;
        } else if !self.elsewhere.is_empty() {
            let drawn = index(thread.random.next_u64() % self.elsewhere.len() as u64);
            next = std::mem::replace(&mut self.elsewhere[drawn], at);
        }
        self.slots[next].due_ns = due_ns;
        self.at(due_ns.max(now_ns + 1) as f64, next, BEGIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::Card;
    use crate::cluster::{Group, Machine, Mix, policy};
    use crate::tree::Reads;

    const UNTIL_NS: u64 = 20_000_000;

    /// One server and a few clients that have both paths in use.
    fn cluster(rule: &str) -> Cluster {
        let group = Group {
            threads: 8,
            in_hand: 2,
            mix: Mix::default(),
            every_ns: None,
            works_ns: (0, u64::MAX),
            settings: policy(rule),
        };
        let card = Card { message_processing_ns: 1_000.0, read_memory_ns: 1_000.0, ..Card::default() };
        Cluster {
            machines: vec![Machine { card, processes: 1, cores: 1, cpu_ns: 8_000.0 }],
            asked: vec![1.0],
            groups: vec![group],
            reads: Reads::each(vec![1.0; 4]),
            extent_area: 1.0,
            wire_ns: 10_000.0,
            splits: None,
            step: None,
            host: None,
            seed: 7,
            warm_ns: 0,
            until_ns: UNTIL_NS,
            window_ns: UNTIL_NS,
        }
    }

    #[test]
    fn searches_go_as_selectors_decide_by_any_rule() {
        for rule in ["paper", "adaptive", "fixed"] {
            let window = cluster(rule).run().total();
            assert!(window.searches > 1_000, "{rule}: {}", window.searches);
            assert!((1..window.searches).contains(&window.server_side), "{rule}: {}", window.server_side);
        }
    }

    #[test]
    fn run_of_one_seed_is_the_same_each_time() {
        let counts = |seed| {
            let run = Cluster { seed, window_ns: UNTIL_NS / 20, ..cluster("adaptive") }.run();
            run.windows[0].iter().map(|window| (window.done, window.server_side)).collect::<Vec<_>>()
        };
        assert_eq!(counts(1), counts(1));
        assert_ne!(counts(1), counts(2));
    }

    /// As another rule would leave it, which sent more searches to the server than the selectors have.
    #[test]
    #[should_panic(expected = "selectors have decided on")]
    fn searches_that_no_selector_decided_on_end_the_run() {
        let cluster = cluster("adaptive");
        let mut run = Run::new(&cluster);
        run.observed.windows[0][0].searches += 100;
        run.observed.windows[0][0].server_side += 100;
        run.finish();
    }
}
