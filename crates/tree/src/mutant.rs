//! Deliberate defects, for the twins of the tests: the same run on a build with a check taken out must fail.
//! They exist only in debug builds, and do nothing there until one is switched on.

cell_terms::mutants! {
    pub(crate),
    /// Readers do not look at the version again when they have read.
    TornRead: "torn-read",
    /// The writer does not make versions odd before it changes a node.
    SilentChange: "silent-change",
    /// A leaf that lacks a key says so without a look at its fences.
    FencesIgnored: "fences-ignored",
    /// Readers do not look whether a tree node is of a router.
    RoleIgnored: "role-ignored",
    /// A split's right half does not inherit the CSN of removal.
    RemovalForgotten: "removal-forgotten",
    /// Replay applies what a node has already.
    ReplayRepeats: "replay-repeats",
    /// A planned entry goes to the place where it was searched, whatever has changed in its leaf since.
    StalePlaceTaken: "stale-place-taken",
    /// A check of a meganode that was checked before does not look within what has changed since.
    ChangedNodeUnchecked: "changed-node-unchecked",
}
