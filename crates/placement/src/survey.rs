//! What each node has, beside the mean.

use crate::figures::{Figures, HeldPair, PairLoad};
use crate::history::History;
use crate::reason::Measure;
use crate::rules::BalanceRules;
use crate::words::percent;

/// Parts of the mean. A measure of which there is too little to count is zero for all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shares {
    pub(crate) bytes: f64,
    pub(crate) load: f64,
}

impl Shares {
    /// The larger one: that by which a node, or a pair, is judged.
    pub(crate) fn worst(self) -> f64 {
        self.bytes.max(self.load)
    }

    pub(crate) fn measure(self) -> Measure {
        if self.load > self.bytes { Measure::Load } else { Measure::Bytes }
    }

    pub(crate) fn of(self, measure: Measure) -> f64 {
        match measure {
            Measure::Bytes => self.bytes,
            Measure::Load => self.load,
        }
    }

    pub(crate) fn plus(self, other: Shares) -> Shares {
        Shares { bytes: self.bytes + other.bytes, load: self.load + other.load }
    }

    pub(crate) fn minus(self, other: Shares) -> Shares {
        Shares { bytes: self.bytes - other.bytes, load: self.load - other.load }
    }
}

/// What a node has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    pub(crate) bytes: u64,
    pub(crate) load_ns: u64,
    pub(crate) shares: Shares,
}

/// What all have. The mean is over the nodes that share the load, of what they have and of what nodes that
/// drain still have: that comes to them. What a node has that cannot take pairs stays there.
#[derive(Clone, Debug)]
pub(crate) struct Survey {
    pub(crate) mean_bytes: u64,
    pub(crate) mean_load_ns: u64,
    /// One over the means; zero for a measure that does not count.
    bytes_part: f64,
    load_part: f64,
    /// By place among the members.
    pub(crate) nodes: Vec<Standing>,
}

impl Survey {
    /// One pass over all pairs.
    pub(crate) fn new(figures: &Figures, history: &History, rules: &BalanceRules) -> Survey {
        let sharing = figures.members.iter().filter(|member| member.shares_load()).count();
        let mut nodes = Vec::with_capacity(figures.members.len());
        let (mut bytes_all, mut load_all) = (0_u64, 0_u64);
        for member in &figures.members {
            let mut standing = Standing::default();
            for held in &member.pairs {
                let load = expected_load(held, history, rules);
                standing.bytes = standing.bytes.saturating_add(load.bytes);
                standing.load_ns = standing.load_ns.saturating_add(load.load_ns);
            }
            if member.shares_load() || member.draining {
                bytes_all = bytes_all.saturating_add(standing.bytes);
                load_all = load_all.saturating_add(standing.load_ns);
            }
            nodes.push(standing);
        }
        let mean = |all: u64| all / (sharing as u64).max(1);
        let part = |all: u64, floor: u64| {
            let counts = all > 0 && mean(all) >= floor;
            if counts { sharing as f64 / all as f64 } else { 0.0 }
        };
        let mut survey = Survey {
            mean_bytes: mean(bytes_all),
            mean_load_ns: mean(load_all),
            bytes_part: part(bytes_all, rules.bytes_floor),
            load_part: part(load_all, rules.load_floor_ns),
            nodes: Vec::new(),
        };
        for standing in &mut nodes {
            standing.shares = survey.shares(standing.bytes, standing.load_ns);
        }
        survey.nodes = nodes;
        survey
    }

    /// Whether there is anything to compare nodes by.
    pub(crate) fn counts(&self) -> bool {
        self.bytes_part > 0.0 || self.load_part > 0.0
    }

    /// What somebody has of a measure, in percent of the mean; none: there is too little of it to count.
    pub(crate) fn percent(&self, measure: Measure, shares: Shares) -> Option<u32> {
        let part = match measure {
            Measure::Bytes => self.bytes_part,
            Measure::Load => self.load_part,
        };
        (part > 0.0).then(|| percent(shares.of(measure)))
    }

    /// Parts of the mean.
    pub(crate) fn shares(&self, bytes: u64, load_ns: u64) -> Shares {
        Shares { bytes: bytes as f64 * self.bytes_part, load: load_ns as f64 * self.load_part }
    }
}

/// What a pair takes, as far as anybody has said: of one that has just come what its last owner did.
fn expected_load(held: &HeldPair, history: &History, rules: &BalanceRules) -> PairLoad {
    let load = held.load.or_else(|| history.came(held.pair)).unwrap_or_default();
    let load_ns = history.carried_load(held, rules).unwrap_or(load.load_ns);
    PairLoad { load_ns, ..load }
}

/// What a pair takes; its load as its last owner measured it, where its owner has not yet.
pub(crate) fn known_load(held: &HeldPair, history: &History, rules: &BalanceRules) -> Option<PairLoad> {
    let load = held.load?;
    match history.carried_load(held, rules) {
        Some(load_ns) => Some(PairLoad { load_ns, ..load }),
        None => Some(load),
    }
}
