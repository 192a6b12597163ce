//! Whether the worker's thread looks once more before it sleeps, after a turn that left nothing to do.
//!
//! The look finds what came during the turn. Under load there is always something, and a look costs less than
//! a sleep that ends at once. Where one client asks one thing at a time there is never anything, and the look
//! is a turn in vain. So it is left out once it was in vain several times in a row, and taken all the same
//! now and then. Nothing is lost without it: what has come ends the sleep.

/// Looks in vain before they are left out.
const IN_VAIN: u32 = 4;
/// Looks that are left out in a row, at most.
const LEFT_OUT_MAX: u32 = 64;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct SecondLook {
    /// In a row.
    in_vain: u32,
    /// In a row.
    left_out: u32,
    /// The next turn is such a look.
    follows: bool,
}

impl SecondLook {
    /// A turn has ended.
    pub(crate) fn turn_ended(&mut self, is_in_vain: bool) {
        if std::mem::take(&mut self.follows) {
            self.in_vain = if is_in_vain { self.in_vain.saturating_add(1) } else { 0 };
        }
    }

    /// The turn that has ended left nothing to do: whether the thread sleeps without a look.
    pub(crate) fn is_left_out(&mut self) -> bool {
        let is_left_out = self.in_vain >= IN_VAIN && self.left_out < LEFT_OUT_MAX;
        self.left_out = if is_left_out { self.left_out + 1 } else { 0 };
        self.follows = !is_left_out;
        is_left_out
    }

    /// Something had come all the same.
    pub(crate) fn is_missed(&mut self) {
        self.in_vain = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many looks are taken, if so many of them in a row would find nothing, and then one
    /// something.
    fn taken(looks: u32, in_vain: u32) -> u32 {
        let (mut second_look, mut taken) = (SecondLook::default(), 0);
        for look in 0..looks {
            second_look.turn_ended(false);
            if !second_look.is_left_out() {
                taken += 1;
                second_look.turn_ended(look % (in_vain + 1) < in_vain);
            }
        }
        taken
    }

    #[test]
    fn looks_in_vain_are_left_out_but_for_one_now_and_then() {
        let taken = taken(6_500, u32::MAX - 1);
        assert!((100..=100 + IN_VAIN).contains(&taken), "{taken}");
    }

    #[test]
    fn looks_that_find_something_are_taken() {
        assert_eq!(taken(1_000, 0), 1_000);
        assert_eq!(taken(1_000, IN_VAIN - 1), 1_000);
    }

    #[test]
    fn looks_come_back_when_one_finds_something_and_when_one_was_missed() {
        let mut second_look = SecondLook::default();
        let learn = |second_look: &mut SecondLook| {
            while !second_look.is_left_out() {
                second_look.turn_ended(true);
            }
        };
        learn(&mut second_look);
        second_look.is_missed();
        assert!(!second_look.is_left_out());
        learn(&mut second_look);
        while second_look.is_left_out() {}
        second_look.turn_ended(false);
        assert!(!second_look.is_left_out());
    }
}
