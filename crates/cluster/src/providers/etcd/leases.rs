//! Leases as rows: granted, renewed and ended by transactions that are conditional on the row as it was seen.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cell_terms::Incarnation;
use cell_terms::mutant::{Mutant, planted};
use serde_json::Value;

use crate::coordinator::parse;
use crate::error::ClusterError;
use crate::etcd_error::EtcdError;
use crate::providers::etcd::ask::Asker;
use crate::providers::etcd::gateway::{self as gw, PATH_RANGE, PATH_TXN, RangeAnswer, StoredKey, TxnAnswer};
use crate::providers::etcd::keys::{LAYOUT, range_end, successor};
use crate::providers::etcd::lease_row::SeenLease;
use crate::providers::etcd::lease_watch::LeaseWatch;
use crate::providers::etcd::route::Repeats;
use crate::providers::ids::{random_generation, random_step};
use crate::request::{
    CoordinatorRefusal, Grant, LEASE_TTL_MS, LEASES_MAX, LivingLease, Quota, Response, Revision,
};

/// Tries of what others were faster with: all nodes of a cluster may ask for a lease at the same moment.
const TRIES_MAX: usize = 64;
/// Rows that hang on a lease, read and removed at a time: transactions of so many, in one.
const HANGING_AT_A_TIME: usize = 1_600;
const HANGING_A_GROUP: usize = 40;
/// An id is above the lowest that it may be by less than this part of the ids that its cluster has left, at
/// random: they last for some thirty million leases. A table that was restored from a backup does not give
/// those ids again that were given since.
const ID_STEP_PART: u64 = 1 << 20;

/// The leases that this process holds, and what it has seen of all.
#[derive(Default)]
pub(super) struct Leases {
    held: Mutex<BTreeMap<Incarnation, SeenLease>>,
    watch: Mutex<LeaseWatch>,
}

impl Leases {
    fn held(&self) -> MutexGuard<'_, BTreeMap<Incarnation, SeenLease>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) -> MutexGuard<'_, LeaseWatch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process holds the lease, as far as it knows.
    pub(super) fn holds(&self, lease: Incarnation) -> bool {
        self.held().contains_key(&lease)
    }

    /// How long to wait until all leases are looked at again, after a look that was answered or one that was
    /// not.
    pub(super) fn look_after_ns(&self, was_answered: bool) -> u64 {
        self.watch().look_after_ns(was_answered)
    }

    /// Grants a lease, whose id is larger than all before it. The first one is drawn at random, and does not
    /// follow from the cluster's generation: a table that was copied here has that of a coordinator which
    /// gave its own ids by it, and rows that name those.
    pub(super) fn grant(&self, asker: &Asker, ttl_ms: u64, until_ns: u64) -> Result<Response, ClusterError> {
        if !LEASE_TTL_MS.contains(&ttl_ms) {
            return Ok(Response::Refused(CoordinatorRefusal::LeaseTime { ttl_ms }));
        }
        let keys = &asker.keys;
        let counter = keys.lease_next();
        for _ in 0..TRIES_MAX {
            let look = vec![gw::get(&counter), gw::get_range(gw::count_of(keys.leases()))];
            let look = gw::txn(Vec::new(), look, Vec::new());
            let found: TxnAnswer = asker.ask(PATH_TXN, &look, Repeats::Reads, until_ns)?;
            if found.read(1)?.count >= LEASES_MAX as u64 {
                let refusal = CoordinatorRefusal::Quota { what: Quota::Leases, limit: LEASES_MAX };
                return Ok(Response::Refused(refusal));
            }
            let (id, unchanged) = match found.key(0)? {
                Some(stored) => {
                    let lowest = parse::<u64>("the next lease's id", &stored.value)?;
                    (draw_id(Incarnation(lowest))?, gw::is_of_revision(&counter, stored.mod_revision))
                }
                None => (Incarnation::first_of_cluster(random_generation()?), gw::is_absent(&counter)),
            };
            let next = id.0 + 1; // the last one of a cluster is not given
            let lease = SeenLease::new(id, ttl_ms);
            let key = keys.lease(lease.lease);
            let grant = gw::txn(
                vec![unchanged, gw::is_absent(&key)],
                vec![gw::put(&counter, &next.to_string()), gw::put(&key, &lease.value())],
                Vec::new(),
            );
            let granted: TxnAnswer = asker.ask(PATH_TXN, &grant, Repeats::Never, until_ns)?;
            if granted.succeeded {
                self.held().insert(lease.lease, lease.at(granted.header.revision));
                return Ok(Response::Granted(Grant { lease: lease.lease, ttl_ms }));
            }
        }
        Ok(Response::Refused(CoordinatorRefusal::Busy))
    }

