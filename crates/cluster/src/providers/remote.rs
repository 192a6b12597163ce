//! A coordinator in another process: of the machine, over its unix socket ([`crate::CoordinatorServer`]), or
//! anywhere, over TLS ([`crate::CoordinatorTlsServer`]).

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::boottime_ns;
use crate::clock_watch::ClockReading;
use crate::coordinator::Coordinator;
use crate::error::ClusterError;
use crate::local_socket;
use crate::providers::json_lines::{
    NumberedRequest, NumberedResponse, WIRE_VERSION, parse_answer, read_only_line, write_line,
};
use crate::providers::timed_socket::{Limit, TimedSocket, left};
use crate::providers::tls_way::{NoWay, TlsAddress, TlsCredentials, TlsPipe, TlsWay};
use crate::request::{CoordinatorRefusal, CoordinatorRequest, Response};

/// Connections kept for the next call.
const IDLE_CONNECTIONS_MAX: usize = 4;

/// A client of the coordinator. Calls from several threads run side by side, each on a connection of its own,
/// so that a slow transaction holds up no renewal.
pub struct Remote {
    way: Way,
    deadline_ns: AtomicU64,
    idle: Mutex<Vec<Connection>>,
}

/// How new connections come about.
enum Way {
    Socket(PathBuf),
    Tls(TlsWay),
}

/// What a connection runs over.
enum Pipe {
    Socket(TimedSocket<UnixStream>),
    Tls(Box<TlsPipe>),
}

struct Connection {
    pipe: Pipe,
    number: u64,
    /// What is written and read, kept: over a unix socket a renewal allocates nothing, so it does not wait
    /// for a process that takes or gives back memory just then.
    line: Vec<u8>,
}

/// What a renewal and its answer need, several times.
const LINE_BYTES: usize = 512;
/// What is kept of a longer line.
const LINE_KEPT_BYTES_MAX: usize = 64 << 10;

/// A call that failed, and whether its request may have gone out.
struct Failure {
    sent: bool,
    source: io::Error,
}

type Answered = (Response, Option<ClockReading>);

