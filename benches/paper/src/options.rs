//! The command: which tables and figures, and how they are printed.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::data::{DATA, DataError, PaperData};
use crate::folder::folder;
use crate::part::Part;
use crate::study::Study;

/// What `paper` takes. Without a table and a figure, all of them and what is past the paper.
#[derive(Clone, Debug, Default, Args)]
pub struct PaperOptions {
    /// Table 1 or 2; may be given several times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub table: Vec<u8>,
    /// Figure 4 to 9; may be given several times
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(4..=9))]
    pub figure: Vec<u8>,
    /// What the paper does not have: more servers, cards of today, skew, steps and herds
    #[arg(long)]
    pub past: bool,
    /// One JSON row a row of a table on standard output
    #[arg(long)]
    pub json: bool,
    /// Writes the plots into this folder, which is made if it is not there
    #[arg(long, value_name = "DIR", value_parser = folder())]
    pub svg: Option<PathBuf>,
    /// What all draws come from
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub seed: u64,
    /// A tenth of the simulated time and few points: shows that all of it works, and its figures mean little
    #[arg(long)]
    pub short: bool,
}

/// Why nothing more was printed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PaperError {
    /// The data files are not what they should be.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The output cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A plot cannot be written, or its folder cannot be made.
    #[error("--svg: {} cannot be written: {why}; name a folder that can be", path.display())]
    Plot {
        /// What was to be written.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
}

impl PaperOptions {
    /// What is to be printed.
    #[must_use]
    pub fn parts(&self) -> BTreeSet<Part> {
        let parts = self.named();
        if parts.is_empty() { Part::ALL.into() } else { parts }
    }

    /// Which tables and figures are named; none where all are meant.
    #[must_use]
    pub fn named(&self) -> BTreeSet<Part> {
        let tables = self.table.iter().map(|table| Part::Table(*table));
        let figures = self.figure.iter().map(|figure| Part::Figure(*figure));
        tables.chain(figures).chain(self.past.then_some(Part::Past)).collect()
    }

    /// What it is printed from.
    ///
    /// # Errors
    /// The data files are not what they should be.
    pub fn study(&self) -> Result<Study, PaperError> {
        Ok(Study::new(PaperData::parse(&DATA)?, self.seed, self.short))
    }
}

/// Prints what was asked for.
///
/// # Errors
/// The output or a plot cannot be written.
pub fn run(options: &PaperOptions, out: &mut dyn Write) -> Result<(), PaperError> {
    run_of(options, PaperOptions::study, out)
}

/// As [`run`], of a study that is looked at when it is made: that takes longer than to print it.
///
/// # Errors
/// As for [`run`], and what `study` returns.
pub fn run_of(
    options: &PaperOptions,
    study: impl FnOnce(&PaperOptions) -> Result<Study, PaperError>,
    out: &mut dyn Write,
) -> Result<(), PaperError> {
    let unwritten = |path: &Path, why| PaperError::Plot { path: path.to_owned(), why };
    if let Some(folder) = &options.svg {
        // At once: what is written there comes after minutes.
        std::fs::create_dir_all(folder).map_err(|why| unwritten(folder, why))?;
    }
    let study = study(options)?;
    for part in options.parts() {
        let (sheets, plots) = study.outcome(part);
        for sheet in sheets {
            sheet.write(out, options.json)?;
        }
        if let Some(folder) = &options.svg {
            for plot in plots {
                let path = folder.join(format!("{}.svg", plot.name));
                std::fs::write(&path, plot.svg()).map_err(|why| unwritten(&path, why))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_without_a_choice_are_all_of_them() {
        assert_eq!(PaperOptions::default().parts(), Part::ALL.into());
        assert!(PaperOptions::default().named().is_empty());
        let chosen = PaperOptions { figure: vec![7, 4, 7], past: true, ..PaperOptions::default() };
        assert_eq!(chosen.parts(), [Part::Figure(4), Part::Figure(7), Part::Past].into());
        assert_eq!(chosen.named(), chosen.parts());
    }
}
