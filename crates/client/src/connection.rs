//! The connection to one worker: opening, hello, loss, silence.
//!
//! ```text
//! Down --connect--> Opening --connected--> Greeting --hello reply--> Up
//!   ^                  |                      |                      |
//!   +------ closed, refused, no hello in time, silent too long -----+
//! ```
//!
//! A lost connection is opened anew only while there is something to do, after a wait that grows with each
//! failure.

use cell_protocol::Limits;
use cell_random::Random;
use cell_terms::{Incarnation, NodeId};

use crate::ClientOptions;
use crate::backoff::Backoff;
use crate::error::AttemptError;

/// A server that owes an answer and says nothing for so long may be dead: others are asked.
const DOUBTFUL_MS: u64 = 100;

/// What the server said of itself and permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The node.
    pub node: NodeId,
    /// Its life: changes with every start.
    pub incarnation: Incarnation,
    /// What it permits.
    pub limits: Limits,
    /// Its name and version.
    pub name: String,
}

/// Where the connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionPhase {
    /// There is none; the next may be started at this time.
    Down {
        not_before_ns: u64,
    },
    Opening {
        since_ns: u64,
    },
    /// Open; the hello is sent, its answer is due.
    Greeting {
        since_ns: u64,
    },
    Up,
}

/// What the server owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    Nothing,
    /// Answers that may take any time. It is asked for signs of life, lest the connection look idle to both
    /// ends; without any it is dead.
    Sometime,
    /// Prompt answers too: silence means that the connection is dead.
    Promptly,
}

/// What the passing of time asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// Ask for a sign of life.
    Probe,
    /// Give the connection up.
    GiveUp(AttemptError),
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) phase: ConnectionPhase,
    /// Whether the fabric took no more and has not said that it does again.
    pub(crate) blocked: bool,
    /// What the server said last.
    pub(crate) server: Option<ServerInfo>,
    /// Attempts since the last welcome.
    failed_count: u32,
    /// The last attempt came to a connection, and to no welcome.
    pub(crate) was_turned_away: bool,
    /// Since when an answer is due without a sign of life.
    waiting_since_ns: u64,
    /// When it was asked for a sign of life, if nothing was received since.
    probed_ns: Option<u64>,
    backoff: Backoff,
    connect_timeout_ms: u64,
    silence_ms: u64,
}

impl Connection {
    pub(crate) fn new(options: &ClientOptions) -> Connection {
        Connection {
            phase: ConnectionPhase::Down { not_before_ns: 0 },
            blocked: false,
            server: None,
            failed_count: 0,
            was_turned_away: false,
            waiting_since_ns: 0,
            probed_ns: None,
            backoff: options.backoff(),
            connect_timeout_ms: options.connect_timeout_ms,
            silence_ms: options.silence_ms.max(2),
        }
    }

    /// Other waits from now on. See also [`Connection::shorten_wait`].
    pub(crate) fn take_options(&mut self, options: &ClientOptions) {
        self.backoff = options.backoff();
        self.connect_timeout_ms = options.connect_timeout_ms;
        self.silence_ms = options.silence_ms.max(2);
    }

    pub(crate) fn is_up(&self) -> bool {
        self.phase == ConnectionPhase::Up
    }

