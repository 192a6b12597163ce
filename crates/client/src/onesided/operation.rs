//! One operation as a state machine: it takes reads that came and posts those that follow, until all that it
//! wanted is here.
//!
//! An operation has *lookups* that go on independently: one for the key of a get or a search, one for each
//! key of a multi-get; for a scan one that walks from leaf to leaf and one for each extent of the page.

mod confirm;
mod extents;
mod in_place;
mod leaves;
mod request;
mod touched;

use cell_fabric::RemoteRead;
use cell_terms::Csn;
use cell_terms::mutant::{Mutant, planted};
use cell_tree::{LeafEntry, LeafSnapshot, SearchResult, Slot};

use super::context::{AskServer, ReadContext};
use super::fetch::{Fetch, Fetched, value_len};
use super::page::PagePlan;
use super::place::PairAt;
use super::reads::ReadOwner;
use super::regions::{NodeLocation, Regions};
use super::verdict::depend_on;
use super::walk::{NodeOutcome, Walk, WalkTarget};
use crate::Operation;
use crate::output::ScanPage;

pub(super) use request::ReadKind;
use request::{KeySpan, ReadRequest};

/// Keys of one multi-get that are looked for at a time.
const LOOKUPS_AHEAD: usize = 64;

/// Values longer than this are not read for a multi-get, whose answer could not hold them.
const MULTI_GET_VALUE_BYTES_MAX: u32 = 60_000;

/// Larger buffers are given back when their operation ends.
const BUFFER_KEPT_BYTES: usize = 256 << 10;

/// How often something may be tried again, for each lookup, before the server is asked.
const RETRIES_MAX: u32 = 32;

/// How often an operation may take too long before the server is asked.
const OVERRUNS_MAX: u32 = 2;

/// Where an operation stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReadState {
    /// There is none.
    #[default]
    Free,
    /// It waits for the registrations, or for its turn.
    Held,
    /// Reads are on their way.
    Reading,
    /// All is here and is to be checked.
    Validating,
    /// It waits for a watermark or for trust.
    Waiting,
    /// It has ended, and nobody has taken that yet.
    Ended,
}

/// What a lookup has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupResult {
    /// There is no entry.
    Absent,
    /// There is one.
    Exists,
    /// What its extent says.
    Entry(Fetched),
}

#[derive(Clone, Copy, Debug, Default)]
enum LookupStage {
    #[default]
    Idle,
    Walking,
    Fetching(PairAt, Fetch),
    /// Of these headers the leaf is read again.
    Confirming {
        from: usize,
        to: usize,
    },
    Done(LookupResult),
    /// Of a scan: there are no more leaves.
    Ended,
}

/// A part of an operation.
#[derive(Clone, Debug, Default)]
struct Lookup {
    key: KeySpan,
    walk: Walk,
    stage: LookupStage,
    retries: u32,
}

/// An extent of which the header alone was read.
#[derive(Clone, Copy, Debug)]
struct HeaderRead {
    /// The leaf that led to it.
    leaf: NodeLocation,
    /// What the leaf said.
    entry: LeafEntry,
    /// For which lookup.
    lookup: usize,
}

/// A leaf whose entries are in a scan's page, and whose values are still to be taken. The operation depends
/// on its pair already.
#[derive(Clone, Copy, Debug)]
struct PlannedLeaf {
    at: NodeLocation,
    /// The first of the page's entries that is not of this leaf or of one before it.
    end: usize,
}

