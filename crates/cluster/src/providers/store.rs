//! An etcd-shaped store as a pure state machine: no clock, no threads, no files.
//!
//! A change goes in two steps, so that nobody sees what is not durable: [`CoordinatorStore::prepare`]
//! computes the answer and a [`Delta`] without changing anything, the provider makes the delta durable,
//! [`CoordinatorStore::commit`] applies it. Time is passed in. After a restart every lease counts as just
//! granted ([`CoordinatorStore::restore`]): its holder may have renewed it a moment before the restart, and
//! renewals are not written down.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use cell_terms::Incarnation;
use cell_terms::mutant::{Mutant, planted};
use serde::{Deserialize, Serialize};

use crate::providers::ticks::Gap;
use crate::providers::usage::Usage;
use crate::renewers::Waits;
use crate::request::{
    ChangesPage, CoordinatorRefusal, CoordinatorRequest, Grant, KeyChange, KeyCondition, KeyOperation,
    KeyPage, KeyValue, LEASE_TTL_MS, LEASES_MAX, LivingLease, PAGE_BYTES, PAGE_KEYS_MAX, Quota, Response,
    Revision, TRANSACTION_BYTES_MAX, Transaction, TransactionOutcome, VALUE_BYTES_MAX,
};

/// The format of a stored store. Another version is refused.
pub const STORE_FORMAT_VERSION: u32 = 2;

/// Changes kept for watchers; who is further behind lists again.
const CHANGES_MAX: usize = 4096;
/// A gap of more than this part of a lease's length was long for it: its holder renews as often.
const GAP_PARTS: u64 = 5;
/// A renewal that waited for a processor for such a part of the lease was held up.
const WAITED_PARTS: u64 = 2;
/// A lease whose holder waits at that moment is kept for such a part: until it is looked at again.
const MOMENT_PARTS: u64 = 10;
/// A lease is kept for so many such parts, four of its lengths, without a renewal between. Its holder may be
/// dead, or stand still.
const KEPT_PARTS_MAX: u64 = 4 * MOMENT_PARTS;

/// The store's own numbers, written with every delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreMeta {
    /// [`STORE_FORMAT_VERSION`].
    pub format: u32,
    /// The revision of the last transaction that changed something.
    pub revision: Revision,
    /// Random, drawn when the store was first created: the ids of leases and sessions begin with it.
    pub generation: u32,
    /// The next lease's id.
    pub lease_next: u64,
}

/// What a store is restored from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreImage {
    /// Its numbers.
    pub meta: StoreMeta,
    /// Its keys, in any order.
    pub keys: Vec<KeyValue>,
    /// Its leases, with their times to live in nanoseconds.
    pub leases: Vec<(Incarnation, u64)>,
}

/// A change of the store that is not applied yet. All of it becomes durable at once, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The store's numbers afterwards.
    pub meta: StoreMeta,
    /// Keys written.
    pub written: Vec<KeyValue>,
    /// Keys removed.
    pub removed: Vec<String>,
    /// Leases granted, with their times to live in nanoseconds.
    pub granted: Vec<(Incarnation, u64)>,
    /// Leases ended.
    pub ended: Vec<Incarnation>,
    /// When leases end that were granted or renewed; needs no storage.
    ends: Vec<(Incarnation, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    ttl_ns: u64,
    ends_ns: u64,
    /// Until when it is kept if it is over before that: a renewal may have been held up.
    kept_until_ns: u64,
    /// For how many parts of its length it was kept since its last renewal.
    kept_parts: u64,
    /// Its end was decided: that may be on stable storage.
    is_ending: bool,
    /// Counted since the store was restored.
    renewals: u64,
}

/// The state machine.
#[derive(Clone, Debug)]
pub struct CoordinatorStore {
    meta: StoreMeta,
    keys: BTreeMap<String, KeyValue>,
    usage: Usage,
    leases: BTreeMap<Incarnation, Lease>,
    changes: VecDeque<KeyChange>,
    /// Changes of revisions above this are kept.
    compacted: Revision,
}

/// Rows that are written at a time when a store is written anew: no more than a large transaction has.
const ROWS_AT_A_TIME: usize = TRANSACTION_BYTES_MAX / VALUE_BYTES_MAX;

impl Lease {
    fn new(ttl_ns: u64, ends_ns: u64) -> Lease {
        Lease { ttl_ns, ends_ns, kept_until_ns: 0, kept_parts: 0, is_ending: false, renewals: 0 }
    }

    fn renew(&mut self, until_ns: u64) {
        self.ends_ns = self.ends_ns.max(until_ns);
        (self.kept_until_ns, self.kept_parts) = (0, 0);
        self.renewals += 1;
    }

    fn living(&self, now_ns: u64) -> LivingLease {
        LivingLease { remaining_ns: self.ends_ns.saturating_sub(now_ns), renewals: self.renewals }
    }

    /// What held up its renewals ended then: it has its whole length from there on, if it is over before.
    fn keep_from(&mut self, from_ns: u64) {
        self.keep_until(from_ns.saturating_add(self.ttl_ns));
    }

