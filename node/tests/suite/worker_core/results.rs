//! Results that are kept for repeats have a window by session and a bound over all of them.

use cell_node::WorkerOptions;
use cell_protocol::{Chunk, Condition, Put, PutBegin, Request, StatusCode};
use cell_recovery::{RESULT_WINDOW, RESULT_WINDOW_SHORT};

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const BUSY: Replied = Replied::Refused(StatusCode::Busy);
const KEY: &[u8] = b"key";

fn put(world: &mut World, number: u64, floor: u64) -> Replied {
    let name = world.name(number, floor);
    world.put(name, KEY, b"value")
}

fn expect_written(world: &mut World, number: u64, floor: u64) {
    let replied = put(world, number, floor);
    assert!(matches!(replied, Replied::Written(_)), "{number} above {floor}: {replied:?}");
}

fn results(world: &World) -> u64 {
    world.worker().snapshot().pairs[0].completions
}

#[test]
fn write_above_its_sessions_window_is_busy_until_the_floor_rises() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let above = RESULT_WINDOW + 1;
    expect_written(&mut world, 1, 1);
    expect_written(&mut world, above - 1, 1);
    assert_eq!(put(&mut world, above, 1), BUSY);
    let name = world.name(above, 1);
    let begin = PutBegin { name, condition: Condition::Always, key: KEY, value_len: 5, value_crc: 0 };
    let id = world.send(&Request::PutBegin(begin));
    assert_eq!(world.answer(id), BUSY, "no chunk is to come in vain");
    world.send_of(id, &Request::Chunk(Chunk { offset: 0, bytes: b"value" }));
    assert_eq!(results(&world), 2);
    expect_written(&mut world, above, 2);
    assert_eq!(results(&world), 2);
}

/// A client that never says what it has seen stands still; others, and itself once it does, go on.
#[test]
fn results_past_their_memory_leave_each_session_a_short_window() {
    let options = WorkerOptions { result_bytes_max: 8 << 10, ..OPTIONS };
    let mut world = World::new(1, GEOMETRY, options);
    let mut number = 1;
    while put(&mut world, number, 1) != BUSY {
        number += 1;
        assert!(number < 10_000, "{} results are kept", results(&world));
    }
    let kept = results(&world);
    assert!(kept > RESULT_WINDOW_SHORT && kept < 1_000, "{kept}");
    // The lowest number that it waits for is always taken.
    expect_written(&mut world, number, number);
    assert_eq!(results(&world), 1);
    for number in number + 1..number + 100 {
        expect_written(&mut world, number, number);
    }
    // Of many that come at once, those in the short window are taken where there is no room for more.
    let first = number + 100;
    let send = |world: &mut World, number| {
        let name = world.name(number, first);
        world.send(&Request::Put(Put { name, condition: Condition::Always, key: KEY, value: b"value" }))
    };
    let many: Vec<_> = (first..first + 200).map(|number| send(&mut world, number)).collect();
    world.turn();
    let late: Vec<_> = (first + 200..first + 210).map(|number| send(&mut world, number)).collect();
    for id in many {
        let replied = world.answer(id);
        assert!(matches!(replied, Replied::Written(_)), "between two looks at the memory: {replied:?}");
    }
    for id in late {
        assert_eq!(world.answer(id), BUSY);
    }
}
