//! The keys of one drill: spread over the whole key space, so that every node has some, and distinguished
//! from everybody else's by the drill's own number.

/// First characters, over which text keys are spread; the cluster's first ranges divide the same ones.
const FIRST: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
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
}
