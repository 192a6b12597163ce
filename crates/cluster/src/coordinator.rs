//! The trait behind which a store is reached, whoever hosts it.

use cell_terms::Incarnation;
use cell_terms::text::with_causes;

use crate::attempts::Attempts;
use crate::clock_watch::ClockReading;
use crate::error::ClusterError;
use crate::renewers::Renewers;
use crate::request::{
    CoordinatorRefusal, CoordinatorRequest, Grant, KeyChange, KeyCondition, KeyPage, KeyValue, LivingLease,
    Response, Revision, Transaction, TransactionOutcome,
};
use crate::row::ROW_FORMAT_VERSION;

/// The format of the typed layers' rows, checked before anything else is read.
pub(crate) const KEY_FORMAT: &str = "cluster/format";
/// The cluster's generation: random, drawn when the table was initialised.
const KEY_GENERATION: &str = "cluster/generation";

/// A store that holds what the cluster agreed on.
///
/// Calls block, at most for the provider's deadline, and are made from control threads, never from a worker.
/// After [`ClusterError::OutcomeUnknown`] the call may have been carried out, or may be carried out later.
pub trait Coordinator: Send + Sync {
    /// Carries one request out.
    ///
    /// # Errors
    /// [`ClusterError::NotReached`], [`ClusterError::OutcomeUnknown`], or the provider's own failure. A
    /// refusal is an answer here, not an error.
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError>;

    /// The store's clock, where it is at hand.
    fn clock_ns(&self) -> Option<u64> {
        None
    }

    /// As [`Coordinator::call`], with a reading of the store's clock between question and answer, if there is
    /// one.
    ///
    /// # Errors
    /// As there.
    fn call_timed(
        &self,
        request: &CoordinatorRequest,
    ) -> Result<(Response, Option<ClockReading>), ClusterError> {
        let response = self.call(request)?;
        Ok((response, self.clock_ns().map(|now_ns| ClockReading { clock: 0, now_ns })))
    }

    /// Who renews the store's leases over its socket, where it looks at that before it ends one.
    fn renewers(&self) -> Option<&Renewers> {
        None
    }

    /// The cluster's random generation, from which the upper half of session ids follows.
    ///
    /// # Errors
    /// See [`Coordinator::call`]; [`ClusterError::NotInitialised`] before [`initialise`].
    fn generation(&self) -> Result<u32, ClusterError> {
        let entry = self.read(KEY_GENERATION)?.ok_or(ClusterError::NotInitialised)?;
        parse("the generation", &entry.value)
    }

    /// Carries a transaction out.
    ///
    /// # Errors
    /// See [`Coordinator::call`]; [`ClusterError::Refused`] if it could never be carried out.
    fn transact(&self, transaction: Transaction) -> Result<TransactionOutcome, ClusterError> {
        match self.call(&CoordinatorRequest::Transact(transaction))? {
            Response::Transacted(outcome) => Ok(outcome),
            other => Err(unexpected(other)),
        }
    }

    /// Reads a key.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    fn read(&self, key: &str) -> Result<Option<KeyValue>, ClusterError> {
        match self.call(&CoordinatorRequest::Read { key: key.to_owned() })? {
            Response::Value(entry) => Ok(entry),
            other => Err(unexpected(other)),
        }
    }

    /// Reads one page of the keys that begin with `prefix`, after the key `after`.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    fn page(&self, prefix: &str, after: Option<&str>) -> Result<KeyPage, ClusterError> {
        let request = CoordinatorRequest::List { prefix: prefix.to_owned(), after: after.map(str::to_owned) };
        match self.call(&request)? {
            Response::Page(page) => Ok(page),
            other => Err(unexpected(other)),
        }
    }

    /// Reads every key that begins with `prefix`. The revision is that of the first page: a watch from there
    /// misses nothing, and may repeat what the later pages already show.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    fn list(&self, prefix: &str) -> Result<KeyPage, ClusterError> {
        let mut whole = self.page(prefix, None)?;
        while whole.more {
            let after = whole.entries.last().map(|entry| entry.key.clone());
            let next = self.page(prefix, after.as_deref())?;
            whole.entries.extend(next.entries);
            whole.more = next.more;
        }
        Ok(whole)
    }

    /// What changed after `revision`, and up to which revision that is complete.
    ///
    /// # Errors
    /// See [`Coordinator::call`]; [`CoordinatorRefusal::Compacted`] when that is too long ago: list again.
    fn changes_since(&self, revision: Revision) -> Result<(Revision, Vec<KeyChange>), ClusterError> {
        match self.call(&CoordinatorRequest::ChangesSince { revision })? {
            Response::Changes { revision, changes } => Ok((revision, changes)),
            other => Err(unexpected(other)),
        }
    }

    /// Grants a lease. Whoever holds it counts its time from *before* this call.
    ///
    /// # Errors
    /// See [`Coordinator::call`]. A grant whose outcome is unknown ends by itself; ask for another.
    fn grant(&self, ttl_ms: u64) -> Result<Grant, ClusterError> {
        match self.call(&CoordinatorRequest::Grant { ttl_ms })? {
            Response::Granted(grant) => Ok(grant),
            other => Err(unexpected(other)),
        }
    }

    /// Renews a lease.
    ///
    /// # Errors
    /// See [`Coordinator::call`]; [`ClusterError::LeaseEnded`]: it is over, for good.
    fn keep_alive(&self, lease: Incarnation) -> Result<(), ClusterError> {
        self.keep_alive_timed(lease).map(|_| ())
    }

    /// As [`Coordinator::keep_alive`]: what the holder compares its own clock with.
    ///
    /// # Errors
    /// As there.
    fn keep_alive_timed(&self, lease: Incarnation) -> Result<Option<ClockReading>, ClusterError> {
        match self.call_timed(&CoordinatorRequest::KeepAlive { lease })? {
            (Response::Alive, reading) => Ok(reading),
            (other, _) => Err(unexpected(other)),
        }
    }

    /// How long a lease will last if it is not renewed; none: it has ended.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    fn remaining_ns(&self, lease: Incarnation) -> Result<Option<u64>, ClusterError> {
        Ok(self.living_lease(lease)?.map(|living| living.remaining_ns))
    }

    /// How a lease stands; none: it has ended.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    fn living_lease(&self, lease: Incarnation) -> Result<Option<LivingLease>, ClusterError> {
        match self.call(&CoordinatorRequest::Remaining { lease })? {
            Response::Remaining(living) => Ok(living),
            other => Err(unexpected(other)),
        }
    }

    /// Ends a lease, and all that hangs on it. Its holder alone asks for that, once nobody goes by the lease
    /// any more: who reads its memory neither. Ending one that has ended is no error.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    fn end_lease(&self, lease: Incarnation) -> Result<(), ClusterError> {
        match self.call(&CoordinatorRequest::End { lease })? {
            Response::Ended => Ok(()),
            other => Err(unexpected(other)),
        }
    }
}

