//! What a pair knows of its splits, in both roles, and of its slots.
//!
//! The table is a pure function of the records: [`SplitTable::apply`] is called with each record that is
//! appended, live, and again in replay. An ended split stays until its last record is durable
//! ([`SplitTable::prune`]), because nobody may learn of an end that a crash can take back.
//!
//! A checkpoint holds the table's bytes of the moment when its base B was noted. They may be ahead of B, so
//! replay meets records that the table has already: each keeps the CSN that brought it to its state, and what
//! is not above that changes nothing.

mod bytes;

use std::collections::BTreeMap;

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Epoch, PairId, Pointer, SlotIndex};

use super::name::SplitName;
use super::record::SplitRecord;
use super::slot_use::SlotUse;
use crate::record::NodeRecord;

/// The pair that begins with a meganode: the first of a cluster, whose node region has the lowest id.
const FIRST_PAIR: PairId = PairId(1);

/// How far a split has come at its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceState {
    /// It can still be aborted.
    Started,
    /// It will be finished.
    Linked,
    /// The upper half is gone.
    Applied,
    /// It is over; kept until that is durable.
    Finished,
    /// Nothing came of it; kept until that is durable.
    Aborted,
}

impl SourceState {
    /// Every state.
    pub const ALL: [SourceState; 5] = [
        SourceState::Started,
        SourceState::Linked,
        SourceState::Applied,
        SourceState::Finished,
        SourceState::Aborted,
    ];

    /// Whether nothing is left to do.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, SourceState::Finished | SourceState::Aborted)
    }
}

/// How far a split has come at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetState {
    /// The meganode is being built.
    Adopting,
    /// It is whole, and hidden until the source has linked it.
    Adopted,
    /// It takes writes. Kept until the source has finished.
    Opened,
    /// It was thrown away; kept until that is durable.
    Discarded,
}

impl TargetState {
    /// Every state.
    pub const ALL: [TargetState; 4] =
        [TargetState::Adopting, TargetState::Adopted, TargetState::Opened, TargetState::Discarded];
}

/// A split of one of the pair's meganodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSplit {
    /// How far it has come.
    pub state: SourceState,
    /// The record that brought it there.
    pub csn: Csn,
    /// The meganode.
    pub slot: SlotIndex,
    /// Where it is split.
    pub key: Box<[u8]>,
    /// Who takes the upper half.
    pub target: PairId,
    /// Where.
    pub target_slot: SlotIndex,
    /// It is a merge: all of the meganode goes, and the key is its low key.
    pub merges: bool,
}

/// A split that the pair adopts the upper half of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSplit {
    /// How far it has come.
    pub state: TargetState,
    /// The record that brought it there; of an adoption, the last one that had completions.
    pub csn: Csn,
    /// The slot.
    pub slot: SlotIndex,
    /// The new meganode's low key.
    pub low: Box<[u8]>,
    /// Its high key.
    pub high: Option<Box<[u8]>>,
    /// Where the keys from `high` on are.
    pub right: Pointer,
    /// Tree nodes that it had when it was whole.
    pub nodes: u32,
    /// Entries that it had when it was whole.
    pub entries: u64,
    /// It is a merge: the slot's meganode, which is there before, takes over the range.
    pub merges: bool,
}

/// A record that does not follow from those before it: the log is damaged, or its writer was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitTableError {
    /// A step of a split that was never started.
    #[error("{0} was never started here")]
    Unknown(SplitName),
    /// A step that does not follow from where the split stands.
    #[error("{0} is not where the record takes it on from")]
    Order(SplitName),
    /// A slot is used for two things.
    #[error("{0} is in use")]
    Busy(SlotIndex),
    /// A slot that holds no meganode of entries is split, or freed in the middle of a split.
    #[error("{0} holds no meganode that can be split or freed")]
    Unused(SlotIndex),
    /// A split's record names another slot than its first one.
    #[error("{name} is in {expected} and not in {found}")]
    Slot {
        /// The split.
        name: SplitName,
        /// What its first record said.
        expected: SlotIndex,
        /// What this one says.
        found: SlotIndex,
    },
}

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitTable {
    pair: PairId,
    slots: BTreeMap<SlotIndex, (SlotUse, Csn)>,
    sources: BTreeMap<SplitName, SourceSplit>,
    targets: BTreeMap<SplitName, TargetSplit>,
}

