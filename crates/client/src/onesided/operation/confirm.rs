//! Confirming what the headers of extents say: a page of keys, a value too long for its page, a search whose
//! leaf is not durable yet read the header alone, and the checksum covers the whole extent.
//!
//! So when all else is here the leaf is read again. If it still has the entry, as it was, then the extent was
//! the entry's while its header was read, whatever the owner does with places that are free:
//!
//! 1. the leaf says: this key's entry is at this place, of this length and checksum;
//! 2. the header at the place is read;
//! 3. the leaf says the same. A place is given away only after its leaf was changed, and an entry that comes
//!    back to it would have another CSN in its extent, so another checksum in its leaf.
//!
//! An entry that was replaced or removed between 1 and 3 is looked for again.

use cell_tree::{NodeRef, NodeStep};

use super::{HeaderRead, KeySpan, LookupStage, RETRIES_MAX, ReadKind, ReadOperation};
use crate::onesided::context::{AskServer, ReadContext};
use crate::onesided::regions::NodeLocation;

impl ReadOperation {
    /// Reads each leaf again that led to a header: one lookup for each.
    pub(super) fn confirm(&mut self, slot: u16, context: &mut ReadContext) -> Result<(), AskServer> {
        self.lookups_used = *self.confirmed_from.get_or_insert(self.lookups_used); // earlier ones have ended
        self.confirming.clear();
        std::mem::swap(&mut self.headers, &mut self.confirming);
        let mut from = 0;
        while from < self.confirming.len() {
            let leaf = self.confirming[from].leaf;
            let count = self.confirming[from..].iter().take_while(|header| header.leaf == leaf).count();
            let lookup = self.lookups_used;
            self.add_lookup(KeySpan::default());
            self.lookups[lookup].stage = LookupStage::Confirming { from, to: from + count };
            self.lookups_open += 1;
            self.read_leaf_again(slot, lookup, leaf, context)?;
            from += count;
        }
        self.lookups_started = self.lookups_used;
        Ok(())
    }

    fn read_leaf_again(
        &mut self,
        slot: u16,
        lookup: usize,
        leaf: NodeLocation,
        context: &mut ReadContext,
    ) -> Result<(), AskServer> {
        let owner = self.owner(slot, lookup, 0);
        self.post(leaf.pair, context.regions.node_read(&leaf), owner, context)
    }

    /// A leaf is here again.
    pub(super) fn on_leaf_again(
        &mut self,
        slot: u16,
        lookup: usize,
        (from, to): (usize, usize),
        words: &[u64],
        context: &mut ReadContext,
    ) -> Result<(), AskServer> {
        let leaf = self.confirming[from].leaf;
        let Ok(node) = NodeRef::new(context.regions.pair(leaf.pair).geometry, leaf.node, words) else {
            context.counters.torn += 1;
            context.count(leaf.pair, |counts| &mut counts.torn);
            self.lookups[lookup].retries += 1;
            let may_retry = self.lookups[lookup].retries <= RETRIES_MAX;
            return if may_retry {
                self.read_leaf_again(slot, lookup, leaf, context)
            } else {
                Err(AskServer)
            };
        };
        for index in from..to {
            let header = self.confirming[index];
            if self.is_still(&node, &header) {
                continue;
            }
            context.counters.crc += 1;
            context.count(leaf.pair, |counts| &mut counts.stale);
            if self.request.kind == ReadKind::Scan {
                return self.begin_again(slot, self.started_ns, context); // a page is planned leaf by leaf
            }
            self.lookups_open += 1;
            self.retry(slot, header.lookup, context)?;
        }
        self.lookups[lookup].stage = LookupStage::Ended;
        self.close_lookup(slot, context)
    }

    /// Whether a leaf says of an entry what it said before its header was read.
    fn is_still(&self, node: &NodeRef<'_>, header: &HeaderRead) -> bool {
        let key = match self.request.kind {
            ReadKind::Scan => self.page.key(&self.page.entries[header.lookup - 1]),
            ReadKind::Get | ReadKind::Search | ReadKind::MultiGet => {
                self.request.key(&self.lookups[header.lookup].key)
            }
        };
        let says = |step| matches!(step, NodeStep::Leaf(found) if found.entry == Some(header.entry));
        node.is_valid() && node.level() == 0 && says(node.step(key))
    }
}
