//! What a process may hold in memory, and what holds it: a budget in bytes that is asked *before* memory is
//! taken, a chunk at a time, so that a shortage is a refusal and never a killed process.
//!
//! Two limits count, the lower one at any time:
//!
//! 1. the limit that the process was given;
//! 2. what the machine, or the control group, has left: what others take there is seen by looking at it
//!    ([`Budget::observe`]).
//!
//! Regions and what was made ready are counted when they are granted, which is before they are touched. What
//! the process takes besides (code, stacks, tables, buffers of clients) is not counted one by one: an
//! allowance is set aside for it, and if more than that was measured lately, the measure counts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What holds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Granted parts of regions, populated or about to be.
    Regions,
    /// Memory that was made ready for takeovers.
    Ready,
    /// Buffers of the pairs' logs.
    Logs,
}

const KINDS: usize = 3;

/// A reservation that was refused; nothing was reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{needed} bytes more are needed, {available} of the memory limit of {limit} are left")]
pub struct BudgetFull {
    /// Bytes that were asked for.
    pub needed: u64,
    /// Bytes that could be had.
    pub available: u64,
    /// The limit in force: the one that was given, or less, if the machine has less.
    pub limit: u64,
}

/// A budget as people are shown it. All in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetFigures {
    /// The limit in force.
    pub limit: u64,
    /// Bytes that could be reserved now.
    pub available: u64,
    /// See [`MemoryKind::Regions`].
    pub regions: u64,
    /// See [`MemoryKind::Ready`].
    pub ready: u64,
    /// See [`MemoryKind::Logs`].
    pub logs: u64,
    /// What counts for the rest of the process: the allowance, or more, if more was measured lately.
    pub process: u64,
    /// What was measured last of that.
    pub process_measured: u64,
    /// Reservations that were refused.
    pub refused: u64,
}

/// What was seen of the process and of the machine at a moment. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryObservation {
    /// What the process holds besides regions and ready memory.
    pub process: u64,
    /// All that the process holds.
    pub resident: u64,
    /// What machine and control group could still give, less what is to be left to others. `None`: unknown.
    pub available: Option<u64>,
}

/// The budget itself, a pure state.
#[derive(Clone, Debug)]
struct BudgetState {
    limit: u64,
    allowance: u64,
    used: [u64; KINDS],
    /// What was measured of the process lately; it sinks slowly, because peaks come again.
    process: u64,
    process_measured: u64,
    /// All that may be held, as the machine was seen last.
    ceiling: u64,
    refused: u64,
    /// Whether what is left is kept for regions that are still to be made.
    growth_held: bool,
}

/// Part of a measured peak that is forgotten with each observation that is lower.
const FORGOTTEN_PART: u64 = 64;

impl BudgetState {
    fn new(limit: u64, allowance: u64) -> BudgetState {
        let used = [0; KINDS];
        let ceiling = u64::MAX;
        let (process, process_measured, refused, growth_held) = (0, 0, 0, false);
        BudgetState { limit, allowance, used, process, process_measured, ceiling, refused, growth_held }
    }

    fn limit(&self) -> u64 {
        self.limit.min(self.ceiling)
    }

    fn process(&self) -> u64 {
        self.allowance.max(self.process)
    }

    fn available(&self) -> u64 {
        let held = self.used.iter().fold(self.process(), |sum, used| sum.saturating_add(*used));
        self.limit().saturating_sub(held)
    }

    fn reserve(&mut self, kind: MemoryKind, bytes: u64) -> Result<(), BudgetFull> {
        let available = self.available();
        if bytes > available {
            self.refused += 1;
            return Err(BudgetFull { needed: bytes, available, limit: self.limit() });
        }
        self.used[kind as usize] += bytes;
        Ok(())
    }

    fn release(&mut self, kind: MemoryKind, bytes: u64) {
        let used = &mut self.used[kind as usize];
        *used = used.checked_sub(bytes).expect("no more is released than was reserved");
    }

