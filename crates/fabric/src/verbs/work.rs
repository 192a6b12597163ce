//! Requests to a device: how they are distinguished, and what they ask for.

use super::memory::Span;

/// Names a request in its completion: which queue pair, which queue, and which of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestId {
    /// The queue pair's number within its endpoint, 31 bits. Unlike the device's own it is not used again.
    pub(super) serial: u32,
    /// A message that comes, and not work that was posted to be done.
    pub(super) incoming: bool,
    /// The slot of what comes; the number of the work.
    pub(super) index: u32,
}

impl RequestId {
    /// The request of a completion's number.
    pub(super) fn of(number: u64) -> RequestId {
        let [high, low] = [number >> 32, number & u64::from(u32::MAX)];
        let [high, low] = [high, low].map(|half| u32::try_from(half).unwrap_or(0));
        RequestId { serial: high & (u32::MAX >> 1), incoming: high >> 31 == 1, index: low }
    }

    pub(super) fn number(self) -> u64 {
        u64::from(self.incoming) << 63 | u64::from(self.serial) << 32 | u64::from(self.index)
    }
}

/// Words of the peer's memory as its device knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RemotePlace {
    pub(super) address: u64,
    pub(super) key: u32,
}

/// One piece of work for a queue pair. Spans are of the queue pair's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// A message, with a number beside it.
    Send {
        from: Span,
        number: u32,
    },
    Read {
        into: Span,
        from: RemotePlace,
    },
    Write {
        from: Span,
        to: RemotePlace,
    },
    /// Of one word, whose old value is written to the span.
    Swap {
        into: Span,
        at: RemotePlace,
        expected: u64,
        new: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_id_round_trips() {
        for (serial, incoming, index) in [(0, false, 0), (1, true, 2), (u32::MAX >> 1, true, u32::MAX)] {
            let id = RequestId { serial, incoming, index };
            assert_eq!(RequestId::of(id.number()), id);
        }
    }
}
