//! One ring: words from one producer to one consumer, and the two flags that say whose bell is to be rung.
//!
//! Tail and head count words and wrap. Each end believes its own count only; the other's is checked against
//! what it can be, because the other end may be hostile: whatever it stores, no index leaves the ring.
//!
//! **No wake-up is lost.** Four steps, of which only two orders matter:
//!
//! | consumer, before it sleeps | producer, after it wrote |
//! |---|---|
//! | 1 stores `sleeping` | 1 stores `tail` |
//! | 2 full fence | 2 full fence |
//! | 3 loads `tail`: new words keep it awake | 3 loads `sleeping`: if set, clears it and rings |
//!
//! If the consumer's load comes before the producer's store of the tail, then by the fences the producer's
//! load comes after the consumer's store of `sleeping`, and it rings. Without the fences both loads could
//! be early: the consumer sleeps, nobody rings, and the words lie there until somebody's time-out. Room is
//! announced in the same way with the ends exchanged: `starving` for `sleeping`, `head` for `tail`. The
//! tests below check this with every interleaving that the memory model permits, and that they find the
//! lost wake-up when the fence is taken out.

/// Words that two processes share; what the protocol needs of them, so that a model can stand in.
pub(crate) trait RingWords {
    fn load(&self, at: usize) -> u64;
    /// Before every access after it.
    fn load_acquire(&self, at: usize) -> u64;
    fn store(&self, at: usize, word: u64);
    /// After every access before it.
    fn store_release(&self, at: usize, word: u64);
    fn swap(&self, at: usize, word: u64) -> u64;

    /// Copies words out, each atomic.
    fn copy_out(&self, at: usize, out: &mut [[u8; 8]]) {
        for (offset, word) in out.iter_mut().enumerate() {
            *word = self.load(at + offset).to_le_bytes();
        }
    }

    /// Copies words in, each atomic.
    fn copy_in(&self, at: usize, words: &[[u8; 8]]) {
        for (offset, word) in words.iter().enumerate() {
            self.store(at + offset, u64::from_le_bytes(*word));
        }
    }
}

/// Where a ring's words are: indexes of words in the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingLayout {
    pub(crate) tail: usize,
    pub(crate) head: usize,
    pub(crate) sleeping: usize,
    pub(crate) starving: usize,
    pub(crate) data: usize,
    /// Words of data, a power of two.
    pub(crate) capacity: usize,
}

/// The other end stored a count that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl RingLayout {
    /// Where the word of that count lies, and how many follow it before the ring's end.
    fn at(&self, count: u64) -> (usize, usize) {
        let mask = self.capacity as u64 - 1;
        let offset = usize::try_from(count & mask).unwrap_or(0);
        (self.data + offset, self.capacity - offset)
    }

    /// What lies between two counts, if that can be.
    fn between(&self, head: u64, tail: u64) -> Result<usize, Broken> {
        let used = usize::try_from(tail.wrapping_sub(head)).map_err(|_| Broken)?;
        if used <= self.capacity { Ok(used) } else { Err(Broken) }
    }
}

/// The writing end.
#[derive(Debug)]
pub(crate) struct Producer {
    place: RingLayout,
    /// Written so far.
    tail: u64,
    published: u64,
    /// As the consumer's count was last seen.
    head: u64,
}

impl Producer {
    pub(crate) fn new(place: RingLayout) -> Producer {
        Producer { place, tail: 0, published: 0, head: 0 }
    }

    /// Room for at least `wanted` words, or all there is; the consumer is asked only if what is known of its
    /// progress does not do.
    pub(crate) fn room(&mut self, words: &impl RingWords, wanted: usize) -> Result<usize, Broken> {
        let known = self.place.capacity - self.place.between(self.head, self.tail)?;
        if known >= wanted {
            return Ok(known);
        }
        let head = words.load_acquire(self.place.head);
        let used = self.place.between(head, self.tail)?;
        self.head = head;
        Ok(self.place.capacity - used)
    }

    /// Writes words that there is room for; nobody sees them yet.
    pub(crate) fn write(&mut self, words: &impl RingWords, data: &[[u8; 8]]) {
        let (at, until_end) = self.place.at(self.tail);
        let (first, second) = data.split_at(data.len().min(until_end));
        words.copy_in(at, first);
        if !second.is_empty() {
            words.copy_in(self.place.data, second);
        }
        self.tail = self.tail.wrapping_add(data.len() as u64);
    }

    /// Words that were written and not published.
    pub(crate) fn unpublished(&self) -> usize {
        usize::try_from(self.tail.wrapping_sub(self.published)).unwrap_or(0)
    }

    /// Lets the consumer see what was written. A fence and [`Producer::must_ring`] have to follow.
    pub(crate) fn publish(&mut self, words: &impl RingWords) -> usize {
        let count = self.unpublished();
        if count > 0 {
            words.store_release(self.place.tail, self.tail);
            self.published = self.tail;
        }
        count
    }

