//! Where a drill's keys are to lie: in every pair that one fits into, and often enough in those of the node
//! that is drilled. A pair may have been made by a split between two keys of other drills, or of users.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use cell_client::{Bound, Client, MeganodeUse, Operation, Output, Scan, Search};

use crate::error::DrillError;
use crate::keys::{Keys, stem_prefix};
use crate::load::{Target, call};
use crate::wire::Status;

/// Pages that a drill looks at for stems to be added: one a pair as a rule. It takes more where a range
/// begins with a key that is longer than what a node reports of it.
const PAGES_MAX: usize = 1_000;
/// Stems that are added at most.
const ADDED_MAX: usize = 64;
/// How long an answer may take: a pair that nobody serves is not waited for.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// As many entries as the server gives.
const WHOLE_PAGE: u32 = 0;

/// Keys in a row that are of one pair.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stretch {
    pair: u32,
    /// Where it is known to end; none: it has all keys from its begin on.
    end: Option<Vec<u8>>,
}

/// Where a range of a pair begins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RangeBegin {
    pair: u32,
    /// The lowest key, or the first bytes of it.
    low: Vec<u8>,
    /// Whether it is all of it.
    is_whole: bool,
}

/// Where keys lie. The cluster's word in production, a map in tests.
trait Ranges {
    /// The keys from one on, with at most so many entries.
    fn stretch(&mut self, from: &[u8], entries_max: u32) -> Result<Stretch, DrillError>;

    /// Where the ranges of all pairs begin.
    fn begins(&mut self) -> Result<Vec<RangeBegin>, DrillError>;
}

/// The pairs of a cluster.
#[derive(Clone, Debug, Default)]
struct Owned {
    all: BTreeSet<u32>,
    /// Those of the node that is drilled; none: all are alike.
    drilled: BTreeSet<u32>,
}

/// The keys of a drill of this number, of a node or of all, in the cluster of this status.
pub(crate) fn keys_of(
    run: u64,
    target: &Target,
    status: &Status,
    node: Option<u16>,
    interrupted: &AtomicBool,
) -> Result<Keys, DrillError> {
    let client = target.connect(Search::Server, ANSWER_PATIENCE)?;
    let key_bytes_max = client.server().map_or(0, |server| server.limits.key_bytes_max);
    let living = status.nodes.iter().filter(|node| node.pid.is_some());
    let servers = living.map(|node| status.server_of(node)).collect();
    let owned = status.pairs.iter().filter(|pair| pair.owner.is_some());
    let is_drilled = |of: u32| node.is_some_and(|node| u32::from(node) == of);
    let owned = Owned {
        all: owned.clone().map(|pair| pair.pair).collect(),
        drilled: owned.filter(|pair| is_drilled(pair.node)).map(|pair| pair.pair).collect(),
    };
    let mut cluster = Cluster { target, client, servers, interrupted };
    let key_bytes_max = usize::try_from(key_bytes_max).unwrap_or(usize::MAX);
    choose_as_far_as_known(&mut cluster, run, &owned, key_bytes_max)
}

/// Chooses keys. Where somebody does not say what he has, as while nobody serves a pair, they are those that
/// all drills have.
fn choose_as_far_as_known(
    ranges: &mut dyn Ranges,
    run: u64,
    owned: &Owned,
    key_bytes_max: usize,
) -> Result<Keys, DrillError> {
    match choose(ranges, Keys::new(run), owned, key_bytes_max) {
        Err(DrillError::Client(_)) => Ok(Keys::new(run)),
        chosen => chosen,
    }
}

/// Adds stems in pairs that have none, and aims at what is drilled.
fn choose(
    ranges: &mut dyn Ranges,
    mut keys: Keys,
    owned: &Owned,
    key_bytes_max: usize,
) -> Result<Keys, DrillError> {
    let mut pairs = Vec::new(); // of each stem
    for stem in keys.stems() {
        pairs.push(ranges.stretch(&stem_prefix(keys.run(), stem), 1)?.pair);
    }
    let are_lacking = owned.all.iter().any(|pair| !pairs.contains(pair));
    let mut begins = if are_lacking { ranges.begins()? } else { Vec::new() };
    begins.sort_by_key(|begin| !owned.drilled.contains(&begin.pair));
    let mut pages_left = PAGES_MAX;
    for begin in begins {
        if pairs.contains(&begin.pair) || keys.added_stems().len() == ADDED_MAX {
            continue;
        }
        if let Some(stem) = stem_in(ranges, &keys, &begin, key_bytes_max, &mut pages_left)? {
            keys.add_stem(stem);
            pairs.push(begin.pair);
        }
    }
    let stems = (0..).zip(&pairs).filter(|(_, pair)| owned.drilled.contains(pair));
    keys.aim(stems.map(|(number, _)| number).collect());
    Ok(keys)
}

