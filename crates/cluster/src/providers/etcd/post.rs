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

    /// Asks a member, and waits for its whole answer.
    fn post(
        &self,
        member: usize,
        path: &str,
        body: &str,
        token: Option<&str>,
        times: TryTimes,
    ) -> Result<Vec<u8>, PostFailure>;

    /// Asks a member for an answer that goes on. Each read of it takes as long as the answer may take to
    /// begin.
    fn open(
        &self,
        member: usize,
        path: &str,
        body: &str,
        token: Option<&str>,
        times: TryTimes,
    ) -> Result<Box<dyn Read + Send>, PostFailure>;
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
}
