//! A figure: what we reached beside what a rival or a limit reached in the same run, and whether that is
//! enough.

use std::io::{self, Write};

use serde::Serialize;

/// Of fewer measurements a row does not say whether its goal is met: one run's ratio differs from the next's
/// by more than most goals leave.
const ENOUGH: usize = 3;

/// What the ratio of ours to theirs must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Ours must be at least this many times theirs.
    AtLeast(f64),
    /// Ours must be at most this many times theirs.
    AtMost(f64),
    /// Printed for orientation.
    None,
}

impl Goal {
    fn met(self, ratio: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(ratio >= least),
            Self::AtMost(most) => Some(ratio <= most),
            Self::None => None,
        }
    }

    fn text(self) -> Option<String> {
        match self {
            Self::AtLeast(least) => Some(format!(">= {least}")),
            Self::AtMost(most) => Some(format!("<= {most}")),
            Self::None => None,
        }
    }
}

/// One printed row. Serialised, it is a row of `--json`: the fields' names are the issue's.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured, as `command/figure`.
    pub bench: String,
    /// Our result.
    pub ours: f64,
    /// What both results count.
    pub unit: &'static str,
    /// Who or what stands beside us.
    pub rival: String,
    /// Its result; none where there is nothing to compare with.
    pub theirs: Option<f64>,
    /// Ours divided by theirs.
    pub ratio: Option<f64>,
    /// What the ratio must be.
    pub goal: Option<String>,
    /// Whether it is, if that is known.
    pub met: Option<bool>,
    /// It says what has happened, and is no estimate.
    #[serde(skip)]
    is_count: bool,
}

impl Figure {
    /// Ours beside theirs.
    pub fn beside(
        bench: impl Into<String>,
        unit: &'static str,
        ours: f64,
        rival: impl Into<String>,
        theirs: f64,
        goal: Goal,
    ) -> Self {
        // Beside nothing there is no ratio, and no goal is met or missed.
        let ratio = Some(ours / theirs).filter(|ratio| ratio.is_finite());
        Self {
            bench: bench.into(),
            ours: rounded(ours),
            unit,
            rival: rival.into(),
            theirs: Some(rounded(theirs)),
            ratio: ratio.map(rounded),
            goal: goal.text(),
            met: ratio.and_then(|ratio| goal.met(ratio)),
            is_count: false,
        }
    }

    /// A count of what is not to happen: one run tells whether it has.
    pub fn to_be_none(bench: impl Into<String>, unit: &'static str, count: f64) -> Self {
        Self { is_count: true, ..Self::beside(bench, unit, count, "none", 1.0, Goal::AtMost(0.0)) }
    }

    /// A figure that stands alone.
    pub fn alone(bench: impl Into<String>, unit: &'static str, ours: f64) -> Self {
        Self {
            bench: bench.into(),
            ours: rounded(ours),
            unit,
            rival: String::new(),
            theirs: None,
            ratio: None,
            goal: None,
            met: None,
            is_count: false,
        }
    }
}

/// Four significant digits: more would be noise read as knowledge.
fn rounded(number: f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return number;
    }
    let magnitude = number.abs().log10().floor();
    let scale = 10f64.powf(3.0 - magnitude);
    (number * scale).round() / scale
}

/// Says something that is not a figure on standard error, so that `--json` stays rows only. Who has closed
/// that wants no notes: a bench goes on, where `eprintln!` would panic.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "# {text}");
}

/// Prints figures as they come: JSON lines, or aligned text.
pub struct Report<'a> {
    out: &'a mut dyn Write,
    json: bool,
    headed: bool,
    figures: Vec<Figure>,
    /// How often each figure is measured.
    measured: usize,
    /// A row did not say whether its goal is met, and a note has said why.
    is_withheld: bool,
}

impl<'a> Report<'a> {
    /// A report on `out`.
    pub fn new(out: &'a mut dyn Write, json: bool) -> Self {
        Self { out, json, headed: false, figures: Vec::new(), measured: ENOUGH, is_withheld: false }
    }

    /// The same, of figures that are measured so often.
    #[must_use]
    pub fn measured(self, times: usize) -> Self {
        Self { measured: times, ..self }
    }

