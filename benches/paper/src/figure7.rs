//! Figure 7: latencies while the load is two and a half times as high for five seconds.

use serde_json::Value;

use crate::calibration::{Clients, SERVERS, group};
use crate::cluster::{Cluster, Group, fixed, policy};
use crate::observed::{Observed, Window, stays_from};
use crate::plot::{Line, Plot};
use crate::sheet::{BESIDE_TEXT, Said, Sheet, beside_text, error, met, met_tenth, number};
use crate::study::{Outcome, Study};

const CORES: usize = 2;
/// Clients, and those that come for the spike: as many as in the paper, and more than the servers can do
/// alone. Each searches so often, without pipelining.
const CLIENTS: usize = 24;
const MORE: [usize; 2] = [36, 60];
const EVERY_NS: u64 = 75_000;
/// A window's latency is settled within so many times that of the same load in equilibrium.
const SETTLED: f64 = 1.25;
/// Who does less than this of what comes does not keep up.
const KEEPS_UP: f64 = 0.99;
const METHODS: [&str; 3] = ["server only", "adaptive", "rule of the paper"];

/// In windows: the spike, and all.
#[derive(Clone, Copy)]
struct Times {
    begin: usize,
    end: usize,
    until: usize,
    window_ns: u64,
}

impl Times {
    fn new(study: &Study) -> Times {
        let (begin, end, window_ns) = if study.short { (10, 20, 20_000_000) } else { (20, 120, 50_000_000) };
        Times { begin, end, until: begin + end, window_ns }
    }

    /// A second of the spike's five.
    fn second(&self) -> usize {
        (self.end - self.begin) / 5
    }
}

/// Before the spike, in its first second, in the rest of it, and after it.
type Phases = [Window; 4];

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
    let groups = vec![paced(CLIENTS, (0, times.until)), paced(more, (times.begin, times.end))];
    let until_ns = times.until as u64 * times.window_ns;
    Cluster { groups, window_ns: times.window_ns, seed: study.seed, ..model.lasting(0, until_ns) }.run()
}

/// Whether all clients together get done what comes, between two windows of the spike.
fn keeps_up(run: &Observed, more: usize, (from, to): (usize, usize)) -> bool {
    let done: u64 = [0, 1].map(|group: usize| run.between(group, from, to).done).iter().sum();
    let come = (CLIENTS + more) as f64 * (to - from) as f64 * run.window_ns as f64 / EVERY_NS as f64;
    done as f64 >= KEEPS_UP * come
}

fn p90_us(window: &Window) -> f64 {
    // What answers nothing is not near.
    if window.searches == 0 { f64::INFINITY } else { window.latencies.quantile_us(0.9) }
}

/// What the method's searches take if all clients are there from the begin, once they have settled. Nothing
/// if they do not keep up: the load has no equilibrium then.
///
/// Two seconds, not five: of a queue that grows too slowly to be seen so, the end of the spike is beyond
/// what is seen here.
fn equilibrium_us(study: &Study, method: usize, more: usize, times: &Times) -> Option<f64> {
    let second = times.second();
    let from_the_begin = Times { begin: 0, end: 2 * second, until: 2 * second, ..*times };
    let run = observed(study, method, more, &from_the_begin);
    let is_kept = keeps_up(&run, more, (second, 2 * second));
    is_kept.then(|| p90_us(&run.between(0, second, 2 * second)))
}

/// Windows from the spike's begin until all that are left are near the equilibrium. Nothing where there is
/// none, or the last one is not near it, or searches come faster than they are done: they take ever longer.
fn settled(run: &Observed, more: usize, times: &Times, equilibrium_us: Option<f64>) -> Option<usize> {
    let is_kept = keeps_up(run, more, (times.end - times.second(), times.end));
    let near_us = SETTLED * equilibrium_us.filter(|_| is_kept)?;
    let spike = &run.windows[0][times.begin..times.end];
    stays_from(&spike.iter().map(|window| p90_us(window) <= near_us).collect::<Vec<_>>())
}

const COLUMNS: [&str; 15] = [
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
    "equilibrium_p90_us",
    "settled_after_ms",
    "met_1_s",
];

