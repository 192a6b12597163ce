//! What can be wrong between a node and its etcd, beyond an etcd that does not answer.

/// Asking again does not help before somebody has changed something. Of these a process that serves outlives
/// those of passwords and rights ([`crate::ClusterError::is_transient`]).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// etcd has users, and was given none.
    #[error("etcd asks for a user, and none is set (`etcd_user`)")]
    NoUser,
    /// etcd does not take the user's password.
    #[error(
        "etcd does not know this user by this password: see `etcd_user` and what stands in \
         `etcd_password_file`"
    )]
    Credentials,
    /// The file of the password cannot be read.
    #[error("cannot read the password of `etcd_password_file`: {why}")]
    Password {
        /// Why.
        why: Box<str>,
    },
    /// The user may not read and write the cluster's keys.
    #[error(
        "etcd does not let this user at the keys below `{prefix}`: grant its role readwrite there \
         (etcdctl role grant-permission ROLE --prefix=true readwrite {prefix})"
    )]
    Permission {
        /// Below which all keys of the cluster lie.
        prefix: Box<str>,
    },
    /// The gateway takes no certificate with a common name where etcd has users.
    #[error(
        "etcd, which has users, takes no client's certificate with a common name at its gateway: give one \
         without in `etcd_client_certificate_file`"
    )]
    CommonName,
    /// Something else than etcd's gateway listens there, or an etcd that is too old.
    #[error("{endpoint} is no JSON gateway of etcd 3.4 or later (HTTP status {status})")]
    NoGateway {
        /// Where.
        endpoint: Box<str>,
        /// What was answered.
        status: u16,
    },
    /// It was asked without TLS, and speaks TLS.
    #[error("{endpoint} speaks TLS: use https:// in `etcd_endpoints`")]
    SpeaksTls {
        /// Where.
        endpoint: Box<str>,
    },
    /// A member is of another cluster of etcd than those that answered before.
    #[error("{endpoint} belongs to another cluster of etcd than the members that have answered before")]
    OtherCluster {
        /// Where.
        endpoint: Box<str>,
    },
    /// The members are of different clusters of etcd.
    #[error("`etcd_endpoints` has members of different clusters of etcd: {clusters}")]
    Clusters {
        /// Which are of which, in words.
        clusters: Box<str>,
    },
    /// The rows are not those that this process has seen: etcd was restored from a backup, or another one
    /// answers at its address. What this process believes of them may be wrong; it must be started again.
    #[error(
        "etcd has another history than before: it was restored or replaced while this process ran, which has \
         to start again"
    )]
    HistoryLost,
    /// etcd refused a request for a reason that is none of the above.
    #[error("etcd refused a request: {message} (code {code})")]
    Complaint {
        /// gRPC's code.
        code: u32,
        /// In etcd's words.
        message: Box<str>,
    },
    /// An endpoint is none, or certificates cannot be used.
    #[error("{what}")]
    Setup {
        /// What is wrong, with the setting's name.
        what: Box<str>,
    },
}

impl EtcdError {
    /// Whether etcd has answered a log-in, and will answer the same one so again until somebody has changed
    /// something.
    pub(crate) fn refuses_log_in(&self) -> bool {
        matches!(
            self,
            EtcdError::Credentials
                | EtcdError::Permission { .. }
                | EtcdError::CommonName
                | EtcdError::Complaint { .. }
        )
    }
}
