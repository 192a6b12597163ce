//! The pairs that a worker owns, each with what waits for its log, and the directory over all of them.

use std::collections::VecDeque;

use cell_fabric::ConnectionId;
use cell_pair::Pair;
use cell_protocol::RequestHeader;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, PairId};

use crate::checkpoint::Checkpointing;
use crate::counters::BatchCounters;
use crate::directory::{Directory, MeganodeAt, Range};
use crate::latency::Arrival;
use crate::outbox::{Held, PairAt, ReplyList};

/// Messages that wait for pairs' logs, over all pairs: past this, writes that would have to wait are refused.
pub(crate) const BACKLOG_BYTES_MAX: usize = 4 << 20;

/// What a reply depends on: a pair's watermark must have reached a CSN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dependence {
    pub(crate) pair: PairAt,
    pub(crate) csn: Csn,
}

impl Dependence {
    /// May leave at once. (It carries the watermark of the first pair.)
    pub(crate) const NOTHING: Dependence = Dependence { pair: PairAt(0), csn: Csn::ZERO };

    pub(crate) fn on(pair: PairAt, csn: Csn) -> Dependence {
        Dependence { pair, csn }
    }
}

/// A client's message that has to be handled later.
#[derive(Debug)]
pub(crate) struct WaitingMessage {
    pub(crate) connection: ConnectionId,
    /// When it came.
    pub(crate) arrived_ns: u64,
    pub(crate) message: Vec<u8>,
}

/// A pair in its worker's hands.
#[derive(Debug)]
pub(crate) struct OwnedPair {
    pub(crate) pair: Pair,
    pub(crate) held: Held,
    pub(crate) checkpointing: Checkpointing,
    pub(crate) batches: BatchCounters,
    pub(crate) submitted_ns: u64,
    /// Writes that wait for the pair's log, or for a check of it, in their order.
    pub(crate) backlog: VecDeque<WaitingMessage>,
}

/// A reply that depends on several pairs.
#[derive(Debug)]
struct Joint {
    connection: ConnectionId,
    arrival: Arrival,
    needs: Vec<Dependence>,
    bytes: Vec<u8>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    list: Vec<OwnedPair>,
    pub(crate) directory: Directory,
    /// Replies that may leave, of all pairs.
    pub(crate) ready: ReplyList,
    joint: Vec<Joint>,
    backlog_bytes: usize,
}

impl Pairs {
    /// Takes a pair in; its meganodes enter the directory, but for those in `hidden`.
    pub(crate) fn add(&mut self, pair: Pair, now_ns: u64, ranges: impl IntoIterator<Item = Range>) -> PairAt {
        let at = PairAt(u16::try_from(self.list.len()).expect("a worker owns few pairs"));
        let mut checkpointing = Checkpointing::new(now_ns);
        checkpointing.begin_serving(pair.checkpointed(), pair.recoveries(), now_ns);
        self.list.push(OwnedPair {
            held: Held::new(pair.visible()),
            checkpointing,
            batches: BatchCounters::new(),
            submitted_ns: now_ns,
            backlog: VecDeque::new(),
            pair,
        });
        ranges.into_iter().for_each(|range| self.directory.insert(range));
        at
    }

    /// Where the next pair will be.
    pub(crate) fn next_at(&self) -> PairAt {
        PairAt(u16::try_from(self.list.len()).expect("a worker owns few pairs"))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub(crate) fn get(&self, at: PairAt) -> &OwnedPair {
        &self.list[at.index()]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: PairAt) -> &mut OwnedPair {
        &mut self.list[at.index()]
    }

    #[inline]
    pub(crate) fn pair(&self, at: PairAt) -> &Pair {
        &self.list[at.index()].pair
    }

    #[inline]
    pub(crate) fn pair_mut(&mut self, at: PairAt) -> &mut Pair {
        &mut self.list[at.index()].pair
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = PairAt> + use<> {
        (0..u16::try_from(self.list.len()).unwrap_or(u16::MAX)).map(PairAt)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &OwnedPair> {
        self.list.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut OwnedPair> {
        self.list.iter_mut()
    }

    /// Where a pair is, by its name.
    pub(crate) fn at(&self, pair: PairId) -> Option<PairAt> {
        self.all().find(|at| self.pair(*at).id() == pair)
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
            Some(pair) => pair.held.list(depends_on.csn, &mut self.ready),
            None => &mut self.ready,
        }
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
        let owned = &mut self.list[at.index()];
        let visible = owned.pair.visible();
        owned.held.raise(visible, &mut self.ready);
        if !self.joint.is_empty() {
            self.release_joint();
        }
    }

    fn release_joint(&mut self) {
        let (list, ready) = (&self.list, &mut self.ready);
        self.joint.retain(|joint| {
            let met = |need: &Dependence| list[need.pair.index()].pair.visible() >= need.csn;
            let needs = &joint.needs;
            let leaves = needs.iter().all(met) || planted(Mutant::JointNotHeld) && needs.iter().any(met);
            if leaves {
                let pair = joint.needs.first().map_or(PairAt(0), |need| need.pair);
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
        for pair in &mut self.list {
            pair.held = Held::new(Csn::ZERO);
        }
    }

    /// Gives back what large replies have taken and nobody needed lately.
    pub(crate) fn trim_replies(&mut self) {
        self.ready.trim();
        self.list.iter_mut().for_each(|pair| pair.held.trim());
    }

    /// Replies that wait for a log.
    pub(crate) fn held(&self) -> usize {
        self.joint.len() + self.list.iter().map(|pair| pair.held.len()).sum::<usize>()
    }

    pub(crate) fn push_backlog(&mut self, at: PairAt, waiting: WaitingMessage) {
        self.backlog_bytes += waiting_bytes(&waiting.message);
        self.list[at.index()].backlog.push_back(waiting);
    }

    pub(crate) fn unpop_backlog(&mut self, at: PairAt, waiting: WaitingMessage) {
        self.backlog_bytes += waiting_bytes(&waiting.message);
        self.list[at.index()].backlog.push_front(waiting);
    }

    pub(crate) fn pop_backlog(&mut self, at: PairAt) -> Option<WaitingMessage> {
        let waiting = self.list[at.index()].backlog.pop_front()?;
        self.backlog_bytes -= waiting_bytes(&waiting.message);
        Some(waiting)
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
