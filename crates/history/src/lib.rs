//! What clients asked and were told, and whether it can be true.
//!
//! | module | role |
//! |---|---|
//! | [`Recorder`], [`HistoryOperation`] | operations by key, on one logical clock |
//! | [`ledger`] | what one client was told of its own keys, and so what must be found after any crash |
//! | [`linearizability`] | is there an order of a key's operations that fits what every client was told? |
//! | [`payload`] | values that prove themselves |
//!
//! Used by the drills of the product and by its tests, so that both judge by one checker.

pub mod ledger;
pub mod linearizability;
mod operation;
pub mod payload;

pub use operation::{Call, HistoryOperation, Outcome, Recorder, WrittenValue};
