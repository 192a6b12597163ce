//! Which reads a one-sided search needs: the levels of the tree, how large each one is on a server, and which
//! of its nodes a client has cached. The cache is the client's own, of `crates/client`.

use cell_terms::Pointer;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::data::Inputs;

#[allow(dead_code, reason = "the file is the client's; a run forgets no regions and keeps one limit")]
#[path = "../../../crates/client/src/onesided/cache.rs"]
mod cache;

use cache::NodeCache;

/// The reads of searches, as they occur: each one's areas, by how much longer memory takes than over 1 GB.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reads {
    /// How often each set of reads occurs, summed up, and its areas.
    plans: Vec<(f64, Vec<f64>)>,
}

impl Reads {
    /// Each search needs these.
    pub(crate) fn each(areas: Vec<f64>) -> Reads {
        Reads { plans: vec![(1.0, areas)] }
    }

    /// The set at a number from 0 to 1.
    pub(crate) fn draw(&self, draw: f64) -> usize {
        self.plans.partition_point(|(up_to, _)| *up_to <= draw).min(self.plans.len() - 1)
    }

    pub(crate) fn areas(&self, plan: usize) -> &[f64] {
        &self.plans[plan].1
    }

    /// The mean number.
    pub(crate) fn mean(&self) -> f64 {
        let (mut mean, mut before) = (0.0, 0.0);
        for (up_to, areas) in &self.plans {
            mean += (up_to - before) * areas.len() as f64;
            before = *up_to;
        }
        mean
    }

    /// Memory's time of a search's reads, in those of one over 1 GB.
    #[cfg(test)]
    fn mean_area(&self) -> f64 {
        let (mut mean, mut before) = (0.0, 0.0);
        for (up_to, areas) in &self.plans {
            mean += (up_to - before) * areas.iter().sum::<f64>();
            before = *up_to;
        }
        mean
    }
}

/// How much longer memory takes with the area, from the two figures that the paper gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Areas {
    /// Over 64 MB, as a part of over 1 GB.
    small: f64,
}

const SMALL_BYTES: f64 = 67_108_864.0;
/// From 64 MB to 1 GB.
const DOUBLINGS: f64 = 4.0;

impl Areas {
    /// By the figures of section 4.2.
    #[must_use]
    pub fn new(inputs: &Inputs) -> Areas {
        Areas { small: inputs.single("read_1gb_mops") / inputs.single("read_64mb_mops") }
    }

    /// Over an area of so many bytes: as much longer with each doubling as between the two figures.
    #[must_use]
    pub fn of_bytes(self, bytes: f64) -> f64 {
        let doublings = (bytes / SMALL_BYTES).log2().max(0.0);
        self.small + doublings / DOUBLINGS * (1.0 - self.small)
    }
}

/// The tree: its pairs, on how many servers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    pub(crate) pairs: f64,
    pub(crate) servers: f64,
    pub(crate) fanout: f64,
    pub(crate) node_bytes: f64,
}

impl Tree {
    /// As the paper populates so many servers. A meganode of 64 MB has 1 KB nodes in five levels: its fan-out
    /// is the one with which the lowest level of five fills it.
    pub(crate) fn of_the_paper(inputs: &Inputs, servers: usize) -> Tree {
        let node_bytes = inputs.single("node_bytes");
        let levels_above = inputs.single("meganode_levels") - 1.0;
        Tree {
            pairs: 1e6 * inputs.single("pairs_per_server") * servers as f64,
            servers: servers as f64,
            fanout: (SMALL_BYTES / node_bytes).powf(1.0 / levels_above),
            node_bytes,
        }
    }

    /// Nodes of a level, leaves first.
    fn nodes(&self, level: u32) -> f64 {
        (self.pairs / self.fanout.powf(f64::from(level) + 1.0)).ceil()
    }

    /// How many levels there are.
    pub(crate) fn levels(&self) -> u32 {
        (0..64).find(|level| self.nodes(*level) <= 1.0).unwrap_or(63) + 1
    }

    /// What a server has of a level, by what a read of it takes.
    fn area(&self, level: u32, areas: Areas) -> f64 {
        areas.of_bytes(self.nodes(level) * self.node_bytes / self.servers)
    }

    /// Reads of a search by a client that caches no node of the lowest levels, and everything above them.
    pub(crate) fn reads_below(&self, uncached: u32, areas: Areas) -> Reads {
        Reads::each((0..uncached).rev().map(|level| self.area(level, areas)).collect())
    }

    /// Reads of searches by a client whose cache keeps what it can of all levels but the leaves: the client's
    /// own cache, asked for keys drawn evenly until it has its steady state.
    pub(crate) fn reads_cached(&self, cache_bytes: f64, searches: u64, areas: Areas) -> Reads {
        // A node is one word here, so the cache is as many times smaller.
        let nodes_max = whole(cache_bytes / self.node_bytes);
        let mut cache = NodeCache::new(usize::try_from(nodes_max * 8).unwrap_or(usize::MAX));
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let levels = self.levels();
        let mut counts = std::collections::BTreeMap::<Vec<u32>, u64>::new();
        for search in 0..2 * searches {
            let at = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            let mut read = Vec::new();
            for level in (1..levels).rev() {
                let pointer = Pointer(u64::from(level + 1) << 48 | whole(at * self.nodes(level)));
                if cache.get(pointer).is_none() {
                    cache.insert(pointer, &[1]);
                    read.push(level);
                }
            }
            read.push(0);
            if search >= searches {
                *counts.entry(read).or_default() += 1;
            }
        }
        let mut up_to = 0;
        let plans = counts.into_iter().map(|(read, count)| {
            up_to += count;
            let areas = read.into_iter().map(|level| self.area(level, areas)).collect();
            (up_to as f64 / searches as f64, areas)
        });
        Reads { plans: plans.collect() }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a float saturates")]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DATA, PaperData};

    #[test]
    fn tree_of_the_paper_has_its_levels_and_four_reads_below_the_cache() {
        let inputs = PaperData::parse(&DATA).unwrap().inputs;
        let areas = Areas::new(&inputs);
        assert!((areas.of_bytes(SMALL_BYTES * 16.0) - 1.0).abs() < 1e-9);
        for servers in [1, 4] {
            let tree = Tree::of_the_paper(&inputs, servers);
            assert_eq!(tree.levels(), 7, "4.3: 7 node levels");
            let reads = tree.reads_below(4, areas);
            assert_eq!(reads.mean(), 4.0);
            assert!((3.0..3.5).contains(&reads.mean_area()), "{reads:?}");
        }
    }

    #[test]
    fn more_cache_leaves_fewer_reads_and_the_leaf_is_always_one() {
        let inputs = PaperData::parse(&DATA).unwrap().inputs;
        let (tree, areas) = (Tree::of_the_paper(&inputs, 1), Areas::new(&inputs));
        let mean = |cache_bytes| tree.reads_cached(cache_bytes, 30_000, areas).mean();
        let (none, small, all) = (mean(0.0), mean(1e6), mean(1e9));
        assert_eq!(none, 7.0);
        assert!(none > small && small > all && all >= 1.0, "{none} {small} {all}");
    }
}
