//! Is there an order of a key's operations that fits what every client was answered? (Wing and Gong, with
//! Lowe's memory of configurations already tried.) Keys are independent, so each is checked alone.
//!
//! An operation of unknown outcome may take effect at any time after its call, or never. Placing one is only
//! ever useful right before a known operation that does not fit without it: where the known one fits anyway
//! it either changes nothing, and the unknown one may come after it, or overwrites, and the unknown one may
//! stay away. And of several that are free to be placed and whose effects nobody can distinguish, any one
//! will do. An operation that changes nothing is placed as soon as it may come next and fits: any order in
//! which it comes later is an order with it here. A value that somebody has yet to find is not overwritten
//! unless it can be written once more. Writes are tried first whose effect must be seen first, so that an
//! order that exists is mostly found without turning back. These rules together keep histories with many
//! crashes, with many clients at one key, and with clients that wait for long while others go on, cheap.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::operation::{Call, HistoryOperation, Outcome, WrittenValue};

/// What a key holds.
type RegisterValue = Option<WrittenValue>;

/// How many operations of unknown outcome a key may have.
const UNKNOWN_MAX: usize = 512;
/// Configurations tried before the checker gives up: gigabytes of memory would help nobody.
const TRIED_MAX: usize = 4_000_000;
/// Unknown operations that may be needed to make one known operation fit: each enables the next.
const CHAIN_MAX: u32 = 3;

/// Why a key's history is no good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// No order explains it: in every order tried, this operation or one that overlaps it did not fit.
    NotLinearizable(HistoryOperation),
    /// More operations of unknown outcome than the checker keeps apart.
    TooWide,
    /// Neither an order nor a proof that there is none within the limit of configurations.
    Undecided,
}

/// How far an order has come: all known operations before `next` are placed but for those `left` behind.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Configuration {
    next: usize,
    left: Vec<usize>,
    unknown: Taken,
    state: RegisterValue,
}

/// Which of the operations of unknown outcome are placed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Taken([u64; UNKNOWN_MAX / 64]);

impl Taken {
    fn has(self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }

    fn with(mut self, index: usize) -> Taken {
        self.0[index / 64] |= 1 << (index % 64);
        self
    }
}

impl Configuration {
    fn has_placed(&self, index: usize) -> bool {
        index < self.next && self.left.binary_search(&index).is_err()
    }

    /// Notes that a known operation is placed.
    fn place(&mut self, index: usize) {
        if index < self.next {
            self.left.retain(|left| *left != index);
        } else {
            self.left.extend(self.next..index);
            self.next = index + 1;
        }
    }
}

impl Observed {
    /// Of each value that some operation depends on, who does, and who writes it.
    fn of(known: &[HistoryOperation], unknown: &[HistoryOperation]) -> HashMap<WrittenValue, Observed> {
        let mut all: HashMap<WrittenValue, Observed> = HashMap::new();
        for (index, operation) in known.iter().enumerate() {
            match (operation.call, operation.outcome) {
                (_, Outcome::Found(Some(found))) => all.entry(found).or_default().by.push(index),
                (Call::Replace { expected, .. } | Call::Remove(expected), Outcome::Done) => {
                    all.entry(expected).or_default().by.push(index);
                }
                (Call::Replace { expected, .. } | Call::Remove(expected), _) => {
                    all.entry(expected).or_default();
                }
                _ => {}
            }
        }
        for operation in unknown {
            if let Call::Replace { expected, .. } | Call::Remove(expected) = operation.call {
                all.entry(expected).or_default();
            }
        }
        let mut note = |operation: &HistoryOperation, note: &mut dyn FnMut(&mut Observed)| {
            if let Some(observed) = effect(operation.call).flatten().and_then(|value| all.get_mut(&value)) {
                note(observed);
            }
        };
        for (index, operation) in known.iter().enumerate().filter(|(_, each)| each.outcome == Outcome::Done) {
            note(operation, &mut |observed| observed.written_by.push(index));
        }
        for (index, operation) in unknown.iter().enumerate() {
            note(operation, &mut |observed| observed.perhaps_written_by.push(index));
        }
        all
    }
}

/// The state after an operation, if its outcome fits the state before.
fn step(state: RegisterValue, operation: &HistoryOperation) -> Option<RegisterValue> {
    let holds = match operation.call {
        Call::Get if operation.outcome == Outcome::Exists => return state.is_some().then_some(state),
        Call::Get => return (operation.outcome == Outcome::Found(state)).then_some(state),
        Call::Put(_) => true,
        Call::Delete | Call::PutIfPresent(_) => state.is_some(),
        Call::PutIfAbsent(_) => state.is_none(),
        Call::Replace { expected, .. } | Call::Remove(expected) => state == Some(expected),
    };
    match operation.outcome {
        // An unknown one, placed where its condition fails, is as good as not placed.
        Outcome::Done | Outcome::Unknown => effect(operation.call).filter(|_| holds),
        Outcome::Refused => (!holds).then_some(state),
        Outcome::Found(_) | Outcome::Exists => None,
    }
}

