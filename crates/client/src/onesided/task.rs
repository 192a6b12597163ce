//! One operation as a state machine: it takes reads that came and posts those that follow, until all that it
//! wanted is here.
//!
//! An operation has *lanes* that go on independently: one for the key of a get or a search, one for each key
//! of a multi-get; for a scan one that walks from leaf to leaf and one for each extent of the page.

mod confirm;
mod extents;
mod request;

use cell_fabric::RemoteRead;
use cell_protocol::Request;
use cell_terms::Csn;
use cell_terms::mutant::{Mutant, planted};
use cell_tree::{LeafSnapshot, SearchResult};

use super::ReadContext;
use super::direct::FoundInPlace;
use super::fetch::{Fetch, Fetched, value_len};
use super::page::{PagePlan, Taken};
use super::reads::Owner;
use super::regions::PairAt;
use super::walk::{NodeOutcome, Walk, Want};

use confirm::HeaderRead;
use request::Keys;

pub(crate) use request::scan_of;

/// Keys of one multi-get that are looked for at a time.
const LANES_AHEAD: usize = 64;

/// Values longer than this are not read for a multi-get, whose answer could not hold them.
const MULTI_GET_VALUE_BYTES_MAX: u32 = 60_000;

/// Larger buffers are given back when their operation ends.
const BUFFER_KEPT_BYTES: usize = 256 << 10;

/// How often something may be tried again, for each lane, before the server is asked.
const RETRIES_MAX: u32 = 32;

/// How often an operation may take too long before the server is asked.
const OVERRUNS_MAX: u32 = 2;

/// What is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TaskKind {
    #[default]
    Get,
    Search,
    MultiGet,
    Scan,
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TaskState {
    /// There is none.
    #[default]
    Free,
    /// It waits for the registrations, or for its turn.
    Held,
    /// Reads are on their way.
    Reading,
    /// All is here and is to be checked.
    Settling,
    /// It waits for a watermark or for trust.
    Waiting,
}

/// The operation cannot go on by reads: the server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GiveUp;

/// What a lane has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneAnswer {
    /// There is no entry.
    Absent,
    /// There is one.
    Exists,
    /// What its extent says.
    Entry(Fetched),
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Idle,
    Walking,
    Fetching(PairAt, Fetch),
    /// Of these headers the leaf is read again.
    Confirming {
        from: usize,
        to: usize,
    },
    Done(LaneAnswer),
    /// Of a scan: there are no more leaves.
    Ended,
}

/// A part of an operation.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// Where its key stands in the request.
    key: (usize, usize),
    walk: Walk,
    stage: Stage,
    retries: u32,
}

/// An operation; its memory is used again and again.
#[derive(Debug, Default)]
pub(crate) struct Task {
    pub(crate) state: TaskState,
    pub(crate) serial: u32,
    pub(crate) kind: TaskKind,
    /// The encoded request, which has the keys.
    request: Vec<u8>,
    key_longest: usize,
    lanes: Vec<Lane>,
    lanes_used: usize,
    /// Lanes begun, of a multi-get.
    lanes_begun: usize,
    lanes_open: usize,
    /// Lanes from here on confirm what the headers of the others say.
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
    leaf: LeafSnapshot,
    /// Before the first of its reads.
    pub(crate) begun_ns: u64,
    /// How long it may take: the least that an owner permits whose memory it has read.
    pub(crate) ns_max: u64,
    /// The clock was looked at, and it had not taken too long.
    pub(crate) in_time: bool,
    overruns: u32,
    /// Times that a watermark was read again for it, and when it is due again.
    pub(crate) waits: u32,
    pub(crate) due_ns: u64,
}

