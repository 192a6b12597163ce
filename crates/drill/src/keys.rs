//! The keys of one drill: spread over the whole key space, and distinguished from everybody else's by the
//! drill's own number.
//!
//! ```text
//! STEM-drill-00ab000000000012-01-00000001     a key. Its stem is one of 62 characters, or was added: so that
//!                                             the key lies in a pair that has none that begins with these
//! 0-drilled-00ab000000000012-000              the entry of an added stem, by which its keys are found again
//! 0-drilling-00ab000000000012                 the mark: the drill goes on
//! ```

/// First characters, over which text keys are spread; the cluster's first ranges divide the same ones.
const FIRST: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// After its stem a key has this, then the drill's number and what tells its keys apart.
const MARK: &[u8] = b"-drill-";
/// Hexadecimal digits of a drill's number.
const RUN_DIGITS: usize = 16;
/// What distinguishes keys at added stems is no longer than `01-00000001`.
const REST_BYTES: usize = 11;
/// So many bytes may follow an added stem.
const BEHIND_STEM: usize = MARK.len() + RUN_DIGITS + 1 + REST_BYTES;

/// Where each drill that goes on has an entry, its mark.
pub const RUNNING_PREFIX: &[u8] = b"0-drilling-";
/// Where each added stem has an entry.
pub const STEMS_PREFIX: &[u8] = b"0-drilled-";
/// What the value of such an entry begins with; the stem follows.
const STEM_WORDS: &[u8] = b"keys of a drill begin with: ";

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

/// The entry of a stem that the drill of this number has added.
pub(crate) fn stem_entry(run: u64, number: usize, stem: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let key = [STEMS_PREFIX, format!("{run:016x}-{number:03}").as_bytes()].concat();
    (key, [STEM_WORDS, stem].concat())
}

/// The drill that has added a stem, and the stem, by its entry; none if that is no such entry.
#[must_use]
pub fn stem_of_entry(key: &[u8], value: &[u8]) -> Option<(u64, Vec<u8>)> {
    let digits = std::str::from_utf8(key.strip_prefix(STEMS_PREFIX)?).ok()?;
    let (run, number) = digits.split_once('-')?;
    let (run, number) = (u64::from_str_radix(run, 16).ok()?, number.parse().ok()?);
    let stem = value.strip_prefix(STEM_WORDS)?;
    (stem_entry(run, number, stem).0 == key).then(|| (run, stem.to_vec()))
}

/// What all keys of the drill of this number begin with at a stem.
#[must_use]
pub fn stem_prefix(run: u64, stem: &[u8]) -> Vec<u8> {
    [stem, &mark_of(run)[..]].concat()
}

fn mark_of(run: u64) -> Vec<u8> {
    [MARK, format!("{run:016x}-").as_bytes()].concat()
}

/// A prefix for each part of the key space in which all drills have keys.
pub fn key_prefixes() -> impl Iterator<Item = Vec<u8>> {
    FIRST.iter().map(|first| [&[*first][..], MARK].concat())
}

/// The number of the drill that wrote a key; none if its form is not that of a drill's keys at the stems that
/// all drills have.
#[must_use]
pub fn run_of_key(key: &[u8]) -> Option<u64> {
    run_behind(key.split_first().filter(|(first, _)| FIRST.contains(first))?.1)
}

/// The same for a stem that a drill has added.
#[must_use]
pub fn run_of_key_at(stem: &[u8], key: &[u8]) -> Option<u64> {
    run_behind(key.strip_prefix(stem)?)
}

/// The number of a drill by what follows the stem of one of its keys.
fn run_behind(rest: &[u8]) -> Option<u64> {
    let (run, rest) = rest.strip_prefix(MARK)?.split_at_checked(RUN_DIGITS)?;
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
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    run: u64,
    /// What follows the stem of each.
    mark: Vec<u8>,
    /// Those that all drills have, then the added ones.
    stems: Vec<Vec<u8>>,
    /// Numbers of those at which every second key is to be; none: all are alike.
    aimed: Vec<usize>,
}

impl Keys {
    /// Keys that several threads read and write.
    pub(crate) const SHARED: u64 = 31;

    /// The keys of the drill of this number, at the stems that all drills have.
    pub(crate) fn new(run: u64) -> Keys {
        let stems = FIRST.iter().map(|first| vec![*first]).collect();
        Keys { run, mark: mark_of(run), stems, aimed: Vec::new() }
    }

    /// The drill's number.
    pub(crate) fn run(&self) -> u64 {
        self.run
    }

    /// What its keys begin with.
    pub(crate) fn stems(&self) -> &[Vec<u8>] {
        &self.stems
    }

