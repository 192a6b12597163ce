//! How far a run is.

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunPhase {
    /// Clients ask, faults happen.
    Traffic,
    /// Faults have ceased; what is outstanding is answered.
    Quiet,
    /// Everything is read.
    Reading,
    /// The log is idle until its last batch is sealed; then the node ends.
    Sealing,
    /// The node is stopped and started again.
    Restarting,
    /// A bit has flipped; the node starts again.
    Rotten,
    /// Done.
    Over,
}
