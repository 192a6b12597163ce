//! What the shared-memory provider does beside what the machine can: round trips with both ends spinning
//! and with both asleep in between, pipelined round trips, one-sided reads of 1 KiB.
//!
//! `cargo run --profile quick -p cell-fabric --example shm -- [seconds]`
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "it measures time; a failure ends it")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cell_fabric::{
    Address, Endpoint, Event, FabricLimits, OneSided, Poller, ReadTag, RegionKey, RemoteRead, SendError,
    ShmEndpoint, ShmOptions, SocketName,
};
use cell_memory::{HugePages, Region, RegionOptions, RegionSpec};
use cell_terms::{Epoch, PairId};
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_setaffinity};

const REGION_BYTES: u64 = 64 << 20;

fn main() {
    let seconds = std::env::args().nth(1).map_or(2, |seconds| seconds.parse().unwrap());
    let duration = Duration::from_secs(seconds);
    print("raw: two threads spin on one word each", raw_spin(duration));
    print("raw: two threads wake each other by eventfd", raw_wake(duration));
    for sleeps in [false, true] {
        let how = if sleeps { "both ends sleep" } else { "both ends spin" };
        let stop = AtomicBool::new(false);
        let name = SocketName::new(&format!("@cell-example-{}", std::process::id())).unwrap();
        let options = ShmOptions { one_sided: true, ..ShmOptions::default() };
        let mut server = ShmEndpoint::listen(name, &options).unwrap();
        let spec = RegionSpec::extent(PairId(1), Epoch(1), REGION_BYTES).unwrap();
        let (region, _writer) = Region::create(&spec, RegionOptions::from(HugePages::Auto)).unwrap();
        region.populate_to(REGION_BYTES).unwrap();
        let key = server.register(&region).unwrap();
        let address = Address::Shm(name);
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&mut server, &stop, sleeps));
            pin(1);
            for bytes in [16, 1_024] {
                print(&format!("{how}: round trip of {bytes} B"), lone(address, bytes, sleeps, duration));
            }
            if !sleeps {
                for connections in [1, 50] {
                    let rate = pipeline(address, connections, 16, 64, duration);
                    println!("{how}: {connections} connections x 16 pipelined of 64 B: {rate:.0} a second");
                }
                read(address, key, &region, duration);
            }
            // Its end wakes the server.
            let last = connect(address);
            stop.store(true, Ordering::Relaxed);
            drop(last);
        });
    }
}

fn print(label: &str, mut times: Vec<u64>) {
    times.sort_unstable();
    let at = |of_1000: usize| times[times.len() * of_1000 / 1_000] as f64 / 1e3;
    println!("{label}: p50 {:.2} us, p99 {:.2} us", at(500), at(990));
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = sched_setaffinity(None, &set);
}

fn timed(duration: Duration, mut once: impl FnMut()) -> Vec<u64> {
    let (started, mut times) = (Instant::now(), Vec::new());
    while started.elapsed() < duration {
        let began = Instant::now();
        once();
        times.push(u64::try_from(began.elapsed().as_nanos()).unwrap());
    }
    times
}

fn raw_spin(duration: Duration) -> Vec<u64> {
    #[repr(align(128))]
    struct Line(AtomicU64);
    let (there, back) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(0);
            while !stop.load(Ordering::Relaxed) {
                back.0.store(there.0.load(Ordering::Acquire), Ordering::Release);
            }
        });
        pin(1);
        let mut number = 0;
        let times = timed(duration, || {
            number += 1;
            there.0.store(number, Ordering::Release);
            while back.0.load(Ordering::Acquire) != number {
                std::hint::spin_loop();
            }
        });
        stop.store(true, Ordering::Relaxed);
        times
    })
}

