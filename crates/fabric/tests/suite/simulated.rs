//! What the simulated network adds: faults, and the same run again for the same seed.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

use std::io::ErrorKind;

use cell_fabric::{
    Address, CloseReason, ConnectionId, Endpoint, Event, FabricLimits, Greeting, OneSided, ReadFailure,
    ReadTag, RemoteRead, SimCrash, SimEndpoint, SimNetwork, SimOptions,
};
use cell_terms::WordsMut;

use crate::harness::{Peer, Seen, Sim, World, greeting, open, region, until};

struct Pair {
    world: Sim,
    client: Peer<SimEndpoint>,
    server: Peer<SimEndpoint>,
    here: ConnectionId,
    there: ConnectionId,
}

/// A client on host 2 with a connection to a server on host 1.
fn pair(seed: u64, options: SimOptions) -> Pair {
    let mut world = Sim::with(seed, options);
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let (here, there) = open(&mut world, &mut client, &mut server, address);
    Pair { world, client, server, here, there }
}

impl Pair {
    fn until(&mut self, done: impl FnMut(&mut [&mut Peer<SimEndpoint>]) -> bool) {
        until(&mut self.world, &mut [&mut self.client, &mut self.server], done);
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.client.turn();
            self.server.turn();
            self.world.turn();
        }
    }
}

/// What each peer saw on each of its connections.
type Histories = Vec<Vec<(ConnectionId, Vec<Seen>)>>;

/// Traffic among several hosts under faults; what everyone saw, and the network's digest.
fn run(seed: u64) -> (Histories, u64) {
    let mut world = Sim::with(seed, SimOptions::hostile());
    let limits = FabricLimits { idle_timeout_ns: 2_000_000_000, ..FabricLimits::default() };
    let (mut server, address) = world.listen(limits);
    let mut clients: Vec<_> = (0..4).map(|_| world.client(limits)).collect();
    let mut open = Vec::new();
    for step in 0..3_000_u64 {
        match step {
            500 => world.network.partition(&[1], &[2, 3]),
            900 => world.network.heal(),
            1_200 => world.network.block(1, 4),
            2_000 => world.network.unblock(1, 4),
            2_300 => world.network.crash(5, SimCrash::Process),
            2_500 => world.network.crash(3, SimCrash::Host),
            _ => {}
        }
        for (number, client) in clients.iter_mut().enumerate() {
            if step % 40 == 0
                && let Ok(connection) = client.endpoint.connect(&address)
            {
                open.push((number, connection));
            }
            for (_, connection) in open.iter().filter(|(owner, _)| *owner == number) {
                let _ = client.endpoint.send(*connection, &step.to_le_bytes());
            }
        }
        for peer in std::iter::once(&mut server).chain(&mut clients) {
            peer.endpoint.tick(world.now_ns + 1);
            peer.turn();
            // Some of them are over by now.
            for connection in &peer.order {
                let _ = peer.endpoint.send(*connection, b"whatever");
            }
            peer.endpoint.flush();
        }
        world.turn();
    }
    let seen = std::iter::once(server).chain(clients).map(|peer| {
        let mut seen: Vec<_> = peer.seen.clone().into_iter().collect();
        seen.sort_unstable_by_key(|(connection, _)| *connection);
        seen
    });
    (seen.collect(), world.network.digest())
}

#[test]
fn run_same_seed_same_events_other_seed_others() {
    let first = run(7);
    assert!(first == run(7), "the same seed gave another run");
    assert_ne!(first.1, run(8).1);
    let reasons = |wanted: CloseReason| {
        first
            .0
            .iter()
            .flatten()
            .flat_map(|(_, seen)| seen)
            .filter(|seen| **seen == Seen::Closed(wanted))
            .count()
    };
    assert!(reasons(CloseReason::Network(ErrorKind::ConnectionReset)) > 0, "no reset was met");
}

