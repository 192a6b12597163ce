//! One question to one member: what stands between the core and sockets.

use std::io::{self, Read};

use crate::providers::etcd::gateway::Complaint;
use crate::providers::etcd::route::TryTimes;

/// etcd's members, each of which is asked by itself.
pub(super) trait Gateway: Send + Sync {
    /// How many there are.
    fn members(&self) -> usize;

    /// Where one is, for people.
    fn endpoint(&self, member: usize) -> &str;

    /// Asks, and waits for the whole answer.
    fn post(&self, question: Question<'_>) -> Result<Vec<u8>, PostFailure>;

    /// Asks for an answer that goes on. Each read of it takes as long as the answer may take to begin.
    fn open(&self, question: Question<'_>) -> Result<Box<dyn Read + Send>, PostFailure>;
}

/// What one member is asked.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    /// Whom.
    pub(super) member: usize,
    /// The gateway's path.
    pub(super) path: &'a str,
    /// The question as JSON.
    pub(super) body: &'a str,
    /// Of who has logged in.
    pub(super) token: Option<&'a str>,
    /// How long it may take.
    pub(super) times: TryTimes,
}

/// No answer.
#[derive(Debug)]
pub(super) enum PostFailure {
    /// The member said nothing.
    Unanswered {
        /// Whether the question may have reached it.
        sent: bool,
        /// Why.
        source: io::Error,
    },
    /// It said why.
    Complained(Complaint),
    /// It answered for another cluster of etcd: nothing was done in this one.
    OtherCluster,
}
