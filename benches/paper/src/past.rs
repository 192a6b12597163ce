//! Past the paper: more servers, ten times the clients, cards of today, keys by Zipf's law, steps in what
//! servers can do, and many clients of one server. The paper's rule stands beside ours, and both beside the
//! best fixed share.

use serde_json::Value;

use crate::calibration::{Clients, PIPELINED, SERVERS};
use crate::card::Card;
use crate::cluster::{Cluster, Machine, fixed, policy};
use crate::figure5::of_many;
use crate::figure9::zipf;
use crate::observed::{Observed, stays_from};
use crate::plot::{Line, Plot};
use crate::sheet::{Sheet, number};
use crate::study::{Outcome, Study};
use crate::tree::Tree;

const RULES: [&str; 2] = ["paper", "adaptive"];

const RULE_COLUMNS: [&str; 9] = [
    "case",
    "rule",
    "rate_k",
    "of_best_fixed_percent",
    "server_side_percent",
    "best_fixed_percent",
    "swing_percent",
    "lacking_samples_percent",
    "p99_us",
];

pub(crate) fn outcome(study: &Study) -> Outcome {
    let (steps, plot) = steps(study);
    (vec![servers(study), cards(study), skew(study), herds(study), steps], vec![plot])
}

/// A row a rule; rates of `scale` times what is simulated.
fn add_rules(sheet: &mut Sheet, study: &Study, case: &str, model: &Cluster, scale: f64, ms: u64) {
    let runs = RULES.map(|rule| lasting(study, model.with(&policy(rule)), ms));
    let shares = runs.each_ref().map(|run| run.total().share());
    let (best_k, best_share) = study.best_fixed(model, &shares);
    for (rule, run) in RULES.into_iter().zip(&runs) {
        sheet.add(vec![
            Value::from(case),
            Value::from(rule),
            number(scale * run.rate_k()),
            number(100.0 * run.rate_k() / best_k),
            number(run.server_percent()),
            number(100.0 * best_share),
            number(run.swing_percent()),
            number(run.unknown_percent()),
            number(run.total().latencies.quantile_us(0.99)),
        ]);
    }
}

/// Two thirds of the time to settle, one third that counts.
fn lasting(study: &Study, cluster: Cluster, ms: u64) -> Observed {
    let warm_ns = study.time_ns(2 * ms);
    let until_ns = warm_ns + study.time_ns(ms);
    Cluster { seed: study.seed, ..cluster.lasting(warm_ns, until_ns) }.run()
}

/// As many servers, with the paper's machines and clients in proportion.
fn servers(study: &Study) -> Sheet {
    let title = "servers of two cores and the paper's cards; one server is simulated, the others take as long; rate \
         of all; cards have room for the connections, except where it is said";
    let mut sheet = Sheet::new("past_servers", title, &RULE_COLUMNS);
    let cores = 2;
    let counts: &[(usize, usize, bool, u64)] = if study.short {
        &[(64, 1, true, 30)]
    } else {
        &[
            (16, 1, true, 150),
            (64, 1, true, 300),
            (64, 10, true, 300),
            (64, 10, true, 1_200),
            (256, 1, true, 600),
            (256, 1, true, 2_400),
            (1000, 1, true, 1_500),
            (64, 1, false, 300),
            (256, 1, false, 600),
        ]
    };
    for &(servers, times, has_room, ms) in counts {
        let processes = times * study.calibration.processes(servers * cores);
        let clients = Clients { processes, in_hand: PIPELINED };
        let mut model = of_many(study.calibration.cluster((servers, cores), clients, &fixed(1.0)));
        if has_room {
            model.machines[0].card.state_ns = 0.0;
        }
        let room = if has_room { "" } else { ", the card's room for connections" };
        let seconds = 3.0 * ms as f64 / 1e3;
        let case = format!("{servers} servers, {times} x clients{room}, {seconds:.1} s");
        add_rules(&mut sheet, study, &case, &model, servers as f64, ms);
    }
    sheet
}

/// A card of today: its name, gigabits a second, millions of messages a second.
const CARDS: [(&str, f64, f64); 3] =
    [("100 Gb/s", 100.0, 75.0), ("200 Gb/s", 200.0, 215.0), ("400 Gb/s", 400.0, 330.0)];
