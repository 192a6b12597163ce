//! One operation as a state machine: it takes reads that came and posts those that follow, until all that it
//! wanted is here.
//!
//! An operation has *lanes* that go on independently: one for the key of a get or a search, one for each key
//! of a multi-get; for a scan one that walks from leaf to leaf and one for each extent of the page.

mod confirm;
mod request;

use cell_fabric::RemoteRead;
use cell_protocol::Request;
use cell_terms::Csn;
use cell_terms::mutant::{Mutant, planted};
use cell_tree::{Found, LeafEntry, LeafSnapshot};

use super::Ground;
use super::direct::FoundInPlace;
use super::fetch::{Fetch, Fetched, value_len};
use super::page::{PagePlan, Taken};
use super::reads::Owner;
use super::regions::{PairAt, Place};
use super::walk::{Sight, Walk, Want};

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
pub(crate) enum Kind {
    #[default]
    Get,
    Search,
    MultiGet,
    Scan,
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
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
pub(crate) enum Answer {
    /// There is no entry.
    Absent,
    /// There is one.
    Exists,
    /// What its extent says.
    Entry(Fetched),
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// Not begun.
    #[default]
    Idle,
    Walking,
    Fetching(PairAt, Fetch),
    /// Of these headers the leaf is read again.
    Confirming {
        from: usize,
        to: usize,
    },
    Done(Answer),
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
    pub(crate) state: State,
    pub(crate) serial: u32,
    pub(crate) kind: Kind,
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
                self.kind = Kind::Get;
                self.add_lane(keys.place(key));
            }
            Request::Search { key } => {
                self.kind = Kind::Search;
                self.add_lane(keys.place(key));
            }
            Request::MultiGet(wanted) => {
                self.kind = Kind::MultiGet;
                wanted.iter().for_each(|key| self.add_lane(keys.place(key)));
            }
            Request::Scan(scan) => {
                self.kind = Kind::Scan;
                let bounds = [scan.start.key(), scan.end.key()];
                bounds.into_iter().flatten().for_each(|key| {
                    keys.place(key);
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
    pub(crate) fn begin(&mut self, place: u16, now_ns: u64, ground: &mut Ground) -> Result<(), GiveUp> {
        self.serial = self.serial.wrapping_add(1);
        self.state = State::Reading;
        self.bytes.clear();
        self.needs.clear();
        self.headers.clear();
        self.lanes_used = self.confirmed_from.take().unwrap_or(self.lanes_used);
        self.begun_ns = now_ns;
        self.ns_max = u64::MAX;
        self.in_time = false;
        self.waits = 0;
        if self.key_longest > ground.regions.key_max() {
            return Err(GiveUp); // what no tree can hold the server knows to handle
        }
        if self.kind == Kind::Scan {
            self.lanes_used = 1;
            let message = std::mem::take(&mut self.request);
            if let Some(scan) = scan_of(&message) {
                self.page.begin(&scan, ground.scan_entries_max);
            }
            self.request = message;
        }
        for lane in &mut self.lanes[..self.lanes_used] {
            lane.stage = Stage::Idle;
        }
        if self.is_found_in_place(ground) {
            self.state = State::Settling;
            return Ok(());
        }
        self.lanes_open = self.lanes_used;
        self.lanes_begun = self.lanes_used.min(LANES_AHEAD);
        for lane in 0..self.lanes_begun {
            self.restart(place, lane, ground)?;
        }
        if self.lanes_open == 0 {
            self.state = State::Settling;
        }
        Ok(())
    }

    /// Looks for the key in memory that is mapped. False, and nothing is changed: it is not that simple.
    fn is_found_in_place(&mut self, ground: &mut Ground) -> bool {
        if !matches!(self.kind, Kind::Get | Kind::Search) {
            return false;
        }
        let (begin, end) = self.lanes[0].key;
        let sought = ground.regions.find_in_place(&self.request[begin..end]);
        let Some(FoundInPlace { at, found, ns_max }) = sought else { return false };
        let (answer, csn) = match found.entry {
            None => (Answer::Absent, found.csn_removed),
            Some(_) if self.kind == Kind::Search => (Answer::Exists, found.csn_changed),
            Some(entry) => {
                let Ground { regions, extents, .. } = ground;
                let Some(fetched) = regions.fetch_in_place(at, &entry, extents, &mut self.bytes) else {
                    self.bytes.clear();
                    return false;
                };
                (Answer::Entry(fetched), fetched.csn)
            }
        };
        if !ground.regions.covers(at, csn) {
            ground.regions.look_at_watermark(at);
        }
        if answer == Answer::Exists && !ground.regions.covers(at, csn) {
            return false; // the leaf is younger than what is durable: the extent says whether its entry is
        }
        self.need(at, csn);
        self.ns_max = ns_max;
        self.lanes[0].stage = Stage::Done(answer);
        ground.counters.in_place += 1;
        true
    }

    /// It took too long, or its page is not what it was: all that was read is thrown away.
    pub(crate) fn begin_again(&mut self, place: u16, now_ns: u64, ground: &mut Ground) -> Result<(), GiveUp> {
        self.overruns += 1;
        if self.overruns > OVERRUNS_MAX {
            return Err(GiveUp);
        }
        self.begin(place, now_ns, ground)
    }

    /// Begins a lane's walk at the root.
    fn restart(&mut self, place: u16, lane: usize, ground: &mut Ground) -> Result<(), GiveUp> {
        let root = ground.regions.root().ok_or(GiveUp)?;
        let walker = &mut self.lanes[lane];
        walker.stage = Stage::Walking;
        if !walker.walk.begin(root, &ground.regions) {
            return Err(GiveUp);
        }
        self.go_on(place, lane, ground)
    }

    /// Tries a lane again, a bounded number of times.
    fn again(&mut self, place: u16, lane: usize, ground: &mut Ground) -> Result<(), GiveUp> {
        self.lanes[lane].retries += 1;
        if self.lanes[lane].retries > RETRIES_MAX {
            return Err(GiveUp);
        }
        if self.kind == Kind::Scan && lane > 0 {
            return Err(GiveUp); // a page is planned leaf by leaf: one extent alone cannot be tried again
        }
        self.headers.retain(|header| header.lane != lane);
        self.restart(place, lane, ground)
    }

    /// Walks as far as the cache leads, then posts the next read.
    fn go_on(&mut self, place: u16, lane: usize, ground: &mut Ground) -> Result<(), GiveUp> {
        loop {
            let walk = &mut self.lanes[lane].walk;
            let Some(at) = walk.place().copied() else { return Err(GiveUp) };
            let pointer =
                walk.pointer(&ground.regions).filter(|_| walk.is_above_leaves() && ground.cache_inner);
            let Some(words) = pointer.and_then(|pointer| ground.cache.get(pointer)) else {
                let owner = self.owner(place, lane, 0);
                return self.post(at.pair, ground.regions.node_read(&at), owner, ground);
            };
            let sight = look(
                &mut self.lanes[lane],
                &mut self.leaf,
                &self.request,
                (self.kind, &self.page),
                (words, true),
                &ground.regions,
            );
            ground.counters.cached += 1;
            if sight == Sight::Invalid || sight == Sight::Fence {
                pointer.into_iter().for_each(|pointer| ground.forget(pointer));
            }
            if !self.seen(place, lane, sight, ground)? {
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
        ground: &mut Ground,
    ) -> Result<(), GiveUp> {
        self.ns_max = self.ns_max.min(ground.regions.pair(pair).operation_ns_max);
        ground.post(pair, read, owner)
    }

    fn owner(&self, place: u16, lane: usize, piece: u16) -> Owner {
        let lane = u16::try_from(lane).unwrap_or(u16::MAX);
        Owner::Lane { place, serial: self.serial, lane, piece }
    }

    /// A read of a lane is here.
    pub(crate) fn came(
        &mut self,
        place: u16,
        (lane, piece): (u16, u16),
        words: &[u64],
        ground: &mut Ground,
    ) -> Result<(), GiveUp> {
        let lane = usize::from(lane);
        match self.lanes[lane].stage {
            Stage::Walking => self.node_came(place, lane, words, ground),
            Stage::Fetching(pair, fetch) => self.piece_came(place, lane, (pair, fetch, piece), words, ground),
            Stage::Confirming { from, to } => self.leaf_came_again(place, lane, (from, to), words, ground),
            Stage::Idle | Stage::Done(_) | Stage::Ended => Ok(()),
        }
    }

    fn node_came(
        &mut self,
        place: u16,
        lane: usize,
        words: &[u64],
        ground: &mut Ground,
    ) -> Result<(), GiveUp> {
        let pointer = self.lanes[lane].walk.pointer(&ground.regions);
        let above = self.lanes[lane].walk.is_above_leaves();
        let sight = look(
            &mut self.lanes[lane],
            &mut self.leaf,
            &self.request,
            (self.kind, &self.page),
            (words, false),
            &ground.regions,
        );
        // A leaf that is a meganode's root is no node above the leaves.
        let keep = above && matches!(sight, Sight::On | Sight::Aside { .. }) && ground.cache_inner;
        if let Some(pointer) = pointer.filter(|_| keep) {
            ground.cache.insert(pointer, words);
        }
        if self.seen(place, lane, sight, ground)? { self.go_on(place, lane, ground) } else { Ok(()) }
    }

    /// What follows from what a node said; true if the walk goes on.
    fn seen(&mut self, place: u16, lane: usize, sight: Sight, ground: &mut Ground) -> Result<bool, GiveUp> {
        match sight {
            Sight::On => return Ok(true),
            Sight::Aside { parent } => {
                ground.counters.right_link += 1;
                parent.into_iter().for_each(|parent| ground.forget(parent));
                return Ok(true);
            }
            Sight::Leaf(found) => self.found(place, lane, &found, ground)?,
            Sight::Snapshot => self.leaf_came(place, ground)?,
            Sight::Torn => {
                ground.counters.torn += 1;
                self.lanes[lane].retries += 1;
                return if self.lanes[lane].retries > RETRIES_MAX { Err(GiveUp) } else { Ok(true) };
            }
            Sight::Elsewhere => {
                ground.region_unknown = true;
                return Err(GiveUp);
            }
            Sight::Invalid | Sight::Fence => {
                if sight == Sight::Invalid {
                    ground.counters.invalid += 1;
                } else {
                    ground.counters.fence += 1;
                }
                for &parent in self.lanes[lane].walk.parents() {
                    ground.forget(parent);
                }
                ground.root_is_doubtful();
                self.again(place, lane, ground)?;
            }
        }
        Ok(false)
    }

    /// A leaf has answered about a key.
    fn found(&mut self, place: u16, lane: usize, found: &Found, ground: &mut Ground) -> Result<(), GiveUp> {
        let Some(at) = self.lanes[lane].walk.place().copied() else { return Err(GiveUp) };
        let Some(entry) = found.entry else {
            self.need(at.pair, found.csn_removed);
            self.done(place, lane, Answer::Absent, ground)?;
            return Ok(());
        };
        if self.kind == Kind::Search && ground.regions.covers(at.pair, found.csn_changed) {
            self.need(at.pair, found.csn_changed); // its owner must be trusted
            return self.done(place, lane, Answer::Exists, ground);
        }
        let fits = value_len(&entry).is_some_and(|len| len <= MULTI_GET_VALUE_BYTES_MAX);
        let whole = match self.kind {
            Kind::Search => false,
            Kind::MultiGet => fits,
            Kind::Get | Kind::Scan => true,
        };
        self.fetch(place, lane, at, entry, whole, ground)
    }

    /// A leaf of a scan is here: plans its entries, asks for their extents and for the next leaf.
    fn leaf_came(&mut self, place: u16, ground: &mut Ground) -> Result<(), GiveUp> {
        let Some(at) = self.lanes[0].walk.place().copied() else { return Err(GiveUp) };
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
            self.fetch(place, lane, at, entry.entry, entry.inline, ground)?;
        }
        if taken == Taken::Complete {
            self.lanes[0].stage = Stage::Ended;
            return self.close_lane(place, ground);
        }
        let right = self.leaf.right();
        if !reverse && self.lanes[0].walk.begin_right_of(&at, right, &ground.regions) {
            return self.go_on(place, 0, ground);
        }
        self.restart(place, 0, ground)
    }

    /// Asks for the extent of a leaf's entry.
    fn fetch(
        &mut self,
        place: u16,
        lane: usize,
        leaf: Place,
        entry: LeafEntry,
        whole: bool,
        ground: &mut Ground,
    ) -> Result<(), GiveUp> {
        let fetch = Fetch::begin(entry, whole, &mut self.bytes).ok_or(GiveUp)?;
        if !whole {
            self.headers.push(HeaderRead { leaf, entry, lane });
        }
        self.post_pieces(place, lane, leaf.pair, fetch, ground)
    }

    fn post_pieces(
        &mut self,
        place: u16,
        lane: usize,
        pair: PairAt,
        mut fetch: Fetch,
        ground: &mut Ground,
    ) -> Result<(), GiveUp> {
        let key = ground.regions.pair(pair).row.extent_key;
        while let Some((piece, read)) = fetch.next_piece(key) {
            let owner = self.owner(place, lane, piece);
            self.post(pair, read, owner, ground)?;
        }
        self.lanes[lane].stage = Stage::Fetching(pair, fetch);
        Ok(())
    }

    fn piece_came(
        &mut self,
        place: u16,
        lane: usize,
        (pair, mut fetch, piece): (PairAt, Fetch, u16),
        words: &[u64],
        ground: &mut Ground,
    ) -> Result<(), GiveUp> {
        if !fetch.take(piece, words, &mut self.bytes) {
            return self.post_pieces(place, lane, pair, fetch, ground);
        }
        match fetch.finish(ground.regions.pair(pair).row.pair, &self.bytes) {
            Some(fetched) => {
                self.need(pair, fetched.csn);
                let answer = if self.kind == Kind::Search { Answer::Exists } else { Answer::Entry(fetched) };
                self.done(place, lane, answer, ground)
            }
            None => {
                ground.counters.crc += 1;
                self.again(place, lane, ground)
            }
        }
    }

    fn done(&mut self, place: u16, lane: usize, answer: Answer, ground: &mut Ground) -> Result<(), GiveUp> {
        self.lanes[lane].stage = Stage::Done(answer);
        self.close_lane(place, ground)?;
        if self.lanes_begun < self.lanes_used && self.kind == Kind::MultiGet {
            let next = self.lanes_begun;
            self.lanes_begun += 1;
            self.restart(place, next, ground)?;
        }
        Ok(())
    }

    fn close_lane(&mut self, place: u16, ground: &mut Ground) -> Result<(), GiveUp> {
        self.lanes_open -= 1;
        if self.lanes_open > 0 {
            return Ok(());
        }
        if !self.headers.is_empty() && !planted(Mutant::HeaderUnconfirmed) {
            return self.confirm(place, ground);
        }
        self.lanes_used = self.confirmed_from.take().unwrap_or(self.lanes_used);
        self.state = State::Settling;
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
    pub(crate) fn answers(&self) -> impl Iterator<Item = Answer> + '_ {
        let skipped = usize::from(self.kind == Kind::Scan);
        self.lanes[..self.lanes_used].iter().skip(skipped).map(|lane| match lane.stage {
            Stage::Done(answer) => answer,
            _ => Answer::Absent,
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
    (kind, page): (Kind, &PagePlan),
    (words, cached): (&[u64], bool),
    regions: &super::regions::Regions,
) -> Sight {
    if kind != Kind::Scan {
        let key = &request[lane.key.0..lane.key.1];
        return lane.walk.look(words, cached, Want::Entry(key), regions);
    }
    let Some(scan) = scan_of(request) else { return Sight::Invalid };
    lane.walk.look(words, cached, Want::Snapshot(page.aim(&scan), leaf), regions)
}
