//! What holds on every provider. A provider that is added gets a line at the end of this file.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

mod one_sided;

use std::io::ErrorKind;

use cell_fabric::{CloseReason, Endpoint, FabricError, FabricLimits, HelloRefusal, SendError};

#[cfg(feature = "verbs")]
use crate::harness::Verbs;
use crate::harness::{Host, Seen, Shm, Sim, Tcp, Tls, World, greeting, open, until};
use one_sided::*;

/// A message that can be distinguished from every other.
fn message(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((number * 31 + at) % 251).unwrap()).collect()
}

fn connect_both_ends_learn_of_it<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let (here, there) = open(&mut world, &mut client, &mut server, address);
    assert_eq!(client.seen(here), [Seen::Connected(greeting())]);
    assert_eq!(server.seen(there), [Seen::Accepted]);
    assert_eq!((client.endpoint.connections(), server.endpoint.connections()), (1, 1));
    assert_eq!(client.endpoint.counters().connected, 1);
    assert_eq!(server.endpoint.counters().accepted, 1);
}

fn send_before_connected_arrives_after<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let connection = client.endpoint.connect(&address).unwrap();
    client.endpoint.send(connection, b"early").unwrap();
    client.endpoint.flush();
    until(&mut world, &mut [&mut client, &mut server], |peers| {
        peers[1].order.first().is_some_and(|there| peers[1].messages(*there) == [b"early"])
    });
}

fn echo_many_messages_come_back_in_order<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    server.echoes = true;
    let connections: Vec<_> = (0..5).map(|_| open(&mut world, &mut client, &mut server, address).0).collect();
    let sent: Vec<_> = (0..3_000).map(|number| message(number, number * 7 % 600)).collect();
    for batch in sent.chunks(100) {
        for connection in &connections {
            batch.iter().for_each(|message| client.endpoint.send(*connection, message).unwrap());
        }
        client.turn();
        server.turn();
        world.turn();
    }
    for connection in connections {
        until(&mut world, &mut [&mut client, &mut server], |peers| {
            peers[0].messages(connection).len() == sent.len()
        });
        assert_eq!(client.messages(connection), sent);
    }
    assert_eq!(client.endpoint.counters().messages_sent, 15_000);
    assert_eq!(client.endpoint.counters().messages_received, 15_000);
}

fn send_at_the_limit_arrives_and_beyond_is_refused<W: World>() {
    let mut world = W::new();
    let limits = FabricLimits::default();
    let (mut server, address) = world.listen(limits);
    let mut client = world.client(limits);
    server.echoes = true;
    let (here, _) = open(&mut world, &mut client, &mut server, address);
    let sent: Vec<_> = [limits.message_bytes_max, 0, limits.message_bytes_max - 1, 1]
        .map(|length| message(length, length))
        .into_iter()
        .cycle()
        .take(40)
        .collect();
    for large in &sent {
        let (first, second) = large.split_at(large.len() / 3);
        while client.endpoint.send_parts(here, &[first, second]) == Err(SendError::Full) {
            client.turn();
            server.turn();
            world.turn();
        }
    }
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].messages(here).len() == sent.len());
    assert!(client.messages(here) == sent);
    let length = limits.message_bytes_max + 1;
    let refused = client.endpoint.send(here, &message(1, length));
    assert_eq!(refused, Err(SendError::TooLong { length, max: limits.message_bytes_max }));
}

fn send_the_smaller_limit_of_both_ends_holds<W: World>() {
    let mut world = W::new();
    let small = FabricLimits { message_bytes_max: 2_000, ..FabricLimits::default() };
    let (mut server, address) = world.listen(small);
    let mut client = world.client(FabricLimits::default());
    let (here, there) = open(&mut world, &mut client, &mut server, address);
    let too_long = SendError::TooLong { length: 2_001, max: 2_000 };
    assert_eq!(client.endpoint.send(here, &message(0, 2_001)), Err(too_long));
    assert_eq!(server.endpoint.send(there, &message(0, 2_001)), Err(too_long));
    assert_eq!(client.endpoint.send(here, &message(0, 2_000)), Ok(()));
}

