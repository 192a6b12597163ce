//! How many calls of the kernel a message costs an end that sleeps before each of them, and that nobody waits
//! for them to be few.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

use std::time::Duration;

use cell_fabric::{
    Address, ConnectionId, Endpoint, FabricLimits, HostEndpoint, HostOptions, Poller, TcpEndpoint,
};

use crate::harness::{Host, Peer, Shm, Tcp, World, open, shm_options, socket_name, until};

/// A message that has not come for so long is lost.
const PATIENCE: Duration = Duration::from_secs(120);
/// The first round trips, in which an end learns who talks to it.
const LEARNING: u64 = 50;
const ROUND_TRIPS: u64 = 1_000;

fn poller_of(endpoint: &impl Endpoint) -> Poller {
    let mut poller = Poller::new().unwrap();
    poller.add_endpoint(endpoint).unwrap();
    poller
}

/// A client, and a server that answers it, with what each sleeps on.
struct Pair<W: World> {
    world: W,
    client: Peer<W::E>,
    server: Peer<W::E>,
    here: ConnectionId,
    poller: Poller,
}

impl<W: World> Pair<W> {
    fn new() -> Pair<W> {
        let mut world = W::new();
        let (mut server, address) = world.listen(FabricLimits::default());
        let mut client = world.client(FabricLimits::default());
        server.echoes = true;
        let (here, _) = open(&mut world, &mut client, &mut server, address);
        let poller = poller_of(&server.endpoint);
        Pair { world, client, server, here, poller }
    }

    /// The server has nothing to do.
    fn fall_asleep(&mut self) {
        until(&mut self.world, &mut [&mut self.server], |peers| peers[0].endpoint.prepare_sleep());
        assert_eq!(self.poller.wait(Some(Duration::ZERO)).ready, 0, "nothing is to be read");
    }

    /// The client asks, the server wakes up and answers in one turn, and goes to sleep again without another.
    fn round_trip(&mut self) {
        self.client.seen.clear();
        self.client.endpoint.send(self.here, b"question").unwrap();
        self.client.endpoint.flush();
        let wait = self.poller.wait(Some(PATIENCE));
        assert!(wait.ready > 0, "a message was lost");
        self.server.endpoint.woken(wait.parts);
        self.server.turn();
        let here = self.here;
        until(&mut self.world, &mut [&mut self.client], |peers| !peers[0].messages(here).is_empty());
        if !self.server.endpoint.prepare_sleep() {
            self.fall_asleep();
        }
    }

    /// Calls of the kernel by the server for each of many round trips, its sleeps left out.
    fn calls(&mut self) -> f64 {
        self.fall_asleep();
        (0..LEARNING).for_each(|_| self.round_trip());
        let before = self.server.endpoint.counters().kernel_calls;
        (0..ROUND_TRIPS).for_each(|_| self.round_trip());
        (self.server.endpoint.counters().kernel_calls - before) as f64 / ROUND_TRIPS as f64
    }
}

/// A look for readable sockets, a read and a write they were before: 3.
#[test]
fn answer_over_tcp_takes_a_read_and_a_write() {
    let calls = Pair::<Tcp>::new().calls();
    assert!((2.0..2.5).contains(&calls), "{calls}");
}

/// A look for readable sockets, and two reads, the second of which found nothing: 3.
#[test]
fn answer_over_shm_takes_a_read_of_the_bell() {
    let calls = Pair::<Shm>::new().calls();
    assert!((1.0..1.5).contains(&calls), "{calls}");
}

/// A look at the other provider came on top, as after each sleep.
#[test]
fn sleep_that_one_provider_ended_asks_no_other() {
    let calls = Pair::<Host<false>>::new().calls();
    assert!((2.0..2.5).contains(&calls), "over TCP {calls}");
    let calls = Pair::<Host<true>>::new().calls();
    assert!((1.0..1.5).contains(&calls), "over shared memory {calls}");
}

/// Both talk, and each is heard by who looks at those parts alone that ended its sleep.
#[test]
fn sleep_that_both_providers_end_is_ended_for_both() {
    let name = socket_name();
    let shm = shm_options(FabricLimits::default());
    let options = HostOptions { shm, socket: Some(name), ..HostOptions::default() };
    let endpoint = HostEndpoint::listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let addresses = [Address::Tcp(endpoint.address().unwrap()), Address::Shm(name)];
    let mut server = Peer::new(endpoint);
    let mut clients = addresses.map(|address| {
        let mut client = Peer::new(HostEndpoint::client(FabricLimits::default()).unwrap());
        let (here, there) = open(&mut Host::<false>, &mut client, &mut server, address);
        (client, here, there)
    });
    let mut poller = poller_of(&server.endpoint);
    for _ in 0..LEARNING {
        until(&mut Host::<false>, &mut [&mut server], |peers| peers[0].endpoint.prepare_sleep());
        for (client, here, _) in &mut clients {
            client.endpoint.send(*here, b"talk").unwrap();
            client.endpoint.flush();
        }
        server.seen.clear();
        while clients.iter().any(|(_, _, there)| server.messages(*there).is_empty()) {
            if server.endpoint.prepare_sleep() {
                let wait = poller.wait(Some(PATIENCE));
                assert!(wait.ready > 0, "a message was lost");
                server.endpoint.woken(wait.parts);
            }
            server.turn();
        }
    }
}

/// What the server has read without a question stays an edge in the kernel's list, which must end no sleep.
#[test]
fn sleep_is_ended_by_nothing_that_was_read_before() {
    fn check<W: World>() {
        let mut pair = Pair::<W>::new();
        pair.fall_asleep();
        for _ in 0..LEARNING {
            pair.round_trip();
            assert_eq!(pair.poller.wait(Some(Duration::ZERO)).ready, 0);
        }
    }
    check::<Tcp>();
    check::<Shm>();
    check::<Host<false>>();
    check::<Host<true>>();
}

/// Somebody talks all the time, and the server reads that connection without a look at the others.
#[test]
fn who_talks_all_the_time_keeps_nobody_waiting() {
    let mut world = Tcp;
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut clients = [0, 1].map(|_| world.client(FabricLimits::default()));
    let [(loud, _), (soft, there)] =
        clients.each_mut().map(|client| open(&mut Tcp, client, &mut server, address));
    let mut poller = poller_of(&server.endpoint);
    let talk = |client: &mut Peer<TcpEndpoint>, connection| {
        client.endpoint.send(connection, b"talk").unwrap();
        client.endpoint.flush();
    };
    for _ in 0..5 {
        for _ in 0..LEARNING {
            talk(&mut clients[0], loud);
            assert!(poller.wait(Some(PATIENCE)).ready > 0, "a message was lost");
            server.turn();
        }
        until(&mut world, &mut [&mut server], |peers| peers[0].endpoint.prepare_sleep());
        let heard = server.messages(there).len();
        talk(&mut clients[1], soft);
        assert!(poller.wait(Some(PATIENCE)).ready > 0, "it is there");
        let mut turns = 0;
        while server.messages(there).len() == heard {
            talk(&mut clients[0], loud);
            server.turn();
            turns += 1;
            assert!(turns <= 16, "not heard in {turns} turns");
        }
    }
}
