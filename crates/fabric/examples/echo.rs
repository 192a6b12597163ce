//! What the TCP provider does over loopback: echo rate with pipelining, and the time of a lone round trip.
//!
//! `cargo run --profile quick -p cell-fabric --example echo -- [seconds] [connections] [pipelined] [bytes]`
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "it measures time; a failure ends it")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cell_fabric::{Address, Endpoint, Event, Limits, Poller, TcpEndpoint, TcpOptions};
use rustix::thread::{CpuSet, sched_setaffinity};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>().unwrap());
    let mut next = |default| arguments.next().unwrap_or(default);
    let (seconds, connections, pipelined, bytes) = (next(3), next(50), next(16), next(64));
    let stop = AtomicBool::new(false);
    let mut servers = TcpEndpoint::listen("127.0.0.1:0".parse().unwrap(), 1, &TcpOptions::default()).unwrap();
    let address = Address::tcp(servers[0].address().unwrap());
    let mut server = servers.remove(0);
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&mut server, &stop));
        pin(1);
        let duration = Duration::from_secs(u64::try_from(seconds).unwrap());
        let rate = pipeline(address, connections, pipelined, bytes, duration);
        println!("{connections} connections x {pipelined} pipelined, {bytes} B: {rate:.0} round trips/s");
        for (label, sleeps) in [("both ends spin", false), ("the client sleeps", true)] {
            let mut times = lone(address, bytes, sleeps, 50_000);
            times.sort_unstable();
            let at = |of_1000: usize| times[times.len() * of_1000 / 1_000] as f64 / 1e3;
            println!("one outstanding, {label}: p50 {:.1} us, p99 {:.1} us", at(500), at(990));
        }
        stop.store(true, Ordering::Relaxed);
    });
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
    while !stop.load(Ordering::Relaxed) {
        server.poll(&mut |event| {
            if let Event::Message { connection, message } = event {
                replies.push((connection, bytes.len()..bytes.len() + message.len()));
                bytes.extend_from_slice(message);
            }
        });
        for (connection, range) in replies.drain(..) {
            server.send(connection, &bytes[range]).unwrap();
        }
        bytes.clear();
        server.flush();
    }
}

fn pipeline(address: Address, connections: usize, pipelined: usize, bytes: usize, duration: Duration) -> f64 {
    let mut client = TcpEndpoint::client(Limits::default()).unwrap();
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
    let mut client = TcpEndpoint::client(Limits::default()).unwrap();
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
