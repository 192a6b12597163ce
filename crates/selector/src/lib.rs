//! The selector: for each search, whether the server does it or the client with one-sided reads
//! ([Cell, ATC 2016], section 2.5).
//!
//! A pure core, one [`Selector`] for each connection. Samples go in with the time at which they were taken;
//! a [`Decision`] with its [`Reason`] comes out. There is no clock, no I/O and no allocation after the
//! start. The random numbers come from a seeded generator that the caller passes in, so a run can be
//! repeated.
//!
//! | policy | what it optimises |
//! |---|---|
//! | [`Policy::Paper`] | Each search joins the shorter queue: server-side if and only if `(l_s - RTT) < m * (l_r - RTT)`. |
//! | [`Policy::Adaptive`] | The mean time of an operation over all clients: a search takes the path on which its own latency, the wait that it adds to the queue behind it and the processor time that it takes from its client's other operations are least together. |
//! | [`Policy::Fixed`] | Nothing: a fixed share of the searches goes to the server. For measurements. |
//!
//! `l_s` is the latency of a search by the server, `l_r` that of one one-sided read, `RTT` the lowest read
//! latency seen, `m` the mean number of reads that a search needs.
//!
//! `docs/design/selector.md` gives the rules in full.
//!
//! [Cell, ATC 2016]: https://www.usenix.org/conference/atc16/technical-sessions/presentation/mitchell

mod adaptive;
mod decision;
mod decisions;
mod paper;
mod path_cost;
mod reads_table;
mod selector;
mod settings;
mod window;

pub use decision::{Decision, MeganodeId, Obstacle, Question, Reason, SearchKind, SearchPath};
pub use decisions::Decisions;
pub use selector::{Estimates, Sample, Selector};
pub use settings::{Policy, SETTINGS, SelectorError, SelectorSettings};
