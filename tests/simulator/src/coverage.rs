//! What happened in a run, counted, so that a sweep can say what it never saw.

use crate::faults::{FAULTS, Fault};

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident: $text:literal),* $(,)?) => {
        /// Something that a sweep should have seen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Event { $($(#[$doc])* $name),* }

        impl Event {
            /// All of them.
            pub const ALL: &[Event] = &[$(Event::$name),*];

            /// In words.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Event::$name => $text),* }
            }
        }
    };
}

events! {
    /// Operations that ended.
    Operations: "operations",
    /// Faults that befell.
    Faults: "faults",
    /// Writes that were acknowledged.
    Acknowledged: "writes acknowledged",
    /// Writes whose client gave up.
    Unknown: "writes of unknown outcome",
    /// Conditions that did not hold.
    ConditionFailed: "conditions that failed",
    /// Entries, or absences, that reads returned.
    Reads: "reads of a key",
    /// Pages of scans.
    Pages: "pages of scans",
    /// Values that took chunks.
    Streams: "values in chunks",
    /// Writes refused for a full disk or region.
    ReadOnly: "writes refused for lack of room",
    /// Answers from the completion table.
    Repeated: "writes answered from the completion table",
    /// Delayed copies of acknowledged writes.
    BelowFloor: "delayed copies of acknowledged writes turned away",
    /// Takeovers that ended with a served pair.
    Recoveries: "recoveries",
    /// Takeovers in which the process died.
    RecoveryDied: "processes that died in a recovery",
    /// Takeovers that an injected fault made fail.
    RecoveryFailed: "recoveries that an injected error ended",
    /// Takeovers by a host that was not the last owner's.
    Survivor: "takeovers by another host",
    /// Takeovers by a process that had no memory for the pair.
    Declined: "takeovers declined for lack of memory",
    /// Hosts that lost their log root.
    Unmounted: "hosts on which the log root was not mounted",
    /// Takeovers there, which find nothing of a pair that is whole.
    Misread: "pairs that one host could not read",
    /// Pairs that stayed nobody's for lack of memory, each time that was found.
    Unplaced: "pairs that nobody had memory for",
    /// Runs in which a host took over from another.
    SurvivorRuns: "runs with a takeover by another host",
    /// Runs that acknowledge before the log has it.
    AsyncRuns: "runs with async durability",
    /// Runs in which pairs move by themselves.
    BalancedRuns: "runs with balance",
    /// Runs in which operators drain, add and remove nodes.
    DrainRuns: "runs with drains of nodes",
    /// Runs of several nodes.
    Clusters: "runs of several nodes",
    /// Recoveries from a checkpoint.
    FromCheckpoint: "recoveries from a checkpoint",
    /// Checkpoints recorded.
    Checkpoints: "checkpoints recorded",
    /// Deaths with a checkpoint in progress.
    CheckpointDied: "processes that died in a checkpoint",
    /// Checkpoints that failed.
    CheckpointFailed: "checkpoints that failed",
    /// Segments that logs had moved to, counted at the end of each life.
    Rotations: "log rotations",
    /// Tree nodes of recovered pairs.
    TreeNodes: "tree nodes recovered",
    /// Splits of meganodes that began.
    Splits: "splits of meganodes started",
    /// Splits that were finished.
    SplitsFinished: "splits of meganodes finished",
    /// Tree nodes that compactions after deletes gave back.
    CompactionsFreed: "tree nodes freed by compactions",
    /// Times that sparse slabs of extents were packed.
    Packings: "packings of extents",
    /// Empty meganodes that were merged into their left neighbours.
    Merges: "empty meganodes merged",
    /// Looks at all entries of the router when nothing was under way.
    RouterLooks: "routers looked through",
    /// Splits that were aborted.
    SplitsAborted: "splits of meganodes aborted",
    /// Deaths with a split in progress.
    SplitDied: "processes that died in a split",
    /// Unfinished splits that recoveries found.
    SplitsSettled: "unfinished splits found by recoveries",
    /// Meganodes of recovered pairs beyond the first.
    Meganodes: "further meganodes recovered",
    /// Pairs of recoveries beyond the first.
    MorePairs: "further pairs recovered",
    /// Killed processes.
    Kills: "processes killed",
    /// Dead hosts.
    Dark: "hosts gone dark",
    /// Power cuts.
    PowerCuts: "power cuts",
    /// Power cuts at some operation of the disk.
    PowerInOperation: "power cuts within a sequence of disk operations",
    /// Writes of the dead that landed later.
    LateWrites: "writes that landed after their process died",
    /// Deaths with log writes in flight: each may land whole, torn, late or never.
    InFlight: "deaths with log writes in flight",
    /// Armed EIO on a write.
    WriteErrors: "EIO on write armed",
    /// Armed EIO on a sync.
    SyncErrors: "EIO on sync armed",
    /// Armed EIO on a read.
    ReadErrors: "EIO on read armed",
    /// Poisoned logs.
    Poisoned: "logs poisoned",
    /// A full disk.
    DiskFull: "disks full",
    /// A slow disk.
    DiskSlow: "disks slow",
    /// Frozen processes.
    Pauses: "pauses",
    /// Disks that answer a process no more.
    DiskHung: "disks that hung for good",
    /// Workers stopped between a look at the clock and what they did next.
    WorkerStalls: "workers stopped within a step",
    /// Clients stopped between a look at the clock and what they did next.
    ClientStalls: "clients stopped within a step",
    /// Steps of other nodes between a node's call and its answer.
    Interleaved: "steps of nodes within calls of others",
    /// Frozen past the lease.
    LeaseLost: "leases lost",
    /// Connections reset.
    Resets: "resets",
    /// One-way and two-way partitions.
    Partitions: "partitions",
    /// Old connections that came to life behind new ones.
    Stalls: "stalled connections",
    /// Storms of the network.
    Storms: "network storms",
    /// Lost, late and unanswered calls of the coordinator.
    CoordinatorFaults: "coordinator calls lost, late or unanswered",
    /// Writes to the region table that are carried out late.
    TableLate: "writes to the region table made late",
    /// Cut links to the coordinator.
    CoordinatorCuts: "coordinator cut off",
    /// Restarts of the coordinator.
    CoordinatorRestarts: "coordinator restarts",
    /// Power cuts of the coordinator's host.
    CoordinatorPower: "power cuts of the coordinator",
    /// Coordinators that stood still.
    CoordinatorStill: "coordinator standing still",
    /// Workers whose lease had run out and held again.
    ServedOn: "workers that served on after their lease had run out",
    /// Pairs that left a node which went on.
    PairsLeft: "pairs that left their node in order",
    /// Pairs that were to leave, and did not: splits took too long, or there is no log.
    PairsStayed: "pairs that were to leave and stayed",
    /// Moves of pairs that operators asked for.
    MovesWanted: "moves of pairs asked for",
    /// Pairs that came by a move.
    Moved: "pairs that moved",
    /// Of those, pairs whose moves operators asked for.
    MovedByOperators: "pairs that moved because operators wanted it",
    /// Of those, pairs that moved away from a node that drained.
    MovedForDrains: "pairs that moved because their node drained",
    /// Of those, pairs that moved for balance.
    Balanced: "pairs that moved for balance",
    /// Of those, pairs that were made for the node that they moved to.
    MovedFresh: "pairs that moved because they were made for another node",
    /// Nodes that were to be emptied.
    DrainsStarted: "drains of nodes started",
    /// Drains of the last node that took pairs.
    DrainsRefused: "drains refused because no other node would be left",
    /// Nodes that a drain has emptied.
    Drained: "drains completed",
    /// Nodes that were not to be emptied any more, or might come back.
    DrainsEnded: "drains ended by operators",
    /// Nodes that were added.
    NodesJoined: "empty nodes added",
    /// Empty nodes that were removed.
    NodesRemoved: "nodes removed for good",
    /// Pairs that were frozen for a move and served on, or were to be.
    Thawed: "pairs that were to move and were served on",
    /// Pairs that went back after the handing.
    MovesBack: "pairs that went back after their handing",
    /// Pairs that went back, and whose source had their memory still.
    BackInMemory: "pairs that went back to the memory of their source",
    /// Moves that an end gave up.
    MovesGivenUp: "moves given up",
    /// Nodes cut off from everybody.
    Isolations: "nodes cut off from everybody",
    /// Those that received nothing, but could send.
    IsolationsIn: "nodes that received nothing but could send",
    /// Those that received, but could not send.
    IsolationsOut: "nodes that received but could not send",
    /// Stops of all processes at once.
    AllStopped: "all processes stopped",
    /// Clean stops.
    Stops: "clean stops",
    /// Answers that clients read themselves.
    OneSided: "answers read one-sided",
    /// Answers found in mapped memory.
    InPlace: "answers found in place",
    /// Gets and searches answered from mapped memory as they were asked.
    AtOnce: "gets and searches answered at once",
    /// Operations started one-sided and answered by the server.
    FellBack: "one-sided operations handed to the server",
    /// Tree nodes read while they changed.
    Torn: "torn tree nodes",
    /// Right links that clients followed.
    RightLinks: "right links followed one-sided",
    /// Nodes that were not what was meant.
    StaleNodes: "stale tree nodes met one-sided",
    /// Extents that were not their leaves'.
    ExtentsReused: "extents that were not their leaves'",
    /// Waits for a watermark.
    WatermarkWaits: "waits for a watermark",
    /// Waits for trust.
    TrustWaits: "waits for a lease",
    /// One-sided operations that took too long.
    Overruns: "one-sided operations that took too long",
    /// Reads of regions that had gone.
    KeysUnknown: "reads of regions that had gone",
    /// Frozen clients.
    ClientPauses: "client pauses",
    /// New clients in the place of old ones.
    ClientRestarts: "client restarts",
    /// Times without anything asked.
    Lulls: "lulls",
    /// Sessions ended for silence.
    SessionsEnded: "sessions ended",
    /// Checks of the whole pair by request.
    Checks: "checks of the whole pair",
    /// Flipped bits at the end.
    BitRot: "bits flipped in logs and images",
    /// Flipped bits that recovery refused.
    BitRotRefused: "flipped bits that recovery refused",
}

