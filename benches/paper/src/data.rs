//! The paper's figures, as this project transcribed them, and which of them the model may know: [`Inputs`]
//! alone. The other ones are printed beside what the model comes to.

use std::collections::BTreeMap;

/// A row of Table 1: throughput in millions a second, and the latency at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RawRow {
    /// Servers.
    pub servers: f64,
    /// Reads of 1 KB.
    pub read_mops: f64,
    /// Their latency.
    pub read_us: f64,
    /// Two-way messages.
    pub message_mops: f64,
    /// Their latency.
    pub message_us: f64,
    /// Both at once.
    pub hybrid_mops: f64,
    /// Their latency.
    pub hybrid_us: f64,
}

/// What the model does not know of a row of Table 2, in thousands a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelectorRow {
    /// By the paper's selector.
    pub cell_k: f64,
    /// Its share of searches by the server.
    pub server_side_percent: f64,
    /// By a fixed share, equal to that mean.
    pub fixed_ratio_k: f64,
}

/// What the model may know.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    /// Table 1.
    pub table1: Vec<RawRow>,
    /// Table 2: searches by the servers alone, in thousands a second, with 1 to 8 cores.
    pub server_only_k: Vec<f64>,
    singles: BTreeMap<String, f64>,
}

impl Inputs {
    /// A single figure.
    ///
    /// # Panics
    /// If the data has none of that name.
    #[must_use]
    pub fn single(&self, name: &str) -> f64 {
        *self.singles.get(name).unwrap_or_else(|| panic!("the inputs lack {name}"))
    }
}

/// The figures.
#[derive(Clone, Debug, PartialEq)]
pub struct PaperData {
    /// What the model is made from.
    pub inputs: Inputs,
    /// Table 2 with 1 to 8 cores.
    pub table2: Vec<SelectorRow>,
    outcomes: BTreeMap<String, f64>,
}

/// The text of a data file cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line {line} of {file} is not what it should be")]
pub struct DataError {
    /// Which file.
    pub file: &'static str,
    /// Which line, from 1.
    pub line: usize,
}

/// The texts of the data files.
#[derive(Clone, Copy, Debug)]
pub struct DataTexts<'a> {
    /// `data/table1.tsv`.
    pub table1: &'a str,
    /// `data/table2.tsv`.
    pub table2: &'a str,
    /// `data/inputs.tsv`.
    pub inputs: &'a str,
    /// `data/outcomes.tsv`.
    pub outcomes: &'a str,
}

/// Those in the project.
pub const DATA: DataTexts<'static> = DataTexts {
    table1: include_str!("../data/table1.tsv"),
    table2: include_str!("../data/table2.tsv"),
    inputs: include_str!("../data/inputs.tsv"),
    outcomes: include_str!("../data/outcomes.tsv"),
};

/// The lines of a file without remarks and heading, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    lines.filter(|(_, line)| !line.starts_with('#') && !line.is_empty()).skip(1)
}

fn rows<const COLUMNS: usize>(file: &'static str, text: &str) -> Result<Vec<[f64; COLUMNS]>, DataError> {
    let row = |(line, text): (usize, &str)| {
        let fields: Result<Vec<f64>, _> = text.split('\t').map(str::parse).collect();
        let row = fields.ok().and_then(|fields| <[f64; COLUMNS]>::try_from(fields).ok());
        row.filter(|row| row.iter().all(|field| *field > 0.0)).ok_or(DataError { file, line })
    };
    lines(text).map(row).collect()
}

fn singles(file: &'static str, text: &str) -> Result<BTreeMap<String, f64>, DataError> {
    let single = |(line, text): (usize, &str)| {
        let mut fields = text.split('\t');
        let (name, value) = (fields.next(), fields.next().and_then(|value| value.parse().ok()));
        name.map(str::to_owned).zip(value).ok_or(DataError { file, line })
    };
    lines(text).map(single).collect()
}

impl PaperData {
    /// Reads the files' texts.
    ///
    /// # Errors
    /// A line is not what it should be.
    pub fn parse(texts: &DataTexts<'_>) -> Result<PaperData, DataError> {
        let table1 = rows::<7>("table1.tsv", texts.table1)?;
        let table2 = rows::<5>("table2.tsv", texts.table2)?;
        if table2.len() != 8 || table1.is_empty() {
            return Err(DataError { file: "table2.tsv", line: 0 });
        }
        let raw_row =
            |[servers, read_mops, read_us, message_mops, message_us, hybrid_mops, hybrid_us]: [f64; 7]| {
                RawRow { servers, read_mops, read_us, message_mops, message_us, hybrid_mops, hybrid_us }
            };
        let selector_row = |row: &[f64; 5]| SelectorRow {
            cell_k: row[2],
            server_side_percent: row[3],
            fixed_ratio_k: row[4],
        };
        Ok(PaperData {
            inputs: Inputs {
                table1: table1.into_iter().map(raw_row).collect(),
                server_only_k: table2.iter().map(|row| row[1]).collect(),
                singles: singles("inputs.tsv", texts.inputs)?,
            },
            table2: table2.iter().map(selector_row).collect(),
            outcomes: singles("outcomes.tsv", texts.outcomes)?,
        })
    }

    /// A single figure that an outcome of the model stands beside.
    ///
    /// # Panics
    /// If the data has none of that name.
    #[must_use]
    pub fn outcome(&self, name: &str) -> f64 {
        *self.outcomes.get(name).unwrap_or_else(|| panic!("the outcomes lack {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_of_the_projects_files_finds_each_figure() {
        let data = PaperData::parse(&DATA).unwrap();
        assert_eq!((data.inputs.table1.len(), data.table2.len()), (4, 8));
        assert_eq!(data.inputs.server_only_k[1], 991.0);
        assert_eq!((data.inputs.single("node_bytes"), data.outcome("median_us")), (1024.0, 30.0));
    }

    #[test]
    fn parse_of_garbage_names_file_and_line() {
        let garbled = DATA.table1.replace("15.5\t0.75", "15.5\t-");
        let error = PaperData::parse(&DataTexts { table1: &garbled, ..DATA }).unwrap_err();
        assert_eq!(error, DataError { file: "table1.tsv", line: 3 });
    }
}