/// What a key holds after a write that has taken effect, whatever it held before.
fn effect(call: Call) -> Option<RegisterValue> {
    match call {
        Call::Get => None,
        Call::Put(value)
        | Call::PutIfAbsent(value)
        | Call::PutIfPresent(value)
        | Call::Replace { value, .. } => Some(Some(value)),
        Call::Delete | Call::Remove(_) => Some(None),
    }
}

/// Checks one key's operations, in any order, against a key that was `initial` before.
///
/// # Errors
/// The violation, if there is one.
pub fn check(operations: &[HistoryOperation], initial: Option<WrittenValue>) -> Result<(), Violation> {
    let search = Search::new(operations)?;
    let mut farthest = None;
    let mut tried = HashSet::new();
    let state = search.named(initial);
    let mut pending = vec![Configuration { next: 0, left: Vec::new(), unknown: Taken::default(), state }];
    while let Some(mut at) = pending.pop() {
        let (open, returned_min) = search.settle(&mut at);
        let Some(first) = open.first().copied() else { return Ok(()) };
        if !tried.insert(at.clone()) {
            continue;
        }
        if tried.len() > TRIED_MAX {
            return Err(Violation::Undecided);
        }
        farthest = farthest.max(Some(first));
        let mut open = open;
        open.sort_by_key(|index| Reverse(search.urgency[*index]));
        for index in open {
            for mut placed in search.place(&at, &search.known[index], returned_min, CHAIN_MAX) {
                placed.place(index);
                placed.state = search.named(placed.state);
                if !search.loses_awaited(&at, &placed) {
                    pending.push(placed);
                }
            }
        }
    }
    Err(Violation::NotLinearizable(search.known[farthest.unwrap_or(0)]))
}

/// A value that some operation's fitting depends on.
#[derive(Default)]
struct Observed {
    /// Known operations that fit only where the key holds it.
    by: Vec<usize>,
    /// Known operations that write it.
    written_by: Vec<usize>,
    /// Operations of unknown outcome that write it.
    perhaps_written_by: Vec<usize>,
}

/// A history, sorted for the search.
struct Search {
    known: Vec<HistoryOperation>,
    unknown: Vec<HistoryOperation>,
    /// Values that some operation's fitting depends on; others cannot be distinguished.
    observed: HashMap<WrittenValue, Observed>,
    /// A name for all other values.
    unobserved: WrittenValue,
    /// Of each known operation, when the first returns that needs its effect, or it itself.
    urgency: Vec<u64>,
}

impl Search {
    fn new(operations: &[HistoryOperation]) -> Result<Self, Violation> {
        let is_unknown = |each: &&HistoryOperation| each.outcome == Outcome::Unknown;
        let mut known: Vec<HistoryOperation> =
            operations.iter().filter(|each| !is_unknown(each)).copied().collect();
        known.sort_by_key(|each| each.invoked);
        let writes = operations.iter().filter(is_unknown).filter(|each| each.call != Call::Get);
        let unknown: Vec<HistoryOperation> = writes.copied().collect();
        if unknown.len() > UNKNOWN_MAX {
            return Err(Violation::TooWide);
        }
        let observed = Observed::of(&known, &unknown);
        let first_needed = |operation: &HistoryOperation| {
            let value = effect(operation.call).flatten().filter(|_| operation.outcome == Outcome::Done);
            let by = value.and_then(|value| observed.get(&value)).map_or(&[][..], |observed| &observed.by);
            by.iter().map(|index| known[*index].returned).fold(operation.returned, u64::min)
        };
        let urgency = known.iter().map(first_needed).collect();
        let unobserved = (0..).find(|name| !observed.contains_key(name)).unwrap_or_default();
        Ok(Self { known, unknown, observed, unobserved, urgency })
    }

    /// A state under the name that all have which nobody can distinguish from it.
    fn named(&self, state: RegisterValue) -> RegisterValue {
        state.map(|value| if self.observed.contains_key(&value) { value } else { self.unobserved })
    }

