//! The keys of one drill: spread over the whole key space, so that every node has some, and distinguished
//! from everybody else's by the drill's own number.

/// First characters, over which text keys are spread; the cluster's first ranges divide the same ones.
pub(crate) const FIRST: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// After its first character a key has this, then the drill's number and what tells its keys apart.
const MARK: &[u8] = b"-drill-";
/// Hexadecimal digits of a drill's number.
const RUN_DIGITS: usize = 16;

/// Where each drill that goes on has an entry, its mark.
pub const RUNNING_PREFIX: &[u8] = b"0-drilling-";

/// The key of the mark of the drill of this number.
#[must_use]
pub fn running_key(run: u64) -> Vec<u8> {
    [RUNNING_PREFIX, format!("{run:016x}").as_bytes()].concat()
}

/// The number of the drill that goes on by this key; none if that is no mark.
#[must_use]
pub fn run_that_goes_on(key: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(key.strip_prefix(RUNNING_PREFIX)?).ok()?;
    let run = u64::from_str_radix(digits, 16).ok()?;
    (running_key(run) == key).then_some(run)
}

/// A prefix for each part of the key space in which drills have keys.
pub fn key_prefixes() -> impl Iterator<Item = Vec<u8>> {
    FIRST.iter().map(|first| [&[*first][..], MARK].concat())
}

/// The number of the drill that wrote a key; none if its form is not that of a drill's keys.
#[must_use]
pub fn run_of_key(key: &[u8]) -> Option<u64> {
    let rest = key.split_first().filter(|(first, _)| FIRST.contains(first))?.1.strip_prefix(MARK)?;
    let (run, rest) = rest.split_at_checked(RUN_DIGITS)?;
    let are_digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    let is_lower = |digit: &u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit);
    let run = std::str::from_utf8(run).ok().filter(|run| run.as_bytes().iter().all(is_lower))?;
    let rest = rest.strip_prefix(b"-")?;
    let (rest, lengths) = match rest.strip_prefix(b"met-") {
        Some(rest) => (rest, 2..=2),
        None => (rest, 8..=20),
    };
    let (thread, rest) = rest.split_at_checked(2)?;
    let number = rest.strip_prefix(b"-").filter(|number| lengths.contains(&number.len()))?;
    let is_drills = are_digits(thread) && are_digits(number);
    u64::from_str_radix(run, 16).ok().filter(|_| is_drills)
}

/// Threads that meet on the same keys.
const MEETING: u16 = 8;

/// The keys of a drill.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    run: u64,
}

impl Keys {
    /// Keys that several threads read and write.
    pub(crate) const SHARED: u64 = 31;

    /// The keys of the drill of this number.
    pub(crate) fn new(run: u64) -> Keys {
        Keys { run }
    }

    /// The drill's number.
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// A key that only this thread writes.
    pub(crate) fn own(&self, thread: u16, number: u64) -> Vec<u8> {
        self.key(u64::from(thread) + number * 7, &format!("{thread:02}-{number:08}"))
    }

    /// A key that the threads of a group meet on.
    pub(crate) fn shared(&self, thread: u16, number: u64) -> Vec<u8> {
        self.key(number * 2, &format!("met-{:02}-{number:02}", thread / MEETING))
    }

    /// Whether a key is one of this drill's.
    pub(crate) fn is_own(&self, key: &[u8]) -> bool {
        key.get(1..).is_some_and(|rest| rest.starts_with(self.mark().as_bytes()))
    }

    /// Whether threads meet on it.
    pub(crate) fn is_shared(&self, key: &[u8]) -> bool {
        let mark = format!("{}met-", self.mark());
        key.get(1..).is_some_and(|rest| rest.starts_with(mark.as_bytes()))
    }

    fn mark(&self) -> String {
        format!("-drill-{:016x}-", self.run)
    }

    fn key(&self, at: u64, rest: &str) -> Vec<u8> {
        let first = FIRST[usize::try_from(at % FIRST.len() as u64).unwrap_or(0)];
        let mut key = vec![first];
        key.extend_from_slice(self.mark().as_bytes());
        key.extend_from_slice(rest.as_bytes());
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_spread_over_all_first_characters_and_known_again() {
        let keys = Keys::new(77);
        let own: Vec<_> = (1..=62).map(|number| keys.own(3, number)).collect();
        let first: std::collections::BTreeSet<u8> = own.iter().map(|key| key[0]).collect();
        assert_eq!(first.len(), 62);
        assert!(own.iter().all(|key| keys.is_own(key) && !keys.is_shared(key)));
        assert!(keys.is_own(&keys.shared(1, 5)) && keys.is_shared(&keys.shared(1, 5)));
        assert!(!Keys::new(78).is_own(&own[0]) && !keys.is_own(b"") && !keys.is_own(b"a"));
        assert_eq!(keys.shared(0, 5), keys.shared(7, 5), "threads of a group meet");
    }

    /// What `cell drill clean` removes: of drills everything, of others nothing.
    #[test]
    fn run_of_key_knows_every_drills_keys_and_nobody_elses() {
        let run = 0x00ab_0000_0000_0012;
        let keys = Keys::new(run);
        let prefixes: Vec<_> = key_prefixes().collect();
        for number in [0, 1, 30, 61, 22_237, 99_999_999] {
            for key in [keys.own(0, number), keys.own(63, number), keys.shared(63, number % Keys::SHARED)] {
                assert_eq!(run_of_key(&key), Some(run), "{}", key.escape_ascii());
                assert!(prefixes.iter().any(|prefix| key.starts_with(prefix)));
            }
        }
        for other in [
            "",
            "a",
            "a-drill-",
            "a-drill-report",
            "-drill-00ab000000000012-01-00000001",
            "_-drill-00ab000000000012-01-00000001",
            "a-drill-00AB000000000012-01-00000001",
            "a-drill-00ab00000000001-01-00000001",
            "a-drill-00ab000000000012-01-0000001",
            "a-drill-00ab000000000012-01-00000001x",
            "a-drill-00ab000000000012-01x00000001",
            "a-drill-00ab000000000012-x1-00000001",
            "a-drill-+0ab000000000012-01-00000001",
            "a-drill-00ab000000000012-met-01-001",
            "ab-drill-00ab000000000012-01-00000001",
        ] {
            assert_eq!(run_of_key(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn run_that_goes_on_is_known_by_its_mark_which_is_none_of_its_keys() {
        for run in [0, 0x00ab_0000_0000_0012, u64::MAX] {
            let mark = running_key(run);
            assert_eq!(run_that_goes_on(&mark), Some(run));
            assert!(run_of_key(&mark).is_none() && !Keys::new(run).is_own(&mark));
        }
        for other in
            ["0-drilling-", "0-drilling-12", "0-drilling-00AB000000000012", "0-drilling-+0ab000000000012"]
        {
            assert_eq!(run_that_goes_on(other.as_bytes()), None, "{other}");
        }
    }
}
