//! Messages of the fabric that are no requests, or lie, or ask for too much.

use std::time::Duration;

use cell_protocol::{
    Bound, Chunk, Condition, Delete, KEY_BYTES_MAX, Put, PutBegin, Reply, Request, Scan, StatusCode,
    WriteName,
};
use cell_terms::{Csn, Epoch, OperationNumber, PairId, SessionId, Version};

use crate::hostile::attacker::{Attacker, encoded, hello, status};
use crate::hostile::{Siege, wait};

const NAME: WriteName =
    WriteName { session: SessionId(0x1234_5678), number: OperationNumber(5), floor: OperationNumber(1) };
const SCAN: Scan<'_> = Scan {
    start: Bound::Unbounded,
    end: Bound::Unbounded,
    reverse: false,
    keys_only: false,
    limit_entries: 0,
    limit_bytes: 0,
};

/// One request of each kind that a client sends, none of them harmful.
fn samples() -> Vec<Vec<u8>> {
    let version = Version { pair: PairId(1), epoch: Epoch(1), csn: Csn(1) };
    let requests = [
        Request::OpenSession,
        Request::CloseSession { session: SessionId(9) },
        Request::KeepAlive { session: None },
        Request::KeepAlive { session: Some(SessionId(9)) },
        Request::Search { key: b"witness" },
        Request::Get { key: b"witness" },
        Request::Put(Put { name: NAME, condition: Condition::IfVersion(version), key: b"k", value: b"v" }),
        Request::Delete(Delete { name: NAME, condition: Condition::Always, key: b"k" }),
        Request::Scan(SCAN),
        Request::Status,
        Request::PutBegin(PutBegin {
            name: NAME,
            condition: Condition::IfAbsent,
            key: b"k",
            value_len: 100_000,
            value_crc: 1,
        }),
        Request::Chunk(Chunk { offset: 0, bytes: b"piece" }),
        Request::Credit { bytes: 1000 },
        Request::Cancel,
    ];
    requests.iter().zip(2u64..).map(|(request, id)| encoded(request, id)).collect()
}

/// Says a message on a fresh connection and gives the server a moment; whether it answers or closes is its
/// affair.
fn throw(siege: &Siege, first: Option<&[u8]>, message: &[u8]) {
    let mut attacker = Attacker::connect(siege.server.address());
    if let Some(first) = first {
        attacker.say(first);
    }
    attacker.say(message);
    // The server must answer this much, or have closed the connection.
    attacker.say(&encoded(&Request::Search { key: b"witness" }, 999));
    while let Some(reply) = attacker.receive() {
        let _ = status(&reply);
        if matches!(Reply::decode(&reply), Ok((header, _)) if header.id.0 == 999) {
            break;
        }
    }
}

#[test]
fn requests_before_any_hello_are_refused() {
    let mut siege = Siege::begin();
    for message in samples() {
        throw(&siege, None, &message);
    }
    siege.assert_unharmed();
}

#[test]
fn requests_with_any_byte_changed_or_cut_off_harm_nobody() {
    let mut siege = Siege::begin();
    for sample in samples() {
        // One connection each would take minutes: a server may close on any of these, then the next one
        // opens.
        let mut attacker = Attacker::welcomed(siege.server.address());
        for position in 0..sample.len().min(96) {
            for flip in [0x01, 0x80, 0xff] {
                let mut changed = sample.clone();
                changed[position] ^= flip;
                if attacker.is_closed() || !attacker.say(&changed) || !attacker.say(&sample[..position]) {
                    attacker = Attacker::welcomed(siege.server.address());
                }
            }
        }
    }
    siege.assert_unharmed();
}

#[test]
fn noise_as_messages_harms_nobody() {
    let mut siege = Siege::begin();
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut draw = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    let mut attacker = Attacker::welcomed(siege.server.address());
    for _ in 0..5_000 {
        let length = if draw(50) == 0 { draw(60_000) } else { draw(120) };
        let mut message: Vec<u8> = (0..length).map(|_| draw(256).to_le_bytes()[0]).collect();
        if let Some(kind) = message.first_mut() {
            *kind = draw(18).to_le_bytes()[0];
        }
        if attacker.is_closed() || !attacker.say(&message) {
            attacker = Attacker::welcomed(siege.server.address());
        }
    }
    siege.assert_unharmed();
}