    fn keep_until(&mut self, until_ns: u64) {
        self.kept_until_ns = self.kept_until_ns.max(until_ns);
    }

    fn may_be_kept(&self) -> bool {
        self.kept_parts < KEPT_PARTS_MAX || planted(Mutant::KeptForEver)
    }

    /// When it is over if nothing more happens.
    fn lasts_until_ns(&self) -> u64 {
        if self.may_be_kept() { self.ends_ns.max(self.kept_until_ns) } else { self.ends_ns }
    }

    /// Its time is up: keeps it on, if it may be.
    fn keep(&mut self, now_ns: u64) {
        let until_ns = self.lasts_until_ns();
        if until_ns > now_ns {
            let part_ns = (self.ttl_ns / MOMENT_PARTS).max(1);
            self.kept_parts = self.kept_parts.saturating_add((until_ns - now_ns).div_ceil(part_ns));
            self.ends_ns = until_ns;
        }
    }

    /// Whether its time is up and its end is not decided.
    fn is_over(&self, now_ns: u64) -> bool {
        self.ends_ns <= now_ns && (!self.is_ending || planted(Mutant::GapRevives))
    }
}

impl StoreImage {
    /// The changes that make this of nothing, none of them larger than a transaction.
    pub(crate) fn into_deltas(self) -> Vec<Delta> {
        let of = |written: Vec<KeyValue>, granted| Delta {
            meta: self.meta,
            written,
            removed: Vec::new(),
            granted,
            ended: Vec::new(),
            ends: Vec::new(),
        };
        let mut deltas = vec![of(Vec::new(), self.leases)];
        deltas.extend(self.keys.chunks(ROWS_AT_A_TIME).map(|rows| of(rows.to_vec(), Vec::new())));
        deltas
    }
}

impl CoordinatorStore {
    /// An empty store. `generation` is random, so that ids of a store that was lost are not given out again.
    #[must_use]
    pub fn new(generation: u32) -> CoordinatorStore {
        let lease_next = Incarnation::first_of_generation(generation).0;
        let meta = StoreMeta { format: STORE_FORMAT_VERSION, revision: 0, generation, lease_next };
        CoordinatorStore::restore(StoreImage { meta, keys: Vec::new(), leases: Vec::new() }, 0)
    }

    /// A store as it was stored, all leases just granted.
    #[must_use]
    pub fn restore(image: StoreImage, now_ns: u64) -> CoordinatorStore {
        let leases = image.leases.into_iter();
        let leases = leases.map(|(id, ttl_ns)| (id, Lease::new(ttl_ns, now_ns.saturating_add(ttl_ns))));
        CoordinatorStore {
            meta: image.meta,
            usage: Usage::of(&image.keys),
            keys: image.keys.into_iter().map(|entry| (entry.key.clone(), entry)).collect(),
            leases: leases.collect(),
            changes: VecDeque::new(),
            compacted: image.meta.revision,
        }
    }

    /// Everything that has to outlive a restart.
    #[must_use]
    pub fn image(&self) -> StoreImage {
        StoreImage {
            meta: self.meta,
            keys: self.keys.values().cloned().collect(),
            leases: self.leases.iter().map(|(id, lease)| (*id, lease.ttl_ns)).collect(),
        }
    }

    /// The store's numbers.
    #[must_use]
    pub fn meta(&self) -> StoreMeta {
        self.meta
    }

