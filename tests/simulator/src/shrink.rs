//! The shortest way to a failure that can be found: fewer operations, and faults left out, as long as the run
//! still breaks the same rule. Each try is a process of its own, so that a panic is a failure like any other.

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::RunOptions;

/// Faults of a run that are distinguished.
const FAULTS_MAX: usize = 1_024;
/// Tries, at most.
const TRIES_MAX: u32 = 80;
/// Lines of the story that are printed.
const STORY_LINES: usize = 40;

/// Faults that do not happen, by their number in the run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Without([u64; FAULTS_MAX / 64]);

impl Default for Without {
    fn default() -> Without {
        Without([0; FAULTS_MAX / 64])
    }
}

impl Without {
    /// None happens.
    #[must_use]
    pub fn all() -> Without {
        Without([u64::MAX; FAULTS_MAX / 64])
    }

    /// Leaves a fault out.
    pub fn leave_out(&mut self, fault: usize) {
        if let Some(word) = self.0.get_mut(fault / 64) {
            *word |= 1 << (fault % 64);
        }
    }

    /// Whether a fault is left out.
    #[must_use]
    pub fn has(&self, fault: usize) -> bool {
        self.0.get(fault / 64).is_some_and(|word| word & 1 << (fault % 64) != 0)
    }

    /// Reads numbers with commas between them.
    ///
    /// # Errors
    /// What is no number.
    pub fn parse(text: &str) -> Result<Without, String> {
        let mut without = Without::default();
        for number in text.split(',').filter(|number| !number.is_empty()) {
            without.leave_out(number.parse().map_err(|_| format!("`{number}` is no number"))?);
        }
        Ok(without)
    }
}

impl fmt::Display for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> =
            (0..FAULTS_MAX).filter(|fault| self.has(*fault)).map(|fault| fault.to_string()).collect();
        f.write_str(&numbers.join(","))
    }
}

impl fmt::Debug for Without {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

/// How a run failed, as its process prints it in one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureRecord {
    /// Operations that had started.
    pub asked: u64,
    /// The faults that had happened, by number.
    pub faults: Vec<usize>,
    /// The rule that was broken.
    pub what: String,
}

impl FailureRecord {
    /// As one line, without what was broken if that has several.
    #[must_use]
    pub fn to_line(&self) -> String {
        let faults: Vec<String> = self.faults.iter().map(usize::to_string).collect();
        format!("{} [{}] {}", self.asked, faults.join(","), self.what.replace('\n', "\\n"))
    }

    /// Reads what [`FailureRecord::to_line`] wrote.
    #[must_use]
    pub fn from_line(line: &str) -> FailureRecord {
        let parts = line.split_once(" [").and_then(|(asked, rest)| {
            let (faults, what) = rest.split_once("] ")?;
            Some((asked.parse().ok()?, faults, what))
        });
        let Some((asked, faults, what)) = parts else {
            return FailureRecord { what: line.to_owned(), ..FailureRecord::default() };
        };
        let faults = faults.split(',').filter_map(|number| number.parse().ok()).collect();
        FailureRecord { asked, faults, what: what.to_owned() }
    }

    /// What distinguishes failures: the words before the first number.
    fn kind(&self) -> &str {
        let end = self.what.find(|letter: char| letter.is_ascii_digit()).unwrap_or(self.what.len());
        &self.what[..end]
    }
}

/// The shortest that was found.
#[derive(Clone, Debug)]
pub struct Shortest {
    seed: u64,
    options: RunOptions,
    record: FailureRecord,
    tries: u32,
}

struct Shrinking {
    seed: u64,
    kind: String,
    best: (RunOptions, FailureRecord),
    tries: u32,
    until: Instant,
}

/// Looks for the shortest run of a seed that fails as it does with these options; none if it does not fail
/// again.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "people do not wait for ever")]
pub fn shortest(seed: u64, options: RunOptions, patience: Duration) -> Option<Shortest> {
    let record = run(seed, options)?;
    let kind = record.kind().to_owned();
    let until = Instant::now() + patience;
    let mut shrinking = Shrinking { seed, kind, best: (options, record), tries: 1, until };
    shrinking.fewer_operations();
    shrinking.fewer_faults();
    shrinking.fewer_operations();
    let Shrinking { best: (options, record), tries, .. } = shrinking;
    Some(Shortest { seed, options, record, tries })
}

