//! How a pair's watermarks are published to those who read its memory, and how they are read: the orders of
//! memory on which "nobody returns what is not durable" rests. The words are the processor's, or a model
//! checker's.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Csn;
use crate::mutant::{Mutant, planted};

/// A word that its writer and its readers share.
pub trait SharedWord {
    /// Loads it in this order.
    fn load(&self, order: Ordering) -> u64;
    /// Stores it in this order.
    fn store(&self, word: u64, order: Ordering);
}

impl SharedWord for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        AtomicU64::load(self, order)
    }

    #[inline(always)]
    fn store(&self, word: u64, order: Ordering) {
        AtomicU64::store(self, word, order);
    }
}

/// Publishes the watermarks, after everything that was stored before: visible first, so that nobody who reads
/// them in the other order sees durable above it.
#[inline]
pub fn publish_watermarks<W: SharedWord>(durable: (&W, Csn), visible: (&W, Csn)) {
    let order = if planted(Mutant::WatermarkRelaxed) { Ordering::Relaxed } else { Ordering::Release };
    visible.0.store(visible.1.0, order);
    durable.0.store(durable.1.0, order);
}

/// The watermarks: durable, then visible. What the owner stored before it published them, whoever has them
/// sees.
#[inline]
#[must_use]
pub fn published_watermarks<W: SharedWord>(durable: &W, visible: &W) -> (Csn, Csn) {
    let durable = Csn(durable.load(Ordering::Acquire));
    let visible = Csn(visible.load(Ordering::Acquire));
    (durable, visible)
}
