//! The questions of one connection and their answers, one at a time, however the peer came.

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cell_terms::Incarnation;

use crate::clock::boottime_ns;
use crate::clock_watch::ClockReading;
use crate::coordinator::Coordinator;
use crate::providers::json_lines::{
    NumberedRequest, NumberedResponse, WIRE_VERSION, check_version, read_line, why_unreadable, write_line,
};
use crate::request::{CoordinatorRefusal, CoordinatorRequest, Quota, Response};

/// Most connections at a time: some for each of 1,024 nodes, and for commands. Further ones get the answer
/// that the server is busy.
pub(crate) const CONNECTIONS_MAX: usize = 5 * 1_024;
/// Most living leases that one connection has taken: a node has one, a client that goes round in a loop does
/// not get those of all others.
const LEASES_OF_ONE_MAX: usize = 16;
/// A connection that asks nothing for so long is closed; its client opens another.
pub(crate) const IDLE: Duration = Duration::from_secs(60);
/// A client that does not take its answer for so long is dropped.
pub(crate) const WRITE: Duration = Duration::from_secs(5);

/// What is served, until it is to stop.
pub(crate) struct Serving {
    coordinator: Arc<dyn Coordinator>,
    /// Names the coordinator's clock in answers: when this server began.
    clock: u64,
    stopping: AtomicBool,
}

impl Serving {
    pub(crate) fn new(coordinator: Arc<dyn Coordinator>) -> Serving {
        Serving { coordinator, clock: boottime_ns(), stopping: AtomicBool::new(false) }
    }

    pub(crate) fn coordinator(&self) -> &dyn Coordinator {
        &*self.coordinator
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Answers what a peer asks until it has gone. `refused` says at each question why it gets no other
    /// answer, if so; `renewed` is called with each lease that counts from now on, once the peer knows it.
    pub(crate) fn answer_all<P: Read + Write>(
        &self,
        mut reader: BufReader<P>,
        refused: impl Fn() -> Option<CoordinatorRefusal>,
        renewed: impl Fn(Incarnation),
    ) -> io::Result<()> {
        let mut leases = Leases::default();
        let (mut line, mut written) = (Vec::new(), Vec::new());
        while !self.is_stopping() && read_line(&mut reader, &mut line)?.is_some() {
            let mut counts = None;
            // Refused only once it has asked: who writes into a closed socket does not come to read why.
            let answer = match refused().map_or_else(|| question(&line), Err) {
                Err(why) => refusal(why),
                Ok(question) => {
                    let response = leases.carry_out(self, &question.request);
                    counts = renewed_by(&question.request, &response);
                    // Read before the answer goes out, so that it lies between question and answer.
                    let reading = |now_ns| ClockReading { clock: self.clock, now_ns };
                    let clock = self.coordinator.clock_ns().map(reading);
                    NumberedResponse { version: WIRE_VERSION, number: question.number, response, clock }
                }
            };
            let goes_on = answer.number != 0;
            write_line(reader.get_mut(), &mut written, &answer)?;
            reader.get_mut().flush()?;
            if let Some(lease) = counts {
                renewed(lease);
            }
            if !goes_on {
                break;
            }
        }
        Ok(())
    }
}

/// The question that a line is.
fn question(line: &[u8]) -> Result<NumberedRequest, CoordinatorRefusal> {
    let question: NumberedRequest = serde_json::from_slice(line).map_err(|_| why_unreadable(line))?;
    check_version(question.version)?;
    Ok(question)
}

/// The lease that counts from now on.
fn renewed_by(request: &CoordinatorRequest, response: &Response) -> Option<Incarnation> {
    match (request, response) {
        (_, Response::Granted(grant)) => Some(grant.lease),
        (CoordinatorRequest::KeepAlive { lease }, Response::Alive) => Some(*lease),
        _ => None,
    }
}

/// To no question in particular, and the last that is said.
pub(crate) fn refusal(refusal: CoordinatorRefusal) -> NumberedResponse {
    let (version, response) = (WIRE_VERSION, Response::Refused(refusal));
    NumberedResponse { version, number: 0, response, clock: None }
}

/// The leases that a connection has taken and that may live.
#[derive(Default)]
struct Leases(Vec<Incarnation>);

impl Leases {
    fn carry_out(&mut self, serving: &Serving, request: &CoordinatorRequest) -> Response {
        if matches!(request, CoordinatorRequest::Grant { .. }) && !self.has_room(&*serving.coordinator) {
            let (what, limit) = (Quota::LeasesOfOne, LEASES_OF_ONE_MAX);
            return Response::Refused(CoordinatorRefusal::Quota { what, limit });
        }
        let response = carry_out(serving, request);
        if let Response::Granted(grant) = &response {
            self.0.push(grant.lease);
        }
        response
    }

    fn has_room(&mut self, coordinator: &dyn Coordinator) -> bool {
        if self.0.len() >= LEASES_OF_ONE_MAX {
            // What nobody can say of lives, for all that is known.
            self.0.retain(|lease| !matches!(coordinator.remaining_ns(*lease), Ok(None)));
        }
        self.0.len() < LEASES_OF_ONE_MAX
    }
}

fn carry_out(serving: &Serving, request: &CoordinatorRequest) -> Response {
    serving.coordinator.call(request).unwrap_or_else(|error| {
        // What was refused is an answer; after all else nobody knows what was carried out.
        tracing::error!(error = &error as &dyn std::error::Error, "a call of the coordinator failed");
        Response::Refused(CoordinatorRefusal::Stopped)
    })
}
