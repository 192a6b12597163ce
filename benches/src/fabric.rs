//! `fabric`: what the providers of one host do beside what the machine can: round trips while both ends spin
//! and while both sleep in between, many round trips under way, one-sided reads of 1 KiB. Each end has a core
//! of its own, where there are two.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cell_fabric::{
    Address, ConnectionId, Endpoint, Event, FabricError, FabricLimits, OneSided, Poller, ReadTag, RegionKey,
    RemoteRead, SendError, ShmEndpoint, ShmOptions, SocketName, TcpEndpoint, TcpOptions,
};
use cell_memory::{HugePages, Region, RegionSpec};
use cell_random::Random;
use cell_terms::{Epoch, PairId};
use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{sched_getaffinity, sched_setaffinity};

use crate::figure::{Figure, Report};
use crate::options::{BenchError, PartOptions};
use crate::processor::{bind, thread_time_ns};
use crate::times::Times;

const REGION_BYTES: u64 = 64 << 20;
const MESSAGE_BYTES: [usize; 2] = [16, 1_024];
const READ_BYTES: u32 = 1_024;
/// Connections with many messages under way, how many each has, and of how many bytes.
const CONNECTIONS: [usize; 2] = [1, 50];
const PIPELINED: usize = 16;
const PIPELINED_BYTES: usize = 64;
/// What is measured in a round.
const SLICE: Duration = Duration::from_millis(100);
/// Before many messages under way count.
const WARM_UP: Duration = Duration::from_millis(300);
/// What the second of two threads that wake each other takes for the end.
const LAST: u64 = 2;
/// A sleeping server looks whether it is to end.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Runs the bench.
///
/// # Errors
/// A region or a connection that cannot be had.
pub fn run(parts: &PartOptions, report: &mut Report<'_>) -> Result<(), BenchError> {
    parts.check(&["tcp", "shm"].map(str::to_owned))?;
    let time = parts.options.lasting(SLICE) * u32::from(parts.options.rounds);
    let limits = [spin(time)?, wake(time)?];
    if parts.wants("tcp") {
        let options = TcpOptions { one_sided: true, ..TcpOptions::default() };
        let server = TcpEndpoint::listen(([127, 0, 0, 1], 0).into(), &options)?;
        let address = Address::Tcp(server.address().expect("it listens"));
        let connect = || TcpEndpoint::client(FabricLimits::default());
        Bench { name: "tcp", address, connect, time }.run(server, &limits, report)?;
    }
    if parts.wants("shm") {
        let name = SocketName::new(&format!("@cell-benches-{}", std::process::id())).expect("a short name");
        let options = ShmOptions { one_sided: true, ..ShmOptions::default() };
        let server = ShmEndpoint::listen(name, &options)?;
        let connect = || ShmEndpoint::client(FabricLimits::default());
        Bench { name: "shm", address: Address::Shm(name), connect, time }.run(server, &limits, report)?;
    }
    Ok(())
}

/// Two threads spin on a word each.
fn spin(time: Duration) -> Result<Times, BenchError> {
    #[repr(align(128))]
    struct Line(AtomicU64);
    let (there, back) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let answer = |stop: &AtomicBool| {
        while !stop.load(Ordering::Relaxed) {
            back.0.store(there.0.load(Ordering::Acquire), Ordering::Release);
        }
        Ok(())
    };
    let mut number = 0;
    let ask = || {
        number += 1;
        there.0.store(number, Ordering::Release);
        while back.0.load(Ordering::Acquire) != number {
            std::hint::spin_loop();
        }
        Ok(())
    };
    Ok(beside(answer, || Times::during(time, ask))?.0)
}

/// Two threads wake each other by an eventfd each.
fn wake(time: Duration) -> Result<Times, BenchError> {
    let bell = || eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from);
    let (there, back) = (bell()?, bell()?);
    let answer = |_: &AtomicBool| {
        while wait(&there)? != LAST {
            ring(&back, 1)?;
        }
        Ok(())
    };
    let work = || {
        let times = Times::during(time, || {
            ring(&there, 1)?;
            wait(&back)?;
            Ok(())
        });
        ring(&there, LAST)?;
        times
    };
    Ok(beside(answer, work)?.0)
}

