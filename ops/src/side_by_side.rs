//! The same asked of several at once: one that is silent keeps nobody waiting for the next.

use std::sync::{Mutex, PoisonError};
use std::thread;

/// Threads at most.
const AT_ONCE: usize = 16;

/// What `each` makes of the items, in their order.
pub(crate) fn side_by_side<T: Send, R: Send>(items: Vec<T>, each: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = items.len().min(AT_ONCE);
    let queue = Mutex::new(items.into_iter().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let mut done = Vec::new();
        while let Some((at, item)) = next() {
            done.push((at, each(item)));
        }
        done
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("what is asked does not panic"));
        joined.flatten().collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    type Item = Box<dyn FnOnce() -> u32 + Send>;

    /// `cell status` waited for each silent node in its turn.
    #[test]
    fn side_by_side_waits_for_none_before_it_begins_with_the_next() {
        let (sender, receiver) = mpsc::channel();
        let waits: Item = Box::new(move || receiver.recv_timeout(Duration::from_secs(30)).unwrap());
        let wakes: Item = Box::new(move || sender.send(7).map(|()| 8).unwrap());
        assert_eq!(side_by_side(vec![waits, wakes], |item| item()), [7, 8]);
    }

    #[test]
    fn side_by_side_keeps_the_order_of_more_than_there_are_threads() {
        let numbers: Vec<usize> = (0..10 * AT_ONCE).collect();
        assert_eq!(side_by_side(numbers.clone(), |number| number), numbers);
        assert!(side_by_side(Vec::new(), |()| ()).is_empty());
    }
}