impl SplitTable {
    /// What a new pair knows: its slots are free, but the first one of the first pair, which holds the tree.
    #[must_use]
    pub fn new(pair: PairId) -> SplitTable {
        let mut slots = BTreeMap::new();
        if pair == FIRST_PAIR {
            slots.insert(SlotIndex(0), (SlotUse::Leaf, Csn::ZERO));
        }
        SplitTable { pair, slots, sources: BTreeMap::new(), targets: BTreeMap::new() }
    }

    /// What a pair knows that begins with these slots in use.
    pub(crate) fn started(pair: PairId, slots: impl Iterator<Item = (SlotIndex, SlotUse)>) -> SplitTable {
        let slots = slots.map(|(slot, used)| (slot, (used, Csn::ZERO))).collect();
        SplitTable { pair, slots, sources: BTreeMap::new(), targets: BTreeMap::new() }
    }

    /// The pair.
    #[must_use]
    pub fn pair(&self) -> PairId {
        self.pair
    }

    /// Takes note of a record. Records that are no business of the table are ignored, and so are those that
    /// it has.
    ///
    /// # Errors
    /// See [`SplitTableError`]; the table is as before.
    pub fn apply(&mut self, record: &NodeRecord<'_>, epoch: Epoch, csn: Csn) -> Result<(), SplitTableError> {
        match record {
            NodeRecord::Tree { .. } | NodeRecord::Outcome(_) | NodeRecord::RootSet(_) => Ok(()),
            NodeRecord::SlotUse { slot, used } => self.use_slot(*slot, *used, csn),
            NodeRecord::Split(record) => self.apply_split(record, epoch, csn),
        }
    }

    fn use_slot(&mut self, slot: SlotIndex, used: SlotUse, csn: Csn) -> Result<(), SplitTableError> {
        let (now, since) = self.slots.get(&slot).copied().unwrap_or_default();
        if since >= csn && csn > Csn::ZERO {
            return Ok(());
        }
        match used {
            SlotUse::Free if now == SlotUse::Free || self.holder(slot).is_some() => {
                return Err(SplitTableError::Unused(slot));
            }
            SlotUse::Leaf | SlotUse::Router if now != SlotUse::Free => {
                return Err(SplitTableError::Busy(slot));
            }
            SlotUse::Free | SlotUse::Leaf | SlotUse::Router => {}
        }
        self.slots.insert(slot, (used, csn));
        Ok(())
    }

    fn apply_split(
        &mut self,
        record: &SplitRecord<'_>,
        epoch: Epoch,
        csn: Csn,
    ) -> Result<(), SplitTableError> {
        match *record {
            SplitRecord::Start { slot, key, target, target_slot }
            | SplitRecord::Merge { slot, key, target, target_slot } => {
                let (state, key) = (SourceState::Started, key.into());
                let merges = matches!(record, SplitRecord::Merge { .. });
                let split = SourceSplit { state, csn, slot, key, target, target_slot, merges };
                self.start(SplitName { pair: self.pair, epoch, csn }, split)
            }
            SplitRecord::Adopt { name, slot, low, high, right, .. }
            | SplitRecord::Absorb { name, slot, low, high, right, .. } => {
                let (low, high) = (low.into(), high.map(Into::into));
                let (state, nodes, entries) = (TargetState::Adopting, 0, 0);
                let merges = matches!(record, SplitRecord::Absorb { .. });
                self.adopt(name, TargetSplit { state, csn, slot, low, high, right, nodes, entries, merges })
            }
            SplitRecord::Adopted { name, slot, nodes, entries } => {
                let split = self.target_mut(name)?;
                split.check_slot(name, slot)?;
                if split.advance(name, &[TargetState::Adopting], TargetState::Adopted, csn)? {
                    (split.nodes, split.entries) = (nodes, entries);
                }
                Ok(())
            }
            SplitRecord::Linked { name } => {
                self.source_mut(name)?.advance(name, SourceState::Started, SourceState::Linked, csn)
            }
            SplitRecord::Applied { name, slot, .. } => {
                let split = self.source_mut(name)?;
                split.check(name, slot, false)?;
                split.advance(name, SourceState::Linked, SourceState::Applied, csn)
            }
            SplitRecord::Retired { name, slot } => self.retire(name, slot, csn),
            SplitRecord::Opened { name } => {
                let split = self.target_mut(name)?;
                split.advance(name, &[TargetState::Adopted], TargetState::Opened, csn).map(drop)
            }
            SplitRecord::Finished { name } => {
                self.source_mut(name)?.advance(name, SourceState::Applied, SourceState::Finished, csn)
            }
            SplitRecord::Aborted { name } => {
                self.source_mut(name)?.advance(name, SourceState::Started, SourceState::Aborted, csn)
            }
            SplitRecord::Discarded { name, slot } => self.discard(name, slot, csn),
        }
    }

