//! The story that is ended at every step: two splits, a crash, recoveries, settling, and what comes after.

use std::collections::{BTreeMap, BTreeSet};

use cell_cluster::Sim;
use cell_random::Random;
use cell_recovery::SlotUse;
use cell_terms::SlotIndex;
use cell_wal::sim::{PowerCut, SimDisk};

use super::{Cluster, Crash};

const SLOT: SlotIndex = SlotIndex(0);

struct World {
    disk: SimDisk,
    sim: Sim,
    random: Random,
    checkpoints: bool,
}

impl World {
    fn new(seed: u64, checkpoints: bool) -> World {
        let (disk, sim, random) = (SimDisk::new(seed), Sim::new(7), Random::new(seed));
        World { disk, sim, random, checkpoints }
    }

    fn chance(&mut self) -> Option<Random> {
        let seed = self.random.next();
        self.checkpoints.then(|| Random::new(seed))
    }

    fn crash(&mut self, cluster: &Cluster) {
        if self.random.below(2) == 0 {
            cluster.life.crash();
            while self.random.below(3) == 0 {
                self.disk.land_late();
            }
        } else {
            cluster.life.disk.power_cut(PowerCut::random(self.random.next()));
        }
    }

    /// A cluster of so many pairs with enough entries for a split.
    fn begin(&mut self, pairs: u32) -> Cluster {
        let chance = self.chance();
        let mut cluster = Cluster::create(&self.disk, &self.sim, pairs, chance);
        for key in 0..150_u32 {
            let key = format!("key {:05}", key.wrapping_mul(7919) % 1000);
            let value = vec![key.as_bytes()[8]; self.random.below(90) as usize];
            cluster.put(key.as_bytes(), &value).unwrap();
        }
        cluster.settle().unwrap();
        cluster
    }

    /// Recovers twice, and checks.
    fn recover(&mut self, cluster: Cluster) -> Cluster {
        if self.random.below(2) == 0 {
            cluster.die_in_recovery(&self.disk, &self.sim);
            while self.disk.land_late() {}
        }
        let chance = self.chance();
        let mut cluster = cluster.recover(&self.disk, &self.sim, chance);
        cluster.check_recovered();
        cluster
    }

    /// Settles everything, dying once in the middle of it, perhaps.
    fn settle(&mut self, mut cluster: Cluster) -> Cluster {
        cluster.fuel = self.random.below(150);
        match settle_all(&mut cluster) {
            Ok(()) => cluster.fuel = u64::MAX,
            Err(Crash) => {
                self.crash(&cluster);
                cluster = self.recover(cluster);
                settle_all(&mut cluster).unwrap();
            }
        }
        cluster.settle().unwrap();
        cluster
    }
}

fn settle_all(cluster: &mut Cluster) -> Result<(), Crash> {
    while !cluster.settle_splits()? {}
    cluster.settle()
}

/// The upper half goes from the first pair to the last one, and a part of that back to the first.
fn split_twice(cluster: &mut Cluster) -> Result<(), Crash> {
    let last = cluster.pairs.len() - 1;
    cluster.split(0, SLOT, last)?;
    for key in (0..1000_u32).step_by(37) {
        cluster.put(format!("key {key:05} between").as_bytes(), b"another value")?;
    }
    cluster.settle()?;
    let (at, meganode) = cluster.route(b"key 00999");
    let slot = cluster.pairs[at].recovered.meganodes[meganode].slot.index;
    cluster.split(at, slot, 0)
}

/// What the first recoveries found, so that a test that never meets a case says so.
#[derive(Default)]
pub struct Met(BTreeMap<String, u32>);

