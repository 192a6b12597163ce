//! What this process holds and what the machine has left, looked at for a budget.

use crate::budget::{Budget, MemoryObservation};
use crate::machine::{available_bytes, meminfo_field, read, total_bytes};
use crate::ready::ready_bytes;
use crate::region::Ledger;

/// What is left to others at least: a part of what there is, within bounds.
const MARGIN_PART: u64 = 64;
const MARGIN_MIN: u64 = 8 << 20;
const MARGIN_MAX: u64 = 256 << 20;

/// Reports to a budget what this process holds, and what the machine has left: about every second, from any
/// thread. It reads some small files of the system.
pub fn observe(budget: &Budget) {
    let Some(status) = read("/proc/self/status") else { return };
    let field = |name| meminfo_field(&status, name).unwrap_or(0);
    let resident = field("VmRSS") + field("HugetlbPages");
    let figures = budget.figures();
    // Regions are shared memory; so is what connections of this host share, which counts as the process's.
    let regions = Ledger::open().resident_bytes().min(field("RssShmem"));
    let counted = regions + ready_bytes() + figures.logs;
    let margin = (total_bytes().unwrap_or(0) / MARGIN_PART).clamp(MARGIN_MIN, MARGIN_MAX);
    budget.observe(MemoryObservation {
        process: field("VmRSS").saturating_sub(counted),
        resident,
        available: available_bytes().map(|available| available.saturating_sub(margin)),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observe_this_process_sees_what_it_holds_and_what_is_left() {
        assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert!(total_bytes() >= available_bytes());
        let budget = Budget::new(1 << 50, 0);
        observe(&budget);
        let figures = budget.figures();
        assert!(figures.process > 1 << 20 && figures.process < 1 << 40, "{figures:?}");
        assert!(figures.limit < 1 << 50, "the machine has less: {figures:?}");
    }
}
