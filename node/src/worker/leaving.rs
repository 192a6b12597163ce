//! A pair leaves its worker, which lives and serves its other pairs (`docs/design/membership.md`, "A pair
//! leaves").
//!
//! 1. **Settling.** Splits in which the pair takes part come to their end, and so do its checkpoint and
//!    checks; none begins. Splits that take long and are not linked are aborted. If one of all these has no
//!    end in time, the pair stays. A checkpoint has time while its image goes on.
//! 2. **Unlisted.** Its registrations leave the list, whose number rises. It is read and written by messages
//!    until the longest trust that was granted by the old number has passed.
//! 3. **Frozen.** No operation of it begins. What was appended becomes durable, and what was answered leaves.
//!    A pair that leaves by a planned move stays so, in memory, until the control thread says that it is
//!    another's, or that it is served on: then it is, as if nothing had been.
//! 4. **Left.** Its memory, its log and its results are gone from here, and the control thread says so in the
//!    region table, with the CSN at which the logs end: the last one that was appended. Of a pair that was
//!    handed over the control thread gets the memory, should the pair come back.
//!
//! Nothing of the other pairs waits for it, or moves: places are stable.

use cell_protocol::PairRegions;
use cell_terms::PairId;
use cell_terms::mutant::{Mutant, planted};

use super::left_pairs::LeftPair;
use super::{Worker, WorkerPhase};
use crate::command::{Command, StayReason};
use crate::leave_step::LeaveStep;
use crate::outbox::PairAt;
use crate::pairs::ranges_of;
use crate::snapshot::FailureKind;

/// Splits of the pair have so long to come to their end. Those that are not linked after half of it are
/// aborted.
const SPLITS_NS: u64 = 1_000_000_000;
/// Its checkpoint and checks have so long. An image that goes on is waited for as long as that takes: of a
/// large pair on a slow disk many seconds. The pair is served meanwhile, and begins no splits.
const SETTLE_NS: u64 = 30_000_000_000;

/// Clocks of clients do not go as fast as this one: so many parts of what was granted are waited for once
/// more.
const TRUST_MARGIN_PARTS: u64 = 2;

/// After how long trust for this time has passed by every client's clock.
pub(crate) const fn trust_passed_ns(granted_ns: u64) -> u64 {
    granted_ns.saturating_add(granted_ns / TRUST_MARGIN_PARTS)
}

impl Worker {
    /// The pair is to leave, in order; by a planned move, if there is a ticket.
    pub(super) fn leave(&mut self, pair: PairId, ticket: Option<u64>) {
        let serving = self.phase == WorkerPhase::Serving;
        let Some(at) = self.pairs.at(pair).filter(|_| serving) else {
            return self.stays(pair, StayReason::NotServed);
        };
        let owned = self.pairs.get_mut(at);
        if owned.leaving.is_some() {
            if ticket.is_some() {
                self.stays(pair, StayReason::NotServed);
            }
            return;
        }
        if !owned.pair.has_log() {
            return self.stays(pair, StayReason::NoLog); // whoever came next would find nothing
        }
        let copied = (owned.pair.image_nodes_copied(), self.now_ns);
        owned.leaving = Some(LeaveStep::Settling { since_ns: self.now_ns, copied });
        owned.ticket = ticket;
        self.leaving.pairs += 1;
    }

    /// A pair that leaves by a planned move is another's by now.
    pub(super) fn handed(&mut self, pair: PairId, ticket: u64) {
        let Some(at) = self.moving_at(pair, ticket) else { return };
        if let Some(LeaveStep::Frozen { regions, .. }) = self.pairs.get(at).leaving.clone() {
            self.remove_pair(at, regions, true);
        }
    }