/// Bytes of a packet's headers.
const HEADERS: f64 = 60.0;
/// What a core of today takes for a search and its messages, and the way there and back.
const CORE_NS: f64 = 1_000.0;
const WIRE_NS: f64 = 2_500.0;
/// Servers, of which one is simulated, and the searches by which the client's cache settles.
const CARD_SERVERS: usize = 16;
const CACHE_SEARCHES: u64 = 400_000;

/// Cards of today, with the reads that the client's own cache leaves of each search.
fn cards(study: &Study) -> Sheet {
    let title = "16 servers; a search takes a core 1 us, the way there and back 2.5 us; the client's cache of 128 \
         MB keeps any level but the leaves; rate of all";
    let mut sheet = Sheet::new("past_cards", title, &RULE_COLUMNS);
    let searches = if study.short { CACHE_SEARCHES / 20 } else { CACHE_SEARCHES };
    let tree = Tree::of_the_paper(&study.data.inputs, CARD_SERVERS);
    let cache_bytes = 1e6 * study.data.inputs.single("cache_mb");
    let reads = tree.reads_cached(cache_bytes, searches, study.calibration.areas);
    let cards = if study.short { &CARDS[..1] } else { &CARDS[..] };
    for &(name, gigabits, messages) in cards {
        for cores in [2, 8] {
            let bytes = study.data.inputs.single("node_bytes") + HEADERS;
            let read_memory_ns = 8.0 * bytes / gigabits;
            let processing_ns = 1e3 / messages;
            let card = Card {
                message_processing_ns: 2.0 * processing_ns,
                message_memory_ns: read_memory_ns / 8.0,
                read_processing_ns: processing_ns,
                read_memory_ns,
                state_ns: 0.0,
            };
            let machine = Machine { card, processes: cores, cores, cpu_ns: CORE_NS };
            let clients = Clients { processes: 20 * CARD_SERVERS, in_hand: PIPELINED };
            let model = study.calibration.cluster((CARD_SERVERS, cores), clients, &fixed(1.0));
            let machines = vec![machine; CARD_SERVERS];
            let model = Cluster { machines, reads: reads.clone(), wire_ns: WIRE_NS, ..model };
            let case = format!("{name}, {cores} cores");
            add_rules(&mut sheet, study, &case, &of_many(model), CARD_SERVERS as f64, 100);
        }
    }
    sheet.note(format!("A search needs {:.2} reads in the mean.", reads.mean()));
    sheet
}

/// Keys by Zipf's law: one process is asked far more than the others, and no share is right for all.
fn skew(study: &Study) -> Sheet {
    let columns = [
        "rule",
        "rate_k",
        "of_best_fixed_percent",
        "server_side_percent",
        "hottest_asked_percent",
        "hottest_core_busy_percent",
        "coldest_core_busy_percent",
        "hottest_card_busy_percent",
        "swing_percent",
        "p50_us",
        "p99_us",
    ];
    let title = "16 servers of two cores, keys by Zipf's law (0.99)";
    let mut sheet = Sheet::new("past_skew", title, &columns);
    let (servers, cores) = (if study.short { 4 } else { 16 }, 2);
    let clients = Clients { processes: study.calibration.processes(servers * cores), in_hand: PIPELINED };
    let mut model = study.calibration.cluster((servers, cores), clients, &fixed(1.0));
    model.asked = zipf(servers * cores, 1e6 * study.data.inputs.single("pairs_per_server") * servers as f64);
    let runs = RULES.map(|rule| lasting(study, model.with(&policy(rule)), 200));
    let shares = runs.each_ref().map(|run| run.total().share());
    let (best_k, best_share) = study.best_fixed(&model, &shares);
    let mut add = |rule: &str, run: &Observed| {
        let hottest = |figures: &[f64]| figures.iter().copied().fold(0.0, f64::max);
        let coldest = run.core_busy.iter().copied().fold(f64::INFINITY, f64::min);
        let cards: Vec<f64> = run.card_busy.iter().map(|card| hottest(card)).collect();
        let (total, all) = (run.total(), run.done.iter().sum::<u64>() as f64);
        let most = run.done.iter().copied().max().unwrap_or(0) as f64;
        sheet.add(vec![
            Value::from(rule),
            number(run.rate_k()),
            number(100.0 * run.rate_k() / best_k),
            number(run.server_percent()),
            number(100.0 * most / all),
            number(100.0 * hottest(&run.core_busy)),
            number(100.0 * coldest),
            number(100.0 * hottest(&cards)),
            number(run.swing_percent()),
            number(total.latencies.quantile_us(0.5)),
            number(total.latencies.quantile_us(0.99)),
        ]);
    };
    add("server only", &study.at_share(&model, 1.0));
    add("best fixed share", &study.at_share(&model, best_share));
    for (rule, run) in RULES.into_iter().zip(&runs) {
        add(rule, run);
    }
    sheet
}

