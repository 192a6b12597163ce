//! The leaves of a scan, each of which plans its part of the page, and their values.
//!
//! Where memory is mapped, the values are taken when the page is planned. A leaf asks for the next one before
//! its own entries are planned, and each entry for its extent as it is planned: both come while the others
//! are looked at. All that is taken is still within the operation's time, which is looked at when all is
//! here, and each extent is its leaf's by the checksum that the leaf has for it.

use super::{KeySpan, LookupStage, PlannedLeaf, ReadOperation};
use crate::onesided::context::{AskServer, ReadContext};
use crate::onesided::mapping::PairRegion;
use crate::onesided::page::{PageEntry, PageProgress};

impl ReadOperation {
    /// A leaf of a scan is here: plans its entries, takes or asks for their extents if that is due, and goes
    /// on to the next leaf; true if there is one that is wanted.
    pub(super) fn on_leaf(&mut self, slot: u16, context: &mut ReadContext) -> Result<bool, AskServer> {
        let Some(at) = self.lookups[0].walk.location().copied() else { return Err(AskServer) };
        if self.scanned_slot.replace(at.slot) != Some(at.slot) {
            context.note_read(at.pair, at.slot);
        }
        self.depend_on(at.pair, self.leaf.csn_removed());
        let first = self.page.entries.len();
        let scan = self.request.scan();
        let keys_only = scan.keys_only;
        let part = self.page.part(&scan, &self.leaf);
        let right = (!scan.reverse).then(|| self.leaf.right());
        if let Some(right) = right.filter(|_| part.goes_on) {
            context.regions.ask_for_node(right);
        }
        let ask = |planned: &PageEntry| context.regions.ask_for_extent(at.pair, planned);
        let progress = self.page.take(&scan, &self.leaf, &part, ask);
        let next = right.filter(|_| progress == PageProgress::NextLeaf);
        if self.page.entries.len() > first {
            // Of leaves without entries there may be any number.
            self.planned.push(PlannedLeaf { at, end: self.page.entries.len() });
        }
        if progress == PageProgress::Complete {
            self.take_planned(slot, context)?;
            self.lookups[0].stage = LookupStage::Ended;
            self.close_lookup(slot, context)?;
            return Ok(false);
        }
        if keys_only || context.regions.lacks(at.pair, PairRegion::Extents) {
            self.take_planned(slot, context)?;
        }
        let goes_right =
            next.is_some_and(|right| self.lookups[0].walk.begin_right_of(&at, right, &context.regions));
        if !goes_right {
            self.go_to_root(0, context)?;
        }
        Ok(true)
    }

    /// Takes the values of all leaves that are planned, or asks for them.
    pub(super) fn take_planned(&mut self, slot: u16, context: &mut ReadContext) -> Result<(), AskServer> {
        for leaf in 0..self.planned.len() {
            let PlannedLeaf { at, end } = self.planned[leaf];
            // One lookup is the walk's; each entry whose value was taken or asked for has one.
            for index in self.lookups_used - 1..end {
                let (entry, inline) = (self.page.entries[index].entry, self.page.entries[index].inline);
                let lookup = self.lookups_used;
                self.add_lookup(KeySpan::default());
                if inline && self.is_fetched_in_place(lookup, at.pair, &entry, context) {
                    continue;
                }
                self.lookups_open += 1;
                self.fetch(slot, lookup, at, entry, inline, context)?;
            }
        }
        self.planned.clear();
        Ok(())
    }
}