impl Task {
    /// Takes a request in; false if it cannot be done by reads.
    pub(crate) fn prepare(&mut self, message: &[u8]) -> bool {
        self.request.clear();
        self.request.extend_from_slice(message);
        self.lanes_used = 0;
        self.confirmed_from = None;
        self.overruns = 0;
        let Ok((_, request)) = Request::decode(message) else { return false };
        let mut keys = Keys { message, fit: true, longest: 0 };
        match request {
            Request::Get { key } => {
                self.kind = TaskKind::Get;
                self.add_lane(keys.position(key));
            }
            Request::Search { key } => {
                self.kind = TaskKind::Search;
                self.add_lane(keys.position(key));
            }
            Request::MultiGet(wanted) => {
                self.kind = TaskKind::MultiGet;
                wanted.iter().for_each(|key| self.add_lane(keys.position(key)));
            }
            Request::Scan(scan) => {
                self.kind = TaskKind::Scan;
                let bounds = [scan.start.key(), scan.end.key()];
                bounds.into_iter().flatten().for_each(|key| {
                    keys.position(key);
                });
                self.add_lane((0, 0));
            }
            _ => return false,
        }
        self.key_longest = keys.longest;
        keys.fit
    }

    fn add_lane(&mut self, key: (usize, usize)) {
        if self.lanes_used == self.lanes.len() {
            self.lanes.push(Lane::default());
        }
        let lane = &mut self.lanes[self.lanes_used];
        (lane.key, lane.stage, lane.retries) = (key, Stage::Idle, 0);
        self.lanes_used += 1;
    }

    /// Begins, or begins again.
    pub(crate) fn begin(&mut self, slot: u16, now_ns: u64, context: &mut ReadContext) -> Result<(), GiveUp> {
        self.serial = self.serial.wrapping_add(1);
        self.state = TaskState::Reading;
        self.bytes.clear();
        self.needs.clear();
        self.headers.clear();
        self.lanes_used = self.confirmed_from.take().unwrap_or(self.lanes_used);
        self.begun_ns = now_ns;
        self.ns_max = u64::MAX;
        self.in_time = false;
        self.waits = 0;
        if self.key_longest > context.regions.key_max() {
            return Err(GiveUp); // what no tree can hold the server knows to handle
        }
        if self.kind == TaskKind::Scan {
            self.lanes_used = 1;
            let message = std::mem::take(&mut self.request);
            if let Some(scan) = scan_of(&message) {
                self.page.begin(&scan, context.scan_entries_max);
            }
            self.request = message;
        }
        for lane in &mut self.lanes[..self.lanes_used] {
            lane.stage = Stage::Idle;
        }
        if self.is_found_in_place(context) {
            self.state = TaskState::Settling;
            return Ok(());
        }
        self.lanes_open = self.lanes_used;
        self.lanes_begun = self.lanes_used.min(LANES_AHEAD);
        for lane in 0..self.lanes_begun {
            self.restart(slot, lane, context)?;
        }
        if self.lanes_open == 0 {
            self.state = TaskState::Settling;
        }
        Ok(())
    }

    /// Looks for the key in memory that is mapped. False, and nothing is changed: it is not that simple.
    fn is_found_in_place(&mut self, context: &mut ReadContext) -> bool {
        if !matches!(self.kind, TaskKind::Get | TaskKind::Search) {
            return false;
        }
        let (begin, end) = self.lanes[0].key;
        let sought = context.regions.find_in_place(&self.request[begin..end]);
        let Some(FoundInPlace { at, found, ns_max }) = sought else { return false };
        let (answer, csn) = match found.entry {
            None => (LaneAnswer::Absent, found.csn_removed),
            Some(_) if self.kind == TaskKind::Search => (LaneAnswer::Exists, found.csn_changed),
            Some(entry) => {
                let ReadContext { regions, extents, .. } = context;
                let Some(fetched) = regions.fetch_in_place(at, &entry, extents, &mut self.bytes) else {
                    self.bytes.clear();
                    return false;
                };
                (LaneAnswer::Entry(fetched), fetched.csn)
            }
        };
        if !context.regions.covers(at, csn) {
            context.regions.look_at_watermark(at);
        }
        if answer == LaneAnswer::Exists && !context.regions.covers(at, csn) {
            return false; // the leaf is younger than what is durable: the extent says whether its entry is
        }
        self.need(at, csn);
        self.ns_max = ns_max;
        self.lanes[0].stage = Stage::Done(answer);
        context.counters.in_place += 1;
        true
    }

