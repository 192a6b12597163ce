//! How nodes and pairs stand, for people.

use std::fmt;

use cell_terms::text::counted;
use cell_terms::{NodeId, PairId};

use crate::figures::{MemberState, PairLoad};
use crate::obstacle::{DrainStall, PairObstacle};
use crate::reason::{HalfKnown, NextStep};
use crate::words::{seconds, size};

/// What is next and why, and how each node stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What is to be done now.
    pub step: NextStep,
    /// Bytes of a node on average.
    pub mean_bytes: u64,
    /// Nanoseconds a second of a node's worker on average.
    pub mean_load_ns: u64,
    /// The nodes, by number.
    pub nodes: Vec<NodeStanding>,
    /// The pairs that keep drains from going on.
    pub stalls: Vec<DrainStall>,
}

/// How a node stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStanding {
    /// Which.
    pub node: NodeId,
    /// What it does.
    pub state: MemberState,
    /// It is to be emptied.
    pub draining: bool,
    /// Its pairs.
    pub pairs: u32,
    /// Their bytes.
    pub bytes: u64,
    /// In percent of the mean; none for all while there are too few to count.
    pub bytes_percent: Option<u32>,
    /// Nanoseconds a second of its worker.
    pub load_ns: u64,
    /// In percent of the mean; none for all while there is too little to count.
    pub load_percent: Option<u32>,
    /// Puts find no memory there, and so much is left.
    pub full: Option<u64>,
    /// What is not known of it.
    pub unknown: Option<HalfKnown>,
    /// It took a pair, and gives none for so long.
    pub gives_in_ms: Option<u64>,
    /// It gave a pair, and takes none for so long.
    pub takes_in_ms: Option<u64>,
}

/// How a pair stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairStanding {
    /// Which.
    pub pair: PairId,
    /// Its owner.
    pub node: NodeId,
    /// What it takes.
    pub load: Option<PairLoad>,
    /// What keeps it there. None: it could move, if that helped.
    pub obstacle: Option<PairObstacle>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.step)?;
        for stall in &self.stalls {
            writeln!(f, "{stall}")?;
        }
        let load = self.mean_load_ns as f64 / 1e7;
        writeln!(f, "a node has {} and {load:.1} % of a worker's time on average", size(self.mean_bytes))?;
        self.nodes.iter().try_for_each(|standing| writeln!(f, "{standing}"))
    }
}

impl fmt::Display for NodeStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pairs, load) = (counted(u64::from(self.pairs), "pair", "pairs"), self.load_ns as f64 / 1e7);
        let of_mean = |percent: Option<u32>| match percent {
            Some(percent) => format!("{percent} % of the mean"),
            None => "too little to count".to_owned(),
        };
        let (of_bytes, of_load) = (of_mean(self.bytes_percent), of_mean(self.load_percent));
        write!(f, "{}: {pairs}, {} ({of_bytes}), ", self.node, size(self.bytes))?;
        write!(f, "{load:.1} % of its worker's time ({of_load})")?;
        if self.draining {
            f.write_str("; it drains")?;
        }
        if let Some(left_bytes) = self.full {
            write!(f, "; puts find no memory there, where {} is left", size(left_bytes))?;
        }
        if let Some(unknown) = self.unknown {
            write!(f, "; it {unknown}")?;
        }
        if let Some(left_ms) = self.gives_in_ms {
            write!(f, "; it took a pair and gives none for {}", seconds(left_ms))?;
        }
        if let Some(left_ms) = self.takes_in_ms {
            write!(f, "; it gave a pair and takes none for {}", seconds(left_ms))?;
        }
        Ok(())
    }
}

impl fmt::Display for PairStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.pair, self.node)?;
        if let Some(load) = self.load {
            let worker = load.load_ns as f64 / 1e7;
            write!(f, " has {} and takes {worker:.1} % of the worker's time", size(load.bytes))?;
        }
        match &self.obstacle {
            Some(why) => write!(f, "; it does not move: {why}"),
            None => f.write_str("; it could move, if that helped"),
        }
    }
}
