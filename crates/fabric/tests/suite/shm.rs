//! What is particular to shared memory: wake-ups, deaths of processes, users, regions that end.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cell_fabric::{
    Address, CloseReason, Endpoint, FabricError, FabricLimits, HelloRefusal, HostEndpoint, HostOptions,
    OneSided, Poller, ReadFailure, ReadTag, RegionKey, RemoteRead, ShmEndpoint, ShmOptions, SocketName,
};
use cell_memory::{Region, RegionSpec};
use cell_terms::{Epoch, PairId, Words};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::harness::{Host, Peer, Seen, Shm, World, open, region, shm_options, socket_name, until};

fn server(limits: FabricLimits) -> Peer<ShmEndpoint> {
    Shm.listen(limits).0
}

/// A wake-up that has not come for so long is lost.
const PATIENCE: Duration = Duration::from_secs(120);

fn poller_of(peer: &Peer<ShmEndpoint>) -> Poller {
    let mut poller = Poller::new().unwrap();
    poller.add(peer.endpoint.wake_descriptor().unwrap()).unwrap();
    poller
}

/// Both ends sleep whenever they may, and a wake-up that is lost ends the test.
fn sleep_between_messages(bytes: usize, rounds: usize, ahead: usize) {
    let mut server = server(FabricLimits::default());
    let address = Address::Shm(server.endpoint.name().unwrap());
    let turn = |peer: &mut Peer<ShmEndpoint>, poller: &mut Poller| {
        if peer.turn() == 0 && peer.endpoint.prepare_sleep() {
            let wait = poller.wait(Some(PATIENCE));
            assert!(wait.ready > 0, "a wake-up was lost");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            server.echoes = true;
            let mut poller = poller_of(&server);
            while server.order.first().is_none_or(|there| server.closed(*there).is_none()) {
                turn(&mut server, &mut poller);
            }
        });
        let mut client = Shm.client(FabricLimits::default());
        let mut poller = poller_of(&client);
        let connection = client.endpoint.connect(&address).unwrap();
        let mut sent = 0;
        while client.seen(connection).len() < rounds + 1 {
            let got = client.seen(connection).len().saturating_sub(1);
            while sent < rounds && sent < got + ahead {
                client.endpoint.send(connection, &vec![u8::try_from(sent % 251).unwrap(); bytes]).unwrap();
                sent += 1;
            }
            turn(&mut client, &mut poller);
        }
        for (number, seen) in client.seen(connection)[1..].iter().enumerate() {
            let expected = vec![u8::try_from(number % 251).unwrap(); bytes];
            assert!(*seen == Seen::Message(expected), "message {number}");
        }
        client.endpoint.close(connection);
    });
}

/// Nothing comes back, so the sender is woken for room and for nothing else.
#[test]
fn wake_ups_for_room_alone_are_never_lost() {
    const COUNT: usize = 3_000;
    let mut server = server(FabricLimits::default());
    let address = Address::Shm(server.endpoint.name().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut poller = poller_of(&server);
            while server.order.first().is_none_or(|there| server.closed(*there).is_none()) {
                if server.turn() == 0 && server.endpoint.prepare_sleep() {
                    assert!(poller.wait(Some(PATIENCE)).ready > 0, "the receiver was not woken");
                }
            }
            assert_eq!(server.messages(server.order[0]).len(), COUNT);
        });
        let mut client = Shm.client(FabricLimits::default());
        let mut poller = poller_of(&client);
        let connection = client.endpoint.connect(&address).unwrap();
        let mut sent = 0;
        while sent < COUNT || client.endpoint.output_pending(connection) > 0 {
            while sent < COUNT && client.endpoint.send(connection, &[3; 20_000]).is_ok() {
                sent += 1;
            }
            let happened = client.turn();
            let waits = client.endpoint.output_pending(connection) > 0;
            if happened == 0 && waits && client.endpoint.prepare_sleep() {
                assert!(poller.wait(Some(PATIENCE)).ready > 0, "the sender was not woken");
            }
        }
        client.endpoint.close(connection);
    });
}

