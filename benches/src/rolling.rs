//! `rolling`: a rolling restart of three nodes (`cell drill run rolling`) under YCSB A at half of the rate
//! that they take: what fails, how long the longest operation takes and what 99 of 100 stay below, beside the
//! same before it.

use std::time::Duration;

use cell_client::{ClientOptions, Search};
use cell_random::Random;

use crate::data::{Choice, Dataset};
use crate::figure::{Figure, Goal, Report};
use crate::options::{BenchError, Options};
use crate::paced::{Probe, Pulse, Span, drive, half_rate, now, watch};
use crate::put::Scratch;
use crate::served::{Served, leases, many_meganodes, patient};
use crate::takeover::{ask, busiest};

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

/// Runs the bench.
///
/// # Errors
/// A node or a client that failed, or a restart that does not come on.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    let folder = Scratch::new(options.dir.as_deref())?;
    let data = Dataset { entries: options.entries, seed: options.seed };
    let sizes = many_meganodes(data.entries);
    let mut flags: Vec<_> = sizes.iter().map(|(name, size)| (*name, size.as_str())).collect();
    flags.push(("--nodes", "3"));
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
    busiest(&served.server)?;
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
    add_rows(&before, &during, pulse.failed(), report)
}

/// Restarts all nodes; what was seen of the load meanwhile.
fn restart(served: &Served, pulse: &Pulse, report: &Report<'_>) -> Result<Seen, BenchError> {
    let began = now();
    let from = pulse.look(began);
    let said = ask(&served.server, &DRILL)?;
    let seen = Seen::take(pulse, Span::between(&from, &pulse.look(began)));
    match said["verdict"].as_str() {
        Some("PASS") => Ok(seen),
        // Nothing is wrong; of the bench's own load all is known.
        Some("INCONCLUSIVE") => {
            report.note(&format!("the drill proves nothing: {}", said["reasons"]));
            Ok(seen)
        }
        _ => Err(BenchError::Io(std::io::Error::other(format!("the drill did not pass: {said}")))),
    }
}

fn add_rows(before: &Seen, during: &Seen, failed: u64, report: &mut Report<'_>) -> Result<(), BenchError> {
    let bench = "rolling/operations failed";
    report.add(Figure::beside(bench, "operations", failed as f64, "none", 1.0, Goal::AtMost(0.0)))?;
    let mut row = |what: &str, unit, of: fn(&Seen) -> f64| {
        let bench = format!("rolling/{what}");
        report.add(Figure::beside(bench, unit, of(during), "before", of(before), Goal::None))
    };
    row("longest stall", "ms", |seen| seen.longest_ms)?;
    row("p99", "ms", |seen| seen.p99_ms)?;
    row("operations", "op/s", |seen| seen.span.rate())?;
    let seconds = during.span.time.as_secs_f64();
    report.add(Figure::alone("rolling/restart of three nodes", "s", seconds))?;
    Ok(())
}
