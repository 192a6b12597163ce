//! What the simulated network may do to its users.

/// Delays and chances. They may change while the network runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimOptions {
    /// Shortest time from a flush to an arrival.
    pub delay_min_ns: u64,
    /// Longest time, but for spikes.
    pub delay_max_ns: u64,
    /// How many of a million segments are delayed by up to `spike_ns` more: a retransmission, a busy switch.
    pub spike_per_million: u32,
    /// Longest extra delay.
    pub spike_ns: u64,
    /// How many of a million messages are met by a reset of their connection instead.
    pub reset_per_million: u32,
    /// Longest extra time after a direction has healed until what waited in it is sent again: retransmissions
    /// back off, so an old connection may come to life long after a new one.
    pub heal_spread_ns: u64,
    /// Bytes that one direction carries before the sender's output backs up.
    pub window_bytes: usize,
    /// Whether a one-sided read loads its cache lines in address order.
    pub reads_ordered: bool,
    /// Longest time from a read's first cache line to its last.
    pub read_spread_ns: u64,
    /// How many of a million reads are torn inside cache lines as well, word by word.
    pub read_torn_per_million: u32,
    /// Whether readers have the regions that they read mapped, as on one host: [`crate::OneSided::mapped`].
    pub reads_mapped: bool,
}

impl SimOptions {
    /// A network without mishaps: short delays, no resets. Reads still come in random order.
    #[must_use]
    pub const fn calm() -> SimOptions {
        SimOptions {
            delay_min_ns: 5_000,
            delay_max_ns: 50_000,
            spike_per_million: 0,
            spike_ns: 0,
            reset_per_million: 0,
            heal_spread_ns: 0,
            window_bytes: 256 * 1024,
            reads_ordered: false,
            read_spread_ns: 2_000,
            read_torn_per_million: 0,
            reads_mapped: false,
        }
    }

    /// A network in which everything permitted happens often.
    #[must_use]
    pub const fn hostile() -> SimOptions {
        SimOptions {
            delay_min_ns: 1_000,
            delay_max_ns: 2_000_000,
            spike_per_million: 10_000,
            spike_ns: 300_000_000,
            reset_per_million: 500,
            heal_spread_ns: 500_000_000,
            read_spread_ns: 1_000_000,
            read_torn_per_million: 200_000,
            ..SimOptions::calm()
        }
    }
}

impl Default for SimOptions {
    fn default() -> SimOptions {
        SimOptions::calm()
    }
}

/// How a host goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimCrash {
    /// The process dies and its kernel says so to every peer; registrations end.
    Process,
    /// The host goes dark: peers receive nothing and find out by their time-outs.
    Host,
}
