//! The parent: the router meganode, its entries, and the root that leads to it.
//!
//! The router is built when the first meganode is split: durable before the root is set, so that nobody is
//! led to what a crash takes back. Entries are inserted one after another; repeating one changes nothing.

use std::collections::VecDeque;

use cell_recovery::SplitName;
use cell_terms::{Csn, Pointer, Root, SlotIndex};

use super::Splits;
use crate::outbox::PairAt;
use crate::store::{NoRoom, WriteError};
use crate::worker::pairs::Pairs;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
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

#[derive(Debug)]
struct Entry {
    name: SplitName,
    low: Box<[u8]>,
    to: Pointer,
}

/// Entries on their way into the router.
#[derive(Debug, Default)]
pub(super) struct Parents {
    queue: VecDeque<Entry>,
    phase: Phase,
    lost_routers: Vec<(PairAt, SlotIndex)>,
}

impl Parents {
    pub(super) fn push(&mut self, name: SplitName, low: Box<[u8]>, to: Pointer) {
        self.queue.push_back(Entry { name, low, to });
    }

    /// A router that nobody is led to.
    pub(super) fn free_router(&mut self, at: PairAt, slot: SlotIndex) {
        self.lost_routers.push((at, slot));
    }
}

/// The pair that keeps the root: the one with the lowest id.
pub(super) fn root_pair(pairs: &Pairs) -> Option<PairAt> {
    pairs.all().min_by_key(|at| pairs.store(*at).pair())
}

impl Splits {
    pub(super) fn step_parents(&mut self, pairs: &mut Pairs, now_ns: u64) -> bool {
        let Some(at) = root_pair(pairs) else { return false };
        self.parents.lost_routers.retain(|(at, slot)| !pairs.store_mut(*at).free_router(*slot, now_ns));
        let store = pairs.store_mut(at);
        let durable = store.durable();
        let next = match self.parents.phase {
            Phase::Idle => {
                let Some(entry) = self.parents.queue.front() else { return false };
                match store.router() {
                    Some(router) => match store.route(router, &entry.low, entry.to) {
                        Ok(csn) => Phase::Inserting(csn),
                        Err(error) => return self.not_routed(error),
                    },
                    None => {
                        let Some(slot) = store.free_slots().next() else { return false };
                        if !store.begin_router(slot) {
                            return false;
                        }
                        Phase::Begun(slot)
                    }
                }
            }
            Phase::Begun(slot) => {
                let first = store.root().pointer;
                match store.route(slot, &[], first) {
                    Ok(csn) => Phase::Built(slot, csn),
                    Err(error) => return self.not_routed(error),
                }
            }
            Phase::Built(slot, csn) if csn <= durable => {
                let root = Root::router(store.pointer(slot));
                match store.set_root(root) {
                    Some(csn) => Phase::Setting(csn),
                    None => return false,
                }
            }
            Phase::Setting(csn) if csn <= durable => Phase::Idle,
            Phase::Inserting(csn) if csn <= durable => {
                if let Some(entry) = self.parents.queue.pop_front() {
                    self.source_inserted(entry.name);
                }
                Phase::Idle
            }
            Phase::Built(..) | Phase::Setting(_) | Phase::Inserting(_) => return false,
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
            WriteError::Store(error) => self.broken = Some(error),
        }
        false
    }
}
