//! The rows on etcd, over its JSON gateway: for clusters of several machines.
//!
//! | module | role |
//! |---|---|
//! | `keys`, `gateway` | where what lies; what is said to the gateway, and what it answers |
//! | `transact`, `changes` | transactions; what has changed, by a read and a watch |
//! | `lease_row`, `lease_watch`, `leases`, `observer` | leases as rows, and who ends those that nobody renews |
//! | `route`, `history` | which member is asked, and what no answer means; whether rows are gone |
//! | `ask`, `post`, `http` | one question over all members; one member; its socket |
//! | `http_words` | what is said of a member that gives no answer |
//! | `log_in`, `log_ins` | one log-in at a time; the token that it gave, or why there is none |
//! | `log_in_backoff` | the back-off of log-ins that were refused, or not answered |
//!
//! Where it differs from a coordinator of Cell's own: revisions grow by more than the rows' changes, because
//! renewals are writes; a row does not say on which lease it hangs; etcd's own quota takes the place of those
//! of kinds of rows, and where that is used up nothing is written, renewals neither: then no lease is ended
//! either, and nodes are silent until there is room.

mod ask;
mod changes;
#[cfg(test)]
mod fake;
mod gateway;
mod history;
mod http;
mod http_words;
mod keys;
mod lease_row;
mod lease_watch;
mod leases;
mod log_in;
mod log_in_backoff;
mod log_ins;
mod observer;
mod options;
mod post;
mod route;
#[cfg(test)]
mod tests;
mod transact;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::BootClock;
use crate::coordinator::{Coordinator, initialise};
use crate::error::ClusterError;
use crate::etcd_error::EtcdError;
use crate::providers::etcd::ask::Asker;
use crate::providers::etcd::changes::Changes;
use crate::providers::etcd::gateway::{
    self as gw, PATH_RANGE, PATH_TXN, RESOURCE_EXHAUSTED, RangeAnswer, StoredKey, TxnAnswer,
};
use crate::providers::etcd::http::Http;
use crate::providers::etcd::keys::{check_layout, range_end, successor};
use crate::providers::etcd::leases::Leases;
use crate::providers::etcd::observer::Observer;
use crate::providers::etcd::route::Repeats;
use crate::providers::ids::random_generation;
use crate::request::{
    CoordinatorRefusal, CoordinatorRequest, KeyPage, KeyValue, PAGE_KEYS_MAX, Response, Transaction,
};

pub use options::{EtcdOptions, parse_etcd_endpoints};

/// A coordinator on etcd.
pub struct Etcd {
    asker: Arc<Asker>,
    leases: Arc<Leases>,
    changes: Changes,
    is_initialised: AtomicBool,
    compaction: Option<Duration>,
    observer: Mutex<Option<Observer>>,
}

impl Etcd {
    /// The etcd of these options. Nothing is asked of it yet.
    ///
    /// # Errors
    /// [`EtcdError::Setup`].
    pub fn new(options: &EtcdOptions) -> Result<Etcd, ClusterError> {
        let http = Http::new(options)?;
        let asker = Asker::new(
            Box::new(http),
            &options.prefix,
            options.user.clone(),
            Arc::new(BootClock),
            options.deadline,
        );
        Ok(Etcd::over(asker, options.compaction))
    }

    fn over(asker: Arc<Asker>, compaction: Option<Duration>) -> Etcd {
        Etcd {
            asker,
            leases: Arc::default(),
            changes: Changes::default(),
            is_initialised: AtomicBool::new(false),
            compaction,
            observer: Mutex::new(None),
        }
    }

    /// Which cluster of etcd has answered; none: nobody has yet.
    #[must_use]
    pub fn cluster_id(&self) -> Option<u64> {
        self.asker.cluster_id()
    }

    /// Which member has answered last, by the id that etcd has given it; none: nobody has, or does not say.
    #[must_use]
    pub fn member_id(&self) -> Option<u64> {
        self.asker.member_id()
    }

    /// Each call takes at most so long from now on, over all members.
    pub fn set_deadline(&self, deadline: Duration) {
        self.asker.set_deadline(deadline);
    }

