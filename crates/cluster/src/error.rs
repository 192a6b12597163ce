//! What can go wrong between a node and what its cluster agreed on.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use cell_terms::{Csn, Epoch, Incarnation, NodeId, PairId, RegionId, SessionId};

use crate::drain_row::NodeRefusal;
use crate::etcd_error::EtcdError;
use crate::move_row::MoveRefusal;
use crate::providers::tls_way::NotConnected;
use crate::request::CoordinatorRefusal;
use crate::terms::TermsDifference;

/// An operation of this crate that failed. Variants say what the caller can do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The coordinator was not reached; nothing was carried out. Try again until the lease runs out.
    #[error("the coordinator cannot be reached")]
    NotReached(#[source] io::Error),
    /// No answer within the deadline: the call may have been carried out, now or later. Look first, then try
    /// again.
    #[error("the coordinator did not answer in time; the call may still have been carried out")]
    OutcomeUnknown(#[source] io::Error),
    /// The coordinator answered "no"; nothing was carried out.
    #[error("the coordinator refused")]
    Refused(#[source] CoordinatorRefusal),
    /// The coordinator answered something else than was asked. Its version differs, or this is another
    /// service.
    #[error("the coordinator's answer does not fit the question")]
    Answer,
    /// A row, or the answer's text, could not be read.
    #[error("cannot read {what}")]
    Unreadable {
        /// What was read.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The table was written by another version of Cell; this one must not touch it.
    #[error("format version {found} cannot be read: this program knows version {known}")]
    Format {
        /// What was found.
        found: u32,
        /// What this program knows.
        known: u32,
    },
    /// A process that lives holds the folder; ask that process, or stop it.
    #[error("{} is held by {}", folder.display(), holder(*pid))]
    Held {
        /// The folder.
        folder: PathBuf,
        /// Who holds it, if that could be read.
        pid: Option<u32>,
    },
    /// The folder could not be created, locked or synced.
    #[error("cannot use {}", path.display())]
    Folder {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// sled failed. The embedded coordinator answers nothing more: what is on stable storage is not known.
    #[error("the coordinator's store failed")]
    Store(#[source] sled::Error),
    /// sled does not come back from a write that failed. The embedded coordinator answers nothing more.
    #[error("the coordinator's store hangs after a write that failed")]
    StoreHangs(#[source] sled::Error),
    /// etcd cannot be used as it is, or as it is asked; its words say what to do.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// A row of the embedded store lacks a piece: the store was damaged. Nothing is answered from it; bring
    /// the coordinator's folder back as it was.
    #[error("a row of the coordinator's store is not whole")]
    RowIncomplete,
    /// What the next id is to name is there already: the counter of ids has gone back, so the table has lost
    /// what was acknowledged. Nothing was written. Bring the coordinator's folder back as it was.
    #[error("the next {what} is there already: the coordinator's table has lost rows")]
    CounterWentBack {
        /// What was to be created.
        what: &'static str,
    },
    /// The server could not listen or start.
    #[error("cannot serve the coordinator at {}", path.display())]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The same, over the network.
    #[error("cannot serve the coordinator at {address}")]
    ListenAt {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// The writer's own lease has ended: it owns nothing any more and must stop.
    #[error("{lease} has ended")]
    LeaseEnded {
        /// The lease.
        lease: Incarnation,
    },
    /// The node's log root, format or settings are not the cluster's: it must not take over anybody's pairs.
    #[error("this node does not fit the cluster: {0}")]
    Terms(TermsDifference),
    /// A node with this number lives, in another folder or on another host.
    #[error("{node} is there already: {fabric}, with the folder {home}")]
    NodeElsewhere {
        /// The number.
        node: NodeId,
        /// Where the other one is reached.
        fabric: String,
        /// Its folder.
        home: String,
    },
    /// Others changed the row each time that it was to be changed. Try again later.
    #[error("others kept changing {what}")]
    Contended {
        /// What was to be changed.
        what: &'static str,
    },
    /// A table is not copied. Nothing counts of what was copied.
    #[error("the table is not copied: {why}")]
    CopyRefused {
        /// Why.
        why: &'static str,
    },
    /// A table is not copied to where a cluster's rows are.
    #[error("the table is not copied: there are rows where it is to be copied to, such as `{key}`")]
    CopyTargetUsed {
        /// The first of them.
        key: String,
    },
    /// More than a row takes. Take something back first.
    #[error("{what} would be longer than the coordinator takes")]
    TooLong {
        /// What.
        what: &'static str,
    },
    /// The cluster has not been initialised, or its table is lost.
    #[error("the table is empty")]
    NotInitialised,
    /// There are no ids left: regions have 24 bits, sessions 32 a generation, leases 40 a cluster.
    #[error("ids of {what} are used up")]
    IdsUsedUp {
        /// What kind.
        what: &'static str,
    },
    /// No such pair.
    #[error("{pair} is not in the region table")]
    PairUnknown {
        /// The pair.
        pair: PairId,
    },
    /// Somebody else owns the pair by now. Stop touching it.
    #[error("{pair} belongs to {owner:?} since {epoch}")]
    Superseded {
        /// The pair.
        pair: PairId,
        /// Its epoch.
        epoch: Epoch,
        /// Its owner, if it has one.
        owner: Option<Incarnation>,
    },
    /// The pair's owner may still be at work. Wait for its lease to end, then claim again.
    #[error("{owner} owns {pair} and its lease lasts {remaining_ns} ns more")]
    OwnerLives {
        /// The pair.
        pair: PairId,
        /// Its owner.
        owner: Incarnation,
        /// How long the lease lasts if it is not renewed.
        remaining_ns: u64,
    },
    /// Trust that an earlier owner granted has not run out; nobody may serve the pair before that.
    #[error("{pair} cannot be served before the lease of {owner} ends")]
    TrustRemains {
        /// The pair.
        pair: PairId,
        /// The earlier owner.
        owner: Incarnation,
    },
    /// An earlier recovery has recorded another cut; take that one.
    #[error("{pair}, {epoch}: the cut is recorded as {recorded}, not {found}")]
    CutRecorded {
        /// The pair.
        pair: PairId,
        /// The epoch that was cut.
        epoch: Epoch,
        /// What the table says.
        recorded: Csn,
        /// What was to be recorded.
        found: Csn,
    },
    /// A pair is published only when every earlier epoch that has logs is cut.
    #[error("{pair}, {epoch} has no cut yet")]
    CutMissing {
        /// The pair.
        pair: PairId,
        /// The epoch without a cut.
        epoch: Epoch,
    },
    /// A checkpoint of an epoch or CSN below the recorded one.
    #[error("{pair} has a later checkpoint already")]
    CheckpointOlder {
        /// The pair.
        pair: PairId,
    },
    /// The pair is not in the state that the change begins from.
    #[error("{pair} is not in the state for this")]
    State {
        /// The pair.
        pair: PairId,
    },
    /// A move is not started, not taken further, or not ended.
    #[error(transparent)]
    Move(#[from] MoveRefusal),
    /// A node is not drained, not removed, or may not join.
    #[error(transparent)]
    Node(#[from] NodeRefusal),
    /// A pair's log folders know a later epoch than the table: the table is old or another cluster's. Nothing
    /// is served.
    #[error("the table says {table} for {pair}, but its logs have {found}")]
    TableOlder {
        /// The pair.
        pair: PairId,
        /// The table's epoch.
        table: Epoch,
        /// The logs' highest epoch.
        found: Epoch,
    },
    /// There are log folders of a region that the table does not know: the table is lost. Not a first start.
    #[error("there are logs of {region}, which the table does not know")]
    LogWithoutRow {
        /// The region.
        region: RegionId,
    },
    /// No such session, or it has ended. It is never created on arrival.
    #[error("{session} is unknown or has ended")]
    SessionUnknown {
        /// The session.
        session: SessionId,
    },
}

/// Whether a disk says that it is full, or that its user may have no more of it.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl ClusterError {
    /// Whether the call may succeed when it is made again, after looking at what it did. A token or password
    /// that is not known may be known again, or another one be shown, a right that was taken away be given
    /// back, and a coordinator of another version be replaced: that ends nobody who serves.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            ClusterError::Contended { .. }
                | ClusterError::Refused(
                    CoordinatorRefusal::Busy
                        | CoordinatorRefusal::NoRoom
                        | CoordinatorRefusal::SpaceAlarm
                        | CoordinatorRefusal::Token
                        | CoordinatorRefusal::Quota { .. }
                )
        ) || self.is_unanswered()
            || self.is_refused_for_rights()
            || self.is_of_another_version()
    }

    /// Whether nobody answered: the coordinator was not reached, or not heard of in time. One that says no
    /// has answered.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        matches!(self, ClusterError::NotReached(_) | ClusterError::OutcomeUnknown(_))
    }

    /// Whether a first lease is not asked for again: somebody has to change something before.
    pub(crate) fn refuses_first_lease(&self) -> bool {
        !self.is_transient() || self.is_refused_for_rights() || self.is_of_another_version()
    }

    /// Whether the coordinator speaks another version of its protocol than this process.
    #[must_use]
    pub fn is_of_another_version(&self) -> bool {
        matches!(self, ClusterError::Refused(CoordinatorRefusal::Version { .. }))
    }

    /// Whether the coordinator does not take who asks for somebody that may.
    fn is_refused_for_rights(&self) -> bool {
        matches!(
            self,
            ClusterError::Refused(CoordinatorRefusal::Token)
                | ClusterError::Etcd(
                    EtcdError::NoUser
                        | EtcdError::Credentials
                        | EtcdError::Password { .. }
                        | EtcdError::Permission { .. }
                )
        )
    }

    /// Whether the coordinator was not asked because its certificate, over TLS, is not taken here.
    #[must_use]
    pub fn is_about_certificate(&self) -> bool {
        let ClusterError::NotReached(error) = self else { return false };
        let why = error.get_ref().and_then(|why| why.downcast_ref::<NotConnected>());
        why.is_some_and(NotConnected::is_about_certificate)
    }

    /// Whether the coordinator did nothing because its disk is full, or its quota of such rows.
    #[must_use]
    pub fn is_refused_for_room(&self) -> bool {
        matches!(
            self,
            ClusterError::Refused(
                CoordinatorRefusal::NoRoom
                    | CoordinatorRefusal::SpaceAlarm
                    | CoordinatorRefusal::Quota { .. }
            )
        )
    }

    /// Whether the disk had no room for what was written to it.
    pub(crate) fn is_disk_full(&self) -> bool {
        let source = match self {
            ClusterError::Store(sled::Error::Io(source)) | ClusterError::Folder { source, .. } => source,
            _ => return false,
        };
        is_full(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is reported to operators of a coordinator that is away is said of no other one.
    #[test]
    fn is_unanswered_what_nobody_answered_and_no_refusal() {
        let lost = || io::Error::from(io::ErrorKind::TimedOut);
        for error in [ClusterError::NotReached(lost()), ClusterError::OutcomeUnknown(lost())] {
            assert!(error.is_unanswered() && error.is_transient(), "{error}");
        }
        let refusals = [CoordinatorRefusal::Busy, CoordinatorRefusal::NoRoom, CoordinatorRefusal::Stopped];
        for error in refusals.map(ClusterError::Refused).into_iter().chain([ClusterError::Answer]) {
            assert!(!error.is_unanswered(), "{error}");
        }
    }

    /// A password that was changed in etcd before it was in the nodes' files ended all nodes for good.
    #[test]
    fn is_transient_what_a_password_or_a_right_mends_and_no_first_lease_is_asked_for_again() {
        let rights = [
            EtcdError::NoUser,
            EtcdError::Credentials,
            EtcdError::Password { why: "it is not there".into() },
            EtcdError::Permission { prefix: "cell/".into() },
        ];
        for error in rights.map(ClusterError::from) {
            assert!(error.is_transient() && error.refuses_first_lease(), "{error}");
        }
        for error in [EtcdError::HistoryLost, EtcdError::CommonName].map(ClusterError::from) {
            assert!(!error.is_transient() && error.refuses_first_lease(), "{error}");
        }
        let busy = ClusterError::Refused(CoordinatorRefusal::Busy);
        assert!(busy.is_transient() && !busy.refuses_first_lease());
    }

    /// All nodes ended at once, and their memory with them, when a coordinator of another build was started
    /// in the place of theirs.
    #[test]
    fn coordinator_of_another_version_ends_nobody_who_serves_and_says_who_is_older() {
        for (asked, known, words) in [
            (3, 2, "it speaks version 2 of its protocol and was asked in version 3: the coordinator is of"),
            (3, 0, "it speaks an earlier version of its protocol and was asked in version 3: the coordin"),
            (2, 3, "it speaks version 3 of its protocol and was asked in version 2: who asks is of an ol"),
        ] {
            let refusal = CoordinatorRefusal::Version { asked, known };
            assert!(refusal.to_string().starts_with(words), "{refusal}");
            let error = ClusterError::Refused(refusal);
            assert!(error.is_of_another_version(), "{error}");
            assert!(error.is_transient() && error.refuses_first_lease(), "{error}");
        }
        assert!(!ClusterError::Refused(CoordinatorRefusal::Token).is_of_another_version());
    }
}
