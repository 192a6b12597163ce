//! `rolling`: a rolling restart of three nodes (`cell drill run rolling`) under YCSB A at half of the rate
//! that one client reaches with 64 operations outstanding: what fails, how long the longest operation takes
//! and what 99 of 100 stay below, beside the same before it.

use std::time::{Duration, Instant};

use cell_client::{ClientOptions, Search};
use cell_random::Random;

use crate::data::{Choice, Dataset};
use crate::drills::{all_served, ask_and_hear};
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::paced::{Probe, Pulse, Span, drive, half_rate, now, watch};
use crate::put::Scratch;
use crate::served::{Served, leases, many_meganodes, patient};

const NODES: usize = 3;
/// What is put: as long as the data's values on average.
const VALUE: [u8; 132] = [b'v'; 132];
/// Operations that are drawn beforehand, and done again and again.
const PROBES: usize = 100_000;
/// How long load goes on before a rate is measured, and how long that takes.
const SETTLES: Duration = Duration::from_secs(2);
const LASTS: Duration = Duration::from_secs(20);
/// The drill has a load of its own, for its proof: as little as proves something.
const DRILL: [&str; 10] =
    ["run", "rolling", "--threads", "1", "--rate", "50", "--before", "1s", "--patience", "300s"];
/// What the drill notes when the restart begins, when a node is back, and when all has been well for half a
/// second.
const BEGINS: &str = "rolling restart";
const IS_BACK: &str = "serves again";
const IS_OVER: &str = "reading every acknowledged key back";

/// What was seen of the load in a time.
struct Seen {
    span: Span,
    longest_ms: f64,
    p99_ms: f64,
}

impl Seen {
    /// Takes what has gathered in this time.
    fn take(pulse: &Pulse, span: Span) -> Self {
        Self { span, longest_ms: pulse.take_longest_ms(), p99_ms: pulse.take_p99_ms() }
    }
}

/// Sees what is done of the load from the restart's begin to its end, without what the drill does before and
/// after.
struct Watch<'a> {
    pulse: &'a Pulse,
    began: Instant,
    /// What had been done when the restart began.
    before: Option<Span>,
    nodes_back: usize,
    /// What was done until the last node was back.
    span: Option<Span>,
    seen: Option<Seen>,
}

impl<'a> Watch<'a> {
    fn new(pulse: &'a Pulse) -> Self {
        Self { pulse, began: now(), before: None, nodes_back: 0, span: None, seen: None }
    }

    /// Takes in a line of the drill's.
    fn hear(&mut self, line: &str) {
        if line == BEGINS {
            self.pulse.take_longest_ms();
            self.pulse.take_p99_ms();
            self.before = Some(self.pulse.look(self.began));
        } else if line.ends_with(IS_BACK) {
            self.nodes_back += 1;
            if self.nodes_back == NODES {
                let after = self.pulse.look(self.began);
                self.span = self.before.map(|before| Span::between(&before, &after));
            }
        } else if line == IS_OVER {
            // What the restart has held up has ended by now.
            self.seen = self.span.map(|span| Seen::take(self.pulse, span));
        }
    }
}

