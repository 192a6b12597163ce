//! What messages allocate between endpoints that sleep and are woken for each of them.

use allocation_counter::measure;
use cell_fabric::{
    Address, ConnectionId, Endpoint, Event, FabricLimits, ShmEndpoint, ShmOptions, SocketName, TcpEndpoint,
    TcpOptions,
};

const ROUND_TRIPS: usize = 1_000;
/// The first ones fill buffers that are kept.
const WARMING: usize = 100;

/// Turns until a test gives up waiting.
const TURNS_MAX: usize = 10_000_000;

#[track_caller]
fn until(mut done: impl FnMut() -> bool) {
    assert!((0..TURNS_MAX).any(|_| done()), "what was waited for did not happen");
}

/// Polls until a message comes, and says from whom.
fn next_message(endpoint: &mut impl Endpoint) -> ConnectionId {
    let mut from = None;
    until(|| {
        endpoint.poll(&mut |event| {
            if let Event::Message { connection, .. } = event {
                from = Some(connection);
            }
        });
        endpoint.flush();
        from.is_some()
    });
    from.unwrap()
}

fn fall_asleep(endpoint: &mut impl Endpoint) {
    until(|| {
        endpoint.poll(&mut |_| panic!("nothing was sent"));
        endpoint.flush();
        endpoint.prepare_sleep()
    });
}

fn send(endpoint: &mut impl Endpoint, connection: ConnectionId) {
    endpoint.send(connection, b"wake up").unwrap();
    endpoint.flush();
}

/// As many round trips, before each half of which the receiver has gone to sleep.
fn round_trips(client: &mut impl Endpoint, server: &mut impl Endpoint, here: ConnectionId, count: usize) {
    for _ in 0..count {
        fall_asleep(server);
        send(client, here);
        let there = next_message(server);
        fall_asleep(client);
        send(server, there);
        assert_eq!(next_message(client), here);
    }
}

fn check(mut client: impl Endpoint, mut server: impl Endpoint, address: Address) -> (u64, u64) {
    let here = client.connect(&address).unwrap();
    let mut connected = false;
    until(|| {
        server.poll(&mut |_| {});
        server.flush();
        client.poll(&mut |event| connected |= matches!(event, Event::Connected { .. }));
        client.flush();
        connected
    });
    round_trips(&mut client, &mut server, here, WARMING);
    let woken = client.counters().wakes + server.counters().wakes;
    let counted = measure(|| round_trips(&mut client, &mut server, here, ROUND_TRIPS)).count_total;
    (counted, client.counters().wakes + server.counters().wakes - woken)
}

#[test]
fn wake_ups_over_shm_allocate_nothing() {
    let name = SocketName::new(&format!("@cell-allocations-{}", std::process::id())).unwrap();
    let server = ShmEndpoint::listen(name, &ShmOptions::default()).unwrap();
    let client = ShmEndpoint::client(FabricLimits::default()).unwrap();
    let (counted, woken) = check(client, server, Address::Shm(name));
    assert_eq!(woken, 2 * ROUND_TRIPS as u64, "each message wakes its receiver");
    assert_eq!(counted, 0);
}

#[test]
fn wake_ups_over_tcp_allocate_nothing() {
    let server = TcpEndpoint::listen("127.0.0.1:0".parse().unwrap(), &TcpOptions::default()).unwrap();
    let address = Address::Tcp(server.address().unwrap());
    let (counted, _) = check(TcpEndpoint::client(FabricLimits::default()).unwrap(), server, address);
    assert_eq!(counted, 0);
}