    /// A split of a meganode of this pair begins. A record that is applied twice changes nothing.
    fn start(&mut self, name: SplitName, split: SourceSplit) -> Result<(), SplitTableError> {
        let slot = split.slot;
        if self.sources.contains_key(&name) {
            return Ok(());
        }
        if self.slot_use(slot) != SlotUse::Leaf {
            return Err(SplitTableError::Unused(slot));
        }
        if self.source_of(slot).is_some() || self.is_closed(slot) {
            return Err(SplitTableError::Busy(slot));
        }
        self.sources.insert(name, split);
        Ok(())
    }

    /// An upper half comes into a slot of this pair, whole or a part more of it.
    fn adopt(&mut self, name: SplitName, split: TargetSplit) -> Result<(), SplitTableError> {
        let (slot, csn) = (split.slot, split.csn);
        if let Some(known) = self.targets.get_mut(&name) {
            return known.adopt_more(name, &split);
        }
        match self.slot_use(slot) {
            SlotUse::Leaf if split.merges && self.source_of(slot).is_none() && !self.is_closed(slot) => {}
            SlotUse::Free if split.merges => return Err(SplitTableError::Unused(slot)),
            SlotUse::Free if self.source_of(slot).is_none() => {
                self.slots.insert(slot, (SlotUse::Leaf, csn));
            }
            SlotUse::Free | SlotUse::Leaf | SlotUse::Router => return Err(SplitTableError::Busy(slot)),
        }
        self.targets.insert(name, split);
        Ok(())
    }

    /// The meganode of a merge is gone. Its slot is not used again before the merge is over: the router may
    /// still lead there.
    fn retire(&mut self, name: SplitName, slot: SlotIndex, csn: Csn) -> Result<(), SplitTableError> {
        let split = self.source_mut(name)?;
        split.check(name, slot, true)?;
        let is_new = csn > split.csn;
        split.advance(name, SourceState::Linked, SourceState::Applied, csn)?;
        if is_new {
            self.slots.insert(slot, (SlotUse::Free, csn));
        }
        Ok(())
    }

    /// An adoption failed: its slot is free.
    fn discard(&mut self, name: SplitName, slot: SlotIndex, csn: Csn) -> Result<(), SplitTableError> {
        let split = self.target_mut(name)?;
        split.check_slot(name, slot)?;
        let from = [TargetState::Adopting, TargetState::Adopted];
        if split.advance(name, &from, TargetState::Discarded, csn)? && !split.merges {
            self.slots.insert(slot, (SlotUse::Free, csn));
        }
        Ok(())
    }

    fn source_mut(&mut self, name: SplitName) -> Result<&mut SourceSplit, SplitTableError> {
        self.sources.get_mut(&name).ok_or(SplitTableError::Unknown(name))
    }

    fn target_mut(&mut self, name: SplitName) -> Result<&mut TargetSplit, SplitTableError> {
        self.targets.get_mut(&name).ok_or(SplitTableError::Unknown(name))
    }

    /// Drops what has ended up to here. A slot that was freed can be used again from then on.
    pub fn prune(&mut self, durable: Csn) {
        self.forget_over(durable);
        self.prune_slots(durable);
    }

    /// Forgets the splits of the pair's meganodes that are over up to here: targets are answered `no`.
    pub fn forget_over(&mut self, upto: Csn) {
        self.sources.retain(|_, split| !(split.state.is_over() && split.csn <= upto));
    }

    /// Drops slots and adoptions that were freed up to here: they can be used again.
    pub fn prune_slots(&mut self, durable: Csn) {
        self.targets.retain(|_, split| split.state != TargetState::Discarded || split.csn > durable);
        let SplitTable { slots, sources, .. } = self;
        let is_pruned_early = planted(Mutant::MergedSlotPruned);
        let holds = |split: &SourceSplit| !split.state.is_over() && !is_pruned_early;
        let merges = |slot: &SlotIndex| sources.values().any(|split| split.slot == *slot && holds(split));
        slots.retain(|slot, (used, csn)| *used != SlotUse::Free || *csn > durable || merges(slot));
    }