fn ring(bell: &OwnedFd, with: u64) -> io::Result<()> {
    rustix::io::write(bell, &with.to_le_bytes())?;
    Ok(())
}

fn wait(bell: &OwnedFd) -> io::Result<u64> {
    let mut with = [0; 8];
    rustix::io::read(bell, &mut with)?;
    Ok(u64::from_le_bytes(with))
}

/// Does `work` on the second core while another thread answers on the first, until it is to stop.
fn beside<A: Send, R>(
    answer: impl FnOnce(&AtomicBool) -> Result<A, BenchError> + Send,
    work: impl FnOnce() -> Result<R, BenchError>,
) -> Result<(R, A), BenchError> {
    let stop = AtomicBool::new(false);
    // What an endpoint starts meanwhile has its creator's cores.
    let cores = sched_getaffinity(None).map_err(io::Error::from)?;
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let _ = bind(None, 0); // where that is not permitted, or there is one core, they share
            answer(&stop)
        });
        let _ = bind(None, 1);
        let done = work();
        stop.store(true, Ordering::Relaxed);
        let _ = sched_setaffinity(None, &cores); // as it was
        let answered = answering.join().expect("it returns what goes wrong");
        Ok((done?, answered?))
    })
}

/// A provider: its name, where its server listens, how one connects.
struct Bench<C> {
    name: &'static str,
    address: Address,
    connect: C,
    time: Duration,
}

impl<E: OneSided + Send, C: Fn() -> Result<E, FabricError>> Bench<C> {
    fn run(&self, mut server: E, limits: &[Times; 2], report: &mut Report<'_>) -> Result<(), BenchError> {
        let Bench { name, time, .. } = self;
        let spec = RegionSpec::extent(PairId(1), Epoch(1), REGION_BYTES)?;
        let (region, _writer) = Region::create(&spec, HugePages::Auto)?;
        region.populate_to(REGION_BYTES)?;
        let key = server.register(&region)?;
        let [spin, wake] = limits;
        let spins = ("both ends spin", "two threads spin on a word each", spin);
        let sleeps = ("both ends sleep", "two threads wake each other by eventfd", wake);
        for (how, limit, times) in [spins, sleeps] {
            for bytes in MESSAGE_BYTES {
                let sleep = how == sleeps.0;
                let answer = |stop: &AtomicBool| serve(&mut server, stop, sleep);
                let (ours, _) = beside(answer, || self.round_trips(bytes, sleep))?;
                let bench = format!("fabric/{name}, {how}, round trip of {bytes} B");
                ours.report(&bench, Some((limit, times)), report)?;
            }
        }
        for connections in CONNECTIONS {
            let answer = |stop: &AtomicBool| serve(&mut server, stop, false);
            let (rate, of_processor) = beside(answer, || self.pipelined(connections))?;
            let bench = format!("fabric/{name}, {connections} x {PIPELINED} of {PIPELINED_BYTES} B");
            report.add(Figure::alone(&bench, "op/s", rate))?;
            // What other work on the machine does not take away; a server that spins idle counts that too.
            let bench = format!("{bench}, a second of the server's processor");
            report.add(Figure::alone(bench, "op/s", of_processor))?;
        }
        let mut places = Random::new(1);
        let mut place = || 4_096 + places.below(REGION_BYTES / 1_024 - 8) * 1_024;
        let answer = |stop: &AtomicBool| serve(&mut server, stop, false);
        let (reads, _) = beside(answer, || self.reads(key, &mut place))?;
        let mut words = [0; READ_BYTES as usize / 8];
        let copies = Times::during(*time, || {
            region.read_words(usize::try_from(place() / 8).unwrap_or(0), &mut words);
            std::hint::black_box(&words);
            Ok(())
        })?;
        let bench = format!("fabric/{name}, one-sided read of 1 KiB");
        reads.report(&bench, Some(("the copy alone", &copies)), report)?;
        Ok(())
    }

    /// A client whose connection is open.
    fn connected(&self) -> Result<(E, ConnectionId), BenchError> {
        let mut client = (self.connect)()?;
        let connection = client.connect(&self.address)?;
        let mut open = false;
        while !open {
            client.poll(&mut |event| open |= matches!(event, Event::Connected { .. }));
            client.flush();
        }
        Ok((client, connection))
    }

