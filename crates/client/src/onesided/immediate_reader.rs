//! Reads in mapped memory that are answered before the call returns: gets, searches and pages. Nothing is
//! kept of them in between, no slot, no copy of the key, no list of answers. The rules are those of every
//! other one-sided read, by the same code: looked for in place, then believed by a time that is read after
//! the last load.
//!
//! What does not go so at once (a writer in the way, a watermark behind, a lease that may have ended) is
//! forgotten, and the read is submitted as any other operation.

use cell_protocol::{Bound, Scan};
use cell_selector::{Sample, SearchKind};
use cell_terms::Csn;
use cell_tree::LANES;

use super::Reader;
use super::context::ReadContext;
use super::direct::FoundInPlace;
use super::page_in_place::PageInPlace;
use super::place::{MeganodePlace, PairAt};
use super::verdict::{ImmediateRead, Validation, depend_on};
use crate::mutant::{Mutant, planted};
use crate::{Item, ScanPage};

impl Reader {
    /// Whether memory is mapped where each search begins.
    #[inline]
    pub(crate) fn can_answer_at_once(&self) -> bool {
        self.context.regions.is_root_mapped() && self.context.regions.root().is_some()
    }

    /// Looks for a key in place. `None`: reads or the server are to answer. What it found counts once
    /// [`Reader::is_valid_at`] says so. `started_ns` was read before.
    pub(crate) fn look_for(&mut self, started_ns: u64, key: &[u8]) -> Option<Option<Item>> {
        self.begin_immediate(started_ns, SearchKind::Point);
        if key.is_empty() || key.len() > self.context.regions.key_max() {
            return None;
        }
        let found = self.context.regions.find_in_place(key, true)?;
        let (item, csn) = self.take_found(&found)?;
        self.depend_on(&found, csn);
        Some(item)
    }

    /// As [`Reader::look_for`]: whether there is an entry.
    pub(crate) fn look_for_existence(&mut self, started_ns: u64, key: &[u8]) -> Option<bool> {
        self.begin_immediate(started_ns, SearchKind::Point);
        if key.is_empty() || key.len() > self.context.regions.key_max() {
            return None;
        }
        let found = self.context.regions.find_in_place(key, false)?;
        let (exists, csn) = self.take_existence(&found);
        self.depend_on(&found, csn);
        Some(exists)
    }

    /// As [`Reader::look_for`], for many keys; what was found is appended. False: not all of them, and then
    /// nothing is.
    pub(crate) fn look_for_many(
        &mut self,
        started_ns: u64,
        keys: &[&[u8]],
        items: &mut Vec<Option<Item>>,
    ) -> bool {
        self.begin_immediate(started_ns, SearchKind::MultiGet);
        let (before, key_max) = (items.len(), self.context.regions.key_max());
        if keys.iter().any(|key| key.is_empty() || key.len() > key_max) {
            return false;
        }
        for keys in keys.chunks(LANES) {
            let mut answers = [None; LANES];
            self.context.regions.find_many_in_place(keys, &mut answers[..keys.len()]);
            for answer in &answers[..keys.len()] {
                let found = answer.as_ref().and_then(|answer| Some((answer, self.take_found(answer)?)));
                let Some((answer, (item, csn))) = found else {
                    items.truncate(before);
                    return false;
                };
                self.depend_on(answer, csn);
                items.push(item);
            }
        }
        true
    }

    /// As [`Reader::look_for`]: a page of a range.
    pub(crate) fn look_for_page(&mut self, started_ns: u64, scan: &Scan<'_>) -> Option<ScanPage> {
        self.begin_immediate(started_ns, SearchKind::Scan);
        let key_max = self.context.regions.key_max();
        let is_searchable = |key: &[u8]| !key.is_empty() && key.len() <= key_max;
        if ![scan.start, scan.end].iter().filter_map(Bound::key).all(is_searchable) {
            return None;
        }
        let Reader { context, immediate, .. } = self;
        let PageInPlace { page, ns_max } = context.page_in_place(scan, &mut immediate.needs)?;
        if !planted(Mutant::ImmediateUntimed) {
            immediate.ns_max = ns_max;
        }
        Some(page)
    }