    /// Ends leases that nobody renews, from now on: a process that holds one does so by itself.
    ///
    /// # Errors
    /// [`ClusterError::Thread`].
    pub fn watch_leases(&self) -> Result<(), ClusterError> {
        let mut observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner);
        if observer.is_none() {
            *observer = Some(Observer::start(self.asker.clone(), self.leases.clone(), self.compaction)?);
        }
        Ok(())
    }

    fn read_row(&self, key: &str, until_ns: u64) -> Result<Response, ClusterError> {
        if key.is_empty() {
            return Ok(Response::Value(None)); // the head is nobody's row
        }
        let question = gw::range_of_key(&self.asker.keys.row(key));
        let answer: RangeAnswer = self.asker.ask(PATH_RANGE, &question, Repeats::Reads, until_ns)?;
        Ok(Response::Value(answer.kvs.into_iter().next().and_then(|stored| self.row(stored))))
    }

    fn list_rows(&self, prefix: &str, after: Option<&str>, until_ns: u64) -> Result<Response, ClusterError> {
        let keys = &self.asker.keys;
        let end = range_end(keys.row(prefix).as_bytes());
        let from = match after {
            Some(after) if after >= prefix => successor(&keys.row(after)),
            _ if prefix.is_empty() => successor(keys.head()),
            _ => keys.row(prefix).into_bytes(),
        };
        let mut most = PAGE_KEYS_MAX;
        let answer = loop {
            // The head besides, as of the same moment: rows of another version are not read.
            let page = gw::get_range(gw::range(&from, &end, Some(most)));
            let question = gw::txn(Vec::new(), vec![gw::get(keys.head()), page], Vec::new());
            match self.asker.ask::<TxnAnswer>(PATH_TXN, &question, Repeats::Reads, until_ns) {
                Err(ClusterError::Etcd(EtcdError::Complaint { code: RESOURCE_EXHAUSTED, .. }))
                    if most > 1 =>
                {
                    most /= 2; // a gateway of before 3.4.17 takes 4 MiB from its own etcd
                }
                answer => break answer?,
            }
        };
        if let Some(head) = answer.key(0)? {
            check_layout(&head.value)?;
        }
        let page = answer.read(1)?;
        let entries = page.kvs.iter().filter_map(|stored| self.row(stored.clone())).collect();
        Ok(Response::Page(KeyPage { revision: answer.header.revision, entries, more: page.more }))
    }

    /// Refuses members of different clusters, and rows of another version, before anything is written. The
    /// first lease of a process asks for it by itself.
    ///
    /// # Errors
    /// [`EtcdError::Clusters`], [`ClusterError::Format`], or nobody answers.
    pub fn check(&self) -> Result<(), ClusterError> {
        self.asker.check_members(self.asker.deadline_from_now())?;
        let question = gw::range_of_key(self.asker.keys.head());
        let until_ns = self.asker.deadline_from_now();
        let head: RangeAnswer = self.asker.ask(PATH_RANGE, &question, Repeats::Reads, until_ns)?;
        head.kvs.first().map_or(Ok(()), |head| check_layout(&head.value))
    }

    fn row(&self, stored: StoredKey) -> Option<KeyValue> {
        let key = self.asker.keys.row_of(&stored.key)?.to_owned();
        Some(KeyValue {
            key,
            value: stored.value,
            revision_created: stored.create_revision,
            revision: stored.mod_revision,
            lease: None,
        })
    }

    fn transact_rows(&self, transaction: &Transaction, until_ns: u64) -> Result<Response, ClusterError> {
        let prepared = match transact::prepare(&self.asker.keys, transaction) {
            Ok(prepared) => prepared,
            Err(refusal) => return Ok(Response::Refused(refusal)),
        };
        let answer: TxnAnswer = self.asker.ask(PATH_TXN, &prepared.body, Repeats::Never, until_ns)?;
        transact::understand(transaction, &prepared, &answer)
    }

    /// The first lease of a process: the table is there, and of this version, and somebody ends leases.
    fn grant(&self, ttl_ms: u64) -> Result<Response, ClusterError> {
        if !self.is_initialised.load(Ordering::Acquire) {
            self.check()?;
            initialise(self, random_generation()?)?;
            self.is_initialised.store(true, Ordering::Release);
        }
        let granted = self.leases.grant(&self.asker, ttl_ms, self.asker.deadline_from_now())?;
        if matches!(granted, Response::Granted(_)) {
            self.watch_leases()?;
        }
        Ok(granted)
    }

    fn carry_out(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        let (asker, until_ns) = (&*self.asker, self.asker.deadline_from_now());
        match request {
            CoordinatorRequest::Transact(transaction) => self.transact_rows(transaction, until_ns),
            CoordinatorRequest::Read { key } => self.read_row(key, until_ns),
            CoordinatorRequest::List { prefix, after } => self.list_rows(prefix, after.as_deref(), until_ns),
            CoordinatorRequest::ChangesSince { revision } => self.changes.since(asker, *revision, until_ns),
            CoordinatorRequest::Grant { ttl_ms } => self.grant(*ttl_ms),
            CoordinatorRequest::KeepAlive { lease } => self.leases.renew(asker, *lease, until_ns),
            CoordinatorRequest::Remaining { lease } => self.leases.remaining(asker, *lease, until_ns),
            CoordinatorRequest::End { lease } => {
                self.leases.end(asker, *lease, None, until_ns).map(|_| Response::Ended)
            }
        }
    }

    /// What a process gets that holds a lease of a history that is gone: that the lease is over, so that
    /// it ends, and starts again with what is there now. Of leases of others it learns nothing.
    fn of_lost_history(&self, request: &CoordinatorRequest) -> Option<Response> {
        match request {
            CoordinatorRequest::KeepAlive { lease } if self.leases.holds(*lease) => {
                Some(Response::Refused(CoordinatorRefusal::LeaseEnded { lease: lease.0 }))
            }
            CoordinatorRequest::Remaining { lease } if self.leases.holds(*lease) => {
                Some(Response::Remaining(None))
            }
            _ => None,
        }
    }
}

impl Coordinator for Etcd {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        match self.carry_out(request) {
            Err(ClusterError::Refused(refusal)) => Ok(Response::Refused(refusal)),
            Err(ClusterError::Etcd(EtcdError::HistoryLost)) if self.asker.has_lost_history() => {
                self.of_lost_history(request).ok_or_else(|| EtcdError::HistoryLost.into())
            }
            answered => answered,
        }
    }
}
