//! What a split is called.

use std::fmt;

use cell_terms::{Csn, Epoch, PairId};

/// What a split is called by everybody: pair, epoch and CSN of its start record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SplitName {
    /// The source pair.
    pub pair: PairId,
    /// The epoch in which the split began.
    pub epoch: Epoch,
    /// The start record's CSN.
    pub csn: Csn,
}

impl SplitName {
    /// The name as a word.
    #[must_use]
    pub fn to_word(self) -> String {
        format!("{}.{}.{}", self.pair.0, self.epoch.0, self.csn.0)
    }

    /// What a word names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<SplitName> {
        let mut parts = word.split('.');
        let (pair, epoch, csn) = (parts.next()?, parts.next()?, parts.next()?);
        let name = SplitName {
            pair: PairId(pair.parse().ok()?),
            epoch: Epoch(epoch.parse().ok()?),
            csn: Csn(csn.parse().ok()?),
        };
        parts.next().is_none().then_some(name)
    }
}

impl fmt::Display for SplitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "split {}/{}/{}", self.pair.0, self.epoch.0, self.csn.0)
    }
}
