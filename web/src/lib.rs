//! HTTP, JSON and HTML live here and nowhere else. Health, metrics and status of one node, from the snapshot
//! that the node publishes each second: no request reaches the data path.
//!
//! | route | answers |
//! |---|---|
//! | `GET /livez` | 200 while the process answers; never depends on anything else |
//! | `GET /readyz` | 200 when the node serves reads, else 503; `?verbose` lists the checks |
//! | `GET /metrics` | OpenMetrics text, every name with the prefix `cell_` |
//! | `GET /api/v1/status` | the snapshot as JSON, `version` 1 |
//! | `GET /api/v1/cluster` | the cluster as the node saw it last: members, pairs, incidents, `version` 1 |
//!
//! Errors are RFC 9457 `application/problem+json` with `code` and `request_id`; every response carries the id
//! in `x-request-id`. Only loopback addresses can be bound, and only requests whose `Host` names one are
//! answered, so that a web page cannot read a node through a name that it points at 127.0.0.1.

mod cluster;
mod freshness;
mod health;
mod host;
mod metrics;
mod problem;
mod route;
mod server;
mod source;
mod status;

pub use server::{HttpServer, WebError};
pub use source::StatusSource;
