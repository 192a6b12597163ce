//! Memory made ready: a stock of huge pages that this process holds and has touched before they are needed.
//!
//! The first touch of memory is dear where a hypervisor has to find it too: 0.6 to 4 s a GiB were measured in
//! a virtual machine, against 0.2 s for memory that was just given back, which the kernel only zeroes. A
//! takeover waits for that and for little else that could have been done before. So a page of the stock is
//! given back right before a region takes one, and the kernel hands out what came back last.
//!
//! The stock is the process's, like the memory. Whoever fills it decides when ([`make_ready`] does one step).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::budget::{Budget, BudgetFull, MemoryKind, Reservation};
use crate::error::MemoryError;
use crate::machine;
use crate::mapping::{Mapping, UNIT_BYTES};

/// A huge page of the stock, and what it counts for in the budget. The page goes first.
struct Unit {
    _page: Mapping,
    reservation: Reservation,
}

static STOCK: Mutex<Vec<Unit>> = Mutex::new(Vec::new());
static GIVEN_BYTES: AtomicU64 = AtomicU64::new(0);

fn stock() -> MutexGuard<'static, Vec<Unit>> {
    STOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds 2 MiB to the stock, if it holds less than `wanted` bytes and both budget and machine keep as much
/// besides. Whether it did. It takes up to some milliseconds.
///
/// # Errors
/// [`MemoryError::MemoryShort`], [`MemoryError::LimitReached`], or what the system says: try again later.
pub fn make_ready(wanted: u64, budget: &Budget) -> Result<bool, MemoryError> {
    if ready_bytes() + UNIT_BYTES > wanted {
        return Ok(false);
    }
    let needed = wanted + UNIT_BYTES;
    if let Some(available) = machine::available_bytes().filter(|available| *available < needed) {
        return Err(MemoryError::MemoryShort { needed, available });
    }
    let figures = budget.figures();
    if figures.available < needed {
        let full = BudgetFull { needed, available: figures.available, limit: figures.limit };
        return Err(MemoryError::LimitReached(full));
    }
    let reservation = budget.reserve(MemoryKind::Ready, UNIT_BYTES).map_err(MemoryError::LimitReached)?;
    let unit = Unit { _page: Mapping::unit()?, reservation };
    stock().push(unit);
    Ok(true)
}

/// Bytes in the stock.
#[must_use]
pub fn ready_bytes() -> u64 {
    stock().len() as u64 * UNIT_BYTES
}

/// Bytes of the stock that were given to regions since the process began.
#[must_use]
pub fn ready_bytes_given() -> u64 {
    GIVEN_BYTES.load(Ordering::Relaxed)
}

/// Gives 2 MiB back to the system, for the page that is taken next.
pub(crate) fn give() {
    let unit = stock().pop();
    if unit.is_some() {
        GIVEN_BYTES.fetch_add(UNIT_BYTES, Ordering::Relaxed);
    }
}

/// Gives 2 MiB of this budget back to it, because something else needs them. Whether there were any.
pub(crate) fn give_to(budget: &Budget) -> bool {
    let unit = {
        let mut stock = stock();
        let of_budget = stock.iter().rposition(|unit| unit.reservation.budget().is_same(budget));
        of_budget.map(|at| stock.swap_remove(at))
    };
    unit.is_some()
}

/// Gives memory of this budget back to it until so many bytes can be reserved, or there is none left.
pub fn give_up_for(budget: &Budget, bytes: u64) {
    while budget.available() < bytes && give_to(budget) {}
}

/// Gives everything back: there is none to spare.
pub(crate) fn give_up() {
    let all = std::mem::take(&mut *stock());
    drop(all); // without the lock: it takes milliseconds, and who asks how much there is must not wait
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HugePages, Region, RegionSpec};
    use cell_terms::{Epoch, PairId};

    /// One test, because the stock is the process's.
    #[test]
    fn stock_is_filled_in_steps_and_given_to_who_asks_for_ready_memory() {
        let (wanted, budget) = (3 * UNIT_BYTES + 5, Budget::new(1 << 60, 0));
        let steps = (0..10).filter(|_| make_ready(wanted, &budget).unwrap()).count();
        assert_eq!((steps, ready_bytes(), ready_bytes_given()), (3, 3 * UNIT_BYTES, 0));
        assert!(matches!(make_ready(1 << 50, &budget), Err(MemoryError::MemoryShort { .. })));

        let spec = RegionSpec::extent(PairId(1), Epoch(1), 8 * UNIT_BYTES).unwrap();
        let (region, writer) = Region::create(&spec, HugePages::Auto).unwrap();
        region.populate(UNIT_BYTES..2 * UNIT_BYTES).unwrap();
        assert_eq!(ready_bytes(), 3 * UNIT_BYTES, "growth leaves it alone");
        let of_stock = if region.backing() == crate::Backing::Huge2M { 0 } else { 1 };
        region.populate_ready(4 * UNIT_BYTES..5 * UNIT_BYTES).unwrap();
        region.populate_ready(4 * UNIT_BYTES..5 * UNIT_BYTES).unwrap();
        assert_eq!(ready_bytes(), (3 - of_stock) * UNIT_BYTES, "once for each page");
        region.populate_ready(0..8 * UNIT_BYTES).unwrap();
        assert_eq!(ready_bytes(), 3 * (1 - of_stock) * UNIT_BYTES);
        assert_eq!(ready_bytes_given(), 3 * of_stock * UNIT_BYTES);
        assert_eq!(region.populated_bytes(), 8 * UNIT_BYTES);
        drop(writer);

        while make_ready(wanted, &budget).unwrap() {}
        let (private, _writer) = Region::create_private(&spec).unwrap();
        private.populate_ready(0..UNIT_BYTES).unwrap();
        assert_eq!(ready_bytes(), 3 * UNIT_BYTES, "memory of this process alone takes none");
        // Too much is asked for: the stock goes before that is refused.
        let large = RegionSpec::node(PairId(2), Epoch(1), 512 << 30, 64 << 20, 1024).unwrap();
        let refused = Region::create(&large, HugePages::Transparent);
        assert!(matches!(refused, Err(MemoryError::MemoryShort { .. })), "512 GiB");
        assert_eq!(ready_bytes(), 0);
    }
}
