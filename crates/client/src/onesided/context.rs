//! What all one-sided operations of a client share: regions, reads on their way, cached tree nodes, counters.

use cell_fabric::RemoteRead;
use cell_memory::extent::ExtentReader;
use cell_protocol::{ClientCounts, ReportedRead, Scan};
use cell_terms::{Csn, Pointer};
use cell_tree::Slot;

use super::cache::NodeCache;
use super::counter::OneSidedCounters;
use super::direct::FoundInPlace;
use super::leaf_in_place::LeafInPlace;
use super::page_in_place::{PageInPlace, PageReader};
use super::place::{MeganodePlace, PairAt};
use super::read_notes::ReadNotes;
use super::reads::{ReadOwner, Reads};
use super::regions::Regions;
use crate::ClientOptions;
use crate::link_id::LinkId;

/// The operation cannot go on by reads: the server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AskServer;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct ReadContext {
    pub(super) regions: Regions,
    pub(super) reads: Vec<Reads>,
    pub(super) cache: NodeCache,
    /// Of what is looked at in place.
    pub(super) extents: ExtentReader,
    /// A tree node that was copied in place.
    pub(super) node_words: Vec<u64>,
    /// Of pages that are read in place.
    page_reader: PageReader,
    pub(super) counters: OneSidedCounters,
    /// By connection, for its reports.
    counts: Vec<ClientCounts>,
    /// Likewise.
    notes: Vec<ReadNotes>,
    seed: u64,
    reports: bool,
    pub(super) cache_inner: bool,
    pub(super) scan_entries_max: u32,
    /// A pointer led to a region that is not known, or no known region has the root: some worker has more of
    /// them by now.
    pub(super) region_unknown: bool,
}

impl ReadContext {
    pub(super) fn new(options: &ClientOptions, seed: u64) -> ReadContext {
        let reports = options.report_ms > 0;
        ReadContext {
            regions: Regions::default(),
            reads: vec![Reads::default()],
            cache: NodeCache::new(options.cache_bytes),
            extents: ExtentReader::new(),
            node_words: Vec::new(),
            page_reader: PageReader::default(),
            counters: OneSidedCounters::default(),
            counts: vec![ClientCounts::default()],
            notes: vec![ReadNotes::new(seed, reports)],
            seed,
            reports,
            cache_inner: options.cache_inner,
            scan_entries_max: u32::MAX,
            region_unknown: false,
        }
    }

    /// There is one more connection.
    pub(super) fn add_link(&mut self) {
        self.reads.push(Reads::default());
        self.counts.push(ClientCounts::default());
        let seed = self.seed.wrapping_add(self.notes.len() as u64);
        self.notes.push(ReadNotes::new(seed, self.reports));
    }

    /// What was counted by a connection.
    pub(super) fn counts_of(&self, link: LinkId) -> ClientCounts {
        self.counts.get(link.index()).copied().unwrap_or_default()
    }

    /// Takes what a connection's reports say of its reads.
    pub(super) fn take_read_notes(&mut self, link: LinkId, rows: &mut Vec<ReportedRead>) -> u64 {
        rows.clear();
        self.notes.get_mut(link.index()).map_or(0, |notes| notes.take(rows))
    }

    /// A meganode is read, by a search of a leaf or by a scan that comes to it.
    #[inline]
    pub(super) fn note_read(&mut self, at: PairAt, slot: Slot) {
        let pair = self.regions.pair(at);
        if let Some(notes) = self.notes.get_mut(pair.link.index()) {
            notes.note(pair.row.pair, slot.index);
        }
    }

    /// Counts by the connection that leads to a pair.
    #[inline]
    pub(super) fn count(&mut self, pair: PairAt, which: impl Fn(&mut ClientCounts) -> &mut u64) {
        self.count_by(self.regions.pair(pair).link, which);
    }

    /// Counts by a connection.
    #[inline]
    pub(super) fn count_by(&mut self, link: LinkId, which: impl Fn(&mut ClientCounts) -> &mut u64) {
        if let Some(counts) = self.counts.get_mut(link.index()) {
            *which(counts) += 1;
        }
    }

    pub(super) fn post(&mut self, pair: PairAt, read: RemoteRead, owner: ReadOwner) -> Result<(), AskServer> {
        let link = self.regions.pair(pair).link;
        let reads = self.reads.get_mut(link.index()).ok_or(AskServer)?;
        self.counters.reads += 1;
        reads.push(read, owner);
        self.count_by(link, |counts| &mut counts.reads);
        Ok(())
    }

    /// A cached node led astray.
    pub(super) fn forget(&mut self, pointer: Pointer) {
        self.counters.dropped += u64::from(self.cache.remove(pointer));
    }

    /// Counts a search in place, and what it met that was stale.
    #[inline]
    pub(super) fn count_found(&mut self, found: &FoundInPlace) {
        let MeganodePlace { at, slot } = found.place;
        self.note_read(at, slot);
        self.counters.right_link += u64::from(found.right_links);
        if found.was_stale {
            self.counters.dropped += 1;
            self.count(found.place.at, |counts| &mut counts.stale);
        }
    }

    /// A page of a range in mapped memory, and what it depends on, which replaces what `needs` had. `None`:
    /// it is not that simple, and reads are to find out. It is not counted yet: see
    /// [`ReadContext::count_scanned`].
    pub(super) fn page_in_place(
        &mut self,
        scan: &Scan<'_>,
        needs: &mut Vec<(PairAt, Csn)>,
    ) -> Option<PageInPlace> {
        let ReadContext { regions, extents, page_reader, scan_entries_max, .. } = self;
        let found = page_reader.read(scan, *scan_entries_max, (&mut *regions, extents), needs)?;
        for &(pair, csn) in needs.iter() {
            if !regions.covers(pair, csn) {
                regions.look_at_watermark(pair);
            }
        }
        Some(found)
    }

    /// Counts each meganode that the last page in place came to once, and what it met that was stale.
    pub(super) fn count_scanned(&mut self) {
        let mut before = None;
        for at in 0..self.page_reader.meganodes.len() {
            let LeafInPlace { place, right_links, was_stale, .. } = self.page_reader.meganodes[at];
            if before.replace(place.slot) != Some(place.slot) {
                self.note_read(place.at, place.slot);
            }
            self.counters.right_link += u64::from(right_links);
            if was_stale {
                self.counters.dropped += 1;
                self.count(place.at, |counts| &mut counts.stale);
            }
        }
    }

    /// The root may not be what it was: its header is read again.
    pub(super) fn recheck_root(&mut self) {
        self.regions.first().into_iter().for_each(|first| self.ask_header(first));
    }

    /// A pair's registrations are of the past: forgets its place, and what is cached of it.
    pub(super) fn forget_pair(&mut self, pair: PairAt) {
        self.cache.forget_region(self.regions.pair(pair).row.node_region);
        self.regions.remove(pair);
    }

    pub(super) fn ask_header(&mut self, pair: PairAt) {
        if !self.regions.pair(pair).header_asked {
            self.regions.pair_mut(pair).header_asked = true;
            let owner = ReadOwner::Header { pair, key: self.regions.pair(pair).row.node_key };
            let posted = self.post(pair, self.regions.header_read(pair), owner);
            debug_assert_eq!(posted, Ok(()), "a pair's connection has a list of reads");
        }
    }
}