    /// Renews a lease. That its row is there is not enough to rely on: only an answer that this very renewal
    /// was carried out is.
    pub(super) fn renew(
        &self,
        asker: &Asker,
        lease: Incarnation,
        until_ns: u64,
    ) -> Result<Response, ClusterError> {
        let key = asker.keys.lease(lease);
        let known = self.held().get(&lease).copied();
        let mut seen = match known {
            Some(seen) => seen,
            None => match self.find(asker, lease, until_ns)? {
                Some(seen) => seen,
                None => return Ok(ended(lease)),
            },
        };
        for _ in 0..TRIES_MAX {
            let renewed = seen.next();
            let compare = vec![gw::is_of_revision(&key, seen.revision)];
            let compare = if planted(Mutant::EndedLeaseRenewed) { Vec::new() } else { compare };
            let renew = gw::txn(compare, vec![gw::put(&key, &renewed.value())], vec![gw::get(&key)]);
            let answer = self.write(asker, &renew, until_ns)?;
            if answer.succeeded {
                self.held().insert(lease, renewed.at(answer.header.revision));
                return Ok(Response::Alive);
            }
            // A renewal before this one was carried out, and its answer lost: the row is as that left it.
            match answer.key(0)? {
                Some(stored) => {
                    let found = SeenLease::read(lease, stored)?;
                    // A row is written by ever later revisions: this one is of a backup.
                    if found.revision < seen.revision && !planted(Mutant::RestoredLeaseRenewed) {
                        return Err(asker.lose_history());
                    }
                    seen = found;
                }
                None => {
                    self.held().remove(&lease);
                    return Ok(ended(lease));
                }
            }
        }
        Ok(Response::Refused(CoordinatorRefusal::Busy))
    }

    /// Writes a lease's row, by what may be asked twice. Where etcd lets nobody write, nobody can renew.
    fn write(&self, asker: &Asker, question: &Value, until_ns: u64) -> Result<TxnAnswer, ClusterError> {
        let answer = asker.ask::<TxnAnswer>(PATH_TXN, question, Repeats::Harmless, until_ns);
        let is_shut = |error: &ClusterError| {
            use EtcdError::{Credentials, NoUser, Permission};
            let by_rights = matches!(error, ClusterError::Etcd(Permission { .. } | Credentials | NoUser));
            by_rights || matches!(error, ClusterError::Refused(_))
        };
        if answer.as_ref().is_err_and(is_shut) {
            self.watch().begin_anew();
        }
        answer
    }

    fn find(
        &self,
        asker: &Asker,
        lease: Incarnation,
        until_ns: u64,
    ) -> Result<Option<SeenLease>, ClusterError> {
        let question = gw::range_of_key(&asker.keys.lease(lease));
        let answer: RangeAnswer = asker.ask(PATH_RANGE, &question, Repeats::Reads, until_ns)?;
        answer.kvs.first().map(|stored| SeenLease::read(lease, stored)).transpose()
    }

    /// How a lease stands, as far as this process has seen.
    pub(super) fn remaining(
        &self,
        asker: &Asker,
        lease: Incarnation,
        until_ns: u64,
    ) -> Result<Response, ClusterError> {
        let found = self.find(asker, lease, until_ns)?;
        let now_ns = asker.clock.now_ns();
        let living = found.map(|found| LivingLease {
            remaining_ns: self.watch().remaining_ns(&found, now_ns),
            renewals: found.count,
        });
        Ok(Response::Remaining(living))
    }