    /// Those of them that were added.
    pub(crate) fn added_stems(&self) -> &[Vec<u8>] {
        &self.stems[FIRST.len()..]
    }

    /// Keys are to begin with this, too.
    pub(crate) fn add_stem(&mut self, stem: Vec<u8>) {
        self.stems.push(stem);
    }

    /// What a stem is to be so that all keys at it lie in a range; none if there is no such stem.
    pub(crate) fn stem_within(
        &self,
        low: &[u8],
        high: Option<&[u8]>,
        key_bytes_max: usize,
    ) -> Option<Vec<u8>> {
        let stem_bytes_max = key_bytes_max.checked_sub(BEHIND_STEM)?;
        let fits = |stem: &Vec<u8>| {
            let first = [&stem[..], &self.mark].concat();
            let is_below = |high: &[u8]| *first < *high && !high.starts_with(&first);
            stem.len() <= stem_bytes_max && *first >= *low && high.is_none_or(is_below)
        };
        let padded = |stem: &[u8], len: usize| {
            let zeros = vec![0_u8; len.saturating_sub(stem.len())];
            [stem, &zeros[..]].concat()
        };
        let head = &low[..low.len().min(stem_bytes_max)];
        // What follows the stem may be above the rest of the low key.
        let begins = (0..=head.len()).rev().map(|len| head[..len].to_vec());
        // The lowest stem behind another one is that with zeros.
        let behind = [padded(head, head.len() + 1), padded(head, stem_bytes_max)];
        // Behind what is too long it is the next one as long as permitted.
        let next = raised(head);
        let next_padded = next.as_deref().map(|next| padded(next, stem_bytes_max));
        begins.chain(behind).chain(next).chain(next_padded).find(fits)
    }

    /// Has every second key be at the stems of these numbers, if less than a quarter of all keys are there as
    /// it is.
    pub(crate) fn aim(&mut self, stems: Vec<usize>) {
        if stems.len() * 4 < self.stems.len() {
            self.aimed = stems;
        }
    }

    /// A key that only this thread writes.
    pub(crate) fn own(&self, thread: u16, number: u64) -> Vec<u8> {
        self.key(u64::from(thread) + number, &format!("{thread:02}-{number:08}"))
    }

    /// A key that the threads of a group meet on.
    pub(crate) fn shared(&self, thread: u16, number: u64) -> Vec<u8> {
        self.key(number * 3, &format!("met-{:02}-{number:02}", thread / MEETING))
    }

    /// Whether a key is one of this drill's.
    pub(crate) fn is_own(&self, key: &[u8]) -> bool {
        self.parts(key).is_some()
    }

    /// Whether threads meet on it.
    pub(crate) fn is_shared(&self, key: &[u8]) -> bool {
        self.parts(key).is_some_and(|(_, rest)| rest.starts_with(b"met-"))
    }

    /// What one of this drill's keys begins with.
    pub(crate) fn stem_of<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        self.parts(key).map(|(stem, _)| stem)
    }

    /// Stem and rest of one of this drill's keys.
    fn parts<'k>(&self, key: &'k [u8]) -> Option<(&'k [u8], &'k [u8])> {
        let at = key.windows(self.mark.len()).position(|part| *part == *self.mark)?;
        Some((&key[..at], &key[at + self.mark.len()..]))
    }

    fn key(&self, turn: u64, rest: &str) -> Vec<u8> {
        let is_short = rest.len() <= REST_BYTES;
        let stem = if is_short { self.stem_of_turn(turn) } else { nth(&self.stems[..FIRST.len()], turn) };
        [&stem[..], &self.mark, rest.as_bytes()].concat()
    }

    fn stem_of_turn(&self, turn: u64) -> &Vec<u8> {
        match (self.aimed.is_empty(), turn % 2) {
            (true, _) => nth(&self.stems, turn),
            (false, 1) => &self.stems[*nth(&self.aimed, turn / 2)],
            (false, _) => nth(&self.stems, turn / 2),
        }
    }
}

/// The element of a turn, of a list that is not empty.
fn nth<T>(list: &[T], turn: u64) -> &T {
    &list[usize::try_from(turn % list.len() as u64).unwrap_or(0)]
}

