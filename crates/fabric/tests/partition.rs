//! A host that is cut off: silent on all connections, old and new, and back where it stood afterwards.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

mod harness;

use cell_fabric::{
    Address, Endpoint, FabricLimits, HostEndpoint, HostOptions, OneSided, Partition, Poller, ReadTag,
    RemoteRead, SocketName,
};
use std::time::Duration;

use harness::{Host, Peer, World, open, region, shm_options, socket_name, until};

/// Turns in which whatever could happen has happened.
const TURNS_MANY: usize = 2_000;

/// A host over both ways, and its switch.
fn listening() -> (Partition, Peer<HostEndpoint>, SocketName) {
    let partition = Partition::default();
    let name = socket_name();
    let mut shm = shm_options(FabricLimits::default());
    shm.partition = partition.clone();
    let options = HostOptions { shm, socket: Some(name), ..HostOptions::default() };
    let mut listening = HostEndpoint::listen("127.0.0.1:0".parse().unwrap(), 1, &options).unwrap();
    (partition, Peer::new(listening.remove(0)), name)
}

fn cut_off(shm: bool) {
    let (partition, mut server, name) = listening();
    let tcp = Address::tcp(server.endpoint.address().unwrap());
    let address = if shm { Address::shm(name) } else { tcp };
    let world = &mut Host::<false>::new();
    let mut client = world.client(FabricLimits::default());
    let (here, there) = open(world, &mut client, &mut server, address);
    let (region, _writer) = region();
    let key = server.endpoint.register(&region).unwrap();
    let read = RemoteRead { key, offset: 4096, length: 64 };
    client.endpoint.post_read(here, read, ReadTag(1)).unwrap();
    until(world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == 1);

    partition.set(true);
    client.endpoint.send(here, b"question").unwrap();
    server.endpoint.send(there, b"answer").unwrap();
    if !shm {
        client.endpoint.post_read(here, read, ReadTag(2)).unwrap();
    }
    let second = client.endpoint.connect(&address).unwrap();
    for _ in 0..TURNS_MANY {
        client.turn();
        server.turn();
        world.turn();
    }
    assert!(client.messages(here).is_empty() && server.messages(there).is_empty());
    assert!(client.reads(here).len() == 1, "no read over tcp is served");
    assert!(!client.connected(second) && client.closed(second).is_none());
    assert!(client.closed(here).is_none(), "nobody is told");
    // A shell's thread may sleep: nothing of what waits keeps it awake.
    assert!(server.endpoint.prepare_sleep());
    let mut poller = Poller::new().unwrap();
    poller.add(server.endpoint.wake_descriptor().unwrap()).unwrap();
    assert_eq!(poller.wait(Some(Duration::ZERO)).ready, 0);

    partition.set(false);
    let reads = if shm { 1 } else { 2 };
    until(world, &mut [&mut client, &mut server], |peers| {
        peers[0].messages(here) == [b"answer"]
            && peers[1].messages(there) == [b"question"]
            && peers[0].connected(second)
            && peers[0].reads(here).len() == reads
    });
}

#[test]
fn partition_over_tcp_cuts_messages_reads_and_new_connections_until_it_ends() {
    cut_off(false);
}

#[test]
fn partition_over_shared_memory_cuts_messages_and_new_connections_until_it_ends() {
    cut_off(true);
}

/// Why the rule of trust exists: what is mapped can be read behind any filter of the owner.
#[test]
fn partition_over_shared_memory_does_not_cut_reads_of_mapped_memory() {
    let (partition, mut server, name) = listening();
    let world = &mut Host::<true>::new();
    let mut client = world.client(FabricLimits::default());
    let (here, _) = open(world, &mut client, &mut server, Address::shm(name));
    let (region, _writer) = region();
    let key = server.endpoint.register(&region).unwrap();
    let read = RemoteRead { key, offset: 8192, length: 8 };
    for (count, tag) in [(1, 1), (2, 2)] {
        client.endpoint.post_read(here, read, ReadTag(tag)).unwrap();
        until(world, &mut [&mut client, &mut server], |peers| peers[0].reads(here).len() == count);
        partition.set(true);
    }
    assert_eq!(client.reads(here)[1], (2, Ok(vec![1024])));
}
