//! Any bytes give a message or an error: no panic, no allocation by an unchecked length, no list that cannot
//! be walked. And what was encoded comes back.
#![allow(clippy::unwrap_used, reason = "a test's helper may give up")]

use cell_protocol::stream::CHUNK_BYTES_MAX;
use cell_protocol::write::put_value_bytes_max;
use cell_protocol::*;
use cell_terms::{
    Csn, Epoch, Incarnation, NodeId, OperationNumber, PairId, SessionId, SlotIndex, Version, Watermark,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// Walks everything that a decoded message offers.
fn walk_request(message: &[u8]) -> Option<Vec<u8>> {
    let (header, request) = Request::decode(message).ok()?;
    match request {
        Request::MultiGet(keys) => assert_eq!(keys.iter().count(), keys.len()),
        Request::Report(report) => {
            assert_eq!(report.reported_reads.iter().count(), report.reported_reads.len())
        }
        _ => {}
    }
    let mut again = Vec::new();
    request.encode(header, &mut again).expect("what was decoded can be encoded");
    Some(again)
}

fn walk_reply(message: &[u8]) -> Option<Vec<u8>> {
    let (header, reply) = Reply::decode(message).ok()?;
    match reply {
        Reply::Values(values) => assert_eq!(values.iter().count(), values.len()),
        Reply::Page(page) => {
            assert_eq!(page.iter().count(), page.len());
            assert_eq!(page.done, page.resume == Bound::Unbounded);
        }
        Reply::Status(report) => assert_eq!(report.pairs.iter().count(), report.pairs.len()),
        Reply::Regions(regions) => assert_eq!(regions.pairs.iter().count(), regions.pairs.len()),
        Reply::Tree(tree) => assert_eq!(tree.rows.iter().count(), tree.rows.len()),
        Reply::Table(table) => assert_eq!(table.rows.iter().count(), table.rows.len()),
        Reply::Reported(reported) => assert_eq!(reported.values.iter().count(), reported.values.len()),
        _ => {}
    }
    let mut again = Vec::new();
    reply.encode(&header, &mut again).expect("what was decoded can be encoded");
    Some(again)
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

fn version() -> impl Strategy<Value = Version> {
    (any::<u32>(), any::<u32>(), any::<u64>()).prop_map(|(pair, epoch, csn)| Version {
        pair: PairId(pair),
        epoch: Epoch(epoch),
        csn: Csn(csn),
    })
}

fn name() -> impl Strategy<Value = WriteName> {
    (1..=u64::MAX, 1..=u64::MAX, 1..=u64::MAX).prop_map(|(session, a, b)| WriteName {
        session: SessionId(session),
        number: OperationNumber(a.max(b)),
        floor: OperationNumber(a.min(b)),
    })
}

fn condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        Just(Condition::Always),
        Just(Condition::IfAbsent),
        Just(Condition::IfPresent),
        version().prop_map(Condition::IfVersion)
    ]
}

const REPORTED_READS: [ReportedRead; 3] = [
    ReportedRead { pair: PairId(3), slot: SlotIndex(1), reads: 1 },
    ReportedRead { pair: PairId(u32::MAX), slot: SlotIndex(u32::MAX), reads: u64::MAX },
    ReportedRead { pair: PairId(0), slot: SlotIndex(0), reads: 70_000 },
];

/// A report of any figures.
fn report(figure: u64, small: u32, known: bool) -> ClientReport<'static> {
    ClientReport {
        client: figure,
        settings_revision: figure.rotate_left(7),
        interval_ns: figure >> 3,
        estimates: ClientEstimates {
            server_ns: figure,
            reads_thousandths: small,
            share_millionths: known.then_some(small % 1_000_001),
            ..ClientEstimates::default()
        },
        in_hand: small,
        transport: ReportTransport::ALL[small as usize % ReportTransport::ALL.len()],
        policy: ReportPolicy::ALL[small as usize % ReportPolicy::ALL.len()],
        counts: ClientCounts::from_array(std::array::from_fn(|at| figure.wrapping_mul(at as u64))),
        reported_reads: ReportedReads::List(&REPORTED_READS[..small as usize % 4]),
        reads_elsewhere: figure.rotate_left(9),
        name: if known { "17@h\u{f6}st" } else { "" },
    }
}

