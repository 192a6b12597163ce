//! A core against the model server over a wire that loses, delays and cuts, under a seeded schedule.
//!
//! Permitted faults: a connection is cut at any moment; what the client had sent may be lost or may still be
//! handled later, after the client's next connection (a delayed first copy); what the server had sent is
//! lost; the server refuses for now, or does a write and answers "internal", or stalls; sessions end; the
//! clock jumps ahead; callers give operations up. Not checked: the order of operations that were outstanding
//! together (they are concurrent).
//!
//! What must hold: each operation has exactly one completion, no later than its deadline; a write was applied
//! at most once; once exactly if it succeeded; never if it is said not to be done, however late its copies
//! arrive; and an abandoned write is not applied any more once a later write of its session was answered.

#![allow(clippy::unwrap_used, reason = "a test's helper may give up")]

use std::collections::{BTreeMap, VecDeque};

use crate::model::{Peer, Server, Write, refusal};
use cell_client::{
    AttemptError, ClientCommand, ClientCore, ClientError, ClientOptions, Condition, Fate, LinkId, Operation,
    Output, Search, Ticket,
};
use cell_fabric::CloseReason;
use cell_protocol::{Refusal, Request};
use cell_terms::SessionId;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const DEADLINE_MS: u64 = 100;

/// A small generator, so that a seed is a whole schedule.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) % sides
    }
}

/// One connection's two directions.
struct Wire {
    peer: Peer,
    to_server: VecDeque<Vec<u8>>,
    to_client: VecDeque<Vec<u8>>,
}

