//! A small server: sessions, exactly-once results, floors, streams with credit, scans. It does what the
//! protocol says a worker does, in memory, one message at a time, and keeps a record of every write that it
//! applied.

#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a test's server may give up")]

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound as Limit;

use cell_client::Fate;
use cell_protocol::stream::CHUNK_BYTES_MAX;
use cell_protocol::{
    Bound, CheckReport, Chunk, ClientReportReply, Condition, Entry, EntryValue, Found, HelloReply, Limits,
    PageWriter, PairStatuses, Refusal, Reply, ReplyHeader, Request, RequestHeader, RequestId, Scan,
    SettingValues, StatusReport, TableReport, TableRows, ValueBegin, ValuesWriter, WriteName,
    reply::VALUE_INLINE_BYTES_MAX,
};
use cell_terms::{Csn, Epoch, Incarnation, NodeId, OperationNumber, PairId, SessionId, Version};

pub(crate) const LIMITS: Limits = Limits {
    key_bytes_max: 160,
    value_bytes_max: 16 << 20,
    in_flight_max: 1024,
    streams_max: 64,
    scan_entries_max: 1000,
    stream_credit_bytes: 0,
    idle_ms: 60_000,
};

/// A write that a test has submitted, and how it ended.
pub(crate) struct Write {
    pub(crate) key: Vec<u8>,
    /// Names the write.
    pub(crate) value: Vec<u8>,
    pub(crate) deadline_ns: u64,
    pub(crate) fate: Option<Result<(), Fate>>,
}

impl Write {
    /// How often the server has applied it.
    pub(crate) fn applied(&self, server: &Server) -> usize {
        let same = |one: &&Applied| one.value.as_ref() == Some(&self.value) && one.key == self.key;
        server.applied.iter().filter(same).count()
    }

    /// What it was said to be is what was done.
    pub(crate) fn check(&self, server: &Server) {
        let applied = self.applied(server);
        match self.fate.expect("a completion") {
            Ok(()) => assert_eq!(applied, 1),
            Err(Fate::NotDone) => assert_eq!(applied, 0, "said to be not done"),
            Err(Fate::Unknown) => assert!(applied <= 1),
        }
    }
}

/// A write that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) session: SessionId,
    pub(crate) number: OperationNumber,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Written(Version),
    Deleted,
    NotFound,
    ConditionFailed(Option<Version>),
}

#[derive(Debug, Default)]
struct SessionState {
    floor: u64,
    results: BTreeMap<u64, Outcome>,
}

#[derive(Debug)]
enum Stream {
    Put { begin: OwnedPut, value_len: usize, value_crc: u64, granted: usize },
    Get { value: Vec<u8>, sent: usize, credit: usize },
}

#[derive(Clone, Debug)]
struct OwnedPut {
    name: WriteName,
    condition: Condition,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// One connection's state.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    greeted: bool,
    credit: usize,
    streams: HashMap<RequestId, Stream>,
}

impl Peer {
    pub(crate) fn open_streams(&self) -> usize {
        self.streams.len()
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) limits: Limits,
    pub(crate) credit_step: u32,
    pub(crate) session_idle_ms: u32,
    pub(crate) entries: BTreeMap<Vec<u8>, (Version, Vec<u8>)>,
    pub(crate) applied: Vec<Applied>,
    /// Pages of scans that were asked for.
    pub(crate) scans: usize,
    /// Gets that were asked for.
    pub(crate) gets: usize,
    /// Answers to multi-gets wait until there are so many.
    pub(crate) multi_gets_together: usize,
    held_answers: Vec<Vec<u8>>,
    sessions: HashMap<SessionId, SessionState>,
    next_session: u64,
    csn: u64,
}

impl Default for Server {
    fn default() -> Server {
        Server {
            limits: LIMITS,
            credit_step: 100_000,
            session_idle_ms: 0,
            entries: BTreeMap::new(),
            applied: Vec::new(),
            scans: 0,
            gets: 0,
            multi_gets_together: 1,
            held_answers: Vec::new(),
            sessions: HashMap::new(),
            next_session: 1,
            csn: 0,
        }
    }
}

pub(crate) fn header(id: RequestId) -> ReplyHeader {
    ReplyHeader { id, pair: PairId(1), ..ReplyHeader::default() }
}

