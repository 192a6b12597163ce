//! The steps of a split, live and when it is settled.

use cell_memory::extent::{ExtentHeader, ExtentReader, ExtentShape};
use cell_recovery::{
    BoundaryNodes, NodeRecord, RecoveredMeganode, SlotUse, SourceState, SourceStep, SplitAnswer, SplitName,
    SplitRecord, TargetProgress, TargetState, TargetStep, Unsettled, step_of_source, step_of_target,
    unsettled,
};
use cell_terms::{Csn, Root, SlotIndex};
use cell_tree::{
    BulkBuilder, BulkFrame, Change, Image, LeafEntry, LeafSnapshot, Meganode, NodeIndex, SlotAllocator,
    TreeNodeState, TreeStats, apply, empty_router, show,
};

use super::{Cluster, Crash, Freed, Pair};

impl Pair {
    /// Adds a meganode that was built here.
    fn add(&mut self, found: RecoveredMeganode) {
        self.recovered.meganodes.push(found);
    }

    fn show(&mut self, slot: SlotIndex, state: TreeNodeState) {
        let end = self.ends[&slot];
        let (geometry, there) = (self.recovered.geometry, self.slot(slot));
        for node in (0..end.0).rev() {
            show(&mut self.recovered.memory.node, geometry, there, NodeIndex(node), state);
        }
    }

    /// Frees every tree node of a slot by a record.
    fn clear(&mut self, slot: SlotIndex, csn: Csn) {
        let (geometry, there) = (self.recovered.geometry, self.slot(slot));
        let region = self.recovered.memory.node.region().clone();
        let nodes: Vec<_> = Meganode::new(&region, geometry, there).built_nodes().collect();
        let is_router = self
            .recovered
            .meganodes
            .iter()
            .any(|found| found.slot.index == slot && found.used == SlotUse::Router);
        let mut entries = Vec::new();
        for node in nodes {
            Meganode::new(&region, geometry, there).leaf_entries(node, &mut entries);
            let free = Change::Mark { node, state: TreeNodeState::Free };
            apply(&mut self.recovered.memory.node, geometry, there, &free, csn);
        }
        if !is_router {
            entries.iter().for_each(|entry| self.free_extent(entry, csn));
        }
        self.recovered.meganodes.retain(|found| found.slot.index != slot);
        self.ends.remove(&slot);
    }
}

/// What is to be done of something that is not settled.
#[derive(Clone, Copy)]
enum Next {
    Source(SourceStep),
    Target(TargetStep),
    Free,
}

impl Cluster {
    fn pair_of(&self, name: SplitName) -> usize {
        self.pairs.iter().position(|pair| pair.id() == name.pair).unwrap()
    }

    /// Splits a meganode of pair `s`; its upper half goes to pair `t`. Writes go on where they may.
    pub fn split(&mut self, s: usize, slot: SlotIndex, t: usize) -> Result<(), Crash> {
        let (key, high, right) = {
            let pair = &self.pairs[s];
            let found = &pair.recovered.meganodes[pair.at(slot)];
            let node = pair.recovered.memory.node.region();
            let meganode = Meganode::new(node, pair.recovered.geometry, found.slot);
            (meganode.split_key(50).unwrap().unwrap(), found.high.clone(), found.right)
        };
        let target_slot = self.pairs[t].recovered.splits.free_slot(self.pairs[t].recovered.slots).unwrap();
        let target = self.pairs[t].id();
        self.room(s)?;
        self.tick()?;
        let start = SplitRecord::Start { slot, key: &key, target, target_slot };
        let csn = self.pairs[s].log(&NodeRecord::Split(start));
        let name = SplitName { pair: self.pairs[s].id(), epoch: self.pairs[s].ownership.epoch, csn };
        self.settle()?;
        self.put(&self.low_key(&key, 1), b"while it is adopted")?;
        self.adopt(name, s, slot, t, target_slot, (&key, high.as_deref(), right))?;
        self.put(&self.low_key(&key, 2), b"when it is adopted")?;
        self.room(s)?;
        self.tick()?;
        self.pairs[s].log(&NodeRecord::Split(SplitRecord::Linked { name }));
        self.settle()?;
        while self.pairs.iter().any(|pair| pair.recovered.splits.source(name).is_some()) {
            self.settle_splits()?;
        }
        self.settle()
    }

    /// Some key below a split's.
    fn low_key(&self, key: &[u8], number: u8) -> Vec<u8> {
        let below = self.pairs.iter().flat_map(|pair| &pair.recovered.meganodes);
        let low =
            below.filter(|found| found.used == SlotUse::Leaf && *found.low < *key).map(|found| &found.low);
        let mut low = low.max().unwrap().clone();
        low.extend_from_slice(&[0, number]);
        assert!(*low < *key);
        low
    }

