//! The time of an endpoint, as its user gives it, and when its connections are looked at for time-outs.

/// How often time-outs are looked for.
const SWEEP_NS: u64 = 100_000_000;
/// Who was given no time for so long stood still: what has come meanwhile is read before it is missed.
const GAP_NS: u64 = 1_000_000_000;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    clock_ns: Option<u64>,
    due_ns: u64,
    /// A look was due, and was left to the next tick.
    put_off: bool,
}

/// What the passing of time asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick {
    /// No time was given before: what came before came now.
    pub(crate) first: bool,
    /// Time-outs are to be looked for.
    pub(crate) due: bool,
}

impl Sweep {
    /// The time, as it was given last; zero before.
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock_ns.unwrap_or(0)
    }

    /// Takes the time in. Nothing is due while the host is cut off, nor at the first tick after a gap: the
    /// user polls before the next one.
    pub(crate) fn tick(&mut self, now_ns: u64, cut_off: bool) -> Tick {
        let before_ns = self.clock_ns.replace(now_ns);
        let stood_still = before_ns.is_some_and(|before_ns| now_ns.saturating_sub(before_ns) >= GAP_NS);
        let mut due = now_ns >= self.due_ns && !cut_off;
        if due {
            self.put_off = stood_still && !self.put_off;
            due = !self.put_off;
        }
        if due {
            self.due_ns = now_ns.saturating_add(SWEEP_NS);
        }
        Tick { first: before_ns.is_none(), due }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tick_is_due_ten_times_a_second_and_not_while_cut_off() {
        let mut sweep = Sweep::default();
        assert_eq!(sweep.now_ns(), 0);
        assert_eq!(sweep.tick(5, true), Tick { first: true, due: false });
        assert_eq!(sweep.tick(6, false), Tick { first: false, due: true });
        assert_eq!(sweep.tick(5 + SWEEP_NS, false), Tick { first: false, due: false });
        assert_eq!(sweep.tick(6 + SWEEP_NS, false), Tick { first: false, due: true });
        assert_eq!(sweep.now_ns(), 6 + SWEEP_NS);
    }

    /// Whoever ticks seldom is not kept from looking: every second tick is due.
    #[test]
    fn tick_after_a_gap_is_not_due_but_the_next_one_is() {
        let mut sweep = Sweep::default();
        assert!(sweep.tick(0, false).due);
        let stood_still_until_ns = 5 * GAP_NS;
        assert!(!sweep.tick(stood_still_until_ns, false).due);
        assert!(sweep.tick(stood_still_until_ns + 1, false).due);
        for (ticks, due) in [false, true, false, true].into_iter().enumerate() {
            let now_ns = stood_still_until_ns + (ticks as u64 + 1) * 2 * GAP_NS;
            assert_eq!(sweep.tick(now_ns, false).due, due, "{ticks}");
        }
    }
}
