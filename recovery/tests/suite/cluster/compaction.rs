//! Deletes, and the compaction of a meganode after them, step by step.

use cell_recovery::{NodeRecord, SlotUse, WriteCompletion, WriteOutcome};
use cell_terms::{Csn, SlotIndex};
use cell_tree::{CompactionLimits, CompactionNext, CompactionPlan, Meganode, plan_remove};

use super::{Cluster, Crash, Done, Freed};

/// Short runs, so that there are many steps.
const LIMITS: CompactionLimits =
    CompactionLimits { sparse_permille: 500, fill_percent: 85, fills: 1, run: 4 };

impl Cluster {
    pub fn delete(&mut self, key: &[u8]) -> Result<(), Crash> {
        let (at, meganode) = self.route(key);
        self.room(at)?;
        self.tick()?;
        let (number, floor) = self.next_number();
        let (pair, session) = (&mut self.pairs[at], self.session);
        let node = pair.recovered.memory.node.region().clone();
        let (geometry, slot) = (pair.recovered.geometry, pair.recovered.meganodes[meganode].slot);
        plan_remove(&Meganode::new(&node, geometry, slot), key, &mut self.plan).unwrap();
        let old = self.plan.old().unwrap();
        let completion = WriteCompletion { session, number, floor, outcome: WriteOutcome::Deleted };
        let mut csn = Csn::ZERO;
        for change in self.plan.changes() {
            let completion = Some(completion);
            csn = pair.log(&NodeRecord::Tree { slot: slot.index, completion, change });
            pair.change_node(slot.index, &change, csn);
        }
        self.plan.commit(&mut pair.recovered.meganodes[meganode].allocator);
        pair.recovered.completions.record(&completion, csn);
        pair.free_extent(&old, csn);
        let (pair, key) = (pair.id(), key.to_vec());
        self.known.done.push(Done { pair, csn, key, written: None, number });
        Ok(())
    }

    /// Compacts every meganode of entries; the steps that changed something. Writes go on between them.
    pub fn compact(&mut self) -> Result<usize, Crash> {
        let mut steps = 0;
        for at in 0..self.pairs.len() {
            let found = self.pairs[at].recovered.meganodes.iter();
            let leaves = found.filter(|found| found.used == SlotUse::Leaf);
            for slot in leaves.map(|found| found.slot.index).collect::<Vec<_>>() {
                steps += self.compact_slot(at, slot)?;
            }
        }
        Ok(steps)
    }

    fn compact_slot(&mut self, at: usize, slot: SlotIndex) -> Result<usize, Crash> {
        let (mut plan, mut steps) = (CompactionPlan::new(), 0);
        let (mut level, mut from) = (0, Vec::new());
        loop {
            self.room(at)?;
            let pair = &mut self.pairs[at];
            let (geometry, there) = (pair.recovered.geometry, pair.slot(slot));
            let node = pair.recovered.memory.node.region().clone();
            let meganode = Meganode::new(&node, geometry, there);
            let next = meganode.plan_compaction(level, &from, &LIMITS, &mut plan).unwrap();
            let mut csn = Csn::ZERO;
            for change in plan.changes() {
                csn = pair.log(&NodeRecord::Tree { slot, completion: None, change });
                pair.change_node(slot, &change, csn);
            }
            let found = pair.at(slot);
            plan.commit(&mut pair.recovered.meganodes[found].allocator);
            pair.freed.extend(plan.freed().iter().map(|node| (csn, Freed::Node(slot, *node))));
            if !plan.is_empty() {
                steps += 1;
                self.tick()?;
                self.put(format!("key {:05} at step", steps * 331 % 1000).as_bytes(), b"between steps")?;
            }
            match next {
                CompactionNext::From(next) => from = next,
                CompactionNext::LevelDone => (level, from) = (level + 1, Vec::new()),
                CompactionNext::TreeDone => return Ok(steps),
            }
        }
    }

    /// Tree nodes in use, of meganodes of entries.
    pub fn nodes_used(&self) -> usize {
        let found = self.pairs.iter().flat_map(|pair| &pair.recovered.meganodes);
        found.filter(|found| found.used == SlotUse::Leaf).map(|found| found.allocator.nodes_used()).sum()
    }
}
