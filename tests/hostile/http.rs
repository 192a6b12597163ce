//! Slow clients, floods and bodies without an end on the port of the admin API: they are cut off, and neither
//! those who ask there nor those who read and write wait for them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::hostile::{Siege, wait};

/// Connections of one attack: more than a node serves at a time.
const CONNECTIONS: usize = 400;
/// Memory that an attack by HTTP may leave behind, less than other attacks may: a buffer of each
/// connection, and whole bodies.
const HTTP_GROWTH_BYTES_MAX: u64 = 24 << 20;
/// Between two bytes of a slow client.
const DRIP: Duration = Duration::from_millis(50);
/// Until all is over that must be over in time.
const PATIENCE: Duration = Duration::from_secs(240);
/// What a slow client begins with: a head, or a body, that it never ends.
const BEGINNINGS: [&str; 2] = [
    "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    "POST /api/v1/tree:check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
     Content-Length: 60000\r\n\r\n{",
];

#[allow(clippy::disallowed_methods, reason = "real sockets have real time")]
fn now() -> Instant {
    Instant::now()
}

fn connect(server: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, Duration::from_secs(3)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    stream.set_write_timeout(Some(Duration::from_secs(20))).ok()?;
    Some(stream)
}

/// A client that sends a byte now and then, and takes whatever comes.
struct Slow(TcpStream);

impl Slow {
    fn begin(server: SocketAddr, number: usize) -> Option<Slow> {
        let mut stream = connect(server)?;
        stream.write_all(BEGINNINGS[number % BEGINNINGS.len()].as_bytes()).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(Slow(stream))
    }

    /// Sends one more byte; whether the connection is still there.
    fn drip(&mut self) -> bool {
        let goes_on = |error: &std::io::Error| error.kind() == ErrorKind::WouldBlock;
        let mut answer = [0; 4096];
        let is_read = match self.0.read(&mut answer) {
            Ok(length) => length > 0,
            Err(error) => goes_on(&error),
        };
        is_read && self.0.write(b"x").map_or_else(|error| goes_on(&error), |_| true)
    }
}

impl Siege {
    /// Whoever asks over HTTP is answered, and data are read and written. A full queue of connections may
    /// turn a caller away, who comes again.
    fn assert_answers(&mut self) {
        for path in ["/livez", "/metrics", "/api/v1/cluster/status"] {
            let until = now() + PATIENCE;
            let answer = loop {
                match self.server.http(path) {
                    Some((status, _)) => break status,
                    None => assert!(now() < until, "nobody answers {path}"),
                }
            };
            assert_eq!(answer, 200, "{path}");
        }
        self.assert_serves();
    }
}

#[test]
fn slow_clients_by_the_hundred_are_cut_off_and_nobody_waits_for_them() {
    let mut siege = Siege::begin();
    let server = siege.server.http_address();
    let left = std::thread::scope(|scope| {
        let attack = scope.spawn(|| {
            let started = (0..CONNECTIONS).filter_map(|number| Slow::begin(server, number));
            let mut slow: Vec<Slow> = started.collect();
            assert!(slow.len() > CONNECTIONS / 2, "{} could connect", slow.len());
            let until = now() + PATIENCE;
            while !slow.is_empty() && now() < until {
                slow.retain_mut(Slow::drip);
                wait(DRIP);
            }
            slow.len()
        });
        while !attack.is_finished() {
            siege.assert_answers();
        }
        attack.join().expect("it ends")
    });
    assert_eq!(left, 0, "slow clients that were not cut off");
    siege.assert_unharmed_within(HTTP_GROWTH_BYTES_MAX);
}

/// A body keeps its bytes, and not the pieces that it came in: those are many times as large.
#[test]
fn bodies_in_crumbs_take_no_more_than_their_bytes() {
    const BODIES: usize = 80;
    const CRUMBS: usize = 60_000;
    let mut siege = Siege::begin();
    let server = siege.server.http_address();
    let post = "POST /api/v1/tree:check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let started = format!("{post}Transfer-Encoding: chunked\r\n\r\n") + &"1\r\n \r\n".repeat(CRUMBS);
    let bodies: Vec<TcpStream> = (0..BODIES)
        .filter_map(|_| {
            let mut stream = connect(server)?;
            stream.write_all(started.as_bytes()).ok()?;
            stream.set_nonblocking(true).ok()?;
            Some(stream)
        })
        .collect();
    // Some are refused, because they are many; those that are read are cut off in the end.
    let mut waiting: Vec<&TcpStream> = bodies.iter().collect();
    assert!(waiting.len() > BODIES / 2, "{} bodies were sent", waiting.len());
    let until = now() + PATIENCE;
    while !waiting.is_empty() && now() < until {
        waiting
            .retain(|stream| stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
        siege.assert_answers();
        siege.assert_unharmed_within(HTTP_GROWTH_BYTES_MAX);
    }
    assert_eq!(waiting.len(), 0, "bodies without an end that were not cut off");
}

/// Each that is cut off to make room for another one is back at once.
#[test]
fn flood_of_connections_does_not_keep_others_out() {
    let mut siege = Siege::begin();
    let server = siege.server.http_address();
    let (is_over, again) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut flood: Vec<Option<Slow>> = (0..CONNECTIONS).map(|_| None).collect();
            while !is_over.load(Ordering::Relaxed) {
                for (number, slow) in flood.iter_mut().enumerate() {
                    if !slow.as_mut().is_some_and(Slow::drip) {
                        *slow = Slow::begin(server, number);
                        again.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        // Until each was cut off about twice.
        let until = now() + PATIENCE;
        while again.load(Ordering::Relaxed) < 3 * CONNECTIONS && now() < until {
            siege.assert_answers();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(again.into_inner() >= 3 * CONNECTIONS, "the flood was let in and kept");
    siege.assert_unharmed_within(HTTP_GROWTH_BYTES_MAX);
}

/// Sends all of it, as far as the server takes it; the status that it answers, if that comes through.
fn status(server: SocketAddr, head: &str, body: impl Iterator<Item = Vec<u8>>) -> Option<u16> {
    let mut stream = connect(server)?;
    stream.write_all(head.as_bytes()).ok()?;
    for part in body {
        if stream.write_all(&part).is_err() {
            break; // it was answered, and closed
        }
    }
    let mut answer = [0; 64];
    let length = stream.read(&mut answer).ok()?;
    let text = std::str::from_utf8(&answer[..length]).ok()?;
    text.split(' ').nth(1)?.parse().ok()
}

#[test]
fn heads_and_bodies_without_an_end_are_refused_and_take_no_memory() {
    const BODY_BYTES_MAX: usize = 64 << 10;
    const ENDLESS: usize = 64 << 20;
    let mut siege = Siege::begin();
    let server = siege.server.http_address();
    let post = "POST /api/v1/tree:check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let announced = |bytes: usize| format!("{post}Content-Length: {bytes}\r\n\r\n");
    let chunked = format!("{post}Transfer-Encoding: chunked\r\n\r\n");
    let parts = |bytes: usize, part: &'static [u8]| (0..bytes / part.len()).map(|_| part.to_vec());
    let one_more = std::iter::once(vec![b' '; BODY_BYTES_MAX + 1]);
    assert_eq!(status(server, &announced(BODY_BYTES_MAX + 1), one_more), Some(413));
    let head = "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Long: ";
    let long = std::iter::once(vec![b'x'; BODY_BYTES_MAX + 1]);
    assert_eq!(status(server, head, long), Some(431));
    std::thread::scope(|scope| {
        let attack: Vec<_> = (0..4)
            .flat_map(|_| {
                let body = || status(server, &announced(ENDLESS), parts(ENDLESS, &[b' '; 4096]));
                let chunks = || status(server, &chunked, parts(ENDLESS, b"10\r\n                \r\n"));
                let heads = || status(server, head, parts(ENDLESS, &[b'x'; 4096]));
                [scope.spawn(body), scope.spawn(chunks), scope.spawn(heads)]
            })
            .collect();
        while !attack.iter().all(|one| one.is_finished()) {
            siege.assert_answers();
        }
    });
    siege.assert_answers();
    siege.assert_unharmed_within(HTTP_GROWTH_BYTES_MAX);
}