    /// Whether a value is no longer held after a step that some operation has yet to find, and that nobody
    /// can write any more.
    fn loses_awaited(&self, before: &Configuration, after: &Configuration) -> bool {
        let Some(value) = before.state.filter(|_| before.state != after.state) else { return false };
        let Some(observed) = self.observed.get(&value) else { return false };
        let is_open = |index: &usize| !after.has_placed(*index);
        observed.by.iter().any(is_open)
            && !observed.written_by.iter().any(is_open)
            && observed.perhaps_written_by.iter().all(|index| after.unknown.has(*index))
    }

    /// Known operations that may come next, those called before any that is not placed yet has returned; and
    /// when the first of those returns.
    fn open(&self, at: &Configuration) -> (Vec<usize>, u64) {
        let mut open = at.left.clone();
        let left = at.left.iter().map(|index| self.known[*index].returned);
        let mut returned_min = left.min().unwrap_or(u64::MAX);
        for (index, operation) in self.known.iter().enumerate().skip(at.next) {
            if operation.invoked > returned_min {
                break;
            }
            returned_min = returned_min.min(operation.returned);
            open.push(index);
        }
        (open, returned_min)
    }

    /// Places what may come next, fits and changes nothing; what is open then.
    fn settle(&self, at: &mut Configuration) -> (Vec<usize>, u64) {
        loop {
            let (open, returned_min) = self.open(at);
            let idle = |index: &&usize| {
                let operation = &self.known[**index];
                operation.outcome != Outcome::Done && step(at.state, operation).is_some()
            };
            let idle: Vec<usize> = open.iter().filter(idle).copied().collect();
            if idle.is_empty() {
                return (open, returned_min);
            }
            idle.into_iter().for_each(|index| at.place(index));
        }
    }

    /// Configurations after `operation`, with unknown ones called before `time` placed ahead of it if it
    /// needs them.
    fn place(
        &self,
        at: &Configuration,
        operation: &HistoryOperation,
        time: u64,
        chain: u32,
    ) -> Vec<Configuration> {
        if let Some(state) = step(at.state, operation) {
            return vec![Configuration { state, ..at.clone() }];
        }
        let mut placed = Vec::new();
        let mut kinds = HashSet::new();
        for (index, unknown) in self.unknown.iter().enumerate() {
            let free = !at.unknown.has(index) && unknown.invoked < time;
            let helps = || effect(unknown.call).is_some_and(|after| step(after, operation).is_some());
            if chain == 0 || !free || !helps() || !kinds.insert(self.kind(unknown.call)) {
                continue;
            }
            // Taken before others are placed ahead of it: it cannot enable itself.
            let taken = Configuration { unknown: at.unknown.with(index), ..at.clone() };
            for before in self.place(&taken, unknown, time, chain - 1) {
                let state = step(before.state, operation);
                placed.extend(state.map(|state| Configuration { state, ..before }));
            }
        }
        placed
    }

