//! What the clients do: few hot and many cold keys, and keys that ascend; every kind of operation; values
//! from nothing to some hundred thousand bytes.

use std::collections::BTreeSet;

use cell_protocol::Condition;
use cell_random::Random;
use cell_tests::linearizability::{Call, WrittenValue};

use crate::action::{Action, End, Range};
use crate::model::{EMPTY, Model};
use crate::plan::Plan;

/// Writes of one key that are outstanding at once, at most: the checker tries their orders.
const WRITING_MAX: u32 = 6;
/// Writes of one key whose outcome is unknown, at most, for the same reason.
const UNKNOWN_MAX: usize = 400;

/// The keys of a run: hot ones first, then cold, then ascending ones.
#[must_use]
pub fn keys(plan: &Plan, random: &mut Random) -> Vec<Vec<u8>> {
    let key_max = plan.worker.key_bytes_max();
    let mut keys: Vec<Vec<u8>> = (0..plan.keys_hot).map(|hot| format!("hot-{hot}").into_bytes()).collect();
    let mut seen: BTreeSet<Vec<u8>> = keys.iter().cloned().collect();
    while keys.len() < plan.keys_hot + plan.keys_cold {
        let key = cold_key(key_max, random);
        if seen.insert(key.clone()) {
            keys.push(key);
        }
    }
    let ascending = (0..plan.keys_ascending).map(|number| format!("seq/{number:08}").into_bytes());
    keys.extend(ascending);
    keys
}

/// Whether the checker would have too many orders to try with one more write of a key.
fn is_much_written(model: &Model, key: usize) -> bool {
    let key = &model.keys[key];
    key.writing >= WRITING_MAX || key.unknown >= UNKNOWN_MAX
}

/// Few letters, so that prefixes are shared; any length.
fn cold_key(key_max: usize, random: &mut Random) -> Vec<u8> {
    let length = match random.below(10) {
        0 => key_max,
        1 => random.between(1, key_max as u64) as usize,
        _ => random.between(2, 24).min(key_max as u64) as usize,
    };
    let letters: &[u8] = random.pick(&[&b"ab"[..], b"abcdefgh", b"\0\xff", b"hot-0123456789"]);
    (0..length).map(|_| random.pick(letters)).collect()
}

/// Chooses actions.
#[derive(Debug)]
pub struct Traffic {
    random: Random,
    ascended: usize,
    values_large: bool,
    writes: u64,
    /// Ascending keys that were deleted, the oldest first.
    dropped: usize,
    /// Keys that are still to be deleted, the last first.
    doomed: Vec<usize>,
    /// Reads that take the place of most writes, once all is deleted.
    pauses: u32,
}

/// Where entries come and go by turns, a turn has so many writes.
const TURN: u64 = 400;
/// Where all is deleted, that begins with each so many-th write, and so many reads follow.
const EMPTIED_EACH: u64 = 700;
const PAUSES: u32 = 300;

impl Traffic {
    /// The traffic of a run.
    #[must_use]
    pub fn new(mut random: Random) -> Traffic {
        let values_large = random.percent(60);
        let (doomed, pauses) = (Vec::new(), 0);
        Traffic { random, ascended: 0, values_large, writes: 0, dropped: 0, doomed, pauses }
    }

    /// What a client does next.
    pub fn next(&mut self, plan: &Plan, model: &mut Model) -> Action {
        match self.random.weighted(&[420, 260, 70, 40, 120, 1]) {
            0 => self.write(plan, model),
            1 => Action::Get(self.key(plan)),
            2 => Action::Search(self.key(plan)),
            3 => {
                let count = self.random.between(1, 20);
                Action::MultiGet((0..count).map(|_| self.key(plan)).collect())
            }
            4 => Action::Scan(self.range(plan, model)),
            _ => Action::Check,
        }
    }

    fn key(&mut self, plan: &Plan) -> usize {
        let ascending = plan.keys_ascending as u64;
        match self.random.weighted(&[45, 45, if ascending > 0 { 10 } else { 0 }]) {
            0 => self.random.index(plan.keys_hot),
            1 => plan.keys_hot + self.random.index(plan.keys_cold),
            _ => plan.keys_hot + plan.keys_cold + self.random.index(plan.keys_ascending),
        }
    }

    /// The next ascending key, as a loader of sorted data would have it; another one when all are there.
    fn key_to_write(&mut self, plan: &Plan) -> usize {
        if self.ascended < plan.keys_ascending && self.random.percent(30) {
            self.ascended += 1;
            return plan.keys_hot + plan.keys_cold + self.ascended - 1;
        }
        self.key(plan)
    }

