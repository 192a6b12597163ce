//! What the lease's thread has to say, and the thread that says it: words go to a file or a terminal, which
//! may take seconds on a busy disk, and no renewal waits for that.

use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use cell_terms::Incarnation;

use crate::error::ClusterError;

/// News that wait to be said. More are dropped: the counters have them.
const WAITING_MAX: usize = 16;

/// Something to be said.
#[derive(Debug)]
pub(crate) enum LeaseNews {
    /// There is no lease yet, for this reason.
    NotGranted(Arc<str>),
    NotRenewed(ClusterError),
    /// A renewal took so long, of what it may take.
    Slow {
        took_ms: u64,
        most_ms: u64,
    },
    RanOut,
    HoldsAgain {
        silent_ms: u64,
    },
    ClockStood {
        lost_ms: u64,
    },
    Ended,
}

/// The lease's end of it.
pub(crate) struct Notifier(SyncSender<(Incarnation, LeaseNews)>);

impl Notifier {
    /// Starts the thread, which says news as `say` does it, and ends once this is dropped.
    pub(crate) fn start(
        say: impl Fn(Incarnation, &LeaseNews) + Send + 'static,
    ) -> Result<(Notifier, JoinHandle<()>), ClusterError> {
        let (news, waiting) = sync_channel::<(Incarnation, LeaseNews)>(WAITING_MAX);
        let thread = std::thread::Builder::new().name("lease-news".to_owned());
        let thread = thread.spawn(move || waiting.iter().for_each(|(lease, news)| say(lease, &news)));
        Ok((Notifier(news), thread.map_err(ClusterError::Thread)?))
    }

    /// Never waits.
    pub(crate) fn notify(&self, lease: Incarnation, news: LeaseNews) {
        let _ = self.0.try_send((lease, news)); // too much waits to be said already
    }
}

/// Says it in the log.
pub(crate) fn log(lease: Incarnation, news: &LeaseNews) {
    match news {
        LeaseNews::NotGranted(why) => {
            tracing::warn!(%why, "the coordinator gives no lease yet; it is asked on and on");
        }
        LeaseNews::NotRenewed(error) => {
            tracing::warn!(%lease, error = error as &dyn Error, "the lease was not renewed");
        }
        LeaseNews::Slow { took_ms, most_ms } => {
            tracing::warn!(%lease, took_ms, most_ms, "the lease had nearly run out when it was renewed");
        }
        LeaseNews::RanOut => {
            tracing::warn!(%lease, "the lease has run out: this node is silent until the coordinator answers");
        }
        LeaseNews::HoldsAgain { silent_ms } => {
            tracing::warn!(%lease, silent_ms, "the lease holds again; this node serves on");
        }
        LeaseNews::ClockStood { lost_ms } => {
            tracing::error!(%lease, lost_ms, "this machine's clock stood still: the lease is not relied on any more");
        }
        LeaseNews::Ended => {
            tracing::error!(%lease, "the lease has ended; this process owns nothing any more");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn notify_never_waits_for_who_says_it_and_drops_what_is_too_much() {
        let (go_on, held) = mpsc::channel::<()>();
        let (said, heard) = mpsc::channel();
        let say = move |lease: Incarnation, _: &LeaseNews| {
            let _ = held.recv();
            said.send(lease.0).unwrap();
        };
        let (notifier, thread) = Notifier::start(say).unwrap();
        (1..=100).for_each(|lease| notifier.notify(Incarnation(lease), LeaseNews::RanOut));
        drop((go_on, notifier));
        thread.join().unwrap();
        let heard: Vec<_> = heard.iter().collect();
        assert!((WAITING_MAX..=WAITING_MAX + 1).contains(&heard.len()), "{heard:?}");
        assert!(heard.is_sorted() && heard[0] == 1, "{heard:?}");
    }
}