impl Shrinking {
    #[allow(clippy::disallowed_methods, reason = "people do not wait for ever")]
    fn is_over(&self) -> bool {
        self.tries >= TRIES_MAX || Instant::now() >= self.until
    }

    /// Whether the run still fails so; then it is the best.
    fn fails(&mut self, options: RunOptions) -> bool {
        self.tries += 1;
        let record = run(self.seed, options).filter(|record| record.kind() == self.kind);
        record.is_some_and(|record| {
            self.best = (options, record);
            true
        })
    }

    fn fewer_operations(&mut self) {
        let mut low = 1;
        while !self.is_over() && low < self.best.1.asked {
            let half = low + (self.best.1.asked - low) / 2;
            if !self.fails(RunOptions { stop_after: half, ..self.best.0 }) {
                low = half + 1;
            }
        }
    }

    fn fewer_faults(&mut self) {
        let mut at_once = self.best.1.faults.len().div_ceil(2);
        while at_once > 0 && !self.is_over() {
            let faults = self.best.1.faults.clone();
            for some in faults.chunks(at_once) {
                let mut options = self.best.0;
                some.iter().for_each(|fault| options.without.leave_out(*fault));
                if self.is_over() || options.without == self.best.0.without {
                    continue;
                }
                self.fails(options);
            }
            at_once /= 2;
        }
    }
}

/// The arguments that make another process run so.
#[must_use]
pub fn arguments(options: &RunOptions) -> Vec<String> {
    let mut arguments = vec!["--operations".to_owned(), options.operations.to_string()];
    if options.stop_after > 0 {
        arguments.extend(["--stop-after".to_owned(), options.stop_after.to_string()]);
    }
    if options.without != Without::default() {
        arguments.extend(["--without".to_owned(), options.without.to_string()]);
    }
    if let Some(mutant) = options.mutant {
        arguments.extend(["--mutant".to_owned(), mutant.name().to_owned()]);
    }
    arguments
}

/// Runs a seed in a process of its own; how it failed, if it did.
fn run(seed: u64, options: RunOptions) -> Option<FailureRecord> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(["--serve", "--seed-from", &seed.to_string(), "--seeds", "1"]).args(arguments(&options));
    let output = command.output().ok()?;
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = lines.lines().last().unwrap_or_default();
    match last.split_once(' ') {
        Some(("passed", _)) => None,
        Some(("failed", line)) => Some(FailureRecord::from_line(line)),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let panic = said.lines().find(|line| line.contains("panicked")).unwrap_or("the process died");
            let faults = (0..64).collect();
            Some(FailureRecord { asked: options.operations, faults, what: panic.to_owned() })
        }
    }
}

impl Shortest {
    /// Prints it, with the end of its story.
    pub fn print(&self) {
        let arguments = arguments(&self.options).join(" ");
        let count = self.record.faults.len();
        let what = self.record.what.split("\\n").next().unwrap_or_default();
        println!("shortest of {} runs: {} operations, {count} faults: {what}", self.tries, self.record.asked);
        let output = std::env::current_exe().and_then(|program| {
            let seed = self.seed.to_string();
            Command::new(program).args(["--seed", &seed]).args(arguments.split(' ')).output()
        });
        let story = output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
        let story = story.unwrap_or_default();
        for fault in story.lines().filter(|line| line.contains(" fault ")) {
            println!("  {fault}");
        }
        println!("  its end:");
        let lines: Vec<&str> = story.lines().collect();
        for line in &lines[lines.len().saturating_sub(STORY_LINES)..] {
            println!("  {}", line.chars().take(200).collect::<String>());
        }
        println!("reproduce: cargo run --release -p cell-simulator -- --seed {} {arguments}", self.seed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_and_without_round_trip() {
        let record = FailureRecord { asked: 7, faults: vec![0, 3, 1_000], what: "stuck: 5 [x] y".to_owned() };
        assert_eq!(FailureRecord::from_line(&record.to_line()), record);
        assert_eq!(record.kind(), "stuck: ");
        let without = Without::parse("0,3,1000").unwrap();
        assert!(without.has(3) && !without.has(4) && without.has(1_000));
        assert_eq!(Without::parse(&without.to_string()), Ok(without));
        assert!(Without::parse("0,x").is_err());
    }
}