/// An operation; its memory is used again and again.
#[derive(Debug, Default)]
pub(crate) struct ReadOperation {
    pub(crate) state: ReadState,
    /// Which attempt at which operation of this slot it is: what was started under another number is not its.
    pub(crate) serial: u32,
    request: ReadRequest,
    lookups: Vec<Lookup>,
    lookups_used: usize,
    /// Lookups started, of a multi-get.
    lookups_started: usize,
    lookups_open: usize,
    /// Lookups from here on confirm what the headers of the others say.
    confirmed_from: Option<usize>,
    /// Headers that were read since, or are being read.
    headers: Vec<HeaderRead>,
    /// Headers whose leaves are being read again.
    confirming: Vec<HeaderRead>,
    /// Extents, as they came.
    pub(crate) bytes: Vec<u8>,
    /// What must be covered before it can be answered.
    pub(crate) needs: Vec<(PairAt, Csn)>,
    pub(crate) page: PagePlan,
    /// The page itself, where all of it was found in place.
    pub(super) page_in_place: Option<ScanPage>,
    leaf: LeafSnapshot,
    /// Leaves of the page whose values are still to be taken.
    planned: Vec<PlannedLeaf>,
    /// Where its scan read a leaf last.
    scanned_slot: Option<Slot>,
    /// Before the first of its reads.
    pub(crate) started_ns: u64,
    /// How long it may take: the least that an owner permits whose memory it has read.
    pub(crate) ns_max: u64,
    /// The clock was looked at, and it had not taken too long.
    pub(crate) in_time: bool,
    overruns: u32,
    /// Reads posted for it, and whether it was done without any, in mapped memory.
    pub(crate) reads: u32,
    pub(crate) is_in_place: bool,
    /// Times that a watermark was read again for it, and when it is due again.
    pub(crate) waits: u32,
    pub(crate) due_ns: u64,
}

impl ReadOperation {
    /// Takes an operation in; false if it cannot be done by reads.
    pub(crate) fn prepare(&mut self, operation: &Operation<'_>) -> bool {
        self.serial = self.serial.wrapping_add(1);
        self.lookups_used = 0;
        self.confirmed_from = None;
        self.overruns = 0;
        match *operation {
            Operation::Get { key } => self.prepare_keys(ReadKind::Get, &[key]),
            Operation::Search { key } => self.prepare_keys(ReadKind::Search, &[key]),
            Operation::MultiGet { keys } => self.prepare_keys(ReadKind::MultiGet, keys),
            Operation::Scan(ref scan) => {
                self.request.begin(ReadKind::Scan);
                self.request.set_scan(scan);
                self.add_lookup(KeySpan::default());
            }
            _ => return false,
        }
        !self.request.has_empty_key()
    }

    fn prepare_keys(&mut self, kind: ReadKind, keys: &[&[u8]]) {
        self.request.begin(kind);
        for key in keys {
            let key = self.request.push_key(key);
            self.add_lookup(key);
        }
    }

    pub(super) fn kind(&self) -> ReadKind {
        self.request.kind
    }

    /// Where the walk of its first lookup has ended.
    pub(super) fn location(&self) -> Option<&NodeLocation> {
        self.lookups.first().and_then(|lookup| lookup.walk.location())
    }

    /// Whether all went well at the first attempt.
    pub(super) fn went_straight(&self) -> bool {
        self.waits == 0 && self.overruns == 0
    }

    fn add_lookup(&mut self, key: KeySpan) {
        if self.lookups_used == self.lookups.len() {
            self.lookups.push(Lookup::default());
        }
        let lookup = &mut self.lookups[self.lookups_used];
        (lookup.key, lookup.stage, lookup.retries) = (key, LookupStage::Idle, 0);
        self.lookups_used += 1;
    }

    /// Begins, or begins again.
    pub(crate) fn begin(
        &mut self,
        slot: u16,
        now_ns: u64,
        context: &mut ReadContext,
    ) -> Result<(), AskServer> {
        self.serial = self.serial.wrapping_add(1);
        self.state = ReadState::Reading;
        self.bytes.clear();
        self.needs.clear();
        self.headers.clear();
        self.planned.clear();
        self.page_in_place = None;
        self.lookups_used = self.confirmed_from.take().unwrap_or(self.lookups_used);
        self.scanned_slot = None;
        self.started_ns = now_ns;
        self.ns_max = u64::MAX;
        self.in_time = false;
        self.waits = 0;
        (self.reads, self.is_in_place) = (0, false);
        if !self.request.fits(context.regions.key_max()) {
            return Err(AskServer); // what no tree can hold the server knows to handle
        }
        if self.request.kind == ReadKind::Scan {
            self.lookups_used = 1;
            self.page.begin(&self.request.scan(), context.scan_entries_max);
        }
        for lookup in &mut self.lookups[..self.lookups_used] {
            lookup.stage = LookupStage::Idle;
        }
        if self.is_found_in_place(context) {
            self.state = ReadState::Validating;
            return Ok(());
        }
        self.lookups_open = self.lookups_used;
        self.lookups_started = self.lookups_used.min(LOOKUPS_AHEAD);
        for lookup in 0..self.lookups_started {
            self.restart(slot, lookup, context)?;
        }
        if self.lookups_open == 0 {
            self.state = ReadState::Validating;
        }
        Ok(())
    }

