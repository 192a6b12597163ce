//! The parent: the router meganode, its entries, and the root that leads to it.
//!
//! The router is built when the first meganode is split: durable before the root is set, so that nobody is
//! led to what a crash takes back. Entries are inserted one after another; repeating one changes nothing. One
//! that finds the router full waits, and those that go come before it.

use std::collections::VecDeque;

use cell_pair::{NoRoom, Pair, WriteError};
use cell_recovery::SplitName;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, PairId, Pointer, Root, SlotIndex};

use super::effects::{Effects, SplitMessage};
use super::notice_row::NotedEntry;
use crate::outbox::PairAt;
use crate::pairs::Pairs;

/// Whose node region has the lowest id.
const ROOT_PAIR: PairId = PairId(1);

/// How far the first entry of the queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RoutingStep {
    /// Nothing is on its way.
    #[default]
    Idle,
    /// The slot is taken, the first entry is to be inserted.
    Started(SlotIndex),
    /// The router has its first entry; it must be durable before the root is set.
    Built(SlotIndex, Csn),
    /// The root is set; that must be durable before others rely on it.
    Setting(Csn),
    /// The first of the queue is inserted.
    Inserting(Csn),
}

/// An entry on its way into the router.
#[derive(Debug)]
pub(super) struct ParentEntry {
    pub(super) name: SplitName,
    pub(super) low: Box<[u8]>,
    pub(super) to: Pointer,
    /// The meganode that is gone by a merge: an entry that leads there goes.
    pub(super) gone: Option<Pointer>,
    /// Its split's source is elsewhere: this notice asked for it, and goes when it is durable.
    pub(super) notice: Option<String>,
    /// The router is elsewhere: the revision of the notice that asks for it.
    pub(super) asked: Option<u64>,
    /// That notice is being written.
    pub(super) is_asking: bool,
}

/// Entries on their way into the router.
#[derive(Debug, Default)]
pub(super) struct Parents {
    queue: VecDeque<ParentEntry>,
    step: RoutingStep,
    /// The router had no room for an entry, and has taken none since.
    is_full: bool,
    lost_routers: Vec<(PairAt, SlotIndex)>,
}

/// The pair that keeps the root, the one with the lowest id of all; none if it is elsewhere.
pub(super) fn root_pair(pairs: &Pairs) -> Option<PairAt> {
    pairs.at(ROOT_PAIR)
}

impl Parents {
    pub(super) fn push(&mut self, name: SplitName, low: Box<[u8]>, to: Pointer, gone: Option<Pointer>) {
        let (notice, asked, is_asking) = (None, None, false);
        self.queue.push_back(ParentEntry { name, low, to, gone, notice, asked, is_asking });
    }

    /// An entry that a node without the router asks for.
    pub(super) fn push_noted(&mut self, name: SplitName, entry: NotedEntry, notice: String) {
        let NotedEntry { low, to, gone } = entry;
        let (low, notice, asked, is_asking) = (low.into(), Some(notice), None, false);
        self.queue.push_back(ParentEntry { name, low, to, gone, notice, asked, is_asking });
    }

    pub(super) fn queue(&self) -> impl Iterator<Item = &ParentEntry> {
        self.queue.iter()
    }

    pub(super) fn queue_mut(&mut self) -> impl Iterator<Item = &mut ParentEntry> {
        self.queue.iter_mut()
    }

    /// Takes the entries out that are where they belong.
    pub(super) fn take_done(&mut self, is_done: impl Fn(&ParentEntry) -> bool) -> Vec<SplitName> {
        let (done, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.queue).into_iter().partition(is_done);
        self.queue = left.into();
        done.into_iter().map(|entry| entry.name).collect()
    }

    /// Whether entries are on their way.
    pub(super) fn is_busy(&self) -> bool {
        !self.queue.is_empty() || self.step != RoutingStep::Idle
    }

    /// A pair leaves. If it has the router, entries are asked for by notices from here on.
    pub(super) fn forget_pair(&mut self, at: PairAt) {
        self.lost_routers.retain(|(of, _)| *of != at);
    }

    /// A router that nobody is led to.
    pub(super) fn free_router(&mut self, at: PairAt, slot: SlotIndex) {
        self.lost_routers.push((at, slot));
    }

    /// Whether the first entry is in the router for good. That one is gone must not be undone by a bit: its
    /// slot is used again.
    fn is_settled(&self, pair: &mut Pair, csn: Csn) -> bool {
        let goes = self.queue.front().is_some_and(|entry| entry.gone.is_some());
        if goes && csn <= pair.durable() && !planted(Mutant::UnroutedToldUnsealed) {
            pair.want_seal(csn);
            return csn <= pair.sealed();
        }
        csn <= pair.durable()
    }

