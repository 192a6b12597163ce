//! Whether a thread that waits for an answer looks for it a while before it sleeps.
//!
//! A wake-up costs more than most answers take to come (`benches/RESULTS.md`: 8 to 44 us against 0.13 us for
//! a round trip of two threads that look). So a wait begins with looking; where the answers take longer than
//! that, because the server is busy or the write goes to a disk, looking only takes the processor from
//! others: it is left out for twice as many waits each time that it was in vain.

/// Waits without a look, at most.
const PLAIN_WAITS_MAX: u32 = 255;

/// See the module's text. Times are in nanoseconds of one clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spin {
    /// How long the present wait looks; zero: not at all.
    spin_ns: u64,
    busy_ns: u64,
    /// Waits that begin without a look.
    plain_waits: u32,
    /// How many there are after the next look in vain.
    plain_waits_next: u32,
}

impl Default for Spin {
    fn default() -> Spin {
        Spin { spin_ns: 0, busy_ns: 0, plain_waits: 0, plain_waits_next: 1 }
    }
}

impl Spin {
    /// A wait begins, which looks for so long.
    pub(crate) fn wait_begins(&mut self, now_ns: u64, spin_ns: u64) {
        self.spin_ns = spin_ns;
        self.busy_ns = now_ns;
    }

    /// Something has happened.
    pub(crate) fn happened(&mut self, now_ns: u64) {
        if self.plain_waits == 0 && now_ns < self.busy_ns.saturating_add(self.spin_ns) {
            self.plain_waits_next = 1;
        }
        self.busy_ns = now_ns;
    }

    /// Whether to look once more.
    pub(crate) fn looks_on(&self, now_ns: u64) -> bool {
        self.plain_waits == 0 && now_ns < self.busy_ns.saturating_add(self.spin_ns)
    }

    /// The thread sleeps now.
    pub(crate) fn sleeps(&mut self) {
        if self.plain_waits > 0 {
            self.plain_waits -= 1;
            return;
        }
        self.plain_waits = self.plain_waits_next;
        self.plain_waits_next = (2 * self.plain_waits_next + 1).min(PLAIN_WAITS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin_of(spin_ns: u64) -> Spin {
        let mut spin = Spin::default();
        spin.wait_begins(0, spin_ns);
        spin
    }

    /// How many of so many waits begin with a look, when answers take so long.
    fn looks(answers_ns: u64, waits: u32) -> u32 {
        let (mut spin, mut now_ns, mut looks) = (spin_of(50), 1_000, 0);
        for _ in 0..waits {
            spin.happened(now_ns);
            looks += u32::from(spin.looks_on(now_ns));
            let until_ns = now_ns + answers_ns;
            while now_ns < until_ns && spin.looks_on(now_ns) {
                now_ns += 10;
            }
            if now_ns < until_ns {
                spin.sleeps();
                now_ns = until_ns;
            }
        }
        looks
    }

    #[test]
    fn looks_on_while_answers_come_soon() {
        assert_eq!(looks(30, 1_000), 1_000);
        assert_eq!(spin_of(0).looks_on(1), spin_of(50).looks_on(51), "no time to look, or none left");
    }

    #[test]
    fn looks_are_left_out_where_answers_take_long() {
        assert!((2..20).contains(&looks(100, 1_000)), "{}", looks(100, 1_000));
    }

    #[test]
    fn looks_come_back_when_answers_come_soon_again() {
        let mut spin = spin_of(50);
        for now_ns in (0..100_000).step_by(200) {
            spin.happened(now_ns);
            if !spin.looks_on(now_ns + 100) {
                spin.sleeps();
            }
        }
        let mut waits = 0;
        let mut now_ns = 200_000;
        spin.happened(now_ns);
        while !spin.looks_on(now_ns) {
            spin.sleeps();
            waits += 1;
            now_ns += 10;
            spin.happened(now_ns);
        }
        assert!(waits <= PLAIN_WAITS_MAX);
        spin.happened(now_ns + 10);
        assert!(spin.looks_on(now_ns + 20));
    }
}
