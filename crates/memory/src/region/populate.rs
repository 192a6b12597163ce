//! Gives memory to a region ahead of its allocators, in units of 2 MiB. A unit is first *granted*, which
//! reserves it in the process's budget, and then *populated*. Who writes a region keeps to what is granted.
//!
//! A first touch without it works, one small page at a time (a fault of about a microsecond in the worker's
//! path, and no huge page until the unit is populated). With transparent huge pages one page of a unit is
//! touched and the unit is then collapsed: 0.2 ms a unit measured, where populating it whole and collapsing
//! took 1.5 ms.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use cell_terms::mutant::{Mutant, planted};
use rustix::fs::FallocateFlags;

use super::pages::{Backing, collapse_patiently};
use crate::budget::{Budget, BudgetFull, MemoryKind, Reservation};
use crate::error::MemoryError;
use crate::mapping::{Mapping, PAGE_BYTES, UNIT_BYTES};
use crate::ready;
use crate::width::index;

/// Where memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    System,
    /// What was made ready, as long as there is some.
    Ready,
}

/// Held for each unit that gets memory ahead of its use. Meanwhile the kernel holds the lock of the address
/// space, and to collapse a page it waits for every processor: for long on a busy machine. Whoever maps or
/// unmaps memory waits for all who hold that lock, and then everybody else waits for them. So it is one unit
/// that they wait for, and not one of each region.
static AHEAD: Mutex<()> = Mutex::new(());

/// Which units may have memory, and which have it.
pub(super) struct Population {
    backing: Backing,
    units: u64,
    /// Bytes of the region: the last unit may be a part of one.
    bytes: u64,
    /// One bit a unit: it is counted in the reservation.
    granted: Box<[AtomicU64]>,
    budget: Budget,
    /// What the budget has for the region; its lock orders grants.
    reservation: Mutex<Reservation>,
    /// One bit a unit.
    done: Box<[AtomicU64]>,
    /// Every unit below has its bit set: makes the usual question one load.
    prefix: AtomicU64,
    populated_units: AtomicU64,
    huge_units: AtomicU64,
    working: Mutex<()>,
}

impl Population {
    /// Of a region of so many bytes. Its first unit is granted, for its header; one of reserved huge pages is
    /// granted whole, because its pages are set aside whole.
    pub(super) fn new(backing: Backing, bytes: u64, budget: &Budget) -> Result<Population, BudgetFull> {
        let units = bytes.div_ceil(UNIT_BYTES);
        let zero = || AtomicU64::new(0);
        let bits = || (0..units.div_ceil(64)).map(|_| zero()).collect();
        let population = Population {
            backing,
            units,
            bytes,
            granted: bits(),
            budget: budget.clone(),
            reservation: Mutex::new(budget.reserve(MemoryKind::Regions, 0)?),
            done: bits(),
            prefix: zero(),
            populated_units: zero(),
            huge_units: zero(),
            working: Mutex::new(()),
        };
        match backing {
            Backing::Foreign => {}
            Backing::Huge1G | Backing::Huge2M => population.grant(0..bytes)?,
            Backing::Transparent | Backing::Small | Backing::Private => population.grant(0..1)?,
        }
        Ok(population)
    }

    /// Reserves every unit that the range touches, or none. What was made ready is given up for it.
    pub(super) fn grant(&self, range: Range<u64>) -> Result<(), BudgetFull> {
        let units = self.units_of(&range);
        if units.clone().all(|unit| self.is_granted(unit)) {
            return Ok(());
        }
        let mut reservation = self.reservation.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = units.clone().filter(|unit| !self.is_granted(*unit)).count() as u64;
        while let Err(full) = reservation.extend(missing * UNIT_BYTES) {
            if !ready::give_to(&self.budget) {
                return Err(full);
            }
        }
        for unit in units {
            self.granted[index(unit / 64)].fetch_or(1 << (unit % 64), Ordering::Release);
        }
        Ok(())
    }

    /// Whether regions must not grow now: what is left is kept for others.
    pub(super) fn is_growth_held(&self) -> bool {
        self.budget.is_growth_held() && !planted(Mutant::GrowthNotHeld)
    }

    /// As [`Population::grant`], while the budget lets regions grow. What is granted already is no growth.
    pub(super) fn grow(&self, range: Range<u64>) -> Result<(), BudgetFull> {
        if self.is_growth_held() && !self.is_range_granted(&range) {
            let needed = range.end - range.start;
            return Err(BudgetFull { needed, available: 0, limit: self.budget.limit() });
        }
        self.grant(range)
    }

    /// The end of what is granted without a gap from a byte on; that byte itself, if its unit is not.
    pub(super) fn granted_end(&self, from: u64) -> u64 {
        let first = from / UNIT_BYTES;
        let end = (first..self.units).find(|unit| !self.is_granted(*unit)).unwrap_or(self.units);
        (end * UNIT_BYTES).clamp(from, self.bytes.max(from))
    }

    /// Whether every unit that the range touches is granted.
    pub(super) fn is_range_granted(&self, range: &Range<u64>) -> bool {
        self.units_of(range).all(|unit| self.is_granted(unit))
    }

    pub(super) fn granted_bytes(&self) -> u64 {
        self.reservation.lock().unwrap_or_else(PoisonError::into_inner).bytes()
    }

