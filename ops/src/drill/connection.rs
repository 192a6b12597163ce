//! The way to the supervisor: `drill.socket` in the cluster's folder.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use super::wire::{DrillAnswer, Request, Status};
use crate::dev::plan::drill_socket;
use crate::exit::{Exit, Failure};

/// A supervisor that says nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to the supervisor.
pub(crate) struct DrillConnection {
    stream: BufReader<UnixStream>,
}

impl DrillConnection {
    /// Connects to the supervisor of the cluster in `dir`.
    pub(crate) fn open(dir: &Path) -> anyhow::Result<DrillConnection> {
        let path = drill_socket(dir);
        let stream = UnixStream::connect(&path).map_err(|error| {
            let why = match error.kind() {
                ErrorKind::NotFound => "there is none".to_owned(),
                ErrorKind::ConnectionRefused => "nobody listens: its supervisor is gone".to_owned(),
                _ => error.to_string(),
            };
            Failure::new(Exit::Unreachable, format!("no drill without {}: {why}", path.display())).next(
                "`cell dev --allow-drills` opens it in its folder; --dir names another folder than ./cell-data",
            )
        })?;
        stream.set_read_timeout(Some(PATIENCE)).context("a socket takes a time-out")?;
        Ok(DrillConnection { stream: BufReader::new(stream) })
    }

    /// Asks for something and waits until it is done; a refusal is a failure.
    pub(crate) fn ask(&mut self, request: Request) -> anyhow::Result<DrillAnswer> {
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        let mut said = String::new();
        let sent = self.stream.get_mut().write_all(&line);
        match sent.and_then(|()| self.stream.read_line(&mut said)) {
            Ok(1..) => {}
            Ok(0) => return Err(Failure::new(Exit::Unreachable, "the supervisor is gone").into()),
            // Its words, not the error itself: a pipe that breaks here is not the reader of our output.
            Err(error) => {
                let what = format!("the supervisor does not answer: {error}");
                return Err(Failure::new(Exit::Unreachable, what).into());
            }
        }
        let mut answer: DrillAnswer =
            serde_json::from_str(&said).context("this is no answer of a supervisor")?;
        match answer.refused.take() {
            Some(refused) => Err(Failure::usage(refused.what).next(refused.next).into()),
            None => Ok(answer),
        }
    }

    /// How everyone is, and when.
    pub(crate) fn status(&mut self) -> anyhow::Result<(u64, Status)> {
        let answer = self.ask(Request::Status)?;
        Ok((answer.at_ns, answer.status.context("the supervisor tells no status")?))
    }
}
