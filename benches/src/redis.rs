//! Redis as a rival that a user would otherwise run: a server of its own as a child, spoken to in RESP with
//! as many commands outstanding as ours has.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cell_tests::ports::Ports;
use cell_tests::reaper;

use crate::data::{Batch, Dataset};
use crate::disk;

/// How a SET is answered.
const OK: usize = b"+OK\r\n".len();
/// Its unix socket, in its folder.
const SOCKET: &str = "redis.sock";
/// How long a server may take until it serves.
const READY: Duration = Duration::from_secs(300);
/// Commands outstanding while a server is filled.
const FILLING: usize = 1024;
/// How much of answers is read at a time.
const ANSWERS: usize = 64 << 10;

/// What Redis keeps on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// An append-only file, synced before it answers.
    LogAlways,
    /// A dump on request.
    Dump,
}

/// A Redis server with its data in a folder.
pub struct Redis {
    child: Child,
    port: Ports,
    folder: PathBuf,
    keeps: Keeps,
    connection: TcpStream,
}

/// A connection with commands in flight: what both kinds of socket do.
pub struct Pipeline {
    stream: Stream,
    commands: Vec<u8>,
    /// Kept from one wait to the next: its zeros would cost the rival more than a short answer.
    answers: Vec<u8>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Pipeline {
    fn new(stream: Stream) -> Self {
        Self { stream, commands: Vec::new(), answers: vec![0; ANSWERS] }
    }

    /// Sends the gets of some keys, all at once.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send_gets<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) -> io::Result<()> {
        self.commands.clear();
        for key in keys {
            encode(&[b"GET", key], &mut self.commands)?;
        }
        self.send()
    }

    /// Sends the sets of some entries, all at once.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send_sets<'k>(&mut self, entries: impl Iterator<Item = (&'k [u8], &'k [u8])>) -> io::Result<()> {
        self.commands.clear();
        for (key, value) in entries {
            encode(&[b"SET", key, value], &mut self.commands)?;
        }
        self.send()
    }

    fn send(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(&self.commands),
            Stream::Unix(stream) => stream.write_all(&self.commands),
        }
    }

    /// Waits for so many answers; returns how many bytes the values have, of sets none.
    ///
    /// # Errors
    /// The connection failed, or an answer is neither a value nor OK.
    pub fn receive(&mut self, mut count: usize) -> io::Result<u64> {
        let (mut at, mut filled, mut bytes) = (0, 0, 0);
        loop {
            while count > 0
                && let Some((value, next)) = answer(&self.answers[..filled], at)?
            {
                (at, bytes, count) = (next, bytes + value, count - 1);
            }
            if count == 0 {
                return Ok(bytes);
            }
            if filled == self.answers.len() {
                self.answers.resize(filled + ANSWERS, 0);
            }
            let read = match &mut self.stream {
                Stream::Tcp(stream) => stream.read(&mut self.answers[filled..])?,
                Stream::Unix(stream) => stream.read(&mut self.answers[filled..])?,
            };
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += read;
        }
    }
}

/// Length of the value that an answer at `at` has, and where the next one begins; none while it is not whole.
fn answer(answers: &[u8], at: usize) -> io::Result<Option<(u64, usize)>> {
    let Some(end) = answers[at..].iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let line = &answers[at..at + end - 1];
    if line == b"+OK" {
        return Ok(Some((0, at + end + 1)));
    }
    let length = line.strip_prefix(b"$").and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    let Some(length): Option<usize> = length else { return Err(io::Error::other("Redis has no such value")) };
    let next = at + end + 1 + length + 2;
    Ok((next <= answers.len()).then_some((length as u64, next)))
}

/// Whether there is one to compare with.
pub fn is_installed() -> bool {
    disk::has("redis-server")
}

