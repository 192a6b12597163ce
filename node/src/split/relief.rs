//! What is answered to a put that finds no memory at a node while balance lets a pair leave it, or could
//! (`docs/design/balance.md`, "A full node"): `Busy`, so that it comes again. So nothing waits here, and
//! nothing else waits behind it.

/// Puts are answered so for so long, from the first one on: less than operations of clients mostly have. The
/// pair may not be able to leave, and here nobody knows all that could be in the way.
const HOPE_NS: u64 = 4_000_000_000;
/// After that in vain they are refused for so long, or until a pair has left.
const REST_NS: u64 = 30_000_000_000;
/// Clients come again much sooner than this: who has not does not wait any more.
const QUIET_NS: u64 = 3_000_000_000;

/// See the module's text. One for all pairs, because all have one memory.
#[derive(Debug, Default)]
pub(super) struct Relief {
    /// When puts found no memory: for the first and the last time.
    puts: Option<(u64, u64)>,
}

impl Relief {
    /// A put finds no memory, and a pair leaves, or could. Whether it is to come again.
    pub(super) fn comes_again(&mut self, leaves: bool, now_ns: u64) -> bool {
        self.forget(now_ns);
        let (first_ns, last_ns) = self.puts.get_or_insert((now_ns, now_ns));
        *last_ns = now_ns;
        leaves || now_ns.saturating_sub(*first_ns) < HOPE_NS
    }

    /// Who has found memory hopes anew the next time; who has hoped in vain does not at once.
    fn forget(&mut self, now_ns: u64) {
        self.puts = self.puts.filter(|(first_ns, last_ns)| {
            let in_vain = last_ns.saturating_sub(*first_ns) >= HOPE_NS;
            let until_ns = if in_vain { first_ns + HOPE_NS + REST_NS } else { last_ns + QUIET_NS };
            now_ns < until_ns
        });
    }

    /// A pair is another node's by now, and its memory is free: not only frozen, which may be undone.
    pub(super) fn pair_left(&mut self) {
        self.puts = None;
    }

    /// Whether puts wait: also such as are refused by now, which a pair that leaves would help still.
    pub(super) fn is_awaited(&self, now_ns: u64) -> bool {
        self.puts.is_some_and(|(_, last_ns)| now_ns.saturating_sub(last_ns) < QUIET_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A pair that was frozen, and thawed, has given nothing.
    #[test]
    fn puts_come_again_for_four_seconds_and_anew_once_a_pair_has_left() {
        let mut relief = Relief::default();
        assert!(!relief.is_awaited(SECOND));
        for second in 1..35 {
            assert_eq!(relief.comes_again(false, second * SECOND), second < 5, "after {second} s");
            assert!(relief.is_awaited(second * SECOND), "a pair that leaves would help still");
        }
        assert!(relief.comes_again(false, 35 * SECOND), "after a rest");
        assert!(relief.comes_again(false, 37 * SECOND) && !relief.comes_again(false, 39 * SECOND));
        assert!(relief.comes_again(true, 40 * SECOND), "a pair leaves");
        assert!(!relief.comes_again(false, 41 * SECOND), "it has not left");
        relief.pair_left();
        assert!(!relief.is_awaited(41 * SECOND) && relief.comes_again(false, 41 * SECOND));
    }

    #[test]
    fn who_does_not_come_again_waits_no_more() {
        let mut relief = Relief::default();
        assert!(relief.comes_again(false, SECOND) && relief.comes_again(false, 3 * SECOND));
        assert!(relief.is_awaited(5 * SECOND) && !relief.is_awaited(6 * SECOND));
        assert!(relief.comes_again(false, 6 * SECOND), "it is as the first one");
    }
}
