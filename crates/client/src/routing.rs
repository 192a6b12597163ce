//! Which node an operation is for: by the cached paths and the region table, both advice. A node that is
//! asked for what it does not have refuses, with a hint if it can.
//!
//! ```text
//! key --cached paths--> pair --table--> owner's address --> link     unknown: the lowest pair's owner
//!  ^                                                          |
//!  +--- hint: learn the path, go on at once (a few times) ----+--- no hint, a dead node: wait, ask for
//!                                                                  the table
//! ```
//!
//! While something is not where it is said to be, or somebody is silent, the table is asked for again and
//! again, at any node that answers; once it has changed, what waits is routed anew. So a dead node costs the
//! operations for its keys, until its pairs are served elsewhere, and no others.

use cell_protocol::{OwnedState, Refusal, RequestKind, Route, TableReport};
use cell_terms::PairId;
use cell_tree::Aim;

use crate::ClientOptions;
use crate::client_core::ClientCore;
use crate::error::AttemptError;
use crate::join::keys_of;
use crate::link::Link;
use crate::link_id::LinkId;
use crate::onesided::range_of;
use crate::outgoing::Control;
use crate::peers::{Peer, Taken};
use crate::pending::{OperationSlot, PendingOperation, PendingState};

/// Connections of a client, at most.
pub(crate) const LINKS_MAX: usize = 64;

/// Hints that an operation follows before it waits.
const HOPS_MAX: u8 = 8;

/// Time between two questions for the table while something is amiss.
const ASK_EVERY_NS: u64 = 20_000_000;

/// A node that is asked for the table and says nothing for so long is not waited for; others are asked too.
const ANSWER_WITHIN_NS: u64 = 100_000_000;

/// When the table is asked for.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) wanted: bool,
    /// Again and again: something is not where it is said to be.
    pub(crate) trouble: bool,
    /// Who is asked, since when.
    asked: Option<(LinkId, u64)>,
    not_before_ns: u64,
    turn: usize,
}

/// Where an operation goes.
enum Target {
    Link(LinkId),
    /// It goes in parts: this is where each of its keys is.
    Parts(Vec<LinkId>),
    /// Nobody has it.
    Nobody,
}

impl ClientCore {
    /// Puts an operation among those that are to be sent, on the connection that leads to its keys.
    #[inline]
    pub(crate) fn enlist(&mut self, slot: OperationSlot, now_ns: u64) {
        if self.spread {
            return self.enlist_routed(slot, now_ns);
        }
        self.enlist_at(slot, LinkId::BOOTSTRAP);
    }

    fn enlist_routed(&mut self, slot: OperationSlot, now_ns: u64) {
        match self.route(slot) {
            Target::Link(link) => self.enlist_at(slot, link),
            Target::Parts(targets) if self.split(slot, &targets) => {}
            Target::Parts(_) | Target::Nobody => {
                self.note_unserved(slot, None);
                self.watch.trouble = true;
                self.rest(slot, now_ns);
            }
        }
    }

    #[inline]
    fn enlist_at(&mut self, slot: OperationSlot, link: LinkId) {
        let pending = self.pending.get_mut(slot);
        (pending.state, pending.link) = (PendingState::Ready, link);
        self.links[link.index()].ready.push_back(slot);
    }

    /// Lets an operation wait a little, longer each time.
    pub(crate) fn rest(&mut self, slot: OperationSlot, now_ns: u64) {
        let attempts = self.pending.get(slot).attempts;
        let wait_ns = self.backoff.wait_ns(attempts.max(1), &mut self.random);
        self.pending.back_off(slot, now_ns.saturating_add(wait_ns));
    }

    fn route(&mut self, slot: OperationSlot) -> Target {
        let message = std::mem::take(&mut self.pending.get_mut(slot).message);
        let target = self.target(slot, &message);
        self.pending.get_mut(slot).message = message;
        target
    }

    fn target(&mut self, slot: OperationSlot, message: &[u8]) -> Target {
        let pending = self.pending.get(slot);
        let attempts = pending.attempts;
        if pending.kind == RequestKind::MultiGet {
            return self.target_of_keys(message, attempts);
        }
        let Some(aim) = aim_of(pending, message) else { return Target::Link(LinkId::BOOTSTRAP) };
        self.link_for(aim, attempts).map_or(Target::Nobody, Target::Link)
    }

    fn target_of_keys(&mut self, message: &[u8], attempts: u32) -> Target {
        let Some(keys) = keys_of(message) else { return Target::Link(LinkId::BOOTSTRAP) };
        let links: Option<Vec<LinkId>> =
            keys.iter().map(|key| self.link_for(Aim::At(key), attempts)).collect();
        let Some(links) = links else { return Target::Nobody };
        let first = links.first().copied().unwrap_or(LinkId::BOOTSTRAP);
        if links.iter().all(|link| *link == first) { Target::Link(first) } else { Target::Parts(links) }
    }