/// All clients talk to one server alone, or there are few clients: who changes sides together?
fn herds(study: &Study) -> Sheet {
    let title = "clients without pipelining that all ask the same few processes";
    let mut sheet = Sheet::new("past_herds", title, &RULE_COLUMNS);
    let cases: &[(&str, usize, usize, usize)] = &[
        ("one server, 8 cores, 24 threads", 1, 8, 8),
        ("one server, 8 cores, 240 threads", 1, 8, 80),
        ("one server, 1 core, 240 threads", 1, 1, 80),
        ("four servers, 4 cores, 96 threads", 4, 4, 32),
        ("four servers, 8 cores, 3 threads", 4, 8, 1),
    ];
    let cases = if study.short { &cases[..1] } else { cases };
    for &(case, servers, cores, processes) in cases {
        let clients = Clients { processes, in_hand: 1 };
        let mut model = study.calibration.cluster((servers, cores), clients, &fixed(1.0));
        model.machines.iter_mut().for_each(|machine| machine.card.state_ns = 0.0);
        add_rules(&mut sheet, study, case, &model, 1.0, 150);
    }
    sheet
}

/// Windows over which a rule's rate is taken, and how near it stays to the best.
const NEAR_WINDOWS: usize = 10;
const NEAR: f64 = 0.95;

/// What servers can do changes at once: how soon is a rule near the best of the new state?
fn steps(study: &Study) -> (Sheet, Plot) {
    let columns = ["step", "rule", "near_the_best_after_ms", "at_the_end_of_best_percent"];
    let title = "four servers of eight processes that lose cores or get them back: time until a rule stays above 95 \
         % of the best fixed share";
    let mut sheet = Sheet::new("past_steps", title, &columns);
    let clients = Clients { processes: 20, in_hand: 1 };
    let model = study.calibration.cluster((SERVERS, 8), clients, &fixed(1.0));
    let with_cores = |cores: usize| {
        let mut model = model.clone();
        model.machines.iter_mut().for_each(|machine| machine.cores = cores);
        model
    };
    let mut lines = Vec::new();
    for (from, to) in [(8, 1), (1, 8), (4, 2)] {
        let (best_k, _) = study.best_fixed(&with_cores(to), &[]);
        let (step_ns, after_ns) = (study.time_ns(300), study.time_ns(1_000));
        for rule in RULES {
            let step = Some((step_ns, to));
            let stepped = with_cores(from).with(&policy(rule)).lasting(0, step_ns + after_ns);
            let run = Cluster { step, seed: study.seed, ..stepped }.run();
            let windows = &run.windows[0];
            let rate_k = |from: usize, to: usize| {
                let done: u64 = windows[from..to].iter().map(|window| window.done).sum();
                done as f64 * 1e6 / ((to - from) as u64 * run.window_ns) as f64
            };
            let first = usize::try_from(step_ns / run.window_ns).unwrap_or(0);
            let is_near = |at: usize| rate_k(at, at + NEAR_WINDOWS) >= NEAR * best_k;
            let near: Vec<bool> = (first..=windows.len() - NEAR_WINDOWS).map(is_near).collect();
            let settled_ms =
                stays_from(&near).map(|at| (at + NEAR_WINDOWS) as u64 * run.window_ns / 1_000_000);
            let end_k = rate_k(windows.len() - NEAR_WINDOWS, windows.len());
            sheet.add(vec![
                Value::from(format!("{from} cores, then {to}")),
                Value::from(rule),
                settled_ms.map_or(Value::Null, Value::from),
                number(100.0 * end_k / best_k),
            ]);
            if (from, to) != (4, 2) {
                let point = |at: usize| (at as f64 * run.window_ns as f64 / 1e6, rate_k(at, at + 1));
                let name = format!("{rule}, {from} then {to}");
                lines.push(Line { name, points: (0..windows.len()).map(point).collect(), is_paper: false });
            }
        }
    }
    let plot = Plot {
        name: "past_steps",
        title: "Steps in what four servers can do".to_owned(),
        axes: ["milliseconds", "thousands of searches a second"],
        logarithmic: [false; 2],
        lines,
    };
    (sheet, plot)
}