    /// It took too long, or its page is not what it was: all that was read is thrown away.
    pub(crate) fn begin_again(
        &mut self,
        slot: u16,
        now_ns: u64,
        context: &mut ReadContext,
    ) -> Result<(), AskServer> {
        self.overruns += 1;
        if self.overruns > OVERRUNS_MAX {
            return Err(AskServer);
        }
        self.begin(slot, now_ns, context)
    }

    /// Begins a lookup's walk at the root.
    fn restart(&mut self, slot: u16, lookup: usize, context: &mut ReadContext) -> Result<(), AskServer> {
        self.go_to_root(lookup, context)?;
        self.walk_on(slot, lookup, context)
    }

    fn go_to_root(&mut self, lookup: usize, context: &mut ReadContext) -> Result<(), AskServer> {
        let root = context.regions.root().ok_or(AskServer)?;
        let walker = &mut self.lookups[lookup];
        walker.stage = LookupStage::Walking;
        if walker.walk.begin(root, &context.regions) {
            return Ok(());
        }
        context.region_unknown |= !context.regions.knows(root.pointer);
        Err(AskServer)
    }

    /// Tries a lookup again, a bounded number of times.
    fn retry(&mut self, slot: u16, lookup: usize, context: &mut ReadContext) -> Result<(), AskServer> {
        self.lookups[lookup].retries += 1;
        if self.lookups[lookup].retries > RETRIES_MAX {
            return Err(AskServer);
        }
        if self.request.kind == ReadKind::Scan && lookup > 0 {
            return Err(AskServer); // a page is planned leaf by leaf: one extent alone cannot be tried again
        }
        self.headers.retain(|header| header.lookup != lookup);
        self.restart(slot, lookup, context)
    }

    /// Walks as far as mapped memory and the cache lead, then posts the next read.
    fn walk_on(&mut self, slot: u16, lookup: usize, context: &mut ReadContext) -> Result<(), AskServer> {
        loop {
            let Some(at) = self.lookups[lookup].walk.location().copied() else { return Err(AskServer) };
            if let Some(outcome) = self.visit_in_place(lookup, &at, context) {
                if !self.on_outcome(slot, lookup, outcome, context)? {
                    return Ok(());
                }
                continue;
            }
            let walk = &self.lookups[lookup].walk;
            let pointer =
                walk.pointer(&context.regions).filter(|_| walk.is_above_leaves() && context.cache_inner);
            let Some(words) = pointer.and_then(|pointer| context.cache.get(pointer)) else {
                if pointer.is_some() {
                    context.count(at.pair, |counts| &mut counts.cache_misses);
                }
                self.take_planned(slot, context)?; // first what is mapped: a read takes its time
                let owner = self.owner(slot, lookup, 0);
                return self.post(at.pair, context.regions.node_read(&at), owner, context);
            };
            let outcome = visit(
                &mut self.lookups[lookup],
                &mut self.leaf,
                &self.request,
                &self.page,
                (words, true),
                &context.regions,
            );
            context.counters.cached += 1;
            context.count(at.pair, |counts| &mut counts.cache_hits);
            if outcome == NodeOutcome::Invalid || outcome == NodeOutcome::Fence {
                pointer.into_iter().for_each(|pointer| context.forget(pointer));
            }
            if !self.on_outcome(slot, lookup, outcome, context)? {
                return Ok(());
            }
        }
    }