    /// Leases alive.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.leases.len()
    }

    /// The answer to a request and what it changes. Expiry comes first: see
    /// [`CoordinatorStore::prepare_expiry`].
    #[must_use]
    pub fn prepare(&self, request: &CoordinatorRequest, now_ns: u64) -> (Response, Delta) {
        let mut delta = self.nothing();
        let answer = match request {
            CoordinatorRequest::Transact(transaction) => {
                self.transact(transaction, &mut delta).map(Response::Transacted)
            }
            CoordinatorRequest::Read { key } => Ok(Response::Value(self.keys.get(key).cloned())),
            CoordinatorRequest::List { prefix, after } => {
                Ok(Response::Page(self.list(prefix, after.as_deref())))
            }
            CoordinatorRequest::ChangesSince { revision } => self.changes_since(*revision),
            CoordinatorRequest::Grant { ttl_ms } => self.grant(*ttl_ms, now_ns, &mut delta),
            CoordinatorRequest::KeepAlive { lease } => self.keep_alive(*lease, now_ns, &mut delta),
            CoordinatorRequest::Remaining { lease } => {
                Ok(Response::Remaining(self.leases.get(lease).map(|found| found.living(now_ns))))
            }
            CoordinatorRequest::End { lease } => {
                delta = self.without(self.leases.contains_key(lease).then_some(*lease));
                Ok(Response::Ended)
            }
        };
        match answer {
            Ok(response) => (response, delta),
            Err(refusal) => (Response::Refused(refusal), self.nothing()),
        }
    }

    /// Renews a lease that has not run out, which needs no storage. False if it has, or there is none.
    pub fn renew(&mut self, lease: Incarnation, now_ns: u64) -> bool {
        let Some(found) = self.leases.get_mut(&lease).filter(|found| found.ends_ns > now_ns) else {
            return false;
        };
        found.renew(now_ns.saturating_add(found.ttl_ns));
        true
    }

    /// A lease that has not run out; none: it has, or there is none.
    #[must_use]
    pub(crate) fn living_lease(&self, lease: Incarnation, now_ns: u64) -> Option<LivingLease> {
        let lease = self.leases.get(&lease).filter(|found| found.ends_ns > now_ns)?;
        Some(lease.living(now_ns))
    }

    /// The process that hosts the store did nothing for a while: each lease for which that was long is kept,
    /// because its holder may have asked for its renewal all the time. One that was over before stays over.
    pub(crate) fn stood_still(&mut self, gap: Gap) {
        if planted(Mutant::GapUnnoticed) {
            return;
        }
        for lease in self.leases.values_mut() {
            let held = lease.lasts_until_ns() > gap.began_ns || planted(Mutant::GapRevives);
            if held && gap.lasted_ns > lease.ttl_ns / GAP_PARTS {
                lease.keep_from(gap.ended_ns);
            }
        }
    }

    /// Leases whose time is up and whose end is not decided.
    pub(crate) fn over(&self, now_ns: u64) -> Vec<Incarnation> {
        self.leases.iter().filter(|(_, lease)| lease.is_over(now_ns)).map(|(id, _)| *id).collect()
    }

    /// What the threads that renew a lease have waited for: if that was long for it, it is kept. While its
    /// holder waits, it is kept for a moment, after which that is looked at again: one that is cut off may
    /// wait just when it is looked at, and then sleeps.
    pub(crate) fn starved(&mut self, lease: Incarnation, waits: Waits, now_ns: u64) {
        let Some(lease) = self.leases.get_mut(&lease) else { return };
        if waits.lasted_ns > lease.ttl_ns / WAITED_PARTS {
            lease.keep_from(now_ns);
        } else if waits.goes_on {
            lease.keep_until(now_ns.saturating_add(lease.ttl_ns / MOMENT_PARTS));
        }
    }

    /// Keeps the leases whose time is up and whose renewals were held up, for four of their lengths at most:
    /// then they end, whatever held them up. Returns those that were not kept before since their renewal.
    /// Comes before [`CoordinatorStore::prepare_expiry`].
    pub(crate) fn keep(&mut self, now_ns: u64) -> Vec<Incarnation> {
        let mut kept = Vec::new();
        for (id, lease) in self.leases.iter_mut().filter(|(_, lease)| lease.is_over(now_ns)) {
            let before = lease.kept_parts;
            lease.keep(now_ns);
            kept.extend((before == 0 && lease.kept_parts > 0).then_some(*id));
        }
        kept
    }

    /// [`CoordinatorStore::prepare_expiry`] of a provider that may not learn what became of the change: from
    /// now on nothing keeps those leases.
    pub(crate) fn begin_expiry(&mut self, now_ns: u64) -> Delta {
        let expiry = self.prepare_expiry(now_ns);
        for id in &expiry.ended {
            if let Some(lease) = self.leases.get_mut(id) {
                lease.is_ending = true;
            }
        }
        expiry
    }

    /// What the passing of time changes: leases end, and their keys go in the same revision. A provider asks
    /// before each request.
    #[must_use]
    pub fn prepare_expiry(&self, now_ns: u64) -> Delta {
        let over = self.leases.iter().filter(|(_, lease)| lease.ends_ns <= now_ns);
        self.without(over.map(|(id, _)| *id))
    }

    fn without(&self, leases: impl IntoIterator<Item = Incarnation>) -> Delta {
        let mut delta = Delta { ended: leases.into_iter().collect(), ..self.nothing() };
        if !delta.ended.is_empty() {
            let hanging =
                self.keys.values().filter(|entry| entry.lease.is_some_and(|id| delta.ended.contains(&id)));
            delta.removed = hanging.map(|entry| entry.key.clone()).collect();
            if !delta.removed.is_empty() {
                delta.meta.revision += 1;
            }
        }
        delta
    }

    /// Applies a delta that was computed from this very state and has become durable.
    ///
    /// # Panics
    /// If the delta is older than the state: a provider let another change in between.
    pub fn commit(&mut self, delta: Delta) {
        assert!(
            delta.meta.revision >= self.meta.revision && delta.meta.lease_next >= self.meta.lease_next,
            "a delta is applied to the state that it was computed from"
        );
        let revision = delta.meta.revision;
        self.meta = delta.meta;
        self.leases.extend(delta.granted.into_iter().map(|(id, ttl_ns)| (id, Lease::new(ttl_ns, 0))));
        for (id, ends_ns) in delta.ends {
            if let Some(lease) = self.leases.get_mut(&id) {
                lease.renew(ends_ns);
            }
        }
        for id in delta.ended {
            self.leases.remove(&id);
        }
        for key in delta.removed {
            if let Some(old) = self.keys.remove(&key) {
                self.usage.replaced(Some(&old), None);
                self.changes.push_back(KeyChange { revision, key, value: None });
            }
        }
        for entry in delta.written {
            self.changes.push_back(KeyChange {
                revision,
                key: entry.key.clone(),
                value: Some(entry.clone()),
            });
            self.usage.replaced(self.keys.get(&entry.key), Some(&entry));
            self.keys.insert(entry.key.clone(), entry);
        }
        self.forget_old_changes();
    }

    /// [`CoordinatorStore::prepare_expiry`] and [`CoordinatorStore::prepare`], each made durable by `persist`
    /// before it counts.
    ///
    /// # Errors
    /// What `persist` returned; the change it was given is not applied, and the provider must stop: it cannot
    /// know what is on stable storage.
    pub fn serve<E>(
        &mut self,
        request: &CoordinatorRequest,
        now_ns: u64,
        mut persist: impl FnMut(&Delta) -> Result<(), E>,
    ) -> Result<Response, E> {
        self.keep(now_ns);
        let expiry = self.prepare_expiry(now_ns);
        if expiry.needs_storage() {
            persist(&expiry)?;
            self.commit(expiry);
        }
        let (response, delta) = self.prepare(request, now_ns);
        if delta.needs_storage() {
            persist(&delta)?;
        }
        self.commit(delta);
        Ok(response)
    }

    fn nothing(&self) -> Delta {
        Delta {
            meta: self.meta,
            written: Vec::new(),
            removed: Vec::new(),
            granted: Vec::new(),
            ended: Vec::new(),
            ends: Vec::new(),
        }
    }

    fn transact(
        &self,
        transaction: &Transaction,
        delta: &mut Delta,
    ) -> Result<TransactionOutcome, CoordinatorRefusal> {
        transaction.check_sizes()?;
        let failed = transaction.conditions.iter().position(|condition| !self.holds(condition));
        if let Some(condition) = failed {
            return Ok(TransactionOutcome::Refused { condition });
        }
        let revision = self.meta.revision + 1;
        let mut seen = BTreeSet::new();
        for (at, operation) in transaction.operations.iter().enumerate() {
            if !seen.insert(operation.key()) {
                return Err(CoordinatorRefusal::KeyTwice { operation: at });
            }
            match operation {
                KeyOperation::Put { key, value, lease } => {
                    if let Some(id) = lease.filter(|id| !self.leases.contains_key(id)) {
                        return Err(CoordinatorRefusal::LeaseEnded { lease: id.0 });
                    }
                    delta.written.push(KeyValue {
                        key: key.clone(),
                        value: value.clone(),
                        revision_created: self.keys.get(key).map_or(revision, |old| old.revision_created),
                        revision,
                        lease: *lease,
                    });
                }
                KeyOperation::Delete { key } if self.keys.contains_key(key) => {
                    delta.removed.push(key.clone())
                }
                KeyOperation::Delete { .. } => {}
            }
        }
        let written = delta.written.iter().map(|entry| (self.keys.get(&entry.key), Some(entry)));
        self.usage.admit(written.chain(delta.removed.iter().map(|key| (self.keys.get(key), None))))?;
        if !delta.written.is_empty() || !delta.removed.is_empty() {
            delta.meta.revision = revision;
        }
        Ok(TransactionOutcome::Applied { revision: delta.meta.revision })
    }

    fn holds(&self, condition: &KeyCondition) -> bool {
        match condition {
            KeyCondition::Absent { key } => !self.keys.contains_key(key),
            KeyCondition::Revision { key, revision } => {
                self.keys.get(key).is_some_and(|entry| entry.revision == *revision)
            }
            KeyCondition::Value { key, value } => {
                self.keys.get(key).is_some_and(|entry| entry.value == *value)
            }
            KeyCondition::LeaseAlive { lease } => self.leases.contains_key(lease),
            KeyCondition::LeaseEnded { lease } => !self.leases.contains_key(lease),
        }
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> KeyPage {
        let from = match after {
            Some(key) if key >= prefix => Bound::Excluded(key),
            _ => Bound::Included(prefix),
        };
        let mut matching = self
            .keys
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(_, entry)| entry);
        let mut bytes = 0;
        let mut entries = Vec::new();
        for entry in matching.by_ref().take(PAGE_KEYS_MAX) {
            bytes += entry.key.len() + entry.value.len();
            entries.push(entry.clone());
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        let more = matching.next().is_some();
        KeyPage { revision: self.meta.revision, entries, more }
    }

    fn changes_since(&self, revision: Revision) -> Result<Response, CoordinatorRefusal> {
        if revision < self.compacted {
            return Err(CoordinatorRefusal::Compacted { oldest: self.compacted });
        }
        let from = self.changes.partition_point(|change| change.revision <= revision);
        let mut changes: Vec<KeyChange> = Vec::new();
        let mut page = ChangesPage::default();
        for change in self.changes.range(from..) {
            let revision_begins = changes.last().is_none_or(|last| last.revision != change.revision);
            if revision_begins && page.is_full() {
                let complete = changes.last().map_or(revision, |last| last.revision);
                return Ok(Response::Changes { revision: complete, changes });
            }
            page.add(change);
            changes.push(change.clone());
        }
        Ok(Response::Changes { revision: self.meta.revision.max(revision), changes })
    }

    fn grant(&self, ttl_ms: u64, now_ns: u64, delta: &mut Delta) -> Result<Response, CoordinatorRefusal> {
        if !LEASE_TTL_MS.contains(&ttl_ms) {
            return Err(CoordinatorRefusal::LeaseTime { ttl_ms });
        }
        if self.leases.len() >= LEASES_MAX {
            return Err(CoordinatorRefusal::Quota { what: Quota::Leases, limit: LEASES_MAX });
        }
        let lease = Incarnation(self.meta.lease_next);
        // The last one is not given: clients take nodes with incarnations of two clusters for nodes of two.
        if lease.left_in_cluster() == 0 {
            return Err(CoordinatorRefusal::LeaseIdsUsedUp);
        }
        let ttl_ns = ttl_ms * 1_000_000;
        delta.meta.lease_next += 1;
        delta.granted.push((lease, ttl_ns));
        delta.ends.push((lease, now_ns.saturating_add(ttl_ns)));
        Ok(Response::Granted(Grant { lease, ttl_ms }))
    }

    fn keep_alive(
        &self,
        lease: Incarnation,
        now_ns: u64,
        delta: &mut Delta,
    ) -> Result<Response, CoordinatorRefusal> {
        let found = self.leases.get(&lease).ok_or(CoordinatorRefusal::LeaseEnded { lease: lease.0 })?;
        delta.ends.push((lease, now_ns.saturating_add(found.ttl_ns)));
        Ok(Response::Alive)
    }

    /// Drops whole revisions only: a watcher sees all of a transaction or knows that it missed it.
    fn forget_old_changes(&mut self) {
        while self.changes.len() > CHANGES_MAX {
            let Some(oldest) = self.changes.pop_front() else { return };
            self.compacted = oldest.revision;
            while self.changes.front().is_some_and(|next| next.revision == oldest.revision) {
                self.changes.pop_front();
            }
        }
    }
}