    /// Prints and keeps a figure.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn add(&mut self, mut figure: Figure) -> io::Result<()> {
        if self.measured < ENOUGH && figure.met.is_some() && !figure.is_count {
            figure.met = None;
            self.note_withheld();
        }
        if self.json {
            serde_json::to_writer(&mut *self.out, &figure)?;
            writeln!(self.out)?;
        } else {
            self.add_text(&figure)?;
        }
        self.out.flush()?;
        self.figures.push(figure);
        Ok(())
    }

    /// As [`note`].
    pub fn note(&self, text: &str) {
        note(text);
    }

    fn note_withheld(&mut self) {
        if !std::mem::replace(&mut self.is_withheld, true) {
            let times = self.measured;
            self.note(&format!(
                "too few rounds: of what is measured less than {ENOUGH} times, here {times}, no row says whether \
                 its goal is met (--rounds)"
            ));
        }
    }

    /// All figures so far.
    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    fn add_text(&mut self, figure: &Figure) -> io::Result<()> {
        if !self.headed {
            self.headed = true;
            writeln!(
                self.out,
                "{:<34} {:>12} {:>12} {:>7} {:<8} {:<5} {:<12} rival or limit",
                "bench", "ours", "theirs", "ratio", "goal", "met", "unit"
            )?;
        }
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), grouped);
        let met = match figure.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None if figure.goal.is_some() => "-",
            None => "",
        };
        writeln!(
            self.out,
            "{:<34} {:>12} {:>12} {:>7} {:<8} {:<5} {:<12} {}",
            figure.bench,
            grouped(figure.ours),
            number(figure.theirs),
            figure.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            figure.goal.as_deref().unwrap_or(""),
            met,
            figure.unit,
            figure.rival
        )
    }
}

/// A number for people: thousands grouped, small ones with decimals.
fn grouped(number: f64) -> String {
    if number.abs() < 100.0 {
        return format!("{number:.2}");
    }
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_goal_reached_or_missed_says_so() {
        let met = |goal| Figure::beside("b", "op/s", 3.0, "r", 2.0, goal).met;
        assert_eq!(met(Goal::AtLeast(1.4)), Some(true));
        assert_eq!(met(Goal::AtLeast(1.6)), Some(false));
        assert_eq!(met(Goal::AtMost(1.6)), Some(true));
        assert_eq!(met(Goal::None), None);
        let beside_nothing = Figure::beside("b", "op/s", 3.0, "r", 0.0, Goal::AtLeast(0.9));
        assert_eq!((beside_nothing.ratio, beside_nothing.met), (None, None));
    }

    #[test]
    fn report_json_is_one_row_a_line_with_the_issues_fields() {
        let mut out = Vec::new();
        let mut report = Report::new(&mut out, true);
        report.add(Figure::beside("local/x", "op/s", 1_234_567.0, "r", 2.0, Goal::None)).unwrap();
        report.add(Figure::alone("local/y", "ns", 230.4)).unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows.len(), 2);
        for field in ["bench", "ours", "unit", "rival", "theirs", "ratio", "goal", "met"] {
            assert!(rows.iter().all(|row| row.get(field).is_some()), "{field}");
        }
        assert_eq!(rows[0]["ours"], 1_235_000.0);
    }

    /// Two rounds of a busy machine said that goals were met by a factor of seven.
    #[test]
    fn report_of_too_few_rounds_says_of_no_goal_whether_it_is_met() {
        let figure = || Figure::beside("b/x", "op/s", 3.0, "r", 2.0, Goal::AtLeast(1.4));
        for (times, wanted) in [(1, None), (2, None), (3, Some(true))] {
            let mut out = Vec::new();
            let mut report = Report::new(&mut out, true).measured(times);
            report.add(figure()).unwrap();
            report.add(Figure::to_be_none("b/y", "operations", 0.0)).unwrap();
            report.add(Figure::to_be_none("b/z", "operations", 2.0)).unwrap();
            let met: Vec<_> = report.figures().iter().map(|figure| figure.met).collect();
            assert_eq!(met, [wanted, Some(true), Some(false)], "{times} measurements");
            assert_eq!(report.is_withheld, wanted.is_none());
            let first = String::from_utf8(out).unwrap();
            let first: serde_json::Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
            assert_eq!(first["met"].as_bool(), wanted);
            assert_eq!(first["goal"], ">= 1.4");
        }
        let mut out = Vec::new();
        Report::new(&mut out, false).measured(2).add(figure()).unwrap();
        let text = String::from_utf8(out).unwrap();
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words, ["b/x", "3.00", "2.00", "1.50", ">=", "1.4", "-", "op/s", "r"]);
    }

    #[test]
    fn grouped_sizes_reads_well() {
        assert_eq!(grouped(1_234_567.0), "1,234,567");
        assert_eq!(grouped(-123.0), "-123");
        assert_eq!(grouped(1.5), "1.50");
    }
}