#[test]
fn requests_that_ask_for_the_impossible_are_refused_each_with_its_reason() {
    let mut siege = Siege::begin();
    let ask = |request: &Request<'_>| {
        let mut attacker = Attacker::welcomed(siege.server.address());
        attacker.ask(&encoded(request, 7)).expect("a well-formed request is answered")
    };
    let long = vec![b'k'; KEY_BYTES_MAX];
    assert_eq!(ask(&Request::Get { key: &long }), StatusCode::KeyInvalid);
    assert_eq!(ask(&Request::Get { key: b"" }), StatusCode::KeyInvalid);
    let put = Put { name: NAME, condition: Condition::Always, key: b"k", value: b"v" };
    assert_eq!(ask(&Request::Put(put)), StatusCode::SessionUnknown);
    let delete = Delete { name: NAME, condition: Condition::Always, key: b"k" };
    assert_eq!(ask(&Request::Delete(delete)), StatusCode::SessionUnknown);
    assert_eq!(ask(&Request::KeepAlive { session: Some(SessionId(77)) }), StatusCode::SessionUnknown);
    let huge =
        PutBegin { name: NAME, condition: Condition::Always, key: b"k", value_len: u32::MAX, value_crc: 0 };
    assert!(matches!(ask(&Request::PutBegin(huge)), StatusCode::ValueTooLarge | StatusCode::SessionUnknown));
    siege.assert_unharmed();
}

#[test]
fn session_of_another_and_numbers_below_the_floor_are_refused() {
    let mut siege = Siege::begin();
    let mut attacker = Attacker::welcomed(siege.server.address());
    attacker.say(&encoded(&Request::OpenSession, 2));
    let reply = attacker.receive().expect("a session is opened");
    let Ok((_, Reply::Session { session, .. })) = Reply::decode(&reply) else { panic!("no session") };
    let put = |number: u64, floor: u64| {
        let name = WriteName { session, number: OperationNumber(number), floor: OperationNumber(floor) };
        encoded(
            &Request::Put(Put { name, condition: Condition::Always, key: b"mine", value: b"v" }),
            number + 10,
        )
    };
    assert_eq!(attacker.ask(&put(9, 9)), Some(StatusCode::Ok));
    assert_eq!(attacker.ask(&put(9, 9)), Some(StatusCode::Ok), "a repeat gets the first answer");
    assert_eq!(attacker.ask(&put(8, 8)), Some(StatusCode::NumberBelowFloor));
    siege.assert_unharmed();
}

#[test]
fn replies_that_nobody_reads_do_not_pile_up() {
    let mut siege = Siege::begin();
    siege.honest.put(b"large", &vec![7; 60_000]).expect("an honest put succeeds");
    let mut deaf: Vec<Attacker> = (0..8).map(|_| Attacker::welcomed(siege.server.address())).collect();
    for attacker in &mut deaf {
        for id in 0..20_000 {
            // Full: the server has stopped reading from a peer that does not.
            if !attacker.say(&encoded(&Request::Get { key: b"large" }, 100 + id)) {
                break;
            }
        }
    }
    wait(Duration::from_millis(300));
    siege.assert_unharmed();
}

#[test]
fn streams_that_are_never_finished_take_bounded_memory() {
    let mut siege = Siege::begin();
    let mut attackers: Vec<Attacker> = (0..6).map(|_| Attacker::welcomed(siege.server.address())).collect();
    for attacker in &mut attackers {
        attacker.say(&encoded(&Request::OpenSession, 2));
        let reply = attacker.receive().expect("a session is opened");
        let Ok((_, Reply::Session { session, .. })) = Reply::decode(&reply) else { panic!("no session") };
        for id in 10..300u64 {
            let name = WriteName { session, number: OperationNumber(id), floor: OperationNumber(1) };
            let begin =
                PutBegin { name, condition: Condition::Always, key: b"k", value_len: 16 << 20, value_crc: 0 };
            if attacker.is_closed() || !attacker.say(&encoded(&Request::PutBegin(begin), id)) {
                break;
            }
            let piece = Chunk { offset: 0, bytes: &[1; 1000] };
            attacker.say(&encoded(&Request::Chunk(piece), id));
        }
    }
    wait(Duration::from_millis(300));
    siege.assert_unharmed();
}

#[test]
fn hello_of_another_version_is_answered_with_those_that_are_spoken() {
    let mut siege = Siege::begin();
    let mut message = hello();
    // The version stands right behind header and magic, in every version of the protocol.
    message[24..26].copy_from_slice(&999u16.to_le_bytes());
    let mut attacker = Attacker::connect(siege.server.address());
    assert_eq!(attacker.ask(&message), Some(StatusCode::VersionUnsupported));
    siege.assert_unharmed();
}
