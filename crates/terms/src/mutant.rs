//! Defects that can be planted, one at a time, to see the checks fail: each takes out one line on which a
//! promise rests.
//! They exist only in debug builds; elsewhere [`planted`] is `false` at compile time.

/// Set in the process that [`in_own_process`] starts.
#[cfg(debug_assertions)]
const OWN_PROCESS: &str = "CELL_TEST_OWN_PROCESS";

/// Runs the body of a test that plants defects, in a process of its own: a defect is planted in the whole
/// process, and
/// `cargo test` runs other tests on its other threads. What the test prints of mutants is printed here.
///
/// # Panics
/// If the test fails there.
#[cfg(debug_assertions)]
pub fn in_own_process(test: impl FnOnce()) {
    let is_own = std::env::var_os(OWN_PROCESS).is_some()
        || std::env::var("NEXTEST_EXECUTION_MODE").is_ok_and(|mode| mode == "process-per-test");
    if is_own {
        return test();
    }
    let thread = std::thread::current();
    let name = thread.name().expect("libtest names a test's thread after the test");
    let program = std::env::current_exe().expect("a test knows its own path");
    let mut command = std::process::Command::new(program);
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(OWN_PROCESS, "1");
    let output = command.output().expect("a test can be started again");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines().filter(|line| line.starts_with("mutant ")).for_each(|line| println!("{line}"));
}

/// Declares defects for the twins of a crate's tests (the same run with a defect planted must fail): an enum
/// `Mutant` with their names, `plant`, and `planted`, which is `false` at compile time in builds without
/// debug assertions.
#[macro_export]
macro_rules! mutants {
    ($visible:vis, $($(#[$doc:meta])* $name:ident: $text:literal),* $(,)?) => {
        /// A defect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Mutant { $($(#[$doc])* $name),* }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Mutant] = &[$(Mutant::$name),*];

            /// Its name for command lines.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Mutant::$name => $text),* }
            }
        }

        #[cfg(debug_assertions)]
        static PLANTED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(usize::MAX);

        /// Plants a defect in this process, or takes it out.
        #[cfg(debug_assertions)]
        pub fn plant(mutant: Option<Mutant>) {
            let number = mutant.map_or(usize::MAX, |mutant| mutant as usize);
            PLANTED.store(number, std::sync::atomic::Ordering::SeqCst);
        }

        /// Whether this defect is planted.
        #[cfg(debug_assertions)]
        #[must_use]
        $visible fn planted(mutant: Mutant) -> bool {
            PLANTED.load(std::sync::atomic::Ordering::Relaxed) == mutant as usize
        }

        /// Whether this defect is planted: it cannot be in this build.
        #[cfg(not(debug_assertions))]
        #[inline(always)]
        #[must_use]
        $visible const fn planted(_: Mutant) -> bool {
            false
        }
    };
}

