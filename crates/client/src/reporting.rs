//! What the client reports to each node about once a second of its searches there, and the settings that it
//! is given in return ([`cell_protocol::client_report`]).
//!
//! A report is for people. It is sent when it is due and the client is stepped anyway, to a node that was
//! used since the last one; nobody waits for its answer, it is not sent again, and its answer is no sign of
//! life. What a client does between its last report and its end is in none. A server that does not know
//! reports is left in peace for as long as the connection lasts.

use cell_protocol::{
    ClientCounts, ClientEstimates, ClientReport, Refusal, Reply, ReportPolicy, ReportTransport,
    ReportedReads, SettingValues,
};
use cell_selector::{Decisions, Estimates, Policy};

use crate::Search;
use crate::client_core::ClientCore;
use crate::control::Control;
use crate::link_id::LinkId;
use crate::onesided::Reader;

impl ClientCore {
    /// Sets down a report for each node that was used since the last one.
    pub(crate) fn report(&mut self, now_ns: u64) {
        self.reporting.due_ns = now_ns.saturating_add(self.reporting.every_ns);
        self.reporting.started = self.operations_started();
        for id in self.links.ids() {
            let was_used = self.counts_of(id) != self.links[id].reporting.reported;
            let link = &mut self.links[id];
            link.reporting.was_used = false;
            let is_asked = link.sent_controls.report.is_some() || link.control.contains(&Control::Report);
            let is_open = link.connection.is_up() && !link.connection.blocked;
            if was_used && is_open && !is_asked && !link.reporting.is_unwanted {
                link.control.push_back(Control::Report);
            }
        }
    }

    /// When a report is due, if there is anything to report.
    pub(crate) fn report_due_ns(&self, was_used: bool) -> u64 {
        let is_used = was_used || self.operations_started() != self.reporting.started;
        if is_used { self.reporting.due_ns } else { u64::MAX }
    }

    fn operations_started(&self) -> u64 {
        self.reader.as_ref().map_or(0, |reader| reader.counters().started)
    }

    /// All that was counted on a connection.
    fn counts_of(&self, link: LinkId) -> ClientCounts {
        let mut counts = self.links[link].reporting.counts;
        if let Some(reader) = &self.reader {
            counts.add(&reader.counts_of(link));
            if let Some(decisions) = reader.decisions_of(link) {
                add_decisions(&mut counts, decisions);
            }
        }
        counts
    }

    /// A server has welcomed the client: its first report begins here.
    pub(crate) fn begin_reporting(&mut self, id: LinkId, now_ns: u64) {
        let reported = self.counts_of(id);
        let reporting = &mut self.links[id].reporting;
        (reporting.reported, reporting.reported_ns, reporting.is_unwanted) = (reported, now_ns, false);
    }

    /// The report of a connection, which leaves now. Left to the caller are its name, and the meganodes that
    /// were read, which are in `reported_reads` of [`ClientCore::reporting`].
    pub(crate) fn take_report(&mut self, id: LinkId, now_ns: u64) -> ClientReport<'static> {
        let counts = self.counts_of(id);
        let reporting = &mut self.links[id].reporting;
        let since_ns = std::mem::replace(&mut reporting.reported_ns, now_ns);
        let before = std::mem::replace(&mut reporting.reported, counts);
        let transport = reporting.transport;
        let policy = match self.options.search {
            Search::Server => ReportPolicy::Server,
            Search::Client => ReportPolicy::Client,
            Search::Auto => match self.options.selector.policy {
                Policy::Adaptive => ReportPolicy::Adaptive,
                Policy::Paper => ReportPolicy::Paper,
                Policy::Fixed => ReportPolicy::Fixed,
            },
        };
        let known = self.reader.as_ref().and_then(|reader| reader.estimates_of(id));
        let reported_reads = &mut self.reporting.reported_reads;
        reported_reads.clear();
        let take = |reader: &mut Box<Reader>| reader.take_read_notes(id, reported_reads);
        let reads_elsewhere = self.reader.as_mut().map_or(0, take);
        ClientReport {
            client: self.reporting.client,
            settings_revision: self.reporting.settings_revision,
            interval_ns: now_ns.saturating_sub(since_ns),
            estimates: known.map(|known| estimates(&known)).unwrap_or_default(),
            in_hand: u32::try_from(self.pending.len()).unwrap_or(u32::MAX),
            transport,
            policy,
            counts: counts.since(&before),
            reported_reads: ReportedReads::default(),
            reads_elsewhere,
            name: "",
        }
    }

    /// What the server answered to a report.
    pub(crate) fn on_report_reply(&mut self, id: LinkId, now_ns: u64, reply: &Reply<'_>) {
        self.links[id].sent_controls.report = None;
        match reply {
            Reply::Reported(reported) => {
                self.take_settings(now_ns, reported.settings_revision, &reported.values);
            }
            Reply::Refused(Refusal::Malformed { .. }) => self.links[id].reporting.is_unwanted = true,
            _ => {} // busy, or about to go
        }
    }

    /// The cluster's settings, on top of what the client was started with. Nodes learn of a change one after
    /// another: what is older than what another one has sent counts for nothing.
    fn take_settings(&mut self, now_ns: u64, revision: u64, values: &SettingValues<'_>) {
        if revision <= self.reporting.settings_revision {
            return;
        }
        self.reporting.settings_revision = revision;
        self.tune(now_ns, values);
    }

    /// What a connection goes by, which the shell knows.
    pub fn set_transport(&mut self, link: LinkId, transport: ReportTransport) {
        self.links[link].reporting.transport = transport;
    }
}

fn add_decisions(counts: &mut ClientCounts, decisions: &Decisions) {
    counts.estimate += decisions.estimate;
    counts.exploration += decisions.exploration;
    counts.fixed_share += decisions.fixed_share;
    counts.not_enough_samples += decisions.not_enough_samples;
    counts.idle_reset += decisions.idle_reset;
    counts.not_registered += decisions.not_registered;
    counts.not_permitted += decisions.not_permitted;
    counts.not_trusted += decisions.not_trusted;
}

fn estimates(known: &Estimates) -> ClientEstimates {
    let small = |number: f64| u32::try_from(whole(number)).unwrap_or(u32::MAX);
    ClientEstimates {
        server_ns: whole(known.server_ns.unwrap_or(0.0)),
        read_ns: whole(known.read_ns.unwrap_or(0.0)),
        rtt_ns: whole(known.rtt_ns.unwrap_or(0.0)),
        one_sided_ns: whole(known.one_sided_ns.unwrap_or(0.0)),
        reads_thousandths: small(known.reads * 1e3),
        share_millionths: known.share.map(|share| small(share * 1e6)),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a float saturates")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}
