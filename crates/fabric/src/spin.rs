//! Whether a thread that waits for a peer looks for news of it a while before it sleeps.
//!
//! A sleep and a wake-up cost both ends more than most answers take to come (`benches/RESULTS.md`: 8 to 44 us
//! against 0.13 us for a round trip of two threads that look). So a wait begins with looking. Where that is
//! in vain it only takes the processor from others, and so it is bounded in three ways:
//!
//! 1. a wait looks for no longer than its caller says;
//! 2. a look in vain leaves the next waits without one, twice as many each time; so do looks that lie apart,
//!    because others want the core. Four waits in a row that found what they looked for halve that again. So
//!    there is one look in vain for four that are not, and one in 256 waits besides;
//! 3. a thread that has one core looks never: who is to answer waits for it.

use std::num::NonZero;

/// How often looks in vain double the waits without a look; there are 255 of them then.
const LEVELS: u32 = 8;
/// Waits in a row that find what they look for, for one in vain.
const FOUND_FOR_ONE: u32 = 4;
/// Looks between two offers of the core.
const LOOKS_AN_OFFER: u32 = 8;
/// Two looks that lie further apart than this have others between them: a look takes a microsecond or two.
const APART_NS: u64 = 50_000;

/// See the module's text. Times are in nanoseconds of one clock.
#[derive(Clone, Copy, Debug)]
pub struct Spin {
    /// Whether another thread can do something while this one looks.
    has_others_core: bool,
    /// How long the present wait looks; zero: not at all.
    spin_ns: u64,
    /// When it began, or something came last.
    busy_ns: u64,
    /// When it last looked; none: it has not.
    looked_ns: Option<u64>,
    /// Waits that begin without a look.
    plain_waits: u32,
    /// Of how many there are after a look in vain.
    level: u32,
    /// Waits in a row that found something.
    found: u32,
}

impl Spin {
    /// For a thread that may run on so many cores.
    #[must_use]
    pub const fn on_cores(cores: usize) -> Spin {
        Spin {
            has_others_core: cores > 1,
            spin_ns: 0,
            busy_ns: 0,
            looked_ns: None,
            plain_waits: 0,
            level: 0,
            found: 0,
        }
    }

    /// For a thread of this process.
    #[must_use]
    pub fn on_own_cores() -> Spin {
        Spin::on_cores(std::thread::available_parallelism().map_or(1, NonZero::get))
    }

    /// A wait begins, which looks for so long at most.
    pub fn wait_begins(&mut self, now_ns: u64, spin_ns: u64) {
        self.spin_ns = spin_ns;
        self.busy_ns = now_ns;
        self.looked_ns = None;
    }

    /// Something has happened.
    pub fn happened(&mut self, now_ns: u64) {
        match self.looked_ns.take() {
            Some(looked_ns) if now_ns.saturating_sub(looked_ns) > APART_NS => self.was_in_vain(),
            Some(_) => self.has_found(),
            None => {}
        }
        self.busy_ns = now_ns;
    }

    /// Whether the present wait begins with a look.
    #[must_use]
    pub fn is_to_look(&self) -> bool {
        self.has_others_core && self.spin_ns > 0 && self.plain_waits == 0
    }

    /// Whether the present wait is not over for looks at this time.
    #[must_use]
    pub fn has_time(&self, now_ns: u64) -> bool {
        self.is_to_look() && now_ns < self.busy_ns.saturating_add(self.spin_ns)
    }

    /// Whether to look once more.
    pub fn looks_on(&mut self, now_ns: u64) -> bool {
        if !self.has_time(now_ns) {
            return false;
        }
        let looked_ns = self.looked_ns.replace(now_ns).unwrap_or(now_ns);
        now_ns.saturating_sub(looked_ns) <= APART_NS
    }

    /// The thread sleeps now.
    pub fn sleeps(&mut self) {
        if self.looked_ns.is_some() {
            self.ends();
        } else {
            self.plain_waits = self.plain_waits.saturating_sub(1);
        }
    }

    /// The wait ends by its caller's time, and not by a sleep. If it looked and nothing came, that was in
    /// vain: who waits again and again for less than a look may take would never sleep.
    pub fn ends(&mut self) {
        if self.looked_ns.take().is_some() {
            self.was_in_vain();
        }
    }

    fn was_in_vain(&mut self) {
        self.found = 0;
        self.level = (self.level + 1).min(LEVELS);
        self.plain_waits = (1 << self.level) - 1;
    }

    fn has_found(&mut self) {
        self.found += 1;
        if self.found == FOUND_FOR_ONE {
            self.found = 0;
            self.level = self.level.saturating_sub(1);
        }
    }
}

/// What a thread does between two looks. Now and then it lets others run that want its core; each time would
/// be a call of the kernel a look, which takes longer than the look at shared memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookPause {
    looks: u32,
}

impl LookPause {
    /// Between two looks.
    pub fn pause(&mut self) {
        self.next_pause()();
    }

