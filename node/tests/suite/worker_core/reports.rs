//! What a worker reports of its pairs: a check, for which writes wait, the tree's shape and the region table.

use std::collections::BTreeSet;
use std::sync::Arc;

use cell_node::{Command, ControlEvent, TableView};
use cell_pair::{CheckOutcome, Pair};
use cell_protocol::report::VIOLATION_BYTES_MAX;
use cell_protocol::{Condition, MeganodeRow, MeganodeUse, Put, Reply, Request, StatusCode};
use cell_terms::PairId;

use crate::worker_core::splits::load_until_split;
use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const KEY: &[u8] = b"key";

#[test]
fn writes_wait_while_the_trees_are_walked_and_no_longer() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    assert!(matches!(world.put(world.name(1, 1), KEY, b"one"), Replied::Written(_)));
    world.send(&Request::Check);
    let again = world.send(&Request::Check);
    let name = world.name(2, 2);
    let put = world.send(&Request::Put(Put { name, condition: Condition::Always, key: KEY, value: b"two" }));
    (0..10).for_each(|_| world.turn());
    assert_eq!(world.answered(put), None, "the trees are walked");
    assert_eq!(world.answered(again), Some(Replied::Refused(StatusCode::Busy)));
    assert_eq!(world.get(KEY), Replied::Value(b"one".to_vec()), "reads go on");
    let asked = |command| match command {
        Command::Check { connection, header } => Some((connection, header)),
        _ => None,
    };
    let mut checks: Vec<_> = world.take_commands(0).into_iter().filter_map(asked).collect();
    let (connection, header) = checks.pop().expect("the control thread is to check");
    assert!(checks.is_empty(), "once");
    world.notify(0, ControlEvent::StructureChecked);
    (0..10).for_each(|_| world.turn());
    assert!(matches!(world.answered(put), Some(Replied::Written(_))), "before the extents are checked");
    let first_violation = "x".repeat(VIOLATION_BYTES_MAX + 1);
    let outcome = CheckOutcome { violations: 3, first_violation, ..CheckOutcome::default() };
    world.notify(0, ControlEvent::Checked { connection, header, outcome });
    let found = world.until_reply(|reply| match reply {
        Reply::Checked(report) => Some((report.violations, report.first_violation.len())),
        _ => None,
    });
    assert_eq!(found, (3, VIOLATION_BYTES_MAX));
    assert_eq!(world.worker().snapshot().worker_counts.damage_checked, 3);
    world.send(&Request::Check);
    world.turn();
    assert_eq!(world.take_commands(0).into_iter().filter_map(asked).count(), 1, "there may be another one");
}

/// The tree's shape from a meganode on: how many there are, the root, the splits, and the rows.
fn tree(world: &mut World, from: u32) -> (u32, u64, [u64; 4], Vec<MeganodeRow>) {
    world.send(&Request::Tree { from });
    world.until_reply(|reply| match reply {
        Reply::Tree(report) => {
            Some((report.meganodes, report.root, report.splits, report.rows.iter().collect()))
        }
        _ => None,
    })
}

#[test]
fn tree_is_reported_with_its_router_first_and_its_meganodes_in_key_order() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    world.hold(Some(1)); // the adoption does not become durable
    load_until_split(&mut world);
    let is_adopted = |row: &MeganodeRow| (row.used, row.pair) == (MeganodeUse::Adopted, PairId(2));
    assert!((0..100).any(|_| tree(&mut world, 0).3.iter().any(is_adopted)));
    world.hold(None);
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
    let (all, root, splits, rows) = tree(&mut world, 0);
    assert_eq!((all, splits), (3, [1, 1, 0, 0]));
    assert_ne!(root, 0);
    let used: Vec<_> = rows.iter().map(|row| (row.used, row.pair, row.low_len == 0)).collect();
    let leaf = MeganodeUse::Leaf;
    assert_eq!(
        used,
        [(MeganodeUse::Router, PairId(1), true), (leaf, PairId(1), true), (leaf, PairId(2), false)]
    );
    let reported: BTreeSet<_> = rows.iter().map(|row| (row.pair, row.slot)).collect();
    let pairs = world.worker().pairs();
    let of = |pair: &Pair| -> Vec<_> {
        let id = pair.id();
        pair.used_slots().into_iter().map(|slot| (id, slot)).collect()
    };
    let slots: BTreeSet<_> = pairs.flat_map(of).collect();
    assert_eq!(reported, slots);
    let entries: Vec<_> = rows[1..].iter().map(|row| row.entries).collect();
    assert_eq!(entries, world.entries());
    for row in &rows {
        assert!(row.height > 0 && (1..=row.nodes_all).contains(&row.nodes), "{row:?}");
    }
    let (all, _, _, behind) = tree(&mut world, 1);
    assert_eq!((all, &behind[..]), (3, &rows[1..]));
    assert!(tree(&mut world, 4).3.is_empty());
}

#[test]
fn table_is_answered_as_the_control_thread_said_last() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    for revision in [7, 9] {
        world.notify(0, ControlEvent::Table(Arc::new(TableView::new(revision, &[], &[]))));
        world.send(&Request::Table { from: 0 });
        let reported = world.until_reply(|reply| match reply {
            Reply::Table(table) => Some((table.revision, table.rows_all)),
            _ => None,
        });
        assert_eq!(reported, (revision, 0));
    }
}

/// A node that is alone would call itself ready without them.
#[test]
fn worker_has_every_key_unless_a_part_of_them_is_at_another_one() {
    let mut world = World::new(2, GEOMETRY, OPTIONS);
    load_until_split(&mut world);
    world.until("the split's end", |world| world.worker().split_counts().finished == 1);
    assert!(world.worker().has_every_key());
    world.scatter(&[&[1], &[2]]);
    assert!(!(0..2).any(|at| world.worker_of(at).has_every_key()));
}
