//! Reading the extents that a task's leaves name, piece by piece.

use cell_tree::LeafEntry;

use super::confirm::HeaderRead;
use super::{GiveUp, LaneAnswer, Stage, Task, TaskKind};
use crate::onesided::ReadContext;
use crate::onesided::fetch::Fetch;
use crate::onesided::regions::{NodeLocation, PairAt};

impl Task {
    /// Asks for the extent of a leaf's entry.
    pub(super) fn fetch(
        &mut self,
        slot: u16,
        lane: usize,
        leaf: NodeLocation,
        entry: LeafEntry,
        whole: bool,
        context: &mut ReadContext,
    ) -> Result<(), GiveUp> {
        let fetch = Fetch::begin(entry, whole, &mut self.bytes).ok_or(GiveUp)?;
        if !whole {
            self.headers.push(HeaderRead { leaf, entry, lane });
        }
        self.post_pieces(slot, lane, leaf.pair, fetch, context)
    }

    fn post_pieces(
        &mut self,
        slot: u16,
        lane: usize,
        pair: PairAt,
        mut fetch: Fetch,
        context: &mut ReadContext,
    ) -> Result<(), GiveUp> {
        let key = context.regions.pair(pair).row.extent_key;
        while let Some((piece, read)) = fetch.next_piece(key) {
            let owner = self.owner(slot, lane, piece);
            self.post(pair, read, owner, context)?;
        }
        self.lanes[lane].stage = Stage::Fetching(pair, fetch);
        Ok(())
    }

    pub(super) fn on_piece(
        &mut self,
        slot: u16,
        lane: usize,
        (pair, mut fetch, piece): (PairAt, Fetch, u16),
        words: &[u64],
        context: &mut ReadContext,
    ) -> Result<(), GiveUp> {
        if !fetch.take(piece, words, &mut self.bytes) {
            return self.post_pieces(slot, lane, pair, fetch, context);
        }
        match fetch.finish(context.regions.pair(pair).row.pair, &self.bytes) {
            Some(fetched) => {
                self.need(pair, fetched.csn);
                let answer = if self.kind == TaskKind::Search {
                    LaneAnswer::Exists
                } else {
                    LaneAnswer::Entry(fetched)
                };
                self.done(slot, lane, answer, context)
            }
            None => {
                context.counters.crc += 1;
                self.again(slot, lane, context)
            }
        }
    }
}