struct World {
    core: ClientCore,
    server: Server,
    wire: Option<Wire>,
    /// What was sent on connections that are gone, and is still on its way.
    delayed: Vec<(Peer, VecDeque<Vec<u8>>)>,
    now_ns: u64,
    dice: Dice,
    faults: bool,
    /// The server takes nothing in until then: a slow disk, a long pause.
    stalled_until_ns: u64,
    writes: BTreeMap<Ticket, Write>,
    reads: BTreeMap<Ticket, u64>,
    finished: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let options = ClientOptions {
            deadline_ms: DEADLINE_MS,
            in_flight_max: 8,
            queue_max: 8,
            retries_max: 6,
            silence_ms: 60,
            stream_credit_bytes: 100_000,
            search: Search::Server,
            ..ClientOptions::default()
        };
        World {
            core: ClientCore::new(options, seed),
            server: Server::default(),
            wire: None,
            delayed: Vec::new(),
            now_ns: 1,
            dice: Dice(seed),
            faults: true,
            stalled_until_ns: 0,
            writes: BTreeMap::new(),
            reads: BTreeMap::new(),
            finished: 0,
        }
    }

    fn submit(&mut self) {
        let key = vec![b'k', u8::try_from(self.dice.roll(6)).unwrap()];
        let kind = self.dice.roll(10);
        // The value names the write, so that what was applied can be counted.
        let mut value = (self.writes.len() as u64).to_le_bytes().to_vec();
        if kind == 0 {
            value.resize(70_000 + usize::try_from(self.dice.roll(100_000)).unwrap(), 7);
        }
        let operation = match kind {
            0..=5 => {
                let condition = if kind < 4 { Condition::Always } else { Condition::IfAbsent };
                Operation::Put { key: &key, value: &value, condition }
            }
            6 => Operation::Search { key: &key },
            7 => Operation::Scan(cell_protocol::Scan::default()),
            _ => Operation::Get { key: &key },
        };
        let deadline_ns = self.now_ns + DEADLINE_MS * MS;
        match self.core.submit(self.now_ns, &operation) {
            Ok(ticket) if matches!(operation, Operation::Put { .. }) => {
                self.writes.insert(ticket, Write { key, value, deadline_ns, fate: None });
            }
            Ok(ticket) => drop(self.reads.insert(ticket, deadline_ns)),
            Err(error) => assert!(matches!(error, ClientError::QueueFull { .. }), "{error}"),
        }
    }

    fn commands(&mut self) {
        self.core.tick(self.now_ns);
        while let Some(command) = self.core.command(self.now_ns) {
            match command {
                ClientCommand::Connect { .. } => {
                    assert!(self.wire.is_none());
                    let (to_server, to_client) = (VecDeque::new(), VecDeque::new());
                    if self.faults && self.dice.roll(8) == 0 {
                        self.core.closed(
                            LinkId::BOOTSTRAP,
                            self.now_ns,
                            AttemptError::Closed(CloseReason::HandshakeTimeout),
                        );
                    } else {
                        self.wire = Some(Wire { peer: Peer::default(), to_server, to_client });
                        self.core.connected(LinkId::BOOTSTRAP);
                    }
                }
                ClientCommand::Send { message, .. } => {
                    let message = message.to_vec();
                    let wire = self.wire.as_mut().expect("the core sends on an open connection");
                    if wire.to_server.len() >= 40 {
                        self.core.not_taken(LinkId::BOOTSTRAP);
                    } else {
                        wire.to_server.push_back(message);
                    }
                }
                ClientCommand::Close { .. } => self.forget_wire(),
            }
        }
        while let Some(completion) = self.core.completion() {
            self.finished += 1;
            if let Some(write) = self.writes.get_mut(&completion.ticket) {
                assert!(write.fate.is_none(), "a second completion");
                assert!(self.now_ns <= write.deadline_ns + 50 * MS, "late: {completion:?}");
                write.fate = Some(match completion.outcome {
                    Ok(Output::Written(_)) => Ok(()),
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => Err(error.fate()),
                });
            } else {
                let deadline_ns = self.reads.remove(&completion.ticket).expect("a second completion");
                assert!(self.now_ns <= deadline_ns + 50 * MS);
                let unknown = completion.outcome.is_err_and(|error| error.fate() == Fate::Unknown);
                assert!(!unknown, "a read changes nothing");
            }
        }
    }

    /// Nobody waits for one of them any more.
    fn give_up(&mut self) {
        let open = self.writes.iter().filter(|(_, write)| write.fate.is_none()).map(|(ticket, _)| *ticket);
        let open: Vec<Ticket> = open.chain(self.reads.keys().copied()).collect();
        if open.is_empty() {
            return;
        }
        let ticket = open[usize::try_from(self.dice.roll(open.len() as u64)).unwrap()];
        self.core.give_up(self.now_ns, ticket);
        match self.writes.get_mut(&ticket) {
            Some(write) => write.fate = Some(Err(Fate::Unknown)),
            None => drop(self.reads.remove(&ticket)),
        }
    }

    /// The connection is gone on the client's side; what it had sent may still arrive.
    fn forget_wire(&mut self) {
        let Some(wire) = self.wire.take() else { return };
        if self.dice.roll(2) == 0 {
            self.delayed.push((wire.peer, wire.to_server));
        }
    }

    fn cut(&mut self) {
        if self.wire.is_some() {
            self.forget_wire();
            self.core.closed(LinkId::BOOTSTRAP, self.now_ns, AttemptError::Closed(CloseReason::PeerClosed));
        }
    }

    /// The server takes one message in, or refuses it.
    fn serve(&mut self) {
        let fault = if self.faults { self.dice.roll(30) } else { u64::MAX };
        if self.faults && self.now_ns < self.stalled_until_ns {
            return;
        }
        let Some(wire) = &mut self.wire else { return };
        let Some(message) = wire.to_server.pop_front() else { return };
        let (header, request) = Request::decode(&message).unwrap();
        let control = matches!(
            request,
            Request::Hello(_) | Request::Chunk(_) | Request::Credit { .. } | Request::Cancel
        );
        let mut replies = Vec::new();
        match fault {
            0 | 1 if !control => {
                let reason = if fault == 0 { Refusal::Busy } else { Refusal::Recovering };
                wire.to_client.push_back(refusal(header.id, reason));
            }
            2 if matches!(request, Request::Put(_)) => {
                self.server.handle(&mut wire.peer, &message, &mut replies);
                wire.to_client.push_back(refusal(header.id, Refusal::Internal));
            }
            _ => {
                if fault == 3 && self.dice.roll(10) == 0 {
                    self.server.end_sessions();
                }
                self.server.handle(&mut wire.peer, &message, &mut replies);
                wire.to_client.extend(replies);
            }
        }
    }

    fn receive(&mut self) {
        let message = self.wire.as_mut().and_then(|wire| wire.to_client.pop_front());
        if let Some(message) = message {
            self.core.message(LinkId::BOOTSTRAP, self.now_ns, &message);
        }
    }

    /// A message of a connection that is long gone reaches the server.
    fn arrive_late(&mut self) {
        if self.delayed.is_empty() {
            return;
        }
        let index = usize::try_from(self.dice.roll(self.delayed.len() as u64)).unwrap();
        let (peer, messages) = &mut self.delayed[index];
        match messages.pop_front() {
            Some(message) => self.server.handle(peer, &message, &mut Vec::new()),
            None => drop(self.delayed.swap_remove(index)),
        }
    }

    fn step(&mut self) {
        match self.dice.roll(40) {
            0..=5 => self.submit(),
            6..=17 => self.serve(),
            18..=29 => self.receive(),
            30..=33 => self.now_ns += self.dice.roll(4) * MS,
            34 if self.faults && self.dice.roll(4) == 0 => self.cut(),
            35 => self.arrive_late(),
            36 if self.faults && self.dice.roll(20) == 0 => self.now_ns += self.dice.roll(40) * MS,
            37 => self.core.writable(LinkId::BOOTSTRAP),
            39 if self.dice.roll(4) == 0 => self.give_up(),
            38 if self.faults && self.dice.roll(20) == 0 => {
                self.stalled_until_ns = self.now_ns + self.dice.roll(150) * MS;
            }
            _ => {}
        }
        self.commands();
    }

    /// The world without faults: all that is outstanding ends, and then all that is delayed arrives.
    fn drain(&mut self) {
        self.faults = false;
        for _ in 0..20_000 {
            if self.core.outstanding() == 0 {
                break;
            }
            self.serve();
            self.receive();
            self.core.writable(LinkId::BOOTSTRAP);
            self.now_ns += MS / 4;
            self.commands();
        }
        assert_eq!(self.core.outstanding(), 0, "every operation ends");
    }

    fn check(&self) {
        self.writes.values().for_each(|write| write.check(&self.server));
    }

    /// Everything delayed arrives; returns how many writes it applied.
    fn let_arrive(&mut self) -> usize {
        let before = self.server.applied.len();
        while !self.delayed.is_empty() {
            self.arrive_late();
        }
        self.server.applied.len() - before
    }
}

