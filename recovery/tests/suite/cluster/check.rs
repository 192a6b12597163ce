//! What must hold of all pairs together.

use cell_memory::extent::{ExtentReader, ExtentShape};
use cell_recovery::{Admission, RecoveredMeganode, SlotUse, SplitAnswer, SplitRecord, WriteOutcome};
use cell_terms::{Csn, Pointer};
use cell_tree::{LeafSnapshot, Meganode, MeganodeRole, NodeIndex, TreeNodeState};

use super::{Cluster, Pair};
use crate::owner::Entries;

impl Cluster {
    /// Whether a meganode is the one that has the keys of its range: what is adopted is, once the other half
    /// is cut.
    pub fn is_truth(&self, pair: &Pair, found: &RecoveredMeganode) -> bool {
        let opens = || {
            let (name, _) = pair.recovered.splits.target_of(found.slot.index)?;
            let source = self.pairs.iter().find(|pair| pair.id() == name.pair)?;
            Some(source.recovered.splits.answer(name, source.durable()) == SplitAnswer::Open)
        };
        found.used == SlotUse::Leaf && (!found.hidden || opens() == Some(true))
    }

    /// Entries of every meganode that has the truth, each key once. What is hidden still is walked by its
    /// tree nodes.
    pub fn entries(&self) -> Entries {
        let (mut all, mut reader) = (Entries::new(), ExtentReader::new());
        for pair in &self.pairs {
            let (node, extent) = (pair.recovered.memory.node.region(), pair.recovered.memory.extent.region());
            for found in pair.recovered.meganodes.iter().filter(|found| self.is_truth(pair, found)) {
                let meganode = Meganode::new(node, pair.recovered.geometry, found.slot);
                let (mut leaf, mut words) =
                    (LeafSnapshot::new(), vec![0; pair.recovered.geometry.node_words()]);
                for at in meganode.built_nodes() {
                    if !meganode.copy_node(at, &mut words).unwrap().snapshot_built(&mut leaf) {
                        continue;
                    }
                    for (key, entry) in leaf.iter() {
                        let shape = ExtentShape::from_bits(entry.value_len).unwrap();
                        let view = reader.read(extent, entry.offset, shape, entry.crc).unwrap();
                        let version = view.header.version(pair.id());
                        let before = all.insert(key.to_vec(), (view.value.to_vec(), version));
                        assert!(before.is_none(), "{key:?} is in two meganodes");
                    }
                }
            }
        }
        all
    }

    /// What must hold as soon as the pairs are recovered, with splits under way: each entry is there, and
    /// nobody sees what is hidden.
    pub fn check_recovered(&mut self) {
        let (found, expected) = (self.entries(), &self.known.entries);
        let lost = expected.keys().find(|key| found.get(*key) != expected.get(*key));
        assert_eq!(lost.map(|key| String::from_utf8_lossy(key)), None, "lost or another");
        assert_eq!(found.len(), expected.len(), "some were never written");
        for pair in &self.pairs {
            let region = pair.recovered.memory.node.region();
            let mut extents = 0;
            for found in &pair.recovered.meganodes {
                let meganode = Meganode::new(region, pair.recovered.geometry, found.slot);
                let meganode = meganode.with_role(found.used.role());
                let state = if found.hidden { TreeNodeState::Hidden } else { TreeNodeState::Valid };
                let stats = meganode.validate_as(state, true).unwrap();
                assert_eq!(found.hidden, meganode.search(b"any").is_err() && found.hidden);
                extents += if found.used == SlotUse::Leaf { stats.entries } else { 0 };
            }
            assert_eq!(pair.recovered.extents.stats().live_extents, extents, "{}", pair.id());
        }
        self.check_results();
    }

    /// A write that is repeated is answered as before, by whoever takes writes of its key.
    fn check_results(&mut self) {
        let Some((last, ..)) = self.known.results.last() else { return };
        let last = *last;
        for (number, key, written) in self.known.results.iter().rev().take(6) {
            if number.0 + 6 < last.0 {
                break;
            }
            let (at, meganode) = self.route(key);
            let recovered = &self.pairs[at].recovered;
            let (mut table, found) = (recovered.completions.clone(), &recovered.meganodes[meganode]);
            if found.hidden {
                // It takes writes once it is opened.
                let (name, _) = recovered.splits.target_of(found.slot.index).unwrap();
                table.apply(&SplitRecord::Opened { name }, Csn::ZERO).unwrap();
            }
            let floor = cell_terms::OperationNumber(1);
            match table.admit(self.session, *number, floor, false) {
                Admission::Repeat { outcome: WriteOutcome::Written { version, .. }, csn } => {
                    assert_eq!(version, *written);
                    assert!(csn <= self.pairs[at].durable());
                }
                other => panic!("{number:?} of {key:?} at {}: {other:?}", self.pairs[at].id()),
            }
        }
    }

    /// What must hold once every split is settled and everything is durable.
    pub fn check_settled(&mut self) {
        self.check_recovered();
        let geometry = self.pairs[0].recovered.geometry;
        let mut ranges = Vec::new();
        for pair in &self.pairs {
            assert_eq!(pair.recovered.splits.sources().count(), 0, "{:?}", pair.recovered.splits);
            let mut adopted = Vec::new();
            pair.recovered.completions.encode_adopted(&mut adopted);
            assert!(adopted.is_empty(), "results that came with an adoption are left aside");
            let slots: Vec<_> = pair.recovered.splits.slots().collect();
            let mut ours: Vec<_> =
                pair.recovered.meganodes.iter().map(|found| (found.slot.index, found.used)).collect();
            ours.sort_unstable_by_key(|(slot, _)| *slot);
            assert_eq!(slots, ours);
            for found in pair.recovered.meganodes.iter().filter(|found| found.used == SlotUse::Leaf) {
                assert!(!found.hidden);
                let pointer = geometry.pointer(found.slot, NodeIndex::ROOT);
                ranges.push((found.low.clone(), found.high.clone(), found.right, pointer));
            }
        }
        ranges.sort();
        assert!(ranges[0].0.is_empty());
        for (one, next) in ranges.iter().zip(&ranges[1..]) {
            assert_eq!((one.1.as_ref(), one.2), (Some(&next.0), next.3), "each leads to the next");
        }
        let last = ranges.last().unwrap();
        assert_eq!((&last.1, last.2), (&None, Pointer::NULL));
        let Some(router) = self.router() else {
            assert_eq!(ranges.len(), 1, "a root that knows all");
            return;
        };
        let slot = self.pairs[0].recovered.meganodes[router].slot;
        let router = Meganode::new(self.pairs[0].recovered.memory.node.region(), geometry, slot);
        let router = router.with_role(MeganodeRole::Router);
        for (low, _, _, pointer) in &ranges {
            let key = if low.is_empty() { &[0][..] } else { low };
            assert_eq!(router.predecessor(key).unwrap().map(|entry| entry.meganode()), Some(*pointer));
            let inside = [key, b"x"].concat();
            assert_eq!(router.predecessor(&inside).unwrap().map(|entry| entry.meganode()), Some(*pointer));
        }
    }
}
