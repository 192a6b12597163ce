//! Signals as events: the first SIGTERM or SIGINT asks to stop, a second one ends the process at once; each
//! SIGHUP asks to read the configuration again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::Exit;

/// Calls `first` once, at the first signal, and `second` before the process ends at the second one.
pub(crate) fn on_signals(
    mut first: impl FnMut() + Send + 'static,
    mut second: impl FnMut() + Send + 'static,
) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch signals")?;
    let run = move || {
        let mut asked = false;
        for _ in signals.forever() {
            if asked {
                second();
                std::process::exit(i32::from(Exit::Interrupted as u8));
            }
            asked = true;
            first();
        }
    };
    thread::Builder::new().name("signals".into()).spawn(run).context("cannot start the signal thread")?;
    Ok(())
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
    on_signals(move || raised.store(true, Ordering::Relaxed), || {})?;
    Ok(flag)
}
