//! A host that is cut off: silent on all connections, old and new, and back where it stood afterwards.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

use cell_fabric::{
    Address, Blocked, Endpoint, FabricLimits, HostEndpoint, HostOptions, OneSided, Partition, Poller,
    ReadTag, RemoteRead, SendError,
};
use std::time::Duration;

use crate::harness::{Host, Peer, World, open, region, shm_options, socket_name, until};

/// Turns in which whatever could happen has happened.
const TURNS_MANY: usize = 2_000;

/// A host over both ways, its switch, and its address over one of them.
fn listening(shm: bool) -> (Partition, Peer<HostEndpoint>, Address) {
    let partition = Partition::default();
    let name = socket_name();
    let mut shm_options = shm_options(FabricLimits::default());
    shm_options.partition = partition.clone();
    let options = HostOptions { shm: shm_options, socket: Some(name), ..HostOptions::default() };
    let server = Peer::new(HostEndpoint::listen("127.0.0.1:0".parse().unwrap(), &options).unwrap());
    let tcp = Address::Tcp(server.endpoint.address().unwrap());
    (partition, server, if shm { Address::Shm(name) } else { tcp })
}

fn cut_off(shm: bool, blocked: Blocked) {
    let inbound = matches!(blocked, Blocked::Inbound | Blocked::Both);
    let outbound = matches!(blocked, Blocked::Outbound | Blocked::Both);
    let (partition, mut server, address) = listening(shm);
    let world = &mut Host::<false>::new();
    let mut client = world.client(FabricLimits::default());
    let (here, there) = open(world, &mut client, &mut server, address);
    let (closed_here, closed_there) = open(world, &mut client, &mut server, address);
    let (region, _writer) = region();
    let key = server.endpoint.register(&region).unwrap();
    let read = RemoteRead { key, offset: 4096, length: 64 };
    client.endpoint.post_read(here, read, ReadTag(1)).unwrap();
    until(world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 1);
    // One that was not read before: over shared memory the owner is asked for it.
    let (other_region, _other_writer) = self::region();
    let other = RemoteRead { key: server.endpoint.register(&other_region).unwrap(), ..read };

    partition.set(blocked);
    client.endpoint.send(here, b"question").unwrap();
    server.endpoint.send(there, b"answer").unwrap();
    client.endpoint.post_read(here, other, ReadTag(2)).unwrap();
    let second = client.endpoint.connect(&address).unwrap();
    if outbound {
        server.endpoint.close(closed_there);
    }
    for _ in 0..TURNS_MANY {
        client.turn();
        server.turn();
        world.turn();
    }
    assert_eq!(server.messages(there).is_empty(), inbound, "what others send");
    assert_eq!(client.messages(here).is_empty(), outbound, "what it sends");
    assert!(client.reads(here).len() == 1, "a read is asked for and answered");
    assert!(!client.connected(second) && client.closed(second).is_none());
    assert!(client.closed(here).is_none() && client.closed(closed_here).is_none(), "nobody is notified");
    // A shell's thread may sleep: nothing of what waits keeps it awake.
    assert!(server.endpoint.prepare_sleep());
    let mut poller = Poller::new().unwrap();
    poller.add(server.endpoint.wake_descriptor().unwrap()).unwrap();
    assert_eq!(poller.wait(Some(Duration::ZERO)).ready, 0);

    partition.set(Blocked::Nothing);
    until(world, &mut [&mut client, &mut server], |peers| {
        peers[0].messages(here) == [b"answer"]
            && peers[1].messages(there) == [b"question"]
            && peers[0].connected(second)
            && peers[0].reads(here).len() == 2
            && peers[0].closed(closed_here).is_some() == outbound
    });
}

#[test]
fn partition_over_tcp_cuts_messages_reads_and_new_connections_until_it_ends() {
    cut_off(false, Blocked::Both);
}

#[test]
fn partition_over_shared_memory_cuts_messages_and_new_connections_until_it_ends() {
    cut_off(true, Blocked::Both);
}

#[test]
fn partition_one_way_over_tcp_cuts_what_comes_or_what_goes_and_not_the_other() {
    cut_off(false, Blocked::Inbound);
    cut_off(false, Blocked::Outbound);
}

#[test]
fn partition_one_way_over_shared_memory_cuts_what_comes_or_what_goes_and_not_the_other() {
    cut_off(true, Blocked::Inbound);
    cut_off(true, Blocked::Outbound);
}

/// A host that cannot send keeps no more than it does for a peer that does not read, and loses none of it.
#[test]
fn partition_outbound_holds_output_up_to_the_limit_and_hands_it_over_at_the_end() {
    for shm in [false, true] {
        let (partition, mut server, address) = listening(shm);
        let world = &mut Host::<false>::new();
        let mut client = world.client(FabricLimits::default());
        let (here, there) = open(world, &mut client, &mut server, address);
        partition.set(Blocked::Outbound);
        let message = vec![7; 10_000];
        let mut sent = 0;
        let refused = loop {
            match server.endpoint.send(there, &message) {
                Ok(()) => sent += 1,
                Err(refused) => break refused,
            }
            server.turn();
        };
        assert!(refused == SendError::Full && sent > 1, "{refused}");
        client.turn();
        assert!(client.messages(here).is_empty());
        partition.set(Blocked::Nothing);
        until(world, &mut [&mut client, &mut server], |peers| peers[0].messages(here).len() == sent);
    }
}

/// Why the rule of trust exists: what is mapped can be read behind any filter of the owner.
#[test]
fn partition_over_shared_memory_does_not_cut_reads_of_mapped_memory() {
    let (partition, mut server, address) = listening(true);
    let world = &mut Host::<true>::new();
    let mut client = world.client(FabricLimits::default());
    let (here, _) = open(world, &mut client, &mut server, address);
    let (region, _writer) = region();
    let key = server.endpoint.register(&region).unwrap();
    let read = RemoteRead { key, offset: 8192, length: 8 };
    for (count, tag) in [(1, 1), (2, 2)] {
        client.endpoint.post_read(here, read, ReadTag(tag)).unwrap();
        until(world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == count);
        partition.set(Blocked::Both);
    }
    assert_eq!(client.reads(here)[1], (2, Ok(vec![1024])));
}
