//! Many seeds on all cores. Release builds abort on a panic, so the seeds run in child processes: one that
//! dies takes its seed along, and the sweep goes on with another child behind it.

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::seeds::Seeds;
use crate::shrink::{FailureRecord, Shortest, Without, arguments, shortest};
use crate::{Coverage, Event, OPERATIONS, RunOptions, run};

/// Seeds that a child is given at once; of a run with a mutant, which ends with the first seed that fails.
const SEEDS_AT_ONCE: u64 = 16;
const SEEDS_AT_ONCE_OF_MUTANTS: u64 = 4;
/// How often progress is printed.
const PROGRESS: Duration = Duration::from_secs(5);
/// How long the shortest way to a failure is looked for.
const SHRINKING: Duration = Duration::from_secs(60);
/// Failures that are printed whole.
const FAILURES_PRINTED: usize = 10;
/// Of a hundred runs, at least so many see a takeover by another host: held by sweeps of so many seeds.
const TAKEOVERS_PERCENT_MIN: u64 = 50;
const SEEDS_OF_A_SHARE: u64 = 50;
/// In a hundred runs, at least so many moves are completed, and each kind of fault befalls so often while a
/// pair moves: held by sweeps of so many seeds.
const MOVES_PERCENT_MIN: u64 = 50;
const MET_PERCENT_MIN: u64 = 1;
const SEEDS_OF_MOVES: u64 = 500;

/// Which seeds, and how.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The seeds.
    pub seeds: Seeds,
    /// Child processes.
    pub children: usize,
    /// Of each run.
    pub options: RunOptions,
}

/// One seed's end.
enum Ended {
    Passed(Coverage),
    Failed(u64, String),
}

/// What a sweep found.
#[derive(Debug)]
pub struct Report {
    /// Seeds that passed.
    pub passed: u64,
    /// Seeds that failed, and how.
    pub failures: Vec<(u64, String)>,
    /// What happened in those that passed.
    pub coverage: Coverage,
    /// How long it took.
    pub elapsed: Duration,
}

/// Runs seeds one after the other and prints each one's end on standard output, for [`sweep`].
pub fn serve(from: u64, seeds: u64, options: RunOptions) {
    let mut out = std::io::stdout().lock();
    let mut print_line = |line: String| {
        let line = line.replace('\n', "\\n");
        let _ = writeln!(out, "{line}").and_then(|()| out.flush()); // nobody listens: nothing to be done
    };
    for seed in from..from + seeds {
        print_line(format!("begin {seed}"));
        match run(seed, options) {
            Ok(passed) => print_line(format!("passed {}", passed.coverage.to_line())),
            Err(failed) => print_line(format!("failed {}", failed.record.to_line())),
        }
    }
}

/// Runs the seeds in child processes of this program.
///
/// # Errors
/// No child process can be started.
#[allow(clippy::disallowed_methods, reason = "how long a sweep takes is shown to an operator")]
pub fn sweep(sweep: &Sweep) -> std::io::Result<Report> {
    let started = Instant::now();
    let mutant = sweep.options.mutant.is_some();
    let at_once = if mutant { SEEDS_AT_ONCE_OF_MUTANTS } else { SEEDS_AT_ONCE };
    let mut pieces: Vec<Range<u64>> = sweep.seeds.pieces(at_once).collect();
    pieces.reverse();
    let pieces = Mutex::new(pieces);
    let (send, ended) = channel();
    let mut report =
        Report { passed: 0, failures: Vec::new(), coverage: Coverage::default(), elapsed: Duration::ZERO };
    std::thread::scope(|scope| {
        let children: Vec<_> = (0..sweep.children.max(1))
            .map(|_| {
                let send = send.clone();
                scope.spawn(|| take_seeds(sweep, &pieces, send))
            })
            .collect();
        drop(send);
        let mut printed = Instant::now();
        for ended in ended {
            match ended {
                Ended::Passed(coverage) => {
                    report.passed += 1;
                    report.coverage.merge(&coverage);
                }
                Ended::Failed(seed, why) => {
                    if mutant {
                        left(&pieces).clear(); // caught: no child begins other seeds
                    } else if report.failures.len() < FAILURES_PRINTED {
                        println!("seed {seed}: FAILED: {}", why.replace("\\n", "\n"));
                    }
                    report.failures.push((seed, why));
                }
            }
            if printed.elapsed() > PROGRESS {
                printed = Instant::now();
                let done = report.passed + report.failures.len() as u64;
                eprintln!("{done} of {} seeds, {} failed", sweep.seeds.count(), report.failures.len());
            }
        }
        children.into_iter().try_for_each(|child| child.join().unwrap_or(Ok(())))
    })?;
    report.elapsed = started.elapsed();
    Ok(report)
}

