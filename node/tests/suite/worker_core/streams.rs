//! Long values go in chunks, as far as the receiver has given credit, and hold memory until they end.

use cell_fabric::ConnectionId;
use cell_memory::extent::checksum;
use cell_node::WorkerOptions;
use cell_protocol::{
    Chunk, Condition, Hello, PROTOCOL_VERSION, PutBegin, Reply, Request, RequestHeader, RequestId, StatusCode,
};
use cell_terms::PairId;

use crate::worker_core::world::{GEOMETRY, OPTIONS, Replied, World};

const KEY: &[u8] = b"long";
const READER: ConnectionId = ConnectionId::from_number(9);
/// What the reader's hello gives to begin with.
const CREDIT_BYTES: u32 = 100_000;
const VALUE_BYTES: usize = 200_000;
const PIECE_BYTES: usize = 32 << 10;

fn value_of(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7).to_le_bytes()[0]).collect()
}

/// A world that takes long values, with memory for one of those that are read here, but not for two.
fn world() -> World {
    let options = WorkerOptions { value_bytes_max: 1 << 20, stream_bytes_max: 300_000, ..OPTIONS };
    let mut world = World::new(1, GEOMETRY, options);
    let put = world.send_put(world.name(1, 1), KEY, &value_of(VALUE_BYTES));
    assert!(matches!(world.answer(put), Replied::Written(_)));
    world.worker_mut().accepted(READER);
    let (version, stream_credit_bytes) = (PROTOCOL_VERSION, CREDIT_BYTES);
    let hello = Hello { version, name: "reader", token: &[], stream_credit_bytes };
    assert_eq!(ask(&mut world, 1, &Request::Hello(hello)).len(), 1);
    world
}

/// What the reader is sent after this message of a request of its.
fn ask(world: &mut World, id: u64, request: &Request<'_>) -> Vec<Vec<u8>> {
    let mut message = Vec::new();
    request.encode(RequestHeader { id: RequestId(id), pair: PairId(0) }, &mut message).unwrap();
    world.worker_mut().message(READER, &message);
    (0..5).flat_map(|_| world.replies()).collect()
}

fn refusal(replies: &[Vec<u8>]) -> Option<StatusCode> {
    replies.iter().find_map(|reply| match Reply::decode(reply).unwrap().1 {
        Reply::Refused(refusal) => Some(refusal.status()),
        _ => None,
    })
}

/// Each half of the credit is given again once it was used, and nothing is when the value is whole.
#[test]
fn writer_of_a_long_value_gets_credit_as_its_chunks_arrive() {
    let options = WorkerOptions { value_bytes_max: 1 << 20, ..OPTIONS };
    let mut world = World::new(1, GEOMETRY, options);
    let value = value_of(540_000);
    let (value_len, value_crc) = (u32::try_from(value.len()).unwrap(), checksum(&value));
    let name = world.name(1, 1);
    let begin = PutBegin { name, condition: Condition::Always, key: KEY, value_len, value_crc };
    let id = world.send(&Request::PutBegin(begin));
    let (mut given, mut is_written) = (Vec::new(), false);
    let mut look = |world: &mut World, piece: usize| {
        for reply in world.replies() {
            match Reply::decode(&reply).unwrap().1 {
                Reply::Credit { bytes } => given.push((piece, bytes)),
                Reply::Written { .. } => is_written = true,
                other => panic!("{piece}: {other:?}"),
            }
        }
    };
    for (piece, bytes) in value.chunks(PIECE_BYTES).enumerate() {
        let offset = u32::try_from(piece * PIECE_BYTES).unwrap();
        world.send_of(id, &Request::Chunk(Chunk { offset, bytes }));
        look(&mut world, piece + 1);
    }
    (0..20).for_each(|_| look(&mut world, 0));
    assert!(is_written);
    assert_eq!(given, [8, 16].map(|pieces| (pieces, 256 << 10)));
}

/// What has come of a value.
#[derive(Default)]
struct Received {
    begins: u32,
    value: Vec<u8>,
}

impl Received {
    fn take(&mut self, replies: &[Vec<u8>]) {
        for reply in replies {
            match Reply::decode(reply).unwrap().1 {
                Reply::ValueBegin(begin) => {
                    assert_eq!(begin.value_len as usize, VALUE_BYTES);
                    self.begins += 1;
                }
                Reply::Chunk(chunk) => {
                    assert_eq!(chunk.offset as usize, self.value.len());
                    self.value.extend_from_slice(chunk.bytes);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn long_value_leaves_as_far_as_its_reader_has_given_credit() {
    let mut world = world();
    let mut received = Received::default();
    received.take(&ask(&mut world, 2, &Request::Get { key: KEY }));
    assert_eq!(received.value.len(), 100_000);
    received.take(&ask(&mut world, 2, &Request::Credit { bytes: 50_000 }));
    assert_eq!(received.value.len(), 150_000);
    received.take(&ask(&mut world, 2, &Request::Credit { bytes: 100_000 }));
    assert!(received.value == value_of(VALUE_BYTES) && received.begins == 1);
    assert!(ask(&mut world, 2, &Request::Credit { bytes: 100_000 }).is_empty(), "there is no more of it");
}

#[test]
fn value_under_way_holds_its_memory_until_it_ends_or_is_cancelled() {
    let mut world = world();
    let get = Request::Get { key: KEY };
    assert_eq!(refusal(&ask(&mut world, 2, &get)), None);
    assert_eq!(refusal(&ask(&mut world, 3, &get)), Some(StatusCode::Busy));
    assert!(ask(&mut world, 2, &Request::Cancel).is_empty());
    assert!(ask(&mut world, 2, &Request::Credit { bytes: 100_000 }).is_empty(), "it was cancelled");
    assert_eq!(refusal(&ask(&mut world, 4, &get)), None);
    assert!(!ask(&mut world, 4, &Request::Credit { bytes: 100_000 }).is_empty());
    // That one has come to its end. The same of values on their way in.
    let value_len = u32::try_from(VALUE_BYTES).unwrap();
    for id in 5..7 {
        let name = world.name(id, id);
        let begin = PutBegin { name, condition: Condition::Always, key: KEY, value_len, value_crc: 0 };
        assert_eq!(refusal(&ask(&mut world, id, &Request::PutBegin(begin))), None);
        assert!(ask(&mut world, id, &Request::Cancel).is_empty());
    }
}
