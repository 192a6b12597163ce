//! Deliberate defects, for the twins of the tests: the same run on a build with a check taken out must fail.
//! They exist
//! only in builds with `--cfg cell_mutants`, and do nothing there until one is switched on.

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutant {
    /// Readers do not look at the version again when they have read.
    TornRead = 1,
    /// The writer does not make versions odd before it changes a node.
    SilentChange,
    /// A leaf that lacks a key says so without a look at its fences.
    FencesIgnored,
    /// A split's right half does not inherit the CSN of removal.
    RemovalForgotten,
    /// Replay applies what a node has already.
    ReplayRepeats,
}

impl Mutant {
    /// Every defect.
    pub const ALL: [Mutant; 5] = [
        Mutant::TornRead,
        Mutant::SilentChange,
        Mutant::FencesIgnored,
        Mutant::RemovalForgotten,
        Mutant::ReplayRepeats,
    ];
}

#[cfg(cell_mutants)]
static ON: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Switches one defect on, or all off, for the whole process.
#[cfg(cell_mutants)]
pub fn switch(mutant: Option<Mutant>) {
    ON.store(mutant.map_or(0, |mutant| mutant as u8), std::sync::atomic::Ordering::SeqCst);
}

/// Whether a defect is switched on.
#[cfg(cell_mutants)]
pub(crate) fn is_on(mutant: Mutant) -> bool {
    ON.load(std::sync::atomic::Ordering::SeqCst) == mutant as u8
}

/// Never, in a build that is not for this.
#[cfg(not(cell_mutants))]
#[inline(always)]
pub(crate) const fn is_on(_mutant: Mutant) -> bool {
    false
}
