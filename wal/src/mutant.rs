//! Deliberate defects, for the twins of the fault harnesses: the same run on a build with a flush or a check
//! taken out must fail. They exist only in debug builds, and do nothing there until one is switched on.

cell_terms::mutants! {
    pub(crate),
    /// A prepared segment's file is not synced.
    SkipSegmentSync: "skip-segment-sync",
    /// A prepared segment's folder is not synced.
    SkipFolderSync: "skip-folder-sync",
    /// A batch counts as durable when the first of its two writes has completed.
    AcknowledgeFirstWrite: "acknowledge-first-write",
    /// A flush that was under way when a write completed counts for that write.
    FlushBegunEarly: "flush-begun-early",
    /// A seal for which neither log has a place counts as written.
    SealWithoutPlaceCounted: "seal-without-place-counted",
    /// A spare counts for a frame that it does not hold.
    ShortSpareCounted: "short-spare-counted",
    /// A released file is taken for as long as the segment that it is used for.
    ReleasedLengthened: "released-lengthened",
    /// A log is read from its oldest file on, whether that was ever written to or not.
    SpareReadAsFirst: "spare-read-as-first",
    /// A failed write is taken for a completed one.
    IgnoreWriteError: "ignore-write-error",
    /// Readers do not compare payloads with their checks.
    SkipPayloadCheck: "skip-payload-check",
    /// Readers take every damage for a tear.
    CallEverythingATear: "call-everything-a-tear",
    /// A recorded cut is not asked for when a log is read again.
    IgnoreRecordedCut: "ignore-recorded-cut",
    /// An image is renamed before it is synced.
    SkipImageSync: "skip-image-sync",
    /// Whatever has the log root's path is worked in.
    RootByPath: "root-by-path",
    /// A segment is prepared without a look whether the log root is there.
    SegmentRootUnasked: "segment-root-unasked",
    /// So are the folders of a log or an image made.
    FolderRootUnasked: "folder-root-unasked",
}
