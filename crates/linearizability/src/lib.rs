//! What clients asked and were answered, and whether it can be true.
//!
//! | module | role |
//! |---|---|
//! | [`Recorder`], [`HistoryOperation`] | operations by key, on one logical clock |
//! | [`ledger`] | what one client was answered of its own keys, so what must be found after any crash |
//! | [`checker`] | is there an order of a key's operations that fits what every client was answered? |
//! | [`payload`] | values that prove themselves |
//!
//! Used by the drills of the product and by its tests, so that both judge by one checker.

pub mod checker;
pub mod ledger;
mod operation;
pub mod payload;

pub use operation::{Call, HistoryOperation, Outcome, Recorder, WrittenValue};
