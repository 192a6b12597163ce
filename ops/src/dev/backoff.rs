//! How long to wait before a node that died is started again: not at all if it had served, longer each time
//! if it dies of its start, and up to half a minute if it ends the same way again and again. Each start of a
//! node takes a new epoch with folders of its own, and what ended it is there still.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// So many ends of one kind,
const REPEATS: u32 = 3;
/// within so long, are one cause.
const WINDOW: Duration = Duration::from_secs(60);
const REPEATED_FIRST: Duration = Duration::from_secs(1);
const REPEATED_LONGEST: Duration = Duration::from_secs(30);

/// How a process ended.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// When the process was started.
    pub(crate) started: Instant,
    pub(crate) ended: Instant,
    /// It had served.
    pub(crate) served: bool,
    /// What it ended of; none if somebody ended it.
    pub(crate) cause: Option<String>,
}

/// A node that ends the same way again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repeated {
    /// How often in a row.
    pub(crate) count: u32,
    /// What it ended of the last time.
    pub(crate) cause: String,
    /// How long it stays down.
    pub(crate) wait: Duration,
}

impl Repeated {
    /// In words, without a subject.
    pub(crate) fn words(&self) -> String {
        let Repeated { count, cause, wait } = self;
        let seconds = wait.as_secs();
        format!("ended {count} times in quick succession, and was held back for {seconds} s: {cause}")
    }
}

/// The waits of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff {
    /// The last wait after a death of its start.
    last: Option<Duration>,
    /// Ends with causes in the last minute, oldest first: when, and of what kind.
    recent: VecDeque<(Instant, String)>,
    repeated: Option<Repeated>,
}

impl Backoff {
    /// The wait after an end. What served will serve again: recovery is its way back. But not of what has
    /// ended it some times already.
    pub(crate) fn wait(&mut self, end: &End) -> Duration {
        self.repeated = self.repeat(end);
        if let Some(repeated) = &self.repeated {
            return repeated.wait;
        }
        if end.served {
            self.last = None;
            return Duration::ZERO;
        }
        let wait = self.last.map_or(FIRST, |last| (last * 2).min(LONGEST));
        self.last = Some(wait);
        wait
    }

    /// Why the node is held back, or was when it was started last.
    pub(crate) fn repeated(&self) -> Option<&Repeated> {
        self.repeated.as_ref()
    }

    fn repeat(&mut self, end: &End) -> Option<Repeated> {
        let cause = end.cause.clone()?;
        let kind = kind_of(&cause);
        // The waits do not count: by them alone a minute would have fewer ends, and the next ones be quick.
        let lasted = end.ended.saturating_duration_since(end.started);
        if let Some(before) = self.repeated.take().filter(|before| kind_of(&before.cause) == kind)
            && lasted < WINDOW
        {
            let wait = (before.wait * 2).min(REPEATED_LONGEST);
            return Some(Repeated { count: before.count + 1, cause, wait });
        }
        self.recent.retain(|(at, _)| end.ended.saturating_duration_since(*at) < WINDOW);
        self.recent.push_back((end.ended, kind.clone()));
        let alike = self.recent.iter().filter(|(_, of)| *of == kind).count();
        let count = u32::try_from(alike).unwrap_or(u32::MAX);
        (count >= REPEATS).then_some(Repeated { count, cause, wait: REPEATED_FIRST })
    }
}

/// A cause without what differs from time to time: numbers.
fn kind_of(cause: &str) -> String {
    cause.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lives that last so long each, in milliseconds, and the waits after them, in milliseconds.
    struct Lives {
        backoff: Backoff,
        now: Instant,
    }

    impl Lives {
        fn new() -> Lives {
            Lives { backoff: Backoff::default(), now: Instant::now() }
        }

        fn live(&mut self, ms: u64, served: bool, cause: Option<&str>) -> u128 {
            let started = self.now;
            self.now += Duration::from_millis(ms);
            let end = End { started, ended: self.now, served, cause: cause.map(str::to_owned) };
            let wait = self.backoff.wait(&end);
            self.now += wait;
            wait.as_millis()
        }
    }

    #[test]
    fn wait_doubles_to_a_bound_while_it_is_ended_at_its_start() {
        let mut lives = Lives::new();
        let waits: Vec<_> = (0..8).map(|_| lives.live(1, false, None)).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(lives.live(1, true, None), 0);
        assert_eq!(lives.live(1, false, None), 100);
    }

    #[test]
    fn wait_of_what_ends_the_same_way_a_third_time_in_a_minute_doubles_to_half_a_minute() {
        let mut lives = Lives::new();
        let waits: Vec<_> = (0..9).map(|_| lives.live(1_600, true, Some("signal 6: panic at 17"))).collect();
        assert_eq!(waits, [0, 0, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        let repeated = lives.backoff.repeated().unwrap();
        assert_eq!((repeated.count, &*repeated.cause), (9, "signal 6: panic at 17"));
        let words = repeated.words();
        assert!(words.starts_with("ended 9 times in") && words.contains("for 30 s: signal 6"), "{words}");
        // One that lasts is another story.
        assert_eq!(lives.live(60_000, true, Some("signal 6: panic at 17")), 0);
        assert_eq!(lives.backoff.repeated(), None);
    }

    #[test]
    fn ends_that_differ_by_numbers_alone_are_alike_and_others_are_not() {
        let mut lives = Lives::new();
        let mut end = |cause| lives.live(10, true, Some(cause));
        assert_eq!(["at 1", "of 2", "at 3", "of 4"].map(&mut end), [0; 4]);
        assert_eq!(["at 5", "at 6", "of 7"].map(&mut end), [1_000, 2_000, 1_000], "the third of each");
    }

    #[test]
    fn ends_that_are_spread_over_more_than_a_minute_or_come_from_outside_are_not_held_back() {
        let mut lives = Lives::new();
        for _ in 0..5 {
            assert_eq!(lives.live(31_000, true, Some("exit code 1")), 0);
        }
        let mut lives = Lives::new();
        for _ in 0..5 {
            assert_eq!(lives.live(10, true, None), 0);
        }
        assert_eq!((lives.live(10, true, Some("a")), lives.live(10, true, Some("a"))), (0, 0));
        assert_eq!(lives.live(10, true, Some("a")), 1_000);
        assert_eq!((lives.live(10, true, None), lives.backoff.repeated()), (0, None), "somebody sees to it");
    }
}
