//! Whether the coordinator answers: it is asked once a second, on a thread that may block, by one question at
//! a time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cell_cluster::Coordinator;

use crate::clock::{milliseconds, now};

/// Who has not answered for so long is not reachable.
const SILENT: Duration = Duration::from_secs(3);
/// A row that need not be there: that it is not is an answer as well.
const ROW: &str = "web/peer-secret";

/// What is known of the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoordinatorSeen {
    pub(crate) reachable: bool,
    /// None: it has never answered.
    pub(crate) seen_ms_ago: Option<u64>,
}

#[derive(Debug, Default)]
struct Answers {
    asked: bool,
    last: Option<Instant>,
    /// What the last answer took; none if the last question had none.
    took: Option<Duration>,
}

/// See the module's text.
pub(crate) struct CoordinatorWatch {
    coordinator: Option<Arc<dyn Coordinator>>,
    answers: Arc<Mutex<Answers>>,
}

impl CoordinatorWatch {
    pub(crate) fn new(coordinator: Option<Arc<dyn Coordinator>>) -> CoordinatorWatch {
        CoordinatorWatch { coordinator, answers: Arc::default() }
    }

    /// Asks, unless a question is under way. Needs a runtime.
    pub(crate) fn ask(&self) {
        let Some(coordinator) = self.coordinator.clone() else { return };
        let answers = Arc::clone(&self.answers);
        if std::mem::replace(&mut lock(&answers).asked, true) {
            return;
        }
        tokio::task::spawn_blocking(move || {
            let asked_at = now();
            let answer = coordinator.read(ROW);
            let mut answers = lock(&answers);
            answers.asked = false;
            match answer {
                Ok(_) => {
                    let at = now();
                    (answers.last, answers.took) = (Some(at), Some(at.saturating_duration_since(asked_at)));
                }
                Err(error) => {
                    answers.took = None;
                    tracing::debug!(%error, "the coordinator does not answer");
                }
            }
        });
    }

    /// Whether there is one to ask.
    pub(crate) fn is_there(&self) -> bool {
        self.coordinator.is_some()
    }

    /// What its last answer took; none if it did not answer the last question, or is not reachable.
    pub(crate) fn answer_took(&self) -> Option<Duration> {
        let reachable = self.seen().reachable;
        lock(&self.answers).took.filter(|_| reachable)
    }

    pub(crate) fn seen(&self) -> CoordinatorSeen {
        let age = lock(&self.answers).last.map(|last| now().saturating_duration_since(last));
        CoordinatorSeen { reachable: age.is_some_and(|age| age < SILENT), seen_ms_ago: age.map(milliseconds) }
    }
}

fn lock(answers: &Mutex<Answers>) -> std::sync::MutexGuard<'_, Answers> {
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use cell_cluster::Sim;

    use super::*;

    #[tokio::test]
    async fn a_coordinator_that_answers_is_reachable_and_one_without_power_is_not() {
        let sim = Sim::new(3);
        let watch = CoordinatorWatch::new(Some(Arc::new(sim.link())));
        assert_eq!(watch.seen(), CoordinatorSeen { reachable: false, seen_ms_ago: None });
        watch.ask();
        while lock(&watch.answers).asked {
            tokio::task::yield_now().await;
        }
        assert!(watch.seen().reachable && watch.answer_took().is_some());
        sim.cut_power();
        let before = lock(&watch.answers).last;
        watch.ask();
        while lock(&watch.answers).asked {
            tokio::task::yield_now().await;
        }
        assert_eq!(lock(&watch.answers).last, before);
        assert_eq!(watch.answer_took(), None, "that of an earlier answer says nothing of now");
    }
}