/// An encoded request of any kind.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let header = (any::<u64>(), any::<u32>())
        .prop_map(|(id, pair)| RequestHeader { id: RequestId(id), pair: PairId(pair) });
    (header, 0..21, name(), condition(), key(), vec(key(), 0..20), any::<(u32, u32, u64, bool, bool)>())
        .prop_map(|(header, kind, name, condition, key, keys, (a, b, c, d, e))| {
            let mut out = Vec::new();
            let key = key.as_slice();
            let first = keys.first().map_or(&[][..], |first| first);
            let request = match kind {
                0 => Request::OpenSession,
                1 => Request::CloseSession { session: SessionId(c) },
                2 => Request::KeepAlive { session: (c != 0).then_some(SessionId(c)) },
                3 => Request::Search { key },
                4 => Request::Get { key },
                5 | 6 => Request::Put(Put { name, condition, key, value: first }),
                7 => {
                    let condition = match condition {
                        Condition::IfVersion(version) => Condition::IfVersion(version),
                        _ => Condition::Always,
                    };
                    Request::Delete(Delete { name, condition, key })
                }
                8 => Request::PutBegin(PutBegin { name, condition, key, value_len: a, value_crc: c }),
                9 => Request::Chunk(Chunk { offset: a >> 1, bytes: b"piece" }),
                10 => Request::Credit { bytes: a.max(1) },
                11 => Request::Cancel,
                12 => Request::Status,
                13 => Request::Check,
                16 => Request::Regions,
                17 => Request::Tree { from: a },
                19 => Request::Table { from: a },
                20 => Request::Report(report(c, a, d)),
                14 => Request::Hello(Hello {
                    version: PROTOCOL_VERSION,
                    name: "näme",
                    token: key,
                    stream_credit_bytes: a,
                }),
                15 => Request::Scan(Scan {
                    start: if d { Bound::Included(key) } else { Bound::Unbounded },
                    end: if e { Bound::Excluded(first) } else { Bound::Included(first) },
                    reverse: d,
                    keys_only: e,
                    limit_entries: a,
                    limit_bytes: b,
                }),
                _ => {
                    let mut writer = KeysWriter::begin(header, &mut out).unwrap();
                    keys.iter().for_each(|key| writer.push(key).unwrap());
                    writer.finish();
                    return out;
                }
            };
            request.encode(header, &mut out).unwrap();
            out
        })
}

fn header() -> ReplyHeader {
    ReplyHeader {
        id: RequestId(1),
        pair: PairId(2),
        watermark: Watermark { epoch: Epoch(3), csn: Csn(4) },
        trust_us: 5,
        list: 6,
    }
}

