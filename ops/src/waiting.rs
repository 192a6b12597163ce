//! A command that waits for the end of what goes on without it: until its patience is over, or a signal
//! comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::exit::{Exit, Failure};
use crate::output::{message, number};
use crate::signal;

/// See the module's text.
pub(crate) struct Waiting {
    stop: Arc<AtomicBool>,
    began: Instant,
    patience: Duration,
}

/// Why it waits no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enough {
    /// Its patience is over.
    Late,
    /// A signal came.
    Interrupted,
}

impl Waiting {
    /// From now on, for so long at most.
    ///
    /// # Errors
    /// Signals cannot be caught.
    pub(crate) fn start(patience: Duration) -> anyhow::Result<Waiting> {
        Ok(Waiting::unless(signal::stop_flag()?, patience))
    }

    /// The same, with the flag that a signal raises.
    pub(crate) fn unless(stop: Arc<AtomicBool>, patience: Duration) -> Waiting {
        Waiting { stop, began: Instant::now(), patience }
    }

    /// Whether it is to wait no longer, and why.
    pub(crate) fn enough(&self) -> Option<Enough> {
        let is_late = self.began.elapsed() >= self.patience;
        if self.is_interrupted() { Some(Enough::Interrupted) } else { is_late.then_some(Enough::Late) }
    }

    /// Whether a signal came.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends it: `stand` is how it stands, `next` what goes on, or is to be done. Exit code 6 if it was not in
    /// time, 130 after a signal, with the time that has passed.
    ///
    /// # Errors
    /// A signal came.
    pub(crate) fn end(&self, enough: Enough, stand: &str, next: &str) -> anyhow::Result<Exit> {
        match enough {
            Enough::Late => {
                message::warning(&format!("{stand} after {}; {next}", number::time(self.patience)));
                Ok(Exit::Partial)
            }
            Enough::Interrupted => {
                let waited = number::time(self.began.elapsed());
                let what = format!("interrupted after {waited}: {stand}; {next}");
                Err(Failure::new(Exit::Interrupted, what).into())
            }
        }
    }

    /// Ends it where how it stands cannot be seen.
    ///
    /// # Errors
    /// That, or a signal came.
    pub(crate) fn end_unseen(&self, enough: Enough, unseen: Failure, next: &str) -> anyhow::Result<Exit> {
        match enough {
            Enough::Late => Err(unseen.into()),
            Enough::Interrupted => self.end(enough, &unseen.what, next),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn failure(ended: anyhow::Result<Exit>) -> (Exit, String) {
        let failure = ended.unwrap_err().downcast::<Failure>().unwrap();
        (failure.exit, failure.what)
    }

    /// It ended with 6, as if its patience were over, and named that in place of the time that had passed.
    #[test]
    fn end_after_a_signal_is_130_with_the_time_that_has_passed() {
        let stop = Arc::new(AtomicBool::new(false));
        let waiting = Waiting::unless(stop.clone(), LONG);
        assert_eq!(waiting.enough(), None);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(waiting.enough(), Some(Enough::Interrupted));
        let (exit, what) = failure(waiting.end(Enough::Interrupted, "3 pairs left", "the drain goes on"));
        assert_eq!(exit, Exit::Interrupted);
        assert!(what.starts_with("interrupted after ") && !what.contains("10 min 0 s"), "{what}");
        assert!(what.ends_with(": 3 pairs left; the drain goes on"), "{what}");
        let unseen = Failure::new(Exit::Unreachable, "nobody answers");
        let (exit, what) = failure(waiting.end_unseen(Enough::Interrupted, unseen, "the drain goes on"));
        assert_eq!(exit, Exit::Interrupted);
        assert!(what.ends_with(": nobody answers; the drain goes on"), "{what}");
    }

    #[test]
    fn end_of_patience_is_6_or_why_nothing_is_seen() {
        let waiting = Waiting::unless(Arc::default(), Duration::ZERO);
        assert_eq!(waiting.enough(), Some(Enough::Late));
        assert_eq!(waiting.end(Enough::Late, "3 pairs left", "it goes on").unwrap(), Exit::Partial);
        let unseen = Failure::new(Exit::Unreachable, "nobody answers");
        assert_eq!(failure(waiting.end_unseen(Enough::Late, unseen, "it goes on")).0, Exit::Unreachable);
    }
}