fn raw_wake(duration: Duration) -> Vec<u64> {
    let bell = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let (there, back) = (bell(), bell());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(0);
            while !stop.load(Ordering::Relaxed) {
                rustix::io::read(&there, &mut [0; 8]).unwrap();
                rustix::io::write(&back, &1_u64.to_le_bytes()).unwrap();
            }
        });
        pin(1);
        let times = timed(duration, || {
            rustix::io::write(&there, &1_u64.to_le_bytes()).unwrap();
            rustix::io::read(&back, &mut [0; 8]).unwrap();
        });
        stop.store(true, Ordering::Relaxed);
        rustix::io::write(&there, &1_u64.to_le_bytes()).unwrap();
        times
    })
}

fn serve(server: &mut ShmEndpoint, stop: &AtomicBool, sleeps: bool) {
    pin(0);
    let mut poller = Poller::new().unwrap();
    poller.add(server.wake_descriptor().unwrap()).unwrap();
    let (mut replies, mut bytes) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let events = server.poll(&mut |event| {
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
        if sleeps && events == 0 && server.prepare_sleep() {
            poller.wait(None);
        }
    }
}

fn connect(address: Address) -> (ShmEndpoint, cell_fabric::ConnectionId) {
    let mut client = ShmEndpoint::client(FabricLimits::default()).unwrap();
    let connection = client.connect(&address).unwrap();
    let mut open = false;
    while !open {
        client.poll(&mut |event| open |= matches!(event, Event::Connected { .. }));
        client.flush();
    }
    (client, connection)
}

fn lone(address: Address, bytes: usize, sleeps: bool, duration: Duration) -> Vec<u64> {
    let (mut client, connection) = connect(address);
    let mut poller = Poller::new().unwrap();
    poller.add(client.wake_descriptor().unwrap()).unwrap();
    let message = vec![7; bytes];
    timed(duration, || {
        client.send(connection, &message).unwrap();
        client.flush();
        let mut answered = false;
        while !answered {
            client.poll(&mut |event| answered |= matches!(event, Event::Message { .. }));
            client.flush();
            if sleeps && !answered && client.prepare_sleep() {
                poller.wait(None);
            }
        }
    })
}

fn pipeline(address: Address, connections: usize, pipelined: usize, bytes: usize, duration: Duration) -> f64 {
    let mut client = ShmEndpoint::client(FabricLimits::default()).unwrap();
    let message = vec![7; bytes];
    for _ in 0..connections {
        let connection = client.connect(&address).unwrap();
        (0..pipelined).for_each(|_| client.send(connection, &message).unwrap());
    }
    let (mut count, mut started, mut warm) = (0_u64, Instant::now(), false);
    let mut owed = Vec::new();
    loop {
        client.poll(&mut |event| {
            if let Event::Message { connection, .. } = event {
                owed.push(connection);
            }
        });
        count += owed.len() as u64;
        for connection in owed.drain(..) {
            client.send(connection, &message).unwrap();
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

/// One-sided reads at random places, one at a time, beside the same copy from the region itself.
fn read(address: Address, key: RegionKey, region: &Region, duration: Duration) {
    let (mut client, connection) = connect(address);
    let mut random = 1_u64;
    let mut place = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        4_096 + (random >> 33) % (REGION_BYTES / 1_024 - 8) * 1_024
    };
    for warm in [true, false] {
        let times = timed(duration, || {
            let read = RemoteRead { key, offset: place(), length: 1_024 };
            client.post_read(connection, read, ReadTag(0)).unwrap();
            client.flush();
            let mut done = false;
            while !done {
                client.poll(&mut |event| {
                    if let Event::ReadDone { outcome, .. } = event {
                        assert_eq!(outcome.unwrap().len(), 128);
                        done = true;
                    }
                });
            }
        });
        if !warm {
            print("one-sided read of 1 KiB at a random place", times);
        }
    }
    let mut words = [0; 128];
    let times = timed(duration, || {
        region.read_words(usize::try_from(place() / 8).unwrap(), &mut words);
        std::hint::black_box(&words);
    });
    print("raw: copy of 1 KiB at a random place of the region", times);
}
