//! Writes while pairs move, nodes die, fall silent and come again, under a seeded schedule: each is done at
//! most once, exactly once if it succeeded, never if it is said not to be done.
//!
//! Permitted: any node dies or freezes, its connections are cut or say nothing, answers are lost, pairs move
//! to any node at any time, restarted nodes are new incarnations, callers give writes up. Not permitted:
//! copies that arrive after their connection is gone (`exactly_once` has those), a pair without the results
//! of its writes.

use std::collections::BTreeMap;

use cell_client::{ClientError, ClientOptions, Fate, Operation, Output, Search, Ticket};
use cell_protocol::Scan;
use proptest::prelude::*;

use crate::client_core::cluster::Cluster;
use crate::client_core::core_harness::{MS, get, put};
use crate::model::Write;

const DEADLINE_MS: u64 = 400;

struct World {
    cluster: Cluster,
    writes: BTreeMap<Ticket, Write>,
    state: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let options = ClientOptions {
            deadline_ms: DEADLINE_MS,
            in_flight_max: 8,
            queue_max: 24,
            silence_ms: 150,
            connect_timeout_ms: 100,
            search: Search::Server,
            ..ClientOptions::default()
        };
        let cluster = Cluster::new(options, 3, &[b"h", b"p", b"u"], &[0, 1]);
        World { cluster, writes: BTreeMap::new(), state: seed }
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.state = self.state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.state >> 33) % sides
    }

    fn node(&mut self) -> usize {
        usize::try_from(self.roll(3)).unwrap()
    }

    fn submit(&mut self) {
        let key = vec![b"abhkpsuz"[usize::try_from(self.roll(8)).unwrap()]];
        let value = (self.writes.len() as u64).to_le_bytes().to_vec();
        match self.cluster.core.submit(self.cluster.now_ns, &put(&key, &value)) {
            Ok(ticket) => {
                let deadline_ns = self.cluster.now_ns + DEADLINE_MS * MS;
                self.writes.insert(ticket, Write { key, value, deadline_ns, fate: None });
            }
            Err(error) => assert!(matches!(error, ClientError::QueueFull { .. }), "{error}"),
        }
    }

    fn give_up(&mut self) {
        let open = self.writes.iter().filter(|(_, write)| write.fate.is_none());
        let open: Vec<Ticket> = open.map(|(ticket, _)| *ticket).collect();
        if !open.is_empty() {
            let ticket = open[usize::try_from(self.roll(open.len() as u64)).unwrap()];
            self.cluster.core.give_up(self.cluster.now_ns, ticket);
            self.writes.get_mut(&ticket).unwrap().fate = Some(Err(Fate::Unknown));
        }
    }

    fn step(&mut self) {
        match self.roll(60) {
            0..=29 => self.submit(),
            30 => {
                let (pair, to) = (u32::try_from(self.roll(3)).unwrap() + 1, self.node());
                self.cluster.move_pair(pair, to);
            }
            31 => {
                let node = self.node();
                self.cluster.kill(node);
            }
            32 | 33 => {
                let node = self.node();
                if !self.cluster.nodes[node].alive {
                    self.cluster.start(node);
                }
            }
            34 => {
                let node = self.node();
                self.cluster.nodes[node].frozen ^= true;
            }
            35 => {
                let node = self.node();
                self.cluster.mute.insert(node);
            }
            36 | 37 => self.cluster.mute.clear(),
            38 if self.roll(4) == 0 => self.give_up(),
            _ => self.cluster.now_ns += self.roll(6) * MS,
        }
        self.take();
    }

    fn take(&mut self) {
        self.cluster.run();
        while let Some(completion) = self.cluster.core.completion() {
            let write = self.writes.get_mut(&completion.ticket).unwrap();
            assert!(write.fate.is_none(), "a second completion");
            assert!(self.cluster.now_ns <= write.deadline_ns + 50 * MS, "late: {completion:?}");
            write.fate = Some(match completion.outcome {
                Ok(Output::Written(_)) => Ok(()),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error.fate()),
            });
        }
    }

    fn drain(&mut self) {
        self.cluster.mute.clear();
        for node in 0..3 {
            self.cluster.nodes[node].frozen = false;
            if !self.cluster.nodes[node].alive {
                self.cluster.start(node);
            }
        }
        for _ in 0..2 * DEADLINE_MS {
            self.cluster.now_ns += MS;
            self.take();
        }
        assert_eq!(self.cluster.core.outstanding(), 0, "every operation ends");
        let keys: [&[u8]; 4] = [b"a", b"k", b"s", b"z"];
        for key in keys {
            self.succeeds(&get(key));
            let value = (self.writes.len() as u64).to_le_bytes().to_vec();
            let deadline_ns = self.cluster.now_ns + DEADLINE_MS * MS;
            let ticket = self.succeeds(&put(key, &value));
            self.writes.insert(ticket, Write { key: key.to_vec(), value, deadline_ns, fate: Some(Ok(())) });
        }
        self.succeeds(&Operation::MultiGet { keys: &keys });
        self.succeeds(&Operation::Scan(Scan::default()));
    }

    /// Once all is well again, everything succeeds.
    fn succeeds(&mut self, operation: &Operation<'_>) -> Ticket {
        let ticket = self.cluster.submit(operation);
        let completion = self.cluster.wait(DEADLINE_MS + 1).expect("it ends at its deadline");
        assert!(completion.outcome.is_ok(), "all is well again: {completion:?}");
        ticket
    }

    fn check(&self) {
        self.writes.values().for_each(|write| write.check(&self.cluster.server));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_schedule_of_deaths_and_moves_applies_each_write_at_most_once(seed in any::<u64>()) {
        let mut world = World::new(seed);
        for _ in 0..1_500 {
            world.step();
        }
        world.drain();
        world.check();
    }
}

#[test]
fn schedules_do_succeed_and_do_fail() {
    let (mut succeeded, mut failed) = (0, 0);
    for seed in 0..20 {
        let mut world = World::new(seed);
        for _ in 0..1_500 {
            world.step();
        }
        world.drain();
        succeeded += world.writes.values().filter(|write| write.fate == Some(Ok(()))).count();
        failed += world.writes.values().filter(|write| write.fate != Some(Ok(()))).count();
    }
    assert!(succeeded > 2_000 && failed > 20, "{succeeded} {failed}");
}