    /// The source has finished: nobody asks for this split any more. Only once its [`SplitRecord::Opened`] is
    /// durable. Whether it was known.
    pub fn forget(&mut self, name: SplitName) -> bool {
        let opened = self.targets.get(&name).is_some_and(|split| split.state == TargetState::Opened);
        opened && self.targets.remove(&name).is_some()
    }

    /// What a slot holds.
    #[must_use]
    pub fn slot_use(&self, slot: SlotIndex) -> SlotUse {
        self.slots.get(&slot).map_or(SlotUse::Free, |(used, _)| *used)
    }

    /// The slots that are in use, ascending, those of adoptions among them.
    pub fn slots(&self) -> impl Iterator<Item = (SlotIndex, SlotUse)> + '_ {
        self.slots.iter().map(|(slot, (used, _))| (*slot, *used)).filter(|(_, used)| *used != SlotUse::Free)
    }

    /// The lowest slot of so many that can be used: free, and durably so.
    #[must_use]
    pub fn free_slot(&self, slots: u32) -> Option<SlotIndex> {
        (0..slots).map(SlotIndex).find(|slot| !self.slots.contains_key(slot))
    }

    /// Whether a slot's meganode is an adoption that is not settled, as the log shows: its tree nodes are
    /// hidden after a recovery, whatever they were before.
    #[must_use]
    pub fn is_hidden(&self, slot: SlotIndex) -> bool {
        self.target_of(slot).is_some_and(|(_, split)| split.state != TargetState::Opened && !split.merges)
    }

    /// Whether a slot's meganode takes no writes: it is hidden, or takes over the range of another one.
    #[must_use]
    pub fn is_closed(&self, slot: SlotIndex) -> bool {
        self.target_of(slot).is_some_and(|(_, split)| split.state != TargetState::Opened)
    }

    /// The split that a slot's meganode is the source of, until it is over.
    #[must_use]
    pub fn source_of(&self, slot: SlotIndex) -> Option<(SplitName, &SourceSplit)> {
        let mut sources = self.sources.iter();
        let found = sources.find(|(_, split)| split.slot == slot && !split.state.is_over());
        found.map(|(name, split)| (*name, split))
    }

    /// The split that a slot's meganode was adopted in, or that it takes over a range by, until the source
    /// has finished it. One that is not open comes first: that an earlier one was forgotten is in no log.
    #[must_use]
    pub fn target_of(&self, slot: SlotIndex) -> Option<(SplitName, &TargetSplit)> {
        let of_slot = |split: &TargetSplit| split.slot == slot && split.state != TargetState::Discarded;
        let targets = self.targets.iter().filter(|(_, split)| of_slot(split));
        let is_last =
            |split: &TargetSplit| split.state == TargetState::Opened && !planted(Mutant::OpenTargetFirst);
        let found = targets.min_by_key(|(_, split)| is_last(split));
        found.map(|(name, split)| (*name, split))
    }

    /// The split that keeps a slot from being freed.
    fn holder(&self, slot: SlotIndex) -> Option<SplitName> {
        let source = self.source_of(slot).map(|(name, _)| name);
        source.or_else(|| self.target_of(slot).map(|(name, _)| name))
    }

    /// The splits of the pair's own meganodes, oldest first.
    pub fn sources(&self) -> impl Iterator<Item = (SplitName, &SourceSplit)> + '_ {
        self.sources.iter().map(|(name, split)| (*name, split))
    }

    /// The splits that the pair adopts, or has adopted and must remember.
    pub fn targets(&self) -> impl Iterator<Item = (SplitName, &TargetSplit)> + '_ {
        self.targets.iter().map(|(name, split)| (*name, split))
    }

    /// A split of one of the pair's own meganodes.
    #[must_use]
    pub fn source(&self, name: SplitName) -> Option<&SourceSplit> {
        self.sources.get(&name)
    }

    /// A split that the pair adopts.
    #[must_use]
    pub fn target(&self, name: SplitName) -> Option<&TargetSplit> {
        self.targets.get(&name)
    }
}

