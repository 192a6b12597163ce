//! Deliberate defects, for the twins of the tests: the same run on a build with a rule taken out must fail.
//! They exist only in debug builds, and do nothing there until one is switched on. Those of one-sided reads
//! are in [`cell_terms::mutant`].

cell_terms::mutants! {
    pub(crate),
    /// What has ended one-sided is taken for the end of the operation that has its slot now.
    EndedUnnumbered: "ended-unnumbered",
    /// A write that its caller has given up is sent again.
    DroppedWriteKept: "dropped-write-kept",
    /// What was found in mapped memory is answered though the registration has ended meanwhile.
    EndedMappingRead: "ended-mapping-read",
    /// An extent is taken from mapped memory though its registration has ended meanwhile.
    EndedExtentRead: "ended-extent-read",
    /// A watermark is taken from mapped memory though a registration has ended meanwhile.
    EndedWatermarkRead: "ended-watermark-read",
    /// A search in place goes by the time that the last owner permits alone.
    InPlaceUntimed: "in-place-untimed",
    /// A header that was read in place is believed though its leaf has changed meanwhile.
    HeaderUnsettled: "header-unsettled",
    /// A scan in place may take any time.
    ScanUntimed: "scan-untimed",
    /// A multi-get in place may take any time.
    MultiGetUntimed: "multi-get-untimed",
    /// What is answered before the call returns may have taken any time.
    ImmediateUntimed: "immediate-untimed",
    /// A region's header that was read under earlier registrations is taken for one of these.
    EarlierHeaderTaken: "earlier-header-taken",
    /// Trust counts for whatever registrations are known of the node that grants it.
    TrustByLink: "trust-by-link",
    /// What was read under a registration that has left counts under the next one that gets its place.
    LeftRegistrationCounted: "left-registration-counted",
    /// Of two claims to a pair the one that was heard last counts.
    OlderClaimTaken: "older-claim-taken",
    /// A walk by reads takes a router's leaf for one with entries.
    WalkRoleUnasked: "walk-role-unasked",
    /// A write of a session that has ended carries the floor of the next one.
    ForeignFloorSent: "foreign-floor-sent",
    /// A node of another cluster is written to.
    ClusterUnasked: "cluster-unasked",
    /// Over RDMA the token goes in a message, which nothing encrypts.
    TokenInMessage: "token-in-message",
}
