//! Sessions: opened and ended in the coordinator, by way of commands; known here by name.

use std::collections::BTreeSet;

use cell_fabric::ConnectionId;
use cell_protocol::{Delete, Put, PutBegin, Refusal, Reply, Request, RequestHeader};
use cell_terms::SessionId;

use super::session_table::SessionUse;
use super::waiting::ASKING_BYTES_MAX;
use super::{Worker, WorkerPhase};
use crate::command::Command;
use crate::outbox::PairAt;
use crate::pairs::{Dependence, waiting_bytes};

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
        session: Result<SessionId, Refusal>,
    ) {
        self.health.on_session(session.as_ref().err(), self.now_ns);
        match session {
            Ok(session) => {
                let idle_ms = u32::try_from(self.options.session_idle_ns / 1_000_000).unwrap_or(u32::MAX);
                self.sessions.open(session, self.now_ns);
                if !self.connections.contains_key(&connection) {
                    // Who asked has gone, and nobody else has heard of it.
                    return self.commands.push(Command::EndSession { session, answer: None });
                }
                self.reply(connection, header, Dependence::NOTHING, &Reply::Session { session, idle_ms });
            }
            Err(refusal) => self.refuse(connection, header, refusal),
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

    /// The coordinator has recorded the end, so results and floors may go (`docs/design/log.md`).
    pub(super) fn session_ended(
        &mut self,
        session: SessionId,
        answer: Option<(ConnectionId, RequestHeader)>,
        recorded: bool,
    ) {
        if recorded {
            self.forget_session(session);
        }
        match answer {
            Some((connection, header)) if recorded => {
                self.reply(connection, header, Dependence::NOTHING, &Reply::SessionClosed);
            }
            Some((connection, header)) => self.refuse(connection, header, Refusal::Busy),
            None => {}
        }
    }

    /// A session has ended, and the coordinator knows.
    pub(super) fn forget_session(&mut self, session: SessionId) {
        self.sessions.end(session);
        self.pairs.iter_mut().for_each(|owned| owned.pair.completions().forget(session));
        self.splits.forget_session(session);
    }

    /// The sessions of which pairs keep something; some come several times.
    pub(super) fn sessions_with_results(&mut self) -> impl Iterator<Item = SessionId> + '_ {
        self.pairs.iter_mut().flat_map(|owned| owned.pair.completions().sessions())
    }

    /// Sessions may have ended unnoticed: what is known of them is compared with those that are open. One
    /// that is opened from here on is not among what is compared.
    pub(super) fn sessions_missed(&mut self) {
        let mut before: Vec<_> = self.sessions_with_results().collect();
        before.extend(self.sessions.known.keys());
        before.sort_unstable();
        before.dedup();
        self.commands.push(Command::ListSessions { before });
    }

    /// The same of a pair that came: a session may have ended since the pair's recovery looked, and before
    /// the pair was here to learn of it. Of one that is known here the end is still to come.
    pub(super) fn ask_for_sessions_of(&mut self, at: PairAt) {
        let of = self.pairs.pair_mut(at).completions().sessions();
        let mut before: Vec<_> = of.filter(|session| !self.sessions.is_settled(*session)).collect();
        before.sort_unstable();
        before.dedup();
        if !before.is_empty() {
            self.commands.push(Command::ListSessions { before });
        }
    }

    pub(super) fn sessions_listed(&mut self, before: Vec<SessionId>, open: Option<&BTreeSet<SessionId>>) {
        match open {
            Some(open) => {
                let ended = before.into_iter().filter(|session| !open.contains(session));
                ended.for_each(|session| self.session_ended(session, None, true));
            }
            None => self.ask_again(Command::ListSessions { before }),
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
        let (idle, kept) = self.sessions.sweep(self.now_ns, self.options.session_idle_ns);
        for session in idle {
            self.sessions.touch(session, self.now_ns); // asked once; again after another idle period
            self.commands.push(Command::EndSession { session, answer: None });
        }
        self.commands.extend(kept.into_iter().map(|session| Command::AskSession { session }));
    }

    /// Keeps a message of a session that is not known here, or of a stream that such a session begins, until
    /// the coordinator has said whether it is open. One for which there is no room any more is turned away.
    pub(super) fn asks_first(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        request: &Request<'_>,
        message: &[u8],
    ) -> bool {
        if self.phase != WorkerPhase::Serving {
            return false;
        }
        let stream = (connection, header.id);
        let session = match request {
            Request::Put(Put { name, key, .. })
            | Request::PutBegin(PutBegin { name, key, .. })
            | Request::Delete(Delete { name, key, .. })
                if !self.sessions.is_settled(name.session) && self.pairs.find(key).is_some() =>
            {
                name.session
            }
            Request::KeepAlive { session: Some(session) } => *session,
            Request::Chunk(_) | Request::Credit { .. } | Request::Cancel => {
                match self.sessions.awaited_by(stream).or_else(|| self.streams.session_of(stream)) {
                    Some(session) => session,
                    None => return false,
                }
            }
            _ => return false,
        };
        if self.sessions.is_settled(session) {
            return false;
        }
        if self.sessions.asking_bytes() >= ASKING_BYTES_MAX {
            self.turn_away(connection, header, request);
            return true;
        }
        if !self.sessions.is_asked_about(session) {
            self.commands.push(Command::AskSession { session });
        }
        let is_alone = matches!(request, Request::Put(_) | Request::Delete(_) | Request::KeepAlive { .. });
        self.sessions.keep(session, (!is_alone).then_some(stream), (connection, message));
        true
    }

    /// Whether a session is open; `None` when the coordinator did not answer in time.
    pub(super) fn session_asked(&mut self, session: SessionId, open: Option<bool>) {
        match open {
            Some(true) => {
                let now_ns = self.now_ns;
                let of = self.sessions.known.entry(session).or_insert(SessionUse::new(now_ns));
                (of.kept_ns, of.confirmed) = (now_ns, true);
            }
            Some(false) => self.session_ended(session, None, true),
            None if self.sessions.is_asked_about(session) => {
                return self.ask_again(Command::AskSession { session });
            }
            None => return,
        }
        let Some(messages) = self.sessions.take_asking(session) else { return };
        self.sessions.denied = (open == Some(false)).then_some(session);
        for (connection, message) in messages {
            self.sessions.asking_bytes -= waiting_bytes(&message);
            self.message(connection, &message);
        }
        self.sessions.denied = None;
    }
}
