//! The bytes of the wire are pinned: `golden/messages-VERSION.txt` holds one message of each kind. A
//! difference is a new protocol version, not a new golden file. `CELL_BLESS=1` writes the file of a version
//! that has none yet.
#![allow(clippy::unwrap_used, reason = "a test's helper may give up")]

use cell_protocol::header::{REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES};
use cell_protocol::*;
use cell_terms::{
    Csn, Epoch, Incarnation, NodeId, OperationNumber, PairId, RegionId, SessionId, SlotIndex, Version,
    Watermark,
};
use std::fmt::Write as _;

const VERSION: Version = Version { pair: PairId(3), epoch: Epoch(2), csn: Csn(0x0102_0304_0506_0708) };
const NAME: WriteName =
    WriteName { session: SessionId(0xABCD), number: OperationNumber(7), floor: OperationNumber(5) };

fn request_header() -> RequestHeader {
    RequestHeader { id: RequestId(0x1122_3344_5566_7788), pair: PairId(3) }
}

fn reply_header() -> ReplyHeader {
    ReplyHeader {
        id: RequestId(0x1122_3344_5566_7788),
        pair: PairId(3),
        watermark: Watermark { epoch: Epoch(2), csn: Csn(99) },
        trust_us: 1_500_000,
        list: 4,
    }
}

fn requests() -> Vec<Request<'static>> {
    let version = PROTOCOL_VERSION;
    vec![
        Request::Hello(Hello { version, name: "bench", token: b"tk", stream_credit_bytes: 1 << 20 }),
        Request::OpenSession,
        Request::CloseSession { session: SessionId(9) },
        Request::KeepAlive { session: None },
        Request::Search { key: b"key" },
        Request::Get { key: b"key" },
        Request::Put(Put {
            name: NAME,
            condition: Condition::IfVersion(VERSION),
            key: b"key",
            value: b"val",
        }),
        Request::Put(Put { name: NAME, condition: Condition::IfAbsent, key: b"key", value: b"" }),
        Request::Put(Put { name: NAME, condition: Condition::IfPresent, key: b"key", value: b"v" }),
        Request::Delete(Delete { name: NAME, condition: Condition::Always, key: b"key" }),
        Request::Scan(Scan {
            start: Bound::Included(b"a"),
            end: Bound::Excluded(b"zz"),
            reverse: true,
            keys_only: true,
            limit_entries: 10,
            limit_bytes: 4096,
        }),
        Request::Status,
        Request::Check,
        Request::PutBegin(PutBegin {
            name: NAME,
            condition: Condition::Always,
            key: b"key",
            value_len: 70_000,
            value_crc: 0xC0FF_EE00_DDBA_11AD,
        }),
        Request::Chunk(Chunk { offset: 65_000, bytes: b"chunk" }),
        Request::Credit { bytes: 65_536 },
        Request::Cancel,
        Request::Regions,
        Request::Tree { from: 3 },
        Request::Table { from: 2 },
        Request::Report(report()),
    ]
}

const REPORTED_READS: [ReportedRead; 2] = [
    ReportedRead { pair: PairId(3), slot: SlotIndex(1), reads: 0x0102_0304 },
    ReportedRead { pair: PairId(4), slot: SlotIndex(0), reads: 7 },
];

fn report() -> ClientReport<'static> {
    ClientReport {
        client: 0x0102_0304_0506_0708,
        settings_revision: 3,
        interval_ns: 1_000_000_001,
        estimates: ClientEstimates {
            server_ns: 30_000,
            read_ns: 6_000,
            rtt_ns: 5_000,
            one_sided_ns: 0,
            reads_thousandths: 1_250,
            share_millionths: Some(250_000),
        },
        in_hand: 16,
        transport: ReportTransport::Shm,
        policy: ReportPolicy::Paper,
        counts: ClientCounts::from_array(std::array::from_fn(|at| 100 + at as u64)),
        reported_reads: ReportedReads::List(&REPORTED_READS),
        reads_elsewhere: 0xFE,
        name: "17@host",
    }
}

