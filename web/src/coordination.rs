//! The coordinator as handlers ask it: on threads that may block, a few at a time, for a bounded time.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use cell_cluster::{ClusterError, Coordinator, CoordinatorRefusal};
use cell_terms::text::with_causes;
use tokio::sync::Semaphore;

use crate::problem::Problem;

/// Calls under way at a time; further ones wait. A coordinator that hangs holds no more threads than these.
const CALLS_MAX: usize = 8;
/// How long a handler that changes something waits. A call of the coordinator has a deadline of its own, and
/// is made again a few times. A handler waits three times at most; `cell` (`ops/src/api.rs`) and the console
/// (`web/console/src/api/client.ts`) wait for all of that.
pub(crate) const CHANGE_PATIENCE: Duration = Duration::from_secs(4);

/// Why the coordinator has not done what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    /// The node has none.
    #[error("this node has no coordinator")]
    Absent,
    /// It has not answered in time. The call goes on.
    #[error("the coordinator did not answer within {} ms", patience.as_millis())]
    Late {
        /// How long it was given.
        patience: Duration,
    },
    /// It failed.
    #[error(transparent)]
    Failed(#[from] ClusterError),
    /// The call panicked.
    #[error("the call failed; the node's log has more")]
    Panicked,
}

/// The cluster's coordinator.
#[derive(Clone)]
pub(crate) struct Coordination {
    coordinator: Option<Arc<dyn Coordinator>>,
    permits: Arc<Semaphore>,
}

impl Coordination {
    /// Over the coordinator that the node was given.
    pub(crate) fn new(coordinator: Option<Arc<dyn Coordinator>>) -> Coordination {
        Coordination { coordinator, permits: Arc::new(Semaphore::new(CALLS_MAX)) }
    }

    /// Calls `ask` on a thread that may block, and waits for it at most `patience`.
    ///
    /// # Errors
    /// See [`Unanswered`]. After [`Unanswered::Late`] it may still be carried out.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        patience: Duration,
        ask: impl FnOnce(Arc<dyn Coordinator>) -> Result<T, ClusterError> + Send + 'static,
    ) -> Result<T, Unanswered> {
        let coordinator = self.coordinator.clone().ok_or(Unanswered::Absent)?;
        let permits = Arc::clone(&self.permits);
        let called = async {
            let permit = permits.acquire_owned().await.map_err(|_| Unanswered::Panicked)?;
            let call = move || {
                let answer = ask(coordinator);
                drop(permit); // held by the thread, also when nobody waits for it any more
                answer
            };
            match tokio::task::spawn_blocking(call).await {
                Ok(answer) => Ok(answer?),
                Err(_) => Err(Unanswered::Panicked),
            }
        };
        tokio::time::timeout(patience, called).await.unwrap_or(Err(Unanswered::Late { patience }))
    }
}

impl Unanswered {
    /// What a request answers that only reads.
    pub(crate) fn unread(self) -> Problem {
        self.not_read("")
    }

    /// What a change answers that was to read something before it, or that was to be checked only.
    pub(crate) fn unstarted(self) -> Problem {
        self.not_read(" Nothing was changed.")
    }

    fn not_read(self, outcome: &str) -> Problem {
        let words = format!("The coordinator does not return what is asked for: {}.", self.why_not_read());
        let next = match &self {
            Unanswered::Failed(error) if error.is_of_another_version() => VERSION_NEXT,
            Unanswered::Failed(error) if !error.is_transient() => {
                tracing::error!(error = words, "the coordinator failed");
                "look into the coordinator's log"
            }
            _ => "see whether its process runs (`coordinator_address`), then try again",
        };
        down(format!("{words}{outcome}")).next(next)
    }

    /// In words; whether a call that only reads was carried out is all the same.
    fn why_not_read(&self) -> String {
        match self {
            Unanswered::Failed(ClusterError::OutcomeUnknown(cause)) => {
                format!("the coordinator did not answer in time: {}", with_causes(cause))
            }
            _ => with_causes(self),
        }
    }

    /// Whether the change may have been made, or may be made yet.
    fn may_be_done(&self) -> bool {
        match self {
            Unanswered::Late { .. } | Unanswered::Panicked => true,
            Unanswered::Failed(error) => matches!(
                error,
                ClusterError::OutcomeUnknown(_)
                    | ClusterError::Answer
                    | ClusterError::Store(_)
                    | ClusterError::StoreHangs(_)
            ),
            Unanswered::Absent => false,
        }
    }

    /// What a change answers that the coordinator has not made; `look`: how to find out whether it was made
    /// nevertheless.
    pub(crate) fn undone(self, look: &'static str) -> Problem {
        let words = format!("The coordinator has not done it: {}", with_causes(&self));
        if self.may_be_done() {
            if matches!(&self, Unanswered::Failed(error) if !error.is_transient()) {
                tracing::error!(error = words, "the coordinator failed");
            }
            let words = format!("The coordinator has not said that it is done: {}", self.why_not_read());
            return down(format!("{words}. The change may still be made.")).next(look);
        }
        match &self {
            Unanswered::Failed(ClusterError::TooLong { .. }) => {
                Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_long", words)
                    .next("take values back that are not needed any more, then try again")
            }
            Unanswered::Failed(ClusterError::Refused(CoordinatorRefusal::Quota { .. })) => {
                down(format!("{words}. Nothing was changed."))
                    .next("end what is not needed any more, then try again")
            }
            Unanswered::Failed(error) if error.is_of_another_version() => {
                down(format!("{words}. Nothing was changed.")).next(VERSION_NEXT)
            }
            Unanswered::Failed(error) if error.is_refused_for_room() => {
                down(format!("{words}. Nothing was changed.")).next("make room on that disk, then try again")
            }
            Unanswered::Failed(error) if !error.is_transient() => {
                tracing::error!(error = words, "the coordinator failed");
                down(format!("{words}. Nothing was changed.")).next("look into the coordinator's log")
            }
            _ => down(format!("{words}. Nothing was changed."))
                .next("see whether its process runs (`coordinator_address`), then try again"),
        }
    }
}

