//! What goes wrong, and when: by the seed. Permitted are
//!
//! - death of the process at any moment, at any touch of the world, in a recovery, in a checkpoint: by a kill
//!   (its writes in flight land later, in part, or never), by a host gone dark, by a power cut (unsynced
//!   writes and names torn, reordered, lost);
//! - a disk that fails a write, a sync, a read, is slow, is full for a while, or answers a process no more;
//! - a process that is stopped, for a moment or past its lease while another host takes over; a worker or a
//!   client that is stopped within a step, between a look at its clock and what it does next;
//! - clocks of nodes and clients that drift, within the lease's margin;
//! - a network that delays, resets, and cuts one way or both, a client from a node or a node from everybody;
//! - a coordinator that is cut off, loses calls or answers, carries calls out late (writes to the region
//!   table very late), takes its time while other nodes go on, stands still for up to half a minute,
//!   restarts, and loses its power and with it what it had not synced;
//! - survivors that have no memory for a dead node's pairs;
//! - one host on which the log root is not mounted any more: who takes pairs over there finds nothing of
//!   them, until all processes are started once more at the end. Others, with memory for all pairs, see what
//!   there is;
//! - nodes that give one of their pairs up in order, and go on; operators that let pairs move between nodes,
//!   that drain nodes and take that back, add empty ones, and remove them for good;
//! - clients that die, are stopped, or are silent for a while; operators that stop a node, with a checkpoint
//!   or without.
//!
//! Not permitted, because no store could stand them: acknowledged bytes that change on the disk (only at the
//! very end, where a refusal is right), a disk that lies about a sync, clocks beyond the lease's margin.

use cell_cluster::Away;
use cell_random::Random;

use crate::plan::Plan;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process is killed.
    Kill,
    /// The host goes dark: peers receive nothing.
    Dark,
    /// The power fails.
    PowerCut,
    /// The power fails within a sequence of disk operations.
    PowerInOperation,
    /// The process dies at one of its next touches of disk or coordinator.
    DieAtTouch,
    /// The process dies in its next checkpoint.
    DieInCheckpoint,
    /// A write fails.
    WriteError,
    /// A sync fails.
    SyncError,
    /// A read fails.
    ReadError,
    /// The disk is full for a while.
    DiskFull,
    /// The disk is slow for a while.
    DiskSlow,
    /// The process is stopped for a moment.
    Pause,
    /// The process is stopped past its lease; another host takes over.
    PausePastLease,
    /// The disk answers the process no more, for good: after a while the operator ends it.
    DiskHang,
    /// A worker's thread is stopped within a step, for longer than freed memory rests.
    WorkerStall,
    /// A client is stopped, mostly within a step, for longer than freed memory rests; or than leases hold,
    /// and then mostly every node is stopped too.
    ClientStall,
    /// Connections are reset.
    Reset,
    /// Nothing passes between a client and a node, one way or both.
    Partition,
    /// A node is cut off from everybody, the coordinator included, one way or both, for about a lease or for
    /// much longer.
    Isolation,
    /// What a client has sent on its connection arrives much later, while it goes on on another.
    Stall,
    /// The network is at its worst for a while.
    Storm,
    /// Calls of the coordinator are lost, late or unanswered.
    CoordinatorFaults,
    /// What a node writes to the region table next is carried out much later, and meanwhile again.
    TableLate,
    /// The coordinator is out of reach for a while.
    CoordinatorCut,
    /// The coordinator restarts.
    CoordinatorRestart,
    /// The operator stops a node.
    Stop,
    /// Every process ends, each in its way; they are started again in any order.
    StopAll,
    /// A client dies, and another takes its place.
    ClientRestart,
    /// The coordinator's host loses its power, between two calls or within one, and gets it back some time
    /// later.
    CoordinatorPower,
    /// Clients ask nothing for a while: logs are sealed, sessions of the dead end, checkpoints come of age.
    Lull,
    /// A client is stopped, for a moment or for longer than freed memory rests or a lease holds.
    ClientPause,
    /// The coordinator's process stands still, for a moment or for many leases, and goes on.
    CoordinatorStill,
    /// The log root is not mounted on a host any more. Of a run one host loses it, and stays so.
    Unmounted,
    /// A node gives one of its pairs up in order, and goes on: another one, or it again, takes the pair over.
    Leave,
    /// A pair is to move to another node.
    Move,
    /// A node is to be emptied. The last one that is not stays.
    Drain,
    /// A node that drains, or was removed, may have pairs again.
    Undrain,
    /// One more node is wanted: it has no pairs.
    Join,
    /// A node that was emptied is removed for good. Another one may come in its place.
    Remove,
}