    /// The connection that leads to the keys at an aim, as far as is known. Where it is not, the owner of the
    /// router is asked, and while that one does not answer the others in turn: one of them may have the keys.
    fn link_for(&mut self, aim: Aim<'_>, attempts: u32) -> Option<LinkId> {
        if let Some(peer) = self.routes.find(aim).and_then(|pair| self.peers.of(pair)) {
            return link_to_living(&mut self.links, &self.options, peer);
        }
        let Some(first) = self.peers.first() else { return Some(LinkId::BOOTSTRAP) };
        let link = link_to_living(&mut self.links, &self.options, first);
        let is_up = |link: &LinkId| self.links[link.index()].connection.is_up();
        if link.as_ref().is_some_and(is_up) {
            return link;
        }
        let up: Vec<LinkId> = self.all_links().filter(is_up).collect();
        self.open_all(); // they may be there by the next try
        let turn = usize::try_from(attempts).unwrap_or(0).checked_rem(up.len());
        turn.map(|turn| up[turn]).or(link)
    }

    /// A worker does not have what it was asked for.
    pub(crate) fn elsewhere(&mut self, slot: OperationSlot, now_ns: u64, hint: Option<&Route<'_>>) {
        self.unsend(slot);
        let link = self.pending.get(slot).link;
        self.note_unserved(slot, hint.map(|route| route.pair));
        if let Some(route) = hint {
            self.routes.learn(route);
            self.spread = true;
            let owner = self.peers.of(route.pair);
            let target = owner.and_then(|peer| link_to_living(&mut self.links, &self.options, peer));
            let pending = self.pending.get_mut(slot);
            if target.is_some_and(|target| target != link) && pending.hops < HOPS_MAX {
                pending.hops += 1;
                return self.enlist(slot, now_ns);
            }
        } else if self.spread {
            self.forget_route(slot);
        }
        tracing::trace!(
            ticket = self.pending.get(slot).ticket.0,
            link = link.0,
            "nobody is known to have its keys"
        );
        self.watch.trouble = true;
        self.again_from_ready(slot, now_ns);
    }

    /// What to say if nobody comes to serve the keys in time, if the table tells that nobody does now.
    fn note_unserved(&mut self, slot: OperationSlot, pair: Option<PairId>) {
        let pending = self.pending.get(slot);
        let routed = || aim_of(pending, &pending.message).and_then(|aim| self.routes.find(aim));
        let row = pair.or_else(routed).and_then(|pair| self.peers.of(pair));
        let unserved = row.filter(|row| !matches!(row.state, OwnedState::Serving | OwnedState::ReadOnly));
        if let Some(&Peer { pair, state, .. }) = unserved {
            self.pending.get_mut(slot).last = Some(AttemptError::Unserved { pair, state });
        }
    }

    fn forget_route(&mut self, slot: OperationSlot) {
        let pending = self.pending.get(slot);
        match aim_of(pending, &pending.message) {
            Some(aim) => self.routes.forget(aim),
            None => {
                let keys = keys_of(&pending.message);
                keys.iter().flat_map(|keys| keys.iter()).for_each(|key| self.routes.forget(Aim::At(key)));
            }
        }
    }

    /// Whether there are, or were, several nodes: operations may wait for one that is gone.
    #[inline]
    pub(crate) fn has_choice(&self) -> bool {
        self.peers.places() > 1 || self.links.len() > 1
    }

    /// A connection is gone: whoever it led to may have lost its pairs.
    pub(crate) fn link_is_lost(&mut self, link: LinkId) {
        self.table_withheld(link);
        self.watch.trouble |= self.has_choice() && self.pending.len() > 0;
    }

    /// Who was asked for the table does not tell it.
    pub(crate) fn table_withheld(&mut self, link: LinkId) {
        if self.watch.asked.take_if(|(asked, _)| *asked == link).is_some() {
            self.watch.wanted = true;
        }
    }

    /// Whether a connection's server is so silent that others are asked what became of it.
    fn is_doubtful(&self, link: LinkId, now_ns: u64) -> bool {
        self.links[link.index()].connection.is_doubtful(now_ns, self.owed(link))
    }

    /// Asks for the table, if that is due.
    #[inline]
    pub(crate) fn watch_table(&mut self, now_ns: u64) {
        if self.watch.wanted || self.watch.trouble || self.has_choice() {
            self.watch_nodes(now_ns);
        }
    }

