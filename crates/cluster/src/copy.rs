//! A table that moves from one coordinator to another while no node runs: from Cell's own to etcd, or back.
//!
//! The copy's format is written last. One that was broken off has format 0, which no node takes.

use cell_terms::Incarnation;
use cell_terms::mutant::{Mutant, planted};

use crate::balance::KEY_DRILL;
use crate::coordinator::{Coordinator, KEY_FORMAT, parse, text};
use crate::error::ClusterError;
use crate::member::{KEY_MEMBERS, member_id};
use crate::request::{
    KeyCondition, KeyValue, TRANSACTION_BYTES_MAX, TRANSACTION_STEPS_MAX, Transaction, TransactionOutcome,
};
use crate::row::ROW_FORMAT_VERSION;

/// The format of a copy that is not whole.
const UNFINISHED: &str = "0";
/// What stands in a table that was only started.
const OF_EMPTY: &str = "cluster/";
/// The secret by which nodes know each other over HTTP. A node makes it when it starts, also one that may not
/// join then: it says nothing of a cluster's having been there.
pub const KEY_PEER_SECRET: &str = "web/peer-secret";
/// The row that `cell doctor` writes and removes. One that was killed in between leaves it: it says nothing
/// of a cluster, and the next doctor removes it.
pub const KEY_DOCTOR: &str = "doctor/write";
/// Rows of tools that are at work, or were killed, and of no cluster.
const OF_TOOLS: [&str; 2] = [KEY_DOCTOR, KEY_DRILL];

/// The members that live, by the rows, and for how long at most if nobody renews their leases.
///
/// # Errors
/// See [`Coordinator::call`].
pub fn members_alive(from: &dyn Coordinator) -> Result<Option<(Vec<Incarnation>, u64)>, ClusterError> {
    let rows = from.list(KEY_MEMBERS)?.entries;
    let ids: Vec<_> = rows.iter().filter_map(|row| member_id(row.key.strip_prefix(KEY_MEMBERS)?)).collect();
    let mut longest_ns = 0;
    for id in &ids {
        longest_ns = longest_ns.max(from.remaining_ns(*id)?.unwrap_or(0));
    }
    Ok((!rows.is_empty()).then_some((ids, longest_ns)))
}

/// Copies all rows into a table without any. How many there were.
///
/// # Errors
/// [`ClusterError::CopyRefused`] while a member lives or if the source changes meanwhile,
/// [`ClusterError::CopyTargetUsed`] if a cluster has been where it is copied to; see [`Coordinator::call`].
pub fn copy_table(from: &dyn Coordinator, to: &dyn Coordinator) -> Result<usize, ClusterError> {
    refuse_members(from)?;
    let format = from.read(KEY_FORMAT)?.ok_or(ClusterError::NotInitialised)?;
    let found: u32 = parse("the table's format version", &format.value)?;
    if found != ROW_FORMAT_VERSION {
        return Err(ClusterError::Format { found, known: ROW_FORMAT_VERSION });
    }
    let is_of_cluster = |row: &&KeyValue| {
        !row.key.starts_with(OF_EMPTY) && row.key != KEY_PEER_SECRET && row.key != KEY_DOCTOR
    };
    if let Some(row) = to.list("")?.entries.iter().find(is_of_cluster) {
        return Err(ClusterError::CopyTargetUsed { key: row.key.clone() });
    }
    apply(to, Transaction::new().put(KEY_FORMAT, UNFINISHED))?;
    let all = from.list("")?;
    // What hangs on a lease goes with it, and is nobody's by now.
    let is_copied = |row: &&KeyValue| row.key != KEY_FORMAT && row.lease.is_none() && !is_of_tools(&row.key);
    let rows: Vec<&KeyValue> = all.entries.iter().filter(is_copied).collect();
    let mut left = rows.as_slice();
    while !left.is_empty() {
        let (now, later) = left.split_at(fitting(left));
        let write = now.iter().fold(Transaction::new(), |write, row| write.put(&row.key, &row.value));
        apply(to, write)?;
        left = later;
    }
    refuse_members(from)?;
    if from.changes_since(all.revision)?.1.iter().any(|change| !is_of_tools(&change.key)) {
        return Err(ClusterError::CopyRefused { why: "rows have changed meanwhile" });
    }
    let unfinished = KeyCondition::Value { key: KEY_FORMAT.to_owned(), value: UNFINISHED.to_owned() };
    apply(to, Transaction::new().when(unfinished).put(KEY_FORMAT, text(&ROW_FORMAT_VERSION)))?;
    Ok(rows.len())
}

fn is_of_tools(key: &str) -> bool {
    OF_TOOLS.contains(&key)
}

fn refuse_members(from: &dyn Coordinator) -> Result<(), ClusterError> {
    match members_alive(from)? {
        Some(_) if !planted(Mutant::CopyBesideMembers) => {
            Err(ClusterError::CopyRefused { why: "a node lives" })
        }
        _ => Ok(()),
    }
}