    /// Takes the first entry a step further, where the router is. Whether it went on.
    pub(super) fn step(&mut self, pairs: &mut Pairs, effects: &mut Effects) -> bool {
        self.lost_routers.retain(|(at, slot)| !pairs.pair_mut(*at).free_router(*slot));
        let Some(at) = root_pair(pairs).filter(|at| !pairs.get(*at).is_unlisted()) else { return false };
        let pair = pairs.pair_mut(at);
        let durable = pair.durable();
        let next = match self.step {
            RoutingStep::Idle => match self.queue.front() {
                Some(entry) if !entry.is_asking => begin(pair, entry),
                _ => return false,
            },
            RoutingStep::Started(slot) => {
                let first = pair.root().pointer;
                pair.route(slot, &[], first).map(|csn| Some(RoutingStep::Built(slot, csn)))
            }
            RoutingStep::Built(slot, csn) if csn <= durable || planted(Mutant::RootSetEarly) => {
                let root = Root::router(pair.pointer(slot));
                Ok(pair.set_root(root).map(RoutingStep::Setting))
            }
            RoutingStep::Setting(csn) if csn <= durable || planted(Mutant::RouteAddedEarly) => {
                Ok(Some(RoutingStep::Idle))
            }
            RoutingStep::Inserting(csn) if self.is_settled(pair, csn) || planted(Mutant::RoutedToldEarly) => {
                if let Some(entry) = self.queue.pop_front() {
                    effects.send(SplitMessage::Routed { name: entry.name, notice: entry.notice });
                }
                Ok(Some(RoutingStep::Idle))
            }
            RoutingStep::Built(..) | RoutingStep::Setting(_) | RoutingStep::Inserting(_) => return false,
        };
        match next {
            Ok(Some(next)) => {
                if matches!(next, RoutingStep::Inserting(_)) {
                    self.is_full &= self.queue.front().is_some_and(|entry| entry.gone.is_some());
                }
                self.step = next;
                return true;
            }
            // An entry that finds no room stays pending: readers go by right links.
            Ok(None) | Err(WriteError::NoRoom(NoRoom::LogBusy | NoRoom::DiskFull)) => {}
            Err(WriteError::NoRoom(NoRoom::Slot | NoRoom::Region)) => return self.make_way(pair),
            Err(WriteError::Pair(error)) => effects.broken(error),
        }
        false
    }

    /// The router has no room for the first entry. It is compacted as soon as that may help, and an entry
    /// that goes comes first, unless it undoes one before it. Whether there is such.
    fn make_way(&mut self, pair: &mut Pair) -> bool {
        if !self.is_full {
            tracing::warn!("the router is full: readers go by right links");
        }
        // Once in any case: what was removed before a recovery is not counted.
        if let Some(router) = pair.router()
            && (!self.is_full || pair.may_be_sparse(router))
        {
            pair.put_back_sparse(router);
        }
        self.is_full = true;
        let undoes = |at: usize, low: &[u8]| self.queue.iter().take(at).any(|before| *before.low == *low);
        let comes_first = |(at, entry): &(usize, &ParentEntry)| {
            entry.gone.is_some() && (!undoes(*at, &entry.low) || planted(Mutant::RouteOvertaken))
        };
        let next = self.queue.iter().enumerate().skip(1).find(comes_first).map(|(at, _)| at);
        let Some(removal) = next.and_then(|at| self.queue.remove(at)) else { return false };
        self.queue.push_front(removal);
        true
    }
}

/// Inserts an entry, or begins the router that it needs; `None` where there is no room for one now.
fn begin(pair: &mut Pair, entry: &ParentEntry) -> Result<Option<RoutingStep>, WriteError> {
    if let (Some(gone), router) = (entry.gone, pair.router()) {
        // Without a router nobody is led to what is gone.
        let removed = router.map_or(Ok(pair.durable()), |router| pair.unroute(router, &entry.low, gone));
        return removed.map(|csn| Some(RoutingStep::Inserting(csn)));
    }
    if let Some(router) = pair.router() {
        return pair.route(router, &entry.low, entry.to).map(|csn| Some(RoutingStep::Inserting(csn)));
    }
    let slot = pair.free_slots().next();
    Ok(slot.filter(|slot| pair.begin_router(*slot)).map(RoutingStep::Started))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::tests::{RIGHT, SIZES, Story};

    #[test]
    fn router_that_is_started_keeps_its_pair_before_it_has_the_entry() {
        let started = Parents { step: RoutingStep::Setting(Csn(1)), ..Parents::default() };
        assert!(started.is_busy() && !Parents::default().is_busy());
    }

    #[test]
    fn lost_router_is_to_be_freed_as_long_as_its_pair_is_here() {
        let mut parents = Parents::default();
        parents.free_router(PairAt(1), SlotIndex(2));
        parents.forget_pair(PairAt(2));
        assert_eq!(parents.lost_routers, [(PairAt(1), SlotIndex(2))]);
        parents.forget_pair(PairAt(1));
        assert!(parents.lost_routers.is_empty());
    }

    /// Its pair came here meanwhile. The notice that comes later would bring the entry back once its meganode
    /// has been merged away.
    #[test]
    fn entry_whose_notice_is_being_written_is_inserted_once_the_outcome_is_known() {
        let Story { mut pairs, at, .. } = Story::begin(SIZES);
        let (mut parents, mut effects) = (Parents::default(), Effects::default());
        let to = pairs.pair(at).pointer(RIGHT);
        parents.push(SplitName::default(), b"low".as_slice().into(), to, None);
        parents.queue_mut().for_each(|entry| entry.is_asking = true);
        assert!(!parents.step(&mut pairs, &mut effects) && parents.step == RoutingStep::Idle);
        parents.queue_mut().for_each(|entry| entry.is_asking = false);
        while parents.step(&mut pairs, &mut effects) {}
        assert!(!parents.is_busy() && effects.messages.len() == 1);
        assert!(pairs.pair(at).router().is_some());
    }
}
