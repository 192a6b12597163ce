//! What an endpoint counts.

use cell_terms::{Counter, CounterKind, CounterValue};

macro_rules! counters {
    ($($(#[doc = $meaning:literal])+ $field:ident: $name:literal, $kind:ident;)+) => {
        /// Readings of one endpoint; sums over endpoints make a node's.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct FabricCounters {
            $($(#[doc = $meaning])+ pub $field: u64,)+
        }

        /// The fabric's counters.
        pub const COUNTERS: &[Counter] = &[
            $(Counter {
                name: $name,
                meaning: concat!($($meaning),+),
                kind: CounterKind::$kind,
            },)+
        ];

        impl FabricCounters {
            /// The readings beside their declarations.
            #[must_use]
            pub fn values(&self) -> Vec<CounterValue> {
                let readings = [$(self.$field),+];
                COUNTERS.iter().zip(readings)
                    .map(|(counter, reading)| CounterValue { counter, value: reading as f64 })
                    .collect()
            }

            /// Adds another endpoint's readings.
            pub fn add(&mut self, other: &FabricCounters) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

counters! {
    /// Connections now.
    connections: "fabric_connections", Gauge;
    /// Connections that peers opened.
    accepted: "fabric_accepted_total", Total;
    /// Connections that this process opened.
    connected: "fabric_connected_total", Total;
    /// Connections that ended, by either side.
    closed: "fabric_closed_total", Total;
    /// Peers turned away: strangers, unknown versions, too many connections.
    refused: "fabric_refused_total", Total;
    /// Of the peers turned away, those that came while there were as many connections as may be.
    refused_full: "fabric_refused_full_total", Total;
    /// Connections that had not said who they are and made room for others.
    evicted: "fabric_handshakes_evicted_total", Total;
    /// Connections ended by the hand-shake or the idle time-out.
    timed_out: "fabric_timed_out_total", Total;
    /// Messages received.
    messages_received: "fabric_messages_received_total", Total;
    /// Messages taken for sending.
    messages_sent: "fabric_messages_sent_total", Total;
    /// Bytes received.
    bytes_received: "fabric_received_bytes_total", Total;
    /// Bytes handed to the network.
    bytes_sent: "fabric_sent_bytes_total", Total;
    /// Sends that found a connection's output full.
    output_full: "fabric_output_full_total", Total;
    /// Calls of the kernel for messages: each look for readable sockets, read, write and wake-up of a peer.
    kernel_calls: "fabric_kernel_calls_total", Total;
    /// Wake-ups of peers that slept, over shared memory.
    wakes: "fabric_wakes_total", Total;
    /// One-sided reads posted by this process.
    reads_posted: "fabric_reads_posted_total", Total;
    /// One-sided reads answered with data.
    reads_done: "fabric_reads_done_total", Total;
    /// One-sided reads that failed.
    reads_failed: "fabric_reads_failed_total", Total;
    /// One-sided reads that this process's memory was asked for.
    reads_served: "fabric_reads_served_total", Total;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_beside_their_declarations() {
        let mut counters = FabricCounters { accepted: 2, ..FabricCounters::default() };
        counters.add(&FabricCounters { accepted: 3, ..FabricCounters::default() });
        let values = counters.values();
        let accepted = values.iter().find(|value| value.counter.name == "fabric_accepted_total").unwrap();
        assert_eq!(accepted.value, 5.0);
        assert_eq!(values.len(), COUNTERS.len());
    }
}
