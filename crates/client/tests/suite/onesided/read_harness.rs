//! A core that searches itself, a wire and a memory that the test holds in its hands.

use std::collections::{BTreeSet, VecDeque};

use cell_client::{
    ClientCommand, ClientCore, ClientOptions, Completion, LinkId, OneSidedCounters, Operation, Output,
    Search, Ticket,
};
use cell_fabric::{ReadTag, RemoteRead};
use cell_protocol::{
    ClientReportReply, HelloReply, Limits, PROTOCOL_VERSION, PairRegions, Refusal, RegionRows, RegionsReply,
    Reply, ReplyHeader, Request, RequestKind, SettingValues, TableReport, TableRows,
};
use cell_terms::{Epoch, Incarnation, NodeId, PairId, Watermark};

use crate::onesided::owner::{EPOCH, Owner};

pub(crate) const MS: u64 = 1_000_000;

/// The list of registrations that an owner begins with.
pub(crate) const LIST: u64 = 1;

/// The longest operation that the owner permits.
pub(crate) const OPERATION_MS_MAX: u64 = 200;

/// Pair, slot and reads of each meganode that a report named, and the reads of no meganode.
pub(crate) type ReadReport = (Vec<(u32, u32, u64)>, u64);

pub(crate) struct ReadHarness {
    pub(crate) core: ClientCore,
    pub(crate) owner: Owner,
    pub(crate) now_ns: u64,
    /// How long the lease holds when a question comes.
    pub(crate) lease_us: u32,
    /// Which epoch the replies are of.
    pub(crate) reply_epoch: Epoch,
    /// Whether questions are answered.
    pub(crate) answers: bool,
    /// Reads that were posted and not answered.
    pub(crate) posted: Vec<(RemoteRead, ReadTag)>,
    /// Reads answered so far.
    pub(crate) answered: usize,
    /// Requests that the server was asked, hello and such left out.
    pub(crate) asked: Vec<RequestKind>,
    /// Of all requests.
    pub(crate) kinds: Vec<RequestKind>,
    /// What each report said of one-sided reads.
    pub(crate) reports: Vec<ReadReport>,
    /// How often the fabric was asked which regions are mapped.
    pub(crate) mappings_asked: usize,
    /// The regions that it was asked for.
    pub(crate) keys_asked: BTreeSet<u64>,
    /// Which pairs the worker reports.
    pub(crate) pairs_reported: usize,
    /// How long the client's process is stopped right after it has read its clock the next time.
    pub(crate) stop_ns: u64,
    /// What else happens while it is stopped: see [`ReadHarness::clock`].
    pub(crate) meanwhile: Option<fn(&mut Owner, u64)>,
    /// By which times the completions that wait were returned.
    returned_by_ns: VecDeque<u64>,
    last: Option<cell_protocol::RequestId>,
}

pub(crate) fn options() -> ClientOptions {
    ClientOptions { search: Search::Client, report_ms: 0, ..ClientOptions::default() }
}

/// What a reply of the first pair's owner says besides its answer; it promises nothing of its lease.
pub(crate) fn reply_header(owner: &Owner, id: cell_protocol::RequestId) -> ReplyHeader {
    let watermark = Watermark { epoch: EPOCH, csn: owner.pairs[0].visible() };
    ReplyHeader { id, pair: PairId(1), watermark, trust_us: 0, list: LIST }
}

pub(crate) fn server_hello() -> Reply<'static> {
    Reply::Hello(HelloReply {
        version: PROTOCOL_VERSION,
        node: NodeId(1),
        incarnation: Incarnation(1),
        limits: LIMITS,
        name: "harness",
    })
}

/// What a worker with these regions answers to a question that is not about entries.
pub(crate) fn reply_on_itself<'a>(request: &Request<'_>, rows: &'a [PairRegions]) -> Option<Reply<'a>> {
    match request {
        Request::Hello(_) => Some(server_hello()),
        Request::Regions => Some(Reply::Regions(RegionsReply {
            reads_permitted: true,
            one_sided_max_us: u32::try_from(OPERATION_MS_MAX * 1_000).unwrap(),
            list: LIST,
            pairs: RegionRows::List(rows),
        })),
        Request::KeepAlive { .. } => Some(Reply::Alive),
        Request::Report(_) => Some(Reply::Reported(ClientReportReply {
            settings_revision: 0,
            values: SettingValues::List(&[]),
        })),
        Request::Table { .. } => {
            Some(Reply::Table(TableReport { revision: 1, rows_all: 0, rows: TableRows::List(&[]) }))
        }
        _ => None,
    }
}

