//! Who waits for room in the client's queue.
//!
//! An operation that ends wakes one waiter. The waiter may not use the room up: its operation may be answered
//! at once, or be refused. So it wakes the next one whenever it stops waiting:
//!
//! 1. one operation is in flight, the limit, and A and B wait for room;
//! 2. the operation ends and wakes A;
//! 3. A's operation is answered at once. No other operation will end, and B would sleep for ever.

use std::pin::pin;

use tokio::sync::Notify;

/// Waiters for room, which are woken in turn.
#[derive(Debug, Default)]
pub(super) struct Room {
    freed: Notify,
}

impl Room {
    /// An operation has ended: the next waiter tries again.
    pub(super) fn wake_next(&self) {
        self.freed.notify_one();
    }

    /// The client has ended: all waiters try again, and get that error.
    pub(super) fn wake_all(&self) {
        self.freed.notify_waiters();
    }

    /// Tries until there is room. `attempt` gives nothing where there is none.
    pub(super) async fn wait_for<T>(&self, mut attempt: impl FnMut() -> Option<T>) -> T {
        // Where there is room, nobody is asked to wait or to wake.
        if let Some(done) = attempt() {
            return done;
        }
        let done = loop {
            // It waits before it tries: what ends between the attempt and the wait wakes it too.
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(done) = attempt() {
                break done;
            }
            freed.await;
        };
        self.wake_next();
        done
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    /// Fails where the future would sleep for ever.
    fn ends<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let bounded = async { tokio::time::timeout(Duration::from_secs(20), future).await };
        runtime.block_on(bounded).expect("a waiter was not woken")
    }

    #[test]
    fn waiter_that_leaves_the_room_unused_wakes_the_next_one() {
        let (room, is_full) = (Room::default(), Cell::new(true));
        let attempt = || (!is_full.get()).then_some(());
        ends(async {
            let one_ends = async {
                is_full.set(false);
                room.wake_next();
            };
            tokio::join!(room.wait_for(attempt), room.wait_for(attempt), room.wait_for(attempt), one_ends);
        });
    }

    #[test]
    fn waiter_is_woken_by_what_comes_right_after_its_attempt() {
        let (room, attempts) = (Room::default(), Cell::new(0));
        for wake in [Room::wake_next, Room::wake_all] {
            attempts.set(0);
            ends(room.wait_for(|| {
                attempts.set(attempts.get() + 1);
                if attempts.get() == 2 {
                    wake(&room);
                }
                (attempts.get() > 2).then_some(())
            }));
        }
    }

    #[test]
    fn waiter_that_is_dropped_after_it_was_woken_wakes_the_next_one() {
        let (room, is_full) = (Room::default(), Cell::new(true));
        let attempt = || (!is_full.get()).then_some(());
        ends(async {
            let mut dropped = Box::pin(room.wait_for(attempt));
            let mut next = Box::pin(room.wait_for(attempt));
            std::future::poll_fn(|context| {
                assert!(
                    dropped.as_mut().poll(context).is_pending() && next.as_mut().poll(context).is_pending()
                );
                std::task::Poll::Ready(())
            })
            .await;
            is_full.set(false);
            room.wake_next();
            drop(dropped);
            next.await;
        });
    }
}
