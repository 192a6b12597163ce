//! A coordinator in another process of the machine: see [`crate::CoordinatorServer`].

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::clock::boottime_ns;
use crate::clock_watch::ClockReading;
use crate::coordinator::Coordinator;
use crate::error::ClusterError;
use crate::local_socket;
use crate::providers::json_lines::{NumberedRequest, NumberedResponse, read_only_line, write_line};
use crate::request::{CoordinatorRefusal, CoordinatorRequest, Response};

/// Connections kept for the next call.
const IDLE_CONNECTIONS_MAX: usize = 4;

/// A client of the coordinator. Calls from several threads run side by side, each on a connection of its own,
/// so that a slow transaction holds up no renewal.
pub struct Remote {
    path: PathBuf,
    deadline_ns: AtomicU64,
    idle: Mutex<Vec<Connection>>,
}

struct Connection {
    stream: UnixStream,
    number: u64,
    /// What is written and read, kept: a renewal allocates nothing, so it does not wait for a process that
    /// takes or gives back memory just then.
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

impl Remote {
    /// A client of the server whose socket is at `path`, each call at most `deadline` long. Connects when it
    /// is first used.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, deadline: Duration) -> Remote {
        Remote {
            path: path.into(),
            deadline_ns: AtomicU64::new(nanoseconds(deadline)),
            idle: Mutex::new(Vec::new()),
        }
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

    fn call_within(
        &self,
        request: &CoordinatorRequest,
        until_ns: u64,
    ) -> Result<(Response, Option<ClockReading>), Failure> {
        while let Some(mut connection) = self.take_idle() {
            if connection.is_closed() {
                continue;
            }
            let answered = connection.call(request, until_ns)?;
            self.keep(connection);
            return Ok(answered);
        }
        let unsent = |source| Failure { sent: false, source };
        let left = left(until_ns).map_err(unsent)?;
        let stream = local_socket::connect(&self.path, left).map_err(unsent)?;
        let mut connection = Connection { stream, number: 0, line: Vec::with_capacity(LINE_BYTES) };
        let answered = connection.call(request, until_ns)?;
        self.keep(connection);
        Ok(answered)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Coordinator for Remote {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        self.call_timed(request).map(|(response, _)| response)
    }

    fn call_timed(
        &self,
        request: &CoordinatorRequest,
    ) -> Result<(Response, Option<ClockReading>), ClusterError> {
        let until_ns = boottime_ns().saturating_add(self.deadline_ns.load(Ordering::Relaxed));
        match self.call_within(request, until_ns) {
            Ok((Response::Refused(CoordinatorRefusal::Stopped), _)) => {
                // The transaction at which it stopped may be on stable storage.
                Err(ClusterError::OutcomeUnknown(io::ErrorKind::BrokenPipe.into()))
            }
            Ok(answered) => Ok(answered),
            Err(Failure { sent: false, source }) => Err(ClusterError::NotReached(source)),
            Err(Failure { sent: true, source }) => Err(ClusterError::OutcomeUnknown(source)),
        }
    }
}

impl Connection {
    /// Whether the server has hung up, or left something that nobody asked for.
    fn is_closed(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(&self.stream, &mut [0_u8], flags) != Err(Errno::AGAIN)
    }

    /// One question and its answer. After a failure the connection is dropped, so that a late answer is not
    /// taken for that of the next question.
    fn call(
        &mut self,
        request: &CoordinatorRequest,
        until_ns: u64,
    ) -> Result<(Response, Option<ClockReading>), Failure> {
        let unsent = |source| Failure { sent: false, source };
        let sent = |source| Failure { sent: true, source };
        self.number += 1;
        let question = NumberedRequest { number: self.number, request: request.clone() };
        let left_now = left(until_ns).map_err(unsent)?;
        self.stream.set_write_timeout(Some(left_now)).map_err(unsent)?;
        write_line(&mut self.stream, &mut self.line, &question).map_err(sent)?;
        let answer = self.answer(until_ns).map_err(sent)?;
        match answer.response {
            Response::Refused(CoordinatorRefusal::Busy) => {
                Err(unsent(io::ErrorKind::ConnectionRefused.into()))
            }
            response if answer.number == self.number => Ok((response, answer.clock)),
            Response::Refused(
                refusal @ (CoordinatorRefusal::Unreadable | CoordinatorRefusal::Stranger { .. }),
            ) => Ok((Response::Refused(refusal), None)),
            _ => Err(sent(io::ErrorKind::InvalidData.into())),
        }
    }

    fn answer(&mut self, until_ns: u64) -> io::Result<NumberedResponse> {
        let Connection { stream, line, .. } = self;
        read_only_line(&mut Limited { stream, until_ns }, line)?;
        let answer = serde_json::from_slice(line)?;
        if line.capacity() > LINE_KEPT_BYTES_MAX {
            *line = Vec::with_capacity(LINE_BYTES);
        }
        Ok(answer)
    }
}

/// Reads with the deadline of the whole call, not of each read: a server that drips bytes does not stretch
/// it.
struct Limited<'a> {
    stream: &'a UnixStream,
    until_ns: u64,
}

impl io::Read for Limited<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.until_ns)?))?;
        self.stream.read(into)
    }
}

fn left(until_ns: u64) -> io::Result<Duration> {
    match until_ns.saturating_sub(boottime_ns()) {
        0 => Err(io::ErrorKind::TimedOut.into()),
        left_ns => Ok(Duration::from_nanos(left_ns.max(1000))),
    }
}
