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

/// Meganodes that are split, the copying of which takes the core between requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Splits {
    /// Inserts into a process for each split of one of its meganodes.
    pub(crate) inserts: u32,
    /// Pieces that are copied, and what each one takes.
    pub(crate) pieces: u32,
    pub(crate) piece_ns: f64,
}

/// What a write takes the server, in searches: it finds the leaf, changes it and writes the log's record.
pub(crate) const WRITE_SEARCHES: f64 = 1.5;

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
