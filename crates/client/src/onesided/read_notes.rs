//! How often meganodes of a node are read one-sidedly, for the client's reports: their owner sees nothing of
//! these reads. A read is a search of a leaf for a key, or a scan's way into a meganode, as the owner counts
//! its own; one that is tried again counts again.
//!
//! The first reads after a report are all noted. Then some are drawn, about one in [`GAP_MEAN`], and each
//! stands for those since the one before it: sums are true, and a client that asks in turns is not drawn
//! always at the same turn. The table is fixed: a read costs a step of a counter, and never memory.

use cell_protocol::{REPORTED_MEGANODES_MAX, ReportedRead};
use cell_random::Random;
use cell_terms::{PairId, SlotIndex};

/// Reads after a report that are all noted.
const ALL_NOTED: u32 = 256;

/// Of so many reads one is drawn from then on, about.
const GAP_MEAN: u32 = 64;

/// Places of the table in which a meganode may be.
const PROBES: usize = 16;

/// Sets what is drawn here apart from all else that is drawn from a client's seed.
const STREAM: u64 = 0xC11E_4714_5EED_0002;

/// The reads by one connection. See the module's text.
#[derive(Debug)]
pub(crate) struct ReadNotes {
    /// Reads until the next one that is noted, which stands for `gap` reads.
    left: u32,
    gap: u32,
    /// Noted since the last report.
    noted: u32,
    random: Random,
    /// By hash of the meganode; free where there are no reads. Empty: nothing is reported.
    rows: Box<[ReportedRead]>,
    /// Reads of meganodes that have no row.
    elsewhere: u64,
}

impl ReadNotes {
    /// `reports`: whether the client ever reports.
    pub(crate) fn new(seed: u64, reports: bool) -> ReadNotes {
        let rows = if reports { REPORTED_MEGANODES_MAX } else { 0 };
        ReadNotes {
            left: 1,
            gap: 1,
            noted: 0,
            random: Random::new(seed ^ STREAM),
            rows: vec![ReportedRead::default(); rows].into_boxed_slice(),
            elsewhere: 0,
        }
    }

    /// A meganode was read.
    #[inline]
    pub(crate) fn note(&mut self, pair: PairId, slot: SlotIndex) {
        self.left -= 1;
        if self.left == 0 {
            self.note_drawn(pair, slot);
        }
    }

    #[cold]
    fn note_drawn(&mut self, pair: PairId, slot: SlotIndex) {
        if self.rows.is_empty() {
            self.left = u32::MAX;
            return;
        }
        let reads = u64::from(self.gap);
        self.noted = self.noted.saturating_add(1);
        self.gap = if self.noted < ALL_NOTED { 1 } else { self.draw_gap() };
        self.left = self.gap;
        let first = place(pair, slot);
        for at in (first..first + PROBES).map(|at| at % REPORTED_MEGANODES_MAX) {
            let row = &mut self.rows[at];
            if row.reads == 0 {
                *row = ReportedRead { pair, slot, reads };
                return;
            }
            if (row.pair, row.slot) == (pair, slot) {
                row.reads = row.reads.saturating_add(reads);
                return;
            }
        }
        self.elsewhere = self.elsewhere.saturating_add(reads);
    }

    /// A gap of [`GAP_MEAN`] in the mean.
    fn draw_gap(&mut self) -> u32 {
        let gap = self.random.between(1, u64::from(2 * GAP_MEAN - 1));
        u32::try_from(gap).unwrap_or(GAP_MEAN)
    }

    /// Takes what was noted since this was asked last: the meganodes' go to `rows`, and the reads of those
    /// that had no row are returned.
    pub(crate) fn take(&mut self, rows: &mut Vec<ReportedRead>) -> u64 {
        rows.clear();
        rows.extend(self.rows.iter().filter(|row| row.reads > 0));
        rows.sort_unstable_by_key(|row| (row.pair, row.slot));
        self.rows.fill(ReportedRead::default());
        self.noted = 0;
        std::mem::take(&mut self.elsewhere)
    }
}