#[test]
fn deliver_connections_overtake_each_other_messages_of_one_do_not() {
    let mut pair = pair(3, SimOptions { delay_min_ns: 1_000, delay_max_ns: 5_000_000, ..SimOptions::calm() });
    let address = Address::Sim(1);
    let other = open(&mut pair.world, &mut pair.client, &mut pair.server, address).0;
    for number in 0..200_u8 {
        for connection in [pair.here, other] {
            pair.client.endpoint.send(connection, &[number]).unwrap();
        }
    }
    pair.client.endpoint.flush();
    let mut order = Vec::new();
    while order.len() < 400 {
        pair.world.turn();
        pair.server.endpoint.poll(&mut |event| {
            if let Event::Message { connection, message } = event {
                order.push((connection, message[0]));
            }
        });
    }
    let of = |connection| order.iter().filter(move |(of, _)| *of == connection).map(|(_, number)| *number);
    let there = pair.there;
    assert!(of(there).eq(0..200), "in order within a connection");
    let overtaken = order.windows(2).filter(|pair| pair[0].0 == pair[1].0).count();
    assert!(overtaken > 50, "the two never interleaved otherwise than they were sent");
}

#[test]
fn block_one_way_holds_that_way_until_it_heals() {
    let mut pair = pair(1, SimOptions::calm());
    pair.world.network.block(2, 1);
    pair.client.endpoint.send(pair.here, b"held").unwrap();
    pair.client.endpoint.send(pair.here, b"back").unwrap();
    pair.server.endpoint.send(pair.there, b"passes").unwrap();
    pair.turns(1_000);
    assert_eq!(pair.client.messages(pair.here), [b"passes"]);
    assert!(pair.server.messages(pair.there).is_empty());
    assert!(!pair.world.network.reaches(2, 1) && pair.world.network.reaches(1, 2));
    pair.world.network.heal();
    let there = pair.there;
    pair.until(|peers| peers[1].messages(there).len() == 2);
    assert_eq!(pair.server.messages(there), [b"held", b"back"]);
}

#[test]
fn partition_lasts_both_ends_time_out() {
    let mut pair = pair(1, SimOptions::calm());
    pair.client.endpoint.tick(1);
    pair.server.endpoint.tick(1);
    pair.world.network.partition(&[1], &[2]);
    let late = pair.client.endpoint.connect(&Address::Sim(1)).unwrap();
    pair.turns(10);
    pair.client.endpoint.tick(6_000_000_000);
    pair.turns(1);
    assert_eq!(pair.client.closed(late), Some(CloseReason::HandshakeTimeout));
    assert_eq!(pair.client.closed(pair.here), None);
    pair.client.endpoint.tick(60_000_000_001);
    pair.server.endpoint.tick(60_000_000_001);
    pair.turns(1);
    assert_eq!(pair.client.closed(pair.here), Some(CloseReason::Idle));
    assert_eq!(pair.server.closed(pair.there), Some(CloseReason::Idle));
}

#[test]
fn crash_process_peers_learn_and_a_restart_is_another_endpoint() {
    let mut pair = pair(1, SimOptions::calm());
    pair.world.network.crash(1, SimCrash::Process);
    let here = pair.here;
    pair.until(|peers| peers[0].closed(here).is_some());
    assert!(pair.server.endpoint.connect(&Address::Sim(2)).is_err(), "a dead process does nothing");
    let refused = pair.client.endpoint.connect(&Address::Sim(1)).unwrap();
    // Nobody is left on the host: the connection hangs until it times out.
    pair.turns(100);
    assert_eq!(pair.client.seen(refused), []);
    let network = pair.world.network.clone();
    let mut restarted = Peer::new(network.listen(1, FabricLimits::default(), greeting()));
    open(&mut pair.world, &mut pair.client, &mut restarted, Address::Sim(1));
}