pub(crate) fn outcome(study: &Study) -> Outcome {
    let times = Times::new(study);
    let title = "four servers of two cores; 24 clients search every 75 us, and more do for five seconds (36 \
                 in the paper); medians";
    let mut sheet = Sheet::new("figure7", title, &COLUMNS);
    let (mut plots, mut of_the_paper) = (Vec::new(), Vec::new());
    for (at, more) in MORE.into_iter().enumerate() {
        let (lines, phases) = spike(study, more, &times, &mut sheet);
        if at == 0 {
            of_the_paper = phases;
        }
        plots.push(Plot {
            name: ["figure7", "figure7_more"][at],
            title: format!("Figure 7: a spike of five seconds, {CLIENTS} clients and {more} more"),
            axes: ["seconds", "latency, us"],
            logarithmic: [false, true],
            lines,
        });
    }
    sheet.note(
        "Settled: from then on to the spike's end all windows' 90 % are within a quarter of that of the same \
         clients who are there from the begin, `equilibrium_p90`, and as many searches are done as come. A \
         queue that grows has no equilibrium, and never settles.",
    );
    (vec![sheet, below_saturation(study, &of_the_paper), in_the_spike(&of_the_paper)], plots)
}

/// What searches take before the spike, by [`METHODS`], beside the text.
fn below_saturation(study: &Study, phases: &[Phases]) -> Sheet {
    let title = "latencies before the spike beside the text of 4.3, the median, and of 4.4.1, the mean";
    let columns = ["what", "model", "paper", "error_percent", "met_10_of_paper"];
    let mut sheet = Sheet::new("figure7_quiet", title, &columns);
    let mut add = |what: String, model: f64, name: &str| {
        let paper = study.data.outcome(name);
        let (off, is_met) = (error(model, paper), met_tenth(model, paper));
        sheet.add(vec![Value::from(what), number(model), number(paper), off, is_met]);
    };
    for (method, [before, ..]) in METHODS.iter().zip(phases) {
        add(format!("{method}, median, us"), before.latencies.quantile_us(0.5), "median_us");
    }
    for (method, [before, ..]) in METHODS.iter().zip(phases).skip(1) {
        add(format!("{method}, mean, us"), before.latencies.mean_us(), "two_cores_moderate_us");
    }
    sheet
}

/// The spike with as many clients as in the paper, by [`METHODS`], beside its text, which has no figures:
/// most searches are the clients', and latencies are low beside those of the servers alone.
fn in_the_spike(phases: &[Phases]) -> Sheet {
    let title = "the last four seconds of the spike, 36 clients more, beside the text of 4.4.3, which has no \
                 figures: most searches by the clients, latencies lower than those of the servers alone";
    let mut sheet = Sheet::new("figure7_spike", title, &BESIDE_TEXT);
    let rest = |method: usize| &phases[method][2];
    for (method, name) in METHODS.iter().enumerate().skip(1) {
        let share = 100.0 * rest(method).share();
        sheet.add(beside_text(format!("{name}, by the server, %"), share, Said::Below(50.0)));
        for (part, of) in [(0.5, "median"), (0.9, "90 %")] {
            let [ours, theirs] = [method, 0].map(|method| rest(method).latencies.quantile_us(part));
            let what = format!("{name}, {of}, % of server only's");
            sheet.add(beside_text(what, 100.0 * ours / theirs, Said::Below(100.0)));
        }
    }
    sheet
}

