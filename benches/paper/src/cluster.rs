//! What is simulated: machines with processes and cards, groups of clients, what they do and how long things
//! take.

use cell_selector::SelectorSettings;

use crate::card::Card;
use crate::host::Host;
use crate::tree::Reads;

/// One machine. It has a process a core, each with keys, connections and a queue of its own, as the paper's
/// servers (section 3) and ours; with fewer cores than processes, these take turns.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) card: Card,
    pub(crate) processes: usize,
    pub(crate) cores: usize,
    /// A search by the server, there; half as long to half as long again.
    pub(crate) cpu_ns: f64,
}

/// What a group of clients does, in parts of its operations; what is left are searches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mix {
    pub(crate) gets: f64,
    pub(crate) updates: f64,
    pub(crate) inserts: f64,
}

/// Clients that are alike.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Threads, each with a client and its selectors.
    pub(crate) threads: usize,
    /// What a thread has in hand.
    pub(crate) in_hand: usize,
    pub(crate) mix: Mix,
    /// A thread begins an operation so often, and one after another where it cannot keep up; without it the
    /// next one begins when one is done.
    pub(crate) every_ns: Option<u64>,
    /// From when until when it works.
    pub(crate) works_ns: (u64, u64),
    pub(crate) settings: SelectorSettings,
}

/// What inserts cost besides: nodes that are split at once, and meganodes, the copying of which takes the
/// core between requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Splits {
    /// Entries that are added to a node for each split of it.
    pub(crate) node_entries: u32,
    /// What the split of a node takes the server, in searches.
    pub(crate) node_searches: f64,
    /// Inserts into a process for each split of one of its meganodes.
    pub(crate) inserts: u32,
    /// Pieces that are copied, and what each one takes.
    pub(crate) pieces: u32,
    pub(crate) piece_ns: f64,
}

/// What a write takes the server, in searches: it finds the leaf, changes it and writes the log's record.
pub(crate) const WRITE_SEARCHES: f64 = 1.5;
/// Entries of a full node, and leaves of a full meganode: 64 MB of 1 KB, as [`crate::tree::Tree`] has them.
const NODE_ENTRIES: u32 = 16;
const MEGANODE_LEAVES: u32 = 65_536;

impl Splits {
    /// A full node or meganode leaves two halves, so each is split after as many entries as fill the other
    /// half again. A node's split changes two nodes more, the new one and the one above, each for what a
    /// write's node takes. Half a meganode is copied, 64 KB at a time, at a gigabyte a second.
    pub(crate) const OF_THE_PAPER: Splits = Splits {
        node_entries: NODE_ENTRIES / 2,
        node_searches: 2.0 * (WRITE_SEARCHES - 1.0),
        inserts: MEGANODE_LEAVES * NODE_ENTRIES / 2,
        pieces: 512,
        piece_ns: 65_536.0,
    };

    /// What the splits of nodes take at this insert, counted from 1, in searches: of a leaf, and of the node
    /// above it whenever that is full.
    pub(crate) fn searches_at(&self, insert: u32) -> f64 {
        let (mut left, mut searches) = (insert, 0.0);
        while left > 0 && left.is_multiple_of(self.node_entries) {
            left /= self.node_entries;
            searches += self.node_searches;
        }
        searches
    }
}

/// The whole.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) machines: Vec<Machine>,
    /// How often each process is asked, machine by machine, in parts of all operations. What is left of 1
    /// goes to machines that are like those here and are not simulated: as many operations as are done here
    /// go there, and as many come, each of a client that is drawn from all. So there are as many here at
    /// any time.
    pub(crate) asked: Vec<f64>,
    pub(crate) groups: Vec<Group>,
    pub(crate) reads: Reads,
    /// The area of what a get reads besides.
    pub(crate) extent_area: f64,
    /// To the server and back.
    pub(crate) wire_ns: f64,
    pub(crate) splits: Option<Splits>,
    /// From this time on the servers have so many cores.
    pub(crate) step: Option<(u64, usize)>,
    /// Where clients are threads of the servers' own machine: what they share. Cards, the servers' cores and
    /// the way count for nothing then.
    pub(crate) host: Option<Host>,
    pub(crate) seed: u64,
    /// What is done before this is not counted.
    pub(crate) warm_ns: u64,
    pub(crate) until_ns: u64,
    pub(crate) window_ns: u64,
}

impl Cluster {
    /// Processes of all machines.
    pub(crate) fn processes(&self) -> usize {
        self.machines.iter().map(|machine| machine.processes).sum()
    }

    /// The same with another rule, for all groups.
    pub(crate) fn with(&self, settings: &SelectorSettings) -> Cluster {
        let mut cluster = self.clone();
        cluster.groups.iter_mut().for_each(|group| group.settings = settings.clone());
        cluster
    }
}

/// The settings of a policy, all others as they are by default.
pub(crate) fn policy(name: &str) -> SelectorSettings {
    SelectorSettings {
        policy: name.parse().expect("it is one of the policies"),
        ..SelectorSettings::default()
    }
}

/// A fixed share of searches by the server.
pub(crate) fn fixed(share: f64) -> SelectorSettings {
    SelectorSettings { fixed_share: share, ..policy("fixed") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DATA, PaperData};
    use crate::tree::Tree;

    #[test]
    fn splits_are_those_of_the_papers_tree() {
        let inputs = PaperData::parse(&DATA).unwrap().inputs;
        let tree = Tree::of_the_paper(&inputs, 4);
        assert!((tree.fanout - f64::from(NODE_ENTRIES)).abs() < 1e-9);
        let leaves = tree.fanout.powf(inputs.single("meganode_levels") - 1.0);
        assert!((leaves - f64::from(MEGANODE_LEAVES)).abs() < 1e-3, "{leaves}");
    }

    /// One of eight inserts splits a leaf, one of 64 the node above, and so on: one seventh in all.
    #[test]
    fn nodes_split_as_often_as_halves_fill_again() {
        let splits = Splits::OF_THE_PAPER;
        let at = [1, 7, 8, 9, 16, 64, 512].map(|insert| splits.searches_at(insert) / splits.node_searches);
        assert_eq!(at, [0.0, 0.0, 1.0, 0.0, 1.0, 2.0, 3.0]);
        let all: f64 = (1..=splits.inserts).map(|insert| splits.searches_at(insert)).sum();
        let mean = all / f64::from(splits.inserts);
        assert!((mean - splits.node_searches / 7.0).abs() < 1e-3, "{mean}");
    }
}