fn refusals() -> Vec<Refusal> {
    vec![
        Refusal::ConditionFailed { current: None },
        Refusal::ConditionFailed { current: Some(VERSION) },
        Refusal::Busy,
        Refusal::ReadOnly { reason: ReadOnlyReason::RegionFull },
        Refusal::KeyInvalid { len: 500, max: 160 },
        Refusal::ValueTooLarge { len: 1 << 25, max: 1 << 24 },
        Refusal::SessionUnknown,
        Refusal::NumberBelowFloor { floor: OperationNumber(12) },
        Refusal::Recovering,
        Refusal::NotOwner,
        Refusal::Malformed { what: Malformed::Trailing },
        Refusal::TooLong { len: 2000, max: 1024 },
        Refusal::Shutdown,
        Refusal::Internal,
        Refusal::VersionUnsupported { min: 1, max: 2 },
        Refusal::Unauthorized,
        Refusal::CoordinatorAway,
    ]
}

fn pair(state: PairActivity) -> PairStatus {
    PairStatus {
        pair: PairId(3),
        epoch: Epoch(2),
        state,
        worker: 1,
        durable: Csn(10),
        visible: Csn(11),
        checkpoint: Csn(5),
        entries: 1000,
        node_bytes_used: 1 << 20,
        node_bytes: 1 << 26,
        extent_bytes_used: 1 << 21,
        extent_bytes: 1 << 27,
        log_bytes: 1 << 22,
        sessions: 4,
    }
}

const MEGANODE: MeganodeRow = MeganodeRow {
    pair: PairId(3),
    slot: SlotIndex(5),
    used: MeganodeUse::Adopted,
    height: 3,
    nodes: 100,
    nodes_all: 128,
    entries: 1_000,
    low_len: 3,
    low: *b"low\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
};

const ROW: PairRegions = PairRegions {
    pair: PairId(3),
    epoch: Epoch(2),
    node_region: RegionId(6),
    extent_region: RegionId(7),
    node_key: 0x0102_0304_0506_0708,
    extent_key: 0x1112_1314_1516_1718,
    node_region_bytes: 1 << 31,
    extent_region_bytes: 1 << 33,
    slot_bytes: 1 << 26,
    tree_node_bytes: 1024,
    header_bytes: 4096,
    node_crc: true,
};

const TABLE: [TableRow<'static>; 2] = [
    TableRow {
        pair: PairId(3),
        node: NodeId(4),
        owner: Incarnation(77),
        epoch: Epoch(2),
        state: OwnedState::Serving,
        address: "127.0.0.1:7000",
        http: "127.0.0.1:7001",
    },
    TableRow {
        pair: PairId(0),
        node: NodeId(5),
        owner: Incarnation(78),
        epoch: Epoch(0),
        state: OwnedState::New,
        address: "",
        http: "",
    },
];

fn replies(pairs: &[PairStatus]) -> Vec<Reply<'_>> {
    let limits = Limits {
        key_bytes_max: 160,
        value_bytes_max: 1 << 24,
        in_flight_max: 1024,
        streams_max: 64,
        scan_entries_max: 1000,
        stream_credit_bytes: 0,
        idle_ms: 60_000,
    };
    let mut replies = vec![
        Reply::Hello(HelloReply {
            version: PROTOCOL_VERSION,
            node: NodeId(4),
            incarnation: Incarnation(77),
            limits,
            name: "cell 0.1.0",
        }),
        Reply::Session { session: SessionId(0xABCD), idle_ms: 60_000 },
        Reply::SessionClosed,
        Reply::Alive,
        Reply::Exists,
        Reply::Value { version: VERSION, value: b"val" },
        Reply::Written { version: VERSION },
        Reply::Deleted,
        Reply::Status(StatusReport {
            node: NodeId(4),
            incarnation: Incarnation(77),
            uptime_ms: 123,
            workers: 2,
            connections: 9,
            pairs: PairStatuses::List(pairs),
            warnings: "",
            coordinator: "",
        }),
        Reply::Status(StatusReport {
            node: NodeId(4),
            incarnation: Incarnation(77),
            uptime_ms: 123,
            workers: 1,
            connections: 0,
            pairs: PairStatuses::List(&pairs[..1]),
            warnings: "one thing\nand another",
            coordinator: "",
        }),
        Reply::Checked(CheckReport {
            meganodes: 1,
            tree_nodes: 2,
            entries: 3,
            extent_bytes: 4,
            violations: 5,
            duration_us: 6,
            first_violation: "node 7: keys out of order",
        }),
        Reply::ValueBegin(ValueBegin { version: VERSION, value_len: 70_000, value_crc: 1 }),
        Reply::Chunk(Chunk { offset: 0, bytes: b"chunk" }),
        Reply::Credit { bytes: 1 },
        Reply::NotFound,
        Reply::Tree(TreeReport {
            meganodes: 2,
            root: 0x0201,
            splits: [4, 2, 1, 1],
            rows: TreeRows::List(&[MEGANODE]),
        }),
        Reply::Table(TableReport { revision: 77, rows_all: 9, rows: TableRows::List(&TABLE) }),
        Reply::Reported(ClientReportReply { settings_revision: 0, values: SettingValues::List(&[]) }),
        Reply::Reported(ClientReportReply {
            settings_revision: 4,
            values: SettingValues::List(&[("client_selector_policy", "paper"), ("other", "")]),
        }),
        Reply::Elsewhere(Route { low: b"low", high: Some(b"lower"), pair: PairId(3) }),
        Reply::Elsewhere(Route { low: b"", high: None, pair: PairId(4) }),
        Reply::Regions(RegionsReply {
            reads_permitted: true,
            one_sided_max_us: 200_000,
            list: 4,
            pairs: RegionRows::List(&[ROW, PairRegions { pair: PairId(4), node_crc: false, ..ROW }]),
        }),
    ];
    replies.extend(refusals().into_iter().map(Reply::Refused));
    replies
}