impl SourceSplit {
    /// Whether a record that gives the half away is of this split's kind, and names its slot.
    fn check(&self, name: SplitName, found: SlotIndex, merges: bool) -> Result<(), SplitTableError> {
        let expected = self.slot;
        match () {
            () if self.merges != merges => Err(SplitTableError::Order(name)),
            () if expected != found => Err(SplitTableError::Slot { name, expected, found }),
            () => Ok(()),
        }
    }

    fn advance(
        &mut self,
        name: SplitName,
        from: SourceState,
        to: SourceState,
        csn: Csn,
    ) -> Result<(), SplitTableError> {
        if csn <= self.csn {
            return Ok(());
        }
        if self.state != from {
            return Err(SplitTableError::Order(name));
        }
        (self.state, self.csn) = (to, csn);
        Ok(())
    }
}

impl TargetSplit {
    fn check_slot(&self, name: SplitName, found: SlotIndex) -> Result<(), SplitTableError> {
        let expected = self.slot;
        if expected == found { Ok(()) } else { Err(SplitTableError::Slot { name, expected, found }) }
    }

    /// The adoption's first record again, with more completions.
    fn adopt_more(&mut self, name: SplitName, more: &TargetSplit) -> Result<(), SplitTableError> {
        self.check_slot(name, more.slot)?;
        if self.merges != more.merges {
            return Err(SplitTableError::Order(name));
        }
        self.advance(name, &[TargetState::Adopting], TargetState::Adopting, more.csn).map(drop)
    }

    /// Whether the record was new.
    fn advance(
        &mut self,
        name: SplitName,
        from: &[TargetState],
        to: TargetState,
        csn: Csn,
    ) -> Result<bool, SplitTableError> {
        if csn <= self.csn {
            return Ok(false);
        }
        if !from.contains(&self.state) {
            return Err(SplitTableError::Order(name));
        }
        (self.state, self.csn) = (to, csn);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::RegionId;
    use cell_tree::{NodeBits, NodeIndex};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::split::BoundaryNodes;

    const PAIR: PairId = FIRST_PAIR;
    const EPOCH: Epoch = Epoch(3);
    const SLOTS: u32 = 6;

    type Logged = Vec<(Csn, NodeRecord<'static>)>;

    /// The record by which a split of the pair's own goes on, or none.
    fn step_of_own(name: SplitName, split: &SourceSplit, luck: u8) -> SplitRecord<'static> {
        let (slot, right) = (split.slot, Pointer::new(RegionId(4), 4096));
        match luck {
            2 => SplitRecord::Linked { name },
            3 if split.merges => SplitRecord::Retired { name, slot },
            3 => {
                let boundary = BoundaryNodes::new(&[NodeIndex::ROOT]).unwrap();
                let freed = NodeBits::default();
                SplitRecord::Applied { name, slot, right, boundary, high: b"key", freed }
            }
            4 => SplitRecord::Finished { name },
            _ => SplitRecord::Aborted { name },
        }
    }

    /// The record by which an adoption begins or goes on.
    fn adoption(name: SplitName, slot: SlotIndex, merges: bool) -> SplitRecord<'static> {
        let (low, high, kept) = (&b"low"[..], Some(&b"m"[..]), &[][..]);
        let right = Pointer::new(RegionId(4), 4096);
        match merges {
            true => SplitRecord::Absorb { name, slot, low, high, right, kept },
            false => SplitRecord::Adopt { name, slot, low, high, right, kept },
        }
    }

