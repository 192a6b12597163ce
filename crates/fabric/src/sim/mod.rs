//! The `sim` provider: a deterministic network in memory, stepped by a simulator, as unkind as it is set to
//! be.

mod endpoint;
mod endpoint_state;
mod faults;
mod link;
mod network;
mod options;
mod read_state;
mod reads;
mod schedule;

pub use endpoint::SimEndpoint;
pub use network::SimNetwork;
pub use options::{SimCrash, SimOptions};