    /// After a fence: whether the consumer sleeps and is to be woken by the caller, and nobody else.
    pub(crate) fn must_ring(&self, words: &impl RingWords) -> bool {
        words.load(self.place.sleeping) != 0 && words.swap(self.place.sleeping, 0) != 0
    }

    /// Before sleeping without room: asks for the bell. A fence and another look at the room have to follow.
    pub(crate) fn ask_for_room(&self, words: &impl RingWords) {
        if words.load(self.place.starving) != 1 {
            words.store(self.place.starving, 1);
        }
    }
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Consumer {
    place: RingLayout,
    /// Consumed so far.
    head: u64,
    released: u64,
    /// `sleeping` was set and may still be.
    armed: bool,
}

impl Consumer {
    pub(crate) fn new(place: RingLayout) -> Consumer {
        Consumer { place, head: 0, released: 0, armed: false }
    }

    /// Words that can be read.
    #[inline]
    pub(crate) fn available(&self, words: &impl RingWords) -> Result<usize, Broken> {
        self.place.between(self.head, words.load_acquire(self.place.tail))
    }

    /// Copies words out that are available; their room is not given back yet.
    pub(crate) fn read(&mut self, words: &impl RingWords, out: &mut [[u8; 8]]) {
        let (at, until_end) = self.place.at(self.head);
        let count = out.len();
        let (first, second) = out.split_at_mut(count.min(until_end));
        words.copy_out(at, first);
        if !second.is_empty() {
            words.copy_out(self.place.data, second);
        }
        self.head = self.head.wrapping_add(count as u64);
    }

    /// Gives the room of what was read back. A fence and [`Consumer::must_ring`] have to follow.
    pub(crate) fn release(&mut self, words: &impl RingWords) {
        if self.head != self.released {
            words.store_release(self.place.head, self.head);
            self.released = self.head;
        }
    }

    /// After a fence: whether the producer waits for room and is to be woken by the caller, and nobody else.
    pub(crate) fn must_ring(&self, words: &impl RingWords) -> bool {
        words.load(self.place.starving) != 0 && words.swap(self.place.starving, 0) != 0
    }

    /// Before sleeping: asks for the bell. A fence and another look at what is available have to follow.
    pub(crate) fn arm(&mut self, words: &impl RingWords) {
        if !self.armed || words.load(self.place.sleeping) != 1 {
            words.store(self.place.sleeping, 1);
            self.armed = true;
        }
    }

    /// Awake and at it: the bell is not needed.
    #[inline]
    pub(crate) fn disarm(&mut self, words: &impl RingWords) {
        if self.armed {
            words.store(self.place.sleeping, 0);
            self.armed = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use loom::sync::atomic::{AtomicU64, Ordering, fence};
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;
    use proptest::prelude::*;

    use super::*;

    const CAPACITY: usize = 2;
    const PLACE: RingLayout =
        RingLayout { tail: 0, head: 1, sleeping: 2, starving: 3, data: 4, capacity: CAPACITY };

    /// Words under the model checker, with a fence that can be taken out.
    struct Modelled {
        words: Vec<AtomicU64>,
        fenced: bool,
    }

    impl RingWords for Modelled {
        fn load(&self, at: usize) -> u64 {
            self.words[at].load(Ordering::Relaxed)
        }
        fn load_acquire(&self, at: usize) -> u64 {
            self.words[at].load(Ordering::Acquire)
        }
        fn store(&self, at: usize, word: u64) {
            self.words[at].store(word, Ordering::Relaxed);
        }
        fn store_release(&self, at: usize, word: u64) {
            self.words[at].store(word, Ordering::Release);
        }
        fn swap(&self, at: usize, word: u64) -> u64 {
            self.words[at].swap(word, Ordering::AcqRel)
        }
    }

    impl Modelled {
        /// The caller's duty, one for all rings of an endpoint.
        fn fence(&self) {
            if self.fenced {
                fence(Ordering::SeqCst);
            }
        }
    }

    /// A bell: rings are counted, whoever waits takes them all.
    struct Bell(Mutex<u32>, Condvar);

    impl Bell {
        fn new() -> Bell {
            Bell(Mutex::new(0), Condvar::new())
        }
        fn ring(&self) {
            *self.0.lock().unwrap() += 1;
            self.1.notify_one();
        }
        fn wait(&self) {
            let mut rings = self.0.lock().unwrap();
            while *rings == 0 {
                rings = self.1.wait(rings).unwrap();
            }
            *rings = 0;
        }
    }

    fn produce(words: &Modelled, count: u64, data_bell: &Bell, room_bell: &Bell) {
        let mut producer = Producer::new(PLACE);
        for number in 1..=count {
            while producer.room(words, 1).unwrap() == 0 {
                producer.ask_for_room(words);
                words.fence();
                if producer.room(words, 1).unwrap() == 0 {
                    room_bell.wait();
                }
            }
            producer.write(words, &[number.to_le_bytes()]);
            producer.publish(words);
            words.fence();
            if producer.must_ring(words) {
                data_bell.ring();
            }
        }
    }

    fn consume(words: &Modelled, count: u64, data_bell: &Bell, room_bell: &Bell) {
        let mut consumer = Consumer::new(PLACE);
        let mut expected = 1;
        while expected <= count {
            let available = consumer.available(words).unwrap();
            if available == 0 {
                consumer.arm(words);
                words.fence();
                if consumer.available(words).unwrap() == 0 {
                    data_bell.wait();
                }
                continue;
            }
            let mut out = vec![[0; 8]; available];
            consumer.disarm(words);
            consumer.read(words, &mut out);
            consumer.release(words);
            words.fence();
            if consumer.must_ring(words) {
                room_bell.ring();
            }
            for word in out {
                assert_eq!(u64::from_le_bytes(word), expected);
                expected += 1;
            }
        }
    }

    /// Runs both ends under every interleaving (of so many preemptions): loom reports a sleep for ever as a
    /// deadlock.
    fn check(count: u64, fenced: bool) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let words = (0..4 + CAPACITY).map(|_| AtomicU64::new(0)).collect();
            let words = Arc::new(Modelled { words, fenced });
            let bells = Arc::new((Bell::new(), Bell::new()));
            let (words_there, bells_there) = (Arc::clone(&words), Arc::clone(&bells));
            let producer = thread::spawn(move || {
                produce(&words_there, count, &bells_there.0, &bells_there.1);
            });
            consume(&words, count, &bells.0, &bells.1);
            producer.join().unwrap();
        });
    }

