//! The time of an endpoint, as its user gives it, and when its connections are looked at for time-outs.

/// How often time-outs are looked for.
const SWEEP_NS: u64 = 100_000_000;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    clock_ns: Option<u64>,
    due_ns: u64,
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

    /// Takes the time in. Nothing is due while the host is cut off.
    pub(crate) fn tick(&mut self, now_ns: u64, cut_off: bool) -> Tick {
        let first = self.clock_ns.replace(now_ns).is_none();
        let due = now_ns >= self.due_ns && !cut_off;
        if due {
            self.due_ns = now_ns.saturating_add(SWEEP_NS);
        }
        Tick { first, due }
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
}
