//! How often a test over real processes does what it does to them, and when: drawn afresh in each run.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::traffic::Dice;

/// Which run of the tests this is.
const VARIANT: &str = "CELL_TEST_VARIANT";
/// Has a run draw what another one has drawn; moments are the machine's all the same.
const SEED: &str = "CELL_TEST_SEED";

/// How often a case is repeated.
#[derive(Clone, Copy, Debug)]
pub struct Repeats {
    /// In a plain `cargo test`.
    pub plain: u32,
    /// In `tests/run quick`.
    pub quick: u32,
    /// In `tests/run`.
    pub full: u32,
    /// In `tests/run long`.
    pub long: u32,
}

impl Repeats {
    /// As often as this run demands.
    #[must_use]
    pub fn of_this_run(self) -> u32 {
        match std::env::var(VARIANT).as_deref() {
            Ok("long") => self.long,
            Ok("full") => self.full,
            Ok("quick") => self.quick,
            _ => self.plain,
        }
    }
}

/// What everything is drawn from that this process draws; printed at its first use.
pub fn seed() -> u64 {
    static DRAWN: OnceLock<u64> = OnceLock::new();
    *DRAWN.get_or_init(|| {
        let given = std::env::var(SEED).ok().map(|text| text.parse().expect("a seed is a number"));
        let seed = given.unwrap_or_else(draw);
        println!("drawn by {SEED}={seed}");
        seed
    })
}

/// A number that no two processes are likely to share.
#[allow(clippy::disallowed_methods, reason = "a run of real processes is like no other")]
fn draw() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    let nanoseconds = u64::from(now.subsec_nanos()) ^ (now.as_secs() << 30);
    (nanoseconds ^ u64::from(std::process::id()) << 40) % 1_000_000_000_000
}

/// Dice that fall as the seed says, and otherwise for each purpose.
#[must_use]
pub fn dice(purpose: u64) -> Dice {
    Dice::new(seed() ^ purpose.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