    /// A pair that was to leave by a planned move is served on. Nobody has had it meanwhile, so that its
    /// memory, its results and its registrations are what they were.
    pub(super) fn thaw(&mut self, pair: PairId, ticket: u64) {
        let Some(at) = self.moving_at(pair, ticket) else { return };
        let owned = self.pairs.get_mut(at);
        owned.ticket = None;
        let Some(step) = owned.leaving.take() else { return };
        self.leaving.pairs -= 1;
        let (regions, was_frozen) = match step {
            LeaveStep::Settling { .. } => (None, false),
            LeaveStep::Unlisted { regions, .. } => (regions, false),
            LeaveStep::Frozen { regions, .. } => (regions, true),
        };
        regions.into_iter().for_each(|regions| self.regions.insert(regions));
        if was_frozen {
            match ranges_of(self.pairs.pair(at), at) {
                Ok(ranges) => ranges.into_iter().for_each(|range| self.pairs.directory.insert(range)),
                Err(error) => {
                    tracing::error!(%error, "a pair that was frozen cannot be read");
                    return self.fail(FailureKind::RecoveryRefused);
                }
            }
            self.splits.install_pair(&mut self.pairs, at);
        }
        tracing::info!(pair = pair.0, was_frozen, "a pair that was to move is served on");
        self.has_work = true;
    }

    /// Where a pair is that leaves by this question of the control thread.
    fn moving_at(&self, pair: PairId, ticket: u64) -> Option<PairAt> {
        self.pairs.at(pair).filter(|at| self.pairs.get(*at).ticket == Some(ticket))
    }

    fn stays(&mut self, pair: PairId, why: StayReason) {
        self.commands.push(Command::Stays { pair, why });
    }

    /// Pairs that have left since this was asked last. Their numbers may be others' from now on.
    pub(crate) fn take_left(&mut self) -> Vec<LeftPair> {
        std::mem::take(&mut self.leaving.left)
    }

    /// Trust is granted for so long from now on.
    pub(super) fn note_trust(&mut self, trust_us: u32) {
        let granted_ns = u64::from(trust_us) * 1_000;
        let ends_ns = trust_passed_ns(granted_ns);
        let until_ns = &mut self.leaving.trusted_until_ns;
        *until_ns = (*until_ns).max(self.now_ns.saturating_add(ends_ns));
    }

    /// Takes each pair that leaves a step further.
    pub(super) fn step_leaving(&mut self) {
        if self.leaving.pairs == 0 {
            return;
        }
        for at in self.pairs.all() {
            match self.pairs.get(at).leaving.clone() {
                None => {}
                Some(LeaveStep::Settling { since_ns, copied }) => self.settle(at, since_ns, copied),
                Some(LeaveStep::Unlisted { until_ns, regions })
                    if self.now_ns >= until_ns || planted(Mutant::LeftWhileTrusted) =>
                {
                    self.freeze(at, regions);
                }
                Some(LeaveStep::Unlisted { .. } | LeaveStep::Frozen { .. }) => {}
            }
        }
    }

    /// Takes each frozen pair further of which nothing is in flight. It is asked right after a turn's replies
    /// have left, and not before: the thread may sleep until the next tick after a turn that did nothing else
    /// than send the last chunk of a value, and the pair is nobody's meanwhile.
    pub(super) fn step_frozen(&mut self) {
        if self.leaving.pairs == 0 || self.phase != WorkerPhase::Serving {
            return;
        }
        for at in self.pairs.all() {
            let step = self.pairs.get(at).leaving.clone();
            if let Some(LeaveStep::Frozen { regions, reported: false, since_ns }) = step
                && (self.is_drained(at) || planted(Mutant::LeftUnanswered))
            {
                self.drained(at, regions, since_ns);
            }
        }
    }

