//! For how long what is read one-sided may be believed.
//!
//! A stopped process's memory goes on being readable, and a mapping of it outlives even its end. So every
//! reply grants trust, for as long as the owner's lease surely holds and `trust_max_ms` at most, and what was
//! read is believed only within that time:
//!
//! 1. the client notes the time and asks;
//! 2. the owner answers: my lease surely holds for R or longer;
//! 3. the client reads;
//! 4. it looks at its clock *after* the last completion: if R has not passed since 1, then it has not passed
//!    since 2 either, so at 4 the owner still owned the pair, nobody else served it, and all that was read is
//!    its truth.
//!
//! Asked at 3 and not at 1, R would be counted from too late, by the time that the answer travelled. Looked
//! at before the last completion, a client that is stopped between the two would believe what a successor has
//! changed.

/// Time between two questions about one lease, at least.
const ASK_EVERY_NS: u64 = 1_000_000;

/// What is known of the trust that an owner has granted.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    until_ns: u64,
    granted_ns: u64,
    ask_not_before_ns: u64,
}

impl Trust {
    /// An answer to a question of this time grants trust for so long.
    pub(crate) fn granted(&mut self, asked_ns: u64, trust_us: u32) {
        let granted_ns = u64::from(trust_us) * 1_000;
        let until_ns = asked_ns.saturating_add(granted_ns);
        if until_ns > self.until_ns {
            (self.until_ns, self.granted_ns) = (until_ns, granted_ns);
        }
    }

    /// Whether what was read before this time may be believed.
    #[inline]
    pub(crate) fn holds(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns
    }

    /// Whether the time is so low that the owner should be asked again.
    pub(crate) fn is_low(&self, now_ns: u64) -> bool {
        now_ns >= self.ask_not_before_ns && now_ns >= self.until_ns.saturating_sub(self.granted_ns / 2)
    }

    /// The owner is asked.
    pub(crate) fn asked(&mut self, now_ns: u64) {
        self.ask_not_before_ns = now_ns.saturating_add(ASK_EVERY_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_is_counted_from_the_question_and_never_shortened() {
        let mut trust = Trust::default();
        assert!(!trust.holds(0) && trust.is_low(0));
        trust.granted(1_000_000, 4_000);
        assert!(trust.holds(4_999_999) && !trust.holds(5_000_000));
        trust.granted(900_000, 1_000);
        assert!(trust.holds(4_999_999), "no lease is ever revoked early");
        assert!(!trust.is_low(2_999_999) && trust.is_low(3_000_000));
        trust.asked(3_000_000);
        assert!(!trust.is_low(3_999_999) && trust.is_low(4_000_000), "not more than once a millisecond");
    }
}
