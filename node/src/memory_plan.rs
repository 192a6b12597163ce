//! What a node does with the memory that it may take: how much is set aside for what is not counted one by
//! one, and the settings that follow from the limit where nobody has given them. Pure arithmetic.
//!
//! ```text
//! limit = allowance (the process itself, writes that wait and results of writes, values and replies on their
//!         way, takeovers' buffers)
//!       + regions, logs' buffers and ready memory, which the budget grants as they grow
//! ```

use cell_memory::{Budget, RegionSettings};
use cell_terms::setting::{Settings, Source};
use cell_wal::LogOptions;

use crate::congestion::REPLIES_BYTES_MIN;
use crate::error::NodeError;
use crate::limits::{PAIR_BYTES_MIN, VALUE_PART};

const MIB: u64 = 1 << 20;
/// The setting that bounds values on their way.
pub(crate) const STREAMS: &str = "stream_bytes_max";

/// Of what the machine or the control group has, what is left to the kernel where no limit was given: a part.
const LEFT_PART: u64 = 16;
/// The process itself: code, stacks, tables at rest, what the C library keeps.
const PROCESS_BYTES: u64 = 40 * MIB;
/// Requests that wait for a log or for the coordinator: they have limits of their own.
const REQUESTS_BYTES: u64 = 12 * MIB;
/// Pairs that fit at least, where nobody has given the sizes of regions.
const PAIRS_FIT: u64 = 8;
/// The longest value goes by it where memory is small.
const EXTENT_REGION_BYTES_MIN: u64 = 32 * MIB;
/// Slots that a node region has at least, so that there is one to split into.
const SLOTS_MIN: u64 = 8;
const SLOT_BYTES_MIN: u64 = 256 << 10;
/// Buffers of a log's ring that a pair uses.
pub(crate) const LOG_BUFFERS: u16 = 4;
/// A takeover reads both logs ahead, loads an image, and hands pieces to two threads: so many reads' bytes.
const RECOVERY_READS: u64 = 8;
/// Below this, takeovers read in small pieces, and connections have small buffers.
const SMALL_LIMIT: u64 = 4 << 30;
/// Below this, takeovers go one by one.
const ONE_BY_ONE_LIMIT: u64 = 512 * MIB;
/// What a client of this host or of another may hold in the fabric, with small buffers.
const SMALL_OUTPUT_BYTES: u64 = 256 << 10;
const CONNECTION_BYTES: u64 = 384 << 10;

/// See the module's text. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    /// What the node may hold in all.
    pub(crate) limit: u64,
    /// What of it is set aside.
    pub(crate) allowance: u64,
    /// Replies that may wait for all clients.
    pub(crate) replies_max: usize,
    /// Takeovers that go on side by side at most.
    pub(crate) takeovers_max: usize,
    /// Bytes of one read of a takeover.
    pub(crate) read_bytes: usize,
    /// What is set aside for values on their way.
    pub(crate) streams: u64,
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Writes of large slots that wait for a split.
pub(crate) fn parked_bytes_max(limit: u64) -> u64 {
    (limit / 32).clamp(4 * MIB, 32 * MIB)
}

/// Results of writes, kept for repeats. An image that is being made may have a copy of them.
pub(crate) fn result_bytes_max(limit: u64) -> u64 {
    (limit / 128).clamp(MIB, 64 * MIB)
}

/// The limit in force where the setting says `given` (0: none) and the machine or the control group has so
/// much.
pub(crate) fn limit_of(given: u64, total: Option<u64>) -> u64 {
    match (given, total) {
        (0, Some(total)) => total - total / LEFT_PART,
        (0, None) => u64::MAX / 2,
        (given, _) => given,
    }
}

