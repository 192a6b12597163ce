//! Reports of what strangers can cause: one a second at most, with the number of those that were held back.

const EVERY_NS: u64 = 1_000_000_000;

/// Lets one report a second through.
#[derive(Debug, Default)]
pub struct Seldom {
    due_ns: u64,
    held: u64,
}

impl Seldom {
    /// Whether a report may be made now, and how many were held back since the last one.
    pub fn ask(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns < self.due_ns {
            self.held += 1;
            return None;
        }
        self.due_ns = now_ns.saturating_add(EVERY_NS);
        Some(std::mem::take(&mut self.held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ask_is_granted_once_a_second_with_the_number_of_those_held_back() {
        let mut seldom = Seldom::default();
        let start = 1 << 40;
        assert_eq!(seldom.ask(start), Some(0));
        assert_eq!((1..=5).find_map(|ms| seldom.ask(start + ms * 1_000_000)), None);
        assert_eq!(seldom.ask(start + EVERY_NS), Some(5));
        assert_eq!(seldom.ask(start + 9 * EVERY_NS), Some(0));
    }
}
