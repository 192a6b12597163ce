//! The wall clock beside the time of looks, for what is written for people; nothing is decided by it.

use cell_cluster::MoveDates;

const NS_PER_MS: u64 = 1_000_000;

/// The wall clock, as far as it is known: in some tests it is not.
#[derive(Clone, Copy, Default)]
pub(crate) struct WallClock {
    /// What it showed, in milliseconds since 1970, when the time of the looks was zero.
    zero_ms: Option<u64>,
}

impl WallClock {
    /// It showed this when the time of the looks was zero.
    pub(crate) fn set_zero_ms(&mut self, zero_ms: u64) {
        self.zero_ms = Some(zero_ms);
    }

    /// What it shows at a time of the looks; zero where that is not known.
    pub(crate) fn at_ms(self, at_ns: u64) -> u64 {
        self.zero_ms.map_or(0, |zero_ms| zero_ms.saturating_add(at_ns / NS_PER_MS))
    }

    /// Of what is written at a time of the looks.
    pub(crate) fn dates(self, at_ns: u64) -> MoveDates {
        MoveDates { at_ms: self.at_ms(at_ns), ..MoveDates::default() }
    }
}