    /// The oldest of the ascending keys, or any.
    fn key_to_delete(&mut self, plan: &Plan) -> usize {
        if self.dropped < self.ascended && self.random.percent(50) {
            self.dropped += 1;
            return plan.keys_hot + plan.keys_cold + self.dropped - 1;
        }
        self.key(plan)
    }

    /// What empties the store, in the order of the keys; none: nothing does now.
    fn empty(&mut self, plan: &Plan, model: &Model) -> Option<Action> {
        if plan.empties && self.writes % EMPTIED_EACH == EMPTIED_EACH - 1 {
            self.writes += 1;
            self.doomed = (0..model.keys.len()).collect();
            self.doomed.sort_by(|one, other| model.keys[*other].bytes.cmp(&model.keys[*one].bytes));
            self.pauses = PAUSES;
        }
        let is_free = |key: &usize| !is_much_written(model, *key);
        // One that nobody has written need not be deleted.
        while self.doomed.pop_if(|key| model.keys[*key].latest.is_none() && is_free(key)).is_some() {}
        if let Some(key) = self.doomed.pop() {
            if model.keys[key].writing >= WRITING_MAX {
                self.doomed.insert(0, key);
            }
            if !is_free(&key) {
                return Some(Action::Get(key));
            }
            let (call, condition) = (Call::Delete, Condition::Always);
            return Some(Action::Write { key, call, condition, value: Vec::new() });
        }
        self.pauses = self.pauses.checked_sub(1)?;
        // Some writes come while what is empty is merged.
        if self.random.percent(10) {
            return None;
        }
        Some(Action::Get(self.key(plan)))
    }

    fn write(&mut self, plan: &Plan, model: &mut Model) -> Action {
        if let Some(action) = self.empty(plan, model) {
            return action;
        }
        self.writes += 1;
        let thins_out = plan.thins_out && self.writes / TURN % 2 == 1;
        let key = if thins_out { self.key_to_delete(plan) } else { self.key_to_write(plan) };
        if is_much_written(model, key) {
            return Action::Get(key);
        }
        let known = model.keys[key].latest.filter(|(_, value)| *value != EMPTY);
        let kinds = if thins_out { [8, 2, 1, 3, 80, 6] } else { [50, 10, 6, 14, 14, 6] };
        let kind = self.random.weighted(&kinds);
        let (length, value_of) = (self.value_length(plan), |value: WrittenValue| value);
        let put = |call: fn(WrittenValue) -> Call, condition, model: &mut Model| {
            let (name, value) = model.new_value(length);
            Action::Write { key, call: call(value_of(name)), condition, value }
        };
        match (kind, known) {
            (1, _) => put(Call::PutIfAbsent, Condition::IfAbsent, model),
            (2, _) => put(Call::PutIfPresent, Condition::IfPresent, model),
            (3, Some((version, expected))) => {
                let (value, bytes) = model.new_value(length);
                let call = Call::Replace { expected, value };
                Action::Write { key, call, condition: Condition::IfVersion(version), value: bytes }
            }
            (4, _) => {
                Action::Write { key, call: Call::Delete, condition: Condition::Always, value: Vec::new() }
            }
            (5, Some((version, expected))) => {
                let condition = Condition::IfVersion(version);
                Action::Write { key, call: Call::Remove(expected), condition, value: Vec::new() }
            }
            _ => put(Call::Put, Condition::Always, model),
        }
    }

    fn value_length(&mut self, plan: &Plan) -> usize {
        let most = plan.value_bytes_max as u64;
        let length = match self.random.weighted(&[5, 60, 27, 6, if self.values_large { 2 } else { 0 }]) {
            0 => 0,
            1 => self.random.between(8, 100),
            2 => self.random.between(100, 500),
            3 => self.random.between(500, 8_000),
            _ => self.random.between(8_000, most),
        };
        usize::try_from(length.min(most)).unwrap_or(0)
    }

    fn range(&mut self, plan: &Plan, model: &Model) -> Range {
        let end = |this: &mut Traffic| -> End {
            match this.random.below(8) {
                0 => None,
                1 => Some((vec![this.random.pick(b"ahs\0\xff")], this.random.percent(50))),
                2 => Some((vec![b'h'; 900], this.random.percent(50))),
                _ => Some((model.keys[this.key(plan)].bytes.clone(), this.random.percent(50))),
            }
        };
        let (mut start, mut stop) = (end(self), end(self));
        if let (Some((low, _)), Some((high, _))) = (&start, &stop)
            && low > high
            && !self.random.percent(3)
        {
            std::mem::swap(&mut start, &mut stop);
        }
        Range {
            start,
            end: stop,
            reverse: self.random.percent(50),
            keys_only: self.random.percent(20),
            limit_entries: self.random.pick(&[1, 3, 10, 10, 40, 0]),
            limit_bytes: self.random.pick(&[0, 0, 0, 100, 4_000]),
        }
    }
}