    fn watch_nodes(&mut self, now_ns: u64) {
        if self.has_choice() && !self.watch.trouble {
            self.watch.trouble = self.all_links().any(|link| self.is_doubtful(link, now_ns));
        }
        if !(self.watch.wanted || self.watch.trouble) || now_ns < self.watch.not_before_ns {
            return;
        }
        if self.watch.asked.is_some_and(|(_, since_ns)| now_ns < since_ns.saturating_add(ANSWER_WITHIN_NS)) {
            return;
        }
        let links = self.links.len();
        let can_answer = |at: &usize| {
            let link = &self.links[*at];
            let id = LinkId(u16::try_from(*at).unwrap_or(u16::MAX));
            link.connection.is_up() && link.control_ids.table.is_none() && !self.is_doubtful(id, now_ns)
        };
        let turn = self.watch.turn;
        let Some(at) = (0..links).map(|step| (turn + step) % links).find(can_answer) else {
            // Looked at again after a while, with or without trouble: what is due must not stay due.
            self.watch.not_before_ns = now_ns.saturating_add(ASK_EVERY_NS);
            if self.watch.trouble {
                self.open_all();
            }
            return;
        };
        let link = LinkId(u16::try_from(at).unwrap_or(u16::MAX));
        self.watch.turn = at + 1;
        self.watch.asked = Some((link, now_ns));
        self.watch.wanted = false;
        self.watch.not_before_ns = now_ns.saturating_add(ASK_EVERY_NS);
        self.links[at].control.push_back(Control::Table { from: 0 });
    }

    /// When the table is to be asked for. (That somebody falls silent is looked for besides.)
    pub(crate) fn watch_due_ns(&self, is_up: bool) -> u64 {
        if !(self.watch.wanted || self.watch.trouble) || !(is_up || self.has_choice()) {
            return u64::MAX;
        }
        let asked = self.watch.asked.map(|(_, since_ns)| since_ns.saturating_add(ANSWER_WITHIN_NS));
        self.watch.not_before_ns.max(asked.unwrap_or(0))
    }

    /// Connects to everybody that is known, so that somebody tells the table.
    fn open_all(&mut self) {
        for peer in self.peers.rows() {
            if let Some(link) = link_to(&mut self.links, &self.options, peer) {
                self.links[link.index()].wanted = true;
            }
        }
    }

    /// A node has told the table, or a part of it.
    pub(crate) fn on_table(&mut self, link: LinkId, now_ns: u64, from: u32, report: &TableReport<'_>) {
        let changed = match self.peers.take(from, report) {
            Taken::More(from) => {
                return self.links[link.index()].control.push_back(Control::Table { from });
            }
            Taken::Whole { changed } => changed,
        };
        tracing::debug!(link = link.0, changed, places = self.peers.places(), "the region table was told");
        self.watch.asked = None;
        let bootstrap = &mut self.links[0];
        let server = bootstrap.connection.server.as_ref().filter(|_| bootstrap.connection.is_up());
        let met =
            server.and_then(|server| self.peers.rows().iter().find(|peer| peer.owner == server.incarnation));
        if let Some(peer) = met.filter(|peer| !peer.address.is_empty()) {
            bootstrap.address = Some(peer.address.clone());
        }
        // Who has met several goes by the table even when one is left: operations may wait for the others. So
        // does who came in by a node that has nothing.
        let astray = met.is_none() && self.peers.first().is_some();
        self.spread = astray || self.has_choice() || !self.routes.is_empty();
        if self.reader.is_some() && self.spread {
            self.open_all();
        }
        self.reroute(now_ns, changed);
        self.watch.trouble = self.is_in_trouble(now_ns);
        if !self.watch.trouble && self.reader.is_none() {
            self.links.iter_mut().for_each(|link| link.wanted = false);
        }
    }

    /// Routes anew what waits for a node that does not answer; when the table has changed, what rests too.
    fn reroute(&mut self, now_ns: u64, changed: bool) {
        if !self.spread {
            return;
        }
        let lame: Vec<bool> = self
            .all_links()
            .map(|link| !self.links[link.index()].connection.is_up() || self.is_doubtful(link, now_ns))
            .collect();
        let mut slots = Vec::new();
        self.pending.collect(&mut slots, |pending| match pending.state {
            PendingState::Ready | PendingState::WaitsForStream | PendingState::Sent => {
                lame[pending.link.index()]
            }
            PendingState::BacksOff { .. } => changed && waits_for_owner(pending),
            _ => false,
        });
        for slot in slots {
            let pending = self.pending.get(slot);
            let (state, before) = (pending.state, pending.link);
            // Operations on a node itself stay with it; parts are routed like the whole.
            if aim_of(pending, &pending.message).is_none() && pending.kind != RequestKind::MultiGet {
                continue;
            }
            if matches!(state, PendingState::BacksOff { .. }) {
                self.enlist(slot, now_ns);
                continue;
            }
            if matches!(self.route(slot), Target::Link(link) if link == before) {
                continue;
            }
            if state == PendingState::Sent {
                self.cancel_stream(slot);
                self.unsend(slot);
                let silence_ms = self.options.silence_ms;
                let pending = self.pending.get_mut(slot);
                pending.fate_open |= pending.is_write();
                pending.last = Some(AttemptError::Silent { silence_ms });
            } else {
                self.unlist(slot);
            }
            self.enlist(slot, now_ns);
            let pending = self.pending.get(slot);
            tracing::trace!(ticket = pending.ticket.0, from = before.0, to = pending.link.0, "moved");
        }
    }

