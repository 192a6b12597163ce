//! Deliberate defects, for the twins of the crash harnesses: the same run on a build with a step taken out
//! must fail. They exist only in builds with `--cfg cell_mutants`, and do nothing there until one is switched
//! on.

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutant {
    /// A recovery leaves adopted meganodes readable, whatever their splits' states.
    AdoptionShown = 1,
    /// A recovered target does not know the source's results.
    ResultsLeftBehind,
    /// A checkpoint lacks the book of splits.
    BookDropped,
    /// Replay of a split does not free the upper half.
    UpperHalfKept,
    /// Replay of a split does not cut the lower half.
    EdgeNotCut,
    /// Replay does not free what was discarded.
    DiscardedKept,
}

impl Mutant {
    /// Every defect.
    pub const ALL: [Mutant; 6] = [
        Mutant::AdoptionShown,
        Mutant::ResultsLeftBehind,
        Mutant::BookDropped,
        Mutant::UpperHalfKept,
        Mutant::EdgeNotCut,
        Mutant::DiscardedKept,
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