/// A stem in a range, if one fits and it is found within so many pages.
fn stem_in(
    ranges: &mut dyn Ranges,
    keys: &Keys,
    begin: &RangeBegin,
    key_bytes_max: usize,
    pages_left: &mut usize,
) -> Result<Option<Vec<u8>>, DrillError> {
    let mut from = begin.low.clone();
    while *pages_left > 0 {
        *pages_left -= 1;
        let Stretch { pair, end } = ranges.stretch(&from, WHOLE_PAGE)?;
        let is_there = pair == begin.pair;
        let stem = keys.stem_within(&from, end.as_deref(), key_bytes_max).filter(|_| is_there);
        if stem.is_some() {
            return Ok(stem);
        }
        // Nothing fits before the end of the page; or the range begins further on, with a longer key.
        match end {
            Some(end) if is_there || !begin.is_whole && end.starts_with(&begin.low) => from = end,
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// A cluster that is asked.
struct Cluster<'a> {
    target: &'a Target,
    client: Client,
    /// Of each node that has a process.
    servers: Vec<String>,
    interrupted: &'a AtomicBool,
}

impl Ranges for Cluster<'_> {
    fn stretch(&mut self, from: &[u8], entries_max: u32) -> Result<Stretch, DrillError> {
        let start = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        let scan = Scan { start, keys_only: true, limit_entries: entries_max, ..Scan::default() };
        let Output::Page(page) = call(&mut self.client, &Operation::Scan(scan), self.interrupted)? else {
            unreachable!("a scan gives a page")
        };
        let pair = page.pair().map_or(0, |pair| pair.0);
        Ok(Stretch { pair, end: page.resume().key().map(<[u8]>::to_vec) })
    }

    fn begins(&mut self) -> Result<Vec<RangeBegin>, DrillError> {
        let mut begins = Vec::new();
        for server in &self.servers {
            let target = Target { servers: server.clone(), options: self.target.options.clone() };
            let client = target.connect(Search::Server, ANSWER_PATIENCE);
            let added = client.and_then(|mut client| add_begins(&mut client, self.interrupted, &mut begins));
            match added {
                // A node that ends just now has its pairs taken over: they are drilled as they are.
                Ok(()) | Err(DrillError::Client(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(begins)
    }
}

/// Adds those of the node that a client leads to.
fn add_begins(
    client: &mut Client,
    interrupted: &AtomicBool,
    begins: &mut Vec<RangeBegin>,
) -> Result<(), DrillError> {
    let mut count = 0_usize;
    loop {
        let tree = Operation::Tree { from: u32::try_from(count).unwrap_or(u32::MAX) };
        let Output::Tree(kept) = call(client, &tree, interrupted)? else {
            unreachable!("a question for the tree gives its shape")
        };
        let report = kept.report();
        for row in report.rows.iter().filter(|row| row.used == MeganodeUse::Leaf) {
            let len = usize::from(row.low_len);
            let low = row.low[..len.min(row.low.len())].to_vec();
            begins.push(RangeBegin { pair: row.pair.0, low, is_whole: len <= row.low.len() });
        }
        count += report.rows.len();
        if report.rows.is_empty() || u32::try_from(count).unwrap_or(u32::MAX) >= report.meganodes {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound as Limit;

    use cell_client::ClientError;

    use super::*;

    /// Pairs by the lowest keys of their ranges, and entries.
    #[derive(Default)]
    struct Map {
        lows: BTreeMap<Vec<u8>, u32>,
        entries: BTreeSet<Vec<u8>>,
        pages: usize,
    }

    /// Entries of a page, and bytes of a low key that are reported.
    const PAGE: usize = 4;
    const REPORTED: usize = 32;

    impl Map {
        fn new(lows: &[(&[u8], u32)]) -> Map {
            let lows = lows.iter().map(|(low, pair)| (low.to_vec(), *pair)).collect();
            Map { lows, ..Map::default() }
        }

        fn pair_of(&self, key: &[u8]) -> u32 {
            let upto = (Limit::Unbounded, Limit::Included(key));
            *self.lows.range::<[u8], _>(upto).next_back().unwrap().1
        }
    }

    impl Ranges for Map {
        fn stretch(&mut self, from: &[u8], entries_max: u32) -> Result<Stretch, DrillError> {
            self.pages += usize::from(entries_max == WHOLE_PAGE);
            let pair = self.pair_of(from);
            let fence = self.lows.iter().find(|(low, of)| low[..] > *from && **of != pair);
            let wanted = usize::try_from(entries_max).unwrap();
            let wanted = if wanted == 0 { PAGE } else { wanted };
            let next = self.entries.iter().filter(|key| key[..] >= *from).nth(wanted);
            Ok(Stretch { pair, end: fence.map(|(low, _)| low).into_iter().chain(next).min().cloned() })
        }

        fn begins(&mut self) -> Result<Vec<RangeBegin>, DrillError> {
            let begin = |(low, pair): (&Vec<u8>, &u32)| RangeBegin {
                pair: *pair,
                low: low[..low.len().min(REPORTED)].to_vec(),
                is_whole: low.len() <= REPORTED,
            };
            Ok(self.lows.iter().map(begin).collect())
        }
    }

    const RUN: u64 = 0xf000_0000_0000_0012;

    /// The keys of a drill of these pairs; `all` are the cluster's.
    fn chosen(map: &mut Map, all: &[u32], drilled: &[u32]) -> Keys {
        let owned = Owned { all: all.iter().copied().collect(), drilled: drilled.iter().copied().collect() };
        choose(map, Keys::new(RUN), &owned, 178).unwrap()
    }

    /// Of some keys of each kind, those that lie in a pair.
    fn share_in(map: &Map, keys: &Keys, pair: u32) -> (usize, usize) {
        let own = (1..=300).map(|number| keys.own(2, number));
        let all: BTreeSet<_> = own.chain((0..Keys::SHARED).map(|number| keys.shared(2, number))).collect();
        (all.iter().filter(|key| map.pair_of(key) == pair).count(), all.len())
    }

    #[test]
    fn choose_adds_nothing_where_each_pair_has_keys_and_aims_at_a_small_share_alone() {
        let mut map = Map::new(&[(b"", 1), (b"U", 2), (b"m", 3)]);
        let keys = chosen(&mut map, &[1, 2, 3], &[2]);
        assert!(keys.added_stems().is_empty());
        let (there, all) = share_in(&map, &keys, 2);
        assert!(there * 4 > all && there * 3 < all, "{there} of {all} lie there by themselves");
        let mut map = Map::new(&[(b"", 1), (b"m", 2), (b"p", 3)]);
        let keys = chosen(&mut map, &[1, 2, 3], &[2]);
        let (there, all) = share_in(&map, &keys, 2);
        assert!(keys.added_stems().is_empty() && there * 2 >= all, "{there} of {all}");
        assert_eq!(map.pages, 0);
    }

    /// Such a node could not be drilled at all.
    #[test]
    fn choose_adds_a_stem_in_a_pair_between_two_keys_of_drills() {
        let mut map = Map::new(&[(b"", 1), (b"g-drill-4", 2), (b"g-drill-9", 1), (b"m", 3)]);
        let keys = chosen(&mut map, &[1, 2, 3], &[2]);
        assert_eq!(keys.added_stems(), [b"g-drill-4".to_vec()]);
        let (there, all) = share_in(&map, &keys, 2);
        assert!(there * 20 > all * 9, "{there} of {all}");
        assert_eq!(map.pages, 1);
    }

    #[test]
    fn choose_adds_stems_in_what_others_own_too_and_aims_at_none_of_all() {
        let mut map = Map::new(&[(b"", 1), (b"g-drill-4", 2), (b"g-drill-9", 1), (b"m-x", 3), (b"m-y", 1)]);
        for drilled in [&[1][..], &[]] {
            let keys = chosen(&mut map, &[1, 2, 3], drilled);
            assert_eq!(keys.added_stems(), [b"g-drill-4".to_vec(), b"m-x".to_vec()]);
            let (there, all) = share_in(&map, &keys, 2);
            assert!(there > 0 && there * 20 < all, "{there} of {all}");
        }
    }

    /// The range begins behind entries that begin as it does.
    #[test]
    fn choose_finds_a_range_whose_low_key_is_longer_than_what_is_reported() {
        let key = |number: u32| format!("g-drill-0123456789abcdef-02-{number:08}").into_bytes();
        let mut map = Map::new(&[(b"", 1), (&key(100), 2), (&key(200), 1)]);
        map.entries.extend((0..400).map(key));
        let keys = chosen(&mut map, &[1, 2], &[2]);
        assert_eq!(keys.added_stems(), [key(100)]);
        assert_eq!(map.pages, 100 / PAGE + 1);
        let (there, all) = share_in(&map, &keys, 2);
        assert!(there * 20 > all * 9, "{there} of {all}");
    }

    #[test]
    fn choose_goes_on_behind_entries_between_which_nothing_fits() {
        let mut map = Map::new(&[(b"", 1), (b"g\0", 2), (b"h", 1)]);
        // One entry behind the other, then room.
        map.entries.extend((1..=9).map(|zeros| [&b"g"[..], &vec![0; zeros]].concat()));
        map.lows.insert(b"g\0\0\x01".to_vec(), 1);
        assert_eq!(chosen(&mut map, &[1, 2], &[2]).added_stems(), [[&b"g"[..], &[0; 9]].concat()]);
        assert_eq!(map.pages, 3);
    }

    /// With more ranges the next one is taken; a pair without any, or without room for a key, gets no stem.
    #[test]
    fn choose_adds_none_where_no_key_fits() {
        let narrow: &[(&[u8], u32)] = &[(b"", 1), (b"g-x", 2), (b"g-x\0", 1), (b"\xff\xff\xff", 3)];
        let mut map = Map::new(narrow);
        let keys = chosen(&mut map, &[1, 2, 3, 4], &[2, 4]);
        assert_eq!(keys.added_stems(), [b"\xff\xff\xff".to_vec()]);
        assert_eq!(share_in(&map, &keys, 2).0, 0);
        map.lows.insert(b"k\x80".to_vec(), 2);
        map.lows.insert(b"k\x81".to_vec(), 1);
        let keys = chosen(&mut map, &[1, 2, 3, 4], &[2, 4]);
        assert_eq!(keys.added_stems(), [b"k\x80".to_vec(), b"\xff\xff\xff".to_vec()]);
        assert!(share_in(&map, &keys, 2).0 > 100);
    }

    /// Ranges of which one pair's are not known.
    struct Silent(DrillError);

    impl Ranges for Silent {
        fn stretch(&mut self, from: &[u8], _: u32) -> Result<Stretch, DrillError> {
            if from < &b"m"[..] {
                return Ok(Stretch { pair: 1, end: None });
            }
            Err(std::mem::replace(&mut self.0, DrillError::Supervisor("is asked again".to_owned())))
        }

        fn begins(&mut self) -> Result<Vec<RangeBegin>, DrillError> {
            unreachable!("it is not known which pairs have keys")
        }
    }

    /// The drill did not begin, a minute later.
    #[test]
    fn choose_beside_a_pair_that_nobody_serves_takes_the_keys_of_all_drills() {
        let owned = Owned { all: [1, 2].into(), drilled: [1].into() };
        let unserved = ClientError::Deadline { waited_ms: 5_000, last: None };
        let keys = choose_as_far_as_known(&mut Silent(unserved.into()), RUN, &owned, 178).unwrap();
        let usual = Keys::new(RUN);
        assert_eq!((keys.stems(), keys.own(2, 7)), (usual.stems(), usual.own(2, 7)));
        let stopped = choose_as_far_as_known(&mut Silent(DrillError::Interrupted), RUN, &owned, 178);
        assert!(matches!(stopped, Err(DrillError::Interrupted)), "{stopped:?}");
    }

    #[test]
    fn choose_looks_at_so_many_pages_at_most() {
        let key = |number: u32| format!("g-drill-0123456789abcdef-02-{number:08}").into_bytes();
        let mut map = Map::new(&[(b"", 1), (&key(9_000), 2), (&key(9_001), 1)]);
        map.entries.extend((0..9_100).map(key));
        assert!(chosen(&mut map, &[1, 2], &[2]).added_stems().is_empty());
        assert_eq!(map.pages, PAGES_MAX);
    }
}