    fn adopt(
        &mut self,
        name: SplitName,
        s: usize,
        slot: SlotIndex,
        t: usize,
        target_slot: SlotIndex,
        (low, high, right): (&[u8], Option<&[u8]>, cell_terms::Pointer),
    ) -> Result<(), Crash> {
        self.pairs[t].adopts = true;
        let geometry = self.pairs[s].recovered.geometry;
        let mut adopted_at = Csn::ZERO;
        let durable = self.pairs[s].durable();
        for kept in self.pairs[s].recovered.completions.parts(durable, 200) {
            self.room(t)?;
            self.tick()?;
            let adopt = SplitRecord::Adopt { name, slot: target_slot, low, high, right, kept: &kept };
            adopted_at = self.pairs[t].log(&NodeRecord::Split(adopt));
        }
        let frame = BulkFrame {
            low,
            high,
            right,
            csn_removed: adopted_at,
            state: TreeNodeState::Hidden,
            ..BulkFrame::WHOLE
        };
        let mut builder = BulkBuilder::new(geometry, self.pairs[t].slot(target_slot), &frame);
        let mut allocator = SlotAllocator::new(geometry.nodes());
        let (mut leaf, mut reader, mut fills) = (LeafSnapshot::new(), ExtentReader::new(), Vec::new());
        let mut cursor = low.to_vec();
        loop {
            let from = &self.pairs[s].recovered.memory;
            let meganode = Meganode::new(from.node.region(), geometry, self.pairs[s].slot(slot));
            meganode.leaf(&cursor, &mut leaf).unwrap();
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for (key, entry) in leaf.iter() {
                let shape = ExtentShape::from_bits(entry.value_len).unwrap();
                let view = reader.read(from.extent.region(), entry.offset, shape, entry.crc).unwrap();
                keys.push(key.to_vec());
                values.push((view.header.version(self.pairs[s].id()), view.value.to_vec()));
            }
            for (key, (version, value)) in keys.iter().zip(values) {
                self.room(t)?;
                let pair = &mut self.pairs[t];
                let (epoch, csn) = (pair.ownership.epoch, pair.next_csn());
                let header = ExtentHeader { epoch, csn, moved: Some(version), expiry_ms: None };
                let entry = pair.write_extent(&mut self.encoder, &header, &value);
                builder.push(&mut allocator, key, entry, &mut |change| fills.push(own(&change))).unwrap();
                self.fill(t, target_slot, &mut fills, &allocator)?;
            }
            match leaf.high() {
                Some(next) if high.is_none_or(|high| next < high) => cursor = next.to_vec(),
                _ => break,
            }
        }
        let built = builder.finish(&mut allocator, &mut |change| fills.push(own(&change))).unwrap();
        self.fill(t, target_slot, &mut fills, &allocator)?;
        let slot = self.pairs[t].slot(target_slot);
        self.pairs[t].add(RecoveredMeganode {
            slot,
            used: SlotUse::Leaf,
            hidden: true,
            allocator,
            stats: TreeStats { entries: built.entries, ..TreeStats::default() },
            extent_bytes: 0,
            low: low.to_vec(),
            high: high.map(<[u8]>::to_vec),
            right,
        });
        self.room(t)?;
        self.tick()?;
        let (nodes, entries) = (built.nodes as u32, built.entries);
        let adopted = SplitRecord::Adopted { name, slot: target_slot, nodes, entries };
        self.pairs[t].log(&NodeRecord::Split(adopted));
        self.pairs[t].adopts = false;
        self.settle()
    }

    /// Logs and applies what a build has emitted.
    fn fill(
        &mut self,
        t: usize,
        slot: SlotIndex,
        fills: &mut Vec<(NodeIndex, Vec<u64>)>,
        allocator: &SlotAllocator,
    ) -> Result<(), Crash> {
        for (node, words) in fills.drain(..) {
            self.room(t)?;
            self.tick()?;
            let pair = &mut self.pairs[t];
            let change = Change::Fill { node, image: Image::new(&words) };
            let csn = pair.log(&NodeRecord::Tree { slot, completion: None, change });
            pair.ends.insert(slot, allocator.high_water());
            pair.change_node(slot, &change, csn);
        }
        Ok(())
    }

