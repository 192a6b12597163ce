//! The one-sided path: a client searches a node's memory itself ([Cell, ATC 2016], sections 2.3 and 2.4).
//!
//! A state machine like the rest of the client: it is informed which reads came back, what replies said of
//! lease and watermark, and what time it is; it yields reads to be posted, and operations that ended. Many
//! are under way at a time.
//!
//! ```text
//! registrations, root, watermarks -> router -> meganode -> leaf -> extent      (walk, fetch)
//!         ^                            each node: versions, valid, level, fences;   extent: CRC-64
//!         |                                                     |
//!         +---- again, a bounded number of times; else the server  <- validate: clock, watermark, trust
//! ```
//!
//! What an answer rests on (`docs/design/one-sided-reads.md`):
//!
//! - every tree node is of one moment and covers what was looked for; every extent is its leaf's;
//! - **clock**: from before the first read to after the last completion no more time has passed than freed
//!   memory rests, so nothing that was read had been used again;
//! - **watermark**: all that it depends on is durable, by a watermark of the same epoch;
//! - **trust**: after the last completion the owner's lease surely still held.
//!
//! What cannot be answered by these rules, or not soon, is handed to the server, and the caller never knows.
//!
//! [Cell, ATC 2016]: https://www.usenix.org/conference/atc16/technical-sessions/presentation/mitchell

mod batch_queue;
mod batch_reader;
mod cache;
mod context;
mod counter;
mod direct;
mod fetch;
mod forgetting;
mod immediate_reader;
mod leaf_in_place;
mod mapping;
mod mapping_reader;
mod meganode_cache;
mod operation;
mod page;
mod page_in_place;
mod place;
mod read_notes;
mod reads;
mod regions;
mod selecting_reader;
mod selectors;
mod trust;
mod validate;
mod verdict;
mod walk;
mod worker;

use std::collections::VecDeque;

use cell_fabric::{ReadFailure, ReadTag, RemoteRead};
use cell_protocol::{RegionsReply, ReplyHeader, ReportedRead};

pub(crate) use batch_queue::BatchedRead;
pub use counter::{COUNTERS, OneSidedCounters};
pub(crate) use page::range_of;
pub use selectors::SelectorReport;

use crate::link_id::{LinkId, LinkSet};
use crate::mutant::{Mutant, planted};
use crate::{ClientOptions, Operation, Output, Search};
use batch_queue::BatchQueue;
use context::{AskServer, ReadContext};
use operation::{ReadOperation, ReadState};
use place::PairAt;
use reads::ReadOwner;
use regions::Reported;
use selectors::{Selectors, kind_of_read};
use trust::Trust;
use verdict::ImmediateRead;
use walk::Walk;
use worker::{RegistrationState, Worker};

/// The registrations are asked for again after so long, when the worker did not send them.
const ASK_AGAIN_NS: u64 = 100_000_000;

/// How a one-sided operation ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// With this answer.
    Done(Output),
    /// Without: the server is to be asked.
    Server,
}

/// The one-sided half of a client core.
#[derive(Debug)]
pub(crate) struct Reader {
    context: ReadContext,
    operations: Vec<ReadOperation>,
    workers: Vec<Worker>,
    reads_ordered: bool,
    in_flight_max: usize,
    active: usize,
    held: VecDeque<u16>,
    validating: Vec<u16>,
    waiting: Vec<u16>,
    /// What has ended, and the number that it had at its slot: a slot that was given up since may have
    /// another operation.
    ended: VecDeque<(u16, u32, Ended)>,
    scratch: Vec<u16>,
    now_ns: u64,
    /// From which connections a read came back with what it read, since this was asked last.
    answered_links: LinkSet,
    /// The fabric is to be asked which regions are mapped.
    mapping_wanted: bool,
    /// Decides which operations go this way, if not all do.
    selectors: Option<Selectors>,
    /// Whether it does decide, or all go one way for now.
    search: Search,
    router_walk: Walk,
    immediate: ImmediateRead,
    batch: BatchQueue,
}

