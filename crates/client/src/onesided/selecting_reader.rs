//! What the reader reports to its selectors, and asks them.

use cell_protocol::ClientCounts;
use cell_selector::{Decisions, Estimates, MeganodeId, Obstacle, Question, Sample, SearchKind, Selector};
use cell_tree::NodeIndex;

use super::selectors::{SelectorReport, kind_of};
use super::walk::{NodeOutcome, WalkTarget};
use super::worker::RegistrationState;
use super::{Reader, kind_of_read};
use crate::link_id::LinkId;
use crate::{ClientOptions, Operation, Search};

impl Reader {
    /// Whether there is a choice for each operation.
    #[inline]
    pub(crate) fn chooses(&self) -> bool {
        self.selectors.is_some()
    }

    /// Whether an operation on keys behind this connection is to go by one-sided reads. `in_hand` are the
    /// client's other operations.
    pub(crate) fn choose(
        &mut self,
        link: LinkId,
        now_ns: u64,
        operation: &Operation<'_>,
        in_hand: u32,
    ) -> bool {
        match self.search {
            Search::Auto => {}
            Search::Server => return false,
            Search::Client => return true,
        }
        let (kind, one_sided) = (kind_of(operation), self.obstacle(link, now_ns));
        if one_sided.is_err() {
            self.lacks_root(); // no search is started that would find it out
        }
        let Some(selectors) = &mut self.selectors else { return true };
        let wants_meganode = one_sided.is_ok() && selectors.wants_meganode(link, kind);
        let meganode = match operation {
            Operation::Get { key } | Operation::Search { key } if wants_meganode => self.meganode_of(key),
            _ => None,
        };
        let question = Question { now_ns, kind, meganode, one_sided, in_hand };
        self.selectors.as_mut().is_none_or(|selectors| selectors.decide(link, &question))
    }

    /// What is in the way of one-sided reads.
    fn obstacle(&self, link: LinkId, now_ns: u64) -> Result<(), Obstacle> {
        let worker = self.workers.get(link.index()).ok_or(Obstacle::NotRegistered)?;
        match worker.registration {
            RegistrationState::Wanted | RegistrationState::Asked => Err(Obstacle::NotRegistered),
            RegistrationState::Unavailable { .. } => Err(Obstacle::NotPermitted),
            _ if self.context.regions.root().is_none() => Err(Obstacle::NotRegistered),
            _ if !worker.trust.holds(now_ns) => Err(Obstacle::NotTrusted),
            RegistrationState::Registered | RegistrationState::Renewing => Ok(()),
        }
    }

    /// In which meganode a key is, if the cache leads there. Of memory that is searched in place nothing is
    /// cached, and all its meganodes cost the same.
    fn meganode_of(&mut self, key: &[u8]) -> Option<MeganodeId> {
        let Reader { context, router_walk: walk, .. } = self;
        let root = context.regions.root()?;
        if !walk.begin(root, &context.regions) {
            return None;
        }
        while walk.is_in_router() {
            let words = context.cache.get(walk.pointer(&context.regions)?)?;
            match walk.visit(words, true, WalkTarget::Entry(key), &context.regions) {
                NodeOutcome::Descend | NodeOutcome::RightLink { .. } => {}
                _ => return None,
            }
        }
        walk.pointer(&context.regions).map(|pointer| MeganodeId(pointer.0))
    }

    /// The time of what is reported next.
    #[inline]
    pub(crate) fn note_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// The server has answered a search.
    pub(crate) fn on_server_search(&mut self, link: LinkId, now_ns: u64, kind: SearchKind, latency_ns: u64) {
        if let Some(selectors) = &mut self.selectors {
            selectors.on_sample(link, now_ns, Sample::Server { kind, latency_ns });
        }
    }

    /// An operation has started; one in place is all but done.
    #[inline]
    pub(super) fn on_started(&mut self, slot: u16, now_ns: u64) {
        let Some(selectors) = &mut self.selectors else { return };
        let operation = &self.operations[usize::from(slot)];
        if let Some((pair, _)) = operation.needs.first().filter(|_| operation.is_in_place) {
            let (link, kind) = (self.context.regions.pair(*pair).link, kind_of_read(operation.kind()));
            selectors.begin_in_place(link, kind, now_ns);
        }
    }

