//! Names of things. None is ever reused; zero is "none" where a field can be empty.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A region's cluster-wide id: 24 bits, because it is the upper part of a [`crate::Pointer`]. Never
    /// reused.
    RegionId(u32),
    "region-"
);
id!(
    /// A pair: a node region and the extent region that its leaves point into, owned and recovered as one.
    PairId(u32),
    "pair-"
);
id!(
    /// A storage node's name, as its operator numbers it. Owners are incarnations, not nodes.
    NodeId(u32),
    "node-"
);
id!(
    /// One life of a node's process, named by its lease in the coordinator.
    Incarnation(u64),
    "incarnation-"
);

/// The lower bits of an incarnation, which tell those of one cluster apart.
const INCARNATION_COUNT_BITS: u32 = 40;

impl Incarnation {
    /// The cluster that it is of: the random number with which the ids of a coordinator's leases begin.
    #[must_use]
    pub const fn cluster(self) -> u64 {
        self.0 >> INCARNATION_COUNT_BITS
    }

    /// The first one of the cluster that this number, drawn at random, names by its upper 24 bits.
    #[must_use]
    pub fn first_of_cluster(drawn: u32) -> Incarnation {
        let cluster = u64::from(drawn >> (INCARNATION_COUNT_BITS - u32::BITS));
        Incarnation((cluster << INCARNATION_COUNT_BITS) | 1)
    }

    /// The first one of a coordinator's generation, whose upper 24 bits name the cluster. Its other eight
    /// begin the count, but for the highest of them: half of the cluster's incarnations are left at least.
    #[must_use]
    pub fn first_of_generation(generation: u32) -> Incarnation {
        let half: u64 = 1 << (INCARNATION_COUNT_BITS - 1);
        Incarnation(((u64::from(generation) << u32::BITS) & !half) | 1)
    }

    /// How many of the same cluster come after it.
    #[must_use]
    pub const fn left_in_cluster(self) -> u64 {
        let counted = (1 << INCARNATION_COUNT_BITS) - 1;
        counted - (self.0 & counted)
    }
}

id!(
    /// A meganode's place in a node region: slot `i` begins at `header + i * slot_bytes`.
    SlotIndex(u32),
    "slot-"
);
id!(
    /// A client session. Ids are never reused, by a coordinator that was lost or restored neither.
    SessionId(u64),
    "session-"
);
id!(
    /// A client's number of one of its writes, dense within a session from 1 (RIFL, SOSP 2015).
    OperationNumber(u64),
    "operation-"
);

id!(
    /// An extent's place in its pair's extent region, in units of 16 bytes: 64 GiB at most. Zero is never an
    /// extent (the region's header is there).
    ExtentOffset(u32),
    "extent-"
);

/// What a region holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RegionKind {
    /// Meganodes: slots of tree nodes.
    Node,
    /// Key-value entries.
    Extent,
}

impl PairId {
    /// The pair's node region: even ids. (The region table is still what routes; see ARCHITECTURE.md,
    /// Formats.)
    #[must_use]
    pub const fn node_region(self) -> RegionId {
        RegionId(self.0 * 2)
    }

    /// The pair's extent region: odd ids.
    #[must_use]
    pub const fn extent_region(self) -> RegionId {
        RegionId(self.0 * 2 + 1)
    }

    /// The pair's region of one kind.
    #[must_use]
    pub const fn region(self, kind: RegionKind) -> RegionId {
        match kind {
            RegionKind::Node => self.node_region(),
            RegionKind::Extent => self.extent_region(),
        }
    }
}

impl RegionId {
    /// The pair that the region is of; pair 0 if it is of none.
    #[must_use]
    pub const fn pair(self) -> PairId {
        PairId(self.0 / 2)
    }
}

impl fmt::Display for RegionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RegionKind::Node => "node",
            RegionKind::Extent => "extent",
        })
    }
}
