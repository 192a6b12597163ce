//! One connection to an agent: a hello, then a line for each request and one for its answer.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cell_drill::wire::{DrillAnswer, HELLO_BYTES_MAX, LINE_BYTES_MAX};
use rustix::net::sockopt;
use rustls::{ServerConnection, StreamOwned};

use super::guards::Guards;
use super::host::AgentHost;
use super::session::AgentSession;
use crate::dev::drill_listener::{no_request, not_done};
use crate::dev::scale_wire::refuse;

/// How long TLS and the hello may take, however many reads and writes they are.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// How long each write may take later.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// A drill looks all the time while its fault lasts: one that is silent for so long has lost it.
const SILENCE: Duration = Duration::from_secs(15);
/// Who asks nothing for so long is let go.
const IDLE: Duration = Duration::from_secs(600);
/// The kernel asks a host that is silent for so long whether it is there, so often, and so many times.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(5), 3);
/// What was said to a host is taken within such a time, or it is dead: while something is on its way, the
/// kernel asks nothing.
const TAKEN_WITHIN_MS: u32 = 20_000;
/// How TLS begins.
const TLS_HAND_SHAKE: u8 = 0x16;

/// The socket of a connection. Until its peer is let in, all reads and writes end by one time: who drips
/// bytes holds a place for no longer than who says nothing.
struct DoorSocket {
    socket: TcpStream,
    /// None: the peer was let in.
    hello_until: Cell<Option<Instant>>,
}

impl DoorSocket {
    fn new(socket: TcpStream, hello_within: Duration) -> DoorSocket {
        DoorSocket { socket, hello_until: Cell::new(Some(Instant::now() + hello_within)) }
    }

    /// The peer is let in: from now on each read and each write has a time of its own.
    fn end_hello(&self) -> io::Result<()> {
        self.hello_until.set(None);
        self.socket.set_read_timeout(Some(SILENCE))?;
        self.socket.set_write_timeout(Some(WRITE_PATIENCE))
    }

    /// What the hello has left; none: it is over.
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.hello_until.get().map(|until| until.saturating_duration_since(Instant::now())) {
            Some(left) if left.is_zero() => Err(ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

impl Read for &DoorSocket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(left) = self.left()? {
            self.socket.set_read_timeout(Some(left))?;
        }
        (&self.socket).read(into)
    }
}

impl Write for &DoorSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(left) = self.left()? {
            self.socket.set_write_timeout(Some(left))?;
        }
        (&self.socket).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Serves a connection until it ends. Who has shown a token of the role admin is one of so many: what
/// `let_in` returns, unless there are too many, is dropped in the end.
pub(super) fn serve(
    socket: TcpStream,
    guards: &Guards,
    host: &AgentHost,
    let_in: impl FnOnce() -> Option<Arc<()>>,
) -> io::Result<()> {
    serve_after(HELLO_WITHIN, socket, guards, host, let_in)
}

/// The same, after a hello that takes no longer than this.
fn serve_after(
    hello_within: Duration,
    socket: TcpStream,
    guards: &Guards,
    host: &AgentHost,
    let_in: impl FnOnce() -> Option<Arc<()>>,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    notice_death(&socket)?;
    let socket = DoorSocket::new(socket, hello_within);
    match guards.tls() {
        None => converse(BufReader::new(&socket), &socket, guards, host, let_in),
        Some(tls) => {
            let connection = ServerConnection::new(tls.server()).map_err(io::Error::other)?;
            converse(BufReader::new(StreamOwned::new(connection, &socket)), &socket, guards, host, let_in)
        }
    }
}

/// A read fails once the other host has been silent for too long: the drill's turn ends with its connection.
fn notice_death(socket: &TcpStream) -> io::Result<()> {
    let (idle, interval, count) = KEEP_ALIVE;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, idle)?;
    sockopt::set_tcp_keepintvl(socket, interval)?;
    sockopt::set_tcp_keepcnt(socket, count)?;
    Ok(sockopt::set_tcp_user_timeout(socket, TAKEN_WITHIN_MS)?)
}