impl Met {
    fn note(&mut self, cluster: &Cluster) {
        let tables = || cluster.pairs.iter().map(|pair| &pair.recovered.splits);
        let mut found: Vec<_> = tables()
            .flat_map(|table| table.sources().map(|(_, split)| format!("source {:?}", split.state)))
            .chain(
                tables()
                    .flat_map(|table| table.targets().map(|(_, split)| format!("target {:?}", split.state))),
            )
            .collect();
        if cluster.router().is_some() {
            found.push("router".to_owned());
        }
        if tables().any(|table| table.slots().any(|(_, used)| used == SlotUse::Router))
            && cluster.router().is_none()
        {
            found.push("router without root".to_owned());
        }
        if cluster.pairs.iter().any(|pair| pair.recovered.csn_checkpoint.0 > 0) {
            found.push("checkpoint".to_owned());
        }
        found.into_iter().for_each(|what| *self.0.entry(what).or_default() += 1);
    }

    pub fn expect(&self, checkpoints: bool) {
        println!("{:?}", self.0);
        let cases = [
            "source Started",
            "source Linked",
            "source Applied",
            "target Adopting",
            "target Adopted",
            "target Opened",
            "router",
            "router without root",
        ];
        for case in cases.into_iter().chain(checkpoints.then_some("checkpoint")) {
            assert!(self.0.contains_key(case), "no recovery met: {case}");
        }
    }
}

/// Most entries go.
fn thin_out(cluster: &mut Cluster) -> Result<(), Crash> {
    let keys: Vec<Vec<u8>> = cluster.entries().into_keys().collect();
    for key in keys.iter().enumerate().filter(|(at, _)| at % 7 != 3).map(|(_, key)| key) {
        cluster.delete(key)?;
    }
    cluster.settle()
}

/// As [`run`], a compaction after deletes; `sizes` is given how many tree nodes the first recovery found.
pub fn run_compaction(
    seed: u64,
    pairs: u32,
    checkpoints: bool,
    fuel: u64,
    sizes: &mut BTreeSet<usize>,
) -> bool {
    let mut world = World::new(seed, checkpoints);
    let mut cluster = world.begin(pairs);
    if pairs > 1 {
        split_twice(&mut cluster).unwrap();
    }
    for key in 0..250_u32 {
        cluster.put(format!("key {:05} more", key * 7919 % 1000).as_bytes(), b"for a while").unwrap();
    }
    thin_out(&mut cluster).unwrap();
    cluster.fuel = fuel;
    let died = cluster.compact().and_then(|_| cluster.settle()).is_err();
    world.crash(&cluster);
    let mut cluster = world.recover(cluster);
    sizes.insert(cluster.nodes_used());
    // What is left of it; perhaps that is ended by a crash as well.
    cluster.fuel = world.random.below(60);
    if cluster.compact().and_then(|_| cluster.settle()).is_err() {
        world.crash(&cluster);
        cluster = world.recover(cluster);
    }
    cluster.fuel = u64::MAX;
    assert!((0..8).any(|_| cluster.compact().unwrap() == 0), "a compaction has an end");
    go_on(&mut world, cluster);
    died
}

/// Writes go on, and after one more crash all splits come to their ends.
fn go_on(world: &mut World, mut cluster: Cluster) {
    for key in (0..1000_u32).step_by(43) {
        cluster.put(format!("key {key:05} later").as_bytes(), b"afterwards").unwrap();
    }
    cluster.settle().unwrap();
    world.crash(&cluster);
    cluster = world.recover(cluster);
    while cluster.pairs.iter().any(|pair| pair.recovered.splits.targets().count() > 0) {
        cluster.settle_splits().unwrap();
    }
    cluster.check_settled();
}

/// Runs with so much fuel; whether the process died.
pub fn run(seed: u64, pairs: u32, checkpoints: bool, fuel: u64, met: &mut Met) -> bool {
    let mut world = World::new(seed, checkpoints);
    let mut cluster = world.begin(pairs);
    cluster.fuel = fuel;
    let died = split_twice(&mut cluster).is_err();
    world.crash(&cluster);
    let cluster = world.recover(cluster);
    met.note(&cluster);
    let cluster = world.settle(cluster);
    go_on(&mut world, cluster);
    died
}