    /// The time was read after all that was started.
    #[inline]
    pub(super) fn end_in_place(&mut self, now_ns: u64) {
        if let Some(selectors) = &mut self.selectors {
            selectors.end_in_place(now_ns);
        }
    }

    /// A read of an operation has come back.
    #[inline]
    pub(super) fn on_read_latency(&mut self, link: LinkId, slot: u16, posted_ns: Option<u64>) {
        let (Some(selectors), Some(posted_ns)) = (&mut self.selectors, posted_ns) else { return };
        let kind = kind_of_read(self.operations[usize::from(slot)].kind());
        let latency_ns = self.now_ns.saturating_sub(posted_ns);
        selectors.on_sample(link, self.now_ns, Sample::Read { kind, latency_ns });
    }

    /// An operation is answered.
    #[inline]
    pub(super) fn on_one_sided_search(&mut self, slot: u16, now_ns: u64) {
        let Some(selectors) = &mut self.selectors else { return };
        let operation = &self.operations[usize::from(slot)];
        if operation.is_in_place && operation.went_straight() {
            return; // measured when it had started
        }
        let Some((pair, _)) = operation.needs.first() else { return };
        let (kind, regions) = (kind_of_read(operation.kind()), &self.context.regions);
        let latency_ns = now_ns.saturating_sub(operation.started_ns);
        let sample = if operation.is_in_place {
            Sample::Wait { kind, waited_ns: latency_ns }
        } else {
            let meganode = operation.location().map(|at| {
                let pointer = regions.pair(at.pair).geometry.pointer(at.slot, NodeIndex::ROOT);
                MeganodeId(pointer.0)
            });
            Sample::OneSided { kind, meganode, latency_ns, reads: operation.reads }
        };
        selectors.on_sample(regions.pair(*pair).link, now_ns, sample);
    }

    /// An operation goes to the server after all.
    pub(super) fn on_fallback(&mut self, slot: u16, now_ns: u64) {
        let Some(selectors) = &mut self.selectors else { return };
        let operation = &self.operations[usize::from(slot)];
        // One that has not come to a leaf yet goes by the connection to the root.
        let link = match operation.needs.first() {
            Some((pair, _)) => self.context.regions.pair(*pair).link,
            None => LinkId::BOOTSTRAP,
        };
        let (kind, in_place) = (kind_of_read(operation.kind()), operation.is_in_place);
        let latency_ns = now_ns.saturating_sub(operation.started_ns);
        selectors.on_sample(link, now_ns, Sample::Fallback { kind, latency_ns, in_place });
    }

    /// What was counted by a connection, but for decisions.
    pub(crate) fn counts_of(&self, link: LinkId) -> ClientCounts {
        self.context.counts_of(link)
    }

    /// What was decided on searches by a connection.
    pub(crate) fn decisions_of(&self, link: LinkId) -> Option<&Decisions> {
        self.selectors.as_ref()?.selector(link).map(Selector::decisions)
    }

    /// What is known of a connection.
    pub(crate) fn estimates_of(&self, link: LinkId) -> Option<Estimates> {
        self.selectors.as_ref()?.selector(link).map(Selector::estimates)
    }

    /// Other options from now on: of choices, of the cache, of what begins.
    pub(crate) fn take_options(&mut self, options: &ClientOptions) {
        self.search = options.search;
        self.in_flight_max = options.in_flight_max.max(1);
        self.context.cache_inner = options.cache_inner;
        self.context.cache.set_bytes_max(if options.cache_inner { options.cache_bytes } else { 0 });
        if let Some(selectors) = &mut self.selectors {
            selectors.set_settings(&options.selector);
        }
    }

    /// What the selectors have done and know.
    pub(crate) fn selector_report(&self) -> Option<SelectorReport> {
        self.selectors.as_ref().map(super::selectors::Selectors::report)
    }
}
