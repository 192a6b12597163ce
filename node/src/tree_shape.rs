//! The shape of a node's part of the tree, as its snapshots show it: the meganodes of entries in key order,
//! and the router. The worker looks at a bounded number of meganodes a tick, so a round over many takes
//! several; what a round found is published when it is over, and replaced only if another one found
//! otherwise.

use std::sync::Arc;

use cell_terms::{PairId, SlotIndex};

use crate::directory::MeganodeAt;
use crate::pairs::Pairs;

/// Meganodes that are looked at in one tick at most: each costs some cache misses.
const ROWS_A_TICK: usize = 64;
/// A round begins so long after the one before it.
const ROUND_NS: u64 = 1_000_000_000;

/// A meganode of entries that readers may enter.
#[derive(Clone, Debug, PartialEq)]
pub struct MeganodeShape {
    /// Its pair.
    pub pair: PairId,
    /// Its slot.
    pub slot: SlotIndex,
    /// Keys at or above this.
    pub low: Arc<[u8]>,
    /// Keys below this; `None` for plus infinity.
    pub high: Option<Arc<[u8]>>,
    /// Levels of tree nodes.
    pub height: u8,
    /// Tree nodes in use.
    pub nodes: u32,
    /// Tree nodes of the slot.
    pub nodes_all: u32,
    /// Entries.
    pub entries: u64,
    /// It is the source of a split that is not over.
    pub splitting: bool,
    /// Writes a second between the last two rounds; `None` when there was but one.
    pub writes_per_second: Option<f32>,
    /// Likewise, reads: searches, gets and pages of scans that the server carried out, and one-sided ones of
    /// which clients reported in the last two seconds. They report once a second, which is now before a
    /// round, now behind it.
    pub reads_per_second: Option<f32>,
}

/// The meganode that leads to the others, where the root leads to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterShape {
    /// Its pair.
    pub pair: PairId,
    /// Its slot.
    pub slot: SlotIndex,
    /// Levels of tree nodes.
    pub height: u8,
    /// Tree nodes in use.
    pub nodes: u32,
    /// Tree nodes of the slot.
    pub nodes_all: u32,
    /// Meganodes that it knows.
    pub entries: u64,
}

/// See the module's text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeShape {
    /// The pairs whose meganodes were looked at.
    pub pairs: Vec<PairId>,
    /// In the order of their low keys.
    pub meganodes: Vec<MeganodeShape>,
    /// If it is in a pair of this node.
    pub router: Option<RouterShape>,
}

/// A meganode's counters, and where they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counters {
    at: MeganodeAt,
    read_ns: u64,
    writes: u64,
    reads: u64,
    reported: Reported,
    /// Of the round before, if that found the meganode.
    reported_before: Option<Reported>,
}

/// One-sided reads that clients had reported, and when that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reported {
    reads: u64,
    at_ns: u64,
}

/// Goes round the meganodes.
#[derive(Debug, Default)]
pub(crate) struct TreeSampler {
    shape: Arc<TreeShape>,
    /// Of the published shape, by the same index.
    counters: Vec<Counters>,
    round: Option<Round>,
    due_ns: u64,
}

#[derive(Debug)]
struct Round {
    pairs: Vec<PairId>,
    meganodes: Vec<MeganodeShape>,
    counters: Vec<Counters>,
    /// Of the published shape, those below are behind the round.
    before: usize,
    changed: bool,
}

impl TreeSampler {
    /// What the last whole round found.
    pub(crate) fn shape(&self) -> Arc<TreeShape> {
        self.shape.clone()
    }

