//! What is asked of a store and what it answers: the same types in process and as JSON on the wire.

use cell_terms::Incarnation;
use serde::{Deserialize, Serialize};

use crate::number;

/// Counts the transactions that changed something; each key knows the one that last wrote it.
pub type Revision = u64;

/// Longest key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 256;
/// Longest value, in bytes.
pub(crate) const VALUE_BYTES_MAX: usize = 32 << 10;
/// Most conditions, and most operations, of one transaction.
pub(crate) const TRANSACTION_STEPS_MAX: usize = 128;
/// Most bytes of values in one transaction.
pub(crate) const TRANSACTION_BYTES_MAX: usize = 256 << 10;
/// Most keys on one page of a listing, and most changes in one answer.
pub(crate) const PAGE_KEYS_MAX: usize = 512;
/// A page, and an answer with changes, ends with the entry that passes this many bytes.
pub(crate) const PAGE_BYTES: usize = 256 << 10;
/// Shortest and longest time that a lease can be granted for.
pub(crate) const LEASE_TTL_MS: std::ops::RangeInclusive<u64> = 10..=3_600_000;
/// Most leases alive at a time: some for each of 1,024 nodes, whose lives may follow each other fast.
pub(crate) const LEASES_MAX: usize = 4_096;
/// Kinds of keys: what is before the first slash of a key is its kind.
pub(crate) const KINDS_MAX: usize = 256;
/// Most rows of one kind. No kind takes what others need.
pub(crate) const KIND_ROWS_MAX: usize = 262_144;
/// Most bytes of keys and values of one kind.
pub(crate) const KIND_BYTES_MAX: usize = 64 << 20;

/// A key, its value, and when it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// The value: JSON text in the typed layers; the store does not look at it.
    pub value: String,
    /// The revision that created the key.
    pub revision_created: Revision,
    /// The revision that last wrote it.
    pub revision: Revision,
    /// The lease with whose end the key goes.
    #[serde(with = "number::optional", default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Incarnation>,
}

/// What must hold for a transaction to be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyCondition {
    /// There is no such key.
    Absent {
        /// The key.
        key: String,
    },
    /// The key was last written by this revision.
    Revision {
        /// The key.
        key: String,
        /// The revision.
        revision: Revision,
    },
    /// The key has this value.
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// The lease is alive.
    LeaseAlive {
        /// The lease.
        #[serde(with = "number")]
        lease: Incarnation,
    },
    /// The lease has ended, or never was.
    LeaseEnded {
        /// The lease.
        #[serde(with = "number")]
        lease: Incarnation,
    },
}

/// One change of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyOperation {
    /// Writes a key.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// Ties the key to a lease, which must be alive; otherwise the key stays until it is deleted.
        #[serde(with = "number::optional", default, skip_serializing_if = "Option::is_none")]
        lease: Option<Incarnation>,
    },
    /// Removes a key; an absent one is no error.
    Delete {
        /// The key.
        key: String,
    },
}

/// Operations that are carried out together if every condition holds, and not at all otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// What must hold.
    pub conditions: Vec<KeyCondition>,
    /// What is done; no key twice.
    pub operations: Vec<KeyOperation>,
    /// Refused while the store lives on its reserve of disk space, which is for leases, epochs and cuts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dispensable: bool,
}

/// Of what there may only be so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quota {
    /// Leases that live.
    Leases,
    /// Leases that one connection has taken and that live.
    LeasesOfOne,
    /// Kinds of rows: the first words of their keys.
    Kinds,
    /// Rows of one kind.
    Rows,
    /// Bytes of the rows of one kind.
    Bytes,
}

impl std::fmt::Display for Quota {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Quota::Leases => "living leases",
            Quota::LeasesOfOne => "living leases of one connection",
            Quota::Kinds => "kinds of rows",
            Quota::Rows => "rows of one kind",
            Quota::Bytes => "bytes of rows of one kind",
        })
    }
}

/// Something asked of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoordinatorRequest {
    /// Carries out a transaction.
    Transact(Transaction),
    /// Reads a key.
    Read {
        /// The key.
        key: String,
    },
    /// Reads keys that begin with a prefix, in order, a page at a time.
    List {
        /// What they begin with.
        prefix: String,
        /// The last key of the page before.
        after: Option<String>,
    },
    /// What changed after a revision.
    ChangesSince {
        /// The last revision that the caller knows.
        revision: Revision,
    },
    /// Grants a lease.
    Grant {
        /// How long it lasts without a renewal.
        ttl_ms: u64,
    },
    /// Renews a lease.
    KeepAlive {
        /// The lease.
        #[serde(with = "number")]
        lease: Incarnation,
    },
    /// How long a lease will last if it is not renewed.
    Remaining {
        /// The lease.
        #[serde(with = "number")]
        lease: Incarnation,
    },
    /// Ends a lease before its time, in its holder's name.
    End {
        /// The lease.
        #[serde(with = "number")]
        lease: Incarnation,
    },
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransactionOutcome {
    /// Carried out, as this revision, and durable.
    Applied {
        /// The revision.
        revision: Revision,
    },
    /// A condition did not hold; nothing was changed.
    Refused {
        /// The first such condition, by its place in the transaction.
        condition: usize,
    },
}