fn send_nobody_reads_full_then_writable<W: World>() {
    let mut world = W::new();
    let limits = FabricLimits { connection_output_bytes_max: 300_000, ..FabricLimits::default() };
    let (mut server, address) = world.listen(limits);
    let mut client = world.client(limits);
    let (here, there) = open(&mut world, &mut client, &mut server, address);
    let mut taken = 0;
    // The network takes some, then nothing more moves.
    let mut idle = 0;
    while idle < 100 {
        match client.endpoint.send(here, &message(taken, 30_000)) {
            Ok(()) => (taken, idle) = (taken + 1, 0),
            Err(error) => {
                assert_eq!(error, SendError::Full);
                idle += 1;
            }
        }
        client.turn();
        world.turn();
    }
    assert!(client.endpoint.output_pending(here) <= limits.connection_output_bytes_max);
    assert!(client.endpoint.counters().output_full > 0);
    // At most what was full and emptied on the way.
    client.seen.get_mut(&here).unwrap().truncate(1);
    until(&mut world, &mut [&mut client, &mut server], |peers| {
        peers[0].seen(here).contains(&Seen::Writable) && peers[1].messages(there).len() == taken
    });
    let received = server.messages(there);
    assert!(received.iter().enumerate().all(|(number, got)| *got == message(number, 30_000)));
    assert_eq!(client.endpoint.output_pending(here), 0);
    assert_eq!(client.endpoint.send(here, b"more"), Ok(()));
}

fn receive_peer_does_not_read_replies_is_read_no_further<W: World>() {
    let mut world = W::new();
    let limits = FabricLimits { connection_output_bytes_max: 300_000, ..FabricLimits::default() };
    let (mut server, address) = world.listen(limits);
    let mut client = world.client(limits);
    let (here, there) = open(&mut world, &mut client, &mut server, address);
    // The server's output to the client fills to over its high-water mark.
    let mut idle = 0;
    while idle < 100 {
        let pending = server.endpoint.output_pending(there);
        let sent = pending <= limits.connection_output_bytes_max / 2
            && server.endpoint.send(there, &message(0, 60_000)).is_ok();
        idle = if sent { 0 } else { idle + 1 };
        server.turn();
        world.turn();
    }
    client.endpoint.send(here, b"one more request").unwrap();
    for _ in 0..1_000 {
        client.endpoint.flush();
        server.turn();
        world.turn();
    }
    assert_eq!(server.messages(there), Vec::<Vec<u8>>::new());
    until(&mut world, &mut [&mut client, &mut server], |peers| !peers[1].messages(there).is_empty());
}

/// A server that has this much to say reads nothing meanwhile. That its client takes it must still reach it.
fn send_far_past_the_high_water_mark_arrives_whole<W: World>() {
    let mut world = W::new();
    let limits = FabricLimits { connection_output_bytes_max: 4 << 20, ..FabricLimits::default() };
    let (mut server, address) = world.listen(limits);
    let mut client = world.client(limits);
    let (here, there) = open(&mut world, &mut client, &mut server, address);
    let sent: Vec<_> = (0..60).map(|number| message(number, 60_000)).collect();
    sent.iter().for_each(|message| server.endpoint.send(there, message).unwrap());
    assert!(server.endpoint.output_pending(there) > limits.connection_output_bytes_max / 2);
    until(&mut world, &mut [&mut client, &mut server], |peers| {
        assert_eq!((peers[0].closed(here), peers[1].closed(there)), (None, None));
        peers[0].messages(here).len() == sent.len()
    });
    assert!(client.messages(here) == sent);
}

/// Were each to read no further until the other has, nobody would ever go on.
fn send_both_ends_full_each_gets_everything<W: World>() {
    let mut world = W::new();
    let limits = FabricLimits { connection_output_bytes_max: 300_000, ..FabricLimits::default() };
    let (mut server, address) = world.listen(limits);
    let mut client = world.client(limits);
    let (here, there) = open(&mut world, &mut client, &mut server, address);
    let (mut to_server, mut to_client, mut idle) = (0, 0, 0);
    while idle < 100 {
        let client_sent = client.endpoint.send(here, &message(to_server, 60_000)).is_ok();
        let server_sent = server.endpoint.send(there, &message(to_client, 60_000)).is_ok();
        to_server += usize::from(client_sent);
        to_client += usize::from(server_sent);
        idle = if client_sent || server_sent { 0 } else { idle + 1 };
        client.endpoint.flush();
        server.endpoint.flush();
        world.turn();
    }
    until(&mut world, &mut [&mut client, &mut server], |peers| {
        peers[0].messages(here).len() == to_client && peers[1].messages(there).len() == to_server
    });
    assert!(to_server > 5 && to_client > 5, "{to_server} {to_client}");
}

