//! The connections of a client: one to each node that it needs, at most [`LINKS_MAX`]. The first is its
//! bootstrap link; another one's slot is used again when its connection is of no more use.

use std::ops::{Index, IndexMut};

use cell_protocol::OwnedState;

use crate::ClientOptions;
use crate::connection::ServerInfo;
use crate::link::Link;
use crate::link_id::{LINKS_MAX, LinkId};
use crate::peers::Peer;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Links {
    links: Vec<Link>,
}

impl Index<LinkId> for Links {
    type Output = Link;

    fn index(&self, id: LinkId) -> &Link {
        &self.links[id.index()]
    }
}

impl IndexMut<LinkId> for Links {
    fn index_mut(&mut self, id: LinkId) -> &mut Link {
        &mut self.links[id.index()]
    }
}

fn id_at(at: usize) -> LinkId {
    LinkId(u16::try_from(at).unwrap_or(u16::MAX))
}

impl Links {
    /// The bootstrap link alone.
    pub(crate) fn new(options: &ClientOptions) -> Links {
        Links { links: vec![Link::new(options, None)] }
    }

    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..self.links.len()).map(id_at)
    }

    /// All of them, beginning at the one with this number.
    pub(crate) fn ids_from(&self, first: usize) -> impl Iterator<Item = LinkId> + use<> {
        let count = self.links.len();
        (0..count).map(move |step| id_at((first + step) % count))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (LinkId, &mut Link)> {
        self.links.iter_mut().enumerate().map(|(at, link)| (id_at(at), link))
    }

    /// Takes over what of the options concerns connections.
    pub(crate) fn take_options(&mut self, options: &ClientOptions) {
        self.links.iter_mut().for_each(|link| link.take_options(options));
    }

    /// Whether a server has welcomed the client on any of them.
    pub(crate) fn is_any_up(&self) -> bool {
        self.links.iter().any(|link| link.connection.is_up())
    }

    /// What the server of the first one that was ever welcomed said of itself.
    pub(crate) fn server(&self) -> Option<&ServerInfo> {
        self.links.iter().find_map(|link| link.connection.server.as_ref())
    }

    /// The connection to a pair's owner; it is made if there is none, unless the owner is known to be dead.
    pub(crate) fn connect_living(&mut self, options: &ClientOptions, peer: &Peer) -> Option<LinkId> {
        match peer.state {
            OwnedState::Orphaned => self.find(peer),
            _ => self.connect(options, peer),
        }
    }

    /// The connection that leads to a pair's owner.
    fn find(&self, peer: &Peer) -> Option<LinkId> {
        let meets = |link: &Link| {
            let server = link.connection.server.as_ref().filter(|_| link.connection.is_up());
            server.is_some_and(|server| server.incarnation == peer.owner)
        };
        self.links.iter().position(meets).map(id_at)
    }

    /// The connection to the place where a pair's owner is, or was; it is made if there is none.
    fn connect(&mut self, options: &ClientOptions, peer: &Peer) -> Option<LinkId> {
        if let Some(link) = self.find(peer) {
            return Some(link);
        }
        if peer.address.is_empty() {
            return None;
        }
        let leads = |link: &Link| link.address.as_deref() == Some(&peer.address);
        let known = self.links.iter().position(leads).map(id_at);
        known.or_else(|| self.add(Link::new(options, Some(peer.address.clone()))))
    }

    /// Gives a connection a slot; none while all are in use.
    fn add(&mut self, link: Link) -> Option<LinkId> {
        if self.links.len() < LINKS_MAX {
            self.links.push(link);
            return Some(id_at(self.links.len() - 1));
        }
        // One that is still to be closed keeps its slot: the shell knows it by that.
        let rests = |link: &Link| {
            !link.connection.is_open() && !link.close_wanted && !link.wanted && !link.has_operations()
        };
        let at = self.links.iter().skip(1).position(rests)? + 1;
        self.links[at] = link;
        Some(id_at(at))
    }

    /// Wants connections to these peers, whatever operations are for them.
    pub(crate) fn want_all(&mut self, options: &ClientOptions, peers: &[Peer]) {
        for peer in peers {
            if let Some(link) = self.connect(options, peer) {
                self[link].wanted = true;
            }
        }
    }

    /// Wants none any more that no operation is for.
    pub(crate) fn want_none(&mut self) {
        self.links.iter_mut().for_each(|link| link.wanted = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shell closes it by its number: under another link of that number it closed the wrong one, or none.
    #[test]
    fn add_leaves_one_that_is_still_to_be_closed_its_slot() {
        let options = ClientOptions::default();
        let mut links = Links { links: Vec::new() };
        for at in 0..LINKS_MAX {
            assert_eq!(links.add(Link::new(&options, None)).map(LinkId::index), Some(at));
        }
        links.iter_mut().for_each(|(_, link)| link.close_wanted = true);
        assert_eq!(links.add(Link::new(&options, None)), None);
        (links[LinkId(0)].close_wanted, links[LinkId(7)].close_wanted) = (false, false);
        assert_eq!(links.add(Link::new(&options, None)), Some(LinkId(7)), "never the bootstrap link");
    }
}
