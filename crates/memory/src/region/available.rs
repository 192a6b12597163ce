//! Whether the machine has the memory for a region: a region is sparse at first, so a promise that is too
//! large would only be noticed later, as a killed process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::error::MemoryError;
use crate::machine::available_bytes;
use crate::mapping::Mapping;

/// Every shared mapping that this process made. What they have not taken yet is promised already.
static MAPPINGS: Mutex<Vec<Weak<Mapping>>> = Mutex::new(Vec::new());

/// Held from the check of a new region to its entry, so that two that are made at once see each other.
pub(crate) struct Ledger(MutexGuard<'static, Vec<Weak<Mapping>>>);

impl Ledger {
    pub(crate) fn open() -> Ledger {
        let mut mappings = MAPPINGS.lock().unwrap_or_else(PoisonError::into_inner);
        mappings.retain(|mapping| mapping.strong_count() > 0);
        Ledger(mappings)
    }

    /// Whether there is memory for `needed` more bytes. If the system does not say, there is.
    pub(crate) fn check(&self, needed: u64) -> Result<(), MemoryError> {
        let Some(available) = available_bytes() else { return Ok(()) };
        let available = available.saturating_sub(self.promised());
        if needed <= available { Ok(()) } else { Err(MemoryError::MemoryShort { needed, available }) }
    }

    /// Bytes of all of them that have memory.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.0.iter().filter_map(Weak::upgrade).map(|mapping| mapping.resident_bytes()).sum()
    }

    pub(super) fn enter(&mut self, mapping: &Arc<Mapping>) {
        self.0.push(Arc::downgrade(mapping));
    }

    fn promised(&self) -> u64 {
        let mappings = self.0.iter().filter_map(Weak::upgrade);
        mappings.map(|mapping| (mapping.bytes() as u64).saturating_sub(mapping.resident_bytes())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_on_this_machine_is_some_and_a_petabyte_is_short() {
        assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 20));
        let short = Ledger::open().check(1 << 50);
        assert!(matches!(short, Err(MemoryError::MemoryShort { needed: 0x4_0000_0000_0000, .. })));
    }
}