/// Runs the bench.
///
/// # Errors
/// A node or a client that failed, or a restart that does not come on.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let folder = Scratch::new(options.dir.as_deref())?;
    let data = Dataset { entries: options.entries, seed: options.seed };
    let sizes = many_meganodes(data.entries);
    let nodes = NODES.to_string();
    let mut flags: Vec<_> = sizes.iter().map(|(name, size)| (*name, size.as_str())).collect();
    flags.push(("--nodes", nodes.as_str()));
    let words = [&["--allow-drills"][..], leases(options)].concat();
    let mut served = Served::start_cluster(&folder.0.join("rolling"), data.entries, &flags, &words)?;
    served.fill(&data)?;
    let packed = data.probes(Choice::Zipf, PROBES, data.seed ^ 0x726F_6C6C);
    let mut random = Random::new(data.seed ^ 0x6861_6C66);
    let probes: Vec<Probe> =
        (0..packed.len()).map(|at| (packed.get(at).to_vec(), random.below(2) == 0)).collect();
    let client = || served.client(ClientOptions { search: Search::Server, ..patient() });
    let times = [SETTLES, LASTS].map(|whole| options.lasting(whole));
    let interval = half_rate(&mut client()?, &probes, &VALUE, times)?;
    // A drill needs a cluster that is well.
    all_served(&served.server)?;
    let pulse = Pulse::default();
    let (before, during) = std::thread::scope(|scope| {
        let ending = pulse.ending();
        let (mut client, probes, pulse) = (client()?, &probes, &pulse);
        let load = scope.spawn(move || drive(&mut client, probes, &VALUE, Some(interval), pulse));
        let before = watch(pulse, times);
        let before = Seen::take(pulse, before);
        let during = restart(&served, pulse, report);
        drop(ending);
        load.join().expect("the load does not panic")?;
        during.map(|during| (before, during))
    })?;
    served.server.kill_all();
    let (during, seconds) = during;
    add_rows([&before, &during], seconds, pulse.failed(), report)
}

/// Restarts all nodes; what was seen of the load meanwhile, and how many seconds that took.
fn restart(served: &Served, pulse: &Pulse, report: &Report<'_>) -> Result<(Seen, f64), BenchError> {
    let wrong = |what: &str| BenchError::Io(std::io::Error::other(what.to_owned()));
    let mut watch = Watch::new(pulse);
    let said = ask_and_hear(&served.server, &DRILL, &mut |line| watch.hear(line))?;
    match said["verdict"].as_str() {
        Some("PASS") => {}
        // Nothing is wrong; of the bench's own load all is known.
        Some("INCONCLUSIVE") => report.note(&format!("the drill proves nothing: {}", said["reasons"])),
        _ => return Err(wrong(&format!("the drill did not pass: {said}"))),
    }
    // From the restart's begin on.
    let ms = said["all_back_ms"].as_f64().ok_or_else(|| wrong("the drill does not say how long it took"))?;
    let seen = watch.seen.ok_or_else(|| wrong("the drill does not say when the restart was"))?;
    Ok((seen, ms / 1e3))
}

fn add_rows(
    [before, during]: [&Seen; 2],
    seconds: f64,
    failed: u64,
    report: &mut Report<'_>,
) -> Result<(), BenchError> {
    let bench = "rolling/operations failed";
    report.add(Figure::to_be_none(bench, "operations", failed as f64))?;
    let mut row = |what: &str, unit, of: fn(&Seen) -> f64| {
        let bench = format!("rolling/{what}");
        report.add(Figure::beside(bench, unit, of(during), "before", of(before), Goal::None))
    };
    row("longest stall", "ms", |seen| seen.longest_ms)?;
    row("p99", "ms", |seen| seen.p99_ms)?;
    row("operations", "op/s", |seen| seen.span.rate())?;
    report.add(Figure::alone("rolling/restart of three nodes", "s", seconds))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_sees_what_is_done_from_the_restarts_begin_to_the_last_nodes_return() {
        let pulse = Pulse::default();
        let done = |count: u64| (0..count).for_each(|_| pulse.count(now(), true));
        let mut watch = Watch::new(&pulse);
        done(1);
        watch.hear(BEGINS);
        for node in 0..NODES {
            done(2);
            watch.hear(&format!("node {node} is emptied"));
            watch.hear(&format!("node {node} is empty, and is restarted"));
            watch.hear(&format!("node {node} {IS_BACK}"));
        }
        done(4);
        assert!(watch.seen.is_none());
        watch.hear(IS_OVER);
        assert_eq!(watch.seen.map(|seen| seen.span.done), Some(6));
        let mut watch = Watch::new(&pulse);
        for line in [BEGINS, "node 0 serves again", "node 1 serves again", IS_OVER] {
            watch.hear(line);
        }
        assert!(watch.seen.is_none(), "one node is not back");
    }
}
