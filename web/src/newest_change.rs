//! The newest change of the coordinator's rows, for all who ask of when a document is to be. That is several
//! calls of the coordinator, and whoever may read may ask: of many at a time one has it read, and the others
//! go by that.

use std::time::Instant;

use tokio::sync::Mutex;

use crate::clock::now;

/// See the module's text.
#[derive(Default)]
pub(crate) struct NewestChange(Mutex<Option<LastRead>>);

/// What was read last.
struct LastRead {
    started: Instant,
    /// None: nobody answered.
    revision: Option<u64>,
}

impl NewestChange {
    /// What `read` says, or what it has said to somebody else: whatever began to be read after this was asked
    /// for shows as much, also that nobody answers.
    pub(crate) async fn ask(&self, read: impl Future<Output = Option<u64>>) -> Option<u64> {
        let asked = now();
        let mut last = self.0.lock().await;
        if let Some(last) = last.as_ref().filter(|last| last.started >= asked) {
            return last.revision;
        }
        let started = now();
        let revision = read.await;
        *last = Some(LastRead { started, revision });
        revision
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::Semaphore;
    use tokio::task::{JoinHandle, yield_now};

    use super::*;

    /// A coordinator that answers once it is let, and not at all the second time.
    #[derive(Default)]
    struct Slow {
        newest: NewestChange,
        asked: AtomicU64,
        reads: AtomicU64,
    }

    fn ask(slow: &Arc<Slow>, gate: &Arc<Semaphore>) -> JoinHandle<Option<u64>> {
        let (slow, gate) = (Arc::clone(slow), Arc::clone(gate));
        tokio::spawn(async move {
            let read = async {
                let read = slow.reads.fetch_add(1, Ordering::Relaxed) + 1;
                gate.acquire().await.unwrap().forget();
                (read != 2).then_some(read)
            };
            slow.asked.fetch_add(1, Ordering::Relaxed);
            slow.newest.ask(read).await
        })
    }

    /// Each had six lists of the coordinator's read: a loop of such requests kept changes from it.
    #[tokio::test]
    async fn of_many_who_ask_while_it_is_read_one_has_it_read_again_for_all() {
        let (slow, gate) = (Arc::<Slow>::default(), Arc::new(Semaphore::new(0)));
        let first = ask(&slow, &gate);
        while slow.reads.load(Ordering::Relaxed) == 0 {
            yield_now().await;
        }
        let others: Vec<_> = (0..5).map(|_| ask(&slow, &gate)).collect();
        while slow.asked.load(Ordering::Relaxed) < 6 {
            yield_now().await;
        }
        gate.add_permits(2);
        assert_eq!(first.await.unwrap(), Some(1));
        for other in others {
            assert_eq!(other.await.unwrap(), None, "what was read before they asked may be too old");
        }
        assert_eq!(slow.reads.load(Ordering::Relaxed), 2);
        gate.add_permits(1);
        assert_eq!(ask(&slow, &gate).await.unwrap(), Some(3));
    }
}