impl MemoryPlan {
    /// Plans for a limit, and fits the settings that nobody has given to it.
    ///
    /// # Errors
    /// [`NodeError::MemoryLimitSmall`]: with these settings the node needs more.
    pub(crate) fn new(settings: &mut Settings, total: Option<u64>) -> Result<MemoryPlan, NodeError> {
        let limit = limit_of(settings.integer("memory_limit_bytes"), total);
        let smallest = smallest_limit(settings);
        if limit < smallest {
            return Err(NodeError::MemoryLimitSmall { limit, smallest });
        }
        let plan = MemoryPlan::of(limit, settings);
        plan.fit(settings);
        Ok(plan)
    }

    fn of(limit: u64, settings: &Settings) -> MemoryPlan {
        let small = limit < SMALL_LIMIT;
        let read_bytes = if small { MIB } else { 4 * MIB };
        let takeovers_max = if limit < ONE_BY_ONE_LIMIT { 1 } else { 4 };
        let replies_max = (limit / 16).clamp(REPLIES_BYTES_MIN as u64, 256 * MIB);
        let streams = unless_given(settings, STREAMS, streams_max(limit));
        let recovery = takeovers_max as u64 * RECOVERY_READS * read_bytes;
        let writes = REQUESTS_BYTES + parked_bytes_max(limit) + 2 * result_bytes_max(limit);
        MemoryPlan {
            limit,
            allowance: PROCESS_BYTES + writes + streams + replies_max + recovery,
            replies_max: size(replies_max),
            takeovers_max,
            read_bytes: size(read_bytes),
            streams,
        }
    }

    /// These values, the sizes among them that nobody has given as [`MemoryPlan::new`] fits them, and what it
    /// has set aside for streams not exceeded.
    pub(crate) fn fitted(&self, settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        self.fit(&mut settings);
        if settings.integer(STREAMS) > self.streams {
            let most = self.streams.to_string();
            settings.overrule(STREAMS, &most, Source::Admin).expect("it was the value at the start");
        }
        settings
    }

    /// The budget of the process.
    pub(crate) fn budget(&self) -> Budget {
        Budget::new(self.limit, self.allowance)
    }

    /// What is left for regions, logs and ready memory.
    fn for_pairs(&self) -> u64 {
        self.limit.saturating_sub(self.allowance)
    }

    /// Sizes that nobody has given follow from the limit.
    fn fit(&self, settings: &mut Settings) {
        let pair = self.for_pairs() / PAIRS_FIT;
        let mut fit = |name: &str, most: u64| {
            let bytes = settings.integer(name).min(most);
            if is_default(settings, name) {
                settings.set(name, &bytes.to_string(), Source::Default).expect("within bounds");
            }
        };
        let node_region = (pair / 5).max(SLOTS_MIN * SLOT_BYTES_MIN);
        fit("node_region_bytes", node_region);
        fit("extent_region_bytes", (pair / 5 * 4).max(EXTENT_REGION_BYTES_MIN) / MIB * MIB);
        fit("ready_memory_bytes", self.limit / 16);
        fit("value_bytes_max", (self.for_pairs() / VALUE_PART / MIB * MIB).max(MIB));
        fit(STREAMS, streams_max(self.limit));
        let chunk = (self.for_pairs() / 64).max(2 * MIB);
        fit("populate_chunk_bytes", 1 << chunk.ilog2());
        if self.limit < SMALL_LIMIT {
            fit("fabric_connection_output_bytes_max", SMALL_OUTPUT_BYTES);
        }
        fit("fabric_connections_max", (self.limit / 8 / CONNECTION_BYTES).max(64));
        if is_default(settings, "node_region_bytes") && is_default(settings, "slot_bytes") {
            let most = 1_u64 << (settings.integer("node_region_bytes") / SLOTS_MIN).ilog2();
            let slot = settings.integer("slot_bytes").min(most);
            settings
                .set("slot_bytes", &slot.to_string(), Source::Default)
                .expect("a power of two within bounds");
        }
    }
}

fn streams_max(limit: u64) -> u64 {
    (limit / 8).clamp(32 * MIB, 256 * MIB)
}