    /// It took too long, or its page is not what it was: all that was read is thrown away.
    pub(crate) fn begin_again(
        &mut self,
        slot: u16,
        now_ns: u64,
        context: &mut ReadContext,
    ) -> Result<(), GiveUp> {
        self.overruns += 1;
        if self.overruns > OVERRUNS_MAX {
            return Err(GiveUp);
        }
        self.begin(slot, now_ns, context)
    }

    /// Begins a lane's walk at the root.
    fn restart(&mut self, slot: u16, lane: usize, context: &mut ReadContext) -> Result<(), GiveUp> {
        let root = context.regions.root().ok_or(GiveUp)?;
        let walker = &mut self.lanes[lane];
        walker.stage = Stage::Walking;
        if !walker.walk.begin(root, &context.regions) {
            return Err(GiveUp);
        }
        self.go_on(slot, lane, context)
    }

    /// Tries a lane again, a bounded number of times.
    fn again(&mut self, slot: u16, lane: usize, context: &mut ReadContext) -> Result<(), GiveUp> {
        self.lanes[lane].retries += 1;
        if self.lanes[lane].retries > RETRIES_MAX {
            return Err(GiveUp);
        }
        if self.kind == TaskKind::Scan && lane > 0 {
            return Err(GiveUp); // a page is planned leaf by leaf: one extent alone cannot be tried again
        }
        self.headers.retain(|header| header.lane != lane);
        self.restart(slot, lane, context)
    }

    /// Walks as far as the cache leads, then posts the next read.
    fn go_on(&mut self, slot: u16, lane: usize, context: &mut ReadContext) -> Result<(), GiveUp> {
        loop {
            let walk = &mut self.lanes[lane].walk;
            let Some(at) = walk.location().copied() else { return Err(GiveUp) };
            let pointer =
                walk.pointer(&context.regions).filter(|_| walk.is_above_leaves() && context.cache_inner);
            let Some(words) = pointer.and_then(|pointer| context.cache.get(pointer)) else {
                let owner = self.owner(slot, lane, 0);
                return self.post(at.pair, context.regions.node_read(&at), owner, context);
            };
            let outcome = look(
                &mut self.lanes[lane],
                &mut self.leaf,
                &self.request,
                (self.kind, &self.page),
                (words, true),
                &context.regions,
            );
            context.counters.cached += 1;
            if outcome == NodeOutcome::Invalid || outcome == NodeOutcome::Fence {
                pointer.into_iter().for_each(|pointer| context.forget(pointer));
            }
            if !self.seen(slot, lane, outcome, context)? {
                return Ok(());
            }
        }
    }

    /// Posts a read of a pair's memory, which limits the time that the operation may take.
    fn post(
        &mut self,
        pair: PairAt,
        read: RemoteRead,
        owner: Owner,
        context: &mut ReadContext,
    ) -> Result<(), GiveUp> {
        self.ns_max = self.ns_max.min(context.regions.pair(pair).operation_ns_max);
        context.post(pair, read, owner)
    }

    fn owner(&self, slot: u16, lane: usize, piece: u16) -> Owner {
        let lane = u16::try_from(lane).unwrap_or(u16::MAX);
        Owner::Lane { slot, serial: self.serial, lane, piece }
    }

