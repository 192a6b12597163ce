//! Clients that do not read as fast as they ask: a core without sockets. Replies that the fabric does not
//! take wait here, and behind them what their client asks next; so do requests of anybody past the replies
//! that one turn of the worker's loop makes. The fabric reads nothing more from a client whose output is
//! full, so what waits for one is some 2 MiB of replies and what came in one poll. Nobody else waits for it.

use std::collections::VecDeque;

use cell_fabric::{ConnectionId, SendError};
use cell_protocol::MESSAGE_BYTES_MAX;
use cell_terms::IdMap;

use crate::limits::IN_FLIGHT_MAX;

/// Bytes of replies that one turn makes before it sends them: as much as the fabric keeps for a connection,
/// unless it was set otherwise. A scan that finds less than it looks at counts with what it looks at.
pub(crate) const STEP_REPLY_BYTES: usize = 1 << 20;
/// The least that may wait for all clients. It is more than one turn makes: else a client that asks for much
/// would be disconnected, ask again, and be disconnected again.
pub const REPLIES_BYTES_MIN: usize = 8 * STEP_REPLY_BYTES;
/// Bytes that may wait for one client, if as much may wait for all: answers to all that it may have asked,
/// which come at once where they waited for the log.
const CONNECTION_BYTES_MAX: usize = IN_FLIGHT_MAX as usize * (MESSAGE_BYTES_MAX + MESSAGE_BYTES);
/// What a message costs beside its bytes.
const MESSAGE_BYTES: usize = 64;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Congestion {
    /// Bytes that may wait for all clients.
    bytes_max: usize,
    waiting: IdMap<ConnectionId, Waiting>,
    /// Clients with requests, in the order of their turns.
    turns: VecDeque<ConnectionId>,
    bytes: usize,
}

/// What waits for one client.
#[derive(Debug, Default)]
struct Waiting {
    replies: VecDeque<Vec<u8>>,
    requests: VecDeque<Vec<u8>>,
    bytes: usize,
}

fn cost(message: &[u8]) -> usize {
    message.len() + MESSAGE_BYTES
}

impl Congestion {
    /// With so many bytes at most that wait for all clients.
    pub(crate) fn new(bytes_max: usize) -> Congestion {
        Congestion { bytes_max, waiting: IdMap::default(), turns: VecDeque::new(), bytes: 0 }
    }

    fn connection_bytes_max(&self) -> usize {
        CONNECTION_BYTES_MAX.min(self.bytes_max)
    }

    /// Whether something waits for this client, behind which its next request has to wait, too.
    pub(crate) fn holds(&self, connection: ConnectionId) -> bool {
        self.waiting.contains_key(&connection)
    }

    /// Whether replies wait for this client, behind which its next one has to wait, too.
    pub(crate) fn holds_replies(&self, connection: ConnectionId) -> bool {
        self.waiting.get(&connection).is_some_and(|waiting| !waiting.replies.is_empty())
    }

