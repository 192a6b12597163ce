//! The pairs that a worker owns, each with what waits for its log, and the directory over all of them.

use std::sync::Arc;

use cell_fabric::ConnectionId;
use cell_pair::{Fences, Pair, PairError};
use cell_protocol::RequestHeader;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, PairId, SlotIndex};

use crate::backlog::{Backlog, Lane, WaitingMessage};
use crate::checkpoint::Checkpointing;
use crate::counters::BatchCounters;
use crate::directory::{Directory, MeganodeAt, Range};
use crate::latency::Arrival;
use crate::leave_step::LeaveStep;
use crate::log_wait::LogWait;
use crate::outbox::{Held, PairAt, ReplyList};

/// Why a place is looked at that has none: a place is named only while its pair is there.
const NO_PAIR: &str = "a place that is named has a pair";

/// Messages that wait for pairs' logs, over all pairs: past this, writes that would have to wait are refused.
pub(crate) const BACKLOG_BYTES_MAX: usize = 4 << 20;

/// Log that is kept for a copy, at most.
const KEPT_BYTES_MAX: u64 = 1 << 30;

/// What a reply depends on: a pair's watermark must have reached a CSN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dependence {
    pub(crate) pair: PairAt,
    pub(crate) csn: Csn,
}

impl Dependence {
    /// May leave at once. (It carries the watermark of the first pair that is there.)
    pub(crate) const NOTHING: Dependence = Dependence { pair: PairAt::NONE, csn: Csn::ZERO };

    pub(crate) fn on(pair: PairAt, csn: Csn) -> Dependence {
        Dependence { pair, csn }
    }
}

/// A pair in its worker's hands.
#[derive(Debug)]
pub(crate) struct OwnedPair {
    pub(crate) pair: Pair,
    pub(crate) held: Held,
    pub(crate) checkpointing: Checkpointing,
    pub(crate) batches: BatchCounters,
    pub(crate) submitted_ns: u64,
    /// How long its log has waited for the disk.
    pub(crate) log_wait: LogWait,
    /// Writes that wait for the pair's log, or for a check of it.
    pub(crate) backlog: Backlog,
    /// How far it is, if it leaves.
    pub(crate) leaving: Option<LeaveStep>,
    /// It leaves by a planned move: once it is frozen it waits for a word with this ticket.
    pub(crate) ticket: Option<u64>,
    /// Its log is kept for a copy.
    keeps_log: bool,
    /// The disk has little room.
    disk_is_short: bool,
}

impl OwnedPair {
    /// Whether it leaves, and no more steps of splits are taken in it.
    pub(crate) fn is_unlisted(&self) -> bool {
        self.leaving.as_ref().is_some_and(LeaveStep::is_unlisted)
    }

    /// What the disk has left.
    pub(crate) fn note_disk(&mut self, disk_free: Option<u64>) {
        let (_, segment_bytes) = self.pair.log_bytes_closed();
        let needed = || self.pair.live_bytes() + 2 * segment_bytes;
        self.disk_is_short = disk_free.is_some_and(|free| free < needed());
    }

    /// Whether the disk may have no room for its next checkpoint.
    pub(crate) fn is_disk_short(&self) -> bool {
        self.disk_is_short && self.pair.has_log()
    }

    /// Looks how long its log has waited for the disk.
    pub(crate) fn watch_log(&mut self, now_ns: u64) {
        self.log_wait.look(self.pair.id(), self.pair.is_log_busy(), self.pair.durable(), now_ns);
    }

    /// Its log is to be kept for a copy, or not.
    pub(crate) fn keep_log(&mut self, keep: bool) {
        self.keeps_log = keep;
    }

    /// Whether what a checkpoint covers of its log stays: for a copy, as long as that costs little. A copy
    /// that misses it begins anew.
    pub(crate) fn keeps_log(&self) -> bool {
        let (closed_bytes, _) = self.pair.log_bytes_closed();
        let is_cheap = closed_bytes <= KEPT_BYTES_MAX;
        let is_short = self.disk_is_short || self.pair.is_log_short() || self.pair.needs_reclaim();
        self.keeps_log && is_cheap && !is_short
    }
}

/// A reply that depends on several pairs.
#[derive(Debug)]
struct Joint {
    connection: ConnectionId,
    arrival: Arrival,
    needs: Vec<Dependence>,
    bytes: Vec<u8>,
}

