//! Who is let in: the hello, with a token where one is asked for and a place where there is one, and who has
//! to leave again.

use std::time::Duration;

use cell_fabric::{ConnectionId, PeerAddress};
use cell_protocol::{Hello, HelloReply, Limits, Malformed, Refusal, Reply, Request, RequestHeader};
use cell_terms::mutant::{Mutant, planted};

use super::{Connection, IDLE_MS, SERVER_NAME, Worker};
use crate::access::{Credential, Grants};
use crate::failed_logins::LoginPlace;
use crate::limits::{IN_FLIGHT_MAX, STREAM_CREDIT_BYTES, STREAMS_MAX};
use crate::pairs::Dependence;

/// What a peer's token shows.
enum LookedAt {
    Known(Credential, Grants),
    Unknown,
    /// Too many from there were not known lately.
    NotYet,
}

impl Worker {
    /// A client connected, of whom the fabric says who it is, and which token it showed when the connection
    /// was made; an empty one is none.
    pub fn accepted_showing(&mut self, connection: ConnectionId, peer: PeerAddress, token: &[u8]) {
        let (peer, shown) = (Some(peer), token.into());
        self.connections.insert(connection, Connection { peer, shown, ..Connection::default() });
    }

    pub(super) fn greet(&mut self, connection: ConnectionId, header: RequestHeader, request: &Request<'_>) {
        let Request::Hello(Hello { version, stream_credit_bytes, token, .. }) = request else {
            let what = Malformed::Order;
            return self.refuse(connection, header, Refusal::Malformed { what });
        };
        let state = self.connections.get(&connection);
        let peer = state.and_then(|state| state.peer);
        let is_first = state.is_some_and(|state| state.greeted.is_none());
        let token = match state {
            Some(state) if token.is_empty() => &state.shown[..],
            _ => *token,
        };
        let (credential, grants) = match self.look_at(peer, token) {
            LookedAt::Known(credential, grants) => (credential, grants),
            LookedAt::Unknown => return self.turn_down(connection, header, peer),
            LookedAt::NotYet => {
                // Whoever has a good one comes again.
                self.reply(connection, header, Dependence::NOTHING, &Reply::Refused(Refusal::Busy));
                return self.greetings.dismissed.push(connection);
            }
        };
        if is_first && self.is_full(connection) && !self.has_place_kept(peer, &credential, grants) {
            return self.send_away(connection, header, peer);
        }
        if let Some(state) = self.connections.get_mut(&connection) {
            state.greeted = Some(credential);
            state.grants = grants;
            state.stream_credit_bytes = *stream_credit_bytes;
            self.greetings.admitted.push(connection);
            self.greetings.greeted[connection.provider()] += usize::from(is_first);
        }
        let reply = Reply::Hello(HelloReply {
            version: *version,
            node: self.identity.node,
            incarnation: self.identity.incarnation,
            limits: self.limits(),
            name: SERVER_NAME,
        });
        self.reply(connection, header, Dependence::NOTHING, &reply);
    }

    /// By what a peer is let in, and to do what.
    fn look_at(&self, peer: Option<PeerAddress>, token: &[u8]) -> LookedAt {
        let credential = self.access.credential(peer, token);
        let is_token = matches!(credential, Credential::Token(_));
        if is_token && self.greetings.logins.check(LoginPlace::of_peer(peer), self.now()).is_err() {
            return LookedAt::NotYet;
        }
        match self.access.grants(&credential) {
            Some(grants) => LookedAt::Known(credential, grants),
            None => LookedAt::Unknown,
        }
    }

    /// Refuses a token, and lets the peer try no other one on this connection.
    fn turn_down(&mut self, connection: ConnectionId, header: RequestHeader, peer: Option<PeerAddress>) {
        let now = self.now();
        // Past the limit the count stands: who waits is listened to again.
        let _ = self.greetings.logins.count(LoginPlace::of_peer(peer), now);
        self.access.count_failed_login();
        if let (Some(peer), Some(unsaid)) = (peer, self.greetings.unknown.ask(self.now_ns)) {
            tracing::warn!(%peer, unsaid, "a client shows a token that is not known: closing");
        }
        self.refuse(connection, header, Refusal::Unauthorized);
        self.greetings.dismissed.push(connection);
    }

    /// Whether there are as many connections of that kind as may be.
    fn is_full(&self, connection: ConnectionId) -> bool {
        let most = self.options.fabric.map_or(usize::MAX, |limits| limits.connections_max);
        self.greetings.greeted[connection.provider()] >= most
    }

    /// Whether somebody gets one of the places that the fabric has beyond the limit: who can act on a crowd,
    /// and whom the kernel names as the node's own user or root. Where nobody needs a token nothing
    /// distinguishes the others.
    fn has_place_kept(&self, peer: Option<PeerAddress>, credential: &Credential, grants: Grants) -> bool {
        let is_kept = match credential {
            Credential::Place => peer.is_some_and(PeerAddress::is_own_user),
            Credential::Token(_) => grants.operates,
        };
        is_kept && !planted(Mutant::OperatorHasNoPlace) || planted(Mutant::CrowdHasPlace)
    }

    /// Refuses a peer for whom there is no place. It comes again when one may be free.
    fn send_away(&mut self, connection: ConnectionId, header: RequestHeader, peer: Option<PeerAddress>) {
        self.turned_away_for_room();
        if let (Some(peer), Some(unsaid)) = (peer, self.greetings.crowded.ask(self.now_ns)) {
            let setting = "fabric_connections_max";
            tracing::warn!(%peer, unsaid, setting, "a client is turned away: there are as many as may be");
        }
        self.operations.refused += 1;
        self.counts.turned_away();
        self.reply(connection, header, Dependence::NOTHING, &Reply::Refused(Refusal::Busy));
        self.greetings.dismissed.push(connection);
    }

    /// A peer was turned away because there were as many connections as may be.
    pub(crate) fn turned_away_for_room(&mut self) {
        self.greetings.full_at_ns = Some(self.now_ns);
    }

    /// Connections whose peers are known by now: they make room for nobody.
    pub fn take_admitted(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.greetings.admitted)
    }

    /// Connections that the driver is to close, once what was answered on them has left: their tokens are
    /// gone or were never known, or there was no place.
    pub fn take_dismissed(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.greetings.dismissed)
    }

    /// Judges those again who are connected, if who may do what has changed. They keep what they still may.
    pub(super) fn judge_connections(&mut self) {
        let revision = self.access.revision();
        let judged = std::mem::replace(&mut self.greetings.judged, revision);
        if judged == revision || planted(Mutant::RevokedStays) {
            return;
        }
        let mut gone = Vec::new();
        for (id, connection) in &mut self.connections {
            let Some(credential) = &connection.greeted else { continue };
            match self.access.grants(credential) {
                Some(grants) => connection.grants = grants,
                None => {
                    connection.grants = Grants::default();
                    gone.push(*id);
                }
            }
        }
        gone.sort_unstable(); // not in the order of a hash
        gone.iter().for_each(|connection| tracing::info!(%connection, "a client's token is gone: closing"));
        self.greetings.dismissed.extend(gone);
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns)
    }

    fn limits(&self) -> Limits {
        let clamp = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        Limits {
            key_bytes_max: clamp(self.options.key_bytes_max()),
            value_bytes_max: clamp(self.value_bytes_max()),
            in_flight_max: IN_FLIGHT_MAX,
            streams_max: STREAMS_MAX,
            scan_entries_max: clamp(self.options.scan_page_entries_max),
            stream_credit_bytes: STREAM_CREDIT_BYTES,
            idle_ms: IDLE_MS,
        }
    }
}