/// One page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPage {
    /// The store's revision when the page was read: watch from here.
    pub revision: Revision,
    /// The keys, in order.
    pub entries: Vec<KeyValue>,
    /// Whether there are more after the last.
    pub more: bool,
}

/// A key that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyChange {
    /// The revision of the change.
    pub revision: Revision,
    /// The key.
    pub key: String,
    /// What it is now; none: it is gone.
    pub value: Option<KeyValue>,
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Its id, never used before.
    #[serde(with = "number")]
    pub lease: Incarnation,
    /// How long it lasts without a renewal.
    pub ttl_ms: u64,
}

/// A lease that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LivingLease {
    /// How long it will last if it is not renewed. It grows without a renewal, too: a time in which nobody
    /// could renew does not count.
    pub remaining_ns: u64,
    /// Grows with each renewal, and with nothing else. It begins anew where the coordinator is started again.
    pub renewals: u64,
}

/// What a store answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// To [`CoordinatorRequest::Transact`].
    Transacted(TransactionOutcome),
    /// To [`CoordinatorRequest::Read`].
    Value(Option<KeyValue>),
    /// To [`CoordinatorRequest::List`].
    Page(KeyPage),
    /// To [`CoordinatorRequest::ChangesSince`]: changes in order, and the revision up to which they are
    /// complete.
    Changes {
        /// Complete up to here: ask from here next.
        revision: Revision,
        /// The changes.
        changes: Vec<KeyChange>,
    },
    /// To [`CoordinatorRequest::Grant`].
    Granted(Grant),
    /// To [`CoordinatorRequest::KeepAlive`]: renewed.
    Alive,
    /// To [`CoordinatorRequest::Remaining`]; none: it has ended.
    Remaining(Option<LivingLease>),
    /// To [`CoordinatorRequest::End`]: it is over, by this or before.
    Ended,
    /// Nothing was done.
    Refused(CoordinatorRefusal),
}

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CoordinatorRefusal {
    /// The lease has ended or never was. Its holder has lost everything that hung on it.
    #[error("lease {lease} has ended")]
    LeaseEnded {
        /// The lease.
        lease: u64,
    },
    /// The changes after that revision are no longer kept: list again and watch from the listing.
    #[error("changes are kept from revision {oldest} on only")]
    Compacted {
        /// The oldest revision from which changes can be asked.
        oldest: Revision,
    },
    /// A key, a value, or a transaction is larger than permitted.
    #[error("{size} is more than the limit {limit}")]
    TooLarge {
        /// What was asked.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// A transaction names a key twice.
    #[error("operation {operation} writes a key that an earlier one wrote")]
    KeyTwice {
        /// The later operation's place.
        operation: usize,
    },
    /// The lease's time is out of bounds.
    #[error("a lease of {ttl_ms} ms is out of bounds")]
    LeaseTime {
        /// What was asked.
        ttl_ms: u64,
    },
    /// The store could not write to stable storage; it answers nothing more until it is opened again.
    #[error("the store stopped after a failed write")]
    Stopped,
    /// The store finds no room for a change. Leases that live are renewed all the same, and what is there is
    /// read.
    #[error("the disk under the coordinator's table is full")]
    NoRoom,
    /// etcd's database has the size that it may have. Nothing is written until somebody has made room,
    /// renewals neither, and no lease ends.
    #[error(
        "etcd has raised its alarm NOSPACE: compact and defragment it (etcdctl compact, defrag) or give it a \
         larger --quota-backend-bytes, then `etcdctl alarm disarm`"
    )]
    SpaceAlarm,
    /// There is as much of something as may be: end some of it first.
    #[error("the coordinator takes no more than {limit} {what}")]
    Quota {
        /// Of what.
        what: Quota,
        /// How much there may be.
        limit: usize,
    },
    /// Another lease would have the id of another cluster's.
    #[error("ids of leases are used up")]
    LeaseIdsUsedUp,
    /// The peer runs as another user than the coordinator, and not as root.
    #[error("user {user} may not ask the coordinator of user {own}")]
    Stranger {
        /// The peer's user.
        user: u32,
        /// The coordinator's.
        own: u32,
    },
    /// The peer came over the network, and its token is none of those that may do everything.
    #[error("the token is none of role admin that the coordinator knows")]
    Token,
    /// The request could not be read.
    #[error("the request could not be read")]
    Unreadable,
    /// It was asked in another version of its protocol. Run one version of Cell on all hosts.
    #[error(
        "it speaks {} of its protocol and was asked in {}: {}",
        spoken(*known),
        spoken(*asked),
        who_is_older(*asked, *known)
    )]
    Version {
        /// Of who asks; zero before questions said it.
        asked: u32,
        /// Of the coordinator; zero before answers said it.
        known: u32,
    },
    /// The server has as many connections as it takes.
    #[error("the server is busy")]
    Busy,
}