    /// What the pairs have left to do of their splits, once; then everything is durable.
    pub fn settle_splits(&mut self) -> Result<bool, Crash> {
        let mut left = Vec::new();
        for (at, pair) in self.pairs.iter().enumerate() {
            let root = Root::from_word(self.pairs[0].recovered.memory.node.region().first_word());
            let slot = pair.recovered.geometry.locate(root.pointer).map(|(slot, _)| slot);
            let ours = slot.filter(|slot| at == 0 && slot.region == pair.slot(SlotIndex(0)).region);
            let found = unsettled(&pair.recovered.splits, root, ours.map(|slot| slot.index));
            left.extend(found.into_iter().map(|unsettled| (at, unsettled, self.step_of(pair, unsettled))));
        }
        for (at, unsettled, step) in &left {
            match (*unsettled, *step) {
                (Unsettled::Source { name }, Next::Source(step)) => self.settle_source(*at, name, step)?,
                (Unsettled::Target { name, slot }, Next::Target(step)) => {
                    self.settle_target(*at, name, slot, step)?;
                }
                (Unsettled::LostRouter { slot }, _) => {
                    self.room(*at)?;
                    self.tick()?;
                    let csn = self.pairs[*at].log(&NodeRecord::SlotUse { slot, used: SlotUse::Free });
                    self.pairs[*at].clear(slot, csn);
                }
                _ => unreachable!("a step is of its role"),
            }
        }
        self.settle()?;
        // Opened ones, of which the source still knows, are not for the target to end.
        Ok(left.iter().all(|(_, _, step)| matches!(step, Next::Target(TargetStep::Done))))
    }

    /// What is next, as all pairs are now.
    fn step_of(&self, pair: &Pair, unsettled: Unsettled) -> Next {
        let splits = &pair.recovered.splits;
        match unsettled {
            Unsettled::Source { name } => {
                Next::Source(step_of_source(splits.source(name).unwrap().state, TargetProgress::Unknown))
            }
            Unsettled::Target { name, .. } => {
                let source = &self.pairs[self.pair_of(name)];
                let answer = source.recovered.splits.answer(name, source.durable());
                Next::Target(step_of_target(splits.target(name).unwrap().state, Some(answer)))
            }
            Unsettled::LostRouter { .. } => Next::Free,
        }
    }

    fn settle_source(&mut self, at: usize, name: SplitName, step: SourceStep) -> Result<(), Crash> {
        self.room(at)?;
        let split = self.pairs[at].recovered.splits.source(name).unwrap().clone();
        let t = self.pairs.iter().position(|pair| pair.id() == split.target).unwrap();
        match step {
            SourceStep::Abort => {
                self.tick()?;
                self.pairs[at].log(&NodeRecord::Split(SplitRecord::Aborted { name }));
            }
            SourceStep::NotifyLinked if split.csn > self.pairs[at].durable() => {}
            SourceStep::NotifyLinked => {
                // Readable before the other half is gone.
                self.make_readable(t, split.target_slot);
                self.tick()?;
                self.apply_split(at, name, split.slot, t, split.target_slot, &split.key);
            }
            SourceStep::NotifyOpen => {
                let durable = self.pairs[t].durable();
                let target = self.pairs[t].recovered.splits.target(name);
                if target.is_some_and(|target| target.state == TargetState::Opened && target.csn <= durable) {
                    self.insert_parent(t, split.target_slot, &split.key)?;
                    self.settle()?;
                    self.room(at)?;
                    self.tick()?;
                    self.pairs[at].log(&NodeRecord::Split(SplitRecord::Finished { name }));
                    self.settle()?;
                    assert!(self.pairs[t].recovered.splits.forget(name));
                }
            }
            step => panic!("no recovered split is to {step:?}"),
        }
        Ok(())
    }

    fn settle_target(
        &mut self,
        at: usize,
        name: SplitName,
        slot: SlotIndex,
        step: TargetStep,
    ) -> Result<(), Crash> {
        self.room(at)?;
        match step {
            TargetStep::Discard => {
                self.tick()?;
                let csn = self.pairs[at].log(&NodeRecord::Split(SplitRecord::Discarded { name, slot }));
                self.pairs[at].clear(slot, csn);
            }
            TargetStep::Show => self.make_readable(at, slot),
            TargetStep::Open => {
                let source = &self.pairs[self.pair_of(name)].recovered.splits;
                assert_eq!(source.source(name).unwrap().state, SourceState::Applied);
                self.make_readable(at, slot);
                self.tick()?;
                self.pairs[at].log(&NodeRecord::Split(SplitRecord::Opened { name }));
                self.settle()?;
                let found = self.pairs[at].at(slot);
                self.pairs[at].recovered.meganodes[found].hidden = false;
                let low = self.pairs[at].recovered.meganodes[found].low.clone();
                self.put(&[&*low, b"!"].concat(), b"the first write of the new meganode")?;
            }
            TargetStep::Forget => assert!(self.pairs[at].recovered.splits.forget(name)),
            TargetStep::Ask | TargetStep::Done => {}
            TargetStep::Contradiction => panic!("{name} contradicts itself"),
        }
        Ok(())
    }