    #[test]
    fn ring_every_interleaving_delivers_in_order_and_wakes() {
        check(2, true);
    }

    #[test]
    fn ring_full_every_interleaving_wakes_for_room() {
        check(3, true);
    }

    #[test]
    fn ring_without_the_fence_the_model_finds_the_lost_wake_up() {
        let found = std::panic::catch_unwind(|| check(2, false));
        assert!(found.is_err(), "the model does not see what it is there for");
    }

    /// Words of one thread.
    struct Plain(RefCell<Vec<u64>>);

    impl RingWords for Plain {
        fn load(&self, at: usize) -> u64 {
            self.0.borrow()[at]
        }
        fn load_acquire(&self, at: usize) -> u64 {
            self.load(at)
        }
        fn store(&self, at: usize, word: u64) {
            self.0.borrow_mut()[at] = word;
        }
        fn store_release(&self, at: usize, word: u64) {
            self.store(at, word);
        }
        fn swap(&self, at: usize, word: u64) -> u64 {
            std::mem::replace(&mut self.0.borrow_mut()[at], word)
        }
    }

    const WIDE: RingLayout = RingLayout { tail: 0, head: 1, sleeping: 2, starving: 3, data: 4, capacity: 16 };

    proptest! {
        #[test]
        fn ring_any_sizes_keep_the_words_and_their_order(
            steps in proptest::collection::vec((0_usize..20, 0_usize..20), 1..200),
        ) {
            let words = Plain(RefCell::new(vec![0; 20]));
            let (mut producer, mut consumer) = (Producer::new(WIDE), Consumer::new(WIDE));
            let (mut written, mut read) = (0_u64, 0_u64);
            for (offered, wanted) in steps {
                let count = offered.min(producer.room(&words, offered).unwrap());
                let data: Vec<_> = (written..).take(count).map(u64::to_le_bytes).collect();
                producer.write(&words, &data);
                written += count as u64;
                prop_assert_eq!(producer.publish(&words), count);
                let available = consumer.available(&words).unwrap();
                prop_assert_eq!(available as u64, written - read);
                let mut out = vec![[0; 8]; wanted.min(available)];
                consumer.read(&words, &mut out);
                consumer.release(&words);
                for word in out {
                    prop_assert_eq!(u64::from_le_bytes(word), read);
                    read += 1;
                }
            }
        }

        #[test]
        fn ring_any_counts_of_a_hostile_peer_stay_inside(
            stored in proptest::collection::vec((0_usize..4, prop_oneof![any::<u64>(), 0_u64..40]), 1..100),
        ) {
            let words = Plain(RefCell::new(vec![0; 20]));
            let (mut producer, mut consumer) = (Producer::new(WIDE), Consumer::new(WIDE));
            for (at, word) in stored {
                words.store(at, word);
                if let Ok(room) = producer.room(&words, 16) {
                    prop_assert!(room <= 16);
                    producer.write(&words, &vec![[7; 8]; room]);
                }
                if let Ok(available) = consumer.available(&words) {
                    prop_assert!(available <= 16);
                    consumer.read(&words, &mut vec![[0; 8]; available]);
                }
            }
        }
    }
}