    /// Whether there is one, or one is being opened.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.phase, ConnectionPhase::Down { .. })
    }

    /// From when on the server is so silent that others are asked what became of it.
    pub(crate) fn doubtful_ns(&self, owed: Owed) -> u64 {
        match self.phase {
            ConnectionPhase::Up if owed == Owed::Promptly => after(self.waiting_since_ns, DOUBTFUL_MS),
            _ => u64::MAX,
        }
    }

    /// Whether it is.
    pub(crate) fn is_doubtful(&self, now_ns: u64, owed: Owed) -> bool {
        now_ns >= self.doubtful_ns(owed)
    }

    /// Whether to begin a connection now, given that there is something to do.
    pub(crate) fn begin(&mut self, now_ns: u64) -> bool {
        match self.phase {
            ConnectionPhase::Down { not_before_ns } if now_ns >= not_before_ns => {
                self.phase = ConnectionPhase::Opening { since_ns: now_ns };
                true
            }
            _ => false,
        }
    }

    /// The connection is open. False if none was being opened.
    pub(crate) fn opened(&mut self) -> bool {
        match self.phase {
            ConnectionPhase::Opening { since_ns } => {
                self.phase = ConnectionPhase::Greeting { since_ns };
                self.blocked = false;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn on_welcome(&mut self, server: ServerInfo, now_ns: u64) {
        self.phase = ConnectionPhase::Up;
        self.server = Some(server);
        self.failed_count = 0;
        self.on_activity(now_ns);
    }

    /// The connection is gone; the next waits, longer each time.
    pub(crate) fn lost(&mut self, now_ns: u64, random: &mut Random) {
        self.failed_count = self.failed_count.saturating_add(1);
        self.was_turned_away = matches!(self.phase, ConnectionPhase::Greeting { .. });
        let wait_ns = self.backoff.wait_ns(self.failed_count, random);
        self.phase = ConnectionPhase::Down { not_before_ns: now_ns.saturating_add(wait_ns) };
        self.blocked = false;
        self.probed_ns = None;
    }

    /// A wait that has started ends at the latest when one would that starts now, after as many failures but
    /// at most so many.
    pub(crate) fn shorten_wait(&mut self, now_ns: u64, failed_max: u32, random: &mut Random) {
        if let ConnectionPhase::Down { not_before_ns } = &mut self.phase
            && *not_before_ns > now_ns
        {
            let wait_ns = self.backoff.wait_ns(self.failed_count.min(failed_max), random);
            *not_before_ns = now_ns.saturating_add(wait_ns).min(*not_before_ns);
        }
    }

    /// A sign of life, or the first request after which an answer is due.
    pub(crate) fn on_activity(&mut self, now_ns: u64) {
        self.waiting_since_ns = now_ns;
        self.probed_ns = None;
    }

    /// What time asks for. `asked_ns`: when the client's oldest unanswered question left. A server that goes
    /// on talking and does not answer it never will, for messages keep their order: one of them was lost.
    pub(crate) fn overdue(&mut self, now_ns: u64, owed: Owed, asked_ns: Option<u64>) -> Option<Overdue> {
        match self.phase {
            ConnectionPhase::Opening { since_ns } | ConnectionPhase::Greeting { since_ns } => {
                let over = now_ns >= after(since_ns, self.connect_timeout_ms);
                let timeout_ms = self.connect_timeout_ms;
                over.then_some(Overdue::GiveUp(AttemptError::NoHello { timeout_ms }))
            }
            ConnectionPhase::Up if owed == Owed::Promptly && now_ns >= self.silent_ns() => {
                Some(Overdue::GiveUp(AttemptError::Silent { silence_ms: self.silence_ms }))
            }
            ConnectionPhase::Up if now_ns >= self.passed_over_ns(asked_ns) => {
                Some(Overdue::GiveUp(AttemptError::PassedOver { silence_ms: self.silence_ms }))
            }
            ConnectionPhase::Up if owed == Owed::Sometime && now_ns >= self.unanswered_ns() => {
                Some(Overdue::GiveUp(AttemptError::Silent { silence_ms: self.silence_ms }))
            }
            ConnectionPhase::Up
                if owed != Owed::Nothing && now_ns >= self.probe_ns() && self.probed_ns.is_none() =>
            {
                self.probed_ns = Some(now_ns);
                Some(Overdue::Probe)
            }
            _ => None,
        }
    }

    /// When [`Connection::overdue`] or [`Connection::begin`] may next have something to say.
    pub(crate) fn due_ns(&self, owed: Owed, asked_ns: Option<u64>, work: bool) -> u64 {
        let due_ns = match self.phase {
            ConnectionPhase::Down { not_before_ns } if work => not_before_ns,
            ConnectionPhase::Opening { since_ns } | ConnectionPhase::Greeting { since_ns } => {
                after(since_ns, self.connect_timeout_ms)
            }
            ConnectionPhase::Up if owed != Owed::Nothing && self.probed_ns.is_none() => self.probe_ns(),
            ConnectionPhase::Up if owed == Owed::Promptly => self.silent_ns(),
            ConnectionPhase::Up if owed == Owed::Sometime => self.unanswered_ns(),
            _ => u64::MAX,
        };
        if self.is_up() { due_ns.min(self.passed_over_ns(asked_ns)) } else { due_ns }
    }

    fn silent_ns(&self) -> u64 {
        after(self.waiting_since_ns, self.silence_ms)
    }

    /// When a question has gone without an answer for too long, whatever else is received.
    fn passed_over_ns(&self, asked_ns: Option<u64>) -> u64 {
        asked_ns.map_or(u64::MAX, |asked_ns| after(asked_ns, self.silence_ms))
    }

    /// When a probe has gone without an answer for too long: that one is prompt, whatever else is owed.
    fn unanswered_ns(&self) -> u64 {
        self.probed_ns.map_or(u64::MAX, |probed_ns| after(probed_ns, self.silence_ms))
    }

    fn probe_ns(&self) -> u64 {
        after(self.waiting_since_ns, self.silence_ms / 2)
    }
}

fn after(since_ns: u64, wait_ms: u64) -> u64 {
    since_ns.saturating_add(wait_ms.saturating_mul(1_000_000))
}
