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
pub(crate) const LINKS_MAX: usize = 1_024;

const WORD_BITS: usize = u64::BITS as usize;

/// Some of a client's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkSet([u64; LINKS_MAX / WORD_BITS]);

impl LinkSet {
    pub(crate) fn insert(&mut self, link: LinkId) {
        if let Some(word) = self.0.get_mut(link.index() / WORD_BITS) {
            *word |= 1 << (link.index() % WORD_BITS);
        }
    }

    pub(crate) fn contains(&self, link: LinkId) -> bool {
        let word = self.0.get(link.index() / WORD_BITS);
        word.is_some_and(|word| word & 1 << (link.index() % WORD_BITS) != 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn without(mut self, other: &LinkSet) -> LinkSet {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= !other);
        self
    }
}

impl FromIterator<LinkId> for LinkSet {
    fn from_iter<I: IntoIterator<Item = LinkId>>(links: I) -> LinkSet {
        let mut set = LinkSet::default();
        links.into_iter().for_each(|link| set.insert(link));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_holds_every_link_that_there_may_be() {
        let last = u16::try_from(LINKS_MAX - 1).unwrap();
        let mut set: LinkSet = [0, 63, 64, last].map(LinkId).into_iter().collect();
        let held = |set: &LinkSet| (0..=last).filter(|link| set.contains(LinkId(*link))).collect::<Vec<_>>();
        assert_eq!(held(&set), [0, 63, 64, last]);
        set = set.without(&[63, last].map(LinkId).into_iter().collect());
        assert_eq!((held(&set), set.is_empty()), (vec![0, 64], false));
        set.insert(LinkId(last + 1)); // there is none
        assert_eq!(held(&set), [0, 64]);
        assert!(set.without(&set).is_empty());
    }
}
