//! What the one-sided path counts: operations, reads, and the cause of everything that was tried again.

use cell_terms::{Counter, CounterKind, CounterValue};

macro_rules! counters {
    ($($field:ident: $name:literal, $meaning:literal;)+) => {
        /// What was counted so far.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct OneSidedCounters {
            $(#[doc = $meaning] pub $field: u64,)+
        }

        /// The declarations.
        pub const COUNTERS: &[Counter] = &[
            $(Counter { name: $name, meaning: $meaning, kind: CounterKind::Total },)+
        ];

        impl OneSidedCounters {
            /// The readings, in the order of [`COUNTERS`].
            #[must_use]
            #[allow(clippy::cast_precision_loss, reason = "a reading is for people")]
            pub fn values(&self) -> Vec<CounterValue> {
                let readings = [$(self.$field),+];
                let pairs = COUNTERS.iter().zip(readings);
                pairs.map(|(counter, reading)| CounterValue { counter, value: reading as f64 }).collect()
            }

            /// Adds another client's.
            pub fn add(&mut self, other: &OneSidedCounters) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

counters! {
    started: "client_one_sided_begun_total", "Operations that were started one-sided.";
    done: "client_one_sided_done_total", "Operations that were answered one-sided.";
    fell_back: "client_one_sided_fell_back_total", "Operations that one-sided reads did not answer: the server did.";
    reads: "client_one_sided_reads_total", "One-sided reads posted.";
    in_place: "client_one_sided_in_place_total", "Operations whose answer was found in mapped memory, without a read.";
    cached: "client_one_sided_cached_total", "Tree nodes above the leaves that were found in the cache.";
    dropped: "client_one_sided_dropped_total", "Tree nodes, and places of meganodes in mapped memory, dropped from the caches: they were stale.";
    torn: "client_one_sided_torn_total", "Tree nodes read again: a writer was at work in them.";
    invalid: "client_one_sided_invalid_total", "Searches started again: a tree node was not valid.";
    fence: "client_one_sided_fence_total", "Searches started again: a tree node did not cover the key.";
    right_link: "client_one_sided_right_link_total", "Right links followed: a parent was stale.";
    crc: "client_one_sided_crc_total", "Searches started again: an extent was not its leaf's.";
    watermark: "client_one_sided_watermark_total", "Watermarks read again: what was found was not durable yet.";
    trust: "client_one_sided_trust_total", "Answers held: the owner's lease had to be asked for again.";
    clock: "client_one_sided_clock_total", "Answers thrown away: the operation took longer than permitted.";
    key_unknown: "client_one_sided_key_unknown_total", "Reads of regions that are not registered any more.";
    failed: "client_one_sided_failed_total", "Reads that failed: a lost connection, or a place that is not there.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_declarations() {
        let mut counters = OneSidedCounters { started: 3, failed: 5, ..OneSidedCounters::default() };
        counters.add(&OneSidedCounters { started: 1, ..OneSidedCounters::default() });
        let values = counters.values();
        assert_eq!(values.len(), COUNTERS.len());
        assert_eq!((values[0].value, values[values.len() - 1].value), (4.0, 5.0));
        assert!(COUNTERS.iter().all(|counter| counter.name.ends_with("_total")));
    }
}
