//! `table2`: the paper's Table 2 by the model that the selector's tests step, no clock and no machine: both
//! rules beside the best fixed share of server-side searches, and the paper's own figures.

use cell_selector::SelectorSettings;

use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, PartOptions};

#[path = "../../crates/selector/tests/suite/model/mod.rs"]
mod model;

use model::{Model, PAPER_SHARE, Window, best_fixed, settings};

/// The paper's figures by cores, in thousands a second: by the server alone, and by its selector.
const SERVER_ONLY_K: [f64; 8] = [505.0, 991.0, 1447.0, 1831.0, 2145.0, 2478.0, 2901.0, 2543.0];
const PAPER_K: [f64; 8] = [1842.0, 2142.0, 2456.0, 2573.0, 2687.0, 2845.0, 2901.0, 2812.0];

/// The parts beside those by cores.
const ONE_SERVER: &str = "one server of 8 cores, 24 clients";
const FEW_CLIENTS: &str = "four servers of 8 cores, 4 clients";
const STEPS: &str = "steps";

const POLICIES: [&str; 2] = ["paper", "adaptive"];
/// Windows in the eleven rounds of a usual run; half of them count.
const WINDOWS: u64 = 80;
/// Windows after a step in the servers' cores.
const WINDOWS_STEPPED: u64 = 200;
/// A rule is back once it stays as near to the best for so many windows.
const NEAR: f64 = 0.95;
const WINDOWS_NEAR: usize = 10;

/// Runs the bench.
///
/// # Errors
/// An output that cannot be written.
pub fn run(parts: &PartOptions, report: &mut Report<'_>) -> Result<(), BenchError> {
    let by_cores = |cores: usize| format!("four servers of {cores} cores, 96 clients");
    let others = [ONE_SERVER, FEW_CLIENTS, STEPS].map(str::to_owned);
    parts.check(&(1..=8).map(by_cores).chain(others).collect::<Vec<_>>())?;
    let time_ns = |windows: u64| u64::from(parts.options.rounds) * windows / 11 * of_the_paper(1).window_ns;
    let until_ns = time_ns(WINDOWS);
    for cores in (1..=8).filter(|cores| parts.wants(&by_cores(*cores))) {
        let bench = by_cores(cores);
        let best_k = rules(&bench, &of_the_paper(cores), until_ns, report)?;
        let rival = format!("the paper's selector ({} %)", PAPER_SHARE[cores - 1]);
        let (bench, unit) = (format!("table2/{bench}, best fixed share"), "K/s");
        report.add(Figure::beside(&bench, unit, best_k, rival, PAPER_K[cores - 1], Goal::None))?;
        let (rival, theirs) = ("the paper's server alone", SERVER_ONLY_K[cores - 1]);
        report.add(Figure::beside(&bench, unit, best_k, rival, theirs, Goal::None))?;
    }
    if parts.wants(ONE_SERVER) {
        let one = Model::of_one_server(8, settings("fixed", 1.0));
        rules(ONE_SERVER, &one, until_ns, report)?;
    }
    if parts.wants(FEW_CLIENTS) {
        rules(FEW_CLIENTS, &Model { clients: 4, ..of_the_paper(8) }, until_ns, report)?;
    }
    if !parts.wants(STEPS) {
        return Ok(());
    }
    for (from, to) in [(8, 1), (1, 8), (4, 2)] {
        let (best_k, _) = best_fixed(&of_the_paper(to), until_ns);
        for policy in POLICIES {
            step(policy, (from, to), best_k, [until_ns, time_ns(WINDOWS_STEPPED)], report)?;
        }
    }
    Ok(())
}

fn of_the_paper(cores: usize) -> Model {
    Model::of_the_paper(cores, settings("fixed", 1.0))
}

fn with(model: &Model, settings: SelectorSettings) -> Model {
    Model { settings, ..model.clone() }
}

/// Adds a row for each rule, beside the best fixed share; returns that one's rate in thousands a second.
fn rules(bench: &str, model: &Model, until_ns: u64, report: &mut Report<'_>) -> Result<f64, BenchError> {
    let (best_k, best_share) = best_fixed(model, until_ns);
    for policy in POLICIES {
        let windows = with(model, settings(policy, 0.5)).run(until_ns);
        let late = &windows[windows.len() / 2..];
        let share = Window::share(late);
        let bench = format!("table2/{bench}, {policy} ({share:.0} %)");
        let rival = format!("best fixed share ({:.0} %)", 100.0 * best_share);
        let rate_k = Window::rate_k(late, model.window_ns);
        report.add(Figure::beside(bench, "K/s", rate_k, rival, best_k, Goal::None))?;
    }
    Ok(best_k)
}

/// How long a rule takes after a step in the servers' cores, and what it has at the end.
fn step(
    policy: &str,
    (from, to): (usize, usize),
    best_k: f64,
    [until_ns, stepped_ns]: [u64; 2],
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let model = Model { step: Some((until_ns, to)), ..with(&of_the_paper(from), settings(policy, 0.5)) };
    let windows = model.run(until_ns + stepped_ns);
    let after = &windows[usize::try_from(until_ns / model.window_ns).unwrap_or(0)..];
    let near = |slice: &[Window]| Window::rate_k(slice, model.window_ns) >= NEAR * best_k;
    let bench = format!("table2/{from} cores, then {to}, {policy}");
    match after.windows(WINDOWS_NEAR).position(near) {
        Some(at) => {
            let ms = (at + WINDOWS_NEAR) as f64 * model.window_ns as f64 / 1e6;
            report.add(Figure::alone(format!("{bench}: near the best after"), "ms", ms))?;
        }
        None => report.note(&format!("{bench}: never near the best")),
    }
    let end_k = Window::rate_k(&after[after.len() / 2..], model.window_ns);
    let bench = format!("{bench}: at the end");
    report.add(Figure::beside(bench, "K/s", end_k, "best fixed share", best_k, Goal::None))?;
    Ok(())
}
