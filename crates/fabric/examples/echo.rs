//! What the TCP provider does over loopback: echo rate with pipelining, and the time of a lone round trip.
//!
//! `cargo run --profile quick -p cell-fabric --example echo -- [seconds] [connections] [pipelined] [bytes]`
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "it measures time; a failure ends it")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cell_fabric::{
    Address, Endpoint, Event, FabricLimits, OneSided, Poller, ReadTag, RegionKey, RemoteRead, SendError,
    TcpEndpoint, TcpOptions,
};
use cell_memory::{Region, RegionSpec};
use cell_terms::{Epoch, PairId};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

static SERVED: AtomicU64 = AtomicU64::new(0);
static SERVED_CPU_US: AtomicU64 = AtomicU64::new(1);

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>().unwrap());
    let mut next = |default| arguments.next().unwrap_or(default);
    let (seconds, connections, pipelined, bytes) = (next(3), next(50), next(16), next(64));
    let stop = AtomicBool::new(false);
    let options = TcpOptions { one_sided: true, ..TcpOptions::default() };
    let mut server = TcpEndpoint::listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let address = Address::Tcp(server.address().unwrap());
    let spec = RegionSpec::extent(PairId(1), Epoch(1), 2 << 20).unwrap();
    let (region, _writer) = Region::create_private(&spec).unwrap();
    let key = server.register(&region).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&mut server, &stop));
        pin(1);
        let duration = Duration::from_secs(u64::try_from(seconds).unwrap());
        let rate = pipeline(address, connections, pipelined, bytes, duration);
        println!("{connections} connections x {pipelined} pipelined, {bytes} B: {rate:.0} round trips/s");
        // What the machine's other work does not take away; a server that spins idle counts that too.
        let per_second =
            SERVED.load(Ordering::Relaxed) as f64 / SERVED_CPU_US.load(Ordering::Relaxed) as f64 * 1e6;
        println!("  {per_second:.0} a second of the server thread's processor time");
        for (label, sleeps) in [("both ends spin", false), ("the client sleeps", true)] {
            print_times(label, lone(address, bytes, sleeps, 50_000));
        }
        print_times("one-sided read of 1 KiB, the service sleeps", lone_read(address, key, 50_000));
        stop.store(true, Ordering::Relaxed);
    });
}

fn print_times(label: &str, mut times: Vec<u64>) {
    times.sort_unstable();
    let at = |of_1000: usize| times[times.len() * of_1000 / 1_000] as f64 / 1e3;
    println!("one outstanding, {label}: p50 {:.1} us, p99 {:.1} us", at(500), at(990));
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}

fn serve(server: &mut TcpEndpoint, stop: &AtomicBool) {
    pin(0);
    // Replies wait in one buffer until the poll is over, as a core's commands do.
    let mut replies = Vec::new();
    let mut bytes = Vec::new();
    let mut served = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        if served & 63 == 0 {
            SERVED.store(server.counters().messages_received, Ordering::Relaxed);
            let used = clock_gettime(ClockId::ThreadCPUTime);
            let used_us = used.tv_sec * 1_000_000 + used.tv_nsec / 1_000;
            SERVED_CPU_US.store(u64::try_from(used_us).unwrap(), Ordering::Relaxed);
        }
        served += 1;
        server.poll(&mut |event| {
            if let Event::Message { connection, message } = event {
                replies.push((connection, bytes.len()..bytes.len() + message.len()));
                bytes.extend_from_slice(message);
            }
        });
        for (connection, range) in replies.drain(..) {
            // A client that has measured goes, whatever is under way.
            let sent = server.send(connection, &bytes[range]);
            assert!(matches!(sent, Ok(()) | Err(SendError::Closed)), "{sent:?}");
        }
        bytes.clear();
        server.flush();
    }
}

fn pipeline(address: Address, connections: usize, pipelined: usize, bytes: usize, duration: Duration) -> f64 {
    let mut client = TcpEndpoint::client(FabricLimits::default()).unwrap();
    let message = vec![7; bytes];
    for _ in 0..connections {
        let connection = client.connect(&address).unwrap();
        (0..pipelined).for_each(|_| client.send(connection, &message).unwrap());
    }
    let (mut count, mut started) = (0_u64, Instant::now());
    let mut owed = HashMap::new();
    let mut warm = false;
    loop {
        client.poll(&mut |event| {
            if let Event::Message { connection, .. } = event {
                *owed.entry(connection).or_insert(0) += 1;
            }
        });
        for (connection, count_here) in owed.drain() {
            count += count_here;
            (0..count_here).for_each(|_| client.send(connection, &message).unwrap());
        }
        client.flush();
        if !warm && started.elapsed() > Duration::from_millis(300) {
            (warm, count, started) = (true, 0, Instant::now());
        }
        if warm && started.elapsed() > duration {
            return count as f64 / started.elapsed().as_secs_f64();
        }
    }
}

fn lone(address: Address, bytes: usize, sleeps: bool, rounds: usize) -> Vec<u64> {
    let mut client = TcpEndpoint::client(FabricLimits::default()).unwrap();
    let mut poller = Poller::new().unwrap();
    poller.add(client.wake_descriptor().unwrap()).unwrap();
    let connection = client.connect(&address).unwrap();
    let message = vec![7; bytes];
    let mut times = Vec::with_capacity(rounds);
    while times.len() < rounds {
        let began = Instant::now();
        client.send(connection, &message).unwrap();
        client.flush();
        let mut answered = false;
        while !answered {
            client.poll(&mut |event| answered |= matches!(event, Event::Message { .. }));
            client.flush();
            if sleeps && !answered && client.prepare_sleep() {
                poller.wait(Some(Duration::from_secs(1)));
            }
        }
        times.push(u64::try_from(began.elapsed().as_nanos()).unwrap());
    }
    times
}

fn lone_read(address: Address, key: RegionKey, rounds: usize) -> Vec<u64> {
    let mut client = TcpEndpoint::client(FabricLimits::default()).unwrap();
    let connection = client.connect(&address).unwrap();
    let read = RemoteRead { key, offset: 4_096, length: 1_024 };
    let mut times = Vec::with_capacity(rounds);
    while times.len() < rounds {
        let began = Instant::now();
        client.post_read(connection, read, ReadTag(0)).unwrap();
        let mut answered = false;
        while !answered {
            client.flush();
            client.poll(&mut |event| {
                if let Event::ReadDone { outcome, .. } = event {
                    assert_eq!(outcome.unwrap().len(), 128);
                    answered = true;
                }
            });
        }
        times.push(u64::try_from(began.elapsed().as_nanos()).unwrap());
    }
    times
}
