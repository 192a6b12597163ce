//! What becomes of operations and of what is cached when a pair's registrations are of the past: it has left
//! its node, or another one has it by now. All that is of other pairs stays.

use super::mapping::PairRegion;
use super::operation::ReadState;
use super::place::PairAt;
use super::reads::ReadOwner;
use super::{Ended, Reader};
use crate::mutant::{Mutant, planted};

impl Reader {
    /// A pair's registrations are of the past. What was read under them counts no more, and operations that
    /// are at it are the server's:
    ///
    /// 1. an operation has read an entry under a registration, and waits for trust;
    /// 2. the pair leaves its owner, another one changes the entry, and the pair comes back;
    /// 3. its new registration gets the place of the old one, and is trusted: by that the operation would
    ///    return what the entry was at step 1.
    pub(super) fn forget_pair(&mut self, pair: PairAt) {
        if !planted(Mutant::LeftRegistrationCounted) {
            self.give_up_reads_of(pair);
            self.forget_batched_of(pair);
        }
        self.context.forget_pair(pair);
    }

    /// A pair's registrations are of the past. Its worker is asked again after so long: those of its other
    /// pairs stay what they are.
    pub(super) fn on_registration_ended(&mut self, pair: PairAt, after_ns: u64) {
        let link = self.context.regions.pair(pair).link;
        self.forget_pair(pair);
        if self.context.regions.places_of(link).is_empty() {
            return match after_ns {
                0 => self.forget_regions(link),
                _ => self.on_regions_refused(link, self.now_ns),
            };
        }
        self.workers[link.index()].on_registration_ended(self.now_ns.saturating_add(after_ns));
        if self.context.regions.root().is_none() {
            self.context.recheck_root();
        }
    }

    /// The region of a read that came back, if somebody waits for it and its registration is still known.
    pub(super) fn region_read_for(&self, owner: ReadOwner) -> Option<(PairAt, PairRegion)> {
        match owner {
            ReadOwner::None => None,
            ReadOwner::Header { pair, key } => {
                self.is_of_registration(pair, key).then_some((pair, PairRegion::Nodes))
            }
            ReadOwner::Lookup { slot, serial, lookup, .. } => {
                let operation = &self.operations[usize::from(slot)];
                let waits = operation.serial == serial && operation.state == ReadState::Reading;
                waits.then(|| operation.region_read(lookup)).flatten()
            }
        }
    }

    /// Whether a place is still that of a registration.
    pub(super) fn is_of_registration(&self, pair: PairAt, key: u64) -> bool {
        self.context.regions.pair(pair).row.node_key == key
    }

    /// Operations that have read a pair's memory, or are at it, are the server's.
    fn give_up_reads_of(&mut self, pair: PairAt) {
        for slot in 0..self.operations.len() {
            let operation = &self.operations[slot];
            let is_active =
                matches!(operation.state, ReadState::Reading | ReadState::Validating | ReadState::Waiting);
            if is_active && operation.touches(pair) {
                self.end(u16::try_from(slot).unwrap_or(u16::MAX), Ended::Server);
            }
        }
    }
}
