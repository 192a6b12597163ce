//! One connection of a client, with what waits for it and what is due on it. A client has one to each node
//! that it needs; the first is its bootstrap link: it tries the addresses that the user gave.

use std::collections::VecDeque;

use cell_protocol::RequestId;

use crate::ClientOptions;
use crate::connection::{Connection, Owed};
use crate::error::AttemptError;
use crate::outgoing::{Control, Outbox};
use crate::pending::OperationSlot;

/// A request of the client's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) id: RequestId,
    /// The time before it left: what its reply says of the lease is counted from there.
    pub(crate) sent_ns: u64,
}

/// Requests of the client's own whose answers are due.
#[derive(Debug, Default)]
pub(crate) struct ControlIds {
    pub(crate) hello: Option<RequestId>,
    pub(crate) open_session: Option<Asked>,
    pub(crate) close_session: Option<RequestId>,
    /// With the number of the first row that was asked for.
    pub(crate) table: Option<(Asked, u32)>,
    pub(crate) regions: Option<Asked>,
    pub(crate) trust: Option<Asked>,
}

impl ControlIds {
    /// When the oldest of those left that are answered promptly.
    #[inline]
    fn oldest_ns(&self) -> Option<u64> {
        let table = self.table.map(|(asked, _)| asked);
        let prompt = [self.open_session, table, self.regions, self.trust];
        prompt.iter().flatten().map(|asked| asked.sent_ns).min()
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connection: Connection,
    /// Where it leads, as the region table has it; none where that is not known.
    pub(crate) address: Option<Box<str>>,
    /// Operations to be sent, oldest first.
    pub(crate) ready: VecDeque<OperationSlot>,
    /// Streamed puts that wait for another one to end.
    pub(crate) waiting_for_stream: VecDeque<OperationSlot>,
    /// Streamed puts that have credit and something to send.
    pub(crate) uploads: VecDeque<OperationSlot>,
    pub(crate) upload_count: usize,
    /// Operations whose answer is due; and those of them that are answered promptly.
    pub(crate) in_flight: usize,
    pub(crate) in_flight_prompt: usize,
    /// Operations that may be in flight.
    pub(crate) window: usize,
    pub(crate) control: VecDeque<Control>,
    pub(crate) control_ids: ControlIds,
    pub(crate) outbox: Outbox,
    pub(crate) close_wanted: bool,
    pub(crate) attempt: u64,
    /// Whether a chunk goes before the next operation.
    pub(crate) chunk_turn: bool,
    /// It is wanted though no operation is for it: to ask for the table, or to read one-sided.
    pub(crate) wanted: bool,
    pub(crate) last_attempt_error: Option<AttemptError>,
}

impl Link {
    pub(crate) fn new(options: &ClientOptions, address: Option<Box<str>>) -> Link {
        Link {
            connection: Connection::new(options),
            address,
            ready: VecDeque::new(),
            waiting_for_stream: VecDeque::new(),
            uploads: VecDeque::new(),
            upload_count: 0,
            in_flight: 0,
            in_flight_prompt: 0,
            window: 1,
            control: VecDeque::new(),
            control_ids: ControlIds::default(),
            outbox: Outbox::default(),
            close_wanted: false,
            attempt: 0,
            chunk_turn: false,
            wanted: false,
            last_attempt_error: None,
        }
    }

    /// Whether the worker owes an answer promptly; reads are its host's business.
    pub(crate) fn owes_answer(&self) -> bool {
        self.in_flight_prompt > 0 || self.oldest_asked_ns().is_some()
    }

    /// When the client's oldest unanswered question left. Operations end at their deadlines; these have none,
    /// and none is asked a second time while the first is unanswered.
    #[inline]
    pub(crate) fn oldest_asked_ns(&self) -> Option<u64> {
        self.control_ids.oldest_ns()
    }

    /// What the server owes. `reading`: one-sided reads are on their way to its host. A connection that takes
    /// nothing owes room: a dead host's never has any again, and what was sent may have been given up since.
    pub(crate) fn owed(&self, reading: bool) -> Owed {
        if self.owes_answer() || reading || self.connection.blocked {
            Owed::Promptly
        } else if self.in_flight > 0 {
            Owed::Sometime
        } else {
            Owed::Nothing
        }
    }

    /// Whether operations are for it.
    pub(crate) fn has_operations(&self) -> bool {
        self.in_flight > 0 || !self.ready.is_empty() || !self.waiting_for_stream.is_empty()
    }
}
