//! Where the tree begins: the word that the node region with the lowest id keeps at offset 0.

use std::fmt;

use crate::Pointer;

/// Bit 0 of the word. Tree nodes begin at multiples of 512, so a pointer to one leaves it free.
const ROUTER: u64 = 1;

/// The root meganode's root tree node, and what its leaves lead to.
///
/// As a word: the pointer, and bit 0 set where the meganode is a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Root {
    /// The root tree node of the root meganode; null in all regions but the one that keeps the root.
    pub pointer: Pointer,
    /// Whether its leaves lead to meganodes, in place of entries.
    pub router: bool,
}

impl Root {
    /// No root is kept here.
    pub const NONE: Root = Root { pointer: Pointer::NULL, router: false };

    /// A meganode of entries is all there is.
    #[must_use]
    pub const fn leaf(pointer: Pointer) -> Root {
        Root { pointer, router: false }
    }

    /// A router leads to the meganodes.
    #[must_use]
    pub const fn router(pointer: Pointer) -> Root {
        Root { pointer, router: true }
    }

    /// As it stands in the header and in records.
    ///
    /// # Panics
    /// If the pointer is odd: it cannot be a tree node's.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        assert!(self.pointer.0 & ROUTER == 0, "a tree node's place is even");
        self.pointer.0 | if self.router { ROUTER } else { 0 }
    }

    /// What a word says. Any word says something; whether the pointer is good shows when it is followed.
    #[must_use]
    pub const fn from_word(word: u64) -> Root {
        Root { pointer: Pointer(word & !ROUTER), router: word & ROUTER != 0 }
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.router { "router" } else { "leaf meganode" }, self.pointer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RegionId;

    #[test]
    fn root_word_round_trips_both_kinds() {
        let pointer = Pointer::new(RegionId(2), 4096);
        for root in [Root::NONE, Root::leaf(pointer), Root::router(pointer)] {
            assert_eq!(Root::from_word(root.to_word()), root);
        }
        assert_eq!(Root::leaf(pointer).to_word(), pointer.0);
        assert_eq!(Root::router(pointer).to_word(), pointer.0 | 1);
        assert!(Root::from_word(0).pointer.is_null());
    }
}
