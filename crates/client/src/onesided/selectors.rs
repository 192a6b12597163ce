//! Who does a search, where the client is to choose (`search = auto`): one selector for each connection, and
//! what is reported to it of searches and reads.

use cell_selector::{
    Decision, Decisions, Estimates, Question, Sample, SearchKind, SearchPath, Selector, SelectorSettings,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::operation::ReadKind;
use crate::Operation;
use crate::link_id::LinkId;

/// What the selectors of a client have done and know.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SelectorReport {
    /// Of all connections.
    pub decisions: Decisions,
    /// Of the connection for which most was decided.
    pub estimates: Estimates,
}

/// Searches in place that have started together, and end before the client is given the time again.
#[derive(Clone, Copy, Debug)]
struct InPlace {
    link: LinkId,
    kind: SearchKind,
    started_ns: u64,
    count: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Selectors {
    settings: SelectorSettings,
    seeds: Xoshiro256PlusPlus,
    selectors: Vec<Selector>,
    in_place: Option<InPlace>,
}

/// The kind of an operation that reads the tree.
pub(crate) fn kind_of(operation: &Operation<'_>) -> SearchKind {
    match operation {
        Operation::MultiGet { .. } => SearchKind::MultiGet,
        Operation::Scan(_) => SearchKind::Scan,
        _ => SearchKind::Point,
    }
}

/// The kind of a one-sided operation.
pub(super) fn kind_of_read(kind: ReadKind) -> SearchKind {
    match kind {
        ReadKind::Get | ReadKind::Search => SearchKind::Point,
        ReadKind::MultiGet => SearchKind::MultiGet,
        ReadKind::Scan => SearchKind::Scan,
    }
}

impl Selectors {
    /// Selectors that know nothing yet; `seed` decides all that it draws.
    pub(crate) fn new(settings: SelectorSettings, seed: u64) -> Selectors {
        let seeds = Xoshiro256PlusPlus::seed_from_u64(seed);
        Selectors { settings, seeds, selectors: Vec::new(), in_place: None }
    }

    fn of(&mut self, link: LinkId) -> &mut Selector {
        while self.selectors.len() <= link.index() {
            let random = Xoshiro256PlusPlus::seed_from_u64(self.seeds.next_u64());
            self.selectors.push(Selector::new(self.settings.clone(), random));
        }
        &mut self.selectors[link.index()]
    }

    /// The selector of a connection on whose searches something was decided.
    pub(super) fn selector(&self, link: LinkId) -> Option<&Selector> {
        self.selectors.get(link.index())
    }

    /// A server has welcomed the client, by a new connection.
    pub(super) fn on_connection(&mut self, link: LinkId) {
        if let Some(selector) = self.selectors.get_mut(link.index()) {
            selector.on_connection();
        }
    }

    /// Other constants from now on.
    pub(super) fn set_settings(&mut self, settings: &SelectorSettings) {
        self.settings.clone_from(settings);
        self.selectors.iter_mut().for_each(|selector| selector.set_settings(settings));
    }

    /// Whether the meganode of a search can change the decision.
    pub(super) fn wants_meganode(&mut self, link: LinkId, kind: SearchKind) -> bool {
        self.of(link).wants_meganode(kind)
    }

    pub(super) fn decide(&mut self, link: LinkId, question: &Question) -> bool {
        self.end_in_place(question.now_ns);
        let decision: Decision = self.of(link).decide(question);
        tracing::trace!(link = link.0, ?decision, "decided");
        decision.path == SearchPath::OneSided
    }

    pub(crate) fn on_sample(&mut self, link: LinkId, now_ns: u64, sample: Sample) {
        self.of(link).on_sample(now_ns, sample);
    }

    /// A search in place begins; the next time that the client is given is taken for its end. Of several that
    /// begin together each takes its part of the time; where they go by other connections or are of other
    /// kinds, the last of them stand for all.
    pub(super) fn begin_in_place(&mut self, link: LinkId, kind: SearchKind, started_ns: u64) {
        let earlier = self.in_place.filter(|earlier| earlier.started_ns == started_ns);
        let count = earlier.map_or(1, |earlier| earlier.count + 1);
        self.in_place = Some(InPlace { link, kind, started_ns, count });
    }

    pub(super) fn end_in_place(&mut self, now_ns: u64) {
        let Some(InPlace { link, kind, started_ns, count }) = self.in_place.take() else { return };
        if now_ns > started_ns {
            let sample = Sample::InPlace { kind, latency_ns: (now_ns - started_ns).div_ceil(count) };
            self.on_sample(link, now_ns, sample);
        }
    }

    pub(crate) fn report(&self) -> SelectorReport {
        let mut report = SelectorReport::default();
        let searches = |selector: &&Selector| selector.decisions().server + selector.decisions().one_sided;
        self.selectors.iter().for_each(|selector| report.decisions.add(selector.decisions()));
        if let Some(busiest) = self.selectors.iter().max_by_key(searches) {
            report.estimates = busiest.estimates();
        }
        report
    }
}