/// A version of the protocol.
fn spoken(version: u32) -> String {
    if version == 0 { "an earlier version".to_owned() } else { format!("version {version}") }
}

/// What is to be done about two versions.
fn who_is_older(asked: u32, known: u32) -> &'static str {
    if known < asked {
        "the coordinator is of an older build than who asks. Upgrade it first: stop all nodes, start it from \
         their build, then them"
    } else {
        "who asks is of an older build than the coordinator, and is to be started from that one's"
    }
}

impl CoordinatorRequest {
    /// Whether who has no answer to it has to look what it did. A lease that nobody knows of ends by itself.
    pub(crate) fn is_transaction(&self) -> bool {
        matches!(self, CoordinatorRequest::Transact(_))
    }

    /// Whether it only looks at what is there.
    pub(crate) fn is_read(&self) -> bool {
        match self {
            CoordinatorRequest::Read { .. }
            | CoordinatorRequest::List { .. }
            | CoordinatorRequest::ChangesSince { .. }
            | CoordinatorRequest::Remaining { .. } => true,
            CoordinatorRequest::Transact(_)
            | CoordinatorRequest::Grant { .. }
            | CoordinatorRequest::KeepAlive { .. }
            | CoordinatorRequest::End { .. } => false,
        }
    }

    /// Whether it is refused while the store lives on its reserve.
    pub(crate) fn is_dispensable(&self) -> bool {
        matches!(self, CoordinatorRequest::Transact(transaction) if transaction.dispensable)
    }
}

impl Transaction {
    /// A transaction without steps.
    #[must_use]
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// Adds a condition.
    #[must_use]
    pub fn when(mut self, condition: KeyCondition) -> Transaction {
        self.conditions.push(condition);
        self
    }

    /// Adds a write of a key without lease.
    #[must_use]
    pub fn put(mut self, key: impl Into<String>, value: impl Into<String>) -> Transaction {
        self.operations.push(KeyOperation::Put { key: key.into(), value: value.into(), lease: None });
        self
    }

    /// Adds a write of a key that goes with `lease`.
    #[must_use]
    pub fn put_leased(
        mut self,
        key: impl Into<String>,
        value: impl Into<String>,
        lease: Incarnation,
    ) -> Transaction {
        self.operations.push(KeyOperation::Put { key: key.into(), value: value.into(), lease: Some(lease) });
        self
    }

    /// The same, but refused while the store lives on its reserve of disk space.
    #[must_use]
    pub fn dispensable(self) -> Transaction {
        Transaction { dispensable: true, ..self }
    }

    /// Adds a removal.
    #[must_use]
    pub fn delete(mut self, key: impl Into<String>) -> Transaction {
        self.operations.push(KeyOperation::Delete { key: key.into() });
        self
    }

    /// Whether it is as large as permitted at most.
    pub(crate) fn check_sizes(&self) -> Result<(), CoordinatorRefusal> {
        let within = |size: usize, limit: usize| {
            if size <= limit { Ok(()) } else { Err(CoordinatorRefusal::TooLarge { size, limit }) }
        };
        within(self.conditions.len(), TRANSACTION_STEPS_MAX)?;
        within(self.operations.len(), TRANSACTION_STEPS_MAX)?;
        let mut bytes = 0;
        for operation in &self.operations {
            within(operation.key().len(), KEY_BYTES_MAX)?;
            if let KeyOperation::Put { value, .. } = operation {
                within(value.len(), VALUE_BYTES_MAX)?;
                bytes += value.len();
            }
        }
        within(bytes, TRANSACTION_BYTES_MAX)
    }
}

/// How full an answer with changes is. One that is not full ends with the last change that there is.
#[derive(Debug, Default)]
pub(crate) struct ChangesPage {
    count: usize,
    bytes: usize,
}

impl ChangesPage {
    pub(crate) fn add(&mut self, change: &KeyChange) {
        self.count += 1;
        self.bytes += change.key.len() + change.value.as_ref().map_or(0, |entry| entry.value.len());
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count >= PAGE_KEYS_MAX || self.bytes >= PAGE_BYTES
    }
}

impl KeyOperation {
    /// The key that is changed.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            KeyOperation::Put { key, .. } | KeyOperation::Delete { key } => key,
        }
    }
}
