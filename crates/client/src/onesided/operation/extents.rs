//! Reading the extents that a operation's leaves name, piece by piece.

use cell_tree::LeafEntry;

use super::{HeaderRead, LookupResult, LookupStage, ReadKind, ReadOperation};
use crate::onesided::context::{AskServer, ReadContext};
use crate::onesided::fetch::Fetch;
use crate::onesided::place::PairAt;
use crate::onesided::regions::NodeLocation;

impl ReadOperation {
    /// Asks for the extent of a leaf's entry.
    pub(super) fn fetch(
        &mut self,
        slot: u16,
        lookup: usize,
        leaf: NodeLocation,
        entry: LeafEntry,
        whole: bool,
        context: &mut ReadContext,
    ) -> Result<(), AskServer> {
        let fetch = Fetch::begin(entry, whole, &mut self.bytes).ok_or(AskServer)?;
        if !whole {
            self.headers.push(HeaderRead { leaf, entry, lookup });
        }
        self.post_pieces(slot, lookup, leaf.pair, fetch, context)
    }

    fn post_pieces(
        &mut self,
        slot: u16,
        lookup: usize,
        pair: PairAt,
        mut fetch: Fetch,
        context: &mut ReadContext,
    ) -> Result<(), AskServer> {
        let key = context.regions.pair(pair).row.extent_key;
        while let Some((piece, read)) = fetch.next_piece(key) {
            let owner = self.owner(slot, lookup, piece);
            self.post(pair, read, owner, context)?;
        }
        self.lookups[lookup].stage = LookupStage::Fetching(pair, fetch);
        Ok(())
    }

    pub(super) fn on_piece(
        &mut self,
        slot: u16,
        lookup: usize,
        (pair, mut fetch, piece): (PairAt, Fetch, u16),
        words: &[u64],
        context: &mut ReadContext,
    ) -> Result<(), AskServer> {
        if !fetch.take(piece, words, &mut self.bytes) {
            return self.post_pieces(slot, lookup, pair, fetch, context);
        }
        match fetch.finish(context.regions.pair(pair).row.pair, &self.bytes) {
            Some(fetched) => {
                self.depend_on(pair, fetched.csn);
                let answer = if self.request.kind == ReadKind::Search {
                    LookupResult::Exists
                } else {
                    LookupResult::Entry(fetched)
                };
                self.end_lookup(slot, lookup, answer, context)
            }
            None => {
                context.counters.crc += 1;
                context.count(pair, |counts| &mut counts.stale);
                self.retry(slot, lookup, context)
            }
        }
    }
}
