//! What a counter is. Each crate declares its counters; `/metrics`, the console and the docs are made from
//! them.

/// How a counter behaves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// Only grows while a process lives; rates are taken from differences.
    Total,
    /// Goes up and down.
    Gauge,
}

/// A counter's declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Metric name without the `cell_` prefix, base unit last (`log_synced_bytes_total`).
    pub name: &'static str,
    /// What it counts, one sentence.
    pub meaning: &'static str,
    /// How it behaves.
    pub kind: CounterKind,
}

/// One reading of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CounterValue {
    /// What was read.
    pub counter: &'static Counter,
    /// The reading, in the counter's unit.
    pub value: f64,
}
