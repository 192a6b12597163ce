//! The core's side of the one-sided path: which operations go by it, what is reported to it and what it asks
//! for.

use cell_fabric::{MappedRegion, ReadFailure, ReadTag, RegionKey, RemoteRead};
use cell_protocol::RequestKind;
use cell_selector::SearchKind;

use crate::client_core::ClientCore;
use crate::connection::Owed;
use crate::control::Control;
use crate::link_id::{LinkId, LinkSet};
use crate::onesided::Ended;
use crate::operation::{OperationSlot, WhoSearches};
use crate::pending::PendingState;
use crate::routing::RouteTarget;
use crate::{OneSidedCounters, Operation, SelectorReport};

impl ClientCore {
    /// Begins a read one-sided; false if it is one for the server.
    pub(crate) fn begin_one_sided(
        &mut self,
        slot: OperationSlot,
        operation: &Operation<'_>,
        who: WhoSearches,
        now_ns: u64,
    ) -> bool {
        if self.reader.is_none() || !operation.is_tree_read() {
            return false;
        }
        let is_ours = match who {
            WhoSearches::Client => true,
            WhoSearches::Server => false,
            WhoSearches::Undecided => self.chooses_one_sided(slot, operation, now_ns),
        };
        if !is_ours {
            return false;
        }
        let Some(reader) = &mut self.reader else { return false };
        let busy = reader.busy_links();
        if !reader.begin(slot, now_ns, operation) {
            return false;
        }
        self.pending.get_mut(slot).state = PendingState::OneSided;
        self.reads_started(busy, now_ns);
        true
    }

    /// Whether the client is to do a read itself, as far as that is its choice.
    fn chooses_one_sided(&mut self, slot: OperationSlot, operation: &Operation<'_>, now_ns: u64) -> bool {
        let Some(reader) = &mut self.reader else { return false };
        if !reader.chooses() {
            return true;
        }
        let mut link = LinkId::BOOTSTRAP;
        if self.routing.is_partitioned() {
            link = match self.routing.route(self.pending.get(slot), &mut self.links, &self.options) {
                RouteTarget::Link(link) => link,
                RouteTarget::Parts(targets) => targets.first().copied().unwrap_or(LinkId::BOOTSTRAP),
                RouteTarget::NoOwner => return false,
            };
        }
        let in_hand = u32::try_from(self.pending.reads().saturating_sub(1)).unwrap_or(u32::MAX);
        reader.choose(link, now_ns, operation, in_hand)
    }

    /// The server has answered a read.
    #[inline]
    pub(crate) fn on_server_search(&mut self, slot: OperationSlot, now_ns: u64) {
        let pending = self.pending.get(slot);
        let kind = match pending.kind {
            RequestKind::Get | RequestKind::Search => SearchKind::Point,
            RequestKind::MultiGet => SearchKind::MultiGet,
            RequestKind::Scan => SearchKind::Scan,
            _ => return,
        };
        self.links[pending.link].reporting.counts.server += 1;
        let Some(reader) = &mut self.reader else { return };
        // What was sent twice says how long a fault lasted.
        if pending.attempts == 1 {
            reader.on_server_search(pending.link, now_ns, kind, now_ns.saturating_sub(pending.sent_ns));
        }
    }

    /// The time of what is reported to the core next, and asked of it next: of reads that come back or are
    /// posted. A driver that does not set it measures their latencies from one [`ClientCore::tick`] to
    /// another.
    #[inline]
    pub fn note_time(&mut self, now_ns: u64) {
        if let Some(reader) = &mut self.reader {
            reader.note_time(now_ns);
        }
    }

    /// What was decided on who searches, and what that rests on; none if the client has no choice.
    #[must_use]
    pub fn selector_report(&self) -> Option<SelectorReport> {
        self.reader.as_ref().and_then(|reader| reader.selector_report())
    }

    /// Counts silence from now on where reads are the first that is owed.
    fn reads_started(&mut self, busy_before: LinkSet, now_ns: u64) {
        let Some(reader) = &self.reader else { return };
        let started = reader.busy_links().without(&busy_before);
        if started.is_empty() {
            return;
        }
        for (id, link) in self.links.iter_mut() {
            if started.contains(id) && link.owed(false) == Owed::Nothing {
                link.connection.on_activity(now_ns);
            }
        }
    }

    /// One-sided operations that have ended: complete, or on their way to the server.
    #[inline]
    pub(crate) fn take_ended(&mut self, now_ns: u64) {
        if self.reader.is_some() {
            self.take_ended_of_reader(now_ns);
        }
    }