#[test]
fn crash_host_peers_hear_nothing_until_it_is_back() {
    let mut pair = pair(1, SimOptions::calm());
    pair.world.network.crash(1, SimCrash::Host);
    pair.client.endpoint.send(pair.here, b"hello?").unwrap();
    pair.turns(1_000);
    assert_eq!(pair.client.closed(pair.here), None);
    let network = pair.world.network.clone();
    let _restarted = network.listen(1, FabricLimits::default(), greeting());
    // The new kernel knows nothing of the old connection.
    pair.client.endpoint.send(pair.here, b"still there?").unwrap();
    let here = pair.here;
    pair.until(|peers| peers[0].closed(here).is_some());
    assert_eq!(pair.client.closed(here), Some(CloseReason::Network(ErrorKind::ConnectionReset)));
}

#[test]
fn reset_both_ends_learn_after_what_was_not_lost() {
    for seed in 0..50 {
        let mut pair = pair(seed, SimOptions::calm());
        for number in 0..20_u8 {
            pair.client.endpoint.send(pair.here, &[number]).unwrap();
        }
        pair.client.endpoint.flush();
        assert_eq!(pair.world.network.reset(1, 2), 1);
        let (here, there) = (pair.here, pair.there);
        pair.until(|peers| peers[0].closed(here).is_some() && peers[1].closed(there).is_some());
        let got = pair.server.messages(there);
        assert!(
            got.iter().enumerate().all(|(at, message)| usize::from(message[0]) == at),
            "a prefix arrives"
        );
    }
}

/// A region whose words 512..1024 the owner raises together, a step at a time, while a client reads them.
fn read_under_a_writer(options: SimOptions, reads: u64) -> Vec<Vec<u64>> {
    let mut pair = pair(9, options);
    let (region, mut writer) = region();
    let key = pair.server.endpoint.register(&region).unwrap();
    let mut stored = 0;
    for tag in 0..reads {
        let read = RemoteRead { key, offset: 4_096, length: 1_024 };
        pair.client.endpoint.post_read(pair.here, read, ReadTag(tag)).unwrap();
        pair.client.turn();
        while pair.client.reads(pair.here).len() as u64 <= tag {
            stored += 1;
            (512..640).for_each(|index| writer.store(index, stored));
            pair.turns(1);
        }
    }
    pair.client.reads(pair.here).into_iter().map(|(_, outcome)| outcome.unwrap()).collect()
}

#[test]
fn read_under_a_writer_unordered_lines_come_in_any_order() {
    let options = SimOptions { read_spread_ns: 500_000, ..SimOptions::calm() };
    let seen = read_under_a_writer(options, 60);
    let whole_lines = |words: &[u64]| words.chunks(8).all(|line| line.iter().all(|word| *word == line[0]));
    assert!(seen.iter().all(|words| whole_lines(words)), "a line is of one moment");
    assert!(seen.iter().any(|words| words[0] < words[127]), "the front was loaded before the end");
    assert!(seen.iter().any(|words| words[0] > words[127]), "the end was loaded before the front");
}

#[test]
fn read_under_a_writer_ordered_never_goes_back() {
    let options = SimOptions { read_spread_ns: 500_000, reads_ordered: true, ..SimOptions::calm() };
    let seen = read_under_a_writer(options, 60);
    assert!(seen.iter().all(|words| words.is_sorted()));
    assert!(seen.iter().any(|words| words[0] < words[127]), "torn all the same");
}

#[test]
fn read_under_a_writer_torn_inside_lines_when_asked() {
    let torn = SimOptions { read_spread_ns: 500_000, read_torn_per_million: 1_000_000, ..SimOptions::calm() };
    let seen = read_under_a_writer(torn, 20);
    assert!(
        seen.iter().flat_map(|words| words.chunks(8)).any(|line| line.iter().any(|word| *word != line[0]))
    );
}