fn close_peer_learns_of_it_after_the_messages<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let (here, there) = open(&mut world, &mut client, &mut server, address);
    client.endpoint.send(here, b"last words").unwrap();
    client.endpoint.close(here);
    assert_eq!(client.endpoint.connections(), 0);
    assert_eq!(client.endpoint.send(here, b"later"), Err(SendError::Closed));
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[1].closed(there).is_some());
    let expected =
        [Seen::Accepted, Seen::Message(b"last words".to_vec()), Seen::Closed(CloseReason::PeerClosed)];
    assert_eq!(server.seen(there), expected);
    assert_eq!(server.endpoint.send(there, b"to nobody"), Err(SendError::Closed));
    assert_eq!(client.seen(here).len(), 1, "the closing end receives no more");
}

fn close_and_connect_again_ids_are_not_reused<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let mut ids = std::collections::HashSet::new();
    for round in 1..=50 {
        let (here, there) = open(&mut world, &mut client, &mut server, address);
        assert!(ids.insert((0, here)) && ids.insert((1, there)));
        client.endpoint.close(here);
        until(&mut world, &mut [&mut client, &mut server], |peers| peers[1].closed(there).is_some());
        assert_eq!(server.endpoint.counters().closed, round);
    }
}

fn drop_endpoint_all_peers_learn_of_it<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let connections: Vec<_> = (0..3).map(|_| open(&mut world, &mut client, &mut server, address).0).collect();
    drop(server);
    until(&mut world, &mut [&mut client], |peers| {
        connections.iter().all(|connection| peers[0].closed(*connection).is_some())
    });
    // The host is there and nobody listens.
    let late = client.endpoint.connect(&address).unwrap();
    for _ in 0..1_000 {
        client.turn();
        world.turn();
    }
    assert!(!client.connected(late));
}

fn connect_where_nobody_listens_closes_with_refused<W: World>() {
    let mut world = W::new();
    let address = world.deserted();
    let mut client = world.client(FabricLimits::default());
    let connection = client.endpoint.connect(&address).unwrap();
    client.endpoint.send(connection, b"hello?").unwrap_or_else(|error| assert_eq!(error, SendError::Closed));
    until(&mut world, &mut [&mut client], |peers| peers[0].closed(connection).is_some());
    assert_eq!(client.closed(connection), Some(CloseReason::Network(ErrorKind::ConnectionRefused)));
    assert_eq!(client.endpoint.connections(), 0);
}

fn connect_beyond_the_limit_is_refused_on_both_ends<W: World>() {
    let mut world = W::new();
    let few = FabricLimits { connections_max: 4, ..FabricLimits::default() };
    let (mut server, address) = world.listen(few);
    let mut client = world.client(FabricLimits::default());
    let opened: Vec<_> = (0..4).map(|_| open(&mut world, &mut client, &mut server, address).0).collect();
    let refused = client.endpoint.connect(&address).unwrap();
    until(&mut world, &mut [&mut client, &mut server], |peers| {
        peers[0].closed(refused).is_some() && !peers[1].refused.is_empty()
    });
    assert_eq!(client.closed(refused), Some(CloseReason::RefusedByPeer(HelloRefusal::TooManyConnections)));
    assert_eq!(server.refused, [CloseReason::Refused(HelloRefusal::TooManyConnections)]);
    let counters = server.endpoint.counters();
    assert_eq!((counters.refused, counters.refused_full), (1, 1));
    assert!(opened.iter().all(|connection| client.closed(*connection).is_none()));
    // Room again after one is closed.
    client.endpoint.close(opened[0]);
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[1].endpoint.connections() == 3);
    open(&mut world, &mut client, &mut server, address);
    // The limit holds for one's own connections too.
    let mut stingy = world.client(FabricLimits { connections_max: 1, ..FabricLimits::default() });
    stingy.endpoint.connect(&address).unwrap();
    let error = stingy.endpoint.connect(&address).unwrap_err();
    assert!(matches!(error, FabricError::TooManyConnections { max: 1 }));
}

