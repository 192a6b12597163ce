//! What steps of splits lead to: messages between the parts, and what the worker is to do.

use std::collections::VecDeque;

use cell_pair::{AdoptionRange, PairError};
use cell_recovery::{SplitAnswer, SplitName};
use cell_terms::{Epoch, ExtentOffset, NodeId, PairId, Pointer, SlotIndex};
use serde::Serialize;

use super::notice_row::NoticeRow;

/// What the pairs of a split, and the router, send each other.
#[derive(Debug)]
pub(super) enum SplitMessage {
    /// To the target: adopt a range, with these results and floors.
    Adopt { to: PairId, range: AdoptionRange, from: SlotIndex, kept: Vec<Vec<u8>> },
    /// To the source: what was adopted is durable. `left_behind` are the source's extents.
    Adopted { name: SplitName, left_behind: Vec<(ExtentOffset, u32)> },
    /// To the source: it cannot be adopted, and why.
    Refused { name: SplitName, why: &'static str },
    /// To the source: the target is readable.
    Readable { name: SplitName },
    /// To the source: the target takes writes, durably.
    Opened { name: SplitName },
    /// To the source: what became of a split?
    Ask { name: SplitName, by: PairId },
    /// To the target, asked or not: how far its source is, durably.
    Answer { to: PairId, name: SplitName, answer: SplitAnswer },
    /// To the router: lead keys from `low` on there. With a meganode that is gone by a merge: lead none to
    /// that.
    Route { name: SplitName, low: Box<[u8]>, to: Pointer, gone: Option<Pointer> },
    /// To the source: the router's entry is durable. One that a notice asked for is reported by a notice.
    Routed { name: SplitName, notice: Option<String> },
}

/// A notice to be written, or with none to be removed.
#[derive(Clone, Debug)]
pub(crate) struct NoticeWish {
    pub(crate) key: String,
    pub(crate) notice: Option<NoticeRow>,
    /// The pair in whose name.
    pub(crate) pair: PairId,
    /// Since when it is this owner's.
    pub(crate) epoch: Epoch,
}

/// What the worker is to do.
#[derive(Debug, Default)]
pub(crate) struct SplitOutcome {
    /// There is more to do that waits for nothing.
    pub(crate) has_work: bool,
    /// Something changed for which writes may have waited.
    pub(crate) changed: bool,
    /// One more pair is wanted.
    pub(crate) add_pair: bool,
    /// For which node; none: for this one.
    pub(crate) meant_for: Option<NodeId>,
    /// Notices for the owners of other pairs.
    pub(crate) notices: Vec<NoticeWish>,
    /// Something failed that nobody can put right but a recovery.
    pub(crate) broken: Option<PairError>,
}

/// Splits of meganodes since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SplitCounts {
    /// Started.
    pub begun: u64,
    /// Finished.
    pub finished: u64,
    /// Come to nothing.
    pub aborted: u64,
    /// Empty meganodes that were merged into their left neighbours, beside the splits.
    pub merged: u64,
    /// Of the splits that began, those that are under way now.
    pub under_way: u64,
    /// Merges that are under way now.
    #[serde(skip)]
    pub merging: u64,
    /// Times that one more pair was wanted and there was no memory for it.
    #[serde(skip)]
    pub pairs_short: u64,
}

/// Gathered over a turn.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) messages: VecDeque<SplitMessage>,
    pub(super) outcome: SplitOutcome,
    pub(super) counts: SplitCounts,
    /// The pairs into which splits were to go that began here and came to nothing.
    pub(super) failed_into: Vec<PairId>,
}

impl Effects {
    pub(super) fn send(&mut self, message: SplitMessage) {
        self.messages.push_back(message);
    }

    /// The meganode's writers may go on.
    pub(super) fn changed(&mut self) {
        self.outcome.changed = true;
    }

    pub(super) fn broken(&mut self, error: PairError) {
        self.outcome.broken = Some(error);
    }
}

/// What became of a split when it was stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stepped {
    /// It waits.
    Waits,
    /// It went on.
    Moved,
    /// It is over.
    Over,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unreported, the pair would be served on.
    #[test]
    fn what_only_a_recovery_puts_right_is_reported() {
        let mut effects = Effects::default();
        effects.broken(PairError::EntryChanged);
        assert!(matches!(effects.outcome.broken, Some(PairError::EntryChanged)));
    }
}