    fn observe(&mut self, seen: MemoryObservation) {
        self.process_measured = seen.process;
        self.process = seen.process.max(self.process - self.process / FORGOTTEN_PART);
        self.ceiling = seen.available.map_or(u64::MAX, |available| seen.resident.saturating_add(available));
    }

    fn figures(&self) -> BudgetFigures {
        let used = |kind: MemoryKind| self.used[kind as usize];
        BudgetFigures {
            limit: self.limit(),
            available: self.available(),
            regions: used(MemoryKind::Regions),
            ready: used(MemoryKind::Ready),
            logs: used(MemoryKind::Logs),
            process: self.process(),
            process_measured: self.process_measured,
            refused: self.refused,
        }
    }
}

/// A handle to a budget; clones share it. Asked once for each chunk that is granted, never for each
/// operation: it takes a lock.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Mutex<BudgetState>>);

impl Default for Budget {
    fn default() -> Budget {
        Budget::unlimited()
    }
}

impl Budget {
    /// A budget of `limit` bytes, of which `allowance` are for what is not counted one by one.
    #[must_use]
    pub fn new(limit: u64, allowance: u64) -> Budget {
        Budget(Arc::new(Mutex::new(BudgetState::new(limit, allowance))))
    }

    /// One that counts and never refuses: for tools and tests.
    #[must_use]
    pub fn unlimited() -> Budget {
        Budget::new(u64::MAX, 0)
    }

    /// Reserves bytes until the reservation is dropped.
    ///
    /// # Errors
    /// [`BudgetFull`]: nothing was reserved; do without, or ask again later.
    pub fn reserve(&self, kind: MemoryKind, bytes: u64) -> Result<Reservation, BudgetFull> {
        self.state().reserve(kind, bytes)?;
        Ok(Reservation { budget: self.clone(), kind, bytes })
    }

    /// Whether a region that is to be made could be granted so many bytes now, with the ready memory that is
    /// given up for it. Nothing is reserved.
    ///
    /// # Errors
    /// [`BudgetFull`]: it could not.
    pub fn check_regions(&self, bytes: u64) -> Result<(), BudgetFull> {
        let mut state = self.state();
        let available = state.available().saturating_add(state.used[MemoryKind::Ready as usize]);
        if bytes <= available {
            return Ok(());
        }
        state.refused += 1;
        Err(BudgetFull { needed: bytes, available, limit: state.limit() })
    }

    /// Keeps what is left for regions that are still to be made, or lets all regions grow again
    /// ([`crate::Region::grow`]).
    pub fn hold_growth(&self, held: bool) {
        self.state().growth_held = held;
    }

    /// Whether regions must not grow now.
    #[must_use]
    pub fn is_growth_held(&self) -> bool {
        self.state().growth_held
    }

    /// Whether both handles are of one budget.
    pub(crate) fn is_same(&self, other: &Budget) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Bytes that could be reserved now.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.state().available()
    }

    /// Bytes by which regions in use may grow now: none while what is left is kept for others.
    pub(crate) fn growable(&self) -> u64 {
        let state = self.state();
        if state.growth_held { 0 } else { state.available() }
    }

    /// As [`Budget::growable`], with the ready memory that is given up for regions.
    pub(crate) fn growable_with_ready(&self) -> u64 {
        let state = self.state();
        let ready = state.used[MemoryKind::Ready as usize];
        if state.growth_held { 0 } else { state.available().saturating_add(ready) }
    }

    /// The limit in force.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.state().limit()
    }

    /// The limit that was given last, whatever the machine has.
    #[must_use]
    pub fn given_limit(&self) -> u64 {
        self.state().limit
    }

    /// Another limit was given. Nothing that was reserved is taken back: one below what is held only stops
    /// growth.
    pub fn set_limit(&self, limit: u64) {
        self.state().limit = limit;
    }

    /// Takes note of what was seen. Nothing that was reserved is taken back: a limit that sank below what is
    /// held only stops growth.
    pub fn observe(&self, seen: MemoryObservation) {
        self.state().observe(seen);
    }

    /// For people.
    #[must_use]
    pub fn figures(&self) -> BudgetFigures {
        self.state().figures()
    }

    fn state(&self) -> MutexGuard<'_, BudgetState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of a budget; given back on drop.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    kind: MemoryKind,
    bytes: u64,
}

