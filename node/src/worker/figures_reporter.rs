//! When a worker reports its figures.

/// How often figures are reported, and when next.
#[derive(Debug, Default)]
pub(super) struct FiguresReporter {
    /// Zero: nobody wants them.
    pub(super) every_ns: u64,
    pub(super) due_ns: u64,
}
