//! What logs count.

use cell_terms::{Counter, CounterKind, CounterValue};

macro_rules! counters {
    ($($field:ident $name:literal $kind:ident $meaning:literal),* $(,)?) => {
        /// Declarations of this crate's counters.
        pub const COUNTERS: &[Counter] =
            &[$(Counter { name: $name, meaning: $meaning, kind: CounterKind::$kind }),*];

        /// One pair's log counts.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LogCounts {
            $(#[doc = $meaning] pub $field: u64,)*
        }

        impl LogCounts {
            /// The counts with their declarations, in the order of [`COUNTERS`].
            #[expect(clippy::cast_precision_loss, reason = "metrics are floating point")]
            pub fn values(&self) -> impl Iterator<Item = CounterValue> + use<> {
                let values = [$(self.$field),*];
                let readings = COUNTERS.iter().zip(values);
                readings.map(|(counter, value)| CounterValue { counter, value: value as f64 })
            }

            /// Adds another pair's counts to these.
            pub fn add(&mut self, other: &LogCounts) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

counters! {
    batches "log_batches_total" Total "Commit batches that became durable.",
    records "log_records_total" Total "Log records that became durable.",
    payload_bytes "log_payload_bytes_total" Total "Bytes of records that became durable, both logs.",
    frame_bytes "log_frame_bytes_total" Total "Bytes of durable frames, padding included, both logs.",
    seals "log_seals_total" Total "Times that an idle log was sealed.",
    rotations "log_rotations_total" Total "Log segments that were filled.",
    recycled "log_segments_recycled_total" Total "Log segments whose file was used again.",
    removed "log_segments_removed_total" Total "Log segments that were unlinked.",
    prepare_failures "log_prepare_failures_total" Total "Times that a segment could not be prepared.",
    held_bytes "log_held_bytes" Gauge "Bytes of log files that the pair holds, spares included.",
    replay_bytes "log_replay_bytes" Gauge "Bytes of frames that a recovery would have to read.",
}