/// A ring may be full of one client's requests: the others are not kept waiting until all of them are carried
/// out, and nothing of them is lost when the client is gone.
#[test]
fn poll_takes_one_message_of_the_longest_at_most_and_the_rest_comes_later() {
    const BYTES: usize = 40 << 10;
    const MESSAGES: usize = 20;
    let name = socket_name();
    let options = ShmOptions { ring_bytes: 1 << 20, ..shm_options(FabricLimits::default()) };
    let mut server = Peer::new(ShmEndpoint::listen(name, &options).unwrap());
    let mut client = Shm.client(FabricLimits::default());
    let (there, here) = open(&mut Shm, &mut client, &mut server, Address::Shm(name));
    for number in 0..MESSAGES {
        client.endpoint.send(there, &vec![u8::try_from(number).unwrap(); BYTES]).unwrap();
    }
    client.endpoint.flush();
    client.endpoint.close(there);
    let messages = |server: &Peer<ShmEndpoint>| {
        server.seen(here).iter().filter(|seen| matches!(seen, Seen::Message(_))).count()
    };
    let mut seen = messages(&server);
    let mut polls = 0;
    while server.closed(here).is_none() {
        server.turn();
        assert!(messages(&server) <= seen + 2, "one poll gave {}", messages(&server) - seen);
        polls += usize::from(messages(&server) > seen);
        seen = messages(&server);
    }
    assert_eq!((seen, server.closed(here)), (MESSAGES, Some(CloseReason::PeerClosed)));
    assert!(polls >= MESSAGES / 2, "{polls} polls");
}

#[test]
fn ring_of_a_new_connection_is_as_large_as_the_limits_in_force_say() {
    let name = socket_name();
    let options = shm_options(FabricLimits::default());
    let mut server = Peer::new(ShmEndpoint::listen(name, &options).unwrap());
    let mut client = Shm.client(FabricLimits::default());
    let mut is_short = |server: &mut Peer<ShmEndpoint>| {
        let (there, _) = open(&mut Shm, &mut client, server, Address::Shm(name));
        client.endpoint.send(there, &[7; 60_000]).unwrap();
        client.endpoint.flush();
        client.endpoint.output_pending(there) > 0
    };
    assert!(!is_short(&mut server));
    server.endpoint.set_limits(FabricLimits { shm_ring_bytes: 4_096, ..FabricLimits::default() });
    assert!(is_short(&mut server));
}

#[test]
fn wake_ups_of_small_messages_are_never_lost() {
    sleep_between_messages(8, 20_000, 1);
}

#[test]
fn wake_ups_for_room_are_never_lost() {
    sleep_between_messages(60_000, 600, 5);
}

const ROLE: &str = "CELL_FABRIC_SHM_ROLE";
const NOBODY: u32 = 65_534;

/// Not a test: what this binary does as somebody's child.
#[test]
fn child_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let (role, name) = role.split_once(' ').unwrap();
    let address = Address::Shm(SocketName::new(name).unwrap());
    match role {
        "client" => {
            let mut client = Shm.client(FabricLimits::default());
            let connection = client.endpoint.connect(&address).unwrap();
            client.endpoint.send(connection, b"from the child").unwrap();
            until(&mut Shm, &mut [&mut client], |peers| peers[0].closed(connection).is_some());
            let reason = client.closed(connection).unwrap();
            let refused = reason == CloseReason::RefusedByPeer(HelloRefusal::NotPermitted);
            std::process::exit(if refused { 42 } else { 43 });
        }
        _ => {
            let options = shm_options(FabricLimits::default());
            let server = ShmEndpoint::listen(SocketName::new(name).unwrap(), &options).unwrap();
            let mut server = Peer::new(server);
            let (region, _writer) = region();
            let key = server.endpoint.register(&region).unwrap();
            until(&mut Shm, &mut [&mut server], |peers| !peers[0].order.is_empty());
            let there = server.order[0];
            server.endpoint.send(there, &key.0.to_le_bytes()).unwrap();
            loop {
                server.turn();
                std::thread::yield_now();
            }
        }
    }
}