#[test]
fn read_host_crashed_or_cut_off_ends_with_its_connection() {
    let mut pair = pair(1, SimOptions::calm());
    let key = pair.server.endpoint.register(&region().0).unwrap();
    let read = RemoteRead { key, offset: 8_000, length: 8 };
    pair.world.network.block(1, 2);
    pair.client.endpoint.post_read(pair.here, read, ReadTag(1)).unwrap();
    pair.turns(100);
    assert!(pair.client.reads(pair.here).is_empty(), "the answer is held back");
    pair.world.network.heal();
    let here = pair.here;
    pair.until(|peers| peers[0].reads(here).len() == 1);
    assert_eq!(pair.client.reads(here), [(1, Ok(vec![1_000]))]);
    pair.world.network.crash(1, SimCrash::Process);
    pair.client.endpoint.post_read(here, read, ReadTag(2)).unwrap();
    pair.until(|peers| peers[0].closed(here).is_some());
    assert_eq!(pair.client.reads(here)[1], (2, Err(ReadFailure::ConnectionClosed)));
}

#[test]
fn region_is_mapped_from_the_first_read_of_its_connection_on() {
    for reads_mapped in [false, true] {
        let mut pair = pair(11, SimOptions { reads_mapped, ..SimOptions::calm() });
        let (region, _writer) = region();
        let key = pair.server.endpoint.register(&region).unwrap();
        let here = pair.here;
        assert!(pair.client.endpoint.mapped(here, key).is_none(), "nothing was read yet");
        let read = RemoteRead { key, offset: 8_000, length: 8 };
        pair.client.endpoint.post_read(here, read, ReadTag(1)).unwrap();
        pair.until(|peers| peers[0].reads(here).len() == 1);
        assert_eq!(pair.client.endpoint.mapped(here, key).is_some(), reads_mapped);
    }
}

#[test]
fn step_time_stands_nothing_arrives() {
    let network = SimNetwork::new(1, SimOptions::calm());
    let _server = network.listen(1, FabricLimits::default(), greeting());
    let mut client = network.client(2, FabricLimits::default());
    client.connect(&Address::Sim(1)).unwrap();
    assert_eq!(network.step(0), 0);
    let due_ns = network.next_due_ns().unwrap();
    assert_eq!(network.step(due_ns - 1), 0);
    assert_eq!(network.step(due_ns), 1);
}

#[test]
fn stalled_connection_delivers_late_and_a_new_one_at_once() {
    let network = SimNetwork::new(9, SimOptions::calm());
    let mut server = network.listen(1, FabricLimits::default(), Greeting::default());
    let mut client = network.client(2, FabricLimits::default());
    let mut received: Vec<(u64, Vec<u8>)> = Vec::new();
    let run = |until_ns: u64, server: &mut SimEndpoint, received: &mut Vec<(u64, Vec<u8>)>| {
        while network.next_due_ns().is_some_and(|due_ns| due_ns <= until_ns) {
            let now_ns = network.next_due_ns().unwrap();
            network.step(now_ns);
            server.poll(&mut |event| {
                if let Event::Message { message, .. } = event {
                    received.push((now_ns, message.to_vec()));
                }
            });
        }
        network.step(until_ns);
    };
    let old = client.connect(&Address::Sim(1)).unwrap();
    run(1_000_000, &mut server, &mut received);
    client.poll(&mut |_| {});
    assert_eq!(network.stall(2, 1, 50_000_000), 1);
    client.send(old, b"first copy").unwrap();
    client.flush();
    run(2_000_000, &mut server, &mut received);
    let new = client.connect(&Address::Sim(1)).unwrap();
    client.close(old);
    run(3_000_000, &mut server, &mut received);
    client.poll(&mut |_| {});
    client.send(new, b"repetition").unwrap();
    client.flush();
    run(100_000_000, &mut server, &mut received);
    let messages: Vec<&[u8]> = received.iter().map(|(_, message)| message.as_slice()).collect();
    assert_eq!(messages, [&b"repetition"[..], b"first copy"]);
    assert!(received[1].0 >= 50_000_000);
}