impl Delta {
    /// Whether anything has to be written down before this counts.
    #[must_use]
    pub fn needs_storage(&self) -> bool {
        !(self.written.is_empty()
            && self.removed.is_empty()
            && self.granted.is_empty()
            && self.ended.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{KIND_BYTES_MAX, KIND_ROWS_MAX, KINDS_MAX};

    const SECOND: u64 = 1_000_000_000;

    fn serve(store: &mut CoordinatorStore, request: CoordinatorRequest, now_ns: u64) -> Response {
        store.serve(&request, now_ns, |_| Ok::<(), ()>(())).unwrap()
    }

    fn transact(store: &mut CoordinatorStore, transaction: Transaction, now_ns: u64) -> TransactionOutcome {
        match serve(store, CoordinatorRequest::Transact(transaction), now_ns) {
            Response::Transacted(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn grant(store: &mut CoordinatorStore, ttl_ms: u64, now_ns: u64) -> Incarnation {
        match serve(store, CoordinatorRequest::Grant { ttl_ms }, now_ns) {
            Response::Granted(grant) => grant.lease,
            other => panic!("{other:?}"),
        }
    }

    fn changes(store: &mut CoordinatorStore, revision: Revision) -> (Revision, Vec<KeyChange>) {
        match serve(store, CoordinatorRequest::ChangesSince { revision }, 0) {
            Response::Changes { revision, changes } => (revision, changes),
            other => panic!("{other:?}"),
        }
    }

    fn remaining_ns(store: &mut CoordinatorStore, lease: Incarnation, now_ns: u64) -> Option<u64> {
        match serve(store, CoordinatorRequest::Remaining { lease }, now_ns) {
            Response::Remaining(living) => living.map(|living| living.remaining_ns),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn transact_failed_condition_changes_nothing() {
        let mut store = CoordinatorStore::new(7);
        transact(&mut store, Transaction::new().put("a", "1"), 0);
        let before = store.image();
        let tried = Transaction::new()
            .when(KeyCondition::Value { key: "a".into(), value: "1".into() })
            .when(KeyCondition::Absent { key: "a".into() })
            .put("b", "2")
            .delete("a");
        assert_eq!(transact(&mut store, tried, 0), TransactionOutcome::Refused { condition: 1 });
        assert_eq!(store.image(), before);
    }

    #[test]
    fn expiry_keys_of_the_lease_go_in_one_revision() {
        let mut store = CoordinatorStore::new(7);
        let lease = grant(&mut store, 1000, 0);
        transact(&mut store, Transaction::new().put_leased("m/1", "", lease).put_leased("m/2", "", lease), 0);
        transact(&mut store, Transaction::new().put("stays", ""), 0);
        assert_eq!(serve(&mut store, CoordinatorRequest::KeepAlive { lease }, SECOND / 2), Response::Alive);
        assert_eq!(remaining_ns(&mut store, lease, SECOND), Some(SECOND / 2));
        assert_eq!(remaining_ns(&mut store, lease, 3 * SECOND / 2), None);
        let (_, seen) = changes(&mut store, 2);
        let seen: Vec<_> = seen.iter().map(|c| (c.revision, c.key.as_str(), c.value.is_none())).collect();
        assert_eq!(seen, [(3, "m/1", true), (3, "m/2", true)]);
        let refused = serve(&mut store, CoordinatorRequest::KeepAlive { lease }, 3 * SECOND / 2);
        assert_eq!(refused, Response::Refused(CoordinatorRefusal::LeaseEnded { lease: lease.0 }));
    }

    #[test]
    fn restore_leases_count_as_just_granted_and_ids_are_not_reused() {
        let mut store = CoordinatorStore::new(7);
        let lease = grant(&mut store, 1000, 0);
        let mut again = CoordinatorStore::restore(store.image(), 900 * SECOND);
        assert_eq!(remaining_ns(&mut again, lease, 900 * SECOND), Some(SECOND));
        assert!(grant(&mut again, 1000, 900 * SECOND) > lease);
        assert_eq!(lease.0 >> 32, 7);
    }

    /// A generation whose lower eight bits were set left ids for some 8,000 starts. Those after them looked
    /// to clients as if another cluster had given them.
    #[test]
    fn grant_gives_ids_of_one_cluster_until_they_are_used_up() {
        for generation in [7, 0xff, 0x7fff_ffff] {
            let mut store = CoordinatorStore::new(generation);
            let first = grant(&mut store, 1000, 0);
            assert_eq!(first.cluster(), u64::from(generation >> 8));
            assert!(first.left_in_cluster() >= (1 << 39) - 1, "{first}");
            let mut image = store.image();
            image.meta.lease_next = first.0 + first.left_in_cluster() - 1;
            let mut store = CoordinatorStore::restore(image, 0);
            assert_eq!(grant(&mut store, 1000, 0).cluster(), first.cluster());
            let refused = serve(&mut store, CoordinatorRequest::Grant { ttl_ms: 1000 }, 0);
            assert_eq!(refused, Response::Refused(CoordinatorRefusal::LeaseIdsUsedUp));
        }
    }

    #[test]
    fn stood_still_for_long_gives_leases_their_whole_length_anew() {
        let mut store = CoordinatorStore::new(7);
        let (short, long) = (grant(&mut store, 500, 0), grant(&mut store, 60_000, 0));
        let gap = |began_ns, ended_ns| Gap { lasted_ns: ended_ns - began_ns, began_ns, ended_ns };
        store.stood_still(gap(SECOND / 3, 2 * SECOND));
        let now_ns = 2 * SECOND;
        assert_eq!(remaining_ns(&mut store, short, now_ns), Some(SECOND / 2));
        assert_eq!(remaining_ns(&mut store, long, now_ns), Some(58 * SECOND), "that is not long for it");
        store.stood_still(gap(12 * SECOND / 5, 5 * SECOND / 2));
        assert_eq!(remaining_ns(&mut store, short, 5 * SECOND / 2), None, "a fifth is no gap");
    }

    /// By how long it lasts it cannot be distinguished from one that is renewed.
    #[test]
    fn lease_that_is_kept_is_not_counted_as_renewed() {
        let mut store = CoordinatorStore::new(7);
        let lease = grant(&mut store, 500, 0);
        let granted = store.living_lease(lease, 0).unwrap().renewals;
        store.stood_still(Gap { lasted_ns: SECOND, began_ns: SECOND / 4, ended_ns: SECOND });
        assert_eq!(store.keep(SECOND), [lease]);
        assert_eq!(store.living_lease(lease, SECOND).unwrap().renewals, granted);
        assert!(store.renew(lease, SECOND));
        assert_eq!(store.living_lease(lease, SECOND).unwrap().renewals, granted + 1);
    }

    #[test]
    fn stood_still_brings_no_lease_back_that_was_over_before() {
        let mut store = CoordinatorStore::new(7);
        let lease = grant(&mut store, 500, 0);
        let over = store.prepare_expiry(SECOND / 2);
        assert_eq!(over.ended, [lease], "decided, and on its way to the disk");
        store.stood_still(Gap { lasted_ns: SECOND, began_ns: SECOND / 2, ended_ns: 3 * SECOND / 2 });
        assert!(!store.renew(lease, 3 * SECOND / 2));
        assert_eq!(store.prepare_expiry(3 * SECOND / 2).ended, [lease]);
    }

    /// In which step of this length after its renewal a lease ends, while its holder waits so.
    fn steps_lived(
        mut store: CoordinatorStore,
        (lease, renewed_ns): (Incarnation, u64),
        waits: Waits,
        step_ns: u64,
    ) -> u64 {
        let ends = |step: &u64| {
            let now_ns = renewed_ns + step * step_ns;
            store.starved(lease, waits, now_ns);
            store.keep(now_ns);
            store.begin_expiry(now_ns).ended == [lease]
        };
        (1..100).find(ends).expect("it ends at last, whatever its holder waits for")
    }

    #[test]
    fn keep_of_a_lease_whose_holder_waits_is_for_four_lengths_and_anew_once_it_was_renewed() {
        let mut store = CoordinatorStore::new(7);
        let (length_ns, moment_ns) = (SECOND / 2, SECOND / 20);
        let lease = grant(&mut store, 500, 0);
        let lasted = |lasted_ns| Waits { lasted_ns, goes_on: false };
        let goes_on = Waits { lasted_ns: 0, goes_on: true };
        assert_eq!(steps_lived(store.clone(), (lease, 0), lasted(length_ns / 2), length_ns), 1);
        assert_eq!(steps_lived(store.clone(), (lease, 0), lasted(length_ns / 2 + 1), length_ns), 5);
        assert_eq!(steps_lived(store.clone(), (lease, 0), goes_on, moment_ns), 50);
        for length in 1..5 {
            let now_ns = length * length_ns;
            store.starved(lease, lasted(length_ns), now_ns);
            let news: &[Incarnation] = if length == 1 { &[lease] } else { &[] };
            assert_eq!(store.keep(now_ns), news);
            assert!(store.begin_expiry(now_ns).ended.is_empty());
        }
        let renewed_ns = 5 * length_ns - 1;
        assert!(store.renew(lease, renewed_ns));
        assert_eq!(steps_lived(store, (lease, renewed_ns), goes_on, moment_ns), 50);
    }

    /// The process that hosts the store stood still for sixty of a lease's lengths.
    #[test]
    fn stood_still_for_long_keeps_each_lease_for_its_length() {
        let mut store = CoordinatorStore::new(7);
        let lease = grant(&mut store, 500, 0);
        let ended_ns = 30 * SECOND;
        store.stood_still(Gap { lasted_ns: ended_ns, began_ns: 0, ended_ns });
        assert_eq!(store.keep(ended_ns), [lease]);
        assert!(store.begin_expiry(ended_ns + SECOND / 2 - 1).ended.is_empty());
        assert_eq!(store.begin_expiry(ended_ns + SECOND / 2).ended, [lease]);
    }

    /// A holder that is cut off tries again and again. On a busy machine it may wait for a processor just
    /// when it is looked at, and is none that was held up.
    #[test]
    fn keep_of_a_lease_whose_holder_waits_at_that_moment_is_until_it_is_looked_at_again() {
        let mut store = CoordinatorStore::new(7);
        let lease = grant(&mut store, 500, 0);
        store.starved(lease, Waits { lasted_ns: 0, goes_on: true }, SECOND / 2);
        assert_eq!(store.keep(SECOND / 2), [lease]);
        let later_ns = SECOND / 2 + SECOND / 20;
        assert!(store.over(later_ns - 1).is_empty());
        store.starved(lease, Waits { lasted_ns: SECOND / 20, goes_on: false }, later_ns);
        assert!(store.keep(later_ns).is_empty());
        assert_eq!(store.begin_expiry(later_ns).ended, [lease]);
    }

    /// A process that is starved all the time would keep a dead node's lease for ever.
    #[test]
    fn stood_still_again_and_again_keeps_no_lease_without_end() {
        let mut store = CoordinatorStore::new(7);
        let lease = grant(&mut store, 500, 0);
        let step_ns = 150_000_000;
        let ended = (1..1_000).find(|step| {
            let (began_ns, ended_ns) = ((step - 1) * step_ns, step * step_ns);
            store.stood_still(Gap { lasted_ns: step_ns, began_ns, ended_ns });
            store.keep(ended_ns);
            store.begin_expiry(ended_ns).ended == [lease]
        });
        assert_eq!(ended, Some(20), "after five of its lengths, and the steps that they end within");
    }

    #[test]
    fn keep_leaves_a_lease_alone_whose_end_was_started() {
        let mut store = CoordinatorStore::new(7);
        let lease = grant(&mut store, 500, 0);
        assert_eq!(store.begin_expiry(SECOND / 2).ended, [lease]);
        assert!(store.over(SECOND / 2).is_empty());
        store.starved(lease, Waits { lasted_ns: 0, goes_on: true }, SECOND / 2);
        assert!(store.keep(SECOND / 2).is_empty() && !store.renew(lease, SECOND / 2));
        assert_eq!(store.begin_expiry(SECOND).ended, [lease], "it did not reach the disk");
    }

    #[test]
    fn serve_failed_persist_changes_nothing() {
        let mut store = CoordinatorStore::new(7);
        let before = store.image();
        let write = CoordinatorRequest::Transact(Transaction::new().put("a", "1"));
        assert_eq!(store.serve(&write, 0, |_| Err("disk")), Err("disk"));
        assert_eq!(store.image(), before);
    }

    #[test]
    fn changes_since_too_old_a_revision_is_refused_and_never_cuts_a_transaction() {
        let mut store = CoordinatorStore::new(7);
        for i in 0..CHANGES_MAX {
            let both = Transaction::new().put(format!("a{i}"), "").put(format!("b{i}"), "");
            transact(&mut store, both, 0);
        }
        let oldest = store.compacted;
        assert!(oldest > 0);
        let refused = serve(&mut store, CoordinatorRequest::ChangesSince { revision: oldest - 1 }, 0);
        assert_eq!(refused, Response::Refused(CoordinatorRefusal::Compacted { oldest }));
        let (mut from, mut count) = (oldest, 0);
        loop {
            let (complete, seen) = changes(&mut store, from);
            if seen.is_empty() {
                break;
            }
            assert_eq!(seen.len() % 2, 0);
            count += seen.len();
            from = complete;
        }
        assert_eq!(from, store.meta().revision);
        assert_eq!(count as u64, 2 * (from - oldest));
    }

    #[test]
    fn list_pages_are_complete_and_in_order() {
        let mut store = CoordinatorStore::new(7);
        for i in 0..PAGE_KEYS_MAX + 10 {
            transact(&mut store, Transaction::new().put(format!("p/{i:05}"), ""), 0);
        }
        transact(&mut store, Transaction::new().put("q", ""), 0);
        let mut keys: Vec<String> = Vec::new();
        loop {
            let page = store.list("p/", keys.last().map(String::as_str));
            keys.extend(page.entries.iter().map(|entry| entry.key.clone()));
            if !page.more {
                break;
            }
        }
        assert_eq!(keys.len(), PAGE_KEYS_MAX + 10);
        assert!(keys.is_sorted());
    }

    #[test]
    fn quota_of_one_kind_is_used_up_and_others_have_theirs() {
        let mut store = CoordinatorStore::new(7);
        let value = "x".repeat(VALUE_BYTES_MAX);
        let rows = KIND_BYTES_MAX / (VALUE_BYTES_MAX + 16);
        let key = |row: usize| format!("garbage/{row:08}");
        for row in 0..rows {
            transact(&mut store, Transaction::new().put(key(row), &value), 0);
        }
        let one_more = CoordinatorRequest::Transact(Transaction::new().put(key(rows), &value));
        let refused = serve(&mut store, one_more.clone(), 0);
        assert!(
            matches!(&refused, Response::Refused(CoordinatorRefusal::Quota { what, .. })
                if *what == Quota::Bytes),
            "{refused:?}"
        );
        transact(&mut store, Transaction::new().put("pair/1", "").put("b", ""), 0);
        // What is there is rewritten and removed, and what is removed makes room, after a restart too.
        transact(&mut store, Transaction::new().put(key(0), &value), 0);
        let mut store = CoordinatorStore::restore(store.image(), 0);
        assert_eq!(serve(&mut store, one_more.clone(), 0), refused);
        transact(&mut store, Transaction::new().delete(key(1)), 0);
        assert!(matches!(serve(&mut store, one_more, 0), Response::Transacted(_)));
    }

    #[test]
    fn quota_of_rows_kinds_and_leases_is_used_up() {
        let quota = |response: Response| match response {
            Response::Refused(CoordinatorRefusal::Quota { what, limit }) => Some((what, limit)),
            _ => None,
        };
        let mut store = CoordinatorStore::new(7);
        let put = |key: String| CoordinatorRequest::Transact(Transaction::new().put(key, ""));
        for kind in 0..KINDS_MAX {
            assert_eq!(quota(serve(&mut store, put(format!("{kind}/a")), 0)), None);
        }
        assert_eq!(quota(serve(&mut store, put("one-more/a".into()), 0)), Some((Quota::Kinds, KINDS_MAX)));
        for row in 1..KIND_ROWS_MAX {
            assert_eq!(quota(serve(&mut store, put(format!("7/{row}")), 0)), None);
        }
        assert_eq!(quota(serve(&mut store, put("7/more".into()), 0)), Some((Quota::Rows, KIND_ROWS_MAX)));
        let leases: Vec<_> = (0..LEASES_MAX).map(|_| grant(&mut store, 3_600_000, 0)).collect();
        let one_more = CoordinatorRequest::Grant { ttl_ms: 1_000 };
        assert_eq!(quota(serve(&mut store, one_more, 0)), Some((Quota::Leases, LEASES_MAX)));
        let alive = CoordinatorRequest::KeepAlive { lease: leases[0] };
        assert_eq!(serve(&mut store, alive, SECOND), Response::Alive);
    }

    #[test]
    fn transact_oversized_or_double_keys_are_refused() {
        let mut store = CoordinatorStore::new(7);
        let large =
            CoordinatorRequest::Transact(Transaction::new().put("a", "x".repeat(VALUE_BYTES_MAX + 1)));
        assert!(matches!(
            serve(&mut store, large, 0),
            Response::Refused(CoordinatorRefusal::TooLarge { .. })
        ));
        let twice = CoordinatorRequest::Transact(Transaction::new().put("a", "").delete("a"));
        assert_eq!(
            serve(&mut store, twice, 0),
            Response::Refused(CoordinatorRefusal::KeyTwice { operation: 1 })
        );
        let dead = CoordinatorRequest::Transact(Transaction::new().put_leased("a", "", Incarnation(99)));
        assert_eq!(
            serve(&mut store, dead, 0),
            Response::Refused(CoordinatorRefusal::LeaseEnded { lease: 99 })
        );
        assert_eq!(store.meta().revision, 0);
    }
}
