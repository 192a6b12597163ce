//! What is answered to who comes for keys that are elsewhere: the table as it is known, and a hint.
//!
//! The owner of the router walks it, a predecessor search; a worker that has the range to the left names its
//! right link's pair, and both sides of a merge name each other. All are advice, for the reader's next try.

use std::sync::Arc;

use cell_fabric::ConnectionId;
use cell_protocol::table::TABLE_ROWS_MAX;
use cell_protocol::{Refusal, Reply, RequestHeader, Route, TableReport, TableRow, TableRows};
use cell_recovery::TargetState;
use cell_terms::PairId;
use cell_tree::{Aim, LeafSnapshot};

use super::{Worker, WorkerPhase};
use crate::directory::MeganodeAt;
use crate::pairs::{Dependence, Pairs};
use crate::table_view::TableView;

/// A hint, before it is sent.
#[derive(Debug, PartialEq, Eq)]
struct Hint {
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    pair: PairId,
}

impl Worker {
    /// The table from now on.
    pub(super) fn on_table(&mut self, table: Arc<TableView>) {
        self.table = table;
    }

    pub(super) fn table(&mut self, connection: ConnectionId, header: RequestHeader, from: u32) {
        let table = self.table.clone();
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let rows: Vec<TableRow<'_>> = table.rows(from).take(TABLE_ROWS_MAX).collect();
        let reply = Reply::Table(TableReport {
            revision: table.revision(),
            rows_all: u32::try_from(table.len()).unwrap_or(u32::MAX),
            rows: TableRows::List(&rows),
        });
        self.reply(connection, header, Dependence::NOTHING, &reply);
    }

    /// Whether nothing can be said yet: the pairs are still to come.
    pub(super) fn is_awaiting_pairs(&self) -> bool {
        self.phase == WorkerPhase::Recovering && self.pairs.is_empty()
    }

    /// Refuses what is not about this worker's keys: with a hint, if there is one.
    pub(super) fn refuse_elsewhere(&mut self, connection: ConnectionId, header: RequestHeader, aim: Aim<'_>) {
        if self.is_awaiting_pairs() {
            return self.refuse(connection, header, Refusal::Recovering);
        }
        // A bound may be longer than any key: what is at or below it is at or below its beginning.
        let key_max = self.options.key_bytes_max();
        let aim = match aim {
            Aim::At(bound) | Aim::Below(bound) if bound.len() > key_max => Aim::At(&bound[..key_max]),
            aim => aim,
        };
        let Some(hint) = self.pairs.hint(aim, key_max) else {
            return self.refuse(connection, header, Refusal::NotOwner);
        };
        self.operations.refused += 1;
        self.counts.refused(&Refusal::NotOwner);
        let route = Route { low: &hint.low, high: hint.high.as_deref(), pair: hint.pair };
        self.reply(connection, header, Dependence::NOTHING, &Reply::Elsewhere(route));
    }

    /// Refuses a write; with a hint, if its key is elsewhere.
    pub(super) fn refuse_write(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        key: &[u8],
        refusal: Refusal,
    ) {
        match refusal {
            Refusal::NotOwner => self.refuse_elsewhere(connection, header, Aim::At(key)),
            other => self.refuse(connection, header, other),
        }
    }
}

/// The lowest bound behind a key; behind the longest of keys, also behind all longer bounds that begin so.
fn behind(key: &[u8], key_max: usize) -> Option<Vec<u8>> {
    if key.len() < key_max {
        return Some([key, &[0]].concat());
    }
    let last = key.iter().rposition(|byte| *byte < 0xff)?;
    let mut bound = key[..=last].to_vec();
    bound[last] += 1;
    Some(bound)
}

/// A hint about one key.
fn about(key: &[u8], pair: PairId, key_max: usize) -> Hint {
    Hint { low: key.to_vec(), high: behind(key, key_max), pair }
}

impl Pairs {
    /// Who has the keys at an aim, as far as this worker's memory says.
    fn hint(&self, aim: Aim<'_>, key_max: usize) -> Option<Hint> {
        let is_elsewhere = |hint: &Hint| self.at(hint.pair).is_none();
        self.hint_of_router(aim).filter(is_elsewhere).or_else(|| {
            let Aim::At(key) = aim else { return None };
            let hint = self.hint_of_merge(key, key_max).filter(is_elsewhere);
            hint.or_else(|| self.hint_of_left(key, key_max))
        })
    }

