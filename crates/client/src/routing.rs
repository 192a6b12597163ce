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
//! While something is not where it is said to be, or a node is silent, the table is asked for again and
//! again, at any node that answers; once it has changed, what waits is routed anew. So a dead node costs the
//! operations for its keys, until its pairs are served elsewhere, and no others.

use cell_protocol::{OwnedState, RequestKind, Route, TableReport};
use cell_terms::PairId;
use cell_tree::Aim;

use crate::ClientOptions;
use crate::error::AttemptError;
use crate::link_id::{LinkId, LinkSet};
use crate::links::Links;
use crate::peers::{Peer, Peers, TableProgress};
use crate::pending::PendingOperation;
use crate::routes::Routes;

/// Time between two questions for the table while something is amiss.
const ASK_EVERY_NS: u64 = 20_000_000;

/// A node that is asked for the table and says nothing for so long is not waited for; others are asked too.
const ANSWER_WITHIN_NS: u64 = 100_000_000;

/// When the table is asked for.
#[derive(Debug, Default)]
struct TableWatch {
    is_wanted: bool,
    /// Something is not where it is said to be: the table is asked for again and again.
    is_stale: bool,
    /// Which node is asked, since when.
    asked: Option<(LinkId, u64)>,
    not_before_ns: u64,
    turn: usize,
}

/// Where an operation goes.
#[derive(Debug)]
pub(crate) enum RouteTarget {
    Link(LinkId),
    /// It goes in parts: this is where each of its keys is.
    Parts(Vec<LinkId>),
    /// No node that can be reached is known to have its keys.
    NoOwner,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Routing {
    routes: Routes,
    peers: Peers,
    watch: TableWatch,
    /// Keys are at several nodes, as far as is known: each operation is routed.
    is_partitioned: bool,
}

impl Routing {
    #[inline]
    pub(crate) fn is_partitioned(&self) -> bool {
        self.is_partitioned
    }

    /// Where the owners of pairs are.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> + Clone {
        self.peers.addresses()
    }

    /// Where an operation goes.
    pub(crate) fn route(
        &mut self,
        pending: &PendingOperation,
        links: &mut Links,
        options: &ClientOptions,
    ) -> RouteTarget {
        let turn = pending.backoffs;
        if pending.kind == RequestKind::MultiGet {
            return self.route_keys(pending.keys(), turn, links, options);
        }
        let Some(aim) = pending.aim() else { return RouteTarget::Link(LinkId::BOOTSTRAP) };
        self.link_for(aim, turn, links, options).map_or(RouteTarget::NoOwner, RouteTarget::Link)
    }

    /// The connection that leads to the keys at an aim, as far as is known.
    pub(crate) fn link_of(
        &mut self,
        aim: Aim<'_>,
        links: &mut Links,
        options: &ClientOptions,
    ) -> Option<LinkId> {
        self.link_for(aim, 0, links, options)
    }