/// What the directory says of a pair at a place.
pub(crate) fn ranges_of(pair: &Pair, at: PairAt) -> Result<Vec<Range>, PairError> {
    let range = |(slot, fences): (SlotIndex, Fences)| {
        // What comes to it by a merge is its own once it takes writes: the other one may be there still.
        let is_closed = pair.split_table().is_closed(slot) && !planted(Mutant::MergedRangeUnclipped);
        let merge = pair.split_table().target_of(slot).filter(|_| is_closed);
        let high = merge.map_or(fences.high, |(_, split)| Some(split.low.clone()));
        Range { low: fences.low, high, at: MeganodeAt { pair: at, slot } }
    };
    Ok(pair.fences()?.into_iter().map(range).collect())
}

/// See the module's text. A pair keeps its place until it leaves; then the place is for the next one that
/// comes.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// By place.
    list: Vec<Option<OwnedPair>>,
    /// The places that have a pair, ascending.
    places: Arc<[PairAt]>,
    pub(crate) directory: Directory,
    /// Replies that may leave, of all pairs.
    pub(crate) ready: ReplyList,
    joint: Vec<Joint>,
    backlog_bytes: usize,
}

impl Pairs {
    /// Takes a pair in; its meganodes enter the directory, but for those in `hidden`.
    pub(crate) fn add(&mut self, pair: Pair, now_ns: u64, ranges: impl IntoIterator<Item = Range>) -> PairAt {
        let at = self.next_at();
        let mut checkpointing = Checkpointing::new(now_ns);
        checkpointing.begin_serving(pair.checkpointed(), pair.recoveries(), now_ns);
        let owned = OwnedPair {
            held: Held::new(pair.visible()),
            checkpointing,
            batches: BatchCounters::new(),
            submitted_ns: now_ns,
            log_wait: LogWait::new(pair.durable(), now_ns),
            backlog: Backlog::default(),
            leaving: None,
            ticket: None,
            keeps_log: false,
            disk_is_short: false,
            pair,
        };
        match self.list.get_mut(at.index()) {
            Some(place) => *place = Some(owned),
            None => self.list.push(Some(owned)),
        }
        self.list_places();
        ranges.into_iter().for_each(|range| self.directory.insert(range));
        at
    }

    /// Where the next pair will be.
    pub(crate) fn next_at(&self) -> PairAt {
        let free = self.list.iter().position(Option::is_none).unwrap_or(self.list.len());
        u16::try_from(free)
            .map(PairAt)
            .ok()
            .filter(|at| *at != PairAt::NONE)
            .expect("a worker owns few pairs")
    }

    /// A pair leaves, and nothing names its place any more.
    pub(crate) fn remove(&mut self, at: PairAt) -> OwnedPair {
        let owned = self.list[at.index()].take().expect(NO_PAIR);
        self.list_places();
        owned
    }

