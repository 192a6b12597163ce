//! The tables and figures that there are.

use crate::study::{Outcome, Study};
use crate::{figure4, figure5, figure7, figure8, figure9, past, table1, table2};

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A table of the paper.
    Table(u8),
    /// A figure of the paper.
    Figure(u8),
    /// What the paper does not have.
    Past,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 9] = [
        Part::Table(1),
        Part::Table(2),
        Part::Figure(4),
        Part::Figure(5),
        Part::Figure(6),
        Part::Figure(7),
        Part::Figure(8),
        Part::Figure(9),
        Part::Past,
    ];
}

impl Study {
    /// One table or figure.
    #[must_use]
    pub fn outcome(&self, part: Part) -> Outcome {
        match part {
            Part::Table(1) => table1::outcome(self),
            Part::Table(_) => table2::outcome_of_table(self),
            Part::Figure(4) => figure4::outcome(self),
            Part::Figure(5) => figure5::outcome(self),
            Part::Figure(6) => table2::outcome_of_figure6(self),
            Part::Figure(7) => figure7::outcome(self),
            Part::Figure(8) => figure8::outcome(self),
            Part::Figure(_) => figure9::outcome(self),
            Part::Past => past::outcome(self),
        }
    }
}