fn tick_nothing_comes_closes_as_idle<W: World>() {
    let mut world = W::new();
    let mut timeouts = FabricLimits { idle_timeout_ns: 1_000_000_000, ..FabricLimits::default() };
    let (mut server, address) = world.listen(timeouts);
    timeouts.idle_timeout_ns = 0;
    let mut client = world.client(timeouts);
    let start_ns = 1 << 50;
    client.endpoint.tick(start_ns);
    server.endpoint.tick(start_ns);
    let (here, there) = open(&mut world, &mut client, &mut server, address);
    for step in 1..=5 {
        // Keeps talking, so it stays.
        server.endpoint.tick(start_ns + step * 600_000_000);
        client.endpoint.tick(start_ns + step * 600_000_000);
        client.endpoint.send(here, b"still here").unwrap();
        until(&mut world, &mut [&mut client, &mut server], |peers| {
            peers[1].messages(there).len() as u64 == step
        });
    }
    server.endpoint.tick(start_ns + 3_900_000_000);
    server.turn();
    assert_eq!(server.closed(there), None);
    server.endpoint.tick(start_ns + 4_100_000_000);
    until(&mut world, &mut [&mut client, &mut server], |peers| {
        peers[0].closed(here).is_some() && peers[1].closed(there).is_some()
    });
    assert_eq!(server.closed(there), Some(CloseReason::Idle));
    assert_eq!(client.closed(here), Some(CloseReason::PeerClosed));
    assert_eq!(server.endpoint.counters().timed_out, 1);
}

fn limits_that_change_count_for_the_connections_that_there_are<W: World>() {
    let mut world = W::new();
    let mut limits = FabricLimits { idle_timeout_ns: 0, ..FabricLimits::default() };
    let (mut server, address) = world.listen(limits);
    let mut client = world.client(limits);
    let start_ns = 1 << 50;
    server.endpoint.tick(start_ns);
    let (here, there) = open(&mut world, &mut client, &mut server, address);
    // Fewer than there are: the connection stays, and no further one comes.
    limits.connections_max = 1;
    server.endpoint.set_limits(limits);
    let refused = client.endpoint.connect(&address).unwrap();
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].closed(refused).is_some());
    assert_eq!(client.closed(refused), Some(CloseReason::RefusedByPeer(HelloRefusal::TooManyConnections)));
    // Less output than waits: nothing is lost of what was taken, and more is not.
    let long = vec![7; 60_000];
    while server.endpoint.output_pending(there) < 500_000 {
        server.endpoint.send(there, &long).unwrap();
    }
    limits.connection_output_bytes_max = 256 << 10;
    server.endpoint.set_limits(limits);
    assert_eq!(server.endpoint.send(there, &long), Err(SendError::Full));
    until(&mut world, &mut [&mut client, &mut server], |peers| {
        peers[0].messages(here).len() * long.len() >= 500_000
    });
    server.endpoint.send(there, &long).unwrap();
    // It was kept for ever.
    limits.idle_timeout_ns = 1_000_000_000;
    server.endpoint.set_limits(limits);
    server.endpoint.tick(start_ns + 3_599_900_000_000);
    server.turn();
    server.endpoint.tick(start_ns + 3_600_000_000_000);
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].closed(here).is_some());
    assert!(matches!(server.closed(there), Some(CloseReason::Idle | CloseReason::Stalled)));
}

fn prepare_sleep_false_until_all_is_polled<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits::default());
    let mut client = world.client(FabricLimits::default());
    let (here, there) = open(&mut world, &mut client, &mut server, address);
    for _ in 0..100 {
        client.turn();
        server.turn();
        world.turn();
    }
    assert!(client.endpoint.prepare_sleep() && server.endpoint.prepare_sleep());
    client.endpoint.send(here, b"wake up").unwrap();
    assert!(!client.endpoint.prepare_sleep(), "it must be flushed first");
    client.endpoint.flush();
    assert!(client.endpoint.prepare_sleep());
    until(&mut world, &mut [&mut server], |peers| peers[0].messages(there).len() == 1);
    assert!(server.endpoint.prepare_sleep());
}

