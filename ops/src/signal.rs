//! Signals as events: the first SIGTERM or SIGINT asks to stop, a second one ends the process at once.
//!
//! SIGHUP is a closed terminal, and asks to stop, too: what a command has started is brought to an end in
//! order, a drill's fault is taken back. The kernel and the shell may send one each, so further ones end
//! nothing. Who started the process with SIGHUP ignored (`nohup`) wants it to go on. Of `cell node` a
//! SIGHUP asks to read the configuration again, as of any service.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Context;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::Exit;

/// What a SIGHUP is to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hangup {
    /// It asks to stop.
    Stops,
    /// [`on_hangup`] says what.
    Apart,
}

/// Calls `first` once, at the first signal that asks to stop; a second one ends the process at once.
pub(crate) fn on_signals(hangup: Hangup, mut first: impl FnMut() + Send + 'static) -> anyhow::Result<()> {
    let mut wanted = vec![SIGINT, SIGTERM];
    // Its handler would take the place of what who started the process has set.
    wanted.extend((hangup == Hangup::Stops && !is_ignored(SIGHUP)).then_some(SIGHUP));
    let mut signals = Signals::new(wanted).context("cannot catch signals")?;
    let run = move || {
        let mut stop = Stop::default();
        for signal in signals.forever() {
            match stop.on_signal(signal) {
                Asked::ToStop => first(),
                Asked::Again => {}
                Asked::ToEnd => std::process::exit(i32::from(Exit::Interrupted as u8)),
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(run).context("cannot start the signal thread")?;
    Ok(())
}

/// Whether a stop was asked for.
#[derive(Default)]
struct Stop {
    asked: bool,
}

/// What one more signal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Stop in order.
    ToStop,
    /// It is known.
    Again,
    /// End at once.
    ToEnd,
}

impl Stop {
    fn on_signal(&mut self, signal: i32) -> Asked {
        match (std::mem::replace(&mut self.asked, true), signal) {
            (false, _) => Asked::ToStop,
            (true, SIGHUP) => Asked::Again,
            (true, _) => Asked::ToEnd,
        }
    }
}

/// Whether this process was started with a signal ignored. What cannot be read is not.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_ignored_by(&status, signal)
}

/// By what `/proc/self/status` has: a mask with a bit for each signal, the first one for signal 1.
fn is_ignored_by(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Calls `each` at each SIGHUP.
pub(crate) fn on_hangup(mut each: impl FnMut() + Send + 'static) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGHUP]).context("cannot catch signals")?;
    let run = move || signals.forever().for_each(|_| each());
    thread::Builder::new().name("hangups".into()).spawn(run).context("cannot start the signal thread")?;
    Ok(())
}

/// A flag that the first signal raises.
pub(crate) fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    on_signals(Hangup::Stops, move || raised.store(true, Ordering::Relaxed))?;
    Ok(flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_signal_a_terminal_that_hangs_up_twice_ends_nothing_at_once() {
        let asked = |signals: &[i32]| {
            let mut stop = Stop::default();
            signals.iter().map(|signal| stop.on_signal(*signal)).collect::<Vec<_>>()
        };
        assert_eq!(asked(&[SIGHUP, SIGHUP, SIGTERM]), [Asked::ToStop, Asked::Again, Asked::ToEnd]);
        assert_eq!(asked(&[SIGINT, SIGHUP, SIGINT]), [Asked::ToStop, Asked::Again, Asked::ToEnd]);
    }

    #[test]
    fn is_ignored_reads_the_mask_of_signals() {
        let status = "Name:\tcell\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert!(is_ignored_by(status, SIGHUP) && !is_ignored_by(status, SIGTERM));
        assert!(!is_ignored_by("", SIGHUP));
    }
}