    /// Appends some record that may follow; which one, `luck` says. False if this one may not.
    fn step(table: &mut SplitTable, log: &mut Logged, csn: Csn, luck: u8) -> bool {
        let (pick, merges) = (usize::from(luck / 10), luck > 150);
        let foreign = SplitName { pair: PairId(2), epoch: EPOCH, csn };
        let slots: Vec<_> = table.slots().filter(|(_, used)| *used == SlotUse::Leaf).collect();
        let sources: Vec<_> = table.sources().filter(|(_, split)| !split.state.is_over()).collect();
        let targets: Vec<_> = table.targets().collect();
        let leaf = slots.get(pick % slots.len().max(1)).map(|(slot, _)| *slot);
        let record = match luck % 10 {
            0 => leaf.map(|slot| {
                let (key, target, target_slot) = (&b"key"[..], PairId(2), SlotIndex(0));
                match merges {
                    true => SplitRecord::Merge { slot, key, target, target_slot },
                    false => SplitRecord::Start { slot, key, target, target_slot },
                }
            }),
            1 if merges => leaf.map(|slot| adoption(foreign, slot, true)),
            1 => table.free_slot(SLOTS).map(|slot| adoption(foreign, slot, false)),
            luck @ 2..=5 => {
                sources.get(pick % sources.len().max(1)).map(|(name, split)| step_of_own(*name, split, luck))
            }
            luck => targets.get(pick % targets.len().max(1)).map(|(name, split)| {
                let (name, slot) = (*name, split.slot);
                match luck {
                    6 => SplitRecord::Adopted { name, slot, nodes: 3, entries: 4 },
                    7 => SplitRecord::Opened { name },
                    8 => SplitRecord::Discarded { name, slot },
                    _ => adoption(name, slot, split.merges),
                }
            }),
        };
        let Some(record) = record.map(NodeRecord::Split) else { return false };
        let before = table.clone();
        if table.apply(&record, EPOCH, csn).is_err() {
            assert_eq!(*table, before, "an error changes nothing");
            return false;
        }
        log.push((csn, record));
        true
    }

    fn encoded(table: &SplitTable) -> Vec<u8> {
        let mut bytes = Vec::new();
        table.encode(&mut bytes);
        bytes
    }

    proptest! {
        /// A checkpoint's table is ahead of its base; what is above the base is replayed, once or twice.
        #[test]
        fn replay_over_any_captured_book_makes_the_book_that_lived(
            lucks in vec((any::<u8>(), 0..4_u64), 1..120), capture in 0..120_usize, lag in 0..30_u64
        ) {
            let (mut table, mut log) = (SplitTable::new(PAIR), Logged::new());
            let (mut csn, mut captured) = (Csn(0), (Csn(0), table.clone()));
            for (at, (luck, gap)) in lucks.into_iter().enumerate() {
                csn = Csn(csn.0 + 1 + gap);
                step(&mut table, &mut log, csn, luck);
                let durable = Csn(csn.0.saturating_sub(lag));
                table.prune(durable);
                if at == capture {
                    captured = (durable, SplitTable::decode(&encoded(&table)).unwrap());
                    prop_assert_eq!(&captured.1, &table);
                }
            }
            let (base, mut replayed) = captured;
            for _ in 0..2 {
                for (csn, record) in log.iter().filter(|(csn, _)| *csn > base) {
                    replayed.apply(record, EPOCH, *csn).unwrap();
                }
            }
            table.prune(csn);
            replayed.prune(csn);
            prop_assert_eq!(replayed, table);
        }

        /// An image cuts its bytes into blocks anywhere.
        #[test]
        fn book_cut_anywhere_and_put_together_is_the_book(
            lucks in vec(any::<u8>(), 1..120), block in 1..300_usize
        ) {
            let (mut table, mut log) = (SplitTable::new(PAIR), Logged::new());
            for (csn, luck) in (1..).map(Csn).zip(lucks) {
                step(&mut table, &mut log, csn, luck);
            }
            let together = encoded(&table).chunks(block).collect::<Vec<_>>().concat();
            prop_assert_eq!(SplitTable::decode(&together), Ok(table));
        }

        #[test]
        fn any_bytes_decode_to_a_book_or_to_an_error(bytes in vec(any::<u8>(), 0..200)) {
            if let Ok(table) = SplitTable::decode(&bytes) {
                prop_assert_eq!(SplitTable::decode(&encoded(&table)), Ok(table));
            }
        }
    }