    /// Takes the pair out of the list, once nothing of several turns is at it.
    fn settle(&mut self, at: PairAt, since_ns: u64, (copied, copied_ns): (u64, u64)) {
        let lasts_ns = self.now_ns.saturating_sub(since_ns);
        if self.splits.are_at(&self.pairs, at) && !planted(Mutant::LeftAmidSplit) {
            if lasts_ns >= SPLITS_NS {
                self.settles_not(at, StayReason::Splits);
            } else if lasts_ns >= SPLITS_NS / 2 {
                self.has_work |= self.splits.abort_unlinked(&self.pairs, at);
            }
            return;
        }
        let owned = self.pairs.get(at);
        let releases = owned.checkpointing.release.is_some() && !owned.keeps_log();
        let checkpoints = owned.checkpointing.is_running() || releases;
        if checkpoints || owned.pair.is_checking() {
            let now = (owned.pair.image_nodes_copied(), self.now_ns);
            if now.0 > copied {
                self.pairs.get_mut(at).leaving = Some(LeaveStep::Settling { since_ns, copied: now });
            } else if self.now_ns.saturating_sub(copied_ns) >= SETTLE_NS {
                self.settles_not(at, StayReason::Busy);
            }
            return;
        }
        let regions = self.regions.remove(owned.pair.id());
        let until_ns = self.leaving.trusted_until_ns;
        self.pairs.get_mut(at).leaving = Some(LeaveStep::Unlisted { until_ns, regions });
    }

    /// It has been served all the time, and stays.
    fn settles_not(&mut self, at: PairAt, why: StayReason) {
        let owned = self.pairs.get_mut(at);
        (owned.leaving, owned.ticket) = (None, None);
        let pair = owned.pair.id();
        self.leaving.pairs -= 1;
        self.stays(pair, why);
    }

    /// From here on its keys are nobody's here: who waits for its log is sent on.
    fn freeze(&mut self, at: PairAt, regions: Option<PairRegions>) {
        self.carry_out_reads();
        let since_ns = self.now_ns;
        self.pairs.get_mut(at).leaving = Some(LeaveStep::Frozen { regions, reported: false, since_ns });
        self.pairs.directory.remove_pair(at);
        self.splits.forget_pair(at);
        self.pairs.pair_mut(at).abandon_packing();
        self.drain_backlog(at);
        self.drain_parked();
        self.has_work = true;
    }

    /// Whether all that it appended is durable, and all that was answered has left.
    fn is_drained(&self, at: PairAt) -> bool {
        let owned = self.pairs.get(at);
        owned.pair.is_idle()
            && owned.pair.appended() == owned.pair.durable()
            && owned.backlog.is_empty()
            && !self.pairs.have_replies_of(at)
            && !self.streams.are_held_for(at)
    }

    /// Nothing of it is in flight: it leaves, or waits for what becomes of its move.
    fn drained(&mut self, at: PairAt, regions: Option<PairRegions>, since_ns: u64) {
        let now_ns = self.now_ns;
        let owned = self.pairs.get_mut(at);
        let Some(ticket) = owned.ticket else { return self.remove_pair(at, regions, false) };
        owned.leaving = Some(LeaveStep::Frozen { regions, reported: true, since_ns });
        let (pair, epoch, cut) = (owned.pair.id(), owned.pair.epoch(), owned.pair.durable());
        self.commands.push(Command::Frozen { pair, ticket, epoch, cut, since_ns, now_ns });
    }

    fn remove_pair(&mut self, at: PairAt, regions: Option<PairRegions>, handed: bool) {
        let owned = self.pairs.remove(at);
        self.streams.pair_left(at);
        self.splits.pair_left();
        self.leaving.pairs -= 1;
        let (pair, epoch, cut) = (owned.pair.id(), owned.pair.epoch(), owned.pair.durable());
        tracing::info!(pair = pair.0, epoch = epoch.0, cut = cut.0, "a pair has left this node");
        self.leaving.left.push(LeftPair { pair, number: at.index(), regions });
        let is_kept = handed && owned.pair.is_at_rest();
        let frozen = is_kept.then(|| Box::new(owned.pair));
        self.commands.push(Command::Left { pair, epoch, cut, handed, frozen });
    }
}
