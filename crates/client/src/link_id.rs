//! The names of a client's connections.

/// Names a connection of a client towards its shell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u16);

impl LinkId {
    /// The connection by which a client comes in.
    pub const BOOTSTRAP: LinkId = LinkId(0);

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Connections of a client, at most.
pub(crate) const LINKS_MAX: usize = 64;

/// Some of a client's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkSet(u64);

impl LinkSet {
    pub(crate) fn insert(&mut self, link: LinkId) {
        self.0 |= 1u64.checked_shl(link.0.into()).unwrap_or(0);
    }

    pub(crate) fn contains(self, link: LinkId) -> bool {
        self.0 & 1u64.checked_shl(link.0.into()).unwrap_or(0) != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn without(self, other: LinkSet) -> LinkSet {
        LinkSet(self.0 & !other.0)
    }
}

impl FromIterator<LinkId> for LinkSet {
    fn from_iter<I: IntoIterator<Item = LinkId>>(links: I) -> LinkSet {
        let mut set = LinkSet::default();
        links.into_iter().for_each(|link| set.insert(link));
        set
    }
}