impl Reader {
    /// `seed` decides what its selectors draw.
    pub(crate) fn new(options: &ClientOptions, seed: u64) -> Reader {
        let chooses = options.search == Search::Auto;
        Reader {
            selectors: chooses.then(|| Selectors::new(options.selector.clone(), seed)),
            search: options.search,
            router_walk: Walk::default(),
            immediate: ImmediateRead::default(),
            batch: BatchQueue::default(),
            context: ReadContext::new(options, seed),
            operations: Vec::new(),
            workers: vec![Worker::default()],
            reads_ordered: true,
            in_flight_max: options.in_flight_max.max(1),
            active: 0,
            held: VecDeque::new(),
            validating: Vec::new(),
            waiting: Vec::new(),
            ended: VecDeque::new(),
            scratch: Vec::new(),
            now_ns: 0,
            answered_links: LinkSet::default(),
            mapping_wanted: false,
        }
    }

    /// Whether the fabric loads a read's cache lines in address order.
    pub(crate) fn set_reads_ordered(&mut self, ordered: bool) {
        self.reads_ordered = ordered;
    }

    /// A worker has welcomed the client; its pages have at most so many entries.
    pub(crate) fn on_welcome(&mut self, link: LinkId, scan_entries_max: u32) {
        while self.workers.len() <= link.index() {
            self.workers.push(Worker::default());
            self.context.add_link();
        }
        let worker = &mut self.workers[link.index()];
        worker.scan_entries_max = scan_entries_max.max(1);
        worker.is_up = true;
        if let Some(selectors) = &mut self.selectors {
            selectors.on_connection(link);
        }
        let worker = &mut self.workers[link.index()];
        if matches!(worker.registration, RegistrationState::Unavailable { .. }) {
            worker.registration = RegistrationState::Wanted;
        }
        let least = self.workers.iter().map(|worker| worker.scan_entries_max).min();
        self.context.scan_entries_max = least.unwrap_or(u32::MAX);
    }

    pub(crate) fn counters(&self) -> &OneSidedCounters {
        &self.context.counters
    }

    /// Takes how often meganodes were read by a connection since this was asked last; the reads of those that
    /// were not noted one by one are returned.
    pub(crate) fn take_read_notes(&mut self, link: LinkId, rows: &mut Vec<ReportedRead>) -> u64 {
        self.context.take_read_notes(link, rows)
    }

    /// Whether a worker's registrations are to be asked for.
    pub(crate) fn wants_regions(&self, link: LinkId, now_ns: u64) -> bool {
        let worker = self.workers.get(link.index());
        worker.is_some_and(|worker| worker.wants_regions(now_ns, self.context.region_unknown))
    }

    /// They are asked for.
    pub(crate) fn on_regions_asked(&mut self, link: LinkId, now_ns: u64) {
        self.workers[link.index()].on_regions_asked(now_ns);
    }

    /// Whether something was looked for in a region that no worker has reported, since this was asked last;
    /// all workers that are known are asked again then, each so often.
    pub(crate) fn take_region_unknown(&mut self) -> bool {
        std::mem::take(&mut self.context.region_unknown)
    }

    /// The region table has changed: a worker may have got what is looked for.
    pub(crate) fn on_new_table(&mut self) {
        self.workers.iter_mut().for_each(Worker::look_soon);
    }

    /// What the worker said; none if it refused.
    pub(crate) fn on_regions_reply(&mut self, link: LinkId, now_ns: u64, reply: Option<&RegionsReply<'_>>) {
        let reported = reply.and_then(|reply| Reported::new(link, reply, self.reads_ordered));
        let Some(reported) = reported else {
            return self.on_regions_refused(link, now_ns);
        };
        self.workers[link.index()].on_list(reported.list);
        let outdated = self.context.regions.outdated(link, &reported);
        let mut is_news = !outdated.is_empty();
        outdated.into_iter().for_each(|pair| self.forget_pair(pair));
        let before = self.context.regions.places_in_use().count();
        self.context.regions.add(reported);
        is_news |= self.context.regions.places_in_use().count() > before;
        self.workers[link.index()].on_reported(is_news);
        if self.context.regions.root().is_none() {
            self.context.recheck_root();
        }
    }

    /// Whether something waits for nothing but the time: answers, what has ended, or what waits for its turn
    /// to begin and can.
    pub(crate) fn is_validating(&self) -> bool {
        let is_due = !self.validating.is_empty() || !self.ended.is_empty();
        is_due || self.may_begin_held() || self.is_batching()
    }

