//! A transaction of the cluster as one of etcd's, and etcd's answer as the cluster's.
//!
//! Each condition is one compare, and one read for the case that it does not hold: so the answer says which
//! one it was, as of the same moment. A row that is to hang on a lease brings the condition that the lease
//! lives, and a key that says that the row hangs on it. etcd takes 128 compares and 128 operations.

use std::collections::BTreeSet;

use cell_terms::Incarnation;
use serde_json::Value;

use crate::error::ClusterError;
use crate::providers::etcd::gateway::{self as gw, StoredKey, TxnAnswer};
use crate::providers::etcd::keys::{Keys, LAYOUT};
use crate::request::{
    CoordinatorRefusal, KeyCondition, KeyOperation, Response, TRANSACTION_STEPS_MAX, Transaction,
    TransactionOutcome,
};

/// What etcd is asked, and by what its answer is understood.
pub(super) struct Prepared {
    pub(super) body: Value,
    /// The leases on which rows are to hang and that no condition names.
    leases: Vec<Incarnation>,
}

/// What is asked of etcd.
///
/// # Errors
/// The refusal of a transaction that could never be carried out.
pub(super) fn prepare(keys: &Keys, transaction: &Transaction) -> Result<Prepared, CoordinatorRefusal> {
    transaction.check_sizes()?;
    check_keys(transaction)?;
    let leases = leases_unasked(transaction);
    let conditions = transaction.conditions.iter();
    let mut compare: Vec<Value> = conditions.clone().map(|condition| compare_of(keys, condition)).collect();
    compare.extend(leases.iter().map(|lease| gw::is_there(&keys.lease(*lease))));
    let mut failure: Vec<Value> = conditions.map(|condition| gw::get(&key_of(keys, condition))).collect();
    failure.extend(leases.iter().map(|lease| gw::get(&keys.lease(*lease))));
    let mut success: Vec<Value> = Vec::new();
    for operation in &transaction.operations {
        match operation {
            KeyOperation::Put { key, value, lease } => {
                success.push(gw::put(&keys.row(key), value));
                success.extend(lease.map(|lease| gw::put(&keys.hanging(lease, key), "")));
            }
            KeyOperation::Delete { key } => success.push(gw::delete(&keys.row(key))),
        }
    }
    if !success.is_empty() {
        success.push(gw::put(keys.head(), LAYOUT));
    }
    let success = grouped(success, compare.len())?;
    Ok(Prepared { body: gw::txn(compare, success, failure), leases })
}

/// No key is written twice. The head is nobody's row.
fn check_keys(transaction: &Transaction) -> Result<(), CoordinatorRefusal> {
    let mut seen = BTreeSet::new();
    for (operation, key) in transaction.operations.iter().map(KeyOperation::key).enumerate() {
        if key.is_empty() {
            return Err(CoordinatorRefusal::Unreadable);
        }
        if !seen.insert(key) {
            return Err(CoordinatorRefusal::KeyTwice { operation });
        }
    }
    Ok(())
}

/// The leases on which rows are to hang, but those that a condition asks for.
fn leases_unasked(transaction: &Transaction) -> Vec<Incarnation> {
    let hung = transaction.operations.iter().filter_map(|operation| match operation {
        KeyOperation::Put { lease, .. } => *lease,
        KeyOperation::Delete { .. } => None,
    });
    let is_asked = |lease: &Incarnation| {
        let alive = KeyCondition::LeaseAlive { lease: *lease };
        transaction.conditions.contains(&alive)
    };
    let unasked: BTreeSet<Incarnation> = hung.filter(|lease| !is_asked(lease)).collect();
    unasked.into_iter().collect()
}

/// Operations that are too many for one list, in transactions within it: those may have what the lists above
/// them leave of etcd's limit.
fn grouped(operations: Vec<Value>, compares: usize) -> Result<Vec<Value>, CoordinatorRefusal> {
    let limit = TRANSACTION_STEPS_MAX;
    let too_large = |size| CoordinatorRefusal::TooLarge { size, limit };
    if compares > limit {
        return Err(too_large(compares));
    }
    if operations.len() <= limit {
        return Ok(operations);
    }
    let size = limit / 2;
    let groups = operations.len().div_ceil(size);
    if compares.max(groups) > limit - size {
        return Err(too_large(operations.len()));
    }
    Ok(operations.chunks(size).map(|group| gw::nested(Vec::new(), group.to_vec())).collect())
}

fn key_of(keys: &Keys, condition: &KeyCondition) -> String {
    match condition {
        KeyCondition::Absent { key }
        | KeyCondition::Revision { key, .. }
        | KeyCondition::Value { key, .. } => keys.row(key),
        KeyCondition::LeaseAlive { lease } | KeyCondition::LeaseEnded { lease } => keys.lease(*lease),
    }
}