    /// A read of a lane is here.
    pub(crate) fn on_read(
        &mut self,
        slot: u16,
        (lane, piece): (u16, u16),
        words: &[u64],
        context: &mut ReadContext,
    ) -> Result<(), GiveUp> {
        let lane = usize::from(lane);
        match self.lanes[lane].stage {
            Stage::Walking => self.on_node(slot, lane, words, context),
            Stage::Fetching(pair, fetch) => self.on_piece(slot, lane, (pair, fetch, piece), words, context),
            Stage::Confirming { from, to } => self.on_leaf_again(slot, lane, (from, to), words, context),
            Stage::Idle | Stage::Done(_) | Stage::Ended => Ok(()),
        }
    }

    fn on_node(
        &mut self,
        slot: u16,
        lane: usize,
        words: &[u64],
        context: &mut ReadContext,
    ) -> Result<(), GiveUp> {
        let pointer = self.lanes[lane].walk.pointer(&context.regions);
        let above = self.lanes[lane].walk.is_above_leaves();
        let outcome = look(
            &mut self.lanes[lane],
            &mut self.leaf,
            &self.request,
            (self.kind, &self.page),
            (words, false),
            &context.regions,
        );
        // A leaf that is a meganode's root is no node above the leaves.
        let keep =
            above && matches!(outcome, NodeOutcome::On | NodeOutcome::Aside { .. }) && context.cache_inner;
        if let Some(pointer) = pointer.filter(|_| keep) {
            context.cache.insert(pointer, words);
        }
        if self.seen(slot, lane, outcome, context)? { self.go_on(slot, lane, context) } else { Ok(()) }
    }

    /// What follows from what a node said; true if the walk goes on.
    fn seen(
        &mut self,
        slot: u16,
        lane: usize,
        outcome: NodeOutcome,
        context: &mut ReadContext,
    ) -> Result<bool, GiveUp> {
        match outcome {
            NodeOutcome::On => return Ok(true),
            NodeOutcome::Aside { parent } => {
                context.counters.right_link += 1;
                parent.into_iter().for_each(|parent| context.forget(parent));
                return Ok(true);
            }
            NodeOutcome::Leaf(found) => self.found(slot, lane, &found, context)?,
            NodeOutcome::Snapshot => self.on_leaf(slot, context)?,
            NodeOutcome::Torn => {
                context.counters.torn += 1;
                self.lanes[lane].retries += 1;
                return if self.lanes[lane].retries > RETRIES_MAX { Err(GiveUp) } else { Ok(true) };
            }
            NodeOutcome::Elsewhere => {
                context.region_unknown = true;
                return Err(GiveUp);
            }
            NodeOutcome::Invalid | NodeOutcome::Fence => {
                if outcome == NodeOutcome::Invalid {
                    context.counters.invalid += 1;
                } else {
                    context.counters.fence += 1;
                }
                for &parent in self.lanes[lane].walk.parents() {
                    context.forget(parent);
                }
                context.root_is_doubtful();
                self.again(slot, lane, context)?;
            }
        }
        Ok(false)
    }

    /// A leaf has answered about a key.
    fn found(
        &mut self,
        slot: u16,
        lane: usize,
        found: &SearchResult,
        context: &mut ReadContext,
    ) -> Result<(), GiveUp> {
        let Some(at) = self.lanes[lane].walk.location().copied() else { return Err(GiveUp) };
        let Some(entry) = found.entry else {
            self.need(at.pair, found.csn_removed);
            self.done(slot, lane, LaneAnswer::Absent, context)?;
            return Ok(());
        };
        if self.kind == TaskKind::Search && context.regions.covers(at.pair, found.csn_changed) {
            self.need(at.pair, found.csn_changed); // its owner must be trusted
            return self.done(slot, lane, LaneAnswer::Exists, context);
        }
        let fits = value_len(&entry).is_some_and(|len| len <= MULTI_GET_VALUE_BYTES_MAX);
        let whole = match self.kind {
            TaskKind::Search => false,
            TaskKind::MultiGet => fits,
            TaskKind::Get | TaskKind::Scan => true,
        };
        self.fetch(slot, lane, at, entry, whole, context)
    }

