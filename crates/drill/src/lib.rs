//! Drills: a fault on purpose, load with a ledger kept outside the cluster, and the proof that nothing
//! acknowledged was lost. It reaches a cluster as its clients do, and its supervisor over `drill.socket`, or
//! the agents of its hosts over TCP and TLS.
//!
//! | module | what it holds |
//! |---|---|
//! | `drill` | a drill from its first write to its report |
//! | `rolling` | a rolling restart: what is to be asked next |
//! | `fault` | what can be done to a node, and how it is taken back |
//! | `claim` | the coordinator's row of the drill that runs, one at a time |
//! | `wire` | what a supervisor is asked and says |
//! | `supervisor`, `door`, `deadline` | the connection to it, or to all agents as if they were one; one of these; when it ends |
//! | `keys`, `places` | which keys: their form, and in which pairs they lie |
//! | `load`, `journal`, `leftover` | who writes and reads, what each was answered and when; how keys go |
//! | `timeline`, `lane` | what happened to the cluster, out of its statuses; how the clients fare meanwhile |
//! | `proof`, `report` | everything read back and judged; the verdict with its reasons |
//! | `notice` | how a drill goes, for whoever runs it |

#![allow(clippy::disallowed_methods, reason = "a shell: a drill waits in real time, at a steady rate")]

mod claim;
mod deadline;
mod door;
mod drill;
mod error;
mod fault;
mod journal;
mod keys;
mod lane;
mod leftover;
mod load;
mod notice;
mod places;
mod proof;
mod report;
mod rolling;
mod supervisor;
mod timeline;
pub mod wire;

pub use claim::{ANY_KIND, ClaimRow};
pub use door::{ANSWER_WITHIN, Agents, CHECK_WITHIN, drill_socket};
pub use drill::Drill;
pub use error::DrillError;
pub use fault::{DELAY_MS, DELAY_MS_DEFAULT, FaultKind};
pub use journal::Tally;
pub use keys::{
    RUNNING_PREFIX, STEMS_PREFIX, key_prefixes, run_of_key, run_of_key_at, run_that_goes_on, running_key,
    stem_of_entry, stem_prefix,
};
pub use lane::{LANE_STEP, LanePoint};
pub use load::Load;
pub use notice::Notice;
pub use proof::{DrillProof, PathFindings};
pub use report::{DrillVerdict, Report, Spread, Unavailable};
pub use rolling::RollingStage;
pub use supervisor::{Supervisor, Supervisors};
pub use timeline::{DrillEvent, Moment, Timeline};