    fn round_trips(&self, bytes: usize, sleeps: bool) -> Result<Times, BenchError> {
        let (mut client, connection) = self.connected()?;
        let mut poller = poller_of(&client)?;
        let message = vec![7; bytes];
        Times::during(self.time, || {
            client.send(connection, &message)?;
            client.flush();
            let mut answered = false;
            while !answered {
                client.poll(&mut |event| answered |= matches!(event, Event::Message { .. }));
                client.flush();
                if sleeps && !answered && client.prepare_sleep() {
                    let wait = poller.wait(None);
                    client.woken(wait.parts);
                }
            }
            Ok(())
        })
    }

    /// Round trips a second over so many connections, each with many under way.
    #[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
    fn pipelined(&self, connections: usize) -> Result<f64, BenchError> {
        let mut client = (self.connect)()?;
        let message = [7; PIPELINED_BYTES];
        for _ in 0..connections {
            let connection = client.connect(&self.address)?;
            (0..PIPELINED).try_for_each(|_| client.send(connection, &message))?;
        }
        let (mut count, mut started, mut warm) = (0_u64, Instant::now(), false);
        let mut answered = Vec::new();
        loop {
            client.poll(&mut |event| {
                if let Event::Message { connection, .. } = event {
                    answered.push(connection);
                }
            });
            count += answered.len() as u64;
            answered.drain(..).try_for_each(|connection| client.send(connection, &message))?;
            client.flush();
            if !warm && started.elapsed() > WARM_UP {
                (warm, count, started) = (true, 0, Instant::now());
            }
            // Beside much else to do nothing may be answered for longer than that.
            if warm && count > 0 && started.elapsed() > self.time {
                return Ok(count as f64 / started.elapsed().as_secs_f64());
            }
        }
    }

    /// One-sided reads, one at a time, after as many that do not count.
    fn reads(&self, key: RegionKey, place: &mut impl FnMut() -> u64) -> Result<Times, BenchError> {
        let (mut client, connection) = self.connected()?;
        let mut read = || {
            let read = RemoteRead { key, offset: place(), length: READ_BYTES };
            client.post_read(connection, read, ReadTag(0))?;
            client.flush();
            let mut done = false;
            while !done {
                client.poll(&mut |event| {
                    if let Event::ReadDone { outcome, .. } = event {
                        assert!(outcome.is_ok(), "{outcome:?}");
                        done = true;
                    }
                });
                client.flush();
            }
            Ok(())
        };
        Times::during(self.time, &mut read)?;
        Times::during(self.time, read)
    }
}

/// A poller that an endpoint wakes.
fn poller_of<E: Endpoint>(endpoint: &E) -> Result<Poller, FabricError> {
    let mut poller = Poller::new()?;
    poller.add_endpoint(endpoint)?;
    Ok(poller)
}

/// Sends each message back until it is to stop; returns how many a second of this thread's processor time.
fn serve<E: Endpoint>(server: &mut E, stop: &AtomicBool, sleeps: bool) -> Result<f64, BenchError> {
    let mut poller = poller_of(server)?;
    let (received, began_ns) = (server.counters().messages_received, thread_time_ns());
    // Replies wait in one buffer until the poll is over, as a core's commands do.
    let (mut replies, mut bytes) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let events = server.poll(&mut |event| {
            if let Event::Message { connection, message } = event {
                replies.push((connection, bytes.len()..bytes.len() + message.len()));
                bytes.extend_from_slice(message);
            }
        });
        for (connection, range) in replies.drain(..) {
            match server.send(connection, &bytes[range]) {
                // A client that has measured goes, whatever is under way.
                Ok(()) | Err(SendError::Closed) => {}
                Err(error) => return Err(error.into()),
            }
        }
        bytes.clear();
        server.flush();
        if sleeps && events == 0 && server.prepare_sleep() {
            let wait = poller.wait(Some(SLEEP_MAX));
            server.woken(wait.parts);
        }
    }
    let received = server.counters().messages_received - received;
    Ok(received as f64 * 1e9 / (thread_time_ns() - began_ns) as f64)
}
