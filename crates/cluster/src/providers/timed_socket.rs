//! A socket whose reads and writes end in time, whoever drips bytes or says nothing.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::clock::boottime_ns;

/// How long reads and writes may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// All of them end then, by the clock of [`boottime_ns`]: a peer that drips bytes does not stretch it.
    Until(u64),
    /// Each read and each write by itself.
    Each { read: Duration, write: Duration },
}

/// See the module's text.
pub(crate) struct TimedSocket<S> {
    socket: Arc<S>,
    limit: Limit,
}

impl<S: AsFd> TimedSocket<S> {
    pub(crate) fn new(socket: Arc<S>, limit: Limit) -> TimedSocket<S> {
        TimedSocket { socket, limit }
    }

    /// Another limit from now on.
    pub(crate) fn set_limit(&mut self, limit: Limit) {
        self.limit = limit;
    }

    /// Whether the peer has hung up, or left something that nobody asked for.
    pub(crate) fn is_closed(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(&*self.socket, &mut [0_u8], flags) != Err(Errno::AGAIN)
    }

    fn set_timeout(&self, which: Timeout, each: impl Fn(Duration, Duration) -> Duration) -> io::Result<()> {
        let most = match self.limit {
            Limit::Until(until_ns) => left(until_ns)?,
            Limit::Each { read, write } => each(read, write),
        };
        Ok(set_socket_timeout(&*self.socket, which, Some(most))?)
    }
}

impl<S: AsFd> Read for TimedSocket<S>
where
    for<'a> &'a S: Read,
{
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.set_timeout(Timeout::Recv, |read, _| read)?;
        (&*self.socket).read(into).map_err(in_time)
    }
}

impl<S: AsFd> Write for TimedSocket<S>
where
    for<'a> &'a S: Write,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.set_timeout(Timeout::Send, |_, write| write)?;
        (&*self.socket).write(bytes).map_err(in_time)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The kernel says of a time that is over that the call would block.
fn in_time(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

/// What is left until then.
pub(crate) fn left(until_ns: u64) -> io::Result<Duration> {
    match until_ns.saturating_sub(boottime_ns()) {
        0 => Err(io::ErrorKind::TimedOut.into()),
        left_ns => Ok(Duration::from_nanos(left_ns.max(1000))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// It sends a byte as often as it is asked to, so that no single read takes long.
    #[test]
    fn read_until_an_end_is_not_stretched_by_who_drips() {
        let (one, other) = UnixStream::pair().unwrap();
        let until_ns = boottime_ns() + 50_000_000;
        let mut timed = TimedSocket::new(Arc::new(one), Limit::Until(until_ns));
        let error = loop {
            (&other).write_all(b"a").unwrap();
            if let Err(error) = timed.read(&mut [0]) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(boottime_ns() >= until_ns, "it had not ended");
    }

    #[test]
    fn read_and_write_that_take_too_long_time_out_and_a_peer_that_left_is_seen() {
        let (one, other) = UnixStream::pair().unwrap();
        let each = Limit::Each { read: Duration::from_millis(5), write: Duration::from_millis(5) };
        let mut timed = TimedSocket::new(Arc::new(one), Limit::Until(0));
        assert_eq!(timed.write(b"a").unwrap_err().kind(), io::ErrorKind::TimedOut, "its end is over");
        timed.set_limit(each);
        assert_eq!(timed.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        let full = loop {
            if let Err(error) = timed.write(&[0; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::TimedOut);
        assert!(!timed.is_closed());
        drop(other);
        assert!(timed.is_closed());
    }
}