    fn start(slot: u32) -> NodeRecord<'static> {
        let slot = SlotIndex(slot);
        NodeRecord::Split(SplitRecord::Start { slot, key: b"k", target: PAIR, target_slot: SlotIndex(3) })
    }

    #[test]
    fn book_of_a_new_pair_has_a_meganode_only_in_the_first_one() {
        assert_eq!(SplitTable::new(PairId(1)).slots().collect::<Vec<_>>(), [(SlotIndex(0), SlotUse::Leaf)]);
        assert_eq!(SplitTable::new(PairId(2)).slots().count(), 0);
        assert_eq!(SplitTable::new(PairId(2)).free_slot(1), Some(SlotIndex(0)));
        assert_eq!(SplitTable::new(PairId(1)).free_slot(1), None);
    }

    #[test]
    fn apply_what_does_not_follow_is_refused_by_name() {
        let mut table = SplitTable::new(PAIR);
        let name = SplitName { pair: PAIR, epoch: EPOCH, csn: Csn(5) };
        let mut apply = |record: &NodeRecord<'_>, csn| table.apply(record, EPOCH, Csn(csn));
        assert_eq!(apply(&start(1), 4), Err(SplitTableError::Unused(SlotIndex(1))));
        assert_eq!(apply(&start(0), 5), Ok(()));
        assert_eq!(apply(&start(0), 6), Err(SplitTableError::Busy(SlotIndex(0))), "one split at a time");
        let finished = NodeRecord::Split(SplitRecord::Finished { name });
        assert_eq!(apply(&finished, 7), Err(SplitTableError::Order(name)));
        let linked = NodeRecord::Split(SplitRecord::Linked { name });
        assert_eq!((apply(&linked, 7), apply(&linked, 7)), (Ok(()), Ok(())), "again changes nothing");
        assert_eq!(apply(&linked, 8), Err(SplitTableError::Order(name)));
        let other = SplitName { csn: Csn(6), ..name };
        let unknown = NodeRecord::Split(SplitRecord::Opened { name: other });
        assert_eq!(apply(&unknown, 8), Err(SplitTableError::Unknown(other)));
        let used = |used| NodeRecord::SlotUse { slot: SlotIndex(0), used };
        assert_eq!(apply(&used(SlotUse::Router), 9), Err(SplitTableError::Busy(SlotIndex(0))));
        assert_eq!(apply(&used(SlotUse::Free), 9), Err(SplitTableError::Unused(SlotIndex(0))));
    }

    #[test]
    fn slot_of_a_discarded_adoption_is_free_only_when_that_is_durable() {
        let mut table = SplitTable::new(PairId(2));
        let name = SplitName { pair: PAIR, epoch: EPOCH, csn: Csn(5) };
        let (slot, right) = (SlotIndex(0), Pointer::NULL);
        let adopt = SplitRecord::Adopt { name, slot, low: b"k", high: None, right, kept: &[] };
        table.apply(&NodeRecord::Split(adopt), EPOCH, Csn(10)).unwrap();
        assert!(table.is_hidden(slot) && table.free_slot(1).is_none());
        table.apply(&NodeRecord::Split(SplitRecord::Discarded { name, slot }), EPOCH, Csn(12)).unwrap();
        table.prune(Csn(11));
        assert_eq!((table.slot_use(slot), table.free_slot(1)), (SlotUse::Free, None));
        table.prune(Csn(12));
        assert_eq!((table.free_slot(1), table.targets().count()), (Some(slot), 0));
    }

    /// The router may lead to the slot until then.
    #[test]
    fn slot_of_a_meganode_that_was_merged_away_is_free_only_when_the_merge_is_over() {
        let mut table = SplitTable::new(PAIR);
        let (slot, name) = (SlotIndex(0), SplitName { pair: PAIR, epoch: EPOCH, csn: Csn(5) });
        let merge = SplitRecord::Merge { slot, key: b"k", target: PairId(2), target_slot: SlotIndex(3) };
        let steps = [
            (merge, 5),
            (SplitRecord::Linked { name }, 6),
            (SplitRecord::Retired { name, slot }, 7),
            (SplitRecord::Finished { name }, 8),
        ];
        for (record, csn) in steps {
            assert_eq!(table.free_slot(1), None, "before {record:?}");
            table.apply(&NodeRecord::Split(record), EPOCH, Csn(csn)).unwrap();
            table.prune(Csn(7));
        }
        assert_eq!((table.slot_use(slot), table.free_slot(1)), (SlotUse::Free, Some(slot)));
        let truncated = SplitRecord::Retired { name: SplitName { csn: Csn(9), ..name }, slot };
        let unknown = SplitTableError::Unknown(SplitName { csn: Csn(9), ..name });
        assert_eq!(table.apply(&NodeRecord::Split(truncated), EPOCH, Csn(9)), Err(unknown));
    }

    #[test]
    fn meganode_that_takes_over_a_range_is_read_and_not_written_until_it_has_it() {
        let mut table = SplitTable::new(PAIR);
        let (slot, name) = (SlotIndex(0), SplitName { pair: PairId(2), epoch: EPOCH, csn: Csn(5) });
        let absorb =
            SplitRecord::Absorb { name, slot, low: b"k", high: None, right: Pointer::NULL, kept: &[] };
        let apply =
            |table: &mut SplitTable, record, csn| table.apply(&NodeRecord::Split(record), EPOCH, Csn(csn));
        let other = SplitRecord::Absorb {
            name: SplitName { csn: Csn(6), ..name },
            slot: SlotIndex(1),
            low: b"k",
            high: None,
            right: Pointer::NULL,
            kept: &[],
        };
        assert_eq!(apply(&mut table, other, 9), Err(SplitTableError::Unused(SlotIndex(1))));
        assert_eq!(apply(&mut table, absorb, 10), Ok(()));
        assert!(table.is_closed(slot) && !table.is_hidden(slot));
        let mut failed = table.clone();
        apply(&mut failed, SplitRecord::Discarded { name, slot }, 11).unwrap();
        failed.prune(Csn(11));
        assert!(!failed.is_closed(slot) && failed.slot_use(slot) == SlotUse::Leaf, "it stays what it was");
        apply(&mut table, SplitRecord::Adopted { name, slot, nodes: 1, entries: 0 }, 11).unwrap();
        apply(&mut table, SplitRecord::Opened { name }, 12).unwrap();
        assert!(!table.is_closed(slot) && table.forget(name));
        assert_eq!(table.slot_use(slot), SlotUse::Leaf);
    }

    /// That the split was forgotten is in no log: a replay finds both.
    #[test]
    fn meganode_that_was_adopted_and_takes_over_a_range_is_closed() {
        let mut table = SplitTable::new(PairId(2));
        let split = SplitName { pair: PAIR, epoch: EPOCH, csn: Csn(5) };
        let merge = SplitName { pair: PairId(3), epoch: EPOCH, csn: Csn(6) };
        let (slot, right, middle) = (SlotIndex(0), Pointer::NULL, &b"k"[..]);
        let records = [
            SplitRecord::Adopt { name: split, slot, low: b"g", high: Some(middle), right, kept: &[] },
            SplitRecord::Adopted { name: split, slot, nodes: 1, entries: 0 },
            SplitRecord::Opened { name: split },
            SplitRecord::Absorb { name: merge, slot, low: middle, high: None, right, kept: &[] },
        ];
        for (csn, record) in (10..).map(Csn).zip(records) {
            table.apply(&NodeRecord::Split(record), EPOCH, csn).unwrap();
        }
        assert_eq!(table.target_of(slot).map(|(name, _)| name), Some(merge));
        assert!(table.is_closed(slot) && !table.is_hidden(slot));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutants_of_slots_that_take_part_in_merges_are_caught() {
        use cell_terms::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            let twins: [(Mutant, fn()); 2] = [
                (Mutant::OpenTargetFirst, meganode_that_was_adopted_and_takes_over_a_range_is_closed),
                (
                    Mutant::MergedSlotPruned,
                    slot_of_a_meganode_that_was_merged_away_is_free_only_when_the_merge_is_over,
                ),
            ];
            for (mutant, test) in twins {
                plant(Some(mutant));
                let passed = std::panic::catch_unwind(test).is_ok();
                plant(None);
                assert!(!passed, "{} was not caught", mutant.name());
                println!("mutant {} caught by cell-recovery's split table", mutant.name());
            }
        });
    }

    #[test]
    fn forget_is_for_what_is_open_alone() {
        let mut table = SplitTable::new(PairId(2));
        let name = SplitName { pair: PAIR, epoch: EPOCH, csn: Csn(5) };
        let (slot, right) = (SlotIndex(0), Pointer::NULL);
        let adopt = SplitRecord::Adopt { name, slot, low: b"k", high: None, right, kept: &[] };
        let adopted = SplitRecord::Adopted { name, slot, nodes: 1, entries: 0 };
        for (record, csn) in [(adopt, 10), (adopted, 11), (SplitRecord::Opened { name }, 12)] {
            assert!(!table.forget(name));
            table.apply(&NodeRecord::Split(record), EPOCH, Csn(csn)).unwrap();
        }
        assert!(!table.is_hidden(slot) && table.forget(name) && !table.forget(name));
        assert_eq!(table.slot_use(slot), SlotUse::Leaf);
    }
}
