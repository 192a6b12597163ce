//! Why a meganode is split.

/// Why entries are to leave a meganode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its slot is full.
    Nodes,
    /// The cluster has few meganodes: where there is much room anyhow.
    Early,
    /// Its node has too many bytes, in pairs that are too large to move: they go to another node, or stay.
    Oversized,
    /// Its pair is short of extents: they go to another pair.
    Extents,
}
