//! Writes that wait for a pair's log. Those of one connection keep their order; between connections, those
//! that have nothing else waiting take turns with the others: a client with one write does not wait for all
//! that was there before it, and many such clients do not hold the others up.

use std::collections::VecDeque;

use cell_fabric::ConnectionId;

/// Which queue a message was taken out of, so that it can be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Of those that were the only ones of their connections when they came.
    Single,
    Ordinary,
}

/// A client's message that has to be handled later.
#[derive(Debug)]
pub(crate) struct WaitingMessage {
    pub(crate) connection: ConnectionId,
    /// When it came.
    pub(crate) arrived_ns: u64,
    pub(crate) message: Vec<u8>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    single: VecDeque<WaitingMessage>,
    ordinary: VecDeque<WaitingMessage>,
    /// It is the turn of an ordinary one.
    ordinary_next: bool,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.single.is_empty() && self.ordinary.is_empty()
    }

    /// `is_single`: its connection has nothing else waiting.
    ///
    /// What the connection sends later waits behind as many ordinary ones as there are now. With turns it
    /// comes after this one, as long as fewer single ones are before this one.
    pub(crate) fn push(&mut self, waiting: WaitingMessage, is_single: bool) {
        if is_single && self.single.len() < self.ordinary.len() {
            self.single.push_back(waiting);
        } else {
            self.ordinary.push_back(waiting);
        }
    }

    /// The next one.
    pub(crate) fn pop(&mut self) -> Option<(WaitingMessage, Lane)> {
        let is_single = !self.single.is_empty() && (!self.ordinary_next || self.ordinary.is_empty());
        let (queue, lane) = match is_single {
            true => (&mut self.single, Lane::Single),
            false => (&mut self.ordinary, Lane::Ordinary),
        };
        let waiting = queue.pop_front()?;
        self.ordinary_next = is_single;
        Some((waiting, lane))
    }

    /// Puts back what was taken last: it is the next one again.
    pub(crate) fn unpop(&mut self, waiting: WaitingMessage, lane: Lane) {
        match lane {
            Lane::Single => self.single.push_front(waiting),
            Lane::Ordinary => self.ordinary.push_front(waiting),
        }
        self.ordinary_next = lane == Lane::Ordinary;
    }
}

#[cfg(test)]
mod tests {
    use cell_random::Random;

    use super::*;

    /// Connections that send now and then, and a log that has room now and then.
    #[test]
    fn messages_of_a_connection_keep_their_order() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut backlog = Backlog::default();
            let (mut sent, mut waiting, mut done) = ([0_u64; 6], [0_u64; 6], [0_u64; 6]);
            for _ in 0..2_000 {
                if random.percent(50) {
                    // The first ones send more.
                    let at = random.index(6).min(random.index(6));
                    let (connection, arrived_ns) = (ConnectionId::from_number(at as u64), sent[at]);
                    let message = WaitingMessage { connection, arrived_ns, message: Vec::new() };
                    backlog.push(message, waiting[at] == 0);
                    sent[at] += 1;
                    waiting[at] += 1;
                } else if let Some((message, lane)) = backlog.pop() {
                    if random.percent(30) {
                        backlog.unpop(message, lane);
                        continue;
                    }
                    let at = usize::try_from(message.connection.number()).unwrap();
                    assert_eq!(message.arrived_ns, done[at], "seed {seed}, connection {at}");
                    done[at] += 1;
                    waiting[at] -= 1;
                }
            }
            while let Some((message, _)) = backlog.pop() {
                let at = usize::try_from(message.connection.number()).unwrap();
                assert_eq!(message.arrived_ns, done[at], "seed {seed}, connection {at}");
                done[at] += 1;
            }
            assert_eq!(done, sent);
        }
    }

    #[test]
    fn single_messages_take_turns_with_those_of_who_has_many() {
        let mut backlog = Backlog::default();
        let message = |number| {
            let connection = ConnectionId::from_number(number);
            WaitingMessage { connection, arrived_ns: 0, message: Vec::new() }
        };
        (0..6).for_each(|_| backlog.push(message(1), false));
        (2..5).for_each(|number| backlog.push(message(number), true));
        let (first, lane) = backlog.pop().unwrap();
        backlog.unpop(first, lane);
        let order: Vec<u64> =
            std::iter::from_fn(|| backlog.pop()).map(|(message, _)| message.connection.number()).collect();
        assert_eq!(order, [2, 1, 3, 1, 4, 1, 1, 1, 1]);
        assert!(backlog.is_empty());
    }
}