fn compare_of(keys: &Keys, condition: &KeyCondition) -> Value {
    let at = key_of(keys, condition);
    match condition {
        KeyCondition::Absent { .. } | KeyCondition::LeaseEnded { .. } => gw::is_absent(&at),
        KeyCondition::LeaseAlive { .. } => gw::is_there(&at),
        KeyCondition::Revision { revision, .. } => gw::is_of_revision(&at, *revision),
        KeyCondition::Value { value, .. } => gw::is_of_value(&at, value),
    }
}

fn holds(condition: &KeyCondition, found: Option<&StoredKey>) -> bool {
    match condition {
        KeyCondition::Absent { .. } | KeyCondition::LeaseEnded { .. } => found.is_none(),
        KeyCondition::LeaseAlive { .. } => found.is_some(),
        KeyCondition::Revision { revision, .. } => found.is_some_and(|found| found.mod_revision == *revision),
        KeyCondition::Value { value, .. } => found.is_some_and(|found| found.value == *value),
    }
}

/// What etcd's answer means.
///
/// # Errors
/// [`ClusterError::Answer`]: it does not fit the question.
pub(super) fn understand(
    transaction: &Transaction,
    prepared: &Prepared,
    answer: &TxnAnswer,
) -> Result<Response, ClusterError> {
    if answer.succeeded {
        let outcome = TransactionOutcome::Applied { revision: answer.header.revision };
        return Ok(Response::Transacted(outcome));
    }
    for (at, condition) in transaction.conditions.iter().enumerate() {
        if !holds(condition, answer.key(at)?) {
            return Ok(Response::Transacted(TransactionOutcome::Refused { condition: at }));
        }
    }
    for (lease, at) in prepared.leases.iter().zip(transaction.conditions.len()..) {
        if answer.key(at)?.is_none() {
            return Ok(Response::Refused(CoordinatorRefusal::LeaseEnded { lease: lease.0 }));
        }
    }
    Err(ClusterError::Answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(prepared: &Prepared, list: &str) -> usize {
        prepared.body[list].as_array().map_or(0, Vec::len)
    }

    #[test]
    fn prepare_at_the_limit_of_conditions_and_operations_is_within_etcds() {
        let keys = Keys::new("cell");
        let lease = Incarnation(1);
        // What opens most sessions at once, as `sessions` does it.
        let mut open = Transaction::new().when(KeyCondition::LeaseAlive { lease }).put("counter", "");
        for row in 0..TRANSACTION_STEPS_MAX - 2 {
            let key = format!("session/{row}");
            open = open.when(KeyCondition::Absent { key: key.clone() }).put(key, "");
        }
        let prepared = prepare(&keys, &open).unwrap();
        for list in ["compare", "success", "failure"] {
            assert!(size(&prepared, list) <= TRANSACTION_STEPS_MAX, "{list}");
        }
        let many = (0..TRANSACTION_STEPS_MAX)
            .fold(Transaction::new(), |all, row| all.put_leased(format!("row/{row}"), "", lease));
        let prepared = prepare(&keys, &many).unwrap();
        let groups = prepared.body["success"].as_array().unwrap();
        let of_group = |group: &Value| group["request_txn"]["success"].as_array().map_or(0, Vec::len);
        assert_eq!(groups.iter().map(of_group).sum::<usize>(), 2 * TRANSACTION_STEPS_MAX + 1);
        assert!(groups.iter().all(|group| of_group(group) + groups.len() <= TRANSACTION_STEPS_MAX));
    }

    #[test]
    fn prepare_asks_once_for_a_lease_that_a_condition_names() {
        let lease = Incarnation(1);
        let named = Transaction::new().when(KeyCondition::LeaseAlive { lease }).put_leased("a", "", lease);
        assert_eq!(size(&prepare(&Keys::new("cell"), &named).unwrap(), "compare"), 1);
        let unnamed = Transaction::new().put_leased("a", "", lease).put_leased("b", "", lease);
        assert_eq!(size(&prepare(&Keys::new("cell"), &unnamed).unwrap(), "compare"), 1);
    }

    #[test]
    fn prepare_of_keys_twice_and_of_the_heads_key_is_refused() {
        let refusal = |transaction| prepare(&Keys::new("cell"), &transaction).err();
        let twice = Transaction::new().put("a", "").delete("a");
        assert_eq!(refusal(twice), Some(CoordinatorRefusal::KeyTwice { operation: 1 }));
        assert_eq!(refusal(Transaction::new().delete("")), Some(CoordinatorRefusal::Unreadable));
    }
}
