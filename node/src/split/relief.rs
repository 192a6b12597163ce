//! What is answered to a put that finds no memory at a node while balance lets a pair leave it, or could
//! (`docs/design/balance.md`, "A full node"): `Busy`, so that it comes again. So nothing waits here, and
//! nothing else waits behind it.

use std::collections::BTreeMap;

use cell_terms::SessionId;

/// Puts of a client are answered so for so long, from its first one on: less than operations of clients
/// mostly have. The pair may not be able to leave, and here nobody knows all that could be in the way.
const HOPE_NS: u64 = 4_000_000_000;
/// After that in vain the client's puts are refused for so long, or until a pair has left.
const REST_NS: u64 = 30_000_000_000;
/// Clients come again much sooner than this: who has not does not wait any more.
const QUIET_NS: u64 = 3_000_000_000;

/// See the module's text. One for all pairs, because all have one memory.
#[derive(Debug, Default)]
pub(super) struct Relief {
    /// When puts of each session found no memory: for the first and the last time.
    puts: BTreeMap<SessionId, (u64, u64)>,
    /// When any did last, whatever it was answered.
    last_ns: Option<u64>,
}

impl Relief {
    /// A put finds no memory.
    pub(super) fn lacks(&mut self, now_ns: u64) {
        self.last_ns = Some(now_ns);
    }

    /// The same, of this session, and a pair leaves, or could. Whether it is to come again.
    pub(super) fn comes_again(&mut self, session: SessionId, leaves: bool, now_ns: u64) -> bool {
        self.lacks(now_ns);
        let before = self.puts.get(&session).copied();
        let (first_ns, _) = before.filter(|puts| counts(*puts, now_ns)).unwrap_or((now_ns, now_ns));
        self.puts.insert(session, (first_ns, now_ns));
        leaves || now_ns.saturating_sub(first_ns) < HOPE_NS
    }

    /// A pair is another node's by now, and its memory is free: not only frozen, which may be undone.
    pub(super) fn pair_left(&mut self) {
        *self = Relief::default();
    }

    /// A session has ended.
    pub(super) fn forget_session(&mut self, session: SessionId) {
        self.puts.remove(&session);
    }

    /// Whether puts find no memory just now: also such as are refused, which a pair that leaves would help
    /// still.
    pub(super) fn is_lacking(&self, now_ns: u64) -> bool {
        self.last_ns.is_some_and(|last_ns| now_ns.saturating_sub(last_ns) < QUIET_NS)
    }
}

/// Whether what was of a session's puts counts still. Who has found memory hopes anew the next time; who has
/// hoped in vain does not at once.
fn counts((first_ns, last_ns): (u64, u64), now_ns: u64) -> bool {
    let in_vain = last_ns.saturating_sub(first_ns) >= HOPE_NS;
    let until_ns = if in_vain { first_ns + HOPE_NS + REST_NS } else { last_ns + QUIET_NS };
    now_ns < until_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const ONE: SessionId = SessionId(1);
    const OTHER: SessionId = SessionId(2);

    /// A pair that was frozen, and thawed, has given nothing.
    #[test]
    fn puts_come_again_for_four_seconds_and_anew_once_a_pair_has_left() {
        let mut relief = Relief::default();
        assert!(!relief.is_lacking(SECOND));
        for second in 1..35 {
            assert_eq!(relief.comes_again(ONE, false, second * SECOND), second < 5, "after {second} s");
            assert!(relief.is_lacking(second * SECOND), "a pair that leaves would help still");
        }
        assert!(relief.comes_again(ONE, false, 35 * SECOND), "after a rest");
        assert!(relief.comes_again(ONE, false, 37 * SECOND) && !relief.comes_again(ONE, false, 39 * SECOND));
        assert!(relief.comes_again(ONE, true, 40 * SECOND), "a pair leaves");
        assert!(!relief.comes_again(ONE, false, 41 * SECOND), "it has not left");
        relief.pair_left();
        assert!(!relief.is_lacking(41 * SECOND) && relief.comes_again(ONE, false, 41 * SECOND));
    }

    /// A load that began after another one had been refused was refused at once.
    #[test]
    fn puts_of_each_client_come_again_for_four_seconds() {
        let mut relief = Relief::default();
        for second in 1..7 {
            assert_eq!(relief.comes_again(ONE, false, second * SECOND), second < 5, "after {second} s");
        }
        for second in 7..13 {
            assert_eq!(relief.comes_again(OTHER, false, second * SECOND), second < 11, "after {second} s");
            assert!(!relief.comes_again(ONE, false, second * SECOND), "it has hoped in vain");
        }
        relief.forget_session(ONE);
        assert!(relief.puts.keys().eq([&OTHER]));
    }

    #[test]
    fn who_does_not_come_again_waits_no_more() {
        let mut relief = Relief::default();
        assert!(relief.comes_again(ONE, false, SECOND) && relief.comes_again(ONE, false, 3 * SECOND));
        assert!(relief.is_lacking(5 * SECOND) && !relief.is_lacking(6 * SECOND));
        assert!(relief.comes_again(ONE, false, 6 * SECOND), "it is as the first one");
    }
}