    /// Looks at all leases, and ends those that nobody has renewed for their whole length.
    pub(super) fn look(&self, asker: &Asker) -> Result<(), ClusterError> {
        let until_ns = asker.deadline_from_now();
        let leases = asker.keys.leases();
        let all = gw::range(leases.as_bytes(), &range_end(leases.as_bytes()), None);
        let asked_ns = asker.clock.now_ns();
        let answer: RangeAnswer = asker.ask(PATH_RANGE, &all, Repeats::Reads, until_ns)?;
        let answered_ns = asker.clock.now_ns();
        let seen = answer.kvs.iter().filter_map(|stored| {
            let lease = asker.keys.lease_of(&stored.key)?;
            let seen = SeenLease::read(lease, stored);
            if seen.is_err() {
                tracing::error!(%lease, "a lease in etcd does not read: it is never ended");
            }
            seen.ok()
        });
        let seen: Vec<SeenLease> = seen.collect();
        let over = self.watch().observe(asked_ns, answered_ns, &seen);
        let mut all_ended = Ok(());
        for lease in over {
            match self.end(asker, lease.lease, Some(lease.revision), asker.deadline_from_now()) {
                Ok(true) => tracing::info!(lease = %lease.lease, "a lease was not renewed and has ended"),
                Ok(false) => {}
                // Each of the others would take as long.
                Err(error) if error.is_unanswered() => return Err(error),
                // One that cannot be ended is no reason to keep the others.
                Err(error) => all_ended = all_ended.and(Err(error)),
            }
        }
        all_ended
    }

    /// Ends a lease, and all that hangs on it, in one transaction; only as it was seen at this revision, if
    /// one is given. Whether it has ended.
    pub(super) fn end(
        &self,
        asker: &Asker,
        lease: Incarnation,
        as_seen: Option<Revision>,
        until_ns: u64,
    ) -> Result<bool, ClusterError> {
        let (keys, key) = (&asker.keys, asker.keys.lease(lease));
        let prefix = keys.hanging_on(lease);
        let all = gw::range(prefix.as_bytes(), &range_end(prefix.as_bytes()), Some(HANGING_AT_A_TIME));
        for _ in 0..TRIES_MAX {
            let look = gw::txn(Vec::new(), vec![gw::get(&key), gw::get_range(all.clone())], Vec::new());
            let found: TxnAnswer = asker.ask(PATH_TXN, &look, Repeats::Reads, until_ns)?;
            let (stored, hanging) = (found.key(0)?, found.read(1)?);
            if stored.is_none() && hanging.kvs.is_empty() {
                self.held().remove(&lease);
                return Ok(true);
            }
            let revision = stored.map(|stored| stored.mod_revision);
            if as_seen.is_some_and(|seen| revision.is_some_and(|revision| revision != seen)) {
                return Ok(false); // it was renewed
            }
            let unchanged = match revision {
                Some(_) if planted(Mutant::RenewedLeaseEnded) => gw::is_there(&key),
                Some(revision) => gw::is_of_revision(&key, revision),
                None => gw::is_absent(&key), // more hung on it than one transaction takes
            };
            let none_since = gw::none_written_after(&prefix, found.header.revision);
            let remove = self.removals(asker, lease, &key, &hanging.kvs);
            let end = gw::txn(vec![unchanged, none_since], remove, Vec::new());
            // A second time it finds no row.
            self.write(asker, &end, until_ns)?;
        }
        Err(ClusterError::Contended { what: "a lease that is to end" })
    }

    /// A row hangs on a lease if nobody has written it since the key was written that says so.
    fn removals(&self, asker: &Asker, lease: Incarnation, key: &str, hanging: &[StoredKey]) -> Vec<Value> {
        let (keys, prefix) = (&asker.keys, asker.keys.hanging_on(lease));
        let mut rows = Vec::new();
        for stored in hanging {
            let Some(row) = stored.key.strip_prefix(&*prefix) else { continue };
            let row = keys.row(row);
            let hangs = gw::is_of_revision(&row, stored.mod_revision);
            rows.push(gw::nested(vec![hangs], vec![gw::delete(&row)]));
        }
        let mut remove = vec![gw::delete(key)];
        if let (Some(first), Some(last)) = (hanging.first(), hanging.last()) {
            remove.push(gw::delete_range(first.key.as_bytes(), &successor(&last.key)));
        }
        remove.extend(rows.chunks(HANGING_A_GROUP).map(|group| gw::nested(Vec::new(), group.to_vec())));
        remove.push(gw::put(keys.head(), LAYOUT));
        remove
    }
}

fn ended(lease: Incarnation) -> Response {
    Response::Refused(CoordinatorRefusal::LeaseEnded { lease: lease.0 })
}

/// An id of the same cluster, this one or later, and not the cluster's last one: clients take nodes whose
/// incarnations name two clusters for those of two.
fn draw_id(lowest: Incarnation) -> Result<Incarnation, ClusterError> {
    if lowest.left_in_cluster() == 0 {
        return Err(ClusterError::IdsUsedUp { what: "leases" });
    }
    Ok(Incarnation(lowest.0 + random_step(lowest, ID_STEP_PART)?))
}
