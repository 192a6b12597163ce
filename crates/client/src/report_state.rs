//! What a client remembers between its reports (see `reporting`).

use cell_protocol::{ClientCounts, ReportTransport, ReportedRead};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::ClientOptions;

/// Sets the client's id apart from all else that is drawn from its seed.
const ID_STREAM: u64 = 0xC11E_4714_5EED_0001;

/// What a connection has to report.
#[derive(Debug, Default)]
pub(crate) struct LinkReporting {
    /// What the core has counted; the one-sided path counts for itself.
    pub(crate) counts: ClientCounts,
    pub(crate) transport: ReportTransport,
    /// Something was sent since a report was due.
    pub(crate) was_used: bool,
    /// All that was counted when the last report left, and when that was.
    pub(crate) reported: ClientCounts,
    pub(crate) reported_ns: u64,
    /// The server does not know reports.
    pub(crate) is_unwanted: bool,
}

/// What a client has to report.
#[derive(Debug)]
pub(crate) struct Reporting {
    pub(crate) client: u64,
    /// Zero: never.
    pub(crate) every_ns: u64,
    pub(crate) due_ns: u64,
    /// Operations that had been started one-sided when a report was due last.
    pub(crate) started: u64,
    /// The newest settings of the cluster that are in force.
    pub(crate) settings_revision: u64,
    /// One-sided reads that the report names which leaves now.
    pub(crate) reported_reads: Vec<ReportedRead>,
}

impl Reporting {
    pub(crate) fn new(options: &ClientOptions, seed: u64) -> Reporting {
        let every_ns = options.report_ms.saturating_mul(1_000_000);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ ID_STREAM);
        Reporting {
            client: random.next_u64().max(1),
            every_ns,
            due_ns: if every_ns == 0 { u64::MAX } else { 0 },
            started: 0,
            settings_revision: 0,
            reported_reads: Vec::new(),
        }
    }

    /// Reports as often as the options say, from now on. One that never reports goes on so.
    pub(crate) fn set_every(&mut self, options: &ClientOptions) {
        let every_ns = options.report_ms.saturating_mul(1_000_000);
        if self.every_ns > 0 && every_ns > 0 {
            self.due_ns = self.due_ns.saturating_sub(self.every_ns).saturating_add(every_ns);
            self.every_ns = every_ns;
        }
    }

    /// Whether it is time.
    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }
}
