//! Deliberate defects, for the twins of the fault harnesses: the same run on a build with a flush or a check
//! taken out must fail. They exist only in builds with `--cfg cell_mutants`, and do nothing there until one
//! is switched on.

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutant {
    /// A prepared segment's file is not synced.
    SkipSegmentSync = 1,
    /// A prepared segment's folder is not synced.
    SkipFolderSync,
    /// A batch counts as durable when the first of its two writes has completed.
    AcknowledgeFirstWrite,
    /// A failed write is taken for a completed one.
    IgnoreWriteError,
    /// Readers do not compare payloads with their checks.
    SkipPayloadCheck,
    /// Readers take every damage for a tear.
    CallEverythingATear,
    /// A recorded cut is not asked for when a log is read again.
    IgnoreRecordedCut,
    /// An image is renamed before it is synced.
    SkipImageSync,
}

impl Mutant {
    /// Every defect.
    pub const ALL: [Mutant; 8] = [
        Mutant::SkipSegmentSync,
        Mutant::SkipFolderSync,
        Mutant::AcknowledgeFirstWrite,
        Mutant::IgnoreWriteError,
        Mutant::SkipPayloadCheck,
        Mutant::CallEverythingATear,
        Mutant::IgnoreRecordedCut,
        Mutant::SkipImageSync,
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
