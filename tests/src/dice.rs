//! What tests over real processes draw: keys, operations, moments. Afresh in each run, from a seed that it
//! prints.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Has a run draw what another one has drawn; moments are the machine's all the same.
const SEED: &str = "CELL_TEST_SEED";

/// A small generator: which key, which operation.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice that fall as the seed says.
    #[must_use]
    pub fn new(seed: u64) -> Dice {
        Dice(seed | 1)
    }

    /// Dice of this run, which fall otherwise for each purpose.
    #[must_use]
    pub fn drawn(purpose: u64) -> Dice {
        Dice::new(seed() ^ purpose.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// A number from 0 to below the bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What everything is drawn from that this process draws; printed at its first use.
fn seed() -> u64 {
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