impl<C: Coordinator + ?Sized> Coordinator for std::sync::Arc<C> {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        (**self).call(request)
    }

    fn clock_ns(&self) -> Option<u64> {
        (**self).clock_ns()
    }

    fn call_timed(
        &self,
        request: &CoordinatorRequest,
    ) -> Result<(Response, Option<ClockReading>), ClusterError> {
        (**self).call_timed(request)
    }

    fn renewers(&self) -> Option<&Renewers> {
        (**self).renewers()
    }
}

/// Initialises an empty table, in one transaction with one winner, or checks the format of one that is there.
/// Returns the cluster's generation.
///
/// # Errors
/// [`ClusterError::Format`]: another version wrote it.
pub fn initialise(coordinator: &dyn Coordinator, generation: u32) -> Result<u32, ClusterError> {
    let first = Transaction::new()
        .when(KeyCondition::Absent { key: KEY_FORMAT.to_owned() })
        .put(KEY_FORMAT, ROW_FORMAT_VERSION.to_string())
        .put(KEY_GENERATION, generation.to_string());
    let mut attempts = Attempts::default();
    while attempts.left() {
        if let Some(entry) = coordinator.read(KEY_FORMAT)? {
            let found = parse("the table's format version", &entry.value)?;
            if found != ROW_FORMAT_VERSION {
                return Err(ClusterError::Format { found, known: ROW_FORMAT_VERSION });
            }
            return coordinator.generation();
        }
        match coordinator.transact(first.clone()) {
            Ok(_) => attempts.outrun(), // or it was this one: look
            Err(ClusterError::OutcomeUnknown(error)) => attempts.unanswered(&error),
            Err(error) => return Err(error),
        }
    }
    Err(attempts.given_up("the empty table"))
}

pub(crate) fn parse<'a, T: serde::Deserialize<'a>>(
    what: &'static str,
    text: &'a str,
) -> Result<T, ClusterError> {
    serde_json::from_str(text).map_err(|source| ClusterError::Unreadable { what, source })
}

/// The rows that read. The others are skipped: one of them is no reason to do nothing about all the rest.
pub(crate) fn readable<'a, T: serde::Deserialize<'a>>(
    what: &'static str,
    entries: &'a [KeyValue],
) -> impl Iterator<Item = T> {
    entries.iter().filter_map(move |entry| {
        let row = parse(what, &entry.value);
        if let Err(error) = &row {
            let why = with_causes(error);
            tracing::error!(key = entry.key, why, "a row of the coordinator does not read: it is skipped");
        }
        row.ok()
    })
}

pub(crate) fn text<T: serde::Serialize>(row: &T) -> String {
    serde_json::to_string(row).expect("rows are plain structures with text keys")
}

fn unexpected(response: Response) -> ClusterError {
    match response {
        Response::Refused(CoordinatorRefusal::LeaseEnded { lease }) => {
            ClusterError::LeaseEnded { lease: Incarnation(lease) }
        }
        Response::Refused(CoordinatorRefusal::LeaseIdsUsedUp) => ClusterError::IdsUsedUp { what: "leases" },
        Response::Refused(refusal) => ClusterError::Refused(refusal),
        _ => ClusterError::Answer,
    }
}