    /// Looks at what is next.
    pub(crate) fn tick(&mut self, pairs: &Pairs, now_ns: u64) {
        let mut round = match self.round.take() {
            Some(round) => round,
            // A pair that has come is looked at at once.
            None if now_ns < self.due_ns && self.shape.pairs.len() == pairs.len() => return,
            None => {
                self.due_ns = now_ns + ROUND_NS;
                let count = self.counters.len();
                let (meganodes, counters) = (Vec::with_capacity(count), Vec::with_capacity(count));
                let pairs = pairs.iter().map(|owned| owned.pair.id()).collect();
                Round { pairs, meganodes, counters, before: 0, changed: false }
            }
        };
        let last = round.meganodes.last().map(|last| last.low.clone());
        let left = pairs.directory.behind(last.as_deref());
        for range in left.iter().take(ROWS_A_TICK) {
            let known = self.known(&mut round.before, &range.low);
            let figures = pairs.pair(range.at.pair).meganode_figures(range.at.slot);
            let before = known.map(|known| self.counters[known]).filter(|before| before.at == range.at);
            let counters = Counters {
                at: range.at,
                read_ns: now_ns,
                writes: figures.writes,
                reads: figures.reads,
                reported: Reported { reads: figures.reported_reads, at_ns: now_ns },
                reported_before: before.map(|before| before.reported),
            };
            let known = known.map(|known| &self.shape.meganodes[known]);
            let kept = |key: &[u8], known: Option<&Arc<[u8]>>| {
                known.filter(|known| ***known == *key).map_or_else(|| Arc::from(key), Arc::clone)
            };
            let high = known.and_then(|known| known.high.as_ref());
            let rate = |count: fn(&Counters) -> u64| {
                before.map(|before| per_second(count(&before), count(&counters), now_ns - before.read_ns))
            };
            let reported = before.map_or(0.0, |before| reported_per_second(&before, &counters));
            let shape = MeganodeShape {
                pair: pairs.pair(range.at.pair).id(),
                slot: range.at.slot,
                low: kept(&range.low, known.map(|known| &known.low)),
                high: range.high.as_deref().map(|key| kept(key, high)),
                height: figures.height,
                nodes: number(figures.nodes),
                nodes_all: number(figures.nodes_all),
                entries: figures.entries,
                splitting: figures.splitting,
                writes_per_second: rate(|of| of.writes),
                reads_per_second: rate(|of| of.reads).map(|rate| rate + reported),
            };
            round.changed |= known != Some(&shape);
            round.meganodes.push(shape);
            round.counters.push(counters);
        }
        if left.len() > ROWS_A_TICK {
            self.round = Some(round);
        } else {
            self.finish(round, router(pairs));
        }
    }

    /// The published meganode that begins at a key, if there is one; those before it are passed.
    fn known(&self, before: &mut usize, low: &[u8]) -> Option<usize> {
        let rest = &self.shape.meganodes[*before..];
        *before += rest.iter().take_while(|known| *known.low < *low).count();
        self.shape.meganodes.get(*before).filter(|known| *known.low == *low).map(|_| *before)
    }

    fn finish(&mut self, round: Round, router: Option<RouterShape>) {
        let Round { pairs, meganodes, counters, changed, .. } = round;
        self.counters = counters;
        let same = meganodes.len() == self.shape.meganodes.len() && router == self.shape.router;
        if changed || !same || pairs != self.shape.pairs {
            self.shape = Arc::new(TreeShape { pairs, meganodes, router });
        }
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[allow(clippy::cast_possible_truncation, reason = "a rate for people")]
fn per_second(before: u64, now: u64, took_ns: u64) -> f32 {
    let rate = now.saturating_sub(before) as f64 * 1e9 / took_ns.max(1) as f64;
    rate as f32
}

/// Over two rounds, where so many have seen the meganode.
fn reported_per_second(before: &Counters, now: &Counters) -> f32 {
    let first = before.reported_before.unwrap_or(before.reported);
    per_second(first.reads, now.reported.reads, now.reported.at_ns - first.at_ns)
}

fn router(pairs: &Pairs) -> Option<RouterShape> {
    pairs.iter().find_map(|owned| {
        let slot = owned.pair.router()?;
        let figures = owned.pair.meganode_figures(slot);
        Some(RouterShape {
            pair: owned.pair.id(),
            slot,
            height: figures.height,
            nodes: number(figures.nodes),
            nodes_all: number(figures.nodes_all),
            entries: figures.entries,
        })
    })
}
