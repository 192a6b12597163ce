//! How often a test over real processes repeats what it does to them.

/// Which run of the tests this is.
const VARIANT: &str = "CELL_TEST_VARIANT";

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
