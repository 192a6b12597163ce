//! An operation in memory that is mapped: the keys are looked for in place, many of them side by side.

use cell_tree::LANES;

use super::{LookupResult, LookupStage, MULTI_GET_VALUE_BYTES_MAX, ReadKind, ReadOperation};
use crate::onesided::context::ReadContext;
use crate::onesided::direct::FoundInPlace;
use crate::onesided::fetch::value_len;

impl ReadOperation {
    /// Looks for the keys in memory that is mapped. False: it is not that simple, and reads are to tell.
    pub(super) fn is_found_in_place(&mut self, context: &mut ReadContext) -> bool {
        let found = match self.request.kind {
            ReadKind::Get | ReadKind::Search => {
                let key = self.request.key(&self.lookups[0].key);
                let sought = context.regions.find_in_place(key);
                sought.is_some_and(|found| self.take_in_place(0, found, context))
            }
            ReadKind::MultiGet => self.are_all_found_in_place(context),
            ReadKind::Scan => return false,
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
        let FoundInPlace { at, found, ns_max } = found;
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
        self.ns_max = self.ns_max.min(ns_max);
        self.lookups[lookup].stage = LookupStage::Done(answer);
        true
    }
}
