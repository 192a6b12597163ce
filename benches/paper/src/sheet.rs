//! What is printed: sheets of rows, as text or as one JSON object a row.

use std::io::{self, Write};

use serde_json::{Map, Value};

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// As `--json` names it.
    pub name: &'static str,
    /// What it shows.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<&'static str>,
    /// Numbers, texts, and nothing where there is nothing to say.
    pub rows: Vec<Vec<Value>>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// Four significant digits.
pub(crate) fn number(number: f64) -> Value {
    if number == 0.0 || !number.is_finite() {
        return if number == 0.0 { Value::from(0.0) } else { Value::Null };
    }
    let scale = 10_f64.powf(3.0 - number.abs().log10().floor());
    Value::from((number * scale).round() / scale)
}

/// How far ours is from theirs, in percent.
pub(crate) fn error(ours: f64, theirs: f64) -> Value {
    let percent = 100.0 * (ours / theirs - 1.0);
    Value::from((10.0 * percent).round() / 10.0)
}

/// Whether a goal is met.
pub(crate) fn met(is_met: bool) -> Value {
    Value::from(if is_met { "yes" } else { "NO" })
}

/// Whether ours is within a tenth of theirs.
pub(crate) fn met_tenth(ours: f64, theirs: f64) -> Value {
    met((ours / theirs - 1.0).abs() <= 0.1)
}

/// What the paper's text says of something for which it has no figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Said {
    Below(f64),
    Above(f64),
}

impl Said {
    fn is_true_of(self, ours: f64) -> bool {
        match self {
            Said::Below(bound) => ours < bound,
            Said::Above(bound) => ours > bound,
        }
    }

    fn text(self) -> Value {
        Value::from(match self {
            Said::Below(bound) => format!("< {bound}"),
            Said::Above(bound) => format!("> {bound}"),
        })
    }
}

/// The columns of a sheet of [`beside_text`].
pub(crate) const BESIDE_TEXT: [&str; 4] = ["what", "model", "paper", "met"];

/// A row of ours beside what the paper's text says.
pub(crate) fn beside_text(what: String, ours: f64, said: Said) -> Vec<Value> {
    vec![Value::from(what), number(ours), said.text(), met(said.is_true_of(ours))]
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            if number.abs() >= 1000.0 || number.fract() == 0.0 {
                format!("{number:.0}")
            } else if number.abs() >= 10.0 {
                format!("{number:.1}")
            } else {
                format!("{number:.2}")
            }
        }
        other => other.to_string(),
    }
}

impl Sheet {
    pub(crate) fn new(name: &'static str, title: &str, columns: &[&'static str]) -> Sheet {
        let (title, columns) = (title.to_owned(), columns.to_vec());
        Sheet { name, title, columns, rows: Vec::new(), notes: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: Vec<Value>) {
        assert_eq!(row.len(), self.columns.len(), "a row of {} has all columns", self.name);
        self.rows.push(row);
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Writes it.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn write(&self, out: &mut dyn Write, json: bool) -> io::Result<()> {
        if json {
            for row in &self.rows {
                let mut object = Map::new();
                object.insert("sheet".to_owned(), Value::from(self.name));
                let fields = self.columns.iter().zip(row);
                object.extend(fields.map(|(column, value)| ((*column).to_owned(), value.clone())));
                writeln!(out, "{}", Value::Object(object))?;
            }
            return out.flush();
        }
        let texts: Vec<Vec<String>> = self.rows.iter().map(|row| row.iter().map(text).collect()).collect();
        let width = |at: usize| {
            let rows = texts.iter().map(|row| row[at].chars().count());
            rows.chain([self.columns[at].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        writeln!(out, "{}: {}\n", self.name, self.title)?;
        let heads = self.columns.iter().map(|column| (*column).to_owned()).collect();
        for row in std::iter::once(&heads).chain(&texts) {
            let padded = row.iter().zip(&widths).map(|(text, width)| format!("{text:>width$}"));
            writeln!(out, "{}", padded.collect::<Vec<_>>().join("  "))?;
        }
        for note in &self.notes {
            writeln!(out, "\n{note}")?;
        }
        writeln!(out)?;
        out.flush()
    }

    /// The numbers of a column; nothing where a row has none.
    #[must_use]
    pub fn column(&self, name: &str) -> Vec<Option<f64>> {
        let at = self.columns.iter().position(|column| *column == name).expect("the sheet has this column");
        self.rows.iter().map(|row| row[at].as_f64()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_met_or_not() {
        let tenth = [89.0, 91.0, 109.0, 111.0].map(|ours| met_tenth(ours, 100.0));
        assert_eq!(tenth, [false, true, true, false].map(met));
        let rows = [("one", 99.0, Said::Below(100.0)), ("two", 100.0, Said::Above(100.0))];
        let rows = rows.map(|(what, ours, said)| beside_text(what.to_owned(), ours, said));
        assert_eq!(rows[0][1..], [number(99.0), Value::from("< 100"), met(true)]);
        assert_eq!(rows[1][1..], [number(100.0), Value::from("> 100"), met(false)]);
    }

    #[test]
    fn sheet_is_rows_of_json_or_aligned_text() {
        let mut sheet = Sheet::new("t", "a title", &["cores", "rate_k", "met"]);
        sheet.add(vec![Value::from(1), number(1234.567), met(true)]);
        sheet.add(vec![Value::from(2), Value::Null, met(false)]);
        sheet.note("A note.");
        let (mut json, mut plain) = (Vec::new(), Vec::new());
        sheet.write(&mut json, true).unwrap();
        sheet.write(&mut plain, false).unwrap();
        let json = String::from_utf8(json).unwrap();
        assert_eq!(
            json.lines().next(),
            Some("{\"cores\":1,\"met\":\"yes\",\"rate_k\":1235.0,\"sheet\":\"t\"}")
        );
        let plain = String::from_utf8(plain).unwrap();
        assert!(
            plain.contains("cores  rate_k  met\n    1    1235  yes\n    2       -   NO\n\nA note."),
            "{plain}"
        );
        assert_eq!(
            (error(90.0, 100.0), sheet.column("rate_k")),
            (Value::from(-10.0), vec![Some(1235.0), None])
        );
    }
}