fn multi_get(out: &mut Vec<u8>) {
    let mut keys = KeysWriter::begin(request_header(), out).unwrap();
    keys.push(b"one").unwrap();
    keys.push(b"").unwrap();
    keys.finish();
}

fn values(out: &mut Vec<u8>) {
    let mut request = Vec::new();
    let mut keys = KeysWriter::begin(request_header(), &mut request).unwrap();
    (0..3).for_each(|_| keys.push(b"k").unwrap());
    keys.finish();
    let (_, Request::MultiGet(keys)) = Request::decode(&request).unwrap() else { unreachable!() };
    let mut values = ValuesWriter::begin(&reply_header(), &keys, out).unwrap();
    values.push(Found::Absent).unwrap();
    values.push(Found::Value { version: VERSION, value: b"val" }).unwrap();
    values.push(Found::Large { version: VERSION, value_len: 70_000 }).unwrap();
    values.finish();
}

fn page(out: &mut Vec<u8>, resume: Option<Bound<'_>>) {
    let mut page = PageWriter::begin(&reply_header(), 0, 0, out).unwrap();
    let values = [
        EntryValue::Inline(b"val"),
        EntryValue::Large { value_len: 70_000 },
        EntryValue::Omitted { value_len: 3 },
    ];
    for value in values {
        assert!(page.push(&Entry { key: b"key", version: VERSION, value }).unwrap());
    }
    page.finish(resume).unwrap();
}

/// One message of each kind, with its name.
fn messages() -> Vec<(String, Vec<u8>)> {
    let mut messages = Vec::new();
    for request in requests() {
        let mut bytes = Vec::new();
        request.encode(request_header(), &mut bytes).unwrap();
        messages.push((format!("request {:?}", request.kind()), bytes));
    }
    let reason = ReadOnlyReason::DiskFull;
    let states = [
        PairActivity::Serving,
        PairActivity::ReadOnly(reason),
        PairActivity::Recovering { permille: 500 },
        PairActivity::Unavailable,
    ];
    for reply in replies(&states.map(pair)) {
        let mut bytes = Vec::new();
        reply.encode(&reply_header(), &mut bytes).unwrap();
        messages.push((format!("reply {:?} {:?}", reply.kind(), reply.status()), bytes));
    }
    let mut add = |name: &str, make: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        make(&mut bytes);
        messages.push((name.to_owned(), bytes));
    };
    add("request MultiGet", &multi_get);
    add("reply Values Ok", &values);
    add("reply Page Ok, done", &|out| page(out, None));
    add("reply Page Ok, to go on", &|out| page(out, Some(Bound::Excluded(b"key"))));
    messages
}

fn hex(messages: &[(String, Vec<u8>)]) -> String {
    let mut text = String::from("# One message of each kind: a line of name, then lines of 16 bytes.\n");
    for (name, bytes) in messages {
        writeln!(text, "\n{name}").unwrap();
        for line in bytes.chunks(16) {
            let line: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(text, "  {}", line.join(" ")).unwrap();
        }
    }
    text
}

