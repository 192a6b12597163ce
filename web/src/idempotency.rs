//! Answers to requests with an `Idempotency-Key`, so that a request that is sent again is not done again. A
//! pure core.
//!
//! Answers of requests that did something are kept, [`KEYS_MAX`] of them and [`BYTES_MAX`] bytes of bodies at
//! most; the oldest go first. They are kept by this node alone, and not past its end.

use std::collections::{HashMap, VecDeque};

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};

/// Answers that are kept.
const KEYS_MAX: usize = 256;
/// Bytes of their bodies, together.
const BYTES_MAX: usize = 4 << 20;

/// A number for what a request does, the same for each repeat of it with the same `Idempotency-Key`, at
/// whichever node. Requests without a key have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepeatId(pub(crate) u64);

/// What distinguishes one request from another: a hash of method, address, body and caller.
pub(crate) type Fingerprint = [u8; 32];

/// An answer as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing: it is under way from now on, until it ends.
    New,
    /// The request was answered.
    Answered(KeptAnswer),
    /// The same request is under way.
    UnderWay,
    /// The key came with another request.
    OtherRequest,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Idempotency {
    /// No answer: it is under way.
    of: HashMap<String, (Fingerprint, Option<KeptAnswer>)>,
    /// The keys that have answers, the oldest first.
    answered: VecDeque<String>,
    bytes: usize,
}

impl Idempotency {
    /// A request with a key begins.
    pub(crate) fn begin(&mut self, key: &str, fingerprint: Fingerprint) -> Known {
        match self.of.get(key) {
            None => {
                self.of.insert(key.to_owned(), (fingerprint, None));
                Known::New
            }
            Some((known, _)) if *known != fingerprint => Known::OtherRequest,
            Some((_, None)) => Known::UnderWay,
            Some((_, Some(answer))) => Known::Answered(answer.clone()),
        }
    }

    /// It has ended without an answer to keep: a repeat is done anew. One that was answered stays so.
    pub(crate) fn abandon(&mut self, key: &str) {
        if self.of.get(key).is_some_and(|(_, answer)| answer.is_none()) {
            self.of.remove(key);
        }
    }

    /// It has ended with an answer, which repeats get.
    pub(crate) fn end(&mut self, key: &str, answer: KeptAnswer) {
        let Some((_, kept)) = self.of.get_mut(key) else { return };
        self.bytes += answer.body.len();
        *kept = Some(answer);
        self.answered.push_back(key.to_owned());
        while self.answered.len() > KEYS_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.answered.pop_front() else { break };
            let gone = self.of.remove(&oldest).and_then(|(_, answer)| answer);
            self.bytes -= gone.map_or(0, |answer| answer.body.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: usize) -> KeptAnswer {
        let body = vec![b'x'; bytes].into();
        KeptAnswer { status: StatusCode::OK, headers: HeaderMap::new(), body }
    }

    #[test]
    fn begin_a_repeat_gets_the_answer_and_another_request_does_not() {
        let mut keys = Idempotency::default();
        assert_eq!(keys.begin("a", [1; 32]), Known::New);
        assert_eq!(keys.begin("a", [1; 32]), Known::UnderWay);
        assert_eq!(keys.begin("a", [2; 32]), Known::OtherRequest);
        keys.end("a", answer(3));
        keys.abandon("a");
        assert_eq!(keys.begin("a", [1; 32]), Known::Answered(answer(3)));
        assert_eq!(keys.begin("a", [2; 32]), Known::OtherRequest);
        assert_eq!(keys.begin("b", [1; 32]), Known::New);
        keys.abandon("b");
        assert_eq!(keys.begin("b", [2; 32]), Known::New, "what did nothing is done anew");
    }

    #[test]
    fn end_of_many_keeps_the_newest_within_both_bounds() {
        let mut keys = Idempotency::default();
        let mut put = |key: &str, bytes: usize| {
            keys.begin(key, [0; 32]);
            keys.end(key, answer(bytes));
            (keys.of.len(), keys.bytes)
        };
        for number in 0..2 * KEYS_MAX {
            assert!(put(&number.to_string(), 1).0 <= KEYS_MAX);
        }
        assert_eq!(put("large", BYTES_MAX), (1, BYTES_MAX), "it took the room of all others");
        assert_eq!(put("larger", BYTES_MAX + 1), (0, 0));
        assert_eq!(put("last", 1), (1, 1));
    }
}