/// What to do about a coordinator of another version.
const VERSION_NEXT: &str = "run one version of Cell on all hosts, with its coordinator";

fn down(detail: String) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "coordinator_down", detail)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::mpsc;

    use cell_cluster::Sim;

    use super::*;

    #[tokio::test]
    async fn call_that_hangs_is_late_and_frees_its_thread_when_it_ends() {
        let coordination = Coordination::new(Some(Arc::new(Sim::new(1).link())));
        let (release, held) = mpsc::channel::<()>();
        let patience = Duration::from_millis(1);
        let hangs = move |_| Ok(held.recv().is_err());
        let late = coordination.call(patience, hangs).await;
        assert!(matches!(late, Err(Unanswered::Late { .. })));
        drop(release);
        let all = u32::try_from(CALLS_MAX).unwrap();
        drop(coordination.permits.acquire_many(all).await.unwrap()); // its thread has ended
        let key = coordination.call(CHANGE_PATIENCE, |coordinator| coordinator.read("x")).await;
        assert_eq!(key.unwrap(), None);
    }

    #[tokio::test]
    async fn call_of_a_coordinator_that_is_away_says_what_and_what_next() {
        let link = Sim::new(1).link();
        link.set_cut(true);
        let coordination = Coordination::new(Some(Arc::new(link)));
        let error = coordination.call(CHANGE_PATIENCE, |coordinator| coordinator.read("x")).await;
        let problem = error.unwrap_err().undone("look first");
        assert_eq!((problem.status.as_u16(), problem.code), (503, "coordinator_down"));
        assert!(
            problem.detail.contains("has not said that it is done: ") && problem.next.is_some(),
            "{problem:?}"
        );
        let may_be_made = "The change may still be made.";
        assert!(problem.detail.ends_with(may_be_made) && problem.next.as_deref() == Some("look first"));
        let unstarted = Unanswered::Absent.undone("look first");
        assert!(unstarted.detail.ends_with("Nothing was changed."), "{unstarted:?}");
        let read = Unanswered::Absent.unread();
        assert_eq!((read.status.as_u16(), read.code), (503, "coordinator_down"));
        assert!(!read.detail.contains("changed"), "it was to read only: {read:?}");
        let late = Unanswered::Late { patience: CHANGE_PATIENCE };
        assert!(late.unstarted().detail.ends_with(" Nothing was changed."));
        let late = Unanswered::Late { patience: CHANGE_PATIENCE }.undone("look first");
        assert_eq!(late.next.as_deref(), Some("look first"));
        assert!(
            late.detail.ends_with(may_be_made) && !late.detail.contains("Nothing was changed"),
            "{late:?}"
        );
        let absent = Coordination::new(None).call(CHANGE_PATIENCE, |_| Ok(())).await;
        assert!(matches!(absent, Err(Unanswered::Absent)));
    }

    /// "The call may still have been carried out. Nothing was changed."
    #[test]
    fn call_is_not_said_to_be_carried_out_and_to_have_changed_nothing() {
        let unknown = || Unanswered::Failed(ClusterError::OutcomeUnknown(ErrorKind::TimedOut.into()));
        for read in [unknown().unread(), unknown().unstarted()] {
            assert!(read.detail.contains("did not answer in time"), "{read:?}");
            assert!(!read.detail.contains("carried out") && !read.detail.contains("may still"), "{read:?}");
        }
        for undone in [unknown(), Unanswered::Panicked, Unanswered::Failed(ClusterError::Answer)] {
            let problem = undone.undone("look first");
            assert!(problem.detail.ends_with("The change may still be made."), "{problem:?}");
            assert!(!problem.detail.contains("Nothing was changed"), "{problem:?}");
            assert_eq!(problem.next.as_deref(), Some("look first"));
        }
        let version = || {
            let refusal = CoordinatorRefusal::Version { asked: 3, known: 2 };
            Unanswered::Failed(ClusterError::Refused(refusal))
        };
        for refused in [version().unread(), version().undone("look first")] {
            assert!(refused.detail.contains("speaks version 2 of its protocol"), "{refused:?}");
            assert_eq!(refused.next.as_deref(), Some(VERSION_NEXT), "its process runs");
        }
        let not_reached = ClusterError::NotReached(ErrorKind::ConnectionRefused.into());
        let problem = Unanswered::Failed(not_reached).undone("look first");
        assert!(problem.detail.ends_with("Nothing was changed."), "{problem:?}");
        assert!(problem.detail.contains("has not done it: "), "{problem:?}");
    }
}
