//! Looks at what may hang, a file system say: on a thread that may block, so that the web's one thread is not
//! held, and one look at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module's text.
#[derive(Clone, Default)]
pub(crate) struct OneLook {
    is_under_way: Arc<AtomicBool>,
}

impl OneLook {
    /// Looks, unless a look is under way, and waits for its end.
    pub(crate) async fn take(&self, look: impl FnOnce() + Send + 'static) {
        if self.is_under_way.swap(true, Ordering::AcqRel) {
            return;
        }
        let is_under_way = Arc::clone(&self.is_under_way);
        let look = tokio::task::spawn_blocking(move || {
            look();
            is_under_way.store(false, Ordering::Release);
        });
        let _ = look.await; // nothing in it panics
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// One that waits until the test lets it go.
    fn waiting(gate: Receiver<()>) -> impl FnOnce() + Send + 'static {
        move || gate.recv().unwrap()
    }

    #[tokio::test]
    async fn take_looks_once_at_a_time_and_again_after_that() {
        let (looks, (begin, gate)) = (OneLook::default(), channel());
        let first = tokio::spawn({
            let looks = looks.clone();
            async move { looks.take(waiting(gate)).await }
        });
        while !looks.is_under_way.load(Ordering::Acquire) {
            tokio::task::yield_now().await;
        }
        looks.take(|| panic!("one is under way")).await;
        begin.send(()).unwrap();
        first.await.unwrap();
        let (begin, gate) = channel();
        begin.send(()).unwrap();
        looks.take(waiting(gate)).await;
        assert!(begin.send(()).is_err(), "it has looked");
    }
}
