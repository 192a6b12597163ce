//! The simulator's command line.

use cell_simulator::{RunOptions, run};

fn main() {
    let seed = std::env::args().nth(1).and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let verbose = std::env::args().nth(2).is_some();
    match run(seed, RunOptions { verbose, ..RunOptions::default() }) {
        Ok(passed) => println!("{passed:?}"),
        Err(failed) => println!("{failed:?}"),
    }
}