    /// Posts a read of a pair's memory, which limits the time that the operation may take.
    fn post(
        &mut self,
        pair: PairAt,
        read: RemoteRead,
        owner: ReadOwner,
        context: &mut ReadContext,
    ) -> Result<(), AskServer> {
        self.reads += 1;
        self.ns_max = self.ns_max.min(context.regions.pair(pair).operation_ns_max);
        context.post(pair, read, owner)
    }

    fn owner(&self, slot: u16, lookup: usize, piece: u16) -> ReadOwner {
        let lookup = u16::try_from(lookup).unwrap_or(u16::MAX);
        ReadOwner::Lookup { slot, serial: self.serial, lookup, piece }
    }

    /// A read of a lookup is here.
    pub(crate) fn on_read(
        &mut self,
        slot: u16,
        (lookup, piece): (u16, u16),
        words: &[u64],
        context: &mut ReadContext,
    ) -> Result<(), AskServer> {
        let lookup = usize::from(lookup);
        match self.lookups[lookup].stage {
            LookupStage::Walking => self.on_node(slot, lookup, words, context),
            LookupStage::Fetching(pair, fetch) => {
                self.on_piece(slot, lookup, (pair, fetch, piece), words, context)
            }
            LookupStage::Confirming { from, to } => {
                self.on_leaf_again(slot, lookup, (from, to), words, context)
            }
            LookupStage::Idle | LookupStage::Done(_) | LookupStage::Ended => Ok(()),
        }
    }

    fn on_node(
        &mut self,
        slot: u16,
        lookup: usize,
        words: &[u64],
        context: &mut ReadContext,
    ) -> Result<(), AskServer> {
        let pointer = self.lookups[lookup].walk.pointer(&context.regions);
        let above = self.lookups[lookup].walk.is_above_leaves();
        let outcome = visit(
            &mut self.lookups[lookup],
            &mut self.leaf,
            &self.request,
            &self.page,
            (words, false),
            &context.regions,
        );
        // A leaf that is a meganode's root is no node above the leaves.
        let keep = above
            && matches!(outcome, NodeOutcome::Descend | NodeOutcome::RightLink { .. })
            && context.cache_inner;
        if let Some(pointer) = pointer.filter(|_| keep) {
            context.cache.insert(pointer, words);
        }
        if self.on_outcome(slot, lookup, outcome, context)? {
            self.walk_on(slot, lookup, context)
        } else {
            Ok(())
        }
    }

    /// What follows from what a node said; true if the walk goes on.
    fn on_outcome(
        &mut self,
        slot: u16,
        lookup: usize,
        outcome: NodeOutcome,
        context: &mut ReadContext,
    ) -> Result<bool, AskServer> {
        let pair = self.lookups[lookup].walk.location().map(|at| at.pair);
        match outcome {
            NodeOutcome::Descend => return Ok(true),
            NodeOutcome::RightLink { parent } => {
                context.counters.right_link += 1;
                parent.into_iter().for_each(|parent| context.forget(parent));
                return Ok(true);
            }
            NodeOutcome::Leaf(found) => self.on_entry(slot, lookup, &found, context)?,
            NodeOutcome::Snapshot => return self.on_leaf(slot, context),
            NodeOutcome::Torn => {
                context.counters.torn += 1;
                pair.into_iter().for_each(|pair| context.count(pair, |counts| &mut counts.torn));
                self.lookups[lookup].retries += 1;
                return if self.lookups[lookup].retries > RETRIES_MAX { Err(AskServer) } else { Ok(true) };
            }
            NodeOutcome::RegionUnknown => {
                context.region_unknown = true;
                return Err(AskServer);
            }
            NodeOutcome::Invalid | NodeOutcome::Fence => {
                if outcome == NodeOutcome::Invalid {
                    context.counters.invalid += 1;
                    pair.into_iter().for_each(|pair| context.count(pair, |counts| &mut counts.stale));
                } else {
                    context.counters.fence += 1;
                    pair.into_iter().for_each(|pair| context.count(pair, |counts| &mut counts.fence));
                }
                for &parent in self.lookups[lookup].walk.parents() {
                    context.forget(parent);
                }
                context.recheck_root();
                self.retry(slot, lookup, context)?;
            }
        }
        Ok(false)
    }