impl ReadHarness {
    pub(crate) fn new() -> ReadHarness {
        ReadHarness::with(options(), Owner::new(false), true)
    }

    pub(crate) fn with(options: ClientOptions, owner: Owner, reads_ordered: bool) -> ReadHarness {
        let mut core = ClientCore::new(options, 1);
        core.set_reads_ordered(reads_ordered);
        let mut harness = ReadHarness {
            core,
            owner,
            now_ns: 1,
            lease_us: 10_000_000,
            reply_epoch: EPOCH,
            answers: true,
            posted: Vec::new(),
            answered: 0,
            asked: Vec::new(),
            kinds: Vec::new(),
            reports: Vec::new(),
            mappings_asked: 0,
            keys_asked: BTreeSet::new(),
            pairs_reported: 2,
            stop_ns: 0,
            meanwhile: None,
            returned_by_ns: VecDeque::new(),
            last: None,
        };
        harness.run();
        harness
    }

    /// The client reads its clock for the next call of its core. Its process may be stopped right then: what
    /// the call does, it does at the harness's time, which may be later.
    pub(crate) fn clock(&mut self) -> u64 {
        while self.returned_by_ns.len() > self.core.completions() {
            self.returned_by_ns.pop_front(); // that one was taken
        }
        let given_ns = self.now_ns;
        self.now_ns += std::mem::take(&mut self.stop_ns);
        if let Some(meanwhile) = self.meanwhile {
            meanwhile(&mut self.owner, self.now_ns);
        }
        given_ns
    }

    /// The client reads its clock and validates.
    pub(crate) fn validate(&mut self) {
        let now_ns = self.clock();
        self.core.validate(now_ns);
        self.note_returned(now_ns);
    }

    fn note_returned(&mut self, by_ns: u64) {
        while self.returned_by_ns.len() < self.core.completions() {
            self.returned_by_ns.push_back(by_ns);
        }
    }

    /// A completion, and the time that the core had when it came about.
    pub(crate) fn take(&mut self) -> Option<(u64, Completion)> {
        Some((self.returned_by_ns.pop_front()?, self.core.completion()?))
    }

    /// Lets the core do what it wants; posted reads wait.
    pub(crate) fn step(&mut self) -> bool {
        self.validate();
        let now_ns = self.clock();
        self.core.tick(now_ns);
        self.note_returned(now_ns);
        let mut messages = Vec::new();
        let mut busy = false;
        while let Some(command) = self.core.command(now_ns) {
            busy = true;
            match command {
                ClientCommand::Connect { .. } => self.core.connected(LinkId::BOOTSTRAP),
                ClientCommand::Send { message, .. } => messages.push(message.to_vec()),
                ClientCommand::Close { .. } => {}
            }
        }
        for message in messages {
            self.answer(&message);
        }
        while let Some((_, read, tag)) = self.core.next_read() {
            busy = true;
            self.posted.push((read, tag));
        }
        if self.core.wants_mapping() {
            self.mappings_asked += 1;
            let ReadHarness { core, owner, keys_asked, .. } = self;
            core.map_regions(&mut |_, key| {
                keys_asked.insert(key.0);
                owner.mapped(key)
            });
        }
        self.validate();
        busy || self.core.is_validating()
    }

    /// Answers one posted read from the memory as it is now.
    pub(crate) fn complete_one(&mut self) -> bool {
        if self.posted.is_empty() {
            return false;
        }
        let (read, tag) = self.posted.remove(0);
        self.answered += 1;
        match self.owner.read(&read) {
            Ok(words) => self.core.read_done(LinkId::BOOTSTRAP, tag, Ok(&words)),
            Err(failure) => self.core.read_done(LinkId::BOOTSTRAP, tag, Err(failure)),
        }
        true
    }

    /// Goes on until nothing more happens at this time.
    pub(crate) fn run(&mut self) {
        for _ in 0..100_000 {
            let busy = self.step();
            if !self.complete_one() && !busy {
                return self.validate();
            }
        }
        panic!("it does not come to rest");
    }

