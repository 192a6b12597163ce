//! Figure 7: latencies while the load is two and a half times as high for five seconds.

use serde_json::Value;

use crate::calibration::{Clients, SERVERS, group};
use crate::cluster::{Cluster, Group, fixed, policy};
use crate::observed::{Observed, Window};
use crate::plot::{Line, Plot};
use crate::sheet::{Sheet, error, met, number};
use crate::study::{Outcome, Study};

const CORES: usize = 2;
/// Clients, and those that come for the spike: as many as in the paper, and more than the servers can do
/// alone. Each searches so often, without pipelining.
const CLIENTS: usize = 24;
const MORE: [usize; 2] = [36, 60];
const EVERY_NS: u64 = 75_000;
/// A latency is settled once it stays within this of what it is at the end of the spike.
const SETTLED: f64 = 1.25;
const METHODS: [&str; 3] = ["server only", "adaptive", "rule of the paper"];

struct Times {
    begin: usize,
    end: usize,
    window_ns: u64,
}

fn observed(study: &Study, method: usize, more: usize, times: &Times) -> Observed {
    let settings = [fixed(1.0), policy("adaptive"), policy("paper")][method].clone();
    let paced = |threads: usize, works: (usize, usize)| Group {
        every_ns: Some(EVERY_NS),
        works_ns: (works.0 as u64 * times.window_ns, works.1 as u64 * times.window_ns),
        settings: settings.clone(),
        ..group(threads, 1)
    };
    let clients = Clients { processes: CLIENTS + more, in_hand: 1 };
    let model = study.calibration.cluster((SERVERS, CORES), clients, &settings);
    let end = times.end + times.begin;
    let groups = vec![paced(CLIENTS, (0, end)), paced(more, (times.begin, times.end))];
    let until_ns = end as u64 * times.window_ns;
    Cluster { groups, window_ns: times.window_ns, seed: study.seed, ..model.lasting(0, until_ns) }.run()
}

/// Windows from the spike's begin until what a method's searches take stays what it is at the end of the
/// spike.
fn settled(run: &Observed, times: &Times) -> usize {
    let p90_us = |from: usize, to: usize| run.between(0, from, to).latencies.quantile_us(0.9);
    let last_us = p90_us(times.end - (times.end - times.begin) / 5, times.end);
    let unsettled = (times.begin..times.end).rfind(|at| p90_us(*at, at + 1) > SETTLED * last_us);
    unsettled.map_or(0, |at| at + 1 - times.begin)
}

pub(crate) fn outcome(study: &Study) -> Outcome {
    let times = if study.short {
        Times { begin: 10, end: 20, window_ns: 20_000_000 }
    } else {
        Times { begin: 20, end: 120, window_ns: 50_000_000 }
    };
    let columns = [
        "clients_more",
        "method",
        "before_us",
        "before_p90_us",
        "first_second_us",
        "first_second_p90_us",
        "rest_us",
        "rest_p90_us",
        "after_us",
        "after_p90_us",
        "before_server_side_percent",
        "rest_server_side_percent",
        "settled_after_ms",
        "met_1_s",
    ];
    let title = "four servers of two cores; 24 clients search every 75 us, and more do for five seconds (36 in the paper); medians";
    let mut sheet = Sheet::new("figure7", title, &columns);
    let (mut plots, mut quiet) = (Vec::new(), Vec::new());
    for (at, more) in MORE.into_iter().enumerate() {
        let (lines, before) = spike(study, more, &times, &mut sheet);
        if at == 0 {
            quiet = before;
        }
        plots.push(Plot {
            name: ["figure7", "figure7_more"][at],
            title: format!("Figure 7: a spike of five seconds, {CLIENTS} clients and {more} more"),
            axes: ["seconds", "latency, us"],
            logarithmic: [false, true],
            lines,
        });
    }
    (vec![sheet, below_saturation(study, &quiet)], plots)
}

/// What searches take before the spike, by [`METHODS`], beside the text.
fn below_saturation(study: &Study, quiet: &[Window]) -> Sheet {
    let title = "latencies before the spike beside the text of 4.3, the median, and of 4.4.1, the mean";
    let mut sheet = Sheet::new("figure7_quiet", title, &["what", "model", "paper", "error_percent"]);
    let mut add = |what: String, model: f64, name: &str| {
        let paper = study.data.outcome(name);
        sheet.add(vec![Value::from(what), number(model), number(paper), error(model, paper)]);
    };
    for (method, before) in METHODS.iter().zip(quiet) {
        add(format!("{method}, median, us"), before.latencies.quantile_us(0.5), "median_us");
    }
    for (method, before) in METHODS.iter().zip(quiet).skip(1) {
        add(format!("{method}, mean, us"), before.latencies.mean_us(), "two_cores_moderate_us");
    }
    sheet
}

/// Adds a row a method; the lines of its latencies, and what was done before the spike.
fn spike(study: &Study, more: usize, times: &Times, sheet: &mut Sheet) -> (Vec<Line>, Vec<Window>) {
    let second = (times.end - times.begin) / 5;
    let settles_ms = 1_000.0 * study.data.outcome("settles_s");
    let (mut lines, mut quiet) = (Vec::new(), Vec::new());
    for (method, name) in METHODS.iter().enumerate() {
        let run = observed(study, method, more, times);
        let end = run.windows[0].len();
        let phases = [
            (second / 2, times.begin),
            (times.begin, times.begin + second),
            (times.begin + second, times.end),
            (times.end + second / 2, end),
        ];
        let phases = phases.map(|(from, to)| run.between(0, from, to));
        let mut row = vec![Value::from(more), Value::from(*name)];
        let both = |phase: &Window| [0.5, 0.9].map(|part| number(phase.latencies.quantile_us(part)));
        row.extend(phases.iter().flat_map(both));
        row.extend([0, 2].map(|phase: usize| number(100.0 * phases[phase].share())));
        let settled_ms = settled(&run, times) as u64 * times.window_ns / 1_000_000;
        row.extend([Value::from(settled_ms), met(settled_ms as f64 <= settles_ms)]);
        sheet.add(row);
        let [before, ..] = phases;
        quiet.push(before);
        for (part, of) in [(0.5, "median"), (0.9, "90 %")] {
            let at_s = |at: usize| at as f64 * times.window_ns as f64 / 1e9;
            let point = |at: usize| (at_s(at), run.windows[0][at].latencies.quantile_us(part));
            let points = (1..end).map(point).collect();
            lines.push(Line { name: format!("{name}, {of}"), points, is_paper: false });
        }
    }
    (lines, quiet)
}