    pub(super) fn grantable_bytes(&self) -> u64 {
        self.budget.growable()
    }

    pub(super) fn obtainable_bytes(&self) -> u64 {
        self.budget.growable_with_ready()
    }

    /// Gives memory to what is granted and has none yet. Of all regions of the process one unit is on its way
    /// at a time.
    pub(super) fn populate_granted(&self, mapping: &Mapping) -> Result<(), MemoryError> {
        if matches!(self.backing, Backing::Private | Backing::Foreign) {
            return Ok(());
        }
        for unit in (0..self.units).filter(|unit| self.is_granted(*unit) && !self.is_done(*unit)) {
            let _ahead = AHEAD.lock().unwrap_or_else(PoisonError::into_inner);
            let _working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
            self.populate_unit(mapping, unit)?;
        }
        Ok(())
    }

    fn units_of(&self, range: &Range<u64>) -> Range<u64> {
        range.start / UNIT_BYTES..range.end.div_ceil(UNIT_BYTES).min(self.units)
    }

    /// Grants and gives memory to every unit that the range touches. Cheap where they have it; any thread may
    /// ask, and one works at a time.
    pub(super) fn populate(
        &self,
        mapping: &Mapping,
        range: Range<u64>,
        source: Source,
    ) -> Result<(), MemoryError> {
        match self.backing {
            Backing::Foreign => return Ok(()),
            Backing::Private => return self.grant(range).map_err(MemoryError::LimitReached),
            Backing::Huge1G | Backing::Huge2M | Backing::Transparent | Backing::Small => {}
        }
        let units = self.units_of(&range);
        if self.prefix.load(Ordering::Acquire) >= units.end {
            return Ok(());
        }
        for unit in units {
            if !self.is_done(unit) {
                self.grant_unit(unit, source).map_err(MemoryError::LimitReached)?;
                let _working = self.working.lock().unwrap_or_else(PoisonError::into_inner);
                self.populate_unit(mapping, unit)?;
            }
        }
        Ok(())
    }

    pub(super) fn populated_bytes(&self) -> u64 {
        self.populated_units.load(Ordering::Relaxed) * UNIT_BYTES
    }

    pub(super) fn huge_bytes(&self) -> u64 {
        self.huge_units.load(Ordering::Relaxed) * UNIT_BYTES
    }

    fn is_done(&self, unit: u64) -> bool {
        self.done[index(unit / 64)].load(Ordering::Acquire) >> (unit % 64) & 1 == 1
    }

    fn is_granted(&self, unit: u64) -> bool {
        self.granted[index(unit / 64)].load(Ordering::Acquire) >> (unit % 64) & 1 == 1
    }

    /// What is made ready is given back before the unit that takes its place is counted.
    fn grant_unit(&self, unit: u64, source: Source) -> Result<(), BudgetFull> {
        let takes_ready = matches!(self.backing, Backing::Transparent | Backing::Small);
        if source == Source::Ready && takes_ready {
            ready::give();
        }
        self.grant(unit * UNIT_BYTES..(unit + 1) * UNIT_BYTES)
    }

    /// With `working` held.
    fn populate_unit(&self, mapping: &Mapping, unit: u64) -> Result<(), MemoryError> {
        if self.is_done(unit) {
            return Ok(());
        }
        let offset = unit * UNIT_BYTES;
        let huge = give_memory(mapping, self.backing, offset)
            .map_err(|source| MemoryError::Populate { offset, source })?;
        self.done[index(unit / 64)].fetch_or(1 << (unit % 64), Ordering::Release);
        self.populated_units.fetch_add(1, Ordering::Relaxed);
        self.huge_units.fetch_add(huge.into(), Ordering::Relaxed);
        let mut prefix = self.prefix.load(Ordering::Relaxed);
        while prefix < self.units && self.is_done(prefix) {
            prefix += 1;
        }
        self.prefix.store(prefix, Ordering::Release);
        Ok(())
    }
}

/// Whether it became a huge page.
fn give_memory(mapping: &Mapping, backing: Backing, offset: u64) -> std::io::Result<bool> {
    let bytes = UNIT_BYTES.min(mapping.bytes() as u64 - offset);
    match backing {
        Backing::Private | Backing::Foreign => Ok(false),
        Backing::Huge1G | Backing::Huge2M => populate(mapping, offset, bytes).map(|()| true),
        Backing::Small => populate(mapping, offset, bytes).map(|()| false),
        Backing::Transparent => {
            populate(mapping, offset, PAGE_BYTES)?;
            if collapse_patiently(mapping, offset).is_ok() {
                return Ok(true);
            }
            populate(mapping, offset, bytes).map(|()| false)
        }
    }
}

fn populate(mapping: &Mapping, offset: u64, bytes: u64) -> std::io::Result<()> {
    mapping.populate(offset, bytes).or_else(|error| match (error.raw_os_error(), mapping.file()) {
        // Kernels before 5.14 do not know the advice; pages of the file serve, page tables follow at a touch.
        (Some(libc::EINVAL), Some(file)) => {
            rustix::fs::fallocate(file, FallocateFlags::empty(), offset, bytes).map_err(Into::into)
        }
        _ => Err(error),
    })
}
