//! Options that change while a worker serves take effect for what comes next; the others stay.

use std::time::Duration;

use cell_node::{Command, ControlEvent, WorkerOptions};
use cell_pair::PairOptions;
use cell_protocol::{Condition, Put, PutBegin, Request, StatusCode};
use cell_wal::LogTimes;

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const MS: u64 = 1_000_000;

fn change(world: &mut World, options: WorkerOptions) {
    world.notify(0, ControlEvent::OptionsChanged(Box::new(options)));
}

fn put(world: &mut World, number: u64, value: &[u8]) -> Replied {
    let put = Put { name: world.name(number, number), condition: Condition::Always, key: b"key", value };
    let id = world.send(&Request::Put(put));
    world.answer_of(0, id)
}

#[test]
fn longest_value_shrinks_and_grows_for_the_next_put() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    assert!(matches!(put(&mut world, 1, &[1; 100]), Replied::Written(_)));
    change(&mut world, WorkerOptions { value_bytes_max: 99, ..OPTIONS });
    assert_eq!(put(&mut world, 2, &[2; 100]), Replied::Refused(StatusCode::ValueTooLarge));
    assert_eq!(world.get(b"key"), Replied::Value(vec![1; 100]), "what is there can be read");
    change(&mut world, OPTIONS);
    assert!(matches!(put(&mut world, 3, &[3; 100]), Replied::Written(_)));
}

#[test]
fn memory_of_streams_bounds_those_that_begin_later() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let begin = |world: &mut World, number: u64| {
        let name = world.name(number, number);
        let (condition, value_len, value_crc) = (Condition::Always, 4_000, 0);
        let begin = PutBegin { name, condition, key: b"key", value_len, value_crc };
        let id = world.send(&Request::PutBegin(begin));
        world.turn();
        world.answered(id)
    };
    assert_eq!(begin(&mut world, 1), None, "its chunks are waited for");
    change(&mut world, WorkerOptions { stream_bytes_max: 7_999, ..OPTIONS });
    assert_eq!(begin(&mut world, 2), Some(Replied::Refused(StatusCode::Busy)));
    change(&mut world, WorkerOptions { stream_bytes_max: 8_000, ..OPTIONS });
    assert_eq!(begin(&mut world, 3), None, "there is room for it");
}

#[test]
fn idle_time_of_sessions_counts_for_those_that_there_are() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    assert!(matches!(put(&mut world, 1, b"1"), Replied::Written(_)));
    let ended = |world: &mut World, for_ns: u64| {
        world.pass(for_ns);
        for _ in 0..10 {
            world.turn();
        }
        let commands = world.take_commands(0);
        commands.iter().any(|command| matches!(command, Command::EndSession { answer: None, .. }))
    };
    assert!(!ended(&mut world, 60_000 * MS));
    change(&mut world, WorkerOptions { session_idle_ns: 10_000 * MS, ..OPTIONS });
    assert!(ended(&mut world, 10_000 * MS));
}

#[test]
fn logs_are_sealed_after_the_time_that_is_in_force() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let seals = |world: &World| world.worker().pairs().map(|pair| pair.log_counts().seals).sum::<u64>();
    let seals_after = |world: &mut World, number: u64| {
        assert!(matches!(put(world, number, b"1"), Replied::Written(_)));
        let before = seals(world);
        for _ in 0..50 {
            world.pass(10 * MS);
            world.turn();
        }
        seals(world) - before
    };
    assert_eq!(seals_after(&mut world, 1), 1);
    let never = LogTimes { seal_idle: Duration::from_secs(3_600), prepare_retry: Duration::from_secs(1) };
    change(&mut world, WorkerOptions { log_times: Some(never), ..OPTIONS });
    assert_eq!(seals_after(&mut world, 2), 0);
    let soon = LogTimes { seal_idle: Duration::from_millis(1), ..never };
    change(&mut world, WorkerOptions { log_times: Some(soon), ..OPTIONS });
    assert_eq!(seals_after(&mut world, 3), 1);
}

/// Durability and grace are what others count on: a change of them must not come through.
#[test]
fn what_others_count_on_stays() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let pair = PairOptions { reuse_grace_ns: 0, durability: cell_terms::Durability::None, ..OPTIONS.pair };
    change(&mut world, WorkerOptions { pair, one_sided_reads: false, ..OPTIONS });
    let before = world.worker().pairs().next().unwrap().log_counts().records;
    assert!(matches!(put(&mut world, 1, b"1"), Replied::Written(_)));
    assert!(world.worker().pairs().next().unwrap().log_counts().records > before);
}
