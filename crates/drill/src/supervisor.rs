//! The way to a cluster's supervisor: `drill.socket` in the cluster's folder.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cell_cluster::local_socket;

use crate::error::DrillError;
use crate::wire::{DrillAnswer, DrillRequest, Status};

/// A supervisor that says nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The socket for drills of the cluster in `dir`.
#[must_use]
pub fn drill_socket(dir: &Path) -> PathBuf {
    dir.join("drill.socket")
}

/// A connection to a supervisor.
pub struct Supervisor {
    stream: BufReader<UnixStream>,
}

impl Supervisor {
    /// Connects to the supervisor of the cluster in `dir`.
    ///
    /// # Errors
    /// [`DrillError::NoSupervisor`] without its socket.
    pub fn connect(dir: &Path) -> Result<Supervisor, DrillError> {
        let path = drill_socket(dir);
        let connected = local_socket::connect(&path, PATIENCE).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(Supervisor { stream: BufReader::new(stream) })
        });
        connected.map_err(|error| {
            let why = match error.kind() {
                ErrorKind::NotFound => "there is none".to_owned(),
                ErrorKind::ConnectionRefused => "nobody listens: its supervisor is gone".to_owned(),
                _ => error.to_string(),
            };
            DrillError::NoSupervisor { path, why }
        })
    }

    /// Asks for something and waits until it is done.
    ///
    /// # Errors
    /// [`DrillError::Refused`] with the supervisor's words, [`DrillError::Supervisor`] without an answer.
    pub fn ask(&mut self, request: DrillRequest) -> Result<DrillAnswer, DrillError> {
        let said = self.exchange(request).map_err(|error| {
            // Its words, not the error itself: a pipe that breaks here is not the reader of our output.
            DrillError::Supervisor(format!("does not answer: {error}"))
        })?;
        if said.is_empty() {
            return Err(DrillError::Supervisor("is gone".to_owned()));
        }
        let unknown = |error| DrillError::Supervisor(format!("gives an answer of another version: {error}"));
        let mut answer: DrillAnswer = serde_json::from_str(&said).map_err(unknown)?;
        match answer.refused.take() {
            Some(refused) => Err(DrillError::Refused { what: refused.what, next: refused.next }),
            None => Ok(answer),
        }
    }

    fn exchange(&mut self, request: DrillRequest) -> io::Result<String> {
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        let mut said = String::new();
        self.stream.read_line(&mut said)?;
        Ok(said)
    }

    /// How everyone is, and when that was, in nanoseconds on CLOCK_BOOTTIME.
    ///
    /// # Errors
    /// As [`Supervisor::ask`].
    pub fn status(&mut self) -> Result<(u64, Status), DrillError> {
        let answer = self.ask(DrillRequest::Status)?;
        let status = answer.status.ok_or_else(|| DrillError::Supervisor("reports no status".to_owned()))?;
        Ok((answer.at_ns, status))
    }
}
