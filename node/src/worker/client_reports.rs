//! A client's report, and the answer to it: the cluster's settings that are newer than the client's.
//!
//! What a client reports of its one-sided reads is added to the figures of the meganodes, and nothing else
//! rests on it: who may read is believed, as far as so many can have been.

use cell_fabric::ConnectionId;
use cell_protocol::{ClientReport, ClientReportReply, Reply, ReportedRead, RequestHeader, SettingValues};

use super::Worker;
use crate::access::Grants;
use crate::pairs::Dependence;

impl Worker {
    pub(super) fn report(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        report: &ClientReport<'_>,
    ) {
        let reads_max = self.client_reports.take(connection, self.now_ns, report);
        self.take_reported_reads(connection, report, reads_max);
        let settings = self.options.client_settings.clone();
        let (revision, values) = settings.as_ref().map_or((0, &[][..]), |it| (it.revision, &it.values));
        let is_new = revision != report.settings_revision;
        let list = values.iter().filter(|_| is_new).map(|(name, value)| (name.as_str(), value.as_str()));
        let list: Vec<_> = list.collect();
        let values = SettingValues::fitting(&list);
        let reply = Reply::Reported(ClientReportReply { settings_revision: revision, values });
        self.reply(connection, header, Dependence::NOTHING, &reply);
    }

    fn take_reported_reads(&mut self, connection: ConnectionId, report: &ClientReport<'_>, reads_max: u64) {
        let grants = self.connections.get(&connection).map(|state| state.grants).unwrap_or_default();
        let mut left = reads_believed(grants, self.options.one_sided_reads, reads_max);
        let mut last = None;
        let (mut reported, mut unattributed) = (0, report.reads_elsewhere.min(reads_max));
        for ReportedRead { pair, slot, reads } in report.reported_reads.iter() {
            let believed = reads.min(left);
            if last.is_none_or(|(known, _)| known != pair) {
                last = Some((pair, self.pairs.at(pair)));
            }
            let at = last.and_then(|(_, at)| at).filter(|_| believed > 0);
            // One that is not here has moved, or never was.
            if at.is_some_and(|at| self.pairs.pair_mut(at).count_reported_reads(slot, believed)) {
                left -= believed;
                reported += believed;
            } else {
                unattributed += reads.min(reads_max);
            }
        }
        self.client_reports.count_reported(reported, unattributed);
    }
}

/// Of how many reads a client is believed that it made them itself, where so many can have been.
fn reads_believed(grants: Grants, one_sided_reads: bool, reads_max: u64) -> u64 {
    if grants.reads && one_sided_reads { reads_max } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::TokenRole;

    #[test]
    fn reads_are_believed_of_who_may_read_one_sidedly() {
        for (role, believed) in [
            (TokenRole::Reader, 7),
            (TokenRole::Writer, 7),
            (TokenRole::Admin, 7),
            (TokenRole::Viewer, 0),
            (TokenRole::Operator, 0),
        ] {
            let grants = Grants::default().with(role);
            assert_eq!((reads_believed(grants, true, 7), reads_believed(grants, false, 7)), (believed, 0));
        }
        assert_eq!(reads_believed(Grants::default(), true, 7), 0);
    }
}