fn left(pieces: &Mutex<Vec<Range<u64>>>) -> std::sync::MutexGuard<'_, Vec<Range<u64>>> {
    pieces.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take_seeds(sweep: &Sweep, pieces: &Mutex<Vec<Range<u64>>>, send: Sender<Ended>) -> std::io::Result<()> {
    loop {
        let Some(piece) = left(pieces).pop() else { return Ok(()) };
        let mut from = piece.start;
        while from < piece.end {
            from = run_child(sweep, from, piece.end - from, &send)?;
        }
    }
}

/// Runs a child over some seeds; the first seed that is left to run.
fn run_child(sweep: &Sweep, from: u64, seeds: u64, send: &Sender<Ended>) -> std::io::Result<u64> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--serve", "--seed-from", &from.to_string(), "--seeds", &seeds.to_string()])
        .args(arguments(&sweep.options))
        .env("MIMALLOC_PURGE_DELAY", "-1") // the next seed wants what this one has freed
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut seed = from;
    let output = child.stdout.take().into_iter().flat_map(|output| BufReader::new(output).lines());
    for line in output.map_while(Result::ok) {
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "begin" => continue,
            "passed" => drop(send.send(Ended::Passed(Coverage::from_line(rest).unwrap_or_default()))),
            _ => drop(send.send(Ended::Failed(seed, FailureRecord::from_line(rest).what))),
        }
        seed += 1;
    }
    let ended = child.wait_with_output()?;
    if seed < from + seeds {
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        drop(send.send(Ended::Failed(seed, format!("the process died: {}\n{said}", ended.status))));
        seed += 1;
    }
    Ok(seed)
}

impl Report {
    /// Of a hundred runs that passed, how many saw a takeover by another host.
    fn takeovers_percent(&self) -> u64 {
        self.coverage.count(Event::SurvivorRuns) * 100 / self.passed.max(1)
    }

    /// In what the sweep was too tame to prove much. One with a mutant ends with the first seed that fails,
    /// and shorter runs, or runs without all faults, prove what they were asked for.
    #[must_use]
    pub fn tame(&self, options: RunOptions) -> Vec<String> {
        let RunOptions { operations, stop_after, without, mutant, .. } = options;
        let is_usual = operations == 0 || operations >= OPERATIONS;
        let is_whole = is_usual && stop_after == 0 && without == Without::default();
        let mut tame = Vec::new();
        if mutant.is_none() && self.passed >= SEEDS_OF_A_SHARE {
            let is_tame = self.takeovers_percent() < TAKEOVERS_PERCENT_MIN;
            let least = format!("at least {TAKEOVERS_PERCENT_MIN} % of the runs must see a takeover");
            tame.extend(is_tame.then_some(least));
        }
        if mutant.is_none() && is_whole && self.passed >= SEEDS_OF_MOVES {
            tame.extend(self.tame_moves());
        }
        tame
    }

