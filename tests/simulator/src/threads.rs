//! What the threads of a simulated process have in hand: the control thread, its helpers, the worker's.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cell_cluster::Ownership;
use cell_fabric::{Endpoint, SimEndpoint};
use cell_memory::Watermarks;
use cell_node::{
    Command, ControlDriver, ControlEvent, CopyJob, CopyRun, TakeoverQueue, TakeoverRun, Worker, WorkerDriver,
    WorkerInput,
};
use cell_pair::{ImageRun, SlotEnds};
use cell_recovery::image::ImageSource;
use cell_terms::{Incarnation, PairId};
use cell_wal::sim::SimDevice;

use crate::endpoint::WatchedEndpoint;

/// A pair that is being taken over, or created.
pub(crate) struct Taking {
    pub(crate) run: TakeoverRun,
    pub(crate) device: SimDevice,
    pub(crate) due_ns: u64,
}

/// A pair that is to move here: its copy.
pub(crate) struct Moving {
    pub(crate) job: CopyJob,
    pub(crate) run: CopyRun,
    pub(crate) device: SimDevice,
    pub(crate) due_ns: u64,
}

/// What a process has claimed and does not serve yet, and what it knows of the cluster.
#[derive(Default)]
pub(crate) struct Claims {
    /// Once it is a member.
    pub(crate) driver: Option<ControlDriver<SimDevice>>,
    /// Takeovers to come.
    pub(crate) jobs: TakeoverQueue,
    /// Those under way, side by side.
    pub(crate) taking: Vec<Taking>,
    pub(crate) growing: Option<Taking>,
    /// Copies of pairs that are to move here.
    pub(crate) copies: Vec<Moving>,
}

impl Claims {
    /// Whether pairs are being taken over.
    pub(crate) fn is_recovering(&self) -> bool {
        !self.taking.is_empty() || self.driver.as_ref().is_some_and(ControlDriver::is_gathering)
    }
}

/// An event that is on its way to the worker.
#[derive(Debug)]
pub(crate) enum Work {
    Command(Command),
    Event(ControlEvent),
}

pub(crate) struct Copying {
    pub(crate) pair: PairId,
    pub(crate) run: Box<ImageRun>,
    pub(crate) due_ns: u64,
}

/// A pair that the worker serves: what its shell keeps of it, and what the run's checks look at.
pub(crate) struct ServedPair {
    pub(crate) ownership: Ownership,
    /// Its memory.
    pub(crate) source: Arc<ImageSource>,
    pub(crate) ends: Arc<SlotEnds>,
    /// The watermarks that were last seen: they only grow within an epoch.
    pub(crate) watermarks: Option<Watermarks>,
}

/// The pairs that are frozen for moves, by the questions that they were frozen by. Of one pair a node may
/// have two at a time: one that it has handed over, and the same in a later epoch.
#[derive(Default)]
pub(crate) struct FrozenPairs(BTreeMap<u64, Ownership>);

impl FrozenPairs {
    pub(crate) fn froze(&mut self, ticket: u64, ownership: Ownership) {
        self.0.insert(ticket, ownership);
    }

    /// The pair that is served on, if it was frozen at all.
    pub(crate) fn thaws(&mut self, ticket: u64) -> Option<Ownership> {
        self.0.remove(&ticket)
    }
}

/// What the control thread works with.
#[derive(Default)]
pub(crate) struct Control {
    /// The pairs, once they are served, by their numbers.
    pub(crate) pairs: Vec<ServedPair>,
    pub(crate) frozen: FrozenPairs,
    pub(crate) queue: VecDeque<(u64, Work)>,
    pub(crate) copying: Vec<Copying>,
    /// Touches after which the process dies once the next checkpoint has started.
    pub(crate) dies_in_checkpoint: Option<(u64, bool)>,
    /// A checkpoint failed in the last step: the process may have died of it.
    pub(crate) ended_checkpoint: bool,
}

impl Control {
    /// The pair is served from here on.
    pub(crate) fn begin(&mut self, incarnation: Incarnation, source: Arc<ImageSource>, ends: Arc<SlotEnds>) {
        let ownership = Ownership { pair: source.pair, epoch: source.epoch, incarnation };
        self.pairs.push(ServedPair { ownership, source, ends, watermarks: None });
    }

    /// Takes a command of the worker's, to be carried out at some time.
    pub(crate) fn push(&mut self, due_ns: u64, command: Command) {
        self.queue.push_back((due_ns, Work::Command(command)));
    }
}

/// The production loop, over what is simulated.
pub(crate) type Driver = WorkerDriver<WatchedEndpoint, SimDevice>;

/// What clock and lease say at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) clock_ns: u64,
    pub(crate) lease_until_ns: u64,
}

/// What belongs to the worker's thread.
pub(crate) struct Serving {
    /// Listens, until there is a worker.
    pub(crate) endpoint: Option<SimEndpoint>,
    pub(crate) driver: Option<Driver>,
    /// What comes to the worker from its own process with its next turn.
    pub(crate) inputs: Vec<WorkerInput<SimDevice>>,
    /// The thread is not scheduled before this time: so messages gather.
    pub(crate) rests_until_ns: u64,
    /// The thread is to be stopped for so long within a step in which something happens.
    pub(crate) stall_ns: Option<u64>,
    /// It was stopped within the present step: what it had read before.
    pub(crate) stalled: Option<Reading>,
    /// Steps within which it was stopped.
    pub(crate) stalls: u64,
}

impl Serving {
    /// Without a worker: who connects waits.
    pub(crate) fn new(endpoint: SimEndpoint) -> Serving {
        Serving {
            endpoint: Some(endpoint),
            driver: None,
            inputs: Vec::new(),
            rests_until_ns: 0,
            stall_ns: None,
            stalled: None,
            stalls: 0,
        }
    }

    /// The worker, once there is one.
    pub(crate) fn worker(&self) -> Option<&Worker> {
        self.driver.as_ref().map(Driver::worker)
    }

    /// Delayed copies of writes that it turned away.
    pub(crate) fn below_floor(&self) -> u64 {
        self.driver.as_ref().map_or(0, |driver| driver.endpoint().below_floor)
    }

    /// Whether the network has something for the thread to take.
    pub(crate) fn has_input(&mut self) -> bool {
        match (&mut self.driver, &mut self.endpoint) {
            (Some(driver), _) => !driver.endpoint_mut().prepare_sleep(),
            (None, Some(endpoint)) => !endpoint.prepare_sleep(),
            (None, None) => false,
        }
    }

    /// When the next turn is due because of what the process itself has for the worker.
    pub(crate) fn inputs_due_ns(&self) -> u64 {
        if self.inputs.is_empty() { u64::MAX } else { self.rests_until_ns }
    }

    /// It is stopped within no step any more.
    pub(crate) fn go_on(&mut self) {
        self.stall_ns = None;
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::Epoch;

    use super::*;

    /// By the pair alone, the one that was handed over counted as served on, too.
    #[test]
    fn pair_of_two_epochs_is_served_on_in_the_one_that_was_frozen_by_this_question() {
        let of = |epoch| Ownership { pair: PairId(3), epoch: Epoch(epoch), incarnation: Incarnation(7) };
        let mut frozen = FrozenPairs::default();
        frozen.froze(1, of(2));
        frozen.froze(2, of(4));
        assert_eq!(frozen.thaws(2), Some(of(4)));
        assert_eq!((frozen.thaws(2), frozen.thaws(9)), (None, None), "it is served on, or was never frozen");
        assert_eq!(frozen.thaws(1), Some(of(2)));
    }
}