    fn begin_immediate(&mut self, started_ns: u64, kind: SearchKind) {
        let immediate = &mut self.immediate;
        immediate.needs.clear();
        (immediate.kind, immediate.started_ns, immediate.ns_max) = (kind, started_ns, u64::MAX);
    }

    /// Takes what a leaf has answered, with the extent that it names, and up to which CSN that depends on the
    /// leaf's pair. Part of its few callers, as the search is.
    #[inline(always)]
    pub(super) fn take_found(&mut self, found: &FoundInPlace) -> Option<(Option<Item>, Csn)> {
        self.context.count_found(found);
        let ReadContext { regions, extents, .. } = &mut self.context;
        let FoundInPlace { place: MeganodePlace { at, .. }, found, .. } = *found;
        let (item, csn) = match found.entry {
            None => (None, found.csn_removed),
            Some(entry) => {
                let mut value = Vec::new(); // it grows once, to what the copy needs
                let fetched = regions.fetch_in_place(at, &entry, extents, &mut value)?;
                (Some(Item { version: fetched.version, value }), fetched.csn)
            }
        };
        self.see_covered(at, csn);
        Some((item, csn))
    }

    /// As [`Reader::take_found`], without the extent. It depends on the leaf's last change: where that is not
    /// durable yet, the search is submitted, and the extent says whether its entry is.
    #[inline]
    pub(super) fn take_existence(&mut self, found: &FoundInPlace) -> (bool, Csn) {
        self.context.count_found(found);
        let FoundInPlace { place: MeganodePlace { at, .. }, found, .. } = *found;
        let exists = found.entry.is_some();
        let csn = if exists { found.csn_changed } else { found.csn_removed };
        self.see_covered(at, csn);
        (exists, csn)
    }

    /// Looks at a pair's watermark, if it is not known to cover what was found.
    #[inline]
    fn see_covered(&mut self, at: PairAt, csn: Csn) {
        let regions = &mut self.context.regions;
        if !regions.covers(at, csn) {
            regions.look_at_watermark(at);
        }
    }

    fn depend_on(&mut self, found: &FoundInPlace, csn: Csn) {
        let immediate = &mut self.immediate;
        if !planted(Mutant::ImmediateUntimed) {
            immediate.ns_max = immediate.ns_max.min(found.ns_max);
        }
        depend_on(&mut immediate.needs, found.place.at, csn);
    }

    /// Counts a read that is answered in place without an operation of its own.
    #[inline]
    pub(super) fn count_immediate(&mut self) {
        let counters = &mut self.context.counters;
        (counters.started, counters.in_place) = (counters.started + 1, counters.in_place + 1);
        counters.done += 1;
        self.workers.iter_mut().for_each(|worker| worker.trust_used = true);
    }

    /// Whether what was looked for last may be returned, by a time that was read after it. If not, nothing of
    /// it is counted: it is submitted.
    pub(crate) fn is_valid_at(&mut self, now_ns: u64) -> bool {
        let ImmediateRead { kind, started_ns, ns_max, ref needs } = self.immediate;
        let taken_ns = now_ns.saturating_sub(started_ns);
        if self.verdict(taken_ns, ns_max, needs, now_ns) != Validation::Answer {
            return false;
        }
        let first = needs.first().copied();
        self.count_immediate();
        if kind == SearchKind::Scan {
            self.context.count_scanned();
        }
        let Some((pair, _)) = first else { return true };
        self.context.count(pair, |counts| &mut counts.one_sided);
        if let Some(selectors) = &mut self.selectors {
            let link = self.context.regions.pair(pair).link;
            selectors.on_sample(link, now_ns, Sample::InPlace { kind, latency_ns: taken_ns.max(1) });
        }
        true
    }
}
