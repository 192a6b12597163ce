//! By when what goes on with a supervisor has to end, and a socket that keeps to it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cell_cluster::boottime_ns;

/// By when all that is asked of several supervisors has to end, in nanoseconds of [`boottime_ns`]: whatever
/// each of them may take by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndOfAll(u64);

impl EndOfAll {
    /// There is none.
    pub(crate) const NEVER: EndOfAll = EndOfAll(u64::MAX);

    pub(crate) fn after(patience: Duration) -> EndOfAll {
        EndOfAll(boottime_ns().saturating_add(nanoseconds(patience)))
    }

    /// What of this patience there is time for.
    pub(crate) fn bound(self, patience: Duration) -> Duration {
        patience.min(Duration::from_nanos(self.0.saturating_sub(boottime_ns())))
    }
}

/// By when what goes on with a supervisor has to end; clones are one.
#[derive(Clone, Default)]
pub(crate) struct Deadline(Arc<DeadlineTimes>);

/// In nanoseconds of [`boottime_ns`].
#[derive(Default)]
struct DeadlineTimes {
    started_ns: AtomicU64,
    until_ns: AtomicU64,
}

impl Deadline {
    pub(crate) fn after(patience: Duration) -> Deadline {
        let deadline = Deadline::default();
        deadline.begin(patience);
        deadline
    }

    /// So much time is left from now on.
    pub(crate) fn begin(&self, patience: Duration) {
        let now_ns = boottime_ns();
        self.0.started_ns.store(now_ns, Ordering::Relaxed);
        self.0.until_ns.store(now_ns.saturating_add(nanoseconds(patience)), Ordering::Relaxed);
    }

    /// How much that was.
    pub(crate) fn patience(&self) -> Duration {
        let [started_ns, until_ns] =
            [&self.0.started_ns, &self.0.until_ns].map(|ns| ns.load(Ordering::Relaxed));
        Duration::from_nanos(until_ns.saturating_sub(started_ns))
    }

    fn left(&self) -> io::Result<Duration> {
        match self.0.until_ns.load(Ordering::Relaxed).saturating_sub(boottime_ns()) {
            0 => Err(ErrorKind::TimedOut.into()),
            left_ns => Ok(Duration::from_nanos(left_ns)),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A socket with a limit for how long a call may take.
pub(crate) trait Timed: Read + Write {
    fn read_within(&self, left: Duration) -> io::Result<()>;
    fn write_within(&self, left: Duration) -> io::Result<()>;
}

impl Timed for TcpStream {
    fn read_within(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))
    }

    fn write_within(&self, left: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(left))
    }
}

impl Timed for UnixStream {
    fn read_within(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))
    }

    fn write_within(&self, left: Duration) -> io::Result<()> {
        self.set_write_timeout(Some(left))
    }
}

/// The socket of a supervisor. All its reads and writes end by one time: who drips bytes is waited for no
/// longer than who says nothing.
pub(crate) struct SupervisorSocket<S> {
    pub(crate) socket: S,
    pub(crate) deadline: Deadline,
}

impl<S: Timed> Read for SupervisorSocket<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.read_within(self.deadline.left()?)?;
        self.socket.read(into)
    }
}

impl<S: Timed> Write for SupervisorSocket<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write_within(self.deadline.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