/// The lowest key that is above all that begin with this one, if there is one.
fn raised(key: &[u8]) -> Option<Vec<u8>> {
    let last = key.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut raised = key[..=last].to_vec();
    raised[last] += 1;
    Some(raised)
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

    #[test]
    fn own_keys_at_added_stems_are_known_again_and_fit_however_many_there_are() {
        let mut keys = Keys::new(77);
        let long = vec![0xff; 76 - BEHIND_STEM];
        keys.add_stem(long.clone());
        assert_eq!(keys.added_stems(), std::slice::from_ref(&long));
        let at_long: Vec<_> =
            (1..=63).map(|number| keys.own(0, number)).filter(|key| key.starts_with(&long)).collect();
        assert_eq!((at_long.len(), at_long[0].len()), (1, 76), "as long as the longest of small tree nodes");
        assert!(keys.is_own(&at_long[0]) && !keys.is_shared(&at_long[0]));
        assert_eq!(keys.stem_of(&at_long[0]), Some(&long[..]));
        assert_eq!((run_of_key(&at_long[0]), run_of_key_at(&long, &at_long[0])), (None, Some(77)));
        let mut more = (100_000_000..100_000_063).map(|number| keys.own(0, number));
        assert!(more.all(|key| !key.starts_with(&long)), "longer than that");
    }

    #[test]
    fn aim_has_every_second_key_of_each_kind_lie_where_too_few_would() {
        let mut keys = Keys::new(77);
        keys.add_stem(b"drilled".to_vec());
        let count = |keys: &Keys| {
            let own = (1..=630).map(|number| keys.own(1, number));
            let shared = (0..Keys::SHARED).map(|number| keys.shared(1, number));
            let count = |all: Vec<Vec<u8>>| all.iter().filter(|key| key.starts_with(b"drilled")).count();
            (count(own.collect()), count(shared.collect()))
        };
        assert_eq!(count(&keys).0, 10);
        let sixteen: Vec<usize> = (0..16).collect();
        keys.aim(sixteen);
        assert_eq!(count(&keys).0, 10, "a quarter lies there by itself");
        keys.aim(vec![FIRST.len()]);
        assert_eq!(count(&keys), (320, 15));
        let all: std::collections::BTreeSet<_> = (1..=630).map(|number| keys.own(1, number)).collect();
        assert_eq!(all.len(), 630, "each is another one");
        let stems: std::collections::BTreeSet<_> = all.iter().map(|key| keys.stem_of(key)).collect();
        assert_eq!(stems.len(), 63, "the others are not left out");
    }

    /// In the order of the cases: between keys of other drills, at both ends, behind binary keys.
    #[test]
    fn stem_within_a_range_is_its_low_key_where_that_will_do() {
        let keys = Keys::new(0x00ab_0000_0000_0012);
        type Case = (&'static [u8], Option<&'static [u8]>, &'static [u8]);
        let cases: [Case; 8] = [
            (b"g-drill-4", Some(b"g-drill-9"), b"g-drill-4"),
            (b"m-load-000123", Some(b"m-load-0001234"), b"m-load-000123"),
            (b"", Some(b"0"), b""),
            (b"", Some(b"!"), b"\0"),
            (b"z\xff", None, b"z\xff"),
            (b"\xff\xff", None, b"\xff\xff"),
            (b"\x80\0\x01", Some(b"\x80\0\x02"), b"\x80\0\x01"),
            (b"x", Some(b"x!"), b"x\0"),
        ];
        for (low, high, stem) in cases {
            let found = keys.stem_within(low, high, 178);
            assert_eq!(found.as_deref(), Some(stem), "{}", low.escape_ascii());
        }
    }

    #[test]
    fn stem_within_a_range_without_room_for_a_key_is_none() {
        let keys = Keys::new(12);
        let one: &[(&[u8], &[u8])] =
            &[(b"a", b"a"), (b"b", b"a"), (b"a", b"a\0"), (b"a", b"a\0\0\0"), (b"", b"\0"), (b"", b"")];
        for (low, high) in one {
            assert_eq!(keys.stem_within(low, Some(high), 76), None, "{}", low.escape_ascii());
        }
        assert_eq!(keys.stem_within(b"", None, BEHIND_STEM - 1), None, "no key is as short as that");
        assert_eq!(keys.stem_within(&[0xff; 76], None, 76), None, "nothing of that length is behind it");
        // One that is full of this drill's keys, and none that it can have.
        let own = stem_prefix(12, b"a");
        assert_eq!(keys.stem_within(b"a", Some(&own), 76).as_deref(), Some(&b"a\0"[..]));
    }

    #[test]
    fn stem_within_a_range_that_begins_with_the_longest_key_is_behind_it_and_short_enough() {
        let keys = Keys::new(12);
        let low = [b'k'; 76];
        let stem = keys.stem_within(&low, Some(b"l"), 76).unwrap();
        assert_eq!((stem.len(), &stem[39..]), (76 - BEHIND_STEM, &b"kl"[..]));
        assert_eq!(keys.stem_within(&low, Some(&[&low[..75], b"z"].concat()), 76), None, "too near");
        // What is cut off is below the mark: the beginning will do.
        let low = [&[b'k'; 76 - BEHIND_STEM][..], b"!!!"].concat();
        assert_eq!(keys.stem_within(&low, Some(b"l"), 76).as_deref(), Some(&[b'k'; 76 - BEHIND_STEM][..]));
        let ends_high = [&[b'k'; 20][..], &[0xff; 56]].concat();
        let stem = keys.stem_within(&ends_high, Some(&[&[b'k'; 19][..], b"l!"].concat()), 76).unwrap();
        assert_eq!(stem, [&[b'k'; 19][..], b"l", &[0; 76 - BEHIND_STEM - 20]].concat());
    }

    /// Whether all keys at a stem lie in a range.
    fn lie_within(stem: &[u8], low: &[u8], high: &[u8]) -> bool {
        let prefix = stem_prefix(12, stem);
        let last = [&prefix[..], &[0xff; REST_BYTES]].concat();
        *prefix >= *low && *last < *high
    }

    /// Against all stems of up to two of some bytes.
    #[test]
    fn stem_within_a_range_is_found_wherever_there_is_one_and_lies_there() {
        let words = |bytes_max: usize| {
            let (mut words, mut longest) = (vec![Vec::new()], vec![Vec::new()]);
            for _ in 0..bytes_max {
                let longer = longest.iter().flat_map(|word: &Vec<u8>| {
                    [0, b'-', b'a', 0xff].map(|byte| [&word[..], &[byte]].concat())
                });
                longest = longer.collect();
                words.extend(longest.iter().cloned());
            }
            words
        };
        let (keys, key_bytes_max) = (Keys::new(12), BEHIND_STEM + 2);
        let (mut found_some, stems, ends) = (0, words(2), words(3));
        for low in &ends {
            for high in &ends {
                let is_one = stems.iter().any(|stem| lie_within(stem, low, high));
                match keys.stem_within(low, Some(high), key_bytes_max) {
                    None => assert!(!is_one, "{} to {}", low.escape_ascii(), high.escape_ascii()),
                    Some(stem) => {
                        assert!(
                            lie_within(&stem, low, high),
                            "{} to {}",
                            low.escape_ascii(),
                            high.escape_ascii()
                        );
                        assert!(stem.len() <= 2);
                        found_some += 1;
                    }
                }
            }
        }
        assert!(found_some > 1_000, "{found_some}");
    }

    /// An entry of a user is none, whatever is in it but for what drills write.
    #[test]
    fn stem_of_entry_knows_the_entries_of_added_stems_and_nobody_elses() {
        let run = 0x00ab_0000_0000_0012;
        let cases: [(usize, &[u8]); 3] = [(0, b"g-drill-4"), (63, b""), (7, b"\xff\0")];
        for (number, stem) in cases {
            let (key, value) = stem_entry(run, number, stem);
            assert_eq!(stem_of_entry(&key, &value), Some((run, stem.to_vec())));
            assert!(run_of_key(&key).is_none() && run_that_goes_on(&key).is_none());
            assert!(!Keys::new(run).is_own(&key) && key.starts_with(STEMS_PREFIX));
            assert_eq!(stem_of_entry(&key, b"mine"), None);
            assert_eq!(stem_of_entry(&key, b""), None);
        }
        let (_, value) = stem_entry(run, 0, b"a");
        for key in [
            "0-drilled-",
            "0-drilled-00ab000000000012",
            "0-drilled-00ab000000000012-",
            "0-drilled-00ab000000000012-00",
            "0-drilled-00ab000000000012-0000",
            "0-drilled-00AB000000000012-000",
            "0-drilled-+0ab000000000012-000",
            "0-drilled-00ab000000000012-+00",
            "1-drilled-00ab000000000012-000",
        ] {
            assert_eq!(stem_of_entry(key.as_bytes(), &value), None, "{key}");
        }
    }

    #[test]
    fn run_of_key_at_a_stem_is_of_the_keys_at_it_alone() {
        let mut keys = Keys::new(77);
        keys.add_stem(b"user-7".to_vec());
        keys.aim(vec![FIRST.len()]);
        let own = keys.own(0, 1);
        assert!(own.starts_with(&stem_prefix(77, b"user-7")));
        assert_eq!(run_of_key_at(b"user-7", &own), Some(77));
        assert_eq!((run_of_key_at(b"user-", &own), run_of_key_at(b"", &own)), (None, None));
        assert_eq!(run_of_key_at(b"user-7", b"user-7-drill-report"), None);
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
