//! What a worker keeps of those who come and go.

use cell_fabric::ConnectionId;
use cell_terms::Seldom;

use crate::failed_logins::FailedLogins;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Greetings {
    /// By which revision of the access rules the connections were judged last.
    pub(super) judged: u64,
    /// Connections of peers that are known since this was taken last.
    pub(super) admitted: Vec<ConnectionId>,
    /// Connections that are to be closed.
    pub(super) dismissed: Vec<ConnectionId>,
    /// Greeted connections, by the providers that have them.
    pub(super) greeted: [usize; ConnectionId::PROVIDERS],
    /// When a peer was last turned away because there were as many connections as may be.
    pub(super) full_at_ns: Option<u64>,
    pub(super) logins: FailedLogins,
    /// Reports of tokens that are not known.
    pub(super) unknown: Seldom,
    /// Reports of those for whom there was no place.
    pub(super) crowded: Seldom,
}

impl Greetings {
    /// A greeted connection is gone.
    pub(super) fn parted(&mut self, connection: ConnectionId) {
        let greeted = &mut self.greeted[connection.provider()];
        *greeted = greeted.saturating_sub(1);
    }
}
