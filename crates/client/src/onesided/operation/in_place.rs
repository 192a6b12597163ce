//! An operation in memory that is mapped: the keys are looked for in place, many of them side by side, and a
//! page is read as its owner would read it. A scan for which that is not all (some memory is not mapped, a
//! writer was in the way) walks from leaf to leaf as it would by reads, but copies what is mapped itself.

use cell_tree::{LANES, LeafEntry};

use super::{LookupResult, LookupStage, MULTI_GET_VALUE_BYTES_MAX, ReadKind, ReadOperation, visit};
use crate::mutant::{Mutant, planted};
use crate::onesided::context::ReadContext;
use crate::onesided::direct::FoundInPlace;
use crate::onesided::fetch::value_len;
use crate::onesided::page_in_place::PageInPlace;
use crate::onesided::place::{MeganodePlace, PairAt};
use crate::onesided::regions::NodeLocation;
use crate::onesided::walk::NodeOutcome;

impl ReadOperation {
    /// Looks for the keys, or reads the page, in memory that is mapped. False: it is not that simple, and
    /// reads are to find out.
    pub(super) fn is_found_in_place(&mut self, context: &mut ReadContext) -> bool {
        let found = match self.request.kind {
            ReadKind::Get | ReadKind::Search => {
                let key = self.request.key(&self.lookups[0].key);
                let sought = context.regions.find_in_place(key, self.request.kind == ReadKind::Get);
                sought.is_some_and(|found| self.take_in_place(0, found, context))
            }
            ReadKind::MultiGet => self.are_all_found_in_place(context),
            ReadKind::Scan => self.is_page_in_place(context),
        };
        if found {
            context.counters.in_place += 1;
            self.is_in_place = true;
        } else {
            self.bytes.clear();
            self.needs.clear();
            self.ns_max = u64::MAX;
            self.lookups[..self.lookups_used].iter_mut().for_each(|lookup| lookup.stage = LookupStage::Idle);
        }
        found
    }

    fn is_page_in_place(&mut self, context: &mut ReadContext) -> bool {
        let found = context.page_in_place(&self.request.scan(), &mut self.needs);
        let Some(PageInPlace { page, ns_max }) = found else { return false };
        context.count_scanned();
        (self.page_in_place, self.ns_max) = (Some(page), ns_max);
        true
    }

    fn are_all_found_in_place(&mut self, context: &mut ReadContext) -> bool {
        for begin in (0..self.lookups_used).step_by(LANES) {
            let lookups = &self.lookups[begin..self.lookups_used.min(begin + LANES)];
            let count = lookups.len();
            let mut keys: [&[u8]; LANES] = [&[]; LANES];
            for (key, lookup) in keys.iter_mut().zip(lookups) {
                *key = self.request.key(&lookup.key);
            }
            let mut answers = [None; LANES];
            context.regions.find_many_in_place(&keys[..count], &mut answers[..count]);
            for (lookup, found) in (begin..).zip(&answers[..count]) {
                if !found.is_some_and(|found| self.take_in_place(lookup, found, context)) {
                    return false;
                }
            }
        }
        true
    }

    /// What a leaf has answered for a lookup, with the extent that it names.
    fn take_in_place(&mut self, lookup: usize, found: FoundInPlace, context: &mut ReadContext) -> bool {
        context.count_found(&found);
        let FoundInPlace { place: MeganodePlace { at, .. }, found, ns_max, .. } = found;
        let (answer, csn) = match found.entry {
            None => (LookupResult::Absent, found.csn_removed),
            Some(_) if self.request.kind == ReadKind::Search => (LookupResult::Exists, found.csn_changed),
            Some(entry) => {
                // A multi-get leaves long values to gets of their own.
                let is_long = value_len(&entry).is_none_or(|len| len > MULTI_GET_VALUE_BYTES_MAX);
                if is_long && self.request.kind == ReadKind::MultiGet {
                    return false;
                }
                let ReadContext { regions, extents, .. } = context;
                let Some(fetched) = regions.fetch_in_place(at, &entry, extents, &mut self.bytes) else {
                    return false;
                };
                (LookupResult::Entry(fetched), fetched.csn)
            }
        };
        if !context.regions.covers(at, csn) {
            context.regions.look_at_watermark(at);
        }
        if answer == LookupResult::Exists && !context.regions.covers(at, csn) {
            return false; // the leaf is younger than what is durable: the extent says whether its entry is
        }
        self.depend_on(at, csn);
        if !planted(Mutant::MultiGetUntimed) {
            self.ns_max = self.ns_max.min(ns_max);
        }
        self.lookups[lookup].stage = LookupStage::Done(answer);
        true
    }

    /// Visits the node where a scan's walk is, in memory that is mapped. `None`: it is not, or a writer is in
    /// the way, and a read is to find out.
    pub(super) fn visit_in_place(
        &mut self,
        lookup: usize,
        at: &NodeLocation,
        context: &mut ReadContext,
    ) -> Option<NodeOutcome> {
        if self.request.kind != ReadKind::Scan {
            return None; // a key is looked for without copies
        }
        let ReadContext { regions, node_words, .. } = context;
        let mapped = regions.pair(at.pair).mapped.as_ref()?;
        mapped.node.read(&regions.node_read(at), node_words).ok()?;
        let walker = &mut self.lookups[lookup];
        let words = (&**node_words, false);
        let outcome = visit(walker, &mut self.leaf, &self.request, &self.page, words, regions);
        if !planted(Mutant::ScanUntimed) {
            self.ns_max = self.ns_max.min(regions.pair(at.pair).operation_ns_max);
        }
        (outcome != NodeOutcome::Torn).then_some(outcome)
    }

    /// Takes the value of a scan's entry from memory that is mapped. False: a read is to bring it.
    pub(super) fn is_fetched_in_place(
        &mut self,
        lookup: usize,
        pair: PairAt,
        entry: &LeafEntry,
        context: &mut ReadContext,
    ) -> bool {
        let ReadContext { regions, extents, .. } = context;
        let Some(fetched) = regions.fetch_in_place(pair, entry, extents, &mut self.bytes) else {
            return false;
        };
        self.depend_on(pair, fetched.csn);
        self.lookups[lookup].stage = LookupStage::Done(LookupResult::Entry(fetched));
        true
    }

    /// A page is here without a read.
    pub(super) fn scanned_in_place(&mut self, context: &mut ReadContext) {
        context.counters.in_place += 1;
        self.is_in_place = true;
        for &(pair, csn) in &self.needs {
            if !context.regions.covers(pair, csn) {
                context.regions.look_at_watermark(pair);
            }
        }
    }
}