    /// Unknown calls of one kind have effects that nobody can distinguish.
    fn kind(&self, call: Call) -> (u8, Option<WrittenValue>, Option<WrittenValue>) {
        let observed = |value: WrittenValue| self.observed.contains_key(&value).then_some(value);
        match call {
            Call::Get => (0, None, None),
            Call::Put(value) => (1, None, observed(value)),
            Call::Delete => (2, None, None),
            Call::PutIfAbsent(value) => (3, None, observed(value)),
            Call::Replace { expected, value } => (4, Some(expected), observed(value)),
            Call::PutIfPresent(value) => (5, None, observed(value)),
            Call::Remove(expected) => (6, Some(expected), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(call: Call, outcome: Outcome, invoked: u64, returned: u64) -> HistoryOperation {
        HistoryOperation { call, outcome, invoked, returned }
    }

    fn put(value: WrittenValue, invoked: u64, returned: u64) -> HistoryOperation {
        operation(Call::Put(value), Outcome::Done, invoked, returned)
    }

    fn lost(call: Call, invoked: u64) -> HistoryOperation {
        operation(call, Outcome::Unknown, invoked, u64::MAX)
    }

    fn get(found: Option<WrittenValue>, invoked: u64, returned: u64) -> HistoryOperation {
        operation(Call::Get, Outcome::Found(found), invoked, returned)
    }

    #[test]
    fn check_sequence_that_fits_passes() {
        let history = [get(None, 0, 1), put(1, 2, 3), get(Some(1), 4, 5), put(2, 6, 7), get(Some(2), 8, 9)];
        assert_eq!(check(&history, None), Ok(()));
    }

    #[test]
    fn check_acknowledged_write_lost_is_caught() {
        let stale = get(None, 2, 3);
        assert_eq!(check(&[put(1, 0, 1), stale], None), Err(Violation::NotLinearizable(stale)));
    }

    #[test]
    fn check_stale_read_after_a_newer_one_is_caught() {
        // Both reads overlap the write; the second read follows the first and must not go back.
        let history = [put(1, 0, 1), put(2, 2, 9), get(Some(2), 3, 4), get(Some(1), 5, 6)];
        assert!(check(&history, None).is_err());
        let history = [put(1, 0, 1), put(2, 2, 9), get(Some(1), 3, 4), get(Some(2), 5, 6)];
        assert_eq!(check(&history, None), Ok(()));
    }

    #[test]
    fn check_value_never_written_is_caught() {
        assert!(check(&[put(1, 0, 1), get(Some(7), 2, 3)], None).is_err());
    }

    #[test]
    fn check_unknown_write_may_happen_or_not_but_once() {
        let unseen = [put(1, 0, 1), lost(Call::Put(2), 2), get(Some(1), 4, 5)];
        assert_eq!(check(&unseen, None), Ok(()));
        let late = [put(1, 0, 1), lost(Call::Put(2), 2), get(Some(1), 4, 5), get(Some(2), 6, 7)];
        assert_eq!(check(&late, None), Ok(()));
        // Decided once: it cannot appear, be overwritten, and appear again.
        let twice = [lost(Call::Put(2), 0), get(Some(2), 1, 2), put(3, 3, 4), get(Some(2), 5, 6)];
        assert!(check(&twice, None).is_err());
        // Nor before it was called.
        let early = [get(Some(2), 0, 1), lost(Call::Put(2), 2)];
        assert!(check(&early, None).is_err());
    }

    #[test]
    fn check_unknown_delete_explains_an_absence() {
        assert_eq!(check(&[put(1, 0, 1), lost(Call::Delete, 2), get(None, 3, 4)], None), Ok(()));
        assert!(check(&[put(1, 0, 1), get(None, 3, 4)], None).is_err());
    }

    #[test]
    fn check_two_conditional_winners_are_caught() {
        let winner = |value, from, to| operation(Call::PutIfAbsent(value), Outcome::Done, from, to);
        assert!(check(&[winner(1, 0, 5), winner(2, 1, 6)], None).is_err());
        let loser = operation(Call::PutIfAbsent(2), Outcome::Refused, 1, 6);
        assert_eq!(check(&[winner(1, 0, 5), loser], None), Ok(()));
    }

    #[test]
    fn check_replace_of_a_value_since_gone_is_caught() {
        let replace = |outcome| operation(Call::Replace { expected: 1, value: 3 }, outcome, 4, 5);
        let history = |outcome| [put(1, 0, 1), put(2, 2, 3), replace(outcome)];
        assert!(check(&history(Outcome::Done), None).is_err());
        assert_eq!(check(&history(Outcome::Refused), None), Ok(()));
    }

    /// A replace of unknown outcome that nothing enables was once tried as its own enabler, and the checker
    /// gave up in a panic.
    #[test]
    fn check_unknown_operation_does_not_enable_itself() {
        let replace = lost(Call::Replace { expected: 1, value: 1 }, 0);
        assert!(check(&[replace, get(Some(1), 2, 3)], None).is_err());
    }

    #[test]
    fn check_operations_that_wait_while_hundreds_pass_are_decided() {
        let mut history = vec![put(1, 0, 10_000), put(2, 1, 10_000), get(Some(2), 9_000, 9_500)];
        for number in 0..400 {
            let at = 2 + 20 * number;
            history.extend([put(10 + number, at, at + 3), get(Some(10 + number), at + 4, at + 5)]);
        }
        assert_eq!(check(&history, None), Ok(()));
        history.push(get(Some(10), 8_500, 8_501));
        assert!(check(&history, None).is_err());
    }

    /// Whoever tries the writes by the order of their calls turns back more often than there is time for
    /// (found by a simulator's seed).
    #[test]
    fn check_many_writes_at_once_that_are_seen_in_another_order_are_decided() {
        let writes = 60;
        let mut history: Vec<_> = (0..writes).map(|value| put(value, value, 1_000)).collect();
        history.extend((0..writes).map(|step| {
            let at = 100 + 10 * step;
            get(Some(writes - 1 - step), at, at + 5)
        }));
        assert_eq!(check(&history, None), Ok(()));
        let again = get(Some(writes - 1), 900, 901);
        history.push(again);
        assert!(matches!(check(&history, None), Err(Violation::NotLinearizable(_))));
    }

    /// Each of many unknown operations was tried ahead of each other one, and that ahead of each third one: a
    /// minute and more for a key that is in doubt as often as this (found by a simulator's seed).
    #[test]
    fn check_hundreds_of_unknown_operations_that_enable_one_another_are_decided() {
        let mut history: Vec<_> =
            (0..500).map(|at| lost(Call::Replace { expected: at, value: at + 1 }, at)).collect();
        history.push(put(0, 1_000, 1_001));
        history.extend((1..=100).map(|at| get(Some(3 * at), 1_000 + 2 * at, 1_001 + 2 * at)));
        assert_eq!(check(&history, None), Ok(()));
        history.push(get(Some(9), 2_000, 2_001));
        assert!(check(&history, None).is_err());
    }

    #[test]
    fn check_existence_alone_decides_too() {
        let exists = |from| operation(Call::Get, Outcome::Exists, from, from + 1);
        assert_eq!(check(&[put(1, 0, 1), exists(2)], None), Ok(()));
        assert!(check(&[exists(0), put(1, 2, 3)], None).is_err());
        let present = |outcome| operation(Call::PutIfPresent(2), outcome, 2, 3);
        assert!(check(&[present(Outcome::Done)], None).is_err());
        assert_eq!(check(&[put(1, 0, 1), present(Outcome::Done), get(Some(2), 4, 5)], None), Ok(()));
        let remove = operation(Call::Remove(1), Outcome::Done, 2, 3);
        assert_eq!(check(&[put(1, 0, 1), remove, get(None, 4, 5)], None), Ok(()));
        assert!(check(&[put(2, 0, 1), remove], None).is_err());
    }

    #[test]
    fn check_delete_outcomes_must_fit() {
        let delete = |outcome| operation(Call::Delete, outcome, 2, 3);
        assert!(check(&[put(1, 0, 1), delete(Outcome::Refused)], None).is_err());
        assert!(check(&[delete(Outcome::Done)], None).is_err());
        assert_eq!(check(&[delete(Outcome::Done)], Some(9)), Ok(()));
    }

    /// Runs clients against one register under a seeded interleaving; every outcome is right by construction.
    fn simulated(seed: u64, operations: usize, clients: usize) -> Vec<HistoryOperation> {
        let mut random = seed;
        let mut draw = move |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        let (mut state, mut clock, mut value) = (None, 0, 0);
        let mut open: Vec<Option<(Call, u64, Option<Outcome>)>> = vec![None; clients];
        let mut history = Vec::new();
        while history.len() < operations {
            clock += 1;
            let client = usize::try_from(draw(clients as u64)).unwrap();
            match open[client] {
                None => {
                    value += 1;
                    let call = match draw(4) {
                        0 => Call::Put(value),
                        1 => Call::Delete,
                        2 => Call::PutIfAbsent(value),
                        _ => Call::Get,
                    };
                    open[client] = Some((call, clock, None));
                }
                Some((call, invoked, None)) => {
                    let outcome = match call {
                        Call::Get => Outcome::Found(state),
                        _ => {
                            let done = operation(call, Outcome::Done, 0, 0);
                            let after = step(state, &done);
                            state = after.unwrap_or(state);
                            after.map_or(Outcome::Refused, |_| Outcome::Done)
                        }
                    };
                    open[client] = Some((call, invoked, Some(outcome)));
                }
                Some((call, invoked, Some(outcome))) => {
                    // Every fiftieth answer is lost, effect and all.
                    let forgotten = draw(50) == 0;
                    history.push(if forgotten && history.len() % 64 == 0 {
                        lost(call, invoked)
                    } else {
                        operation(call, outcome, invoked, clock)
                    });
                    open[client] = None;
                }
            }
        }
        // What is still under way may have had its effect.
        history.extend(open.into_iter().flatten().map(|(call, invoked, _)| lost(call, invoked)));
        history
    }

    #[test]
    fn check_many_seeded_histories_pass_and_their_mutants_do_not() {
        let mut caught = 0;
        for seed in 1..60 {
            let history = simulated(seed, 400, 8);
            assert_eq!(check(&history, None), Ok(()), "seed {seed}");
            let mut broken = history.clone();
            let victim = broken
                .iter()
                .position(|each| matches!(each.outcome, Outcome::Found(Some(_))))
                .expect("some get found something");
            broken[victim].outcome = Outcome::Found(Some(u64::MAX));
            caught += u32::from(check(&broken, None).is_err());
        }
        assert_eq!(caught, 59);
    }

    #[test]
    fn check_long_history_is_quick() {
        let history = simulated(77, 100_000, 6);
        let lost = history.iter().filter(|each| each.outcome == Outcome::Unknown).count();
        assert_eq!(check(&history, None), Ok(()), "{lost} unknown");
    }
}