/// An encoded page; what did not fit is left out.
fn page(entries: &[(Vec<u8>, Vec<u8>)], limits: (u32, u32), resume: Option<&[u8]>) -> (Vec<u8>, usize) {
    let mut out = Vec::new();
    let mut page = PageWriter::begin(&header(), limits.0, limits.1, &mut out).unwrap();
    let mut taken = 0;
    for (key, value) in entries {
        let (value_len, mut copied) = (u32::try_from(value.len()).unwrap(), false);
        let pushed = page.push_with(key.len(), value_len, false, |out, has_value| {
            copied = true;
            out.extend_from_slice(key);
            out.extend_from_slice(if has_value { value } else { &[] });
            Ok::<_, EncodeError>(Version::default())
        });
        assert_eq!(pushed, Ok(copied), "what does not fit is not copied");
        if !copied {
            break;
        }
        taken += 1;
    }
    assert_eq!(page.len(), taken);
    page.finish(resume.map(Bound::Excluded)).unwrap();
    (out, taken)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    #[test]
    fn decode_random_bytes_gives_a_message_or_an_error(bytes in vec(any::<u8>(), 0..300)) {
        for message in [walk_request(&bytes), walk_reply(&bytes)].into_iter().flatten() {
            prop_assert_eq!(&message, &bytes);
        }
    }

    /// Random bytes seldom have a kind; these always do.
    #[test]
    fn decode_random_body_gives_a_message_or_an_error(
        kind in 0u8..24, status in 0u8..20, body in vec(prop_oneof![Just(0u8), any::<u8>()], 12..300)
    ) {
        let request: Vec<u8> = [&[kind, 0, 0, 0][..], &body].concat();
        if let Some(again) = walk_request(&request) {
            prop_assert_eq!(again, request);
        }
        let reply: Vec<u8> = [&[kind, 0, status, 0][..], &body].concat();
        if let Some(again) = walk_reply(&reply) {
            prop_assert_eq!(again, reply);
        }
    }

    #[test]
    fn decode_an_encoded_request_gives_it_back(message in request()) {
        prop_assert_eq!(walk_request(&message), Some(message));
    }

    #[test]
    fn decode_a_damaged_request_gives_a_message_or_an_error(
        message in request(), at in any::<Index>(), byte in any::<u8>(), cut in any::<Index>()
    ) {
        let mut damaged = message;
        let at = at.index(damaged.len());
        damaged[at] = byte;
        if let Some(again) = walk_request(&damaged) {
            prop_assert_eq!(&again, &damaged);
        }
        damaged.truncate(cut.index(damaged.len() + 1));
        walk_request(&damaged);
        walk_reply(&damaged);
    }

    #[test]
    fn decode_a_damaged_table_or_hint_gives_one_or_an_error(
        texts in vec(("[a-z0-9:]{0,30}", any::<(u32, u32, u64)>()), 0..20),
        route in (key(), key(), 1..=u32::MAX, any::<bool>()),
        at in any::<Index>(), byte in any::<u8>(), cut in any::<Index>()
    ) {
        let row = |(text, (a, b, c)): &'_ (String, (u32, u32, u64))| (text.clone(), *a, *b, *c);
        let owned: Vec<_> = texts.iter().map(row).collect();
        let rows: Vec<TableRow<'_>> = owned.iter().map(|(text, a, b, c)| TableRow {
            pair: PairId(*a),
            node: NodeId(*b),
            owner: Incarnation(*c),
            epoch: Epoch(*a),
            state: OwnedState::ALL[*b as usize % OwnedState::ALL.len()],
            address: text,
            http: &text[text.len() / 2..],
        }).collect();
        let table = TableReport { revision: 7, rows_all: 30, rows: TableRows::List(&rows) };
        let (low, high, pair, bounded) = &route;
        let hint = Route { low, high: bounded.then_some(high), pair: PairId(*pair) };
        for reply in [Reply::Table(table), Reply::Elsewhere(hint)] {
            let mut message = Vec::new();
            reply.encode(&header(), &mut message).unwrap();
            prop_assert_eq!(Reply::decode(&message), Ok((header(), reply)));
            prop_assert_eq!(walk_reply(&message), Some(message.clone()));
            let at = at.index(message.len());
            message[at] = byte;
            if let Some(again) = walk_reply(&message) {
                prop_assert_eq!(&again, &message);
            }
            message.truncate(cut.index(message.len() + 1));
            walk_reply(&message);
        }
    }

    #[test]
    fn decode_a_damaged_answer_to_a_report_gives_one_or_an_error(
        revision in any::<u64>(), texts in vec(("[a-z_]{0,30}", ".{0,30}"), 0..20),
        at in any::<Index>(), byte in any::<u8>(), cut in any::<Index>()
    ) {
        let list: Vec<_> = texts.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let reply = Reply::Reported(ClientReportReply {
            settings_revision: revision,
            values: SettingValues::fitting(&list),
        });
        let mut message = Vec::new();
        reply.encode(&header(), &mut message).unwrap();
        prop_assert_eq!(Reply::decode(&message), Ok((header(), reply)));
        prop_assert_eq!(walk_reply(&message), Some(message.clone()));
        let at = at.index(message.len());
        message[at] = byte;
        if let Some(again) = walk_reply(&message) {
            prop_assert_eq!(&again, &message);
        }
        message.truncate(cut.index(message.len() + 1));
        walk_reply(&message);
    }

    #[test]
    fn decode_a_damaged_page_gives_a_page_or_an_error(
        entries in vec((key(), key()), 0..20), at in any::<Index>(), byte in any::<u8>()
    ) {
        let (mut message, _) = page(&entries, (0, 0), Some(b"resume"));
        prop_assert_eq!(walk_reply(&message), Some(message.clone()));
        let at = at.index(message.len());
        message[at] = byte;
        if let Some(again) = walk_reply(&message) {
            prop_assert_eq!(again, message);
        }
    }
}