    fn list_places(&mut self) {
        let places = (0..u16::MAX).zip(&self.list).filter(|(_, place)| place.is_some());
        self.places = places.map(|(at, _)| PairAt(at)).collect();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The first place whose pair does not leave: what is answered without a pair waits for none that does.
    #[inline]
    pub(crate) fn first(&self) -> PairAt {
        self.staying().next().unwrap_or(PairAt::NONE)
    }

    /// The pair at a place, if there is one.
    #[inline]
    pub(crate) fn known(&self, at: PairAt) -> Option<&OwnedPair> {
        self.list.get(at.index())?.as_ref()
    }

    #[inline]
    pub(crate) fn get(&self, at: PairAt) -> &OwnedPair {
        self.list[at.index()].as_ref().expect(NO_PAIR)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: PairAt) -> &mut OwnedPair {
        self.list[at.index()].as_mut().expect(NO_PAIR)
    }

    #[inline]
    pub(crate) fn pair(&self, at: PairAt) -> &Pair {
        &self.get(at).pair
    }

    #[inline]
    pub(crate) fn pair_mut(&mut self, at: PairAt) -> &mut Pair {
        &mut self.get_mut(at).pair
    }

    /// The places that have a pair, as of now.
    pub(crate) fn all(&self) -> impl Iterator<Item = PairAt> + use<> {
        let places = self.places.clone();
        (0..places.len()).map(move |index| places[index])
    }

    /// Those of them whose pairs do not leave.
    pub(crate) fn staying(&self) -> impl Iterator<Item = PairAt> + '_ {
        let stays = |at: &PairAt| self.get(*at).leaving.is_none() || planted(Mutant::SplitWhileLeaving);
        self.places.iter().copied().filter(stays)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &OwnedPair> {
        self.list.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut OwnedPair> {
        self.list.iter_mut().flatten()
    }

    /// Where a pair is, by its name.
    pub(crate) fn at(&self, pair: PairId) -> Option<PairAt> {
        self.places.iter().copied().find(|at| self.pair(*at).id() == pair)
    }

    /// The meganode that a key is in.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<MeganodeAt> {
        self.directory.find(key)
    }

    /// The list for a reply with this dependence: it leaves at once, or with its pair's batch.
    #[inline]
    pub(crate) fn list(&mut self, depends_on: Dependence) -> &mut ReplyList {
        match self.list.get_mut(depends_on.pair.index()) {
            Some(Some(pair)) => pair.held.list(depends_on.csn, &mut self.ready),
            _ => &mut self.ready,
        }
    }

    /// Whether replies wait that depend on a pair, or carry its watermark.
    pub(crate) fn have_replies_of(&self, at: PairAt) -> bool {
        let needs = |joint: &Joint| joint.needs.iter().any(|need| need.pair == at);
        self.get(at).held.len() > 0 || self.ready.has_any_of(at) || self.joint.iter().any(needs)
    }

    /// Queues a reply that depends on several pairs; it carries the watermark of the first.
    pub(crate) fn push_joint(
        &mut self,
        connection: ConnectionId,
        arrival: Arrival,
        needs: Vec<Dependence>,
        bytes: Vec<u8>,
    ) {
        self.joint.push(Joint { connection, arrival, needs, bytes });
        self.release_joint();
    }

    /// What may be seen of a pair has grown.
    pub(crate) fn raise(&mut self, at: PairAt) {
        let owned = self.list[at.index()].as_mut().expect(NO_PAIR);
        let visible = owned.pair.visible();
        owned.held.raise(visible, &mut self.ready);
        if !self.joint.is_empty() {
            self.release_joint();
        }
    }

    fn release_joint(&mut self) {
        let (list, ready) = (&self.list, &mut self.ready);
        self.joint.retain(|joint| {
            let visible = |at: PairAt| list[at.index()].as_ref().expect(NO_PAIR).pair.visible();
            let met = |need: &Dependence| visible(need.pair) >= need.csn;
            let needs = &joint.needs;
            let leaves = needs.iter().all(met) || planted(Mutant::JointNotHeld) && needs.iter().any(met);
            if leaves {
                let pair = joint.needs.first().map_or(PairAt::NONE, |need| need.pair);
                let Joint { connection, arrival, bytes: reply, .. } = joint;
                ready.push(*connection, pair, *arrival, |bytes| bytes.extend_from_slice(reply));
            }
            !leaves
        });
    }

    /// Nothing that waits may leave any more.
    pub(crate) fn drop_replies(&mut self) {
        self.ready.clear();
        self.joint.clear();
        for pair in self.iter_mut() {
            pair.held = Held::new(Csn::ZERO);
        }
    }

    /// Gives back what large replies have taken and nobody needed lately.
    pub(crate) fn trim_replies(&mut self) {
        self.ready.trim();
        self.iter_mut().for_each(|pair| pair.held.trim());
    }

    /// Replies that wait for a log.
    pub(crate) fn held(&self) -> usize {
        self.joint.len() + self.iter().map(|pair| pair.held.len()).sum::<usize>()
    }

    /// `is_single`: its connection has nothing else waiting so.
    pub(crate) fn push_backlog(&mut self, at: PairAt, waiting: WaitingMessage, is_single: bool) {
        self.backlog_bytes += waiting_bytes(&waiting.message);
        self.get_mut(at).backlog.push(waiting, is_single);
    }

    pub(crate) fn unpop_backlog(&mut self, at: PairAt, waiting: WaitingMessage, lane: Lane) {
        self.backlog_bytes += waiting_bytes(&waiting.message);
        self.get_mut(at).backlog.unpop(waiting, lane);
    }

    pub(crate) fn pop_backlog(&mut self, at: PairAt) -> Option<(WaitingMessage, Lane)> {
        let (waiting, lane) = self.get_mut(at).backlog.pop()?;
        self.backlog_bytes -= waiting_bytes(&waiting.message);
        Some((waiting, lane))
    }

    /// What waits for pairs' logs, over all pairs.
    pub(crate) fn backlog_bytes(&self) -> usize {
        self.backlog_bytes
    }

    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog_bytes > 0
    }
}

/// What a waiting message counts for: small ones are no cheaper to keep than this.
pub(crate) fn waiting_bytes(message: &[u8]) -> usize {
    message.len() + 64 + size_of::<RequestHeader>()
}