    fn is_in_trouble(&self, now_ns: u64) -> bool {
        let lame = |link: LinkId| {
            let known = &self.links[link.index()];
            (!known.connection.is_up() && known.has_operations()) || self.is_doubtful(link, now_ns)
        };
        self.all_links().any(lame)
            || self.pending.any(|pending| {
                matches!(pending.state, PendingState::BacksOff { .. }) && waits_for_owner(pending)
            })
    }
}

/// The connection to a pair's owner; it is made if there is none, unless the owner is known to be dead.
fn link_to_living(links: &mut Vec<Link>, options: &ClientOptions, peer: &Peer) -> Option<LinkId> {
    match peer.state {
        OwnedState::Orphaned => link_of(links, peer),
        _ => link_to(links, options, peer),
    }
}

/// The connection that leads to a pair's owner.
fn link_of(links: &[Link], peer: &Peer) -> Option<LinkId> {
    let meets = |link: &Link| {
        let server = link.connection.server.as_ref().filter(|_| link.connection.is_up());
        server.is_some_and(|server| server.incarnation == peer.owner)
    };
    Some(LinkId(u16::try_from(links.iter().position(meets)?).ok()?))
}

/// The connection to the place where a pair's owner is, or was; it is made if there is none.
fn link_to(links: &mut Vec<Link>, options: &ClientOptions, peer: &Peer) -> Option<LinkId> {
    if let Some(link) = link_of(links, peer) {
        return Some(link);
    }
    if peer.address.is_empty() {
        return None;
    }
    let leads = |link: &Link| link.address.as_deref() == Some(&peer.address);
    if let Some(at) = links.iter().position(leads) {
        return Some(LinkId(u16::try_from(at).ok()?));
    }
    open_link(links, Link::new(options, Some(peer.address.clone())))
}

/// Gives a connection a place; none while all are in use.
fn open_link(links: &mut Vec<Link>, link: Link) -> Option<LinkId> {
    let at = if links.len() < LINKS_MAX {
        links.push(link);
        links.len() - 1
    } else {
        // One that is still to be closed keeps its place: the shell knows it by that.
        let rests = |link: &Link| {
            !link.connection.is_open() && !link.close_wanted && !link.wanted && !link.has_operations()
        };
        let at = links.iter().skip(1).position(rests)? + 1;
        links[at] = link;
        at
    };
    Some(LinkId(u16::try_from(at).ok()?))
}

/// Whether what an operation waits for is that somebody owns its keys.
fn waits_for_owner(pending: &PendingOperation) -> bool {
    match pending.last {
        Some(AttemptError::Refused(refusal)) => {
            matches!(refusal, Refusal::NotOwner | Refusal::Recovering | Refusal::Shutdown)
        }
        Some(_) => true,
        None => pending.attempts == 0,
    }
}

/// What an operation is about; none if that is no key, or many.
fn aim_of<'m>(pending: &PendingOperation, message: &'m [u8]) -> Option<Aim<'m>> {
    use RequestKind as K;
    match pending.kind {
        K::Get | K::Search | K::Put | K::Delete | K::PutBegin => {
            let (begin, end) = pending.key;
            message.get(begin as usize..end as usize).map(Aim::At)
        }
        K::Scan => scan_aim(message),
        _ => None,
    }
}

fn scan_aim(message: &[u8]) -> Option<Aim<'_>> {
    match cell_protocol::Request::decode(message) {
        Ok((_, cell_protocol::Request::Scan(scan))) => Some(range_of(&scan).first_aim()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shell closes it by its number: under another link of that number it closed the wrong one, or none.
    #[test]
    fn open_link_leaves_one_that_is_still_to_be_closed_its_place() {
        let options = ClientOptions::default();
        let mut links = Vec::new();
        for at in 0..LINKS_MAX {
            assert_eq!(open_link(&mut links, Link::new(&options, None)).map(LinkId::index), Some(at));
        }
        links.iter_mut().for_each(|link| link.close_wanted = true);
        assert_eq!(open_link(&mut links, Link::new(&options, None)), None);
        (links[0].close_wanted, links[7].close_wanted) = (false, false);
        assert_eq!(
            open_link(&mut links, Link::new(&options, None)),
            Some(LinkId(7)),
            "never the bootstrap link"
        );
    }
}