/// Adds a row a method; the lines of its latencies, and what was done in each phase.
fn spike(study: &Study, more: usize, times: &Times, sheet: &mut Sheet) -> (Vec<Line>, Vec<Phases>) {
    let second = times.second();
    let settles_ms = 1_000.0 * study.data.outcome("settles_s");
    let (mut lines, mut of_methods) = (Vec::new(), Vec::new());
    for (method, name) in METHODS.iter().enumerate() {
        let run = observed(study, method, more, times);
        let phases: Phases = [
            (second / 2, times.begin),
            (times.begin, times.begin + second),
            (times.begin + second, times.end),
            (times.end + second / 2, times.until),
        ]
        .map(|(from, to)| run.between(0, from, to));
        let mut row = vec![Value::from(more), Value::from(*name)];
        let both = |phase: &Window| [0.5, 0.9].map(|part| number(phase.latencies.quantile_us(part)));
        row.extend(phases.iter().flat_map(both));
        row.extend([0, 2].map(|phase: usize| number(100.0 * phases[phase].share())));
        let equilibrium_us = equilibrium_us(study, method, more, times);
        let settled = settled(&run, more, times, equilibrium_us);
        let settled_ms = settled.map(|windows| windows as u64 * times.window_ns / 1_000_000);
        row.push(equilibrium_us.map_or(Value::Null, number));
        row.push(settled_ms.map_or(Value::Null, Value::from));
        row.push(met(settled_ms.is_some_and(|ms| ms as f64 <= settles_ms)));
        sheet.add(row);
        of_methods.push(phases);
        for (part, of) in [(0.5, "median"), (0.9, "90 %")] {
            let at_s = |at: usize| at as f64 * times.window_ns as f64 / 1e9;
            let point = |at: usize| (at_s(at), run.windows[0][at].latencies.quantile_us(part));
            let points = (1..times.until).map(point).collect();
            lines.push(Line { name: format!("{name}, {of}"), points, is_paper: false });
        }
    }
    (lines, of_methods)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DATA, PaperData};

    /// Windows of one millisecond whose searches each take so long.
    fn run_of(more: usize, latencies_us: &[u64]) -> Observed {
        let window_ns = 1_000_000;
        let of = |clients: usize, latency_us: u64| {
            let mut window = Window::default();
            for _ in 0..clients as u64 * window_ns / EVERY_NS {
                window.latencies.add(1_000 * latency_us);
                (window.done, window.searches) = (window.done + 1, window.searches + 1);
            }
            window
        };
        let group = |clients| latencies_us.iter().map(|us| of(clients, *us)).collect();
        Observed { window_ns, windows: vec![group(CLIENTS), group(more)], ..Observed::default() }
    }

    #[test]
    fn settled_is_what_stays_near_the_equilibrium_and_nothing_that_still_rises() {
        let times = Times { begin: 1, end: 11, until: 12, window_ns: 1_000_000 };
        let settled = |latencies_us: &[u64], equilibrium_us| {
            settled(&run_of(36, latencies_us), 36, &times, equilibrium_us)
        };
        let calm = [30, 900, 400, 60, 60, 60, 200, 60, 60, 60, 60, 30];
        assert_eq!(settled(&calm, Some(60.0)), Some(6), "after the last window that is far");
        assert_eq!(settled(&calm, None), None, "no equilibrium to come back to");
        let rising = [30, 60, 61, 62, 63, 64, 65, 66, 67, 90, 120, 30];
        assert_eq!(settled(&rising, Some(60.0)), None, "the last window is far");
        let high = [30, 400, 400, 400, 400, 400, 400, 400, 400, 400, 400, 30];
        assert_eq!(settled(&high, Some(60.0)), None, "even, but far");
        // As fast as can be, but fewer than come.
        let mut behind = run_of(36, &[60; 12]);
        behind.windows[1].iter_mut().for_each(|window| window.done -= window.done / 10);
        assert_eq!(super::settled(&behind, 36, &times, Some(60.0)), None, "the queue grows");
    }

    /// The model's own queue: 84 clients ask for more than the servers alone can do.
    #[test]
    fn queue_that_grows_has_no_equilibrium_and_never_settles() {
        let study = Study::new(PaperData::parse(&DATA).unwrap(), 7, true);
        let times = Times::new(&study);
        for (more, has_one) in MORE.into_iter().zip([true, false]) {
            let run = observed(&study, 0, more, &times);
            let equilibrium_us = equilibrium_us(&study, 0, more, &times);
            assert_eq!(equilibrium_us.is_some(), has_one, "{more} more: {equilibrium_us:?}");
            assert_eq!(settled(&run, more, &times, equilibrium_us).is_some(), has_one, "{more} more");
            let level_us = Some(p90_us(&run.between(0, times.begin, times.end)));
            assert_eq!(settled(&run, more, &times, level_us).is_some(), has_one, "{more} more");
        }
    }
}