/// What happens later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undo {
    /// A fault is injected; its number among those of the run.
    Inject(Fault, usize),
    /// There is room on the disk again.
    Room,
    /// The network is as it was.
    CalmNetwork,
    /// One direction passes again.
    Unblock(u32, u32),
    /// The coordinator is reached again, by all.
    Mend,
    /// The coordinator is reached again from a host.
    MendOne(u32),
    /// The operator starts a node anew, because a pair of it is not served.
    Restart(u32),
    /// The coordinator's host has power again.
    PowerOn,
    /// The coordinator goes on.
    GoOn,
    /// The operator ends a process whose disk hangs.
    Unhang(u32),
    /// A write of a dead process lands.
    LandLate,
}

/// The coordinator is away once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwayOnce {
    /// After how many calls.
    pub calls: u64,
    /// How.
    pub how: Away,
    /// For how long.
    pub lasts_ns: u64,
}

/// All kinds, in the order of [`Plan::fault_weights`].
pub const FAULTS: [Fault; 39] = [
    Fault::Kill,
    Fault::Dark,
    Fault::PowerCut,
    Fault::PowerInOperation,
    Fault::DieAtTouch,
    Fault::DieInCheckpoint,
    Fault::WriteError,
    Fault::SyncError,
    Fault::ReadError,
    Fault::DiskFull,
    Fault::DiskSlow,
    Fault::Pause,
    Fault::PausePastLease,
    Fault::Reset,
    Fault::Partition,
    Fault::Isolation,
    Fault::Stall,
    Fault::Storm,
    Fault::CoordinatorFaults,
    Fault::TableLate,
    Fault::CoordinatorCut,
    Fault::CoordinatorRestart,
    Fault::Stop,
    Fault::StopAll,
    Fault::ClientRestart,
    Fault::Lull,
    Fault::ClientPause,
    Fault::DiskHang,
    Fault::WorkerStall,
    Fault::ClientStall,
    Fault::CoordinatorPower,
    Fault::CoordinatorStill,
    Fault::Unmounted,
    Fault::Leave,
    Fault::Move,
    Fault::Drain,
    Fault::Undrain,
    Fault::Join,
    Fault::Remove,
];

/// When the next fault is due: after a time or after a number of operations, whatever comes first, so that
/// faults come while nothing is served too.
#[derive(Debug)]
pub struct Faults {
    random: Random,
    weights: Vec<u64>,
    due_ns: u64,
    due_operations: u64,
    held_until_ns: u64,
    /// Operations when the last one was taken.
    taken_operations: u64,
}

/// Operations between two faults that come late.
const LATE_OPERATIONS: u64 = 50;

/// Whether operators drain nodes in a run.
#[must_use]
pub fn drains(plan: &Plan) -> bool {
    let drain = FAULTS.iter().position(|fault| *fault == Fault::Drain);
    drain.and_then(|kind| plan.fault_weights.get(kind)).is_some_and(|weight| *weight > 0)
}

impl Faults {
    /// The faults of a run.
    #[must_use]
    pub fn new(plan: &Plan, random: Random) -> Faults {
        let mut weights = plan.fault_weights.clone();
        // Every seed sees deaths.
        for always in [Fault::Kill, Fault::PowerCut] {
            let at = FAULTS.iter().position(|fault| *fault == always).unwrap_or(0);
            weights[at] = weights[at].max(2);
        }
        let mut faults =
            Faults { random, weights, due_ns: 0, due_operations: 0, held_until_ns: 0, taken_operations: 0 };
        faults.plan_next(plan, 0, 0);
        faults
    }

    /// The fault that is due, if one is.
    pub fn take(&mut self, plan: &Plan, now_ns: u64, operations: u64) -> Option<Fault> {
        // Who has had few by the time that all has been asked gets the rest at once.
        let late = operations >= plan.operations && operations >= self.taken_operations + LATE_OPERATIONS;
        let held = now_ns < self.held_until_ns;
        if !late && (held || (now_ns < self.due_ns && operations < self.due_operations)) {
            return None;
        }
        self.taken_operations = operations;
        self.plan_next(plan, now_ns, operations);
        Some(FAULTS[self.random.weighted(&self.weights)])
    }

    /// No other begins before this time: what takes long without one is to happen too.
    pub fn hold(&mut self, until_ns: u64) {
        self.held_until_ns = self.held_until_ns.max(until_ns);
    }

    /// When the next is due at the latest.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.due_ns.max(self.held_until_ns)
    }

    fn plan_next(&mut self, plan: &Plan, now_ns: u64, operations: u64) {
        self.due_ns = now_ns + self.random.between(1, 2 * plan.fault_gap_ns);
        self.due_operations = operations + self.random.between(1, 2 * plan.fault_gap_operations.max(1));
    }
}
