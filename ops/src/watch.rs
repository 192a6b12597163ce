//! `--watch`: a command again and again until a signal.

use std::io::{self, IsTerminal};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::args::{Global, parse_time};
use crate::exit::{Exit, classify, is_broken_pipe};
use crate::output::message;
use crate::signal;

/// Whether a command repeats itself, and how often.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WatchArgs {
    /// Again and again until a signal
    #[arg(long, short)]
    watch: bool,
    /// How often with --watch
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    interval: Duration,
}

impl WatchArgs {
    /// Runs the command once, or until a signal: then an error is printed and the next run may do better, and
    /// the exit code is the last run's. A terminal is cleared before each run.
    pub(crate) fn run(
        self,
        global: &Global,
        mut once: impl FnMut() -> anyhow::Result<Exit>,
    ) -> anyhow::Result<Exit> {
        if !self.watch {
            return once();
        }
        let stop = signal::stop_flag()?;
        let is_screen = io::stdout().is_terminal() && !global.json;
        let mut last = Exit::Ok;
        while !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            if is_screen {
                print!("\x1b[H\x1b[2J");
            }
            last = match once() {
                Ok(exit) => exit,
                Err(error) if is_broken_pipe(&error) => return Err(error),
                Err(error) => {
                    message::error(&error, global.json);
                    classify(&error).0
                }
            };
            while began.elapsed() < self.interval && !stop.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(last)
    }
}