mutants! {
    pub,
    /// Writes are acknowledged before their batch is durable.
    AcknowledgeEarly: "acknowledge-early",
    /// A get that hits does not wait for the entry's batch.
    HitNotHeld: "hit-not-held",
    /// A get that misses does not wait for the removal's batch.
    MissNotHeld: "miss-not-held",

    // What is answered by what is durable. Tests of `node/tests/suite/worker_core/held_kinds.rs` catch them.
    /// A search that hits does not wait for the entry's batch.
    SearchHitNotHeld: "search-hit-not-held",
    /// A search that misses does not wait for the removal's batch.
    SearchMissNotHeld: "search-miss-not-held",
    /// A multi-get does not wait for the batches of its entries.
    MultiGetHitNotHeld: "multi-get-hit-not-held",
    /// A multi-get does not wait for the batch of an entry of which it has the version alone.
    MultiGetLargeNotHeld: "multi-get-large-not-held",
    /// A multi-get does not wait for the batch of a removal.
    MultiGetMissNotHeld: "multi-get-miss-not-held",
    /// A page does not wait for the batches of its entries.
    ScanHitNotHeld: "scan-hit-not-held",
    /// A page does not wait for the batches of removals from its leaves.
    ScanRemovalNotHeld: "scan-removal-not-held",
    /// A page depends on nothing.
    ScanNotHeld: "scan-not-held",
    /// A value in chunks does not wait for its batch.
    StreamNotHeld: "stream-not-held",
    /// A repeated write is answered before its first copy is durable.
    RepeatNotHeld: "repeat-not-held",
    /// An answer from several pairs leaves as soon as one of them is durable.
    JointNotHeld: "joint-not-held",
    /// That a write's condition failed is not kept for repeats.
    FailedConditionUnlogged: "failed-condition-unlogged",
    /// That there was nothing to delete is not kept for repeats.
    DeletedNothingUnlogged: "deleted-nothing-unlogged",
    /// A write passes those that wait for its pair's log.
    BacklogPassed: "backlog-passed",
    /// A value in chunks is written whatever its checksum says.
    StreamUnchecked: "stream-unchecked",

    // Steps of splits. Tests of `node/tests/suite/worker_core/split_order.rs` catch them.
    /// A target is asked to adopt before the split's start is durable.
    AskedEarly: "asked-early",
    /// A source learns that its half is adopted before that is durable.
    AdoptedToldEarly: "adopted-told-early",
    /// A target is asked to take writes before its source is truncated durably.
    OpenToldEarly: "open-told-early",
    /// A source learns that its target takes writes before that is durable.
    OpenedToldEarly: "opened-told-early",
    /// A source learns that its target takes writes while damage to that record would look like a torn write.
    OpenedToldUnsealed: "opened-told-unsealed",
    /// It learns so by a notice. Tests of `node/tests/suite/worker_core/across.rs` catch this one and the
    /// next.
    OpenedNotedUnsealed: "opened-noted-unsealed",
    /// A target learns by a notice that its source is truncated, while damage to that record would look like
    /// a torn write.
    OpenNotedUnsealed: "open-noted-unsealed",
    /// A source learns that its half is adopted while damage to that record would look like a torn write.
    AdoptedToldUnsealed: "adopted-told-unsealed",
    /// A target is asked to take writes while damage to the record that truncates its source would look like
    /// a torn write.
    OpenToldUnsealed: "open-told-unsealed",
    /// A target hears of a split's end while damage to that record would look like a torn write.
    EndToldUnsealed: "end-told-unsealed",
    /// A split that an earlier owner left unfinished counts as one that failed, and writes are refused.
    RecoveredSplitRests: "recovered-split-rests",
    /// So does one that failed while no pair may grow.
    HeldSplitRests: "held-split-rests",
    /// A write is refused for want of memory that is only kept until other pairs are recovered.
    RefusedWhileHeld: "refused-while-held",
    /// The root leads to a router that is not durable.
    RootSetEarly: "root-set-early",
    /// A router gets entries before it is durable that the root leads to it.
    RouteAddedEarly: "route-added-early",
    /// A source learns that it is routed before that is durable.
    RoutedToldEarly: "routed-told-early",
    /// A target learns that its split is over before that is durable.
    SplitEndedEarly: "split-ended-early",
    /// The table drops a split that is over before that is durable.
    SplitPrunedEarly: "split-pruned-early",
    /// A source takes writes to its upper half once the split is linked.
    LinkedHalfWritten: "linked-half-written",
    /// The router's entry of a meganode that was merged away stays.
    MergedRouteKept: "merged-route-kept",
    /// After a recovery a merge's target has the range while the source still serves it.
    MergedRangeUnclipped: "merged-range-unclipped",
    /// After a recovery nobody has the range of a meganode that is gone, until the first turn.
    RecoveredMergeUnextended: "recovered-merge-unextended",
    /// Of two splits of a slot the one that is open counts. A test of `recovery/src/split/table.rs` catches
    /// it, and the one after it.
    OpenTargetFirst: "open-target-first",
    /// The slot of a meganode that was merged away is free once that is durable.
    MergedSlotPruned: "merged-slot-pruned",
    /// The removal of a router's entry comes before the entry, which then stays.
    RouteOvertaken: "route-overtaken",
    /// A meganode takes over a range though it has got entries since it was chosen.
    AbsorbedUnseen: "absorbed-unseen",
    /// A merge's target changes by a link of which damage would not be found.
    MergeToldUnsealed: "merge-told-unsealed",
    /// A slot is used again by a removal from the router of which damage would not be found.
    UnroutedToldUnsealed: "unrouted-told-unsealed",
    /// The slot of a meganode that was merged away is used again before the router has forgotten it.
    MergedSlotReusedEarly: "merged-slot-reused-early",
    /// A checkpoint begins while an adoption has entries that no leaf leads to.
    ImageAmidAdoption: "image-amid-adoption",

    // What is used again before the record that freed it is durable. Tests of
    // `node/tests/suite/worker_core/rest.rs` catch them.
    /// The tree nodes and extents of a half that was truncated away.
    TruncatedHalfUnrested: "truncated-half-unrested",
    /// The extents and the slot of an adoption that was thrown away.
    DiscardedAdoptionUnrested: "discarded-adoption-unrested",
    /// The extent of an entry that was replaced or removed.
    ReplacedExtentUnrested: "replaced-extent-unrested",
    /// Tree nodes that a compaction has emptied.
    CompactedNodesUnrested: "compacted-nodes-unrested",

    /// A put is started when the log has room for one tree node's image. A test of `crates/pair/src/log.rs`
    /// catches it.
    LogNeedShort: "log-need-short",
    /// A store that has stopped goes on renewing leases. A test of `crates/cluster/src/providers/embedded.rs`
    /// catches it.
    StoppedRenews: "stopped-renews",
    /// A node ends its lease while it may still be trusted. A test of `node/src/lease_end.rs` catches it.
    LeaseEndedEarly: "lease-ended-early",
    /// A node's folder is known by its path alone: another disk under that path counts as the same. A test of
    /// `node/src/home.rs` catches it.
    HomeByPath: "home-by-path",
    /// Who has served a pair claims it again. Tests of the coordinator catch it.
    ServedClaimedAgain: "served-claimed-again",
    /// A recovery takes what is newer than its image says. A test of `recovery/src/replay.rs` catches it.
    ImageNewerTaken: "image-newer-taken",
    /// A log gives up its last segment with a durable frame. A test of wal's
    /// (`wal/tests/suite/last_segment.rs`) catches it.
    LastSegmentReleased: "last-segment-released",

    // And others.
    /// Replay leaves an extent alone where there is one already.
    ExtentNotRewritten: "extent-not-rewritten",
    /// A recovery reads past a recorded cut.
    CutIgnored: "cut-ignored",
    /// A repeated write is carried out again.
    RepeatApplied: "repeat-applied",
    /// Of a session that comes twice in a part of a completion table, the first results are lost. A test of
    /// `recovery/src/completion.rs` catches it.
    SessionReplaced: "session-replaced",
    /// Results that are not durable go along with an adoption, and count at once. A test of the worker core
    /// (`node/tests/suite/worker_core/adoptions.rs`) catches it.
    ResultsUndurable: "results-undurable",
    /// Results that came with an adoption stay when nothing comes of that. Caught as the one before.
    DiscardedResultsKept: "discarded-results-kept",
    /// A worker that takes a pair over goes on with the sessions that it knew. A test of the worker core
    /// (`node/tests/suite/worker_core/sessions.rs`) catches it.
    EndedSessionsKnown: "ended-sessions-known",
    /// Results that go along with an adoption stay when their session ends meanwhile. Caught as the one
    /// before.
    EndedResultsAdopted: "ended-results-adopted",
    /// A worker that has failed sends what was made since. A test of the worker core
    /// (`node/tests/suite/worker_core/lease.rs`) catches it.
    FailedWorkerSends: "failed-worker-sends",
    /// A delayed copy of an acknowledged write is carried out.
    FloorIgnored: "floor-ignored",
    /// An adoption that has logged nothing yet has no slot of its own. A test of the worker core
    /// (`node/tests/suite/worker_core/adoptions.rs`) catches it.
    SlotUnreserved: "slot-unreserved",
    /// A checkpoint is recorded before all that it holds is durable.
    CheckpointEarly: "checkpoint-early",
    /// A checkpoint releases the log above its base.
    ReleaseTooMuch: "release-too-much",
    /// A checkpoint's image has the name of the one before it. A test of the worker core catches it.
    ImageNameReused: "image-name-reused",
    /// A checkpoint lacks the completion table.
    CompletionsDropped: "completions-dropped",
    /// A worker goes on past its lease.
    LeaseIgnored: "lease-ignored",
    /// A node whose lease has run out relies on it from when it asks whether it is there: it serves before
    /// the row was read. Tests of `crates/cluster/src/lease.rs` catch it and the two after it.
    ServedUnread: "served-unread",
    /// A node relies on its lease because it was found there, though that has renewed nothing.
    RenewedByLook: "renewed-by-look",
    /// A node whose lease has run out asks by renewals, and keeps its pairs from others without end.
    SilentRenews: "silent-renews",
    /// A worker whose lease has run out goes on with its requests and its log. A test of the worker core
    /// (`node/tests/suite/worker_core/lease.rs`) catches it.
    SilentWorks: "silent-works",
    /// Replies that waited while the lease had run out leave without it. Caught as the one before.
    SilentSends: "silent-sends",
    /// One-sided reads are trusted for as long as the lease holds, whatever `trust_max_ms` says. Caught as
    /// the one before.
    TrustByLease: "trust-by-lease",
    /// A coordinator that stood still ends leases that could not be renewed meanwhile. A test of
    /// `crates/cluster/src/providers/embedded.rs` catches it.
    GapUnnoticed: "gap-unnoticed",
    /// A coordinator that stood still, or sees that renewals were held up, keeps leases that were over
    /// before, though their end may be on stable storage. Caught as the one before.
    GapRevives: "gap-revives",
    /// A lease whose renewals are held up is kept without end, though its holder may be dead. Caught as the
    /// one before.
    KeptForEver: "kept-for-ever",
    /// What was freed is used again at once. No answer shows it, because checksums and fences keep readers
    /// from it; the owner's own assertion does (`crates/pair/src/grace.rs`).
    GraceSkipped: "grace-skipped",
    /// The grace period of what was freed is counted from the time that was given last before. A test of the
    /// worker core (`node/tests/suite/worker_core/grace.rs`) catches it.
    GraceBackdated: "grace-backdated",
    /// An adopted meganode is readable before its split is linked.
    ReadableEarly: "readable-early",
    /// An adopted meganode takes writes before its source is truncated.
    WritableEarly: "writable-early",
    /// A source is truncated before its split is linked durably.
    TruncatedEarly: "truncated-early",
    /// A compaction leaves the tree nodes that it has emptied readable.
    CompactedRunKept: "compacted-run-kept",
    /// A recovery gives frames back to the disk that later ones read. A test of recoveries
    /// (`recovery/tests/suite/damage.rs`) catches it.
    FramesGivenBack: "frames-given-back",
    /// Extents of a meganode that is being split are moved to other places. A test of the worker core
    /// (`node/tests/suite/worker_core/packing.rs`) catches it.
    SplitSourcePacked: "split-source-packed",
    /// A cut is recorded before what it relies on is synced.
    CutUnsynced: "cut-unsynced",
    /// Rows of the region table are written whatever they have become meanwhile.
    TableUnconditional: "table-unconditional",
    /// The coordinator answers before a change is on stable storage: the embedded one syncs nothing, the
    /// simulated one syncs each change with the next.
    CoordinatorUnsynced: "coordinator-unsynced",
    /// What sled writes to files of its own is not synced.
    BlobsUnsynced: "blobs-unsynced",
    /// A table that was built anew counts before its rows are on stable storage.
    RebuiltUnsynced: "rebuilt-unsynced",
    /// A node joins whatever its log root, format or settings are.
    TermsIgnored: "terms-ignored",
    /// A node joins though a member does not find in its log root what this one has made in its own.
    RootUnproven: "root-unproven",
    /// A node joins though another one with its number lives elsewhere.
    SeatIgnored: "seat-ignored",
    /// A session's id follows from the table's counter alone: a table that was restored from a backup gives
    /// it to another client.
    SessionByCounter: "session-by-counter",
    /// A session whose row does not read counts as ended: what its writes ended as is forgotten.
    UnreadableSessionEnded: "unreadable-session-ended",
    /// A member whose row does not read is nobody to who joins: its terms may differ from those of others.
    UnreadableMemberUnseen: "unreadable-member-unseen",
    /// Who watches leases on etcd goes on counting over a time in which it had no answers: etcd's outage ends
    /// them. A test of `crates/cluster/src/providers/etcd/lease_watch.rs` catches it.
    OutageEndsLeases: "outage-ends-leases",
    /// It leaves a holder less than two renewals' time after a gap. A test there catches this one and the
    /// next.
    HolderRushedAfterGap: "holder-rushed-after-gap",
    /// It goes on counting after a gap that was longer than the lease.
    LongOutageCountedOver: "long-outage-counted-over",
    /// Gaps that come again and again keep a lease for ever that nobody renews. A test there catches it.
    GapsKeepLeases: "gaps-keep-leases",
    /// A transaction is asked for again though etcd may have carried it out. A test of
    /// `crates/cluster/src/providers/etcd/route.rs` catches it.
    UnknownAskedAgain: "unknown-asked-again",
    /// An etcd that was restored from a backup is taken for the one before. A test of
    /// `crates/cluster/src/providers/etcd/history.rs` catches it.
    HistoryUnasked: "history-unasked",
    /// What a member of another cluster of etcd answers is believed. A test of
    /// `crates/cluster/src/providers/etcd/tests.rs` catches it.
    OtherClusterBelieved: "other-cluster-believed",
    /// A lease on etcd is renewed though its row is an older one than its holder left: etcd was restored from
    /// a backup. Caught as the one before.
    RestoredLeaseRenewed: "restored-lease-renewed",
    /// A lease on etcd is renewed whether it has ended or not. A test of
    /// `crates/cluster/src/providers/etcd/tests.rs` catches it.
    EndedLeaseRenewed: "ended-lease-renewed",
    /// A lease on etcd is ended though it was renewed since it seemed over. Caught as the one before.
    RenewedLeaseEnded: "renewed-lease-ended",
    /// Damage of a pair is believed when one member has found it.
    DamageBelievedAlone: "damage-believed-alone",
    /// A large row of the coordinator's table lies in sled as one piece.
    RowsUncut: "rows-uncut",
    /// A dump is loaded as if it had no heading. A test of `ops/src/input/source.rs` catches it.
    DumpHeadingMissed: "dump-heading-missed",
    /// A node relies on a renewal of its lease of which it does not know whether it was carried out. A test
    /// of `crates/cluster/src/lease.rs` catches it.
    UnansweredRenewalBelieved: "unanswered-renewal-believed",
    /// A dump without an end is loaded as a whole one. A test of `ops/src/input/content.rs` catches it.
    DumpEndUnasked: "dump-end-unasked",
    /// A source passes for proven though some of it could not be read. A test of `ops/src/load/proof.rs`
    /// catches it.
    UnreadPasses: "unread-passes",
    /// The entries of drills that go on are removed. A test of `ops/src/command/drill_clean.rs` catches it.
    RunningDrillCleaned: "running-drill-cleaned",
    /// Where a drill has added a stem, keys are removed that no drill writes. A test of
    /// `ops/src/command/drill_clean.rs` catches it.
    ForeignKeyCleaned: "foreign-key-cleaned",
    /// A range that is to be removed may have empty bounds. A test of `ops/src/range.rs` catches it.
    EmptyBoundTaken: "empty-bound-taken",
    /// A pair's row is written whatever is there, when its id comes from a counter that went back.
    PairOverwritten: "pair-overwritten",
    /// An incident is claimed in the name of a lease that has ended.
    ClaimerLeaseUnasked: "claimer-lease-unasked",
    /// Who holds a lock claims what was owned on another host, whose lease has not ended. Tests of the
    /// coordinator (`crates/cluster/tests/suite/mutants.rs`) catch it: simulated nodes are all of one host.
    HostUnasked: "host-unasked",
    /// A worker carries out what the role of a client's token does not permit. A test of the worker core
    /// (`node/tests/suite/worker_core/access.rs`) catches it.
    RoleUnasked: "role-unasked",
    /// A connection whose token is gone stays, and keeps its role. A test of the worker core
    /// (`node/tests/suite/worker_core/access.rs`) catches it.
    RevokedStays: "revoked-stays",
    /// The coordinator answers peers of other users. A test of the coordinator
    /// (`crates/cluster/tests/suite/mutants.rs`) catches it.
    StrangerServed: "stranger-served",
    /// The coordinator answers over TLS whoever shows any token. A test of the coordinator
    /// (`crates/cluster/tests/suite/mutants.rs`) catches it.
    CoordinatorTokenUnasked: "coordinator-token-unasked",
    /// A folder is made and its name not put on stable storage.
    FolderNamesUnsynced: "folder-names-unsynced",
    /// A pair is served while its earlier owners may be trusted.
    TrustNotAwaited: "trust-not-awaited",
    /// A new epoch's first segments are files of an earlier one.
    ZombieSegments: "zombie-segments",
    /// Watermarks are published without order: what they cover may be seen after them.
    WatermarkRelaxed: "watermark-relaxed",
    /// A client that reads one-sided does not ask whether what it found is durable.
    WatermarkUnchecked: "watermark-unchecked",
    /// A client takes a watermark for that of another epoch. A thousand simulated runs do not show it:
    /// regions get fresh keys with each epoch, and whose reads span a takeover has outlived clock and lease.
    /// The client's own twins do (`crates/client/tests/suite/onesided/mutants.rs`).
    WatermarkEpochIgnored: "watermark-epoch-ignored",
    /// A client does not look how long its one-sided reads took. Its own twins catch it, as the one before.
    ClockUnchecked: "clock-unchecked",
    /// A client believes the header of an extent without a second look at its leaf. Its own twins catch it,
    /// as the one before.
    HeaderUnconfirmed: "header-unconfirmed",
    /// A client settles what it has looked up in place by a time from before. Its own twins catch it, as the
    /// one before.
    ClockBeforeLoads: "clock-before-loads",
    /// A client believes what it has found at once by the time that it read before it looked. Its own twins
    /// catch it, as the one before.
    ClockNotReadAgain: "clock-not-read-again",
    /// A client believes one-sided reads past the owner's lease. Its own twins catch it, as the one before.
    TrustUnchecked: "trust-unchecked",
    /// Regions grow while what is left is kept for others. A test of `crates/memory/tests/region.rs` catches
    /// it.
    GrowthNotHeld: "growth-not-held",
    /// A node keeps no memory for the pairs that it had before. A test of `node/src/membership/tests.rs`
    /// catches it.
    LeftBehindForgotten: "left-behind-forgotten",
    /// Files of memory can be opened anew by others. A test of the fabric
    /// (`crates/fabric/tests/suite/shm_handed_out.rs`) catches it.
    HandedReopenable: "handed-reopenable",
    /// Files of memory are handed out with the right to write. Caught as the one before.
    HandedWritable: "handed-writable",
    /// A takeover blames the data before the region table has answered. A test of
    /// `recovery/tests/suite/damage.rs` catches it.
    ReportUnanswered: "report-unanswered",
    /// A takeover does not look whether the log root is there. A test of `node/src/recoverer.rs` catches it.
    TakeoverRootUnasked: "takeover-root-unasked",
    /// A notice is written though the pair in whose name it is written is another's by now. The twins of the
    /// coordinator's tests (`crates/cluster/tests/suite/mutants.rs`) catch it.
    NoticeWithoutRow: "notice-without-row",
    /// The number of a worker's list of registrations stays when one of them leaves. The twins of the worker
    /// core (`node/tests/suite/worker_core/mutants.rs`) catch it.
    ListNumberKept: "list-number-kept",
    /// A pair is given up before the trust in its registrations has ended. Caught as the one before.
    LeftWhileTrusted: "left-while-trusted",
    /// A pair is given up before all that was appended is durable and answered. Caught as the one before.
    LeftUnanswered: "left-unanswered",
    /// A pair is handed over though an end of the move is dead. The twins of the coordinator's tests
    /// (`crates/cluster/tests/suite/mutants.rs`) catch it, as the next six.
    HandingLeaseUnasked: "handing-lease-unasked",
    /// A pair is handed over though the move was ended since it was looked at.
    HandingMoveUnasked: "handing-move-unasked",
    /// A source that was not answered looks at the row, and serves on.
    ThawByLook: "thaw-by-look",
    /// A row that was put without an answer is taken for put.
    UnansweredBelieved: "unanswered-believed",
    /// A pair goes back though its target serves it.
    ServedTakenBack: "served-taken-back",
    /// A pair goes back though another has claimed it.
    BackOutrun: "back-outrun",
    /// A source that finds its pair back by a look serves the memory that it has kept.
    ThawOnALook: "thaw-on-a-look",
    /// A source serves the memory that it has kept though the pair's row is another since. A test of the
    /// control side (`node/tests/suite/moves.rs`) catches it.
    FrozenServedAfterAnotherRow: "frozen-served-after-another-row",
    /// A pair that was handed over is shown to clients before it is published. A test of recoveries
    /// (`recovery/tests/suite/copy.rs`) catches it.
    ToldUnpublished: "told-unpublished",
    /// A move is started by who balances no more. The twins of the coordinator's tests
    /// (`crates/cluster/tests/suite/mutants.rs`) catch it.
    BalancerUnasked: "balancer-unasked",
    /// A move begins to a node that drains since it was looked at. Caught as the one before.
    MoveToDrain: "move-to-drain",
    /// Of two operators who drain the last two nodes at the same time neither is refused. Caught as the one
    /// before.
    LastTwoDrained: "last-two-drained",
    /// Drains are started, ended and nodes removed though drains were changed since that was looked at.
    /// Caught as the one before.
    DrainsUnseen: "drains-unseen",
    /// Of two drains that were planned from the same rows neither is refused, though there is room for one.
    /// Caught as the one before.
    DrainPlanUnasked: "drain-plan-unasked",
    /// A copy of a pair counts though others have had the pair since. Tests of recoveries
    /// (`recovery/tests/suite/copy.rs`) catch it, as the next one.
    ForeignEpochTaken: "foreign-epoch-taken",
    /// A copy of a pair counts though it has more than the recorded cut.
    CutBelowCopy: "cut-below-copy",
    /// A takeover takes memory for its image until there is none. The twins of takeovers
    /// (`recovery/tests/suite/mutants.rs`) catch it.
    ShortageFoundLate: "shortage-found-late",
    /// A node claims a pair that was handed over to it, beside the copy that is made whole. A test of
    /// `node/src/membership/tests.rs` catches it.
    HandedClaimed: "handed-claimed",
    /// A pair whose creation was broken off is left New for as long as its owner lives. Runs of the simulator
    /// in which one is broken off catch it (`tests/simulator/tests/creation.rs`).
    CreationLeft: "creation-left",
    /// A source whose pair is another's by now serves on what it has frozen. A test of
    /// `node/src/moves/source.rs` catches it.
    FrozenServedAnyway: "frozen-served-anyway",
    /// A split begins in a pair that leaves. The twins of the worker core
    /// (`node/tests/suite/worker_core/mutants.rs`) catch it.
    SplitWhileLeaving: "split-while-leaving",
    /// A pair that was made for another node gets what it was made for though it leaves. Caught as the one
    /// before, as the next three.
    SplitIntoLeaving: "split-into-leaving",
    /// A meganode that is being split is split once more, for another node.
    SplitTwice: "split-twice",
    /// A pair leaves though a split in which it takes part is under way.
    LeftAmidSplit: "left-amid-split",
    /// A pair that comes in the turn in which another has left gets its number, and loses its log's device
    /// with it.
    DeviceLost: "device-lost",
    /// A pair that was frozen is handed over by an earlier answer of the worker. A test of
    /// `node/src/moves/mod.rs` catches it.
    StaleFreezeTaken: "stale-freeze-taken",
    /// A split that is not linked keeps its pair from leaving. The twins of the worker core
    /// (`node/tests/suite/worker_core/mutants.rs`) catch it.
    UnlinkedKept: "unlinked-kept",
    /// Whoever shows a token has a place beyond the limit of connections. Caught as the one before, as the
    /// next one.
    CrowdHasPlace: "crowd-has-place",
    /// Nobody has a place beyond the limit of connections, operators included.
    OperatorHasNoPlace: "operator-has-no-place",
    /// The row of a move whose ends are done with it, or dead, stays under way. Tests of
    /// `node/src/moves/mod.rs` catch it, as the next one.
    MoveLeftOpen: "move-left-open",
    /// Whoever sees a move that is decided closes it, whether its source lives or not.
    MoveClosedByAnybody: "move-closed-by-anybody",
    /// A copy that was ready stays so while it does not come to the log's end. A test of
    /// `node/src/moves/copying.rs` catches it.
    ReadyForEver: "ready-for-ever",
    /// A copy that was ready stays so however much a round brings. A test of recoveries
    /// (`recovery/tests/suite/copy.rs`) catches it.
    BehindUnseen: "behind-unseen",
    /// A log's segment that was given back is waited for by who follows the log. A test of logs
    /// (`wal/tests/suite/follow.rs`) catches it.
    ReleasedAwaited: "released-awaited",
    /// What a device has taken of a region that nobody comes to serve stays taken. A test of the fabric
    /// (`crates/fabric/src/taken.rs`) catches it.
    TakenKept: "taken-kept",
    /// A node of which relief has just taken a pair gets one back. Tests of placement
    /// (`crates/placement/tests/suite/relief.rs`) catch it, as the next one.
    FullNodeTakes: "full-node-takes",
    /// Relief goes by what a node reported before its last move was over.
    ReliefByOldFigures: "relief-by-old-figures",
    /// A connector takes any file from an acceptor. A test of the fabric
    /// (`crates/fabric/tests/suite/shm_hostile.rs`) catches it.
    PeerFileUnjudged: "peer-file-unjudged",

    // Doors. Each names the file of the test that catches it.
    /// A fabric beyond loopback is opened without TLS or tokens. `ops/src/start_checks.rs`.
    OpenNetworkTaken: "open-network-taken",
    /// A node whose data folder has a store's logs begins in an empty log root. `ops/src/folders.rs`.
    EmptyLogRootTaken: "empty-log-root-taken",
    /// A table is copied while nodes write it. `crates/cluster/src/copy.rs`.
    CopyBesideMembers: "copy-beside-members",
    /// A peer in the clear is let in where TLS is spoken. `crates/fabric/tests/suite/tls.rs`.
    ClearTaken: "clear-taken",
    /// Any certificate is trusted. `crates/fabric/src/tls/trust.rs`.
    CertificateUnjudged: "certificate-unjudged",
    /// Who reads one-sided over tcp is not asked for a token. `crates/fabric/tests/suite/readers.rs`, and the
    /// next one too.
    ReaderUnjudged: "reader-unjudged",
    /// Who may read no more reads on.
    RevokedReaderStays: "revoked-reader-stays",
    /// Whoever connects over verbs learns where regions are. `crates/fabric/src/key_permission.rs`, and the
    /// next one too.
    PlaceToldToAnybody: "place-told-to-anybody",
    /// Whose reads the device answers, and who may read no more, reads on.
    ToldReaderStays: "told-reader-stays",
}
