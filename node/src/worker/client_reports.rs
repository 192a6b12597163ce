//! A client's report, and the answer to it: the cluster's settings that are newer than the client's.

use cell_fabric::ConnectionId;
use cell_protocol::{ClientReport, ClientReportReply, Reply, RequestHeader, SettingValues};

use super::Worker;
use crate::pairs::Dependence;

impl Worker {
    pub(super) fn report(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        report: &ClientReport<'_>,
    ) {
        self.client_reports.take(connection, self.now_ns, report);
        let settings = self.options.client_settings.clone();
        let (revision, values) = settings.as_ref().map_or((0, &[][..]), |it| (it.revision, &it.values));
        let is_new = revision != report.settings_revision;
        let list = values.iter().filter(|_| is_new).map(|(name, value)| (name.as_str(), value.as_str()));
        let list: Vec<_> = list.collect();
        let values = SettingValues::fitting(&list);
        let reply = Reply::Reported(ClientReportReply { settings_revision: revision, values });
        self.reply(connection, header, Dependence::NOTHING, &reply);
    }
}
