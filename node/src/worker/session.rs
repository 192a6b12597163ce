//! Sessions: opened and ended in the coordinator, by way of commands; known here by name.

use std::collections::HashMap;

use cell_fabric::ConnectionId;
use cell_protocol::{Refusal, Reply, RequestHeader};
use cell_terms::SessionId;

use super::pairs::Dependence;
use super::{Command, Worker};

/// How often idle sessions are looked for.
const SWEEP_NS: u64 = 5_000_000_000;

/// The sessions that may write, and when each last did anything.
#[derive(Debug, Default)]
pub(super) struct SessionBook {
    last_used_ns: HashMap<SessionId, u64>,
    swept_ns: u64,
}

impl SessionBook {
    pub(super) fn open(&mut self, session: SessionId, now_ns: u64) {
        self.last_used_ns.insert(session, now_ns);
    }

    /// Notes a use; false if there is no such session.
    pub(super) fn touch(&mut self, session: SessionId, now_ns: u64) -> bool {
        self.last_used_ns.get_mut(&session).map(|used| *used = now_ns).is_some()
    }

    pub(super) fn end(&mut self, session: SessionId) {
        self.last_used_ns.remove(&session);
    }

    pub(super) fn len(&self) -> usize {
        self.last_used_ns.len()
    }

    fn idle(&mut self, now_ns: u64, idle_ns: u64) -> Vec<SessionId> {
        if now_ns.saturating_sub(self.swept_ns) < SWEEP_NS {
            return Vec::new();
        }
        self.swept_ns = now_ns;
        let long_ago = |used: &u64| now_ns.saturating_sub(*used) >= idle_ns;
        let idle = self.last_used_ns.iter().filter(|(_, used)| long_ago(used));
        let mut idle: Vec<_> = idle.map(|(session, _)| *session).collect();
        idle.sort_unstable(); // a core's order follows from its input alone
        idle
    }
}

impl Worker {
    pub(super) fn open_session(&mut self, connection: ConnectionId, header: RequestHeader) {
        if self.is_awaiting_pairs() {
            return self.refuse(connection, header, Refusal::Recovering);
        }
        self.commands.push(Command::OpenSession { connection, header });
    }

    pub(super) fn session_opened(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        session: Option<SessionId>,
    ) {
        match session {
            Some(session) => {
                let idle_ms = u32::try_from(self.options.session_idle_ns / 1_000_000).unwrap_or(u32::MAX);
                self.sessions.open(session, self.now_ns);
                self.reply(connection, header, Dependence::NOTHING, &Reply::Session { session, idle_ms });
            }
            None => self.refuse(connection, header, Refusal::Busy), // the coordinator did not answer in time
        }
    }

    pub(super) fn close_session(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        session: SessionId,
    ) {
        if self.is_awaiting_pairs() {
            return self.refuse(connection, header, Refusal::Recovering);
        }
        self.commands.push(Command::EndSession { session, answer: Some((connection, header)) });
    }

    /// The coordinator has recorded the end, so results and floors may go (DESIGN.md, "Exactly once").
    pub(super) fn session_ended(
        &mut self,
        session: SessionId,
        answer: Option<(ConnectionId, RequestHeader)>,
        recorded: bool,
    ) {
        if recorded {
            self.sessions.end(session);
            self.pairs.iter_mut().for_each(|pair| pair.store.completions().forget(session));
        }
        match answer {
            Some((connection, header)) if recorded => {
                self.reply(connection, header, Dependence::NOTHING, &Reply::SessionClosed);
            }
            Some((connection, header)) => self.refuse(connection, header, Refusal::Busy),
            None => {}
        }
    }

    pub(super) fn keep_alive(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        session: Option<SessionId>,
    ) {
        if self.is_awaiting_pairs() {
            return self.refuse(connection, header, Refusal::Recovering);
        }
        match session {
            Some(session) if !self.sessions.touch(session, self.now_ns) => {
                self.refuse(connection, header, Refusal::SessionUnknown);
            }
            _ => self.reply(connection, header, Dependence::NOTHING, &Reply::Alive),
        }
    }

    pub(super) fn sessions_tick(&mut self) {
        for session in self.sessions.idle(self.now_ns, self.options.session_idle_ns) {
            self.sessions.touch(session, self.now_ns); // asked once; again after another idle period
            self.commands.push(Command::EndSession { session, answer: None });
        }
    }
}
