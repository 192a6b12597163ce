//! What the leaves of a meganode lead to.

/// Bit of a tree node's kind byte. Of a router: every node of it, and no other.
pub(crate) const FLAG_ROUTER: u8 = 0x40;

/// What a meganode is. Each of its tree nodes says so, because a reader may have come by a stale pointer: a
/// router covers all keys, and its leaves would say of nearly every one that there is no entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MeganodeRole {
    /// It holds entries, which lead to extents.
    #[default]
    Data,
    /// Its entries lead to meganodes.
    Router,
}

impl MeganodeRole {
    /// What the kind byte says.
    #[inline(always)]
    pub(crate) const fn of(kind: u8) -> MeganodeRole {
        if kind & FLAG_ROUTER == 0 { MeganodeRole::Data } else { MeganodeRole::Router }
    }

    /// A kind byte with this role.
    #[inline(always)]
    pub(crate) const fn mark(self, kind: u8) -> u8 {
        match self {
            MeganodeRole::Data => kind & !FLAG_ROUTER,
            MeganodeRole::Router => kind | FLAG_ROUTER,
        }
    }
}