    fn tame_moves(&self) -> impl Iterator<Item = String> {
        let least = |percent| self.passed * percent / 100;
        let (moved, moves_min, met_min) =
            (self.coverage.count(Event::Moved), least(MOVES_PERCENT_MIN), least(MET_PERCENT_MIN));
        let few = (moved < moves_min).then(|| format!("{moved} pairs moved, of {moves_min} at least"));
        let rare = self.coverage.in_moves().filter(move |(_, count)| *count < met_min);
        let rare = rare.map(move |(fault, count)| {
            format!("{fault:?} befell {count} times while a pair moved, of {met_min} at least")
        });
        few.into_iter().chain(rare)
    }

    /// Prints everything, the verdict last.
    pub fn print(&self, commit: &str, options: RunOptions) {
        let seeds = self.passed + self.failures.len() as u64;
        println!("what happened in {} runs:", self.passed);
        for event in Event::ALL {
            let count = self.coverage.count(*event);
            let never = if count == 0 { "   <- NEVER HAPPENED" } else { "" };
            println!("{count:>12}  {}{never}", event.name());
        }
        let in_moves = self.coverage.in_moves().map(|(fault, count)| format!("{fault:?} {count}"));
        println!("faults while a pair moved: {}", in_moves.collect::<Vec<_>>().join(", "));
        #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = seeds as f64 / self.elapsed.as_secs_f64().max(1e-9);
        println!("takeovers by another host in {} % of the runs", self.takeovers_percent());
        println!("{seeds} seeds in {:.1} s: {rate:.1} seeds/s", self.elapsed.as_secs_f64());
        if !self.failures.is_empty() {
            let failed: Vec<String> = self.failures.iter().map(|(seed, _)| seed.to_string()).collect();
            println!("commit {commit}; failed seeds: {}", failed.join(" "));
            println!("reproduce: cargo run --release -p cell-simulator -- --seed {}", failed[0]);
            let wanted = options.mutant.is_none();
            let first = wanted.then(|| shortest(self.failures[0].0, options, SHRINKING)).flatten();
            first.iter().for_each(Shortest::print);
        }
        let tame = self.tame(options);
        tame.iter().for_each(|why| println!("FAILED: {why}"));
        println!("{} passed, {} failed", self.passed, self.failures.len() + tame.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{FAULTS, Fault};

    /// So many runs, each with a takeover and a move; of the faults, `rare` befell so often while pairs
    /// moved.
    fn report(passed: u64, moved: u64, rare: Fault, times: u64) -> Report {
        let mut coverage = Coverage::default();
        coverage.add(Event::SurvivorRuns, passed);
        coverage.add(Event::Moved, moved);
        for fault in FAULTS {
            let times = if fault == rare { times } else { passed };
            (0..times).for_each(|_| coverage.met_move(fault));
        }
        Report { passed, failures: Vec::new(), coverage, elapsed: Duration::ZERO }
    }

    #[test]
    fn sweep_that_saw_few_moves_or_few_faults_during_them_fails() {
        let options = RunOptions::default();
        let tame = |moved, times| report(1_000, moved, Fault::Lull, times).tame(options);
        assert!(tame(500, 10).is_empty());
        assert_eq!(tame(499, 10), ["499 pairs moved, of 500 at least"]);
        assert_eq!(tame(500, 9), ["Lull befell 9 times while a pair moved, of 10 at least"]);
        assert_eq!(tame(0, 0).len(), 2);
        assert!(report(499, 0, Fault::Lull, 0).tame(options).is_empty(), "few seeds prove little of moves");
    }

    #[test]
    fn sweep_without_takeovers_fails_and_one_that_was_asked_for_less_is_not_judged_by_moves() {
        let none = Report { coverage: Coverage::default(), ..report(1_000, 0, Fault::Kill, 0) };
        let less = RunOptions { operations: OPERATIONS - 1, ..RunOptions::default() };
        assert_eq!(none.tame(less), ["at least 50 % of the runs must see a takeover"]);
        let without = RunOptions { without: Without::all(), ..RunOptions::default() };
        assert_eq!(none.tame(without).len(), 1);
        assert_eq!(none.tame(RunOptions::default()).len(), 2 + FAULTS.len());
    }
}