impl Redis {
    /// Starts a server and waits until it has loaded what is in its folder.
    ///
    /// # Errors
    /// The process or the connection failed.
    pub fn start(folder: &Path, keeps: Keeps) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let port = Ports::take();
        let child = launch(folder, keeps, port.first)?;
        let connection = connect(port.first)?;
        Ok(Self { child, port, folder: folder.to_owned(), keeps, connection })
    }

    /// Kills the server, starts it again, and says how long it took until it served everything.
    ///
    /// # Errors
    /// The process or the connection failed.
    #[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
    pub fn restart(&mut self) -> io::Result<Duration> {
        if self.keeps == Keeps::Dump {
            self.command(&[b"SAVE"])?;
        }
        self.child.kill()?;
        self.child.wait()?;
        let started = Instant::now();
        self.child = launch(&self.folder, self.keeps, self.port.first)?;
        self.connection = connect(self.port.first)?;
        Ok(started.elapsed())
    }

    /// Sets all of a batch with so many commands outstanding.
    ///
    /// # Errors
    /// The connection failed, or an answer is not OK.
    pub fn put(&mut self, batch: &Batch, outstanding: usize) -> io::Result<u64> {
        let count = batch.keys.len();
        let (mut sent, mut answered) = (0, 0);
        let mut commands = Vec::new();
        let mut answers = vec![0; OK * outstanding];
        let mut partial = 0;
        while answered < count {
            commands.clear();
            while sent < count && sent - answered < outstanding {
                encode(&[b"SET", batch.keys.get(sent), batch.values.get(sent)], &mut commands)?;
                sent += 1;
            }
            self.connection.write_all(&commands)?;
            let wanted = (sent - answered) * OK - partial;
            let read = self.connection.read(&mut answers[..wanted])?;
            if read == 0 || answers[..read].contains(&b'-') {
                return Err(io::Error::other("Redis does not answer OK"));
            }
            answered += (partial + read) / OK;
            partial = (partial + read) % OK;
        }
        Ok(count as u64)
    }

    /// Sets all entries of a dataset.
    ///
    /// # Errors
    /// As for [`Self::put`].
    pub fn fill(&mut self, data: &Dataset) -> io::Result<()> {
        for first in (0..data.entries).step_by(20_000) {
            self.put(&data.batch(first, (first + 20_000).min(data.entries)), FILLING)?;
        }
        Ok(())
    }

    /// One more connection, over TCP or the server's unix socket.
    ///
    /// # Errors
    /// The connection failed.
    pub fn pipeline(&self, unix: bool) -> io::Result<Pipeline> {
        let stream = if unix {
            Stream::Unix(UnixStream::connect(self.folder.join(SOCKET))?)
        } else {
            Stream::Tcp(connect(self.port.first)?)
        };
        Ok(Pipeline::new(stream))
    }

    /// The arguments by which a tool of Redis reaches it.
    pub(crate) fn arguments(&self, unix: bool) -> Vec<String> {
        let port = self.port.first.to_string();
        if unix {
            vec!["-s".to_owned(), self.folder.join(SOCKET).display().to_string()]
        } else {
            vec!["-h".to_owned(), "127.0.0.1".to_owned(), "-p".to_owned(), port]
        }
    }

    /// How many gets have found nothing so far.
    pub(crate) fn misses(&mut self) -> io::Result<u64> {
        let mut question = Vec::new();
        encode(&[b"INFO", b"stats"], &mut question)?;
        self.connection.write_all(&question)?;
        let (mut said, mut part) = (Vec::new(), [0; 4096]);
        while answer(&said, 0)?.is_none() {
            let read = self.connection.read(&mut part)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            said.extend_from_slice(&part[..read]);
        }
        let said = String::from_utf8_lossy(&said);
        let count = said.lines().find_map(|line| line.strip_prefix("keyspace_misses:"));
        let count = count.and_then(|count| count.trim().parse().ok());
        count.ok_or_else(|| io::Error::other("Redis does not say how many gets have found nothing"))
    }

    /// Processor time that the server has used, in nanoseconds.
    pub fn processor_ns(&self) -> u64 {
        crate::processor::time_ns(rustix::process::Pid::from_child(&self.child))
    }

    /// How often the server has gone to sleep.
    pub fn sleeps(&self) -> u64 {
        crate::processor::sleeps(rustix::process::Pid::from_child(&self.child))
    }

    /// Resident memory of the server.
    pub fn resident_bytes(&self) -> u64 {
        cell_tests::process::resident_bytes(rustix::process::Pid::from_child(&self.child))
    }

    fn command(&mut self, words: &[&[u8]]) -> io::Result<Vec<u8>> {
        command(&mut self.connection, words)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // What it has on disk is a bench's; a server that is gone already is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(folder: &Path, keeps: Keeps, port: u16) -> io::Result<Child> {
    let log = if keeps == Keeps::LogAlways { "yes" } else { "no" };
    let mut command = Command::new("redis-server");
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"])
        .args(["--unixsocket", SOCKET])
        .args(["--appendonly", log, "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    reaper::mark(&mut command);
    command.spawn()
}

/// Connects once the server answers and has loaded its data.
#[allow(clippy::disallowed_methods, reason = "a bench of real processes has real time")]
fn connect(port: u16) -> io::Result<TcpStream> {
    let deadline = Instant::now() + READY;
    loop {
        let answer = TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| {
            stream.set_nodelay(true)?;
            let answer = command(&mut stream, &[b"PING"])?;
            Ok((stream, answer))
        });
        match answer {
            Ok((stream, answer)) if answer.starts_with(b"+PONG") => return Ok(stream),
            Err(error) if Instant::now() > deadline => return Err(error),
            _ if Instant::now() > deadline => return Err(io::ErrorKind::TimedOut.into()),
            _ => disk::pause(Duration::from_millis(5)),
        }
    }
}

fn command(stream: &mut TcpStream, words: &[&[u8]]) -> io::Result<Vec<u8>> {
    let mut encoded = Vec::new();
    encode(words, &mut encoded)?;
    stream.write_all(&encoded)?;
    let mut answer = vec![0; 256];
    let length = stream.read(&mut answer)?;
    answer.truncate(length);
    Ok(answer)
}

/// Appends a command, without memory of its own for a word.
fn encode(words: &[&[u8]], out: &mut Vec<u8>) -> io::Result<()> {
    write!(out, "*{}\r\n", words.len())?;
    for word in words {
        write!(out, "${}\r\n", word.len())?;
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each wait filled 64 KiB with zeros, also for an answer of eleven.
    #[test]
    fn receive_keeps_its_buffer_and_touches_no_more_of_it_than_was_answered() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let mut pipeline = Pipeline::new(Stream::Unix(here));
        pipeline.answers.fill(b'?');
        for _ in 0..2 {
            there.write_all(b"$5\r\n12345\r\n").unwrap();
            assert_eq!(pipeline.receive(1).unwrap(), 5);
            assert_eq!(pipeline.answers.len(), ANSWERS);
            assert!(pipeline.answers[11..].iter().all(|byte| *byte == b'?'));
        }
        let long = vec![b'v'; 2 * ANSWERS];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                write!(there, "+OK\r\n${}\r\n", long.len()).unwrap();
                there.write_all(&long).unwrap();
                there.write_all(b"\r\n").unwrap();
            });
            assert_eq!(pipeline.receive(2).unwrap(), long.len() as u64);
        });
    }

    #[test]
    fn command_is_its_words_with_their_lengths() {
        let mut out = Vec::new();
        encode(&[b"GET", b"some key"], &mut out).unwrap();
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$8\r\nsome key\r\n");
    }

    #[test]
    fn redis_killed_and_started_has_its_data() {
        if !is_installed() {
            println!("SKIPPED: Redis as a rival: redis-server is missing (apt install redis-server)");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let data = Dataset { entries: 2_000, seed: 1 };
        for keeps in [Keeps::LogAlways, Keeps::Dump] {
            let mut redis = Redis::start(&folder.path().join(format!("{keeps:?}")), keeps).unwrap();
            redis.fill(&data).unwrap();
            redis.restart().unwrap();
            assert_eq!(redis.command(&[b"DBSIZE"]).unwrap(), b":2000\r\n");
            let mut pipeline = redis.pipeline(true).unwrap();
            pipeline.send_sets([(&b"a"[..], &b"12345"[..]), (b"b", b"67")].into_iter()).unwrap();
            assert_eq!(pipeline.receive(2).unwrap(), 0);
            pipeline.send_gets([&b"a"[..], b"b"].into_iter()).unwrap();
            assert_eq!(pipeline.receive(2).unwrap(), 7);
        }
    }
}