impl Reservation {
    /// Reserves more bytes for the same.
    ///
    /// # Errors
    /// [`BudgetFull`]: the reservation is what it was.
    pub fn extend(&mut self, bytes: u64) -> Result<(), BudgetFull> {
        self.budget.state().reserve(self.kind, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.state().release(self.kind, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn seen(process: u64, resident: u64, available: u64) -> MemoryObservation {
        MemoryObservation { process, resident, available: Some(available) }
    }

    #[test]
    fn reserve_up_to_the_limit_refuses_the_next_byte_and_takes_what_is_given_back() {
        let budget = Budget::new(10 * MIB, 3 * MIB);
        let mut regions = budget.reserve(MemoryKind::Regions, 5 * MIB).unwrap();
        let ready = budget.reserve(MemoryKind::Ready, 2 * MIB).unwrap();
        let refused = BudgetFull { needed: 1, available: 0, limit: 10 * MIB };
        assert_eq!(budget.reserve(MemoryKind::Logs, 1).unwrap_err(), refused);
        assert_eq!(regions.extend(1).unwrap_err(), refused);
        drop(ready);
        regions.extend(2 * MIB).unwrap();
        assert_eq!((regions.bytes(), budget.available()), (7 * MIB, 0));
        assert_eq!(budget.figures().refused, 2);
        drop(regions);
        assert_eq!(budget.available(), 7 * MIB);
    }

    #[test]
    fn check_regions_counts_what_is_ready_and_reserves_nothing() {
        let budget = Budget::new(10 * MIB, 3 * MIB);
        let ready = budget.reserve(MemoryKind::Ready, 2 * MIB).unwrap();
        budget.hold_growth(true);
        budget.check_regions(7 * MIB).unwrap();
        let refused = BudgetFull { needed: 7 * MIB + 1, available: 7 * MIB, limit: 10 * MIB };
        assert_eq!(budget.check_regions(7 * MIB + 1).unwrap_err(), refused);
        let figures = budget.figures();
        assert_eq!((figures.regions, figures.available, figures.refused), (0, 5 * MIB, 1));
        drop(ready);
    }

    #[test]
    fn observe_more_than_the_allowance_takes_it_from_growth_and_forgets_it_slowly() {
        let budget = Budget::new(100 * MIB, 20 * MIB);
        budget.observe(MemoryObservation { process: 15 * MIB, resident: 0, available: None });
        assert_eq!(budget.available(), 80 * MIB, "the allowance is set aside in any case");
        budget.observe(MemoryObservation { process: 60 * MIB, resident: 0, available: None });
        assert_eq!(budget.available(), 40 * MIB);
        budget.observe(MemoryObservation { process: 10 * MIB, resident: 0, available: None });
        assert!((40 * MIB..42 * MIB).contains(&budget.available()), "{}", budget.available());
        for _ in 0..200 {
            budget.observe(MemoryObservation { process: 10 * MIB, resident: 0, available: None });
        }
        assert_eq!(budget.available(), 80 * MIB);
    }

    #[test]
    fn observe_a_machine_that_has_less_lowers_the_limit_until_it_has_more() {
        let budget = Budget::new(100 * MIB, 10 * MIB);
        let held = budget.reserve(MemoryKind::Regions, 50 * MIB).unwrap();
        budget.observe(seen(10 * MIB, 60 * MIB, 5 * MIB));
        assert_eq!((budget.limit(), budget.available()), (65 * MIB, 5 * MIB));
        assert_eq!(budget.given_limit(), 100 * MIB);
        assert!(budget.reserve(MemoryKind::Regions, 6 * MIB).is_err());
        // Others take all that there was: what is held stays, nothing is added.
        budget.observe(seen(10 * MIB, 40 * MIB, 0));
        assert_eq!((held.bytes(), budget.available()), (50 * MIB, 0));
        budget.observe(seen(10 * MIB, 60 * MIB, 500 * MIB));
        assert_eq!((budget.limit(), budget.available()), (100 * MIB, 40 * MIB));
    }

    #[test]
    fn set_limit_below_what_is_held_stops_growth_and_takes_nothing_back() {
        let budget = Budget::new(100 * MIB, 10 * MIB);
        let held = budget.reserve(MemoryKind::Regions, 50 * MIB).unwrap();
        budget.set_limit(70 * MIB);
        assert_eq!((budget.limit(), budget.available()), (70 * MIB, 10 * MIB));
        assert_eq!(budget.given_limit(), 70 * MIB);
        budget.set_limit(40 * MIB);
        assert_eq!((held.bytes(), budget.available()), (50 * MIB, 0));
        assert!(budget.reserve(MemoryKind::Regions, 1).is_err());
        budget.set_limit(100 * MIB);
        assert_eq!(budget.available(), 40 * MIB);
    }

    #[test]
    fn unlimited_counts_and_never_refuses() {
        let budget = Budget::unlimited();
        let held = budget.reserve(MemoryKind::Regions, 1 << 50).unwrap();
        assert_eq!(budget.figures().regions, 1 << 50);
        drop(held);
        assert_eq!(budget.figures().regions, 0);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Reserve(usize, u64),
        Extend(usize, u64),
        Drop(usize),
        Observe { process: u64, others: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..KINDS, 0..400u64).prop_map(|(kind, bytes)| Step::Reserve(kind, bytes)),
            (any::<usize>(), 0..400u64).prop_map(|(at, bytes)| Step::Extend(at, bytes)),
            any::<usize>().prop_map(Step::Drop),
            (0..600u64, 0..1_500u64).prop_map(|(process, others)| Step::Observe { process, others }),
        ]
    }

    proptest! {
        /// Against a plain sum: what was granted, with the allowance or what was measured, never passes the
        /// limit that was in force when it was granted; a refusal changes nothing, and is never needless.
        #[test]
        fn reservations_never_pass_the_limit(steps in prop::collection::vec(step(), 1..200)) {
            const KIND: [MemoryKind; KINDS] = [MemoryKind::Regions, MemoryKind::Ready, MemoryKind::Logs];
            let (limit, allowance, machine) = (2_000, 300, 2_500);
            let budget = Budget::new(limit, allowance);
            let (mut held, mut process, mut ceiling) = (Vec::<Reservation>::new(), 0u64, u64::MAX);
            for step in steps {
                let sum: u64 = held.iter().map(Reservation::bytes).sum();
                let left = limit.min(ceiling).saturating_sub(sum + process.max(allowance));
                prop_assert_eq!(budget.available(), left);
                match step {
                    Step::Reserve(kind, bytes) => match budget.reserve(KIND[kind], bytes) {
                        Ok(reservation) => {
                            prop_assert!(bytes <= left);
                            held.push(reservation);
                        }
                        Err(refused) => {
                            prop_assert!(bytes > left);
                            prop_assert_eq!((refused.needed, refused.available), (bytes, left));
                        }
                    },
                    Step::Extend(at, bytes) if !held.is_empty() => {
                        let at = at % held.len();
                        prop_assert_eq!(held[at].extend(bytes).is_ok(), bytes <= left);
                    }
                    Step::Drop(at) if !held.is_empty() => drop(held.swap_remove(at % held.len())),
                    Step::Observe { process: measured, others } => {
                        process = measured.max(process - process / FORGOTTEN_PART);
                        let resident = sum + measured;
                        let available = machine - (others + resident).min(machine);
                        ceiling = resident + available;
                        budget.observe(seen(measured, resident, available));
                    }
                    Step::Extend(..) | Step::Drop(_) => {}
                }
            }
            drop(held);
            let figures = budget.figures();
            prop_assert_eq!((figures.regions, figures.ready, figures.logs), (0, 0, 0));
        }
    }
}