    fn route_keys<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]>,
        turn: u32,
        links: &mut Links,
        options: &ClientOptions,
    ) -> RouteTarget {
        let targets: Option<Vec<LinkId>> =
            keys.map(|key| self.link_for(Aim::At(key), turn, links, options)).collect();
        let Some(targets) = targets else { return RouteTarget::NoOwner };
        let first = targets.first().copied().unwrap_or(LinkId::BOOTSTRAP);
        let is_one = targets.iter().all(|link| *link == first);
        if is_one { RouteTarget::Link(first) } else { RouteTarget::Parts(targets) }
    }

    /// The connection that leads to the keys at an aim, as far as is known. Where it is not, the owner of the
    /// router is asked, and while that one does not answer the others in turn: one of them may have the keys.
    /// So it is where the way leads to a pair that nobody serves: a worker names its neighbour to the right
    /// for every key behind its own, and the key may be further right.
    fn link_for(
        &mut self,
        aim: Aim<'_>,
        turn: u32,
        links: &mut Links,
        options: &ClientOptions,
    ) -> Option<LinkId> {
        let named = self.routes.find(aim).and_then(|pair| self.peers.of(pair));
        let named_link = named.map(|peer| links.connect_living(options, peer));
        if let Some(Some(link)) = named_link {
            return Some(link);
        }
        let Some(first) = self.peers.first() else { return Some(LinkId::BOOTSTRAP) };
        let link = links.connect_living(options, first);
        if link.is_some_and(|link| links[link].connection.is_up()) {
            return link.filter(|_| named_link.is_none()); // what it has named it would name again
        }
        let up: Vec<LinkId> = links.ids().filter(|link| links[*link].connection.is_up()).collect();
        links.want_all(options, self.peers.rows()); // they may be there by the next try
        let turn = usize::try_from(turn).unwrap_or(0).checked_rem(up.len());
        turn.map(|turn| up[turn]).or(link)
    }

    /// Takes a worker's hint in: where keys are that it was asked for. The connection to their owner, if it
    /// is known.
    pub(crate) fn learn(
        &mut self,
        hint: &Route<'_>,
        links: &mut Links,
        options: &ClientOptions,
    ) -> Option<LinkId> {
        self.routes.learn(hint);
        self.is_partitioned = true;
        self.peers.of(hint.pair).and_then(|peer| links.connect_living(options, peer))
    }

    /// Forgets where an operation's keys are said to be: they are not there.
    pub(crate) fn forget(&mut self, pending: &PendingOperation) {
        match pending.aim() {
            Some(aim) => self.routes.forget(aim),
            None => pending.keys().for_each(|key| self.routes.forget(Aim::At(key))),
        }
    }

    /// That the pair of an operation's keys is not served now, if the table says so. `pair`: where the keys
    /// are by a worker's word.
    pub(crate) fn unserved(
        &mut self,
        pending: &PendingOperation,
        pair: Option<PairId>,
    ) -> Option<AttemptError> {
        let pair = pair.or_else(|| pending.aim().and_then(|aim| self.routes.find(aim)))?;
        let &Peer { pair, state, .. } = self.peers.of(pair)?;
        let is_served = state == OwnedState::Serving;
        (!is_served).then_some(AttemptError::Unserved { pair, state })
    }

    /// Whether there are, or were, several nodes: operations may wait for one that is gone.
    #[inline]
    pub(crate) fn has_choice(&self, links: &Links) -> bool {
        self.peers.address_count() > 1 || links.len() > 1
    }

    /// A server has welcomed the client: the table is wanted if none is known.
    pub(crate) fn on_welcome(&mut self) {
        self.watch.is_wanted |= !self.peers.is_known();
    }

    /// The table is wanted once: there is a pair that it does not have.
    pub(crate) fn want_table(&mut self) {
        self.watch.is_wanted = true;
    }

    /// Something is not where the table says: it is asked for until it has changed.
    pub(crate) fn on_misrouted(&mut self) {
        self.watch.is_stale = true;
    }

    /// A connection is gone: the node that it led to may have lost its pairs. `has_operations`: some
    /// operation waits for an answer.
    pub(crate) fn on_link_lost(&mut self, link: LinkId, links: &Links, has_operations: bool) {
        self.on_table_withheld(link);
        self.watch.is_stale |= self.has_choice(links) && has_operations;
    }

    /// The node that was asked for the table does not send it.
    pub(crate) fn on_table_withheld(&mut self, link: LinkId) {
        if self.watch.asked.take_if(|(asked, _)| *asked == link).is_some() {
            self.watch.is_wanted = true;
        }
    }

    /// Whether nodes are watched that fall silent: some may have lost their pairs.
    pub(crate) fn watches_silence(&self, links: &Links) -> bool {
        self.has_choice(links) && !self.watch.is_stale
    }

    /// Whether [`Routing::question`] may have one.
    #[inline]
    pub(crate) fn is_watching(&self, links: &Links) -> bool {
        self.watch.is_wanted || self.watch.is_stale || self.has_choice(links)
    }

    /// By which connection the table is to be asked for now, if it is; it is noted as asked for. `doubtful`:
    /// whose servers are so silent that others are asked what became of them.
    pub(crate) fn question(
        &mut self,
        now_ns: u64,
        doubtful: LinkSet,
        links: &mut Links,
        options: &ClientOptions,
    ) -> Option<LinkId> {
        self.watch.is_stale |= self.watches_silence(links) && !doubtful.is_empty();
        let watch = &mut self.watch;
        let is_late = |(_, since_ns): (LinkId, u64)| now_ns >= since_ns.saturating_add(ANSWER_WITHIN_NS);
        let may_ask = now_ns >= watch.not_before_ns && watch.asked.is_none_or(is_late);
        if !(watch.is_wanted || watch.is_stale) || !may_ask {
            return None;
        }
        // Looked at again after a while, asked or not: what is due must not stay due.
        watch.not_before_ns = now_ns.saturating_add(ASK_EVERY_NS);
        let can_answer = |id: &LinkId| {
            let link = &links[*id];
            link.connection.is_up() && link.sent_controls.table.is_none() && !doubtful.contains(*id)
        };
        let Some(link) = links.ids_from(watch.turn).find(can_answer) else {
            if watch.is_stale {
                links.want_all(options, self.peers.rows());
            }
            return None;
        };
        watch.turn = link.index() + 1;
        watch.asked = Some((link, now_ns));
        watch.is_wanted = false;
        Some(link)
    }

    /// When the table is to be asked for. (That a node falls silent is looked for besides.)
    pub(crate) fn due_ns(&self, links: &Links, is_up: bool) -> u64 {
        if !(self.watch.is_wanted || self.watch.is_stale) || !(is_up || self.has_choice(links)) {
            return u64::MAX;
        }
        let asked = self.watch.asked.map(|(_, since_ns)| since_ns.saturating_add(ANSWER_WITHIN_NS));
        self.watch.not_before_ns.max(asked.unwrap_or(0))
    }

    /// A node has sent the table, or a part of it, beginning with the row of this number. `reads_one_sided`:
    /// the client reads the memory of all owners.
    pub(crate) fn on_table(
        &mut self,
        from: u32,
        report: &TableReport<'_>,
        links: &mut Links,
        options: &ClientOptions,
        reads_one_sided: bool,
    ) -> TableProgress {
        let progress = self.peers.take(from, report);
        if matches!(progress, TableProgress::More(_)) {
            return progress;
        }
        self.watch.asked = None;
        let bootstrap = &mut links[LinkId::BOOTSTRAP];
        let server = bootstrap.connection.server.as_ref().filter(|_| bootstrap.connection.is_up());
        let met =
            server.and_then(|server| self.peers.rows().iter().find(|peer| peer.owner == server.incarnation));
        if let Some(peer) = met.filter(|peer| !peer.address.is_empty()) {
            bootstrap.address = Some(peer.address.clone());
        }
        // A client that has met several nodes goes by the table even when one is left: operations may wait
        // for the others. So does one that came in by a node which has nothing.
        let came_astray = met.is_none() && self.peers.first().is_some();
        self.is_partitioned = came_astray || self.has_choice(links) || !self.routes.is_empty();
        if reads_one_sided && self.is_partitioned {
            links.want_all(options, self.peers.rows());
        }
        progress
    }

    /// What waits was routed anew by a new table. `is_stale`: something is still not where the table says.
    pub(crate) fn on_rerouted(&mut self, is_stale: bool) {
        self.watch.is_stale = is_stale;
    }
}