/// How many of these rows one transaction takes; at least one.
fn fitting(rows: &[&KeyValue]) -> usize {
    let mut bytes = 0;
    let fits = |row: &&&KeyValue| {
        bytes += row.value.len();
        bytes <= TRANSACTION_BYTES_MAX
    };
    rows.iter().take(TRANSACTION_STEPS_MAX / 2).take_while(fits).count().max(1)
}

/// Nobody else writes there: an answer that is lost ends the copy, which is made anew.
fn apply(to: &dyn Coordinator, write: Transaction) -> Result<(), ClusterError> {
    match to.transact(write)? {
        TransactionOutcome::Applied { .. } => Ok(()),
        TransactionOutcome::Refused { .. } => {
            Err(ClusterError::CopyRefused { why: "somebody else writes where it is copied to" })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cell_terms::NodeId;

    use super::*;
    use crate::coordinator::initialise;
    use crate::member::{MemberRow, Members};
    use crate::providers::sim::{Fault, Sim};

    fn filled(sim: &Sim) {
        for row in 0..300 {
            sim.link().transact(Transaction::new().put(format!("row/{row}"), "x".repeat(3_000))).unwrap();
        }
    }

    #[test]
    fn copy_table_has_all_rows_and_the_clusters_generation() {
        let [from, to] = [Sim::new(7), Sim::new(8)];
        filled(&from);
        assert_eq!(copy_table(&from.link(), &to.link()).unwrap(), 301);
        let rows = |sim: &Sim| {
            let rows = sim.link().list("").unwrap().entries.into_iter();
            rows.map(|row| (row.key, row.value)).collect::<Vec<_>>()
        };
        assert_eq!(rows(&to), rows(&from));
        assert_eq!(initialise(&to.link(), 9).unwrap(), 7);
        let again = copy_table(&from.link(), &to.link());
        assert!(matches!(&again, Err(ClusterError::CopyTargetUsed { key }) if key == "row/0"), "{again:?}");
    }

    /// A node that was started too early, and could not join, was in the way of the copy.
    #[test]
    fn copy_table_replaces_what_a_node_leaves_that_could_not_join() {
        let [from, to] = [Sim::new(7), Sim::new(8)];
        for (sim, secret) in [(&from, "old"), (&to, "new")] {
            sim.link().transact(Transaction::new().put(KEY_PEER_SECRET, secret)).unwrap();
        }
        copy_table(&from.link(), &to.link()).unwrap();
        assert_eq!(to.link().read(KEY_PEER_SECRET).unwrap().unwrap().value, "old");
    }

    /// A doctor that was killed between its write and its removal was in the way of the copy for good. On
    /// etcd no row says on which lease it hangs, so that the row of a drill would have lasted for ever.
    #[test]
    fn copy_table_passes_by_what_a_doctor_or_a_drill_has_left() {
        let [from, to] = [Sim::new(7), Sim::new(8)];
        filled(&from);
        let put = |sim: &Sim, key: &str| {
            sim.link().transact(Transaction::new().put(key, "")).unwrap();
        };
        put(&to, KEY_DOCTOR);
        OF_TOOLS.iter().for_each(|key| put(&from, key));
        assert_eq!(copy_table(&from.link(), &to.link()).unwrap(), 301);
        assert_eq!(to.link().read(KEY_DRILL).unwrap(), None);
    }

    #[test]
    fn copy_table_while_a_member_lives_is_refused_and_nothing_is_written() {
        let [from, to] = [Sim::new(7), Sim::new(8)];
        filled(&from);
        let lease = from.link().grant(500).unwrap().lease;
        let row = MemberRow {
            incarnation: lease,
            node: NodeId(1),
            fabric: String::new(),
            http: String::new(),
            pid: 1,
            memory_limit_bytes: 0,
        };
        Members::new(Arc::new(from.link())).enter(&row).unwrap();
        assert_eq!(members_alive(&from.link()).unwrap(), Some((vec![lease], 500_000_000)));
        let before = to.link().list("").unwrap();
        assert!(matches!(copy_table(&from.link(), &to.link()), Err(ClusterError::CopyRefused { .. })));
        assert_eq!(to.link().list("").unwrap(), before);
        from.advance(500_000_000);
        copy_table(&from.link(), &to.link()).unwrap();
    }

    #[test]
    fn copy_table_that_is_broken_off_is_no_table() {
        let [from, to] = [Sim::new(7), Sim::new(8)];
        filled(&from);
        let link = to.link();
        link.plan([Fault::None, Fault::None, Fault::None, Fault::NotReached]);
        assert!(copy_table(&from.link(), &link).is_err());
        assert!(matches!(initialise(&to.link(), 9), Err(ClusterError::Format { found: 0, .. })));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_copy_beside_members_is_caught() {
        use cell_terms::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::CopyBesideMembers));
            let passed =
                std::panic::catch_unwind(copy_table_while_a_member_lives_is_refused_and_nothing_is_written)
                    .is_ok();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-cluster's copies", Mutant::CopyBesideMembers.name());
        });
    }
}