    fn may_begin_held(&self) -> bool {
        !self.held.is_empty() && self.active < self.in_flight_max && self.context.regions.root().is_some()
    }

    /// Whether an owner's lease is to be asked for.
    pub(crate) fn wants_trust(&self, link: LinkId, now_ns: u64) -> bool {
        let Some(worker) = self.workers.get(link.index()) else { return false };
        let used = self.active > 0 || worker.trust_used;
        used && worker.is_registered() && !worker.trust_asked && worker.trust.is_low(now_ns)
    }

    /// It is asked for.
    pub(crate) fn trust_asked(&mut self, link: LinkId, now_ns: u64) {
        let worker = &mut self.workers[link.index()];
        worker.trust_asked = true;
        worker.trust_used = false;
        worker.trust.asked(now_ns);
    }

    /// The question has been answered; the header was handled before. What waits is looked at again, by a
    /// time after all that came with the answer: not by the time at which the answer was taken in.
    pub(crate) fn on_trust_reply(&mut self, link: LinkId) {
        self.workers[link.index()].trust_asked = false;
        self.validating.append(&mut self.waiting);
    }

    /// What a reply says besides its answer. `asked_ns` is when its request was made, if that is known.
    pub(crate) fn on_reply_header(&mut self, link: LinkId, header: &ReplyHeader, asked_ns: Option<u64>) {
        let Some(worker) = self.workers.get_mut(link.index()) else { return };
        if header.trust_us == 0 || !worker.is_registered() {
            return;
        }
        worker.on_trust(header.list, asked_ns, header.trust_us);
        let newer = self.context.regions.on_watermark(link, header.pair, header.watermark);
        if let Some(pair) = newer {
            // The pair has another epoch than its registrations: they are of the past.
            tracing::debug!(pair = %header.pair, epoch = %header.watermark.epoch, "registrations of another epoch");
            self.on_registration_ended(pair, ASK_AGAIN_NS);
        }
    }

    /// A worker's registrations are of no use any more: what is under way is the server's, and they are asked
    /// for anew. Without any, nothing changes.
    fn forget_regions(&mut self, link: LinkId) {
        let worker = &mut self.workers[link.index()];
        (worker.registration, worker.trust) = (RegistrationState::Wanted, Trust::default());
        let gone = self.context.regions.places_of(link);
        gone.into_iter().for_each(|pair| self.forget_pair(pair));
        if self.context.regions.root().is_none() {
            self.context.recheck_root(); // its header may have been on its way
        }
    }

    /// There are none for now.
    fn on_regions_refused(&mut self, link: LinkId, now_ns: u64) {
        self.forget_regions(link);
        let until_ns = now_ns.saturating_add(ASK_AGAIN_NS);
        self.workers[link.index()].registration = RegistrationState::Unavailable { until_ns };
        if self.context.regions.root().is_none() && !self.may_root_come() {
            self.give_up_held();
        }
    }

    /// The connection is gone.
    pub(crate) fn on_link_lost(&mut self, link: LinkId) {
        if self.workers.len() <= link.index() {
            return;
        }
        self.context.reads[link.index()].lost();
        let worker = &mut self.workers[link.index()];
        (worker.is_up, worker.trust_asked) = (false, false);
        self.forget_regions(link);
        self.give_up_held();
    }

    /// Whether the root may still come.
    fn may_root_come(&self) -> bool {
        // Whether one of several that was lost comes again is not known: it is not waited for.
        let alone = self.workers.len() == 1;
        let expected = |worker: &Worker| {
            (worker.is_up || alone)
                && matches!(worker.registration, RegistrationState::Wanted | RegistrationState::Asked)
        };
        self.workers.iter().any(expected) || self.context.regions.first_header_is_asked()
    }

    /// Whether it is not known where searches begin, and nothing is on its way that may say so. Then one of
    /// the workers that are known may have got the root's pair since it was asked: a worker serves each pair
    /// as soon as it can, and says of none that it has come. All of them are asked.
    fn lacks_root(&mut self) -> bool {
        let lacks = self.context.regions.root().is_none() && !self.may_root_come();
        self.context.region_unknown |= lacks && self.is_any_registered();
        lacks
    }