    /// A leaf of a scan is here: plans its entries, asks for their extents and for the next leaf.
    fn on_leaf(&mut self, slot: u16, context: &mut ReadContext) -> Result<(), GiveUp> {
        let Some(at) = self.lanes[0].walk.location().copied() else { return Err(GiveUp) };
        self.need(at.pair, self.leaf.csn_removed());
        let message = std::mem::take(&mut self.request);
        let planned = self.page.entries.len();
        let taken = scan_of(&message).map(|scan| (self.page.take(&scan, &self.leaf), scan.reverse));
        self.request = message;
        let Some((taken, reverse)) = taken else { return Err(GiveUp) };
        for index in planned..self.page.entries.len() {
            let entry = self.page.entries[index];
            let lane = self.lanes_used;
            self.add_lane((0, 0));
            self.lanes_open += 1;
            self.fetch(slot, lane, at, entry.entry, entry.inline, context)?;
        }
        if taken == Taken::Complete {
            self.lanes[0].stage = Stage::Ended;
            return self.close_lane(slot, context);
        }
        let right = self.leaf.right();
        if !reverse && self.lanes[0].walk.begin_right_of(&at, right, &context.regions) {
            return self.go_on(slot, 0, context);
        }
        self.restart(slot, 0, context)
    }

    fn done(
        &mut self,
        slot: u16,
        lane: usize,
        answer: LaneAnswer,
        context: &mut ReadContext,
    ) -> Result<(), GiveUp> {
        self.lanes[lane].stage = Stage::Done(answer);
        self.close_lane(slot, context)?;
        if self.lanes_begun < self.lanes_used && self.kind == TaskKind::MultiGet {
            let next = self.lanes_begun;
            self.lanes_begun += 1;
            self.restart(slot, next, context)?;
        }
        Ok(())
    }

    fn close_lane(&mut self, slot: u16, context: &mut ReadContext) -> Result<(), GiveUp> {
        self.lanes_open -= 1;
        if self.lanes_open > 0 {
            return Ok(());
        }
        if !self.headers.is_empty() && !planted(Mutant::HeaderUnconfirmed) {
            return self.confirm(slot, context);
        }
        self.lanes_used = self.confirmed_from.take().unwrap_or(self.lanes_used);
        self.state = TaskState::Settling;
        Ok(())
    }

    fn need(&mut self, pair: PairAt, csn: Csn) {
        match self.needs.iter_mut().find(|(needed, _)| *needed == pair) {
            Some((_, needed)) => *needed = csn.max(*needed),
            None => self.needs.push((pair, csn)),
        }
    }

    /// Large buffers are not kept for the next operation.
    pub(crate) fn give_memory_back(&mut self) {
        if self.bytes.capacity() > BUFFER_KEPT_BYTES {
            self.bytes = Vec::new();
        }
    }

    /// What was found, lane by lane; of a scan, for the entries of the page.
    pub(crate) fn answers(&self) -> impl Iterator<Item = LaneAnswer> + '_ {
        let skipped = usize::from(self.kind == TaskKind::Scan);
        self.lanes[..self.lanes_used].iter().skip(skipped).map(|lane| match lane.stage {
            Stage::Done(answer) => answer,
            _ => LaneAnswer::Absent,
        })
    }

    /// The encoded request.
    pub(crate) fn request(&self) -> &[u8] {
        &self.request
    }
}

fn look(
    lane: &mut Lane,
    leaf: &mut LeafSnapshot,
    request: &[u8],
    (kind, page): (TaskKind, &PagePlan),
    (words, cached): (&[u64], bool),
    regions: &super::regions::Regions,
) -> NodeOutcome {
    if kind != TaskKind::Scan {
        let key = &request[lane.key.0..lane.key.1];
        return lane.walk.look(words, cached, Want::Entry(key), regions);
    }
    let Some(scan) = scan_of(request) else { return NodeOutcome::Invalid };
    lane.walk.look(words, cached, Want::Snapshot(page.aim(&scan), leaf), regions)
}