/// Calls a macro with the names of all tests.
macro_rules! all_tests {
    ($macro:ident, $($arguments:tt)*) => {
        $macro! { $($arguments)* {
            connect_both_ends_learn_of_it
            send_before_connected_arrives_after
            echo_many_messages_come_back_in_order
            send_at_the_limit_arrives_and_beyond_is_refused
            send_the_smaller_limit_of_both_ends_holds
            send_nobody_reads_full_then_writable
            receive_peer_does_not_read_replies_is_read_no_further
            send_both_ends_full_each_gets_everything
            send_far_past_the_high_water_mark_arrives_whole
            close_peer_learns_of_it_after_the_messages
            close_and_connect_again_ids_are_not_reused
            drop_endpoint_all_peers_learn_of_it
            connect_where_nobody_listens_closes_with_refused
            connect_beyond_the_limit_is_refused_on_both_ends
            tick_nothing_comes_closes_as_idle
            limits_that_change_count_for_the_connections_that_there_are
            prepare_sleep_false_until_all_is_polled
            read_registered_region_gives_its_words
            read_ended_or_unknown_key_fails
            read_range_not_permitted_fails
            read_too_many_in_flight_full_then_writable
            read_connection_ends_reads_fail_before_closed
            read_over_an_accepted_connection_is_unsupported
            write_of_a_region_registered_for_reading_is_refused
            write_refused_is_polled_before_sleep_and_ends_with_its_connection
        } }
    };
}

macro_rules! provider {
    ($provider:ident, $world:ty, { $($test:ident)+ }) => {
        mod $provider {
            $(#[test] fn $test() { super::$test::<$world>(); })+
            #[test]
            fn register_for_writing_is_refused() { super::register_for_writing_is_refused::<$world>(); }
        }
    };
}

/// However many strangers say their hello and nothing more: who comes later gets in, and the oldest of them
/// makes room. Whom the server knows stays.
fn connect_crowd_that_nobody_knows_locks_nobody_out<W: World>() {
    let mut world = W::new();
    let (mut server, address) = world.listen(FabricLimits { connections_max: 4, ..FabricLimits::default() });
    server.endpoint.await_admission();
    let mut strangers = world.client(FabricLimits::default());
    let refusal = CloseReason::RefusedByPeer(HelloRefusal::TooManyConnections);
    // Until there is no place more: beyond the limit are some for whom the server chooses.
    let early = loop {
        let next = strangers.endpoint.connect(&address).unwrap();
        until(&mut world, &mut [&mut strangers, &mut server], |peers| {
            peers[0].connected(next) || peers[0].closed(next).is_some()
        });
        if !strangers.connected(next) {
            break next;
        }
    };
    assert_eq!(strangers.closed(early), Some(refusal));
    until(&mut world, &mut [&mut server], |peers| !peers[0].refused.is_empty());
    let places = server.order.len();
    assert!([4 + 16, 4 + 2 * 16].contains(&places), "{places}");
    server.endpoint.admit(server.order[0]);
    let mut client = world.client(FabricLimits::default());
    server.endpoint.tick(2_000_000_000); // they may have been about to say it until here
    for _ in 1..places {
        open(&mut world, &mut client, &mut server, address);
        server.endpoint.admit(*server.order.last().unwrap());
    }
    let (known, others) = (strangers.order[0], strangers.order[1..places].to_vec());
    until(&mut world, &mut [&mut strangers, &mut server], |peers| {
        others.iter().all(|stranger| peers[0].closed(*stranger).is_some())
    });
    let evicted = usize::try_from(server.endpoint.counters().evicted).unwrap();
    assert_eq!((strangers.closed(known), evicted), (None, places - 1));
    let last = client.endpoint.connect(&address).unwrap();
    until(&mut world, &mut [&mut client, &mut server], |peers| peers[0].closed(last).is_some());
    assert_eq!(client.closed(last), Some(refusal));
}

/// Where peers come by sockets; the simulated network has no crowds.
mod crowd {
    #[test]
    fn over_tcp() {
        super::connect_crowd_that_nobody_knows_locks_nobody_out::<super::Tcp>();
    }

    #[test]
    fn over_tls() {
        super::connect_crowd_that_nobody_knows_locks_nobody_out::<super::Tls>();
    }

    #[test]
    fn over_shm() {
        super::connect_crowd_that_nobody_knows_locks_nobody_out::<super::Shm>();
    }

    #[test]
    fn over_both() {
        super::connect_crowd_that_nobody_knows_locks_nobody_out::<super::Host<false>>();
        super::connect_crowd_that_nobody_knows_locks_nobody_out::<super::Host<true>>();
    }
}

all_tests!(provider, tcp, super::Tcp,);
all_tests!(provider, tls, super::Tls,);
all_tests!(provider, shm, super::Shm,);
all_tests!(provider, host_over_tcp, super::Host<false>,);
all_tests!(provider, host_over_shm, super::Host<true>,);
all_tests!(provider, sim, super::Sim,);
#[cfg(feature = "verbs")]
all_tests!(provider_with_device, verbs, super::Verbs,);