fn run(seed: u64) -> World {
    let mut world = World::new(seed);
    for _ in 0..3_000 {
        world.step();
    }
    world.drain();
    world.check();
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_schedule_of_faults_applies_each_write_at_most_once(seed in any::<u64>()) {
        let mut world = run(seed);
        world.let_arrive();
        world.check();
    }

    /// Once a later write was answered, the pair knows a floor that has passed all that was abandoned.
    #[test]
    fn write_answered_after_all_others_shuts_delayed_copies_out(seed in any::<u64>()) {
        let mut world = run(seed);
        let last = Operation::Put { key: b"last", value: b"last", condition: Condition::Always };
        let ticket = world.core.submit_until(world.now_ns, &last, world.now_ns + 10_000 * MS).unwrap();
        let write = Write {
            key: b"last".to_vec(), value: b"last".to_vec(), deadline_ns: u64::MAX / 2, fate: None,
        };
        world.writes.insert(ticket, write);
        world.drain();
        prop_assert_eq!(world.writes[&ticket].fate, Some(Ok(())));
        prop_assert_eq!(world.let_arrive(), 0, "a delayed copy was applied behind the floor");
        world.check();
    }
}

#[test]
fn same_seed_same_history() {
    let history = |seed| {
        let world = run(seed);
        (world.finished, world.now_ns, world.server.applied)
    };
    assert_eq!(history(7), history(7));
}

#[test]
fn schedules_do_reach_what_they_are_for() {
    let (mut succeeded, mut unknown, mut not_done) = (0, 0, 0);
    let mut sessions = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let world = run(seed);
        for write in world.writes.values() {
            match write.fate.unwrap() {
                Ok(()) => succeeded += 1,
                Err(Fate::Unknown) => unknown += 1,
                Err(Fate::NotDone) => not_done += 1,
            }
        }
        sessions.extend(world.server.applied.iter().map(|applied| applied.session));
    }
    assert!(succeeded > 1_000 && unknown > 20 && not_done > 20, "{succeeded} {unknown} {not_done}");
    assert!(sessions.contains(&SessionId(2)), "{sessions:?}");
}
