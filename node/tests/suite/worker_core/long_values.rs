//! The longest value that is accepted, where regions are small.

use cell_cluster::PairGeometry;
use cell_node::WorkerOptions;
use cell_protocol::StatusCode;

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const REGION_BYTES: usize = 1 << 20;

fn put(world: &mut World, number: u64, length: usize) -> Replied {
    let name = world.name(number, number);
    let id = world.send_put(name, b"key", &vec![number.to_le_bytes()[0]; length]);
    world.answer(id)
}

/// With an extent region of 32 MiB, a value of 16 MiB was written once and never replaced: "its region is
/// full".
#[test]
fn longest_value_is_replaced_again_and_again_and_a_longer_one_is_refused() {
    let geometry = PairGeometry { extent_region_bytes: REGION_BYTES as u64, ..GEOMETRY };
    let options = WorkerOptions { value_bytes_max: REGION_BYTES, stream_bytes_max: 4 << 20, ..OPTIONS };
    let mut world = World::new(1, geometry, options);
    for number in 1..=20 {
        let replied = put(&mut world, number, REGION_BYTES / 4);
        assert!(matches!(replied, Replied::Written(_)), "{number}: {replied:?}");
    }
    let refused = put(&mut world, 21, REGION_BYTES / 4 + 1);
    assert_eq!(refused, Replied::Refused(StatusCode::ValueTooLarge));
    world.restart();
    let refused = put(&mut world, 22, REGION_BYTES / 2);
    assert_eq!(
        refused,
        Replied::Refused(StatusCode::ValueTooLarge),
        "the region says it, not the first start"
    );
    assert!(matches!(put(&mut world, 23, REGION_BYTES / 4), Replied::Written(_)));
    assert_eq!(world.violation(), None);
}