fn child(role: &str, name: SocketName, user: Option<u32>) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "shm::child_role"]).env(ROLE, format!("{role} {name}"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(user) = user {
        command.uid(user);
    }
    command.spawn()
}

#[test]
fn kill_client_process_its_messages_arrive_and_then_its_end() {
    let mut server = server(FabricLimits::default());
    let mut child = child("client", server.endpoint.name().unwrap(), None).unwrap();
    until(&mut Shm, &mut [&mut server], |peers| {
        peers[0].order.first().is_some_and(|there| !peers[0].messages(*there).is_empty())
    });
    let there = server.order[0];
    server.endpoint.send(there, &[1; 50_000]).unwrap();
    child.kill().unwrap();
    until(&mut Shm, &mut [&mut server], |peers| peers[0].closed(there).is_some());
    let ended = Seen::Closed(CloseReason::PeerClosed);
    assert_eq!(server.seen(there), [Seen::Accepted, Seen::Message(b"from the child".to_vec()), ended]);
    child.wait().unwrap();
}

#[test]
fn kill_server_process_its_memory_is_read_until_its_end_is_seen() {
    let name = socket_name();
    let mut child = child("server", name, None).unwrap();
    let mut client = Shm.client(FabricLimits::default());
    let connection = loop {
        let connection = client.endpoint.connect(&Address::Shm(name)).unwrap();
        until(&mut Shm, &mut [&mut client], |peers| !peers[0].seen(connection).is_empty());
        if client.connected(connection) {
            break connection;
        }
    };
    until(&mut Shm, &mut [&mut client], |peers| !peers[0].messages(connection).is_empty());
    let key = RegionKey(u64::from_le_bytes(client.messages(connection)[0].clone().try_into().unwrap()));
    let read = RemoteRead { key, offset: 8_000, length: 8 };
    client.endpoint.post_read(connection, read, ReadTag(1)).unwrap();
    until(&mut Shm, &mut [&mut client], |peers| peers[0].reads(connection).len() == 1);
    assert_eq!(client.reads(connection), [(1, Ok(vec![1_000]))]);
    child.kill().unwrap();
    child.wait().unwrap();
    until(&mut Shm, &mut [&mut client], |peers| peers[0].closed(connection).is_some());
    assert_eq!(client.closed(connection), Some(CloseReason::PeerClosed));
}

/// A name is anyone's who is there first.
#[test]
fn connect_to_another_users_server_needs_a_place_on_the_list() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for (users, trusted) in [(vec![], false), (vec![NOBODY], true)] {
        let name = socket_name();
        let Ok(mut child) = child("server", name, Some(NOBODY)) else {
            println!("the test's own binary cannot be run by another user");
            return;
        };
        let mut client = Peer::new(ShmEndpoint::client_of(FabricLimits::default(), &users).unwrap());
        let first = loop {
            let connection = client.endpoint.connect(&Address::Shm(name)).unwrap();
            until(&mut Shm, &mut [&mut client], |peers| !peers[0].seen(connection).is_empty());
            match &client.seen(connection)[0] {
                // It does not listen yet.
                Seen::Closed(CloseReason::Network(_)) => {}
                seen => break seen.clone(),
            }
        };
        let refused = Seen::Closed(CloseReason::AcceptorNotTrusted { user: NOBODY });
        assert_eq!((matches!(first, Seen::Connected(_)), first == refused), (trusted, !trusted));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn connect_as_another_user_needs_a_place_on_the_list() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for (users, admitted) in [(vec![], false), (vec![NOBODY], true)] {
        let name = socket_name();
        let options = ShmOptions { users, ..shm_options(FabricLimits::default()) };
        let mut server = Peer::new(ShmEndpoint::listen(name, &options).unwrap());
        let Ok(mut child) = child("client", name, Some(NOBODY)) else {
            println!("the test's own binary cannot be run by another user");
            return;
        };
        if admitted {
            until(&mut Shm, &mut [&mut server], |peers| !peers[0].order.is_empty());
            child.kill().unwrap();
        } else {
            until(&mut Shm, &mut [&mut server], |peers| !peers[0].refused.is_empty());
            assert_eq!(server.refused, [CloseReason::Refused(HelloRefusal::NotPermitted)]);
            assert_eq!(child.wait().unwrap().code(), Some(42));
        }
        child.wait().unwrap();
    }
}

#[test]
fn read_mapped_region_fails_when_its_registration_ends() {
    let (mut server, address) = Shm.listen(FabricLimits::default());
    let mut client = Shm.client(FabricLimits::default());
    let (here, _) = open(&mut Shm, &mut client, &mut server, address);
    let (region, _writer) = region();
    let key = server.endpoint.register(&region).unwrap();
    let read = RemoteRead { key, offset: 8_000, length: 8 };
    for tag in 1..=3 {
        client.endpoint.post_read(here, read, ReadTag(tag)).unwrap();
        client.endpoint.flush();
        if tag == 3 {
            server.endpoint.deregister(key);
            // The word in the ledger is another's now: that does not bring the old key back.
            server.endpoint.register(&region).unwrap();
        }
        until(&mut Shm, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() as u64 == tag);
    }
    let outcomes: Vec<_> = client.reads(here).into_iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(outcomes, [Ok(vec![1_000]), Ok(vec![1_000]), Err(ReadFailure::KeyUnknown)]);
}

#[test]
fn mapped_region_lasts_as_long_as_its_registration() {
    let (mut server, address) = Shm.listen(FabricLimits::default());
    let mut client = Shm.client(FabricLimits::default());
    let (here, _) = open(&mut Shm, &mut client, &mut server, address);
    let (region, _writer) = region();
    let key = server.endpoint.register(&region).unwrap();
    assert!(client.endpoint.mapped(here, key).is_none(), "nothing was read yet");
    client.endpoint.post_read(here, RemoteRead { key, offset: 8_000, length: 8 }, ReadTag(0)).unwrap();
    until(&mut Shm, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 1);
    let mapped = client.endpoint.mapped(here, key).unwrap();
    assert_eq!((mapped.region().load(1_000), mapped.lasts()), (1_000, true));
    assert!(client.endpoint.mapped(here, RegionKey(key.0 ^ 1)).is_none());
    server.endpoint.deregister(key);
    assert!(!mapped.lasts());
    server.endpoint.register(&region).unwrap();
    assert!(!mapped.lasts(), "another registration has the word now");
}

#[test]
fn read_mapped_region_needs_nothing_of_the_server() {
    let (mut server, address) = Shm.listen(FabricLimits::default());
    let mut client = Shm.client(FabricLimits::default());
    let (here, _) = open(&mut Shm, &mut client, &mut server, address);
    let key = server.endpoint.register(&region().0).unwrap();
    let read = |tag: u64| RemoteRead { key, offset: 8_000 + 8 * tag, length: 8 };
    client.endpoint.post_read(here, read(0), ReadTag(0)).unwrap();
    until(&mut Shm, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 1);
    for tag in 1..500 {
        client.endpoint.post_read(here, read(tag), ReadTag(tag)).unwrap();
        client.turn();
        client.turn();
        assert_eq!(client.reads(here).last(), Some(&(tag, Ok(vec![1_000 + tag]))));
    }
}

#[test]
fn register_what_cannot_be_shared_is_refused() {
    let spec = RegionSpec::extent(PairId(1), Epoch(1), 2 << 20).unwrap();
    let (private, _writer) = Region::create_private(&spec).unwrap();
    let mut server = server(FabricLimits::default());
    let refused = server.endpoint.register(&private);
    assert!(matches!(refused, Err(FabricError::RegionNotShared { .. })));
    let options = ShmOptions { one_sided: false, ..shm_options(FabricLimits::default()) };
    let mut server = ShmEndpoint::listen(socket_name(), &options).unwrap();
    assert!(matches!(server.register(&region().0), Err(FabricError::OneSidedUnavailable)));
    let mut client = Shm.client(FabricLimits::default());
    assert!(matches!(client.endpoint.register(&region().0), Err(FabricError::OneSidedUnavailable)));
    let tcp = client.endpoint.connect(&Address::Sim(1));
    assert!(matches!(tcp, Err(FabricError::AddressUnsupported { .. })));
}

#[test]
fn read_host_without_one_sided_reads_fails_as_unsupported() {
    let options = ShmOptions { one_sided: false, ..shm_options(FabricLimits::default()) };
    let name = socket_name();
    let mut server = Peer::new(ShmEndpoint::listen(name, &options).unwrap());
    let mut client = Shm.client(FabricLimits::default());
    let here = client.endpoint.connect(&Address::Shm(name)).unwrap();
    client
        .endpoint
        .post_read(here, RemoteRead { key: RegionKey(1), offset: 0, length: 8 }, ReadTag(1))
        .unwrap();
    until(&mut Shm, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 1);
    assert_eq!(client.reads(here), [(1, Err(ReadFailure::Unsupported))]);
}

#[test]
fn host_one_registration_is_read_over_both() {
    let mut world = Host::<true>;
    let (mut server, shm) = world.listen(FabricLimits::default());
    let tcp = Address::Tcp(server.endpoint.address().unwrap());
    let mut client = world.client(FabricLimits::default());
    let key = server.endpoint.register(&region().0).unwrap();
    let read = RemoteRead { key, offset: 8_000, length: 8 };
    let connections = [shm, tcp].map(|address| open(&mut world, &mut client, &mut server, address).0);
    assert_ne!(connections[0], connections[1]);
    for connection in connections {
        client.endpoint.post_read(connection, read, ReadTag(1)).unwrap();
    }
    until(&mut world, &mut [&mut client, &mut server], |peers| {
        connections.iter().all(|connection| peers[0].reads(*connection).len() == 1)
    });
    for connection in connections {
        assert_eq!(client.reads(connection), [(1, Ok(vec![1_000]))]);
    }
    server.endpoint.deregister(key);
    for connection in connections {
        client.endpoint.post_read(connection, read, ReadTag(2)).unwrap();
        until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].reads(connection).len() == 2);
        assert_eq!(client.reads(connection)[1], (2, Err(ReadFailure::KeyUnknown)));
    }
}

#[test]
fn host_names_its_socket_in_the_hello_of_tcp() {
    let name = socket_name();
    let mut options = HostOptions { socket: Some(name), ..HostOptions::default() };
    options.shm.limits = FabricLimits::default();
    let any = "127.0.0.1:0".parse().unwrap();
    let mut server = Peer::new(HostEndpoint::listen(any, &options).unwrap());
    let mut client = Peer::new(HostEndpoint::client(FabricLimits::default()).unwrap());
    let tcp = Address::Tcp(server.endpoint.address().unwrap());
    let mut world = Host::<false>;
    let (connection, _) = open(&mut world, &mut client, &mut server, tcp);
    let Seen::Connected(greeting) = &client.seen(connection)[0] else { panic!("it is connected") };
    assert_eq!(greeting.shared_memory_socket, name.to_string());
}
