//! Replies for clients that do not read as fast as they ask: a core without sockets. The fabric stops reading
//! from such a client; one that lets too many replies pile up all the same is disconnected, and so is the
//! worst of them when they are too many together. Nobody else waits for them.

use std::collections::{HashMap, VecDeque};

use cell_fabric::{ConnectionId, SendError};

use crate::worker::IN_FLIGHT_MAX;

/// Bytes of replies that may wait for one client.
const CONNECTION_BYTES_MAX: usize = 16 << 20;
/// Bytes of replies that may wait for all clients.
const BYTES_MAX: usize = 32 << 20;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Overflow {
    waiting: HashMap<ConnectionId, Replies>,
    bytes: usize,
}

/// What waits for one client.
#[derive(Debug, Default)]
struct Replies {
    queue: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Overflow {
    /// Whether replies wait for this client, behind which others have to wait, too.
    pub(crate) fn holds(&self, connection: ConnectionId) -> bool {
        !self.waiting.is_empty() && self.waiting.contains_key(&connection)
    }

    /// Drops what waits for a client that is gone.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        if let Some(replies) = self.waiting.remove(&connection) {
            self.bytes -= replies.bytes;
        }
    }

    /// Keeps a reply. The client to be disconnected for it, if any: what waited for it is dropped.
    #[must_use]
    pub(crate) fn push(&mut self, connection: ConnectionId, reply: &[u8]) -> Option<ConnectionId> {
        let replies = self.waiting.entry(connection).or_default();
        replies.queue.push_back(reply.to_vec());
        replies.bytes += reply.len();
        self.bytes += reply.len();
        let worst = if replies.queue.len() > IN_FLIGHT_MAX as usize || replies.bytes > CONNECTION_BYTES_MAX {
            connection
        } else if self.bytes > BYTES_MAX {
            *self.waiting.iter().max_by_key(|(_, replies)| replies.bytes)?.0
        } else {
            return None;
        };
        self.forget(worst);
        Some(worst)
    }

    /// Sends what can be sent, in order.
    pub(crate) fn retry(&mut self, mut send: impl FnMut(ConnectionId, &[u8]) -> Result<(), SendError>) {
        let bytes = &mut self.bytes;
        self.waiting.retain(|connection, replies| {
            while let Some(reply) = replies.queue.front() {
                match send(*connection, reply) {
                    Ok(()) => {}
                    Err(SendError::Full) => return true,
                    Err(_) => {
                        *bytes -= replies.bytes;
                        return false;
                    }
                }
                replies.bytes -= reply.len();
                *bytes -= reply.len();
                replies.queue.pop_front();
            }
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static REPLY: [u8; 64 << 10] = [7; 64 << 10];

    fn connection(number: u64) -> ConnectionId {
        ConnectionId::from_number(number)
    }

    #[test]
    fn push_past_one_clients_share_disconnects_it_and_frees_its_replies() {
        let mut overflow = Overflow::default();
        assert_eq!(overflow.push(connection(2), &REPLY), None);
        let fitting = CONNECTION_BYTES_MAX / REPLY.len();
        for _ in 0..fitting {
            assert_eq!(overflow.push(connection(1), &REPLY), None);
        }
        assert_eq!(overflow.push(connection(1), &REPLY), Some(connection(1)));
        assert!(!overflow.holds(connection(1)) && overflow.holds(connection(2)));
        assert_eq!(overflow.bytes, REPLY.len());
        for _ in 0..IN_FLIGHT_MAX {
            assert_eq!(overflow.push(connection(3), b"small"), None);
        }
        assert_eq!(overflow.push(connection(3), b"small"), Some(connection(3)), "more than it may ask for");
    }

    #[test]
    fn push_past_the_share_of_all_disconnects_the_worst_client() {
        let mut overflow = Overflow::default();
        let worst = connection(5);
        for _ in 0..100 {
            assert_eq!(overflow.push(worst, &REPLY), None);
        }
        let others = (BYTES_MAX - overflow.bytes) / REPLY.len();
        for number in 0..others {
            assert_eq!(overflow.push(connection(10 + number as u64 % 20), &REPLY), None);
        }
        assert_eq!(overflow.push(connection(9), &REPLY), Some(worst));
        assert!(overflow.holds(connection(9)));
        assert_eq!(overflow.bytes, (others + 1) * REPLY.len());
    }

    #[test]
    fn retry_sends_in_order_until_full_and_forgets_the_closed() {
        let mut overflow = Overflow::default();
        for number in 1..=3 {
            for reply in [b"one", b"two"] {
                assert_eq!(overflow.push(connection(number), reply), None);
            }
        }
        let mut sent = Vec::new();
        overflow.retry(|to, reply| match (to.number(), reply) {
            (2, b"two") => Err(SendError::Full),
            (3, _) => Err(SendError::Closed),
            (number, _) => {
                sent.push((number, reply.to_vec()));
                Ok(())
            }
        });
        sent.sort();
        assert_eq!(sent, [(1, b"one".to_vec()), (1, b"two".to_vec()), (2, b"one".to_vec())]);
        assert!(overflow.holds(connection(2)));
        assert!(!overflow.holds(connection(1)) && !overflow.holds(connection(3)));
        assert_eq!(overflow.bytes, 3);
        overflow.forget(connection(2));
        assert_eq!((overflow.bytes, overflow.waiting.len()), (0, 0));
    }
}