    /// A leaf has answered about a key.
    fn on_entry(
        &mut self,
        slot: u16,
        lookup: usize,
        found: &SearchResult,
        context: &mut ReadContext,
    ) -> Result<(), AskServer> {
        let Some(at) = self.lookups[lookup].walk.location().copied() else { return Err(AskServer) };
        context.note_read(at.pair, at.slot);
        let Some(entry) = found.entry else {
            self.depend_on(at.pair, found.csn_removed);
            self.end_lookup(slot, lookup, LookupResult::Absent, context)?;
            return Ok(());
        };
        if self.request.kind == ReadKind::Search && context.regions.covers(at.pair, found.csn_changed) {
            self.depend_on(at.pair, found.csn_changed); // its owner must be trusted
            return self.end_lookup(slot, lookup, LookupResult::Exists, context);
        }
        let fits = value_len(&entry).is_some_and(|len| len <= MULTI_GET_VALUE_BYTES_MAX);
        let whole = match self.request.kind {
            ReadKind::Search => false,
            ReadKind::MultiGet => fits,
            ReadKind::Get | ReadKind::Scan => true,
        };
        self.fetch(slot, lookup, at, entry, whole, context)
    }

    fn end_lookup(
        &mut self,
        slot: u16,
        lookup: usize,
        answer: LookupResult,
        context: &mut ReadContext,
    ) -> Result<(), AskServer> {
        self.lookups[lookup].stage = LookupStage::Done(answer);
        self.close_lookup(slot, context)?;
        if self.lookups_started < self.lookups_used && self.request.kind == ReadKind::MultiGet {
            let next = self.lookups_started;
            self.lookups_started += 1;
            self.restart(slot, next, context)?;
        }
        Ok(())
    }

    fn close_lookup(&mut self, slot: u16, context: &mut ReadContext) -> Result<(), AskServer> {
        self.lookups_open -= 1;
        if self.lookups_open > 0 {
            return Ok(());
        }
        if !self.headers.is_empty() && !planted(Mutant::HeaderUnconfirmed) {
            return self.confirm(slot, context);
        }
        self.lookups_used = self.confirmed_from.take().unwrap_or(self.lookups_used);
        self.state = ReadState::Validating;
        if self.request.kind == ReadKind::Scan && self.reads == 0 {
            self.scanned_in_place(context);
        }
        Ok(())
    }

    fn depend_on(&mut self, pair: PairAt, csn: Csn) {
        depend_on(&mut self.needs, pair, csn);
    }

    /// Large buffers are not kept for the next operation.
    pub(crate) fn give_memory_back(&mut self) {
        self.page_in_place = None;
        if self.bytes.capacity() > BUFFER_KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// What was found, lookup by lookup; of a scan, for the entries of the page.
    pub(crate) fn results(&self) -> impl ExactSizeIterator<Item = LookupResult> + '_ {
        let skipped = usize::from(self.request.kind == ReadKind::Scan);
        self.lookups[..self.lookups_used].iter().skip(skipped).map(|lookup| match lookup.stage {
            LookupStage::Done(answer) => answer,
            _ => LookupResult::Absent,
        })
    }

    /// Whether a scan wants keys alone.
    pub(super) fn is_keys_only(&self) -> bool {
        self.request.scan().keys_only
    }
}

/// Visits a copy of the node where a lookup's walk is.
fn visit(
    lookup: &mut Lookup,
    leaf: &mut LeafSnapshot,
    request: &ReadRequest,
    page: &PagePlan,
    (words, cached): (&[u64], bool),
    regions: &Regions,
) -> NodeOutcome {
    if request.kind != ReadKind::Scan {
        let key = request.key(&lookup.key);
        return lookup.walk.visit(words, cached, WalkTarget::Entry(key), regions);
    }
    let target = WalkTarget::Snapshot(page.aim(&request.scan()), leaf);
    lookup.walk.visit(words, cached, target, regions)
}
