//! Deliberate defects, for the twins of the crash harnesses: the same run on a build with a step taken out
//! must fail. They exist only in debug builds, and do nothing there until one is switched
//! on.

cell_terms::mutants! {
    pub(crate),
    /// A recovery leaves adopted meganodes readable, whatever their splits' states.
    AdoptionShown: "adoption-shown",
    /// A recovered target does not know the source's results.
    ResultsLeftBehind: "results-left-behind",
    /// A checkpoint lacks the table of splits.
    BookDropped: "book-dropped",
    /// Replay of a split does not free the upper half.
    UpperHalfKept: "upper-half-kept",
    /// Replay of a split does not truncate the lower half.
    EdgeNotTruncated: "edge-not-truncated",
    /// Replay does not free what was discarded.
    DiscardedKept: "discarded-kept",
    /// The copier of an image does not look again at leaves that were filled behind it.
    FilledNotCopied: "filled-not-copied",
    /// The copier of an image takes an extent that is not what its leaf says for one that was replaced.
    UnreadCounted: "unread-counted",
    /// An image does not count the CSNs of tree nodes that its copier found free.
    FreedNotCounted: "freed-not-counted",
}