pub(crate) fn encode(id: RequestId, reply: &Reply<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    reply.encode(&header(id), &mut out).unwrap();
    out
}

/// The answer to a report: nothing is set.
pub(crate) fn reported() -> Reply<'static> {
    Reply::Reported(ClientReportReply { settings_revision: 0, values: SettingValues::List(&[]) })
}

pub(crate) fn refusal(id: RequestId, refusal: Refusal) -> Vec<u8> {
    encode(id, &Reply::Refused(refusal))
}

fn version(csn: u64) -> Version {
    Version { pair: PairId(1), epoch: Epoch(1), csn: Csn(csn) }
}

/// The answer to a question for the region table, if a message is one: nothing is in it.
pub(crate) fn table_answer(message: &[u8]) -> Option<Vec<u8>> {
    let (RequestHeader { id, .. }, Request::Table { .. }) = Request::decode(message).ok()? else {
        return None;
    };
    Some(empty_table(id))
}

fn empty_table(id: RequestId) -> Vec<u8> {
    let rows = TableRows::List(&[]);
    encode(id, &Reply::Table(TableReport { revision: 1, rows_all: 0, rows }))
}

impl Server {
    /// Forgets a session, as if it had ended in the coordinator.
    pub(crate) fn end_sessions(&mut self) {
        self.sessions.clear();
    }

    pub(crate) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Takes a message in; its replies go to `out`, whole messages in order.
    pub(crate) fn handle(&mut self, peer: &mut Peer, message: &[u8], out: &mut Vec<Vec<u8>>) {
        let (RequestHeader { id, .. }, request) =
            Request::decode(message).expect("the client sends requests");
        assert!(peer.greeted || matches!(request, Request::Hello(_)), "the first message is a hello");
        match request {
            Request::Hello(hello) => {
                assert!(!peer.greeted);
                *peer = Peer { greeted: true, credit: hello.stream_credit_bytes as usize, ..Peer::default() };
                let (node, incarnation, limits) = (NodeId(1), Incarnation(1), self.limits);
                let hello = HelloReply { version: hello.version, node, incarnation, limits, name: "model" };
                out.push(encode(id, &Reply::Hello(hello)));
            }
            Request::OpenSession => {
                let session = SessionId(self.next_session);
                self.next_session += 1;
                self.sessions.insert(session, SessionState { floor: 1, ..SessionState::default() });
                out.push(encode(id, &Reply::Session { session, idle_ms: self.session_idle_ms }));
            }
            Request::CloseSession { session } => {
                self.sessions.remove(&session);
                out.push(encode(id, &Reply::SessionClosed));
            }
            Request::KeepAlive { session } => {
                let known = session.is_none_or(|session| self.sessions.contains_key(&session));
                let reply = if known { Reply::Alive } else { Reply::Refused(Refusal::SessionUnknown) };
                out.push(encode(id, &reply));
            }
            Request::Put(put) => {
                let (name, condition) = (put.name, put.condition);
                let put = OwnedPut { name, condition, key: put.key.to_vec(), value: put.value.to_vec() };
                out.push(self.write(id, &put, false));
            }
            Request::Delete(delete) => {
                let (name, condition) = (delete.name, delete.condition);
                let key = delete.key.to_vec();
                out.push(self.write(id, &OwnedPut { name, condition, key, value: Vec::new() }, true));
            }
            Request::PutBegin(begin) => {
                if let Some(reply) = self.known(begin.name) {
                    out.push(encode(id, &reply));
                    return;
                }
                let (name, condition) = (begin.name, begin.condition);
                let put = OwnedPut { name, condition, key: begin.key.to_vec(), value: Vec::new() };
                let value_len = begin.value_len as usize;
                if peer.streams.len() >= self.limits.streams_max as usize {
                    out.push(refusal(id, Refusal::Busy));
                    return;
                }
                let mut granted = self.limits.stream_credit_bytes as usize;
                if granted == 0 {
                    out.push(encode(id, &Reply::Credit { bytes: self.credit_step }));
                    granted = self.credit_step as usize;
                }
                let value_crc = begin.value_crc;
                peer.streams.insert(id, Stream::Put { begin: put, value_len, value_crc, granted });
            }
            Request::Chunk(chunk) => self.chunk(peer, id, &chunk, out),
            Request::Credit { bytes } => {
                if let Some(Stream::Get { credit, .. }) = peer.streams.get_mut(&id) {
                    *credit += bytes as usize;
                }
                Server::go_on(peer, id, out);
            }
            Request::Cancel => drop(peer.streams.remove(&id)),
            read => {
                self.gets += usize::from(matches!(read, Request::Get { .. }));
                self.read(peer, id, read, out);
            }
        }
    }

