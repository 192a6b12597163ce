//! One connection of a client, with what waits for it and what is due on it. A client has one to each node
//! that it needs; the first is its bootstrap link: it tries the addresses that the user gave.

use std::collections::VecDeque;

use crate::ClientOptions;
use crate::connection::{Connection, Owed};
use crate::control::{Control, SentControls};
use crate::error::AttemptError;
use crate::operation::OperationSlot;
use crate::report_state::LinkReporting;
use crate::stream::Uploads;

/// The message that is being sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) message: Vec<u8>,
    is_kept: bool,
}

impl Outbox {
    /// The message was not taken.
    pub(crate) fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Whether the message was not taken: it is to be sent again.
    pub(crate) fn take_kept(&mut self) -> bool {
        std::mem::take(&mut self.is_kept)
    }

    /// The connection that it was meant for is gone.
    pub(crate) fn discard(&mut self) {
        self.is_kept = false;
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
    pub(crate) uploads: Uploads,
    /// Operations whose answer is due; and those of them that are answered promptly.
    in_flight: usize,
    in_flight_prompt: usize,
    /// Operations that may be in flight.
    pub(crate) window: usize,
    /// What the server was permitted to send ahead of one large value.
    pub(crate) stream_credit_bytes: u32,
    pub(crate) control: VecDeque<Control>,
    pub(crate) sent_controls: SentControls,
    pub(crate) outbox: Outbox,
    pub(crate) close_wanted: bool,
    pub(crate) attempt: u64,
    /// It is wanted though no operation is for it: to ask for the table, or to read one-sided.
    pub(crate) wanted: bool,
    pub(crate) last_attempt_error: Option<AttemptError>,
    pub(crate) reporting: LinkReporting,
}

impl Link {
    pub(crate) fn new(options: &ClientOptions, address: Option<Box<str>>) -> Link {
        Link {
            connection: Connection::new(options),
            address,
            ready: VecDeque::new(),
            uploads: Uploads::default(),
            in_flight: 0,
            in_flight_prompt: 0,
            window: 1,
            stream_credit_bytes: options.stream_credit_bytes,
            control: VecDeque::new(),
            sent_controls: SentControls::default(),
            outbox: Outbox::default(),
            close_wanted: false,
            attempt: 0,
            wanted: false,
            last_attempt_error: None,
            reporting: LinkReporting::default(),
        }
    }

    /// Takes over what of the options concerns connections.
    pub(crate) fn take_options(&mut self, options: &ClientOptions) {
        self.connection.take_options(options);
        self.set_window(options.in_flight_max);
    }

    /// So many operations may be in flight, as far as the server permits them.
    pub(crate) fn set_window(&mut self, in_flight_max: usize) {
        if let Some(server) = &self.connection.server {
            let permitted = usize::try_from(server.limits.in_flight_max).unwrap_or(usize::MAX);
            self.window = in_flight_max.min(permitted).max(1);
        }
    }

    /// Operations whose answer is due.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Streamed puts that the server permits at a time.
    pub(crate) fn streams_max(&self) -> usize {
        let permitted = self.connection.server.as_ref().map_or(1, |server| server.limits.streams_max);
        usize::try_from(permitted.max(1)).unwrap_or(usize::MAX)
    }

    /// Whether an operation is there to be sent.
    pub(crate) fn may_operate(&self) -> bool {
        !self.ready.is_empty() || self.uploads.may_begin(self.streams_max())
    }

    /// Whether the server takes no further operation now.
    pub(crate) fn is_full(&self) -> bool {
        self.in_flight >= self.window
    }

    /// An operation leaves. `reading`: one-sided reads are on their way to the server's host.
    pub(crate) fn on_sent(&mut self, now_ns: u64, is_prompt: bool, reading: bool) {
        let owed = self.owed(reading);
        if owed == Owed::Nothing || (is_prompt && owed == Owed::Sometime) {
            self.connection.on_activity(now_ns);
        }
        self.in_flight_prompt += usize::from(is_prompt);
        self.in_flight += 1;
        self.reporting.counts.requests += 1;
        self.reporting.was_used = true;
    }

    /// The answer of an operation that was sent has come, or is not waited for any more.
    pub(crate) fn on_unsent(&mut self, is_prompt: bool) {
        self.in_flight -= 1;
        self.in_flight_prompt -= usize::from(is_prompt);
    }

    /// Whether the worker owes an answer promptly; reads are its host's business.
    pub(crate) fn owes_answer(&self) -> bool {
        self.in_flight_prompt > 0 || self.oldest_asked_ns().is_some()
    }

    /// When the client's oldest unanswered question left. Operations end at their deadlines; these have none,
    /// and none is asked a second time while the first is unanswered.
    #[inline]
    pub(crate) fn oldest_asked_ns(&self) -> Option<u64> {
        self.sent_controls.oldest_ns()
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
        self.in_flight > 0 || !self.ready.is_empty() || self.uploads.has_waiting()
    }
}