    fn make_readable(&mut self, t: usize, slot: SlotIndex) {
        let name = self.pairs[t].recovered.splits.target_of(slot).unwrap().0;
        let source = &self.pairs[self.pair_of(name)];
        let answer = source.recovered.splits.answer(name, source.durable());
        assert!(matches!(answer, SplitAnswer::Linked | SplitAnswer::Open), "linked durably");
        self.pairs[t].show(slot, TreeNodeState::Valid);
    }

    fn apply_split(
        &mut self,
        s: usize,
        name: SplitName,
        slot: SlotIndex,
        t: usize,
        target_slot: SlotIndex,
        key: &[u8],
    ) {
        let right =
            self.pairs[t].recovered.geometry.pointer(self.pairs[t].slot(target_slot), NodeIndex::ROOT);
        let pair = &mut self.pairs[s];
        let (geometry, there) = (pair.recovered.geometry, pair.slot(slot));
        let region = pair.recovered.memory.node.region().clone();
        let meganode = Meganode::new(&region, geometry, there);
        let plan = meganode.plan_meganode_split(key).unwrap();
        let mut entries: Vec<LeafEntry> = Vec::new();
        plan.leaves.iter().for_each(|leaf| meganode.leaf_entries(*leaf, &mut entries));
        let (boundary, freed) = (BoundaryNodes::new(&plan.boundary).unwrap(), plan.freed.bits());
        let applied = SplitRecord::Applied { name, slot, right, boundary, high: key, freed };
        let csn = pair.log(&NodeRecord::Split(applied));
        for node in plan.boundary {
            let truncate = Change::Truncate { node, high: key, right };
            pair.change_node(slot, &truncate, csn);
        }
        for node in freed.iter() {
            let free = Change::Mark { node, state: TreeNodeState::Free };
            pair.change_node(slot, &free, csn);
            pair.freed.push((csn, Freed::Node(slot, node)));
        }
        entries.iter().for_each(|entry| pair.free_extent(entry, csn));
        let found = pair.at(slot);
        let found = &mut pair.recovered.meganodes[found];
        (found.high, found.right) = (Some(key.to_vec()), right);
    }

    /// Enters a meganode into the root; the first time, the root becomes a router.
    fn insert_parent(&mut self, t: usize, slot: SlotIndex, key: &[u8]) -> Result<(), Crash> {
        let child = self.pairs[t].recovered.geometry.pointer(self.pairs[t].slot(slot), NodeIndex::ROOT);
        let root = Root::from_word(self.pairs[0].recovered.memory.node.region().first_word());
        self.room(0)?;
        self.tick()?;
        if root.router {
            let at = self.router().unwrap();
            let none = |_| None;
            self.pairs[0].put_entry(at, &mut self.plan, key, LeafEntry::to_meganode(child), none);
            return Ok(());
        }
        let pair = &mut self.pairs[0];
        let slot = pair.recovered.splits.free_slot(pair.recovered.slots).unwrap();
        pair.log(&NodeRecord::SlotUse { slot, used: SlotUse::Router });
        self.tick()?;
        let pair = &mut self.pairs[0];
        let image = empty_router(pair.recovered.geometry);
        let change = Change::Fill { node: NodeIndex::ROOT, image: Image::new(&image) };
        let csn = pair.log(&NodeRecord::Tree { slot, completion: None, change });
        let (geometry, there) = (pair.recovered.geometry, pair.slot(slot));
        pair.change_node(slot, &change, csn);
        pair.add(RecoveredMeganode {
            slot: there,
            used: SlotUse::Router,
            hidden: false,
            allocator: SlotAllocator::new(geometry.nodes()),
            stats: TreeStats::default(),
            extent_bytes: 0,
            low: Vec::new(),
            high: None,
            right: cell_terms::Pointer::NULL,
        });
        for (key, to) in [(&[0][..], root.pointer), (key, child)] {
            self.tick()?;
            let at = self.pairs[0].at(slot);
            self.pairs[0].put_entry(at, &mut self.plan, key, LeafEntry::to_meganode(to), |_| None);
        }
        self.settle()?;
        self.room(0)?;
        self.tick()?;
        let root = Root::router(geometry.pointer(there, NodeIndex::ROOT));
        self.pairs[0].log(&NodeRecord::RootSet(root));
        self.pairs[0].recovered.memory.node.set_first_word(root.to_word());
        Ok(())
    }

    pub fn router(&self) -> Option<usize> {
        let root = Root::from_word(self.pairs[0].recovered.memory.node.region().first_word());
        let (slot, _) = self.pairs[0].recovered.geometry.locate(root.pointer)?;
        root.router.then(|| self.pairs[0].at(slot.index))
    }
}

fn own(change: &Change<'_>) -> (NodeIndex, Vec<u64>) {
    let Change::Fill { node, image } = change else { panic!("a build fills") };
    (*node, (0..image.len()).map(|word| image.word(word)).collect())
}