impl Remote {
    /// A client of the server whose socket is at `path`, each call at most `deadline` long. Connects when it
    /// is first used.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, deadline: Duration) -> Remote {
        Remote::by(Way::Socket(path.into()), deadline)
    }

    /// A client of the server that listens over TLS at `address`, likewise.
    #[must_use]
    pub fn over_tls(address: TlsAddress, credentials: TlsCredentials, deadline: Duration) -> Remote {
        Remote::by(Way::Tls(TlsWay::new(address, credentials)), deadline)
    }

    fn by(way: Way, deadline: Duration) -> Remote {
        Remote { way, deadline_ns: AtomicU64::new(nanoseconds(deadline)), idle: Mutex::new(Vec::new()) }
    }

    /// Each call takes at most so long from now on.
    pub fn set_deadline(&self, deadline: Duration) {
        self.deadline_ns.store(nanoseconds(deadline), Ordering::Relaxed);
    }

    fn take_idle(&self) -> Option<Connection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push(connection);
        }
    }

    fn call_within(&self, request: &CoordinatorRequest, until_ns: u64) -> Result<Answered, Failure> {
        let called = self.call_over_some(request, until_ns);
        if let (Err(_), Way::Tls(way)) = (&called, &self.way) {
            // A host that has gone says nothing of it: the other connections there, and its address, may be
            // worth nothing either.
            way.doubt();
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
        called
    }

    fn call_over_some(&self, request: &CoordinatorRequest, until_ns: u64) -> Result<Answered, Failure> {
        while let Some(mut connection) = self.take_idle() {
            if connection.pipe.is_closed() {
                continue;
            }
            let answered = connection.call(request, until_ns)?;
            if answered.0 == Response::Refused(CoordinatorRefusal::Token) {
                continue; // that token is of the past: a new connection shows the one that there is now
            }
            self.keep(connection);
            return Ok(answered);
        }
        let pipe = match self.way.connect(until_ns) {
            Ok(pipe) => pipe,
            Err(NoWay::Refused(refusal)) => return Ok((Response::Refused(refusal), None)),
            Err(NoWay::Failed(source)) => return Err(Failure { sent: false, source }),
        };
        let mut connection = Connection { pipe, number: 0, line: Vec::with_capacity(LINE_BYTES) };
        let answered = connection.call(request, until_ns)?;
        self.keep(connection);
        Ok(answered)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Of a call whose time is over the system says that it timed out, and not after how long.
fn silent(error: io::Error, deadline_ns: u64) -> io::Error {
    let has_words = error.get_ref().is_some() || error.raw_os_error().is_some();
    if error.kind() != io::ErrorKind::TimedOut || has_words {
        return error;
    }
    let words = format!("it did not answer within {} ms", deadline_ns / 1_000_000);
    io::Error::new(io::ErrorKind::TimedOut, words)
}

impl Way {
    fn connect(&self, until_ns: u64) -> Result<Pipe, NoWay> {
        match self {
            Way::Socket(path) => {
                let socket = Arc::new(local_socket::connect(path, left(until_ns)?)?);
                Ok(Pipe::Socket(TimedSocket::new(socket, Limit::Until(until_ns))))
            }
            Way::Tls(way) => Ok(Pipe::Tls(Box::new(way.connect(until_ns)?))),
        }
    }
}

impl Pipe {
    /// Whether the server has hung up, or left something that nobody asked for.
    fn is_closed(&self) -> bool {
        match self {
            Pipe::Socket(socket) => socket.is_closed(),
            Pipe::Tls(pipe) => pipe.sock.is_closed(),
        }
    }

    /// Reads and writes end then.
    fn end_at(&mut self, until_ns: u64) {
        let limit = Limit::Until(until_ns);
        match self {
            Pipe::Socket(socket) => socket.set_limit(limit),
            Pipe::Tls(pipe) => pipe.sock.set_limit(limit),
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Pipe::Socket(socket) => socket.read(into),
            Pipe::Tls(pipe) => pipe.read(into),
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Pipe::Socket(socket) => socket.write(bytes),
            Pipe::Tls(pipe) => pipe.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Pipe::Socket(socket) => socket.flush(),
            Pipe::Tls(pipe) => pipe.flush(),
        }
    }
}

impl Coordinator for Remote {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        self.call_timed(request).map(|(response, _)| response)
    }

    fn call_timed(&self, request: &CoordinatorRequest) -> Result<Answered, ClusterError> {
        let deadline_ns = self.deadline_ns.load(Ordering::Relaxed);
        let until_ns = boottime_ns().saturating_add(deadline_ns);
        match self.call_within(request, until_ns) {
            Ok((Response::Refused(CoordinatorRefusal::Stopped), _)) => {
                // The transaction at which it stopped may be on stable storage.
                Err(ClusterError::OutcomeUnknown(io::ErrorKind::BrokenPipe.into()))
            }
            Ok(answered) => Ok(answered),
            Err(Failure { sent, source }) => {
                let source = silent(source, deadline_ns);
                Err(if sent {
                    ClusterError::OutcomeUnknown(source)
                } else {
                    ClusterError::NotReached(source)
                })
            }
        }
    }
}

impl Connection {
    /// One question and its answer, by then. After a failure the connection is dropped, so that a late answer
    /// is not taken for that of the next question.
    fn call(&mut self, request: &CoordinatorRequest, until_ns: u64) -> Result<Answered, Failure> {
        let unsent = |source| Failure { sent: false, source };
        let sent = |source| Failure { sent: true, source };
        self.number += 1;
        let (version, request) = (WIRE_VERSION, request.clone());
        let question = NumberedRequest { version, number: self.number, request };
        left(until_ns).map_err(unsent)?;
        self.pipe.end_at(until_ns);
        write_line(&mut self.pipe, &mut self.line, &question).map_err(sent)?;
        self.pipe.flush().map_err(sent)?;
        let answer = self.answer().map_err(sent)?;
        match answer.response {
            Response::Refused(CoordinatorRefusal::Busy) => {
                Err(unsent(io::ErrorKind::ConnectionRefused.into()))
            }
            // It took the question for one of its own version, and has carried it out.
            Response::Refused(refusal @ CoordinatorRefusal::Version { .. })
                if answer.number == self.number && question.request.is_transaction() =>
            {
                Err(sent(io::Error::other(refusal)))
            }
            response if answer.number == self.number => Ok((response, answer.clock)),
            Response::Refused(
                refusal @ (CoordinatorRefusal::Unreadable
                | CoordinatorRefusal::Version { .. }
                | CoordinatorRefusal::Stranger { .. }
                | CoordinatorRefusal::Token),
            ) => Ok((Response::Refused(refusal), None)),
            _ => Err(sent(io::ErrorKind::InvalidData.into())),
        }
    }

    fn answer(&mut self) -> io::Result<NumberedResponse> {
        let Connection { pipe, line, .. } = self;
        read_only_line(pipe, line)?;
        let answer = parse_answer(line)?;
        if line.capacity() > LINE_KEPT_BYTES_MAX {
            *line = Vec::with_capacity(LINE_BYTES);
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use cell_resolver::Resolver;

    use super::*;
    use crate::providers::NAME_BELIEVED_FOR;
    use crate::providers::sim::Sim;
    use crate::providers::tls_server::CoordinatorTlsServer;
    use crate::test_tls::{Ends, TOKEN};

    const FAR: Duration = Duration::from_secs(120);

    #[test]
    fn call_whose_time_is_over_says_how_long_that_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        // It listens, and answers nobody.
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let remote = Remote::new(&path, Duration::from_millis(20));
        let error = remote.call(&CoordinatorRequest::Read { key: "a".to_owned() }).unwrap_err();
        let words = cell_terms::text::with_causes(&error);
        assert!(words.contains("did not answer within 20 ms"), "{words}");
    }

    #[test]
    fn certificate_that_is_not_taken_is_distinguished_from_a_coordinator_that_is_not_there() {
        let (ends, others) = (Ends::new(), Ends::new());
        let (address, check) = ("127.0.0.1:0".parse().unwrap(), Ends::check());
        let link = Arc::new(Sim::new(1).link());
        let server = CoordinatorTlsServer::start(link, address, ends.server(), check).unwrap();
        let address = TlsAddress::parse(&format!("tls://{}", server.address())).unwrap().unwrap();
        let ask = || Remote::over_tls(address.clone(), others.credentials(TOKEN), FAR).read("where");
        let untrusted = ask().unwrap_err();
        assert!(untrusted.is_about_certificate(), "{untrusted:?}");
        drop(server);
        let gone = ask().unwrap_err();
        assert!(!gone.is_about_certificate(), "{gone:?}");
    }

    /// A host of the coordinator is replaced by one with another address, and a name leads there.
    #[test]
    fn name_that_leads_elsewhere_is_followed_after_what_was_there_has_gone() {
        let ends = Ends::new();
        let (first, second) = (Sim::new(1), Sim::new(2));
        let serve = |sim: &Sim| {
            let (address, check) = ("127.0.0.1:0".parse().unwrap(), Ends::check());
            CoordinatorTlsServer::start(Arc::new(sim.link()), address, ends.server(), check).unwrap()
        };
        let (old, new) = (serve(&first), serve(&second));
        let leads_to = Arc::new(Mutex::new(old.address()));
        let looked_at = leads_to.clone();
        let look =
            move |_: &str| -> io::Result<Vec<std::net::SocketAddr>> { Ok(vec![*looked_at.lock().unwrap()]) };
        let address = TlsAddress::parse("tls://localhost:7200").unwrap().unwrap();
        let mut way = TlsWay::new(address, ends.credentials(TOKEN));
        way.name_by(Resolver::looked_up_by(NAME_BELIEVED_FOR, look));
        let remote = Remote::by(Way::Tls(way), FAR);
        remote.transact(crate::Transaction::new().put("where", "old")).unwrap();
        *leads_to.lock().unwrap() = new.address();
        assert_eq!(remote.read("where").unwrap().unwrap().value, "old", "what answers is asked on");
        drop(old);
        let found = (0..100).find_map(|_| remote.read("where").ok());
        assert_eq!(found.expect("the new one is asked in the end"), None);
    }
}
