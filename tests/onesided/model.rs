//! Operations of every kind against a model, by each way of searching, while the tree grows over
//! meganodes under them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use cell_client::{Client, ClientError, Condition, Operation, ScanEntry, ScanRange, Search, Transport};
use cell_tests::dice::Dice;
use cell_tests::linearizability::payload;
use cell_tests::server::Server;

use crate::onesided::clients::{PATIENCE, client, fell_back_within_time};

/// Small slots: some hundred entries split a meganode.
const SLOTS: [&str; 4] = ["--slot-bytes", "64KiB", "--node-region-bytes", "8MiB"];
/// Places of the key space at which the client under test has its keys.
const PLACES: u64 = 300;
/// Places of the entries that make the tree grow, between those.
const FILLING: u64 = PLACES * 1_000;
/// Entries that come beside one operation of the client under test.
const GROWTH: u64 = 40;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// So many operations by each way of searching, or more, until splits have been met.
pub(crate) fn operations_are_the_models(transport: Transport, flags: &[&str], operations: u32) {
    let server = Server::start_steady(&[&SLOTS[..], flags].concat());
    let mut all = Entries::new();
    std::thread::scope(|scope| {
        // The tree grows as long as somebody asks for it, by a panic no longer.
        let (grow, growths) = channel();
        let growing = scope.spawn(|| keep_growing(client(&server, transport, Search::Server), growths));
        for (name, search) in [("a", Search::Server), ("b", Search::Client), ("c", Search::Auto)] {
            let mut checked = Checked::new(client(&server, transport, search), name);
            let before = splits(&mut checked.client);
            let began = now();
            let mut done = 0;
            while done < operations || splits(&mut checked.client) == before {
                assert!(began.elapsed() < PATIENCE, "no meganode was split beside {done} operations");
                grow.send(()).expect("the tree grows");
                checked.operate();
                done += 1;
            }
            checked.check_range(0, PLACES, false);
            checked.check_range(0, PLACES, true);
            let split = splits(&mut checked.client) - before;
            println!("{transport:?}, {search:?}: {done} operations beside {split} splits");
            checked.check_who_searched(search);
            all.append(&mut checked.entries);
        }
        drop(grow);
        all.append(&mut growing.join().expect("the tree grew"));
    });
    for reverse in [false, true] {
        let mut scanning = client(&server, transport, Search::Client);
        let range = ScanRange { reverse, ..ScanRange::default() };
        let found = scanning.scan(range).map(|entry| entry.expect("an entry"));
        let found: Entries = found.map(|entry| (entry.key, entry.value)).collect();
        assert!(found == all, "{} entries of {}", found.len(), all.len());
    }
}

#[allow(clippy::disallowed_methods, reason = "real processes have real time")]
fn now() -> Instant {
    Instant::now()
}

/// Splits that the server has finished.
fn splits(client: &mut Client) -> u64 {
    client.tree(0).expect("a shape").report().splits[1]
}

fn key(place: u64, name: &str) -> Vec<u8> {
    format!("key-{place:06}-{name}").into_bytes()
}

/// Writes some entries each time that it is asked to.
fn keep_growing(mut client: Client, growths: Receiver<()>) -> Entries {
    let mut entries = Entries::new();
    let mut dice = Dice::new(7);
    while growths.recv().is_ok() {
        // Two puts under way to one key may be done in any order.
        let places: BTreeSet<u64> = (0..GROWTH).map(|_| dice.below(FILLING)).collect();
        for place in places {
            let (key, value) = (key(place, "filling"), payload::encode(211 * dice.below(100)));
            let put = Operation::Put { key: &key, value: &value, condition: Condition::Always };
            client.submit(&put).expect("there is room for a few");
            entries.insert(key, value);
        }
        while let Some(completion) = client.poll(PATIENCE) {
            completion.outcome.expect("it is written");
        }
    }
    entries
}

/// A client, and what it should find of its own entries.
struct Checked {
    client: Client,
    name: &'static str,
    entries: Entries,
    dice: Dice,
    values: u64,
}

impl Checked {
    fn new(client: Client, name: &'static str) -> Checked {
        let seed = u64::from(name.as_bytes()[0]) << 20;
        Checked { client, name, entries: Entries::new(), dice: Dice::new(seed), values: 0 }
    }

    fn any_key(&mut self) -> Vec<u8> {
        key(self.dice.below(PLACES) * (FILLING / PLACES), self.name)
    }

    /// Another value: now and then one that takes many messages, or many reads.
    fn any_value(&mut self) -> Vec<u8> {
        self.values += 1;
        payload::encode(211 * self.values + if self.dice.below(12) == 0 { 7 } else { 0 })
    }