/// The same, whatever is around its bytes; `socket` is below them.
fn converse<S: Read + Write>(
    mut stream: BufReader<S>,
    socket: &DoorSocket,
    guards: &Guards,
    host: &AgentHost,
    let_in: impl FnOnce() -> Option<Arc<()>>,
) -> io::Result<()> {
    if stream.fill_buf()?.first() == Some(&TLS_HAND_SHAKE) {
        let next = "leave --ca out, or give the agent a certificate (tls_certificate_file, tls_key_file)";
        return say(&mut stream, &not_done(refuse("the agent does not speak TLS".to_owned(), next)));
    }
    let mut line = String::new();
    if stream.by_ref().take(HELLO_BYTES_MAX).read_line(&mut line)? == 0 {
        return Ok(());
    }
    let credential = match guards.admit(&line, socket.socket.peer_addr()?) {
        Ok(credential) => credential,
        Err(refused) => return say(&mut stream, &not_done(refused)),
    };
    let Some(_place) = let_in() else {
        let refused = refuse("it has as many connections as it takes".to_owned(), "wait until one has ended");
        return say(&mut stream, &not_done(refused));
    };
    socket.end_hello()?;
    let hello = DrillAnswer { at_ns: cell_cluster::boottime_ns(), ..DrillAnswer::default() };
    say(&mut stream, &hello)?;
    let (mut session, mut asked_at) = (AgentSession::new(host), Instant::now());
    line.clear();
    loop {
        match stream.by_ref().take(LINE_BYTES_MAX).read_line(&mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // The time is over. (A connection that is dead has timed out.)
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                session.heal();
                if asked_at.elapsed() >= IDLE {
                    return Ok(());
                }
                continue;
            }
            Err(error) => return Err(error),
        }
        if !guards.administers(&credential) {
            let next = "give --token (or CELL_TOKEN) one of the role admin";
            return say(&mut stream, &not_done(refuse("the token counts no more".to_owned(), next)));
        }
        let answer = match serde_json::from_str(&line) {
            Ok(request) => session.answer(request),
            Err(error) => no_request(&error),
        };
        say(&mut stream, &answer)?;
        line.clear();
        asked_at = Instant::now();
    }
}

fn say<S: Read + Write>(stream: &mut BufReader<S>, answer: &DrillAnswer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let stream = stream.get_mut();
    stream.write_all(&line)?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc::channel;

    use cell_cluster::Sim;
    use cell_node::AccessRules;

    use super::*;
    use crate::dev::drill_turn::DrillTurns;

    /// A byte now and then held a place for as long as nobody else needed it.
    #[test]
    fn serve_waits_for_no_hello_that_drips() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("admin root {}\n", "ab".repeat(32))).unwrap();
        let guards = Guards::new(AccessRules::open(file.path().to_str().unwrap()).unwrap(), None);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let (ended, end) = channel();
        std::thread::spawn(move || {
            let coordinator = Arc::new(Sim::new(1).link());
            let (events, _supervisor) = channel();
            let (turns, next_if_away) = (DrillTurns::default(), String::new());
            let host = AgentHost { coordinator, events, turns, first: 1, allows_drills: false, next_if_away };
            let served = serve_after(Duration::from_millis(50), socket, &guards, &host, || None);
            ended.send(served.map_err(|error| error.kind())).unwrap();
        });
        let served = (0..1_000).find_map(|_| {
            let _ = peer.write_all(b" "); // in vain once it has ended
            end.recv_timeout(Duration::from_millis(10)).ok()
        });
        let error = served.expect("its time is over").unwrap_err();
        assert!(matches!(error, ErrorKind::TimedOut | ErrorKind::WouldBlock), "{error}");
    }

    /// A drill looks all the time, so that an answer is mostly on its way when its host dies. The kernel sent
    /// it again for a quarter of an hour, and nobody else had a turn until the connection was let go as idle.
    #[test]
    fn notice_death_also_while_an_answer_is_on_its_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        notice_death(&socket).unwrap();
        let (idle, interval, count) = KEEP_ALIVE;
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), TAKEN_WITHIN_MS);
        assert_eq!((idle + interval * count).as_millis(), u128::from(TAKEN_WITHIN_MS));
    }
}