fn is_default(settings: &Settings, name: &str) -> bool {
    settings.get(name).is_none_or(|(_, source)| source == Source::Default)
}

fn unless_given(settings: &Settings, name: &str, fitting: u64) -> u64 {
    if is_default(settings, name) { fitting } else { settings.integer(name) }
}

/// Bytes of the buffers of a pair's logs.
pub(crate) fn log_buffer_bytes(settings: &Settings) -> u64 {
    u64::from(LOG_BUFFERS) * LogOptions::from_settings(settings).batch_bytes as u64
}

/// What a node with this limit and these settings sets aside for something else than pairs.
#[must_use]
pub fn set_aside_bytes(limit: u64, settings: &Settings) -> u64 {
    MemoryPlan::of(limit, settings).allowance
}

/// The least limit with which a node with these settings can begin: a whole number of MiB.
#[must_use]
pub fn smallest_limit(settings: &Settings) -> u64 {
    let keys = settings.text("initial_split_keys").split(',').filter(|key| !key.trim().is_empty()).count();
    let ranges = settings.integer("initial_ranges").max(keys as u64 + 1);
    // Each of the first meganodes has a slot, of which the first part is granted.
    let first = PAIR_BYTES_MIN + ranges * 2 * MIB;
    let pair = first + log_buffer_bytes(settings);
    // Larger limits set more aside, but never as much more as they are larger.
    let mut smallest = asked_for(settings);
    loop {
        let needed = MemoryPlan::of(smallest, settings).allowance + pair;
        if needed <= smallest {
            return smallest.next_multiple_of(MIB);
        }
        smallest = needed;
    }
}