    fn operate(&mut self) {
        match self.dice.below(10) {
            0..=2 => self.put(Condition::Always),
            3 => self.put(Condition::IfAbsent),
            4 => self.delete(),
            5 | 6 => self.get(),
            7 => self.multi_get(),
            which => {
                let (one, other) = (self.dice.below(PLACES), self.dice.below(PLACES));
                self.check_range(one.min(other), one.max(other), which == 8);
            }
        }
    }

    fn put(&mut self, condition: Condition) {
        let (key, value) = (self.any_key(), self.any_value());
        let is_there = self.entries.contains_key(&key);
        match self.client.put_if(&key, &value, condition) {
            Ok(version) => {
                assert!(condition == Condition::Always || !is_there);
                let item = self.client.get(&key).expect("a get").expect("what was written is there");
                assert!(item.version == version && item.value == value, "what was written is found");
                self.entries.insert(key, value);
            }
            Err(ClientError::ConditionFailed { .. }) => assert!(condition != Condition::Always && is_there),
            Err(error) => panic!("{error}"),
        }
    }

    fn delete(&mut self) {
        let key = self.any_key();
        let existed = self.client.delete(&key).expect("a removal");
        assert_eq!(existed, self.entries.remove(&key).is_some());
        assert_eq!(self.client.get(&key).expect("a get"), None);
    }

    fn get(&mut self) {
        let key = self.any_key();
        let found = self.client.get(&key).expect("a get").map(|item| item.value);
        assert!(found.as_ref() == self.entries.get(&key), "{}", key.escape_ascii());
        assert_eq!(self.client.search(&key).expect("a search"), found.is_some());
    }

    fn multi_get(&mut self) {
        let keys: Vec<_> = (0..30).map(|_| self.any_key()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let found = self.client.multi_get(&keys).expect("a multi-get");
        let found: Vec<_> = found.into_iter().map(|item| item.map(|item| item.value)).collect();
        let expected: Vec<_> = keys.iter().map(|key| self.entries.get(*key).cloned()).collect();
        assert!(found == expected, "{} entries of 30", found.iter().flatten().count());
    }

    /// Scans from one place to another, in pages, perhaps to a limit. The entries of others between its own
    /// come and go.
    fn check_range(&mut self, from: u64, to: u64, reverse: bool) {
        let [low, high] = [from, to].map(|place| key(place * (FILLING / PLACES), ""));
        let limit = if self.dice.below(2) == 0 { u64::MAX } else { 25 };
        let keys_only = self.dice.below(3) == 0;
        let (start, end) = (Bound::Included(low.clone()), Bound::Excluded(high.clone()));
        let range = ScanRange { start, end, reverse, keys_only, limit, page_entries: 200 };
        let found: Vec<ScanEntry> = self.client.scan(range).map(|entry| entry.expect("an entry")).collect();
        let in_order = |pair: &[ScanEntry]| (pair[0].key < pair[1].key) != reverse;
        assert!(found.windows(2).all(in_order), "entries come in order, each once");
        // A scan that came to its limit covers the range up to its last entry.
        let cut = found.last().filter(|_| found.len() as u64 == limit).map(|entry| &entry.key);
        let is_covered = |key: &Vec<u8>| cut.is_none_or(|cut| if reverse { key >= cut } else { key <= cut });
        let own = self.entries.range(low..high).filter(|(key, _)| is_covered(key));
        let mut expected: Vec<_> = own.collect();
        if reverse {
            expected.reverse();
        }
        let suffix = format!("-{}", self.name).into_bytes();
        let found: Vec<_> = found.iter().filter(|entry| entry.key.ends_with(&suffix)).collect();
        assert_eq!(found.len(), expected.len(), "{from} to {to}, reverse {reverse}, limit {limit}");
        for (entry, (key, value)) in found.into_iter().zip(expected) {
            assert!(entry.key == *key && entry.value_len as usize == value.len());
            assert!(keys_only || entry.value == *value, "{}", key.escape_ascii());
        }
    }

    /// Who searched is who was to.
    fn check_who_searched(&self, search: Search) {
        let counters = self.client.one_sided_counters();
        let decisions = self.client.selector_report().map(|report| report.decisions);
        println!("    {counters:?}\n    {decisions:?}");
        match search {
            Search::Server => assert!(counters.is_none() && decisions.is_none()),
            Search::Client => {
                assert!(counters.is_some_and(|counters| counters.done > fell_back_within_time(counters)));
            }
            Search::Auto => assert!(decisions.is_some_and(|made| made.server + made.one_sided > 0)),
        }
    }
}