    /// Drops what waits for a client that is gone.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        if let Some(waiting) = self.waiting.remove(&connection) {
            self.bytes -= waiting.bytes;
            self.turns.retain(|turn| *turn != connection);
        }
    }

    /// Keeps a reply that the fabric did not take. The client to be disconnected for it, if any: the worst of
    /// them when they are too many. What waited for it is dropped.
    #[must_use]
    pub(crate) fn push(&mut self, connection: ConnectionId, reply: &[u8]) -> Option<ConnectionId> {
        let one_max = self.connection_bytes_max();
        let waiting = self.waiting.entry(connection).or_default();
        waiting.replies.push_back(reply.to_vec());
        waiting.bytes += cost(reply);
        self.bytes += cost(reply);
        let worst = if waiting.bytes > one_max {
            connection
        } else if self.bytes > self.bytes_max {
            *self.waiting.iter().max_by_key(|(_, waiting)| waiting.bytes)?.0
        } else {
            return None;
        };
        self.forget(worst);
        Some(worst)
    }

    /// Keeps a request whose turn comes later.
    pub(crate) fn defer(&mut self, connection: ConnectionId, request: &[u8]) {
        let waiting = self.waiting.entry(connection).or_default();
        if waiting.requests.is_empty() {
            self.turns.push_back(connection);
        }
        waiting.requests.push_back(request.to_vec());
        waiting.bytes += cost(request);
        self.bytes += cost(request);
    }

    /// Sends the replies that can be sent, in order. Before each poll: a client for which replies are left
    /// has its output full, and is not read.
    pub(crate) fn retry(&mut self, mut send: impl FnMut(ConnectionId, &[u8]) -> Result<(), SendError>) {
        if self.waiting.is_empty() {
            return;
        }
        let bytes = &mut self.bytes;
        let mut gone = Vec::new();
        self.waiting.retain(|connection, waiting| {
            while let Some(reply) = waiting.replies.front() {
                match send(*connection, reply) {
                    Ok(()) => {}
                    Err(SendError::Full) => return true,
                    Err(SendError::Closed) => {
                        gone.push(*connection);
                        return true;
                    }
                    Err(error) => tracing::error!(%error, "a reply could not be sent"),
                }
                waiting.bytes -= cost(reply);
                *bytes -= cost(reply);
                waiting.replies.pop_front();
            }
            !waiting.requests.is_empty()
        });
        gone.into_iter().for_each(|connection| self.forget(connection));
    }

    /// Whether a request waits for nothing but its turn.
    pub(crate) fn can_resume(&self) -> bool {
        let free = |connection| !self.holds_replies(connection);
        self.turns.iter().copied().any(free)
    }

    /// Hands requests over, by turns, of clients that have taken their replies, until `carry_out` says that
    /// it is enough.
    pub(crate) fn resume(&mut self, mut carry_out: impl FnMut(ConnectionId, &[u8]) -> bool) {
        for _ in 0..self.turns.len() {
            let Some(connection) = self.turns.pop_front() else { return };
            let Some(waiting) = self.waiting.get_mut(&connection) else { continue };
            let mut more = true;
            while more && waiting.replies.is_empty() {
                let Some(request) = waiting.requests.pop_front() else { break };
                waiting.bytes -= cost(&request);
                self.bytes -= cost(&request);
                more = carry_out(connection, &request);
            }
            if waiting.requests.is_empty() {
                self.waiting.remove(&connection);
            } else {
                self.turns.push_back(connection);
            }
            if !more {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 256 << 20;

    static REPLY: [u8; 64 << 10] = [7; 64 << 10];

    fn connection(number: u64) -> ConnectionId {
        ConnectionId::from_number(number)
    }

    /// Carries out up to so many requests.
    fn resume(congestion: &mut Congestion, limit: usize) -> Vec<(u64, String)> {
        let mut done = Vec::new();
        congestion.resume(|of, request| {
            done.push((of.number(), String::from_utf8(request.to_vec()).unwrap()));
            done.len() < limit
        });
        done
    }

    #[test]
    fn push_past_one_clients_share_disconnects_it_and_frees_what_waits() {
        let mut congestion = Congestion::new(BYTES_MAX);
        assert_eq!(congestion.push(connection(2), &REPLY), None);
        congestion.defer(connection(1), b"next");
        for _ in 0..CONNECTION_BYTES_MAX / cost(&REPLY) - 1 {
            assert_eq!(congestion.push(connection(1), &REPLY), None);
        }
        assert_eq!(congestion.push(connection(1), &REPLY), Some(connection(1)));
        assert!(!congestion.holds(connection(1)) && congestion.holds(connection(2)));
        assert_eq!((congestion.bytes, congestion.turns.len()), (cost(&REPLY), 0));
    }

    #[test]
    fn push_past_the_share_of_all_disconnects_the_worst_client() {
        let mut congestion = Congestion::new(BYTES_MAX);
        let worst = connection(5);
        for _ in 0..300 {
            assert_eq!(congestion.push(worst, &REPLY), None);
        }
        let others = (BYTES_MAX - congestion.bytes) / cost(&REPLY);
        for number in 0..others {
            assert_eq!(congestion.push(connection(10 + number as u64 % 20), &REPLY), None);
        }
        assert_eq!(congestion.push(connection(9), &REPLY), Some(worst));
        assert!(congestion.holds_replies(connection(9)));
        assert_eq!(congestion.bytes, (others + 1) * cost(&REPLY));
    }

    #[test]
    fn retry_sends_in_order_until_full_and_forgets_the_closed() {
        let mut congestion = Congestion::new(BYTES_MAX);
        for number in 1..=3 {
            for reply in [b"one", b"two"] {
                assert_eq!(congestion.push(connection(number), reply), None);
            }
        }
        congestion.defer(connection(3), b"next");
        let mut sent = Vec::new();
        congestion.retry(|to, reply| match (to.number(), reply) {
            (2, b"two") => Err(SendError::Full),
            (3, _) => Err(SendError::Closed),
            (number, _) => {
                sent.push((number, reply.to_vec()));
                Ok(())
            }
        });
        sent.sort();
        assert_eq!(sent, [(1, b"one".to_vec()), (1, b"two".to_vec()), (2, b"one".to_vec())]);
        assert!(congestion.holds_replies(connection(2)));
        assert!(!congestion.holds(connection(1)) && !congestion.holds(connection(3)));
        assert_eq!(congestion.bytes, cost(b"two"));
        congestion.forget(connection(2));
        assert_eq!((congestion.bytes, congestion.waiting.len(), congestion.turns.len()), (0, 0, 0));
    }

    #[test]
    fn retry_leaves_out_a_reply_that_cannot_be_sent_at_all() {
        let mut congestion = Congestion::new(BYTES_MAX);
        for reply in [b"one", b"big", b"two"] {
            assert_eq!(congestion.push(connection(1), reply), None);
        }
        congestion.defer(connection(1), b"next");
        let mut sent = Vec::new();
        congestion.retry(|_, reply| match reply {
            b"big" => Err(SendError::TooLong { length: 3, max: 2 }),
            _ => {
                sent.push(reply.to_vec());
                Ok(())
            }
        });
        assert_eq!(sent, [b"one".to_vec(), b"two".to_vec()]);
        assert_eq!(resume(&mut congestion, 9), [(1, "next".to_owned())], "its client goes on");
    }

    #[test]
    fn resume_takes_turns_and_leaves_out_who_has_not_taken_its_replies() {
        let mut congestion = Congestion::new(BYTES_MAX);
        assert_eq!(congestion.push(connection(1), b"reply"), None);
        for (number, request) in [(1, "a"), (2, "b"), (2, "c"), (3, "d"), (2, "e")] {
            congestion.defer(connection(number), request.as_bytes());
        }
        let of = |number, request: &str| (number, request.to_owned());
        assert_eq!(resume(&mut congestion, 2), [of(2, "b"), of(2, "c")]);
        assert_eq!(resume(&mut congestion, 1), [of(3, "d")], "the others have their turns");
        assert!(congestion.can_resume());
        assert_eq!(resume(&mut congestion, 9), [of(2, "e")]);
        assert!(!congestion.can_resume() && congestion.holds(connection(1)));
        assert!(!congestion.holds(connection(2)) && !congestion.holds(connection(3)));
        congestion.retry(|_, _| Ok(()));
        assert!(congestion.can_resume() && !congestion.holds_replies(connection(1)));
        assert_eq!(resume(&mut congestion, 9), [of(1, "a")]);
        assert_eq!((congestion.bytes, congestion.waiting.len(), congestion.turns.len()), (0, 0, 0));
    }
}