/// Regions whose sizes somebody gave are not larger than what they share, unless that is permitted.
fn asked_for(settings: &Settings) -> u64 {
    let regions = RegionSettings::new(settings);
    let sizes = [
        ("node_region_bytes", regions.node_region_bytes),
        ("extent_region_bytes", regions.extent_region_bytes),
    ];
    let given = sizes.iter().filter(|(name, _)| !is_default(settings, name)).map(|(_, bytes)| bytes);
    if regions.options.memory_check { given.sum() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new(&[crate::SETTINGS, cell_memory::SETTINGS, cell_wal::SETTINGS, cell_fabric::SETTINGS])
    }

    fn given(pairs: &[(&str, &str)]) -> Settings {
        let mut settings = settings();
        for (name, value) in pairs {
            settings.set(name, value, Source::Flag).unwrap();
        }
        settings
    }

    #[test]
    fn plan_of_any_limit_has_room_for_eight_pairs_and_stays_within_bounds() {
        let smallest = smallest_limit(&settings());
        for limit in [smallest, smallest + 1, 256 * MIB, 1 << 30, 3 << 30, 24 << 30, 1 << 40] {
            let mut settings = given(&[("memory_limit_bytes", &limit.to_string())]);
            let plan = MemoryPlan::new(&mut settings, Some(1 << 50)).unwrap();
            assert_eq!(plan.limit, limit);
            assert!(plan.allowance < limit, "{limit}: {plan:?}");
            let regions = RegionSettings::new(&settings);
            let specs = [
                regions.node_spec(cell_terms::PairId(1), cell_terms::Epoch(1)).unwrap(),
                regions.extent_spec(cell_terms::PairId(1), cell_terms::Epoch(1)).unwrap(),
            ];
            assert!(specs[0].slots() >= 8 || limit < 256 * MIB, "{limit}: {:?}", specs[0]);
            let pair: u64 = specs.iter().map(|spec| spec.bytes).sum();
            // Headers come on top, and sizes are rounded up to whole units.
            let least = EXTENT_REGION_BYTES_MIN + SLOTS_MIN * SLOT_BYTES_MIN + 4 * MIB;
            assert!(8 * pair <= plan.for_pairs() + 8 * MIB || pair <= least, "{limit}: {pair}");
            assert!(8 * settings.integer("populate_chunk_bytes") <= plan.for_pairs().max(16 * MIB));
        }
    }

    #[test]
    fn plan_with_a_limit_below_the_smallest_is_refused_with_it_and_that_one_works() {
        for pairs in [
            &[][..],
            &[("initial_ranges", "64")],
            &[("stream_bytes_max", "1GiB")],
            &[("extent_region_bytes", "3GiB")],
            &[("log_batch_bytes", "4MiB")],
        ] {
            let settings = given(pairs);
            let smallest = smallest_limit(&settings);
            let with = |limit: u64| {
                let mut settings = settings.clone();
                settings.set("memory_limit_bytes", &limit.to_string(), Source::Flag).unwrap();
                MemoryPlan::new(&mut settings, None)
            };
            assert!(with(smallest).is_ok(), "{pairs:?}: {smallest}");
            match with(smallest - MIB) {
                Err(NodeError::MemoryLimitSmall { smallest: found, .. }) => assert_eq!(found, smallest),
                other => panic!("{pairs:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn plan_of_little_memory_permits_values_that_can_be_replaced_in_it() {
        let planned = |limit: u64| {
            let mut settings = given(&[("memory_limit_bytes", &limit.to_string())]);
            let plan = MemoryPlan::new(&mut settings, Some(1 << 50)).unwrap();
            (plan.for_pairs(), settings.integer("value_bytes_max"))
        };
        let smallest = smallest_limit(&settings());
        let (for_pairs, longest) = planned(smallest);
        assert!(longest < 16 * MIB, "{longest}");
        assert!((MIB..=for_pairs / VALUE_PART).contains(&longest), "{longest} of {for_pairs}");
        assert_eq!(planned(1 << 30).1, 16 * MIB);
        let mut settings =
            given(&[("memory_limit_bytes", &smallest.to_string()), ("value_bytes_max", "16MiB")]);
        MemoryPlan::new(&mut settings, Some(1 << 50)).unwrap();
        assert_eq!(settings.integer("value_bytes_max"), 16 * MIB, "somebody gave it");
    }

    #[test]
    fn plan_leaves_what_somebody_gave_alone() {
        let flags = [
            ("memory_limit_bytes", "300MiB"),
            ("node_region_bytes", "256MiB"),
            ("slot_bytes", "128MiB"),
            ("extent_region_bytes", "16MiB"),
            ("populate_chunk_bytes", "8MiB"),
        ];
        let mut settings = given(&flags);
        let before = settings.clone();
        MemoryPlan::new(&mut settings, None).unwrap();
        for (name, _) in flags {
            assert_eq!(settings.integer(name), before.integer(name), "{name}");
        }
    }

    #[test]
    fn fitted_later_values_are_those_of_the_start_but_for_what_was_tuned_within_what_is_set_aside() {
        let start = given(&[("memory_limit_bytes", "600MiB")]);
        let mut settings = start.clone();
        let plan = MemoryPlan::new(&mut settings, None).unwrap();
        let names = [STREAMS, "populate_chunk_bytes", "fabric_connections_max"];
        for name in names {
            assert_eq!(plan.fitted(&start).integer(name), settings.integer(name), "{name}");
        }
        for (name, tuned, taken) in [
            (STREAMS, "40MiB", 40 * MIB),
            (STREAMS, "1GiB", plan.streams),
            ("populate_chunk_bytes", "16MiB", 16 * MIB),
            ("fabric_connections_max", "70", 70),
        ] {
            let mut wanted = start.clone();
            wanted.overrule(name, tuned, Source::Admin).unwrap();
            assert_eq!(plan.fitted(&wanted).integer(name), taken, "{name} = {tuned}");
        }
    }

    #[test]
    fn limit_of_nothing_given_is_what_the_machine_has_but_a_part() {
        assert_eq!(limit_of(0, Some(16 << 30)), 15 << 30);
        assert_eq!(limit_of(5, Some(16 << 30)), 5);
        assert!(limit_of(0, None) > 1 << 60);
    }
}
