//! How many one-sided reads a search needs (`m`): over all searches of a connection, and by meganode, because
//! meganodes differ in height and in how much of them the client has cached.

use crate::decision::MeganodeId;

/// Meganodes that are kept; others share the connection's figure. A power of two.
const MEGANODES_MAX: usize = 256;

/// A new figure counts this much.
const WEIGHT: f64 = 1.0 / 32.0;

/// A moving mean of numbers of reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeanReads(f64);

impl MeanReads {
    pub(crate) fn new(reads: f64) -> MeanReads {
        MeanReads(reads)
    }

    pub(crate) fn push(&mut self, reads: u32) {
        self.0 += WEIGHT * (f64::from(reads) - self.0);
    }

    pub(crate) fn get(self) -> f64 {
        self.0
    }
}

#[derive(Clone, Copy, Debug)]
struct Row {
    meganode: MeganodeId,
    reads: MeanReads,
}

/// See the module's text. A meganode takes the row of another one whose number ends like its own.
#[derive(Clone, Debug)]
pub(crate) struct ReadsTable {
    initial: f64,
    all: MeanReads,
    rows: Box<[Option<Row>]>,
}

impl ReadsTable {
    /// A table of nothing but what is expected.
    pub(crate) fn new(initial: f64) -> ReadsTable {
        ReadsTable { initial, all: MeanReads::new(initial), rows: vec![None; MEGANODES_MAX].into() }
    }

    /// Another figure is expected as long as none was measured: after the next [`ReadsTable::clear`].
    pub(crate) fn set_initial(&mut self, initial: f64) {
        self.initial = initial;
    }

    pub(crate) fn clear(&mut self) {
        self.all = MeanReads::new(self.initial);
        self.rows.fill(None);
    }

    fn row_of(meganode: MeganodeId) -> usize {
        // Pointers to meganodes' roots end alike; one multiplication spreads them (Knuth 6.4).
        let mixed = meganode.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        usize::try_from(mixed).unwrap_or(0)
    }

    /// A search has taken so many reads.
    pub(crate) fn push(&mut self, meganode: Option<MeganodeId>, reads: u32) {
        self.all.push(reads);
        let Some(meganode) = meganode else { return };
        let row = &mut self.rows[ReadsTable::row_of(meganode)];
        match row {
            Some(row) if row.meganode == meganode => row.reads.push(reads),
            _ => *row = Some(Row { meganode, reads: self.all }),
        }
    }

    /// What a search of a meganode is expected to need.
    pub(crate) fn expected(&self, meganode: Option<MeganodeId>) -> f64 {
        let row = meganode.and_then(|meganode| {
            self.rows[ReadsTable::row_of(meganode)].filter(|row| row.meganode == meganode)
        });
        row.map_or(self.all, |row| row.reads).get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_goes_from_the_initial_figure_to_the_measured_one() {
        let mut table = ReadsTable::new(5.0);
        let (low, high) = (Some(MeganodeId(1 << 26)), Some(MeganodeId(2 << 26)));
        assert_eq!(table.expected(low), 5.0);
        for _ in 0..400 {
            table.push(low, 2);
            table.push(high, 4);
        }
        assert!((table.expected(low) - 2.0).abs() < 0.1);
        assert!((table.expected(high) - 4.0).abs() < 0.1);
        assert!((table.expected(None) - 3.0).abs() < 0.2);
        assert_eq!(table.expected(Some(MeganodeId(3 << 26))), table.expected(None));
        table.clear();
        assert_eq!(table.expected(low), 5.0);
    }

    #[test]
    fn meganodes_beyond_the_table_take_one_anothers_rows() {
        let mut table = ReadsTable::new(5.0);
        for meganode in 0..100_000 {
            table.push(Some(MeganodeId(meganode << 26)), 3);
        }
        assert_eq!(table.rows.len(), MEGANODES_MAX);
    }
}