    fn read(&mut self, peer: &mut Peer, id: RequestId, request: Request<'_>, out: &mut Vec<Vec<u8>>) {
        match request {
            Request::Search { key } => {
                let reply = if self.entries.contains_key(key) { Reply::Exists } else { Reply::NotFound };
                out.push(encode(id, &reply));
            }
            Request::Get { key } => match self.entries.get(key) {
                None => out.push(encode(id, &Reply::NotFound)),
                Some(&(version, ref value)) if value.len() <= VALUE_INLINE_BYTES_MAX => {
                    out.push(encode(id, &Reply::Value { version, value }));
                }
                Some(&(version, ref value)) => {
                    let (value_len, value_crc) = (u32::try_from(value.len()).unwrap(), crc(value));
                    out.push(encode(id, &Reply::ValueBegin(ValueBegin { version, value_len, value_crc })));
                    let stream = Stream::Get { value: value.clone(), sent: 0, credit: peer.credit };
                    peer.streams.insert(id, stream);
                    Server::go_on(peer, id, out);
                }
            },
            Request::MultiGet(keys) => {
                let mut reply = Vec::new();
                let mut values = ValuesWriter::begin(&header(id), &keys, &mut reply).unwrap();
                for key in keys.iter() {
                    let found = self
                        .entries
                        .get(key)
                        .map_or(Found::Absent, |&(version, ref value)| Found::Value { version, value });
                    values.push(found).unwrap();
                }
                values.finish();
                self.held_answers.push(reply);
                if self.held_answers.len() >= self.multi_gets_together {
                    out.append(&mut self.held_answers);
                }
            }
            Request::Scan(scan) => {
                self.scans += 1;
                out.push(self.page(id, &scan));
            }
            Request::Table { .. } => out.push(empty_table(id)),
            Request::Regions => out.push(refusal(id, Refusal::Recovering)),
            Request::Report(_) => out.push(encode(id, &reported())),
            Request::Status => {
                let pairs = PairStatuses::List(&[]);
                let (node, incarnation) = (NodeId(1), Incarnation(1));
                let report = StatusReport {
                    node,
                    incarnation,
                    uptime_ms: 1,
                    workers: 1,
                    connections: 1,
                    pairs,
                    warnings: "",
                    coordinator: "",
                };
                out.push(encode(id, &Reply::Status(report)));
            }
            Request::Check => {
                let entries = self.entries.len() as u64;
                out.push(encode(id, &Reply::Checked(CheckReport { entries, ..CheckReport::default() })));
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn page(&self, id: RequestId, scan: &Scan<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut page =
            PageWriter::begin(&header(id), scan.limit_entries, scan.limit_bytes, &mut out).unwrap();
        let limits = (limit(scan.start), limit(scan.end));
        let empty = match (scan.start.key(), scan.end.key()) {
            (Some(start), Some(end)) => start >= end,
            _ => false,
        };
        let range = (!empty).then(|| self.entries.range::<[u8], _>(limits)).into_iter().flatten();
        let entries: Vec<_> = range.collect();
        let entries: Box<dyn Iterator<Item = _>> =
            if scan.reverse { Box::new(entries.into_iter().rev()) } else { Box::new(entries.into_iter()) };
        for (key, (version, value)) in entries {
            let value_len = u32::try_from(value.len()).unwrap();
            let value =
                if scan.keys_only { EntryValue::Omitted { value_len } } else { EntryValue::Inline(value) };
            if !page.push(&Entry { key, version: *version, value }).unwrap() {
                page.finish(Some(Bound::Included(key))).unwrap();
                return out;
            }
        }
        page.finish(None).unwrap();
        out
    }

    /// Sends as much of a get's value as there is credit for.
    fn go_on(peer: &mut Peer, id: RequestId, out: &mut Vec<Vec<u8>>) {
        let Some(Stream::Get { value, sent, credit }) = peer.streams.get_mut(&id) else { return };
        while *credit > 0 && *sent < value.len() {
            let len = (*credit).min(CHUNK_BYTES_MAX).min(value.len() - *sent);
            let offset = u32::try_from(*sent).unwrap();
            out.push(encode(id, &Reply::Chunk(Chunk { offset, bytes: &value[*sent..*sent + len] })));
            *sent += len;
            *credit -= len;
        }
        if *sent == value.len() {
            peer.streams.remove(&id);
        }
    }

    fn chunk(&mut self, peer: &mut Peer, id: RequestId, chunk: &Chunk<'_>, out: &mut Vec<Vec<u8>>) {
        let Some(Stream::Put { begin, value_len, value_crc, granted }) = peer.streams.get_mut(&id) else {
            return;
        };
        assert_eq!(chunk.offset as usize, begin.value.len(), "chunks follow one another");
        begin.value.extend_from_slice(chunk.bytes);
        assert!(begin.value.len() <= *granted, "no more than there was credit for");
        if begin.value.len() < *value_len {
            if begin.value.len() == *granted {
                *granted += self.credit_step as usize;
                out.push(encode(id, &Reply::Credit { bytes: self.credit_step }));
            }
            return;
        }
        assert_eq!(crc(&begin.value), *value_crc);
        let put = begin.clone();
        peer.streams.remove(&id);
        out.push(self.write(id, &put, false));
    }

    /// What is known of a write already: its recorded result, or why it is refused.
    fn known(&mut self, name: WriteName) -> Option<Reply<'static>> {
        let Some(session) = self.sessions.get_mut(&name.session) else {
            return Some(Reply::Refused(Refusal::SessionUnknown));
        };
        session.floor = session.floor.max(name.floor.0);
        let floor = session.floor;
        session.results.retain(|&number, _| number >= floor);
        if name.number.0 < floor {
            return Some(Reply::Refused(Refusal::NumberBelowFloor { floor: OperationNumber(floor) }));
        }
        session.results.get(&name.number.0).map(|outcome| match *outcome {
            Outcome::Written(version) => Reply::Written { version },
            Outcome::Deleted => Reply::Deleted,
            Outcome::NotFound => Reply::NotFound,
            Outcome::ConditionFailed(current) => Reply::Refused(Refusal::ConditionFailed { current }),
        })
    }

    fn write(&mut self, id: RequestId, put: &OwnedPut, delete: bool) -> Vec<u8> {
        if let Some(reply) = self.known(put.name) {
            return encode(id, &reply);
        }
        let outcome = self.apply(put, delete);
        let session = self.sessions.get_mut(&put.name.session).unwrap();
        session.results.insert(put.name.number.0, outcome);
        let reply = self.known(put.name).unwrap();
        encode(id, &reply)
    }

    fn apply(&mut self, put: &OwnedPut, delete: bool) -> Outcome {
        let current = self.entries.get(&put.key).map(|&(version, _)| version);
        let holds = match put.condition {
            Condition::Always => true,
            Condition::IfAbsent => current.is_none(),
            Condition::IfPresent => current.is_some(),
            Condition::IfVersion(version) => current == Some(version),
        };
        if !holds {
            return Outcome::ConditionFailed(current);
        }
        if delete && current.is_none() {
            return Outcome::NotFound;
        }
        let (session, number, key) = (put.name.session, put.name.number, put.key.clone());
        let value = (!delete).then(|| put.value.clone());
        self.applied.push(Applied { session, number, key, value });
        self.csn += 1;
        if delete {
            self.entries.remove(&put.key);
            return Outcome::Deleted;
        }
        self.entries.insert(put.key.clone(), (version(self.csn), put.value.clone()));
        Outcome::Written(version(self.csn))
    }
}

fn limit(bound: Bound<'_>) -> Limit<&[u8]> {
    match bound {
        Bound::Unbounded => Limit::Unbounded,
        Bound::Included(key) => Limit::Included(key),
        Bound::Excluded(key) => Limit::Excluded(key),
    }
}

fn crc(bytes: &[u8]) -> u64 {
    let mut digest = crc64fast::Digest::new();
    digest.write(bytes);
    digest.sum64()
}
