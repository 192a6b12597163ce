//! The routes, one file a resource. A resource that is made for the whole cluster has a part that each node
//! makes from its own snapshot, and a document that is merged from the parts of all nodes.

#[cfg(test)]
mod answer_bounds;
mod as_of_asked;
#[cfg(test)]
mod authorisation;
pub(crate) mod balance;
pub(crate) mod cluster;
pub(crate) mod cluster_status;
#[cfg(test)]
pub(crate) mod conformity;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod contract_answers;
#[cfg(test)]
mod contract_bodies;
pub(crate) mod document;
mod drain_figures;
mod drain_revision;
pub(crate) mod drains;
pub(crate) mod drill_place;
pub(crate) mod drill_preview;
pub(crate) mod drills;
pub(crate) mod events;
pub(crate) mod gathered;
pub(crate) mod guard;
mod key;
pub(crate) mod kv;
mod left_out;
pub(crate) mod moves;
pub(crate) mod nodes;
pub(crate) mod openapi;
pub(crate) mod operations;
mod parameter;
pub(crate) mod params;
mod problem_text;
pub(crate) mod recoveries;
pub(crate) mod regions;
pub(crate) mod router;
pub(crate) mod routes;
mod schema;
pub(crate) mod selector;
mod sentence;
pub(crate) mod series;
pub(crate) mod served;
mod setting_row;
pub(crate) mod status;
mod stream;
pub(crate) mod tree;
pub(crate) mod tuning;
pub(crate) mod tuning_change;
mod tuning_patch;
mod verdict;
pub(crate) mod wal;
pub(crate) mod whoami;
