//! What a sleep says of an endpoint: which parts of it have something.

/// Which parts of an endpoint have something: see [`Endpoint::wake_descriptors`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadyParts(u64);

impl ReadyParts {
    /// The part of this number alone; none if it is 64 or more.
    #[must_use]
    pub const fn of(part: usize) -> ReadyParts {
        ReadyParts(if part < 64 { 1 << part } else { 0 })
    }

    /// All of both.
    #[must_use]
    pub const fn and(self, others: ReadyParts) -> ReadyParts {
        ReadyParts(self.0 | others.0)
    }

    /// Whether the part of this number is one of them.
    #[must_use]
    pub const fn has(self, part: usize) -> bool {
        self.0 & ReadyParts::of(part).0 != 0
    }
}
