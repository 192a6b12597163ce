//! A core, and a wire that the test holds in its hand.

use crate::model::{Peer, Server, refusal};
use cell_client::{
    AttemptError, ClientCommand, ClientCore, ClientError, ClientOptions, Completion, Fate, LinkId, Operation,
    Search, Ticket,
};
use cell_fabric::CloseReason;
use cell_protocol::{Condition, Refusal, Reply, ReplyHeader, Request, RequestId, RequestKind};
use cell_terms::{Csn, Version};

pub(crate) const MS: u64 = 1_000_000;

/// A core, and a wire that the test cuts and mends.
pub(crate) struct CoreHarness {
    pub(crate) core: ClientCore,
    pub(crate) server: Server,
    pub(crate) peer: Peer,
    pub(crate) now_ns: u64,
    /// Messages that the client sent and nobody answered yet.
    pub(crate) sent: Vec<Vec<u8>>,
    pub(crate) closed_by_client: usize,
    pub(crate) connects: u64,
}

impl CoreHarness {
    pub(crate) fn new(options: ClientOptions) -> CoreHarness {
        CoreHarness {
            core: ClientCore::new(options, 1),
            server: Server::default(),
            peer: Peer::default(),
            now_ns: 1,
            sent: Vec::new(),
            closed_by_client: 0,
            connects: 0,
        }
    }

    /// Connected, welcomed, with an open session if `session`.
    pub(crate) fn up(options: ClientOptions, session: bool) -> CoreHarness {
        let mut harness = CoreHarness::new(options);
        harness.run();
        if session {
            harness.submit(&put(b"first", b"value"));
            harness.run();
            assert!(harness.completion().outcome.is_ok());
        }
        harness
    }

    /// Carries commands out; messages stay in `sent`.
    pub(crate) fn step(&mut self) {
        self.core.tick(self.now_ns);
        while let Some(command) = self.core.command(self.now_ns) {
            match command {
                ClientCommand::Connect { attempt, .. } => {
                    assert_eq!(attempt, self.connects);
                    self.connects += 1;
                    self.peer = Peer::default();
                    self.sent.clear();
                    self.core.connected(LinkId::BOOTSTRAP);
                }
                ClientCommand::Send { message, .. } => {
                    let message = message.to_vec();
                    match crate::model::table_answer(&message) {
                        Some(table) => self.core.message(LinkId::BOOTSTRAP, self.now_ns, &table),
                        None => self.sent.push(message),
                    }
                }
                ClientCommand::Close { .. } => self.closed_by_client += 1,
            }
        }
    }

    /// Lets the model server answer until nothing is left to do now.
    pub(crate) fn run(&mut self) {
        loop {
            self.step();
            if self.sent.is_empty() {
                return;
            }
            self.answer();
        }
    }

    /// Lets the model server answer what was sent so far.
    pub(crate) fn answer(&mut self) {
        let mut replies = Vec::new();
        for message in self.sent.drain(..) {
            self.server.handle(&mut self.peer, &message, &mut replies);
        }
        for reply in replies {
            self.core.message(LinkId::BOOTSTRAP, self.now_ns, &reply);
        }
    }

    /// Lets the model server take in what was sent, and loses the answers.
    pub(crate) fn answer_nothing(&mut self) {
        let mut lost = Vec::new();
        for message in self.sent.drain(..) {
            self.server.handle(&mut self.peer, &message, &mut lost);
        }
    }

    pub(crate) fn cut(&mut self) {
        self.sent.clear();
        self.core.closed(LinkId::BOOTSTRAP, self.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now_ns += ms * MS;
    }

    pub(crate) fn submit(&mut self, operation: &Operation<'_>) -> Ticket {
        self.core.submit(self.now_ns, operation).unwrap()
    }

    pub(crate) fn completion(&mut self) -> Completion {
        self.core.completion().expect("something is complete")
    }

    pub(crate) fn reply(&mut self, id: RequestId, reply: &Reply<'_>) {
        let mut message = Vec::new();
        reply.encode(&ReplyHeader { id, ..ReplyHeader::default() }, &mut message).unwrap();
        self.core.message(LinkId::BOOTSTRAP, self.now_ns, &message);
    }

    pub(crate) fn refuse(&mut self, id: RequestId, reason: Refusal) {
        self.core.message(LinkId::BOOTSTRAP, self.now_ns, &refusal(id, reason));
    }

    /// Kinds and ids of what was sent.
    pub(crate) fn requests(&self) -> Vec<(RequestKind, RequestId)> {
        let decode = |message: &Vec<u8>| {
            let (header, request) = Request::decode(message).unwrap();
            (request.kind(), header.id)
        };
        self.sent.iter().map(decode).collect()
    }

    pub(crate) fn kinds(&self) -> Vec<RequestKind> {
        self.requests().into_iter().map(|(kind, _)| kind).collect()
    }

    /// Session, number and floor of the only put that was sent.
    pub(crate) fn put_name(&self) -> (u64, u64, u64) {
        let names: Vec<_> = self
            .sent
            .iter()
            .filter_map(|message| match Request::decode(message).unwrap().1 {
                Request::Put(put) => Some((put.name.session.0, put.name.number.0, put.name.floor.0)),
                _ => None,
            })
            .collect();
        assert_eq!(names.len(), 1, "{:?}", self.kinds());
        names[0]
    }
}

pub(crate) fn options() -> ClientOptions {
    ClientOptions { search: Search::Server, report_ms: 0, ..ClientOptions::default() }
}

pub(crate) fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    Operation::Put { key, value, condition: Condition::Always }
}

pub(crate) fn get(key: &[u8]) -> Operation<'_> {
    Operation::Get { key }
}

pub(crate) fn version(csn: u64) -> Version {
    Version { csn: Csn(csn), ..Version::default() }
}

pub(crate) fn fate(completion: &Completion) -> Option<Fate> {
    completion.outcome.as_ref().err().map(ClientError::fate)
}