fn place(pair: PairId, slot: SlotIndex) -> usize {
    let mixed = (pair.0.wrapping_mul(0x85EB_CA6B) ^ slot.0).wrapping_mul(0x9E37_79B1);
    (mixed >> 16) as usize % REPORTED_MEGANODES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: PairId = PairId(3);
    /// More than a report names.
    const MEGANODES: u32 = 4_096;

    fn note(notes: &mut ReadNotes, slot: u32, times: u32) {
        (0..times).for_each(|_| notes.note(PAIR, SlotIndex(slot)));
    }

    fn taken(notes: &mut ReadNotes) -> (Vec<(u32, u64)>, u64) {
        let mut rows = vec![ReportedRead { reads: 9, ..ReportedRead::default() }];
        let elsewhere = notes.take(&mut rows);
        assert!(rows.iter().all(|row| row.pair == PAIR));
        (rows.iter().map(|row| (row.slot.0, row.reads)).collect(), elsewhere)
    }

    #[test]
    fn few_reads_are_all_noted_and_taken_once() {
        let mut notes = ReadNotes::new(1, true);
        assert_eq!(taken(&mut notes), (Vec::new(), 0));
        note(&mut notes, 7, 200);
        note(&mut notes, 2, 5);
        assert_eq!(taken(&mut notes), (vec![(2, 5), (7, 200)], 0));
        assert_eq!(taken(&mut notes), (Vec::new(), 0));
        note(&mut notes, 7, ALL_NOTED);
        assert_eq!(taken(&mut notes), (vec![(7, u64::from(ALL_NOTED))], 0));
    }

    /// Two meganodes in turn, and one of 64 in turn with a gap's mean: a draw at a fixed distance would see
    /// but one of them.
    #[test]
    fn many_reads_are_drawn_and_each_stands_for_those_before_it() {
        for period in [2, GAP_MEAN] {
            let (mut notes, each) = (ReadNotes::new(1, true), 400_000 / period);
            for _ in 0..each {
                (0..period).for_each(|slot| note(&mut notes, slot, 1));
            }
            let (rows, elsewhere) = taken(&mut notes);
            let sum: u64 = rows.iter().map(|(_, reads)| reads).sum();
            let missing = u64::from(each * period) - sum;
            assert!(missing < u64::from(2 * GAP_MEAN), "of {period}: {missing} are left for the next one");
            assert_eq!((rows.len(), elsewhere), (period as usize, 0));
            let each = u64::from(each);
            let far = rows.iter().find(|(_, reads)| *reads < each / 2 || *reads > 2 * each);
            assert_eq!(far, None, "of {period}: each was read {each} times");
        }
    }

    #[test]
    fn what_has_no_row_is_counted_and_goes_to_no_other_meganode() {
        let mut notes = ReadNotes::new(1, true);
        for slot in 0..MEGANODES {
            note(&mut notes, slot, 1);
            note(&mut notes, slot, 1);
        }
        let (rows, elsewhere) = taken(&mut notes);
        assert!(rows.len() <= REPORTED_MEGANODES_MAX && rows.len() > 50, "{}", rows.len());
        let sum: u64 = rows.iter().map(|(_, reads)| reads).sum();
        let all = u64::from(2 * MEGANODES);
        assert!(sum + elsewhere <= all && sum + elsewhere + u64::from(2 * GAP_MEAN) > all);
        for slot in (0..320).cycle().take(200_000) {
            note(&mut notes, slot, 1);
        }
        let (rows, elsewhere) = taken(&mut notes);
        assert_eq!((rows.len(), elsewhere), (320, 0), "there is room again");
    }

    #[test]
    fn client_that_never_reports_notes_nothing() {
        let mut notes = ReadNotes::new(1, false);
        note(&mut notes, 7, 1_000);
        assert_eq!((taken(&mut notes), notes.rows.len()), ((Vec::new(), 0), 0));
    }
}