proptest! {
    #[test]
    fn page_of_any_entries_keeps_its_limits_and_advances(
        entries in vec((vec(any::<u8>(), 0..KEY_BYTES_MAX), vec(any::<u8>(), 0..20_000)), 1..20),
        limits in (0u32..10, 0u32..80_000)
    ) {
        let resume = [0xFF; KEY_BYTES_MAX];
        let (message, taken) = page(&entries, limits, Some(&resume));
        prop_assert!(message.len() <= MESSAGE_BYTES_MAX);
        prop_assert!(taken >= 1);
        prop_assert!(limits.0 == 0 || taken <= limits.0 as usize);
        let (_, Reply::Page(page)) = Reply::decode(&message).unwrap() else { unreachable!() };
        for (entry, (key, value)) in page.iter().zip(&entries) {
            prop_assert_eq!(entry.key, key.as_slice());
            prop_assert_eq!(entry.value, EntryValue::Inline(value));
        }
        prop_assert_eq!(page.resume, Bound::Excluded(&resume));
    }

    #[test]
    fn values_of_any_size_answer_every_key(sizes in vec(0usize..30_000, 1..60)) {
        let mut request = Vec::new();
        let mut keys = KeysWriter::begin(RequestHeader::default(), &mut request).unwrap();
        sizes.iter().for_each(|_| keys.push(b"key").unwrap());
        keys.finish();
        let (_, Request::MultiGet(keys)) = Request::decode(&request).unwrap() else { unreachable!() };
        let mut out = Vec::new();
        let mut values = ValuesWriter::begin(&header(), &keys, &mut out).unwrap();
        for &size in &sizes {
            values.push(Found::Value { version: Version::default(), value: &vec![7; size] }).unwrap();
        }
        prop_assert!(values.push(Found::Absent).is_err());
        values.finish();
        let (_, Reply::Values(values)) = Reply::decode(&out).unwrap() else { unreachable!() };
        prop_assert_eq!(values.len(), sizes.len());
        for (found, size) in values.iter().zip(sizes) {
            match found {
                Found::Value { value, .. } => prop_assert_eq!(value.len(), size),
                Found::Large { value_len, .. } => prop_assert_eq!(value_len as usize, size),
                Found::Absent => prop_assert!(false, "there was a value"),
            }
        }
    }
}

#[test]
fn encode_the_longest_fits_and_one_byte_more_leaves_nothing() {
    let mut out = b"before".to_vec();
    let name = WriteName { session: SessionId(1), number: OperationNumber(1), floor: OperationNumber(1) };
    let key = [1; KEY_BYTES_MAX];
    let bytes = vec![0; MESSAGE_BYTES_MAX];
    let put = |len: usize| {
        Request::Put(Put { name, condition: Condition::Always, key: &key, value: &bytes[..len] })
    };
    let longest = put_value_bytes_max(key.len());
    assert!(matches!(
        put(longest + 1).encode(RequestHeader::default(), &mut out),
        Err(EncodeError::TooLong { .. })
    ));
    assert_eq!(out, b"before");
    put(longest).encode(RequestHeader::default(), &mut out).unwrap();
    assert_eq!(out.len(), 6 + MESSAGE_BYTES_MAX);

    out.clear();
    let value = |len: usize| Reply::Value { version: Version::default(), value: &bytes[..len] };
    value(reply::VALUE_INLINE_BYTES_MAX).encode(&header(), &mut out).unwrap();
    assert_eq!(out.len(), MESSAGE_BYTES_MAX);
    assert!(value(reply::VALUE_INLINE_BYTES_MAX + 1).encode(&header(), &mut out).is_err());

    out.clear();
    Reply::Chunk(Chunk { offset: 0, bytes: &bytes[..CHUNK_BYTES_MAX] }).encode(&header(), &mut out).unwrap();
    assert_eq!(out.len(), MESSAGE_BYTES_MAX);
    let long_key = [0; KEY_BYTES_MAX + 1];
    let search = Request::Search { key: &long_key };
    assert_eq!(
        search.encode(RequestHeader::default(), &mut out),
        Err(EncodeError::Key { len: long_key.len() })
    );
    assert!(Reply::decode(&vec![0; MESSAGE_BYTES_MAX + 1]).is_err());
}

#[test]
fn encode_with_capacity_allocates_nothing() {
    let mut out = Vec::with_capacity(MESSAGE_BYTES_MAX);
    let before = out.as_ptr();
    let value = vec![0; put_value_bytes_max(3)];
    let name = WriteName { session: SessionId(1), number: OperationNumber(1), floor: OperationNumber(1) };
    let put = Put { name, condition: Condition::Always, key: b"key", value: &value };
    Request::Put(put).encode(RequestHeader::default(), &mut out).unwrap();
    assert_eq!((out.len(), out.as_ptr()), (MESSAGE_BYTES_MAX, before));
}