/// How often each happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    events: [u64; Event::ALL.len()],
    /// Faults that befell while a pair moved, by kind.
    in_moves: [u64; FAULTS.len()],
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage { events: [0; Event::ALL.len()], in_moves: [0; FAULTS.len()] }
    }
}

impl Coverage {
    /// It happened.
    pub fn saw(&mut self, event: Event) {
        self.add(event, 1);
    }

    /// It happened so many times.
    pub fn add(&mut self, event: Event, count: u64) {
        self.events[event as usize] += count;
    }

    /// How often.
    #[must_use]
    pub fn count(&self, event: Event) -> u64 {
        self.events[event as usize]
    }

    /// Adds another run's.
    pub fn merge(&mut self, other: &Coverage) {
        for (mine, theirs) in self.all_mut().zip(other.all()) {
            *mine += theirs;
        }
    }

    /// A fault befell while a pair moved.
    pub fn met_move(&mut self, fault: Fault) {
        let kind = FAULTS.iter().position(|known| *known == fault);
        kind.into_iter().for_each(|kind| self.in_moves[kind] += 1);
    }

    /// How often each kind of fault befell while a pair moved.
    pub fn in_moves(&self) -> impl Iterator<Item = (Fault, u64)> + '_ {
        FAULTS.into_iter().zip(self.in_moves.iter().copied())
    }

    fn all(&self) -> impl Iterator<Item = u64> + '_ {
        self.events.iter().chain(&self.in_moves).copied()
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.events.iter_mut().chain(&mut self.in_moves)
    }

    /// As one line of numbers: in the order of [`Event::ALL`], then in that of the kinds of faults.
    #[must_use]
    pub fn to_line(&self) -> String {
        let counts: Vec<String> = self.all().map(|count| count.to_string()).collect();
        counts.join(" ")
    }

    /// Reads what [`Coverage::to_line`] wrote.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Coverage> {
        let counts: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let mut coverage = Coverage::default();
        let is_whole = counts.len() == coverage.all().count();
        coverage.all_mut().zip(counts).for_each(|(mine, count)| *mine = count);
        is_whole.then_some(coverage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_round_trips() {
        let mut coverage = Coverage::default();
        coverage.add(Event::BitRotRefused, 7);
        coverage.saw(Event::Operations);
        coverage.met_move(Fault::Kill);
        assert_eq!(Coverage::from_line(&coverage.to_line()), Some(coverage));
        assert_eq!(Coverage::from_line("1 2"), None);
    }
}
