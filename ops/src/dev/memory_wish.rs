//! What its supervisor lets this node hold in memory: from its start on, and anew as others come and go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cell_memory::Budget;

/// See the module's text. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryWish(Arc<Mutex<Wish>>);

#[derive(Debug, Default)]
struct Wish {
    /// The limit that was wished for last; none: there was no wish.
    limit: Option<u64>,
    /// Whose limit it is, once it is there.
    budget: Option<Budget>,
}

impl MemoryWish {
    /// This is the limit from here on.
    pub(crate) fn set(&self, limit: u64) {
        let mut wish = self.lock();
        wish.limit = Some(limit);
        if let Some(budget) = &wish.budget {
            budget.set_limit(limit);
        }
    }

    /// This is the node's budget. What was wished for before it was there counts.
    pub(crate) fn attach(&self, budget: Budget) {
        let mut wish = self.lock();
        if let Some(limit) = wish.limit {
            budget.set_limit(limit);
        }
        wish.budget = Some(budget);
    }

    fn lock(&self) -> MutexGuard<'_, Wish> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wish_counts_whether_it_comes_before_the_budget_or_after_it() {
        let (wish, budget) = (MemoryWish::default(), Budget::new(100, 0));
        wish.attach(budget.clone());
        assert_eq!(budget.limit(), 100);
        wish.set(60);
        assert_eq!(budget.limit(), 60);
        let late = Budget::new(100, 0);
        wish.attach(late.clone());
        assert_eq!(late.limit(), 60);
        wish.set(80);
        assert_eq!(late.limit(), 80);
    }
}
