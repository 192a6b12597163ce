//! Deliberate defects, for the twins of the tests: the same run on a build with a rule taken out must fail.
//! They exist only in debug builds, and do nothing there until one is switched on. Those of one-sided reads
//! are in [`cell_terms::mutant`].

cell_terms::mutants! {
    pub(crate),
    /// What has ended one-sided is taken for the end of the operation that has its slot now.
    EndedUnnumbered: "ended-unnumbered",
    /// A write that its caller has given up is sent again.
    DroppedWriteKept: "dropped-write-kept",
    /// A node of another cluster is written to.
    ClusterUnasked: "cluster-unasked",
}
