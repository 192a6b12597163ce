//! A socket of the supervisor: a unix socket in the cluster's folder, for the user who runs it and root
//! alone. One JSON object a line, a request and its answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use cell_cluster::local_socket;
use cell_drill::wire::LINE_BYTES_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Who asks nothing for so long is let go.
const IDLE: Duration = Duration::from_secs(600);

/// What the socket's threads are called, and who connects to it, in messages.
#[derive(Clone, Copy)]
pub(super) struct Names {
    /// Of the thread that accepts.
    pub(super) accepts: &'static str,
    /// Of each thread that serves a connection.
    pub(super) serves: &'static str,
    /// With its article, if it has one.
    pub(super) peer: &'static str,
}

/// What came on a line.
pub(super) enum Asked<R> {
    /// A request.
    Request(R),
    /// Whatever it was, it is of a user who is not admitted: the answer is the last one.
    Stranger { user: u32, own: u32 },
    /// No request.
    Garbage(serde_json::Error),
}

/// The open socket. Dropping it removes the file.
pub(crate) struct LocalListener {
    path: PathBuf,
}

impl LocalListener {
    /// Opens the socket and serves each connection on a thread of its own. The folder's lock is held, so a
    /// file that is there is a dead supervisor's.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open(
        path: PathBuf,
        names: Names,
        serve: impl Fn(&UnixStream) -> io::Result<()> + Clone + Send + 'static,
    ) -> anyhow::Result<LocalListener> {
        let Names { accepts, serves, peer } = names;
        let cannot = || format!("cannot open {} for {peer}", path.display());
        let listener = local_socket::listen(&path).with_context(cannot)?;
        let accept = move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // Out of descriptors, most likely: let some go before the next try.
                    thread::park_timeout(Duration::from_millis(50));
                    continue;
                };
                let serve = serve.clone();
                let serve = move || {
                    if let Err(error) = serve(&stream) {
                        tracing::debug!(%error, "a connection of {peer} ended");
                    }
                };
                if let Err(error) = thread::Builder::new().name(serves.into()).spawn(serve) {
                    tracing::warn!(%error, "no thread for {peer}");
                }
            }
        };
        thread::Builder::new().name(accepts.into()).spawn(accept).context("cannot start a thread")?;
        Ok(LocalListener { path })
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        let _ = local_socket::remove(&self.path); // a file that is left is replaced by the next supervisor
    }
}

/// Answers each line of a connection, until its end or a stranger's first line.
pub(super) fn answer_lines<R: DeserializeOwned, A: Serialize>(
    mut stream: &UnixStream,
    mut answer: impl FnMut(Asked<R>) -> A,
) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    let (user, own) = (cell_fabric::peer_user(stream)?, local_socket::own_user());
    let is_admitted = local_socket::is_admitted(user, own);
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let asked = match serde_json::from_str(&line) {
            // Refused only once it has asked: who writes into a closed socket does not come to read why.
            _ if !is_admitted => Asked::Stranger { user, own },
            Ok(request) => Asked::Request(request),
            Err(error) => Asked::Garbage(error),
        };
        let mut line = serde_json::to_vec(&answer(asked))?;
        line.push(b'\n');
        stream.write_all(&line)?;
        if !is_admitted {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn double(asked: Asked<u32>) -> String {
        match asked {
            Asked::Request(number) => (2 * number).to_string(),
            Asked::Stranger { .. } => "who are you?".to_owned(),
            Asked::Garbage(_) => "no number".to_owned(),
        }
    }

    #[test]
    fn listener_answers_each_line_and_takes_its_file_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let names = Names { accepts: "tests", serves: "test", peer: "a test" };
        let serve = |stream: &UnixStream| answer_lines(stream, double);
        let listener = LocalListener::open(path.clone(), names, serve).unwrap();
        for _ in 0..2 {
            let mut stream = BufReader::new(local_socket::connect(&path, Duration::from_secs(120)).unwrap());
            for (line, answer) in [("21\n", "\"42\"\n"), ("x\n", "\"no number\"\n"), ("1\n", "\"2\"\n")] {
                stream.get_mut().write_all(line.as_bytes()).unwrap();
                let mut said = String::new();
                stream.read_line(&mut said).unwrap();
                assert_eq!(said, answer);
            }
        }
        drop(listener);
        assert!(!path.exists());
    }
}
