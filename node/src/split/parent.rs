//! The parent: the router meganode, its entries, and the root that leads to it.
//!
//! The router is built when the first meganode is split: durable before the root is set, so that nobody is
//! led to what a crash takes back. Entries are inserted one after another; repeating one changes nothing.

use std::collections::VecDeque;

use cell_pair::{NoRoom, WriteError};
use cell_recovery::SplitName;
use cell_terms::{Csn, PairId, Pointer, Root, SlotIndex};

use super::Splits;
use crate::outbox::PairAt;
use crate::worker::pairs::Pairs;

/// Whose node region has the lowest id.
const ROOT_PAIR: PairId = PairId(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ParentPhase {
    /// Nothing is on its way.
    #[default]
    Idle,
    /// The slot is taken, the first entry is to be inserted.
    Begun(SlotIndex),
    /// The router has its first entry; it must be durable before the root is set.
    Built(SlotIndex, Csn),
    /// The root is set; that must be durable before others rely on it.
    Setting(Csn),
    /// The first of the queue is inserted.
    Inserting(Csn),
}

/// An entry on its way into the router.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: SplitName,
    pub(super) low: Box<[u8]>,
    pub(super) to: Pointer,
    /// Its split's source is elsewhere: this notice asked for it, and goes when it is durable.
    pub(super) notice: Option<String>,
    /// The router is elsewhere: the revision of the notice that asks for it.
    pub(super) asked: Option<u64>,
}

/// Entries on their way into the router.
#[derive(Debug, Default)]
pub(super) struct Parents {
    queue: VecDeque<Entry>,
    phase: ParentPhase,
    lost_routers: Vec<(PairAt, SlotIndex)>,
}

impl Parents {
    pub(super) fn push(&mut self, name: SplitName, low: Box<[u8]>, to: Pointer) {
        self.queue.push_back(Entry { name, low, to, notice: None, asked: None });
    }

    /// An entry that a node without the router asks for.
    pub(super) fn push_noted(&mut self, name: SplitName, low: Box<[u8]>, to: Pointer, notice: String) {
        self.queue.push_back(Entry { name, low, to, notice: Some(notice), asked: None });
    }

    pub(super) fn queue(&self) -> impl Iterator<Item = &Entry> {
        self.queue.iter()
    }

    pub(super) fn queue_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.queue.iter_mut()
    }

    /// Takes the entries out that are where they belong.
    pub(super) fn take_done(&mut self, is_done: impl Fn(&Entry) -> bool) -> Vec<SplitName> {
        let (done, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.queue).into_iter().partition(is_done);
        self.queue = left.into();
        done.into_iter().map(|entry| entry.name).collect()
    }

    /// A router that nobody is led to.
    pub(super) fn free_router(&mut self, at: PairAt, slot: SlotIndex) {
        self.lost_routers.push((at, slot));
    }
}

/// The pair that keeps the root, the one with the lowest id of all; none if it is elsewhere.
pub(super) fn root_pair(pairs: &Pairs) -> Option<PairAt> {
    pairs.at(ROOT_PAIR)
}

impl Splits {
    pub(super) fn step_parents(&mut self, pairs: &mut Pairs) -> bool {
        self.parents.lost_routers.retain(|(at, slot)| !pairs.store_mut(*at).free_router(*slot));
        let Some(at) = root_pair(pairs) else { return false };
        let store = pairs.store_mut(at);
        let durable = store.durable();
        let next = match self.parents.phase {
            ParentPhase::Idle => {
                let Some(entry) = self.parents.queue.front() else { return false };
                match store.router() {
                    Some(router) => match store.route(router, &entry.low, entry.to) {
                        Ok(csn) => ParentPhase::Inserting(csn),
                        Err(error) => return self.not_routed(error),
                    },
                    None => {
                        let Some(slot) = store.free_slots().next() else { return false };
                        if !store.begin_router(slot) {
                            return false;
                        }
                        ParentPhase::Begun(slot)
                    }
                }
            }
            ParentPhase::Begun(slot) => {
                let first = store.root().pointer;
                match store.route(slot, &[], first) {
                    Ok(csn) => ParentPhase::Built(slot, csn),
                    Err(error) => return self.not_routed(error),
                }
            }
            ParentPhase::Built(slot, csn) if csn <= durable => {
                let root = Root::router(store.pointer(slot));
                match store.set_root(root) {
                    Some(csn) => ParentPhase::Setting(csn),
                    None => return false,
                }
            }
            ParentPhase::Setting(csn) if csn <= durable => ParentPhase::Idle,
            ParentPhase::Inserting(csn) if csn <= durable => {
                if let Some(entry) = self.parents.queue.pop_front() {
                    match entry.notice {
                        Some(notice) => self.notices.is_inserted(notice),
                        None => self.source_inserted(entry.name),
                    }
                }
                ParentPhase::Idle
            }
            ParentPhase::Built(..) | ParentPhase::Setting(_) | ParentPhase::Inserting(_) => return false,
        };
        self.parents.phase = next;
        true
    }

    /// An entry that finds no room stays pending: readers go by right links.
    fn not_routed(&mut self, error: WriteError) -> bool {
        match error {
            WriteError::NoRoom(NoRoom::LogBusy | NoRoom::DiskFull) => {}
            WriteError::NoRoom(NoRoom::Slot | NoRoom::Region) => {
                tracing::warn!("the router is full: readers go by right links");
            }
            WriteError::Pair(error) => self.broken = Some(error),
        }
        false
    }
}