    /// Goes on until so many reads are posted for the extent region of the first pair.
    pub(crate) fn run_to_extent(&mut self) {
        self.run_to(|harness, read| read.key.0 == harness.owner.pairs[0].extent_key());
    }

    /// Goes on until a read of this kind is posted, and leaves it there.
    pub(crate) fn run_to(&mut self, wanted: impl Fn(&ReadHarness, &RemoteRead) -> bool) {
        for _ in 0..10_000 {
            self.step();
            if self.posted.first().is_some_and(|(read, _)| wanted(self, read)) {
                return;
            }
            assert!(self.complete_one(), "no such read is posted");
        }
        panic!("no such read is posted");
    }

    pub(crate) fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
    }

    /// Lets time pass in small steps, things happening in between, until something is complete.
    pub(crate) fn wait(&mut self, ns_max: u64) -> Option<Completion> {
        let until_ns = self.now_ns + ns_max;
        while self.now_ns < until_ns {
            self.run();
            if let Some(completion) = self.core.completion() {
                return Some(completion);
            }
            self.pass(10_000);
        }
        None
    }

    pub(crate) fn submit(&mut self, operation: &Operation<'_>) -> Ticket {
        let now_ns = self.clock();
        self.core.submit(now_ns, operation).unwrap()
    }

    /// Submits and runs to the answer.
    pub(crate) fn call(&mut self, operation: &Operation<'_>) -> Output {
        self.submit(operation);
        self.run();
        self.core.completion().expect("it is complete").outcome.unwrap()
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        match self.call(&Operation::Get { key }) {
            Output::Value(item) => item.map(|item| item.value),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn counters(&self) -> OneSidedCounters {
        *self.core.one_sided_counters().unwrap()
    }

    pub(crate) fn header(&self, id: cell_protocol::RequestId) -> ReplyHeader {
        let header = reply_header(&self.owner, id);
        let watermark = Watermark { epoch: self.reply_epoch, ..header.watermark };
        ReplyHeader { watermark, trust_us: self.lease_us, ..header }
    }

    /// The id of the last request that was sent.
    pub(crate) fn last_request(&self) -> cell_protocol::RequestId {
        self.last.expect("something was sent")
    }

    /// A sign of life in answer to a request.
    pub(crate) fn reply_alive(&mut self, id: cell_protocol::RequestId) {
        let mut bytes = Vec::new();
        Reply::Alive.encode(&self.header(id), &mut bytes).unwrap();
        self.core.message(LinkId::BOOTSTRAP, self.now_ns, &bytes);
    }

    pub(crate) fn rows(&self) -> Vec<PairRegions> {
        let reported = self.owner.pairs.iter().take(self.pairs_reported);
        reported.map(|owned| owned.row()).collect()
    }

    /// The server's side of a message. The model's entries are its truth.
    fn answer(&mut self, message: &[u8]) {
        let (header, request) = Request::decode(message).unwrap();
        self.kinds.push(request.kind());
        if let Request::Report(report) = &request {
            let rows = report.reported_reads.iter().map(|row| (row.pair.0, row.slot.0, row.reads));
            self.reports.push((rows.collect(), report.reads_elsewhere));
        }
        self.last = Some(header.id);
        if !self.answers && !matches!(request, Request::Hello(_)) {
            return;
        }
        let rows = self.rows();
        let reply = reply_on_itself(&request, &rows).unwrap_or_else(|| {
            self.asked.push(request.kind());
            Reply::Refused(Refusal::Malformed { what: cell_protocol::Malformed::Order })
        });
        let mut bytes = Vec::new();
        reply.encode(&self.header(header.id), &mut bytes).unwrap();
        let now_ns = self.now_ns;
        self.core.message(LinkId::BOOTSTRAP, now_ns, &bytes);
        self.note_returned(now_ns);
    }
}

pub(crate) const LIMITS: Limits = Limits {
    key_bytes_max: 76,
    value_bytes_max: 1 << 20,
    in_flight_max: 1024,
    streams_max: 64,
    scan_entries_max: 1_000,
    stream_credit_bytes: 0,
    idle_ms: 60_000,
};
