//! Redis as a rival that a user would otherwise run: a server of its own as a child, spoken to in RESP with
//! as many commands outstanding as ours has.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cell_tests::ports::Ports;

use crate::data::{Batch, Dataset};
use crate::disk;

/// How a SET is answered.
const OK: usize = b"+OK\r\n".len();
/// How long a server may take until it serves.
const READY: Duration = Duration::from_secs(300);
/// Commands outstanding while a server is filled.
const FILLING: usize = 1024;

/// What Redis keeps on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// An append-only file, synced before it answers.
    LogAlways,
    /// A dump when told.
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
                encode(&[b"SET", batch.keys.get(sent), batch.values.get(sent)], &mut commands);
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

    /// Resident memory of the server.
    pub fn resident_bytes(&self) -> u64 {
        cell_tests::server::resident_bytes(rustix::process::Pid::from_child(&self.child))
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
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"])
        .args(["--appendonly", log, "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
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
    encode(words, &mut encoded);
    stream.write_all(&encoded)?;
    let mut answer = vec![0; 256];
    let length = stream.read(&mut answer)?;
    answer.truncate(length);
    Ok(answer)
}

fn encode(words: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        }
    }
}