    fn hint_of_router(&self, aim: Aim<'_>) -> Option<Hint> {
        let (pair, slot) = self.iter().find_map(|owned| Some((&owned.pair, owned.pair.router()?)))?;
        let (router, mut leaf) = (pair.meganode(slot), LeafSnapshot::new());
        let read = match aim {
            Aim::First => router.leaf_first(&mut leaf),
            Aim::Last => router.leaf_last(&mut leaf),
            Aim::At(key) => router.leaf(key, &mut leaf),
            Aim::Below(bound) => router.leaf_below(bound, &mut leaf),
        };
        read.ok()?;
        let predecessor = match aim {
            Aim::First => Some(0),
            Aim::Last => leaf.len().checked_sub(1),
            Aim::At(key) => match leaf.find(key) {
                (at, true) => Some(at),
                (at, false) => at.checked_sub(1),
            },
            Aim::Below(bound) => leaf.position(bound).checked_sub(1),
        };
        let (low, entry, next) = match predecessor {
            Some(at) if at < leaf.len() => (leaf.key(at), leaf.entry(at), at + 1),
            // The entry is in the leaves before this one.
            _ => (leaf.low(), router.predecessor(leaf.low()).ok()??, 0),
        };
        let high = if next < leaf.len() { Some(leaf.key(next)) } else { leaf.high() };
        let pair = entry.meganode().region().pair();
        (pair != PairId(0)).then(|| Hint { low: low.to_vec(), high: high.map(<[u8]>::to_vec), pair })
    }

    /// By the merge of a meganode that is gone: the router may lead to it for a while yet. How far its range
    /// went is not known any more, so the hint is about this key alone.
    fn hint_of_merge(&self, key: &[u8], key_max: usize) -> Option<Hint> {
        let tables = self.iter().map(|owned| owned.pair.split_table());
        let gone = tables.flat_map(|table| {
            let is_gone = move |name| table.is_truncated(name);
            table.sources().filter(move |(name, split)| split.merges && is_gone(*name) && *split.key <= *key)
        });
        let (_, split) = gone.max_by(|(_, one), (_, other)| one.key.cmp(&other.key))?;
        // From where a range begins that is here, the keys are behind that one.
        let is_behind = self.directory.left_of(key).is_some_and(|left| *left.low >= *split.key);
        (!is_behind).then(|| about(key, split.target, key_max))
    }

    /// By the right link of the range that ends at or before a key. How far its neighbour goes is not known
    /// here, so the hint is about this key alone.
    fn hint_of_left(&self, key: &[u8], key_max: usize) -> Option<Hint> {
        let MeganodeAt { pair, slot } = self.directory.left_of(key)?.at;
        let pair = self.pair(pair);
        // The range of a meganode that is merged with it is the other side's until this one is open, wherever
        // its link leads by then.
        let merge = pair.split_table().target_of(slot).filter(|(name, split)| {
            let is_in_range = split.high.as_deref().is_none_or(|high| key < high);
            let is_open = split.state == TargetState::Opened;
            split.merges && !is_open && is_in_range && self.at(name.pair).is_none()
        });
        let right = match merge {
            Some((name, _)) => name.pair,
            None => pair.right_of(slot)?.region().pair(),
        };
        (right != PairId(0)).then(|| about(key, right, key_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bound that is no key's successor led its client round in circles.
    #[test]
    fn behind_a_key_is_what_follows_it_and_all_longer_bounds_that_begin_like_the_longest() {
        assert_eq!(behind(b"a", 2), Some(b"a\0".to_vec()));
        assert_eq!(behind(b"ab", 2), Some(b"ac".to_vec()));
        assert_eq!(behind(&[1, 0xff], 2), Some(vec![2]));
        assert_eq!(behind(&[0xff, 0xff], 2), None);
        let hint = Hint { low: b"ab".to_vec(), high: Some(b"ac".to_vec()), pair: PairId(3) };
        assert_eq!(about(b"ab", PairId(3), 2), hint);
    }
}
