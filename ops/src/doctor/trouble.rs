//! Why a coordinator does not do what the doctor asks, and what helps against that.

use cell_cluster::{ClusterError, CoordinatorRefusal, EtcdError};
use cell_terms::text::with_causes;

pub(super) const DISK_NEXT: &str =
    "make room on the disk under the coordinator's table: without it no lease is granted, no pair taken over";
const SPACE_NEXT: &str = "see \"etcd\" in docs/HANDBOOK.md: compact, defragment, disarm the alarm. No lease is \
                          renewed before that, and nodes are silent";
const STOPPED_NEXT: &str =
    "see its log and the disk under its table, then start it again: it stops after a write that failed";
const TOKEN_NEXT: &str =
    "give a token of role admin that the coordinator's tokens_file has (coordinator_token_file)";
const USER_NEXT: &str = "run it as the user of the coordinator, or as root";
const QUOTA_NEXT: &str = "see what has taken so many of them, and end some of it";
const VERSION_NEXT: &str = "run one version of Cell on all hosts, with its coordinator";
const BUSY_NEXT: &str = "see what holds so many connections to the coordinator";
const PASSWORD_NEXT: &str = "see etcd_user, and what stands in etcd_password_file";
const PERMISSION_NEXT: &str = "grant the user's role readwrite below etcd_prefix: no node starts without it";
const ENDPOINT_NEXT: &str = "see etcd_endpoints, and the certificates by which they are known";
const LEADER_NEXT: &str =
    "bring members of etcd back until more than half of all answer: without a leader it does nothing";
const CERTIFICATE_NEXT: &str =
    "see tls_trust_file, and whether the coordinator's certificate is for the name by which it is asked";

/// What etcd says where it has none.
const NO_LEADER: &str = "etcdserver: no leader";

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// In words.
    pub(super) why: String,
    /// What to do about it.
    pub(super) next: &'static str,
}

impl Trouble {
    /// Of a call; `unanswered` helps where nobody answers.
    pub(super) fn of(error: &ClusterError, unanswered: &'static str) -> Trouble {
        let why = with_causes(error);
        let next = match error {
            ClusterError::Refused(refusal) => of_refusal(*refusal),
            ClusterError::Etcd(error) => of_etcd(error),
            ClusterError::Answer | ClusterError::Unreadable { .. } => VERSION_NEXT,
            error if error.is_about_certificate() => CERTIFICATE_NEXT,
            _ if why.contains(NO_LEADER) => LEADER_NEXT, // in the words of a member that has lost the others
            _ => unanswered,
        };
        Trouble { why, next }
    }
}

fn of_refusal(refusal: CoordinatorRefusal) -> &'static str {
    match refusal {
        CoordinatorRefusal::NoRoom => DISK_NEXT,
        CoordinatorRefusal::SpaceAlarm => SPACE_NEXT,
        CoordinatorRefusal::Stopped => STOPPED_NEXT,
        CoordinatorRefusal::Token => TOKEN_NEXT,
        CoordinatorRefusal::Stranger { .. } => USER_NEXT,
        CoordinatorRefusal::Quota { .. } => QUOTA_NEXT,
        CoordinatorRefusal::Busy => BUSY_NEXT,
        _ => VERSION_NEXT,
    }
}

fn of_etcd(error: &EtcdError) -> &'static str {
    match error {
        EtcdError::NoUser | EtcdError::Credentials | EtcdError::Password { .. } => PASSWORD_NEXT,
        EtcdError::Permission { .. } => PERMISSION_NEXT,
        EtcdError::HistoryLost => "try again: etcd was restored or replaced just now",
        EtcdError::Complaint { .. } => "do as etcd says",
        _ => ENDPOINT_NEXT,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Room on a disk was advised whatever the reason was.
    #[test]
    fn next_follows_the_reason() {
        let refused = ClusterError::Refused;
        let gone = |words: &str| ClusterError::NotReached(io::Error::other(words));
        let permission = EtcdError::Permission { prefix: "cell/".into() };
        for (error, next) in [
            (refused(CoordinatorRefusal::NoRoom), DISK_NEXT),
            (refused(CoordinatorRefusal::SpaceAlarm), SPACE_NEXT),
            (refused(CoordinatorRefusal::Token), TOKEN_NEXT),
            (refused(CoordinatorRefusal::Stranger { user: 1, own: 2 }), USER_NEXT),
            (refused(CoordinatorRefusal::Unreadable), VERSION_NEXT),
            (ClusterError::Answer, VERSION_NEXT),
            (EtcdError::Credentials.into(), PASSWORD_NEXT),
            (permission.into(), PERMISSION_NEXT),
            (gone("http://etcd:2379: etcdserver: no leader"), LEADER_NEXT),
            (gone("connection refused"), "start it"),
            (ClusterError::OutcomeUnknown(io::ErrorKind::TimedOut.into()), "start it"),
        ] {
            let trouble = Trouble::of(&error, "start it");
            assert_eq!(trouble.next, next, "{}", trouble.why);
        }
    }
}