    /// The next pause, for who keeps these under a lock that is not held meanwhile.
    #[must_use]
    pub fn next_pause(&mut self) -> fn() {
        self.looks = (self.looks + 1) % LOOKS_AN_OFFER;
        if self.looks == 0 { std::thread::yield_now } else { std::hint::spin_loop }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SPIN_NS: u64 = 50;
    const SOON_NS: u64 = 30;
    const LATE_NS: u64 = 100;

    /// A thread that waits again and again.
    struct Waiter {
        spin: Spin,
        now_ns: u64,
        /// Nanoseconds between two looks.
        step_ns: u64,
        found: u32,
        in_vain: u32,
    }

    impl Waiter {
        fn new(cores: usize) -> Waiter {
            Waiter { spin: Spin::on_cores(cores), now_ns: 1_000, step_ns: 10, found: 0, in_vain: 0 }
        }

        /// One wait for an answer that takes so long; whether it looked.
        fn wait(&mut self, answer_ns: u64, spin_ns: u64) -> bool {
            self.spin.wait_begins(self.now_ns, spin_ns);
            let until_ns = self.now_ns + answer_ns;
            let mut looked = false;
            while self.now_ns < until_ns && self.spin.looks_on(self.now_ns) {
                looked = true;
                self.now_ns += self.step_ns;
            }
            if self.now_ns < until_ns {
                self.spin.sleeps();
                self.now_ns = until_ns;
            }
            self.in_vain += u32::from(looked && answer_ns > spin_ns);
            self.found += u32::from(looked && answer_ns <= spin_ns);
            self.spin.happened(self.now_ns);
            looked
        }

        fn looks(&mut self, answer_ns: u64, waits: u32) -> u32 {
            (0..waits).map(|_| u32::from(self.wait(answer_ns, SPIN_NS))).sum()
        }
    }

    #[test]
    fn looks_on_while_answers_come_soon() {
        assert_eq!(Waiter::new(2).looks(SOON_NS, 1_000), 1_000);
    }

    #[test]
    fn looks_are_left_out_where_answers_take_long() {
        let looks = Waiter::new(2).looks(LATE_NS, 1_000);
        assert!((2..20).contains(&looks), "{looks}");
    }

    #[test]
    fn looks_come_back_when_answers_come_soon_again() {
        let mut waiter = Waiter::new(2);
        waiter.looks(LATE_NS, 1_000);
        let plain = (0..1_000).take_while(|_| !waiter.wait(SOON_NS, SPIN_NS)).count();
        assert!(plain < 1 << LEVELS, "{plain}");
        assert_eq!(waiter.looks(SOON_NS, 100), 100);
    }

    /// Two that share a core: who looks keeps the other from answering.
    #[test]
    fn thread_with_one_core_looks_never() {
        assert_eq!(Waiter::new(1).looks(SOON_NS, 100), 0);
        assert_eq!((0..100).filter(|_| Waiter::new(2).wait(SOON_NS, 0)).count(), 0, "no time to look");
    }

    #[test]
    fn looks_that_lie_apart_are_left_out_though_they_find_something() {
        let mut waiter = Waiter::new(2);
        waiter.step_ns = APART_NS + 1;
        let looks: u32 = (0..1_000).map(|_| u32::from(waiter.wait(SOON_NS, 10 * APART_NS))).sum();
        assert!((2..20).contains(&looks), "{looks}");
    }

    #[test]
    fn wait_ends_its_looks_where_others_have_the_core() {
        let mut spin = Spin::on_cores(2);
        spin.wait_begins(0, 10 * APART_NS);
        assert!(spin.looks_on(1) && spin.looks_on(APART_NS));
        assert!(!spin.looks_on(2 * APART_NS + 1));
        spin.sleeps();
        assert!(!spin.is_to_look());
    }

    /// Each of them looked, and none was known to be in vain.
    #[test]
    fn waits_that_end_by_their_time_look_ever_more_seldom() {
        let (mut spin, mut looks) = (Spin::on_cores(2), 0);
        for wait in 0..1_000 {
            let now_ns = wait * LATE_NS;
            spin.wait_begins(now_ns, SPIN_NS);
            if spin.looks_on(now_ns) {
                looks += 1;
            } else {
                spin.sleeps();
            }
            spin.ends();
        }
        assert!((2..20).contains(&looks), "{looks}");
    }

    proptest! {
        #[test]
        fn looks_in_vain_are_few_beside_those_that_find_something(
            runs in proptest::collection::vec((any::<bool>(), 1_u32..40), 1..200),
        ) {
            let mut waiter = Waiter::new(2);
            let mut waits = 0;
            for (soon, count) in runs {
                waiter.looks(if soon { SOON_NS } else { LATE_NS }, count);
                waits += count;
                let bound = waiter.found / FOUND_FOR_ONE + (waits >> LEVELS) + LEVELS + 1;
                prop_assert!(waiter.in_vain <= bound, "{} of {waits}", waiter.in_vain);
            }
        }
    }
}