#[test]
fn encode_one_message_of_each_kind_gives_the_golden_bytes() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let path = format!("{folder}/messages-{PROTOCOL_VERSION}.txt");
    let text = hex(&messages());
    if std::env::var_os("CELL_BLESS").is_some() {
        let new = std::fs::File::create_new(&path);
        let _ = new.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(golden, text, "other bytes are another PROTOCOL_VERSION");
}

#[test]
fn decode_one_message_of_each_kind_gives_it_back() {
    for request in requests() {
        let mut bytes = Vec::new();
        request.encode(request_header(), &mut bytes).unwrap();
        assert_eq!(Request::decode(&bytes), Ok((request_header(), request)));
        assert_eq!(RequestHeader::peek(&bytes), Some(request_header()));
    }
    for reply in replies(&[pair(PairActivity::Serving)]) {
        let mut bytes = Vec::new();
        reply.encode(&reply_header(), &mut bytes).unwrap();
        assert_eq!(Reply::decode(&bytes), Ok((reply_header(), reply)));
    }
}

#[test]
fn messages_cover_every_kind_and_status() {
    let messages = messages();
    let has = |first: &str, kind: String| {
        messages.iter().any(|(name, _)| name.starts_with(&format!("{first} {kind}")))
    };
    assert!(RequestKind::ALL.iter().all(|kind| has("request", format!("{kind:?}"))));
    assert!(ReplyKind::ALL.iter().all(|kind| has("reply", format!("{kind:?}"))));
    let refused = |status: &&StatusCode| !matches!(status, StatusCode::Ok | StatusCode::NotFound);
    assert!(StatusCode::ALL.iter().filter(refused).all(|status| has("reply", format!("Refused {status:?}"))));
}

#[test]
fn decode_every_cut_of_a_message_is_refused() {
    for (name, bytes) in messages() {
        for len in 0..bytes.len() {
            let refused = if name.starts_with("request") {
                Request::decode(&bytes[..len]).is_err()
            } else {
                Reply::decode(&bytes[..len]).is_err()
            };
            assert!(refused, "{name} cut to {len} of {} bytes", bytes.len());
        }
        let mut longer = bytes.clone();
        longer.push(0);
        let refused = if name.starts_with("request") {
            Request::decode(&longer).is_err()
        } else {
            Reply::decode(&longer).is_err()
        };
        assert!(refused, "{name} with a byte more");
    }
}

#[test]
fn decode_another_version_names_it() {
    let mut bytes = Vec::new();
    requests()[0].encode(request_header(), &mut bytes).unwrap();
    bytes[REQUEST_HEADER_BYTES + 8] = 0xFE;
    assert_eq!(Request::decode(&bytes), Err(DecodeError::Version { version: 0xFE }));
    bytes[REQUEST_HEADER_BYTES] = b'X';
    assert_eq!(Request::decode(&bytes), Err(DecodeError::Magic));
}

#[test]
fn stamp_an_encoded_reply_changes_only_watermark_and_lease() {
    let mut bytes = Vec::new();
    Reply::Exists.encode(&ReplyHeader { id: RequestId(5), ..ReplyHeader::default() }, &mut bytes).unwrap();
    ReplyHeader { id: RequestId(6), ..reply_header() }.stamp(&mut bytes);
    let (header, reply) = Reply::decode(&bytes).unwrap();
    assert_eq!(header, ReplyHeader { id: RequestId(5), pair: PairId(0), ..reply_header() });
    assert_eq!(reply, Reply::Exists);
    assert_eq!(bytes.len(), REPLY_HEADER_BYTES);
}

#[test]
fn stamp_an_encoded_write_changes_only_its_name_and_id() {
    let put = Put { name: NAME, condition: Condition::IfVersion(VERSION), key: b"key", value: b"val" };
    let mut bytes = Vec::new();
    Request::Put(put).encode(request_header(), &mut bytes).unwrap();
    let header = RequestHeader { id: RequestId(1), pair: PairId(2) };
    let name = WriteName { session: SessionId(3), number: OperationNumber(5), floor: OperationNumber(4) };
    header.stamp(&mut bytes);
    name.stamp(&mut bytes);
    assert_eq!(Request::decode(&bytes), Ok((header, Request::Put(Put { name, ..put }))));
}
