//! Questions of peers that came while the host could not send: kept until they can be answered.

use crate::endpoint::ConnectionId;
use crate::partition::Partition;

/// Questions in the order in which they came, one a connection, behind a host's filter.
#[derive(Debug)]
pub(crate) struct WithheldQuestions<P> {
    partition: Partition,
    kept: Vec<(ConnectionId, P)>,
}

impl<P> Default for WithheldQuestions<P> {
    fn default() -> WithheldQuestions<P> {
        WithheldQuestions::behind(Partition::default())
    }
}

impl<P> WithheldQuestions<P> {
    /// None yet.
    pub(crate) fn behind(partition: Partition) -> WithheldQuestions<P> {
        WithheldQuestions { partition, kept: Vec::new() }
    }

    /// Whether a question that comes now is to be kept.
    pub(crate) fn is_due(&self) -> bool {
        self.partition.blocks_outbound()
    }

    /// Keeps a question. False: the connection has one here, and to ask another one before its answer is not
    /// to keep to the protocol.
    #[must_use]
    pub(crate) fn keep(&mut self, id: ConnectionId, question: P) -> bool {
        let is_first = self.kept.iter().all(|(of, _)| *of != id);
        if is_first {
            self.kept.push((id, question));
        }
        is_first
    }

    /// The connection is gone.
    pub(crate) fn forget(&mut self, id: ConnectionId) {
        self.kept.retain(|(of, _)| *of != id);
    }

    /// What was kept, once it can be answered.
    pub(crate) fn take(&mut self) -> Vec<(ConnectionId, P)> {
        if self.kept.is_empty() || self.is_due() { Vec::new() } else { std::mem::take(&mut self.kept) }
    }
}
