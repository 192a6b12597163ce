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

impl Cause {
    /// Of what it has, one of so many parts goes to another node: the largest part that helps.
    pub(super) const fn parts(self) -> &'static [u64] {
        match self {
            Cause::Oversized => &[2, 4, 8],
            Cause::Nodes | Cause::Early | Cause::Extents => &[2],
        }
    }
}