    /// Takes an operation in; false if it is one for the server. [`Reader::ended`] returns how it
    /// ended.
    pub(crate) fn begin(&mut self, slot: u16, now_ns: u64, operation: &Operation<'_>) -> bool {
        if self.lacks_root() {
            return false;
        }
        while self.operations.len() <= usize::from(slot) {
            self.operations.push(ReadOperation::default());
        }
        let read = &mut self.operations[usize::from(slot)];
        if !read.prepare(operation) {
            return false;
        }
        read.state = ReadState::Held;
        self.context.counters.started += 1;
        self.held.push_back(slot);
        // In mapped memory the next look, which is due at once, begins it.
        if self.validating.is_empty() && !self.context.regions.is_root_mapped() {
            self.begin_held(now_ns);
        }
        true
    }

    fn is_any_registered(&self) -> bool {
        self.workers.iter().any(Worker::is_registered)
    }

    /// Begins what waits for its turn.
    fn begin_held(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if self.context.regions.root().is_none() {
            if !self.held.is_empty() && !self.may_root_come() {
                self.give_up_held(); // the root's owner is not there
            }
            return;
        }
        while self.active < self.in_flight_max
            && let Some(slot) = self.held.pop_front()
        {
            self.active += 1;
            let outcome = self.operations[usize::from(slot)].begin(slot, now_ns, &mut self.context);
            self.on_step(slot, outcome);
            self.on_started(slot, now_ns);
        }
    }

    /// Gives an operation up: its answer is not wanted any more.
    pub(crate) fn abandon(&mut self, slot: u16) {
        let Some(operation) = self.operations.get_mut(usize::from(slot)) else { return };
        match operation.state {
            ReadState::Free => return,
            ReadState::Ended => {} // passed over where it stands: see `ended`
            ReadState::Held => self.held.retain(|&held| held != slot),
            ReadState::Reading => self.active -= 1,
            ReadState::Validating | ReadState::Waiting => {
                self.active -= 1;
                self.validating.retain(|&listed| listed != slot);
                self.waiting.retain(|&listed| listed != slot);
            }
        }
        operation.state = ReadState::Free;
        operation.give_memory_back();
    }

    fn end(&mut self, slot: u16, ended: Ended) {
        self.abandon(slot);
        match ended {
            Ended::Done(_) => {
                self.context.counters.done += 1;
                self.workers.iter_mut().for_each(|worker| worker.trust_used = true);
            }
            Ended::Server => self.context.counters.fell_back += 1,
        }
        let operation = &mut self.operations[usize::from(slot)];
        operation.state = ReadState::Ended;
        self.ended.push_back((slot, operation.serial, ended));
    }

    /// Reads do not answer it: the server is to be asked.
    fn fall_back(&mut self, slot: u16, now_ns: u64) {
        self.on_fallback(slot, now_ns);
        self.end(slot, Ended::Server);
    }

    fn give_up_held(&mut self) {
        for slot in self.held.iter().copied().collect::<Vec<_>>() {
            self.end(slot, Ended::Server);
        }
    }

    /// An operation that has ended, and how. One that was given up after its end is none:
    ///
    /// 1. a connection is lost while reads are being posted: an operation ends, and is the server's;
    /// 2. before that is taken, the caller drops its scan: the operation's slot is freed;
    /// 3. the slot goes to another operation, which would be ended, or sent, in place of the first.
    pub(crate) fn ended(&mut self) -> Option<(u16, Ended)> {
        while let Some((slot, serial, ended)) = self.ended.pop_front() {
            let operation = &mut self.operations[usize::from(slot)];
            let is_held = operation.state == ReadState::Ended && operation.serial == serial;
            if is_held || planted(Mutant::EndedUnnumbered) {
                operation.state = ReadState::Free;
                return Some((slot, ended));
            }
        }
        None
    }

    /// The next read to be posted, on a connection that is up.
    pub(crate) fn next_read(
        &mut self,
        is_up: impl Fn(LinkId) -> bool,
    ) -> Option<(LinkId, RemoteRead, ReadTag)> {
        for (at, reads) in self.context.reads.iter_mut().enumerate() {
            let link = LinkId(u16::try_from(at).unwrap_or(u16::MAX));
            if reads.can_pop() && is_up(link) {
                return reads.pop(self.now_ns).map(|(read, tag)| (link, read, tag));
            }
        }
        None
    }

