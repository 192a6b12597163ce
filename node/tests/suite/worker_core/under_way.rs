//! What a connection may have under way, and values that are not what was announced.

use cell_fabric::ConnectionId;
use cell_memory::extent::checksum;
use cell_node::WorkerOptions;
use cell_pair::PairOptions;
use cell_protocol::{Chunk, Condition, PairRegions, PutBegin, Reply, Request, StatusCode};
use cell_terms::{Epoch, PairId};

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const KEY: &[u8] = b"key";
const VALUE: [u8; 1000] = [7; 1000];

/// Requests that a connection may have under way, as another one is answered.
fn in_flight_max(world: &mut World) -> u32 {
    world.come(ConnectionId::from_number(8));
    world.until_reply(|reply| match reply {
        Reply::Hello(hello) => Some(hello.limits.in_flight_max),
        _ => None,
    })
}

#[test]
fn request_beyond_what_a_connection_may_have_under_way_is_busy() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let most = in_flight_max(&mut world);
    for round in 0..2 {
        let asked: Vec<u32> = (0..=most).map(|_| world.send(&Request::Search { key: KEY })).collect();
        world.turn();
        let replied: Vec<Option<Replied>> = asked.iter().map(|id| world.answered(*id)).collect();
        let (last, others) = replied.split_last().unwrap();
        assert!(others.iter().all(|replied| *replied == Some(Replied::NotFound)), "round {round}");
        assert_eq!(*last, Some(Replied::Refused(StatusCode::Busy)), "round {round}");
    }
}

/// Begins to write the value in chunks.
fn begin(world: &mut World, number: u64) -> u32 {
    let name = world.name(number, number);
    let (value_len, value_crc) = (u32::try_from(VALUE.len()).unwrap(), checksum(&VALUE));
    let begin = PutBegin { name, condition: Condition::Always, key: KEY, value_len, value_crc };
    world.send(&Request::PutBegin(begin))
}

fn send_chunk(world: &mut World, id: u32, offset: u32, bytes: &[u8]) -> Option<Replied> {
    world.send_of(id, &Request::Chunk(Chunk { offset, bytes }));
    world.turn();
    world.answered(id)
}

#[test]
fn chunk_that_does_not_follow_or_goes_beyond_its_value_ends_the_stream() {
    let mut world = World::new(1, GEOMETRY, OPTIONS);
    let longer = [7; VALUE.len() + 1];
    // What comes first, and then what is not to come.
    let wrong: [(&[u8], u32, &[u8]); 4] = [
        (&[], 1, &VALUE[..100]),
        (&[], 0, &longer),
        (&VALUE[..100], 0, &VALUE[..100]),
        (&VALUE[..100], 100, &VALUE[..901]),
    ];
    for (number, (first, offset, bytes)) in (1..).zip(wrong) {
        let id = begin(&mut world, number);
        if !first.is_empty() {
            assert_eq!(send_chunk(&mut world, id, 0, first), None);
        }
        let refused = Some(Replied::Refused(StatusCode::Malformed));
        assert_eq!(send_chunk(&mut world, id, offset, bytes), refused, "{} at {offset}", bytes.len());
        assert_eq!(send_chunk(&mut world, id, 0, &VALUE), None, "it is nobody's chunk");
        assert_eq!(world.get(KEY), Replied::NotFound);
    }
    let id = begin(&mut world, 9);
    assert_eq!(send_chunk(&mut world, id, 0, &VALUE[..400]), None);
    world.send_of(id, &Request::Chunk(Chunk { offset: 400, bytes: &VALUE[400..] }));
    assert!(matches!(world.answer(id), Replied::Written(_)));
    assert_eq!(world.get(KEY), Replied::Value(VALUE.to_vec()));
}

/// A longer one could read what was freed when it began, and was used again: headers have no checksum.
#[test]
fn one_sided_operation_may_take_four_fifths_of_the_time_for_which_freed_memory_rests() {
    let pair = PairOptions { reuse_grace_ns: 250_000_000, ..OPTIONS.pair };
    let mut world = World::new(1, GEOMETRY, WorkerOptions { pair, ..OPTIONS });
    let row = PairRegions { pair: PairId(1), epoch: Epoch(1), ..PairRegions::default() };
    world.worker_mut().registered(row);
    world.send(&Request::Regions);
    let permitted = world.until_reply(|reply| match reply {
        Reply::Regions(regions) => Some((regions.reads_permitted, regions.one_sided_max_us)),
        _ => None,
    });
    assert_eq!(permitted, (true, 200_000));
}