    fn take_ended_of_reader(&mut self, now_ns: u64) {
        while let Some((slot, ended)) = self.reader.as_mut().and_then(|reader| reader.ended()) {
            match ended {
                Ended::Done(output) => self.finish(slot, now_ns, Ok(output)),
                Ended::Server => {
                    self.enlist(slot, now_ns);
                    let link = self.pending.get(slot).link;
                    self.links[link].reporting.counts.fallbacks += 1;
                }
            }
        }
    }

    /// Whether the fabric loads the cache lines of a one-sided read in address order. Set before anything
    /// else.
    pub fn set_reads_ordered(&mut self, ordered: bool) {
        if let Some(reader) = &mut self.reader {
            reader.set_reads_ordered(ordered);
        }
    }

    /// The next one-sided read to be posted, and on which connection; call it until there is none.
    pub fn next_read(&mut self) -> Option<(LinkId, RemoteRead, ReadTag)> {
        let ClientCore { reader, links, .. } = self;
        reader.as_mut()?.next_read(|link| links[link].connection.is_up())
    }

    /// The connection did not take the read; it is yielded again once [`ClientCore::writable`] was called.
    pub fn read_not_taken(&mut self, link: LinkId, read: RemoteRead, tag: ReadTag) {
        if let Some(reader) = &mut self.reader {
            reader.not_taken(link, read, tag);
        }
    }

    /// A one-sided read has come back. Nothing is answered before [`ClientCore::validate`].
    pub fn read_done(&mut self, link: LinkId, tag: ReadTag, outcome: Result<&[u64], ReadFailure>) {
        if let Some(reader) = &mut self.reader {
            reader.read_done(link, tag, outcome);
        }
    }

    /// The time, *read after* the last call of anything else: answers what was read one-sided, if clock,
    /// watermark and trust permit it. An older time would let a client that was stopped believe memory that
    /// was used again: what was reported or submitted since it was read may have been looked up in place at
    /// once.
    pub fn validate(&mut self, now_ns: u64) {
        if let Some(reader) = &mut self.reader {
            let answered = reader.take_answered_links();
            for (id, link) in self.links.iter_mut() {
                // A sign of life of the host, but not of a worker whose answer is due.
                if answered.contains(id) && !link.owes_answer() {
                    link.connection.on_activity(now_ns);
                }
            }
            let busy = reader.busy_links();
            reader.validate(now_ns);
            self.take_ended(now_ns);
            self.answer_batched(now_ns);
            self.reads_started(busy, now_ns);
        }
    }

    /// Whether the fabric is to be asked which regions are mapped: see [`ClientCore::map_regions`].
    #[must_use]
    pub fn wants_mapping(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.wants_mapping())
    }

    /// Lets the one-sided path look at regions in place, as far as `mapped` has them.
    pub fn map_regions(&mut self, mapped: &mut dyn FnMut(LinkId, RegionKey) -> Option<MappedRegion>) {
        if let Some(reader) = &mut self.reader {
            reader.map(mapped);
        }
    }

    /// Whether there are answers that wait for nothing but [`ClientCore::validate`].
    #[must_use]
    pub fn is_validating(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.is_validating())
    }

    /// What the one-sided path has counted, if there is one.
    #[must_use]
    pub fn one_sided_counters(&self) -> Option<&OneSidedCounters> {
        self.reader.as_ref().map(|reader| reader.counters())
    }

    /// Asks for registrations and for trust, where the one-sided path wants them.
    pub(crate) fn ask_for_reader(&mut self, now_ns: u64) {
        let Some(reader) = &mut self.reader else { return };
        let mut is_any_asked = false;
        for (id, link) in self.links.iter_mut() {
            if !link.connection.is_up() {
                continue;
            }
            if reader.wants_regions(id, now_ns) {
                is_any_asked = true;
                reader.on_regions_asked(id, now_ns);
                link.control.push_back(Control::Regions);
            }
            if reader.wants_trust(id, now_ns) {
                reader.trust_asked(id, now_ns);
                link.control.push_back(Control::Trust);
            }
        }
        if reader.take_region_unknown() && is_any_asked {
            self.routing.want_table(); // there is a pair that is not in the table that is known
        }
    }

    /// Whether one-sided reads are on their way to a server's host. One that does not come back: the host is
    /// gone, or its connection is.
    #[inline]
    pub(crate) fn is_reading(&self, link: LinkId) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.is_busy(link))
    }

    /// What the server of a connection owes.
    pub(crate) fn owed(&self, link: LinkId) -> Owed {
        self.links[link].owed(self.is_reading(link))
    }
}
