//! Loading and proving: which lines are acknowledged, what is in flight, and what must therefore be in the
//! store.

pub(crate) mod acknowledged;
pub(crate) mod loader;
pub(crate) mod lookups;
pub(crate) mod progress;
pub(crate) mod proof;
pub(crate) mod puts;