    /// The read was not taken; it comes again after [`Reader::writable`].
    pub(crate) fn not_taken(&mut self, link: LinkId, read: RemoteRead, tag: ReadTag) {
        self.context.reads[link.index()].not_taken(read, tag);
    }

    /// The fabric takes reads again.
    pub(crate) fn writable(&mut self, link: LinkId) {
        if let Some(reads) = self.context.reads.get_mut(link.index()) {
            reads.blocked = false;
        }
    }

    /// Whether reads are on their way to a host, or answers wait.
    pub(crate) fn is_busy(&self, link: LinkId) -> bool {
        let alone = self.workers.len() == 1 && self.active > 0;
        alone || self.context.reads.get(link.index()).is_some_and(|reads| reads.outstanding() > 0)
    }

    /// For which connections [`Reader::is_busy`].
    pub(crate) fn busy_links(&self) -> LinkSet {
        let links = (0..self.workers.len()).map(|at| LinkId(u16::try_from(at).unwrap_or(u16::MAX)));
        links.filter(|link| self.is_busy(*link)).collect()
    }

    /// From which connections a read came back since this was asked last.
    pub(crate) fn take_answered_links(&mut self) -> LinkSet {
        std::mem::take(&mut self.answered_links)
    }

    /// A read has come back.
    pub(crate) fn read_done(&mut self, link: LinkId, tag: ReadTag, outcome: Result<&[u64], ReadFailure>) {
        let Some(reads) = self.context.reads.get_mut(link.index()) else { return };
        let posted_ns = reads.posted_ns(tag);
        let owner = reads.take(tag);
        let words = match outcome {
            Ok(words) => {
                self.answered_links.insert(link);
                self.on_region_read(link, owner);
                words
            }
            Err(failure) => {
                self.context.count_by(link, |counts| &mut counts.other);
                return self.read_failed(link, owner, failure);
            }
        };
        match owner {
            ReadOwner::None => {}
            ReadOwner::Header { pair, key }
                if self.is_of_registration(pair, key) || planted(Mutant::EarlierHeaderTaken) =>
            {
                self.on_region_header(pair, words);
            }
            ReadOwner::Header { .. } => {}
            ReadOwner::Lookup { slot, serial, lookup, piece } => {
                self.on_read_latency(link, slot, posted_ns);
                let operation = &mut self.operations[usize::from(slot)];
                if operation.serial == serial && operation.state == ReadState::Reading {
                    let outcome = operation.on_read(slot, (lookup, piece), words, &mut self.context);
                    self.on_step(slot, outcome);
                }
            }
        }
    }

    fn on_step(&mut self, slot: u16, outcome: Result<(), AskServer>) {
        if outcome == Err(AskServer) {
            return self.fall_back(slot, self.now_ns);
        }
        if self.operations[usize::from(slot)].state == ReadState::Validating {
            self.validating.push(slot);
        }
    }

    fn on_region_header(&mut self, pair: PairAt, words: &[u64]) {
        self.context.regions.on_region_header(pair, words);
        self.validating.append(&mut self.waiting);
    }

    fn read_failed(&mut self, link: LinkId, owner: ReadOwner, failure: ReadFailure) {
        match failure {
            ReadFailure::KeyUnknown => {
                self.context.counters.key_unknown += 1;
                if let Some((pair, _)) = self.region_read_for(owner) {
                    self.on_registration_ended(pair, 0);
                }
            }
            _ => {
                self.context.counters.failed += 1;
                match owner {
                    ReadOwner::None => {}
                    ReadOwner::Header { .. } => self.on_regions_refused(link, self.now_ns),
                    ReadOwner::Lookup { slot, serial, .. } => {
                        let operation = &self.operations[usize::from(slot)];
                        if operation.serial == serial && operation.state == ReadState::Reading {
                            self.end(slot, Ended::Server);
                        }
                    }
                }
            }
        }
    }

    /// When [`Reader::validate`] has something to do though nothing happens.
    pub(crate) fn due_ns(&self) -> u64 {
        if self.is_validating() {
            return 0; // found in place by the last look: returned at the next
        }
        let waiting = self.waiting.iter().map(|&slot| self.operations[usize::from(slot)].due_ns);
        waiting.min().unwrap_or(u64::MAX)
    }
}
