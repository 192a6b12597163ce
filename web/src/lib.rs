//! HTTP, JSON and HTML live here and nowhere else. Health, metrics and status of one node, from the snapshot
//! that the node publishes each second: no such request reaches the data path. Entries are read as any client
//! reads them, and single meganodes are looked at beside their worker.
//!
//! | route | answers |
//! |---|---|
//! | `GET /console/` | the console, for browsers; 404 for what is neither a page nor a file of it |
//! | `GET /status` | the cluster on one page without scripts |
//! | `GET /livez` | 200 while the process answers; never depends on anything else |
//! | `GET /readyz` | 200 when the node serves reads, else 503; `?verbose` lists the checks |
//! | `GET /metrics` | metrics for Prometheus, or OpenMetrics if asked for; every name has the prefix `cell_` |
//! | `GET /api/openapi.json` | all routes below and the three above, with what they take and answer |
//! | `GET /api/v1/status` | the snapshot as JSON, `version` 1 |
//! | `GET /api/v1/cluster` | the cluster as the node saw it last: members, pairs, incidents, `version` 1 |
//! | `GET /api/v1/nodes` | a row for each node of the cluster |
//! | `GET /api/v1/cluster/status` | the cluster in one document, with a sentence that says how it is |
//! | `GET /api/v1/regions` | the regions, their owners and how full they are |
//! | `GET /api/v1/wal` | how far the logs of each pair are |
//! | `GET /api/v1/recoveries` | takeovers under way, and what is remembered of earlier ones |
//! | `GET /api/v1/events` | what happened, newest first |
//! | `GET /api/v1/series` | figures over time: each second for ten minutes, each ten or minute for six hours |
//! | `GET /api/v1/stream` | documents as server-sent events, once a second |
//! | `GET /api/v1/selector/pairs` | how each client searches each server, and why |
//! | `GET /api/v1/selector/pairs/{client}/{node}/series` | the same over time, up to ten minutes |
//! | `GET /api/v1/tree/heat` | writes and reads by ranges of keys over the last hour |
//! | `GET /api/v1/tree/buckets` | the key space in at most 512 ranges: who has them, how full they are |
//! | `GET /api/v1/tree/meganodes/{id}` | a meganode: its levels, its slot; `…/nodes/{index}` one of its tree nodes |
//! | `GET /api/v1/tree/locate` | where a key lives, and the way to it |
//! | `POST /api/v1/tree:check` | checks the tree; `GET /api/v1/operations/{id}` shows what it found |
//! | `GET /api/v1/kv` | entries in the order of their keys; `…/{key}` one of them |
//! | `GET /api/v1/drills` | whether drills are allowed, their kinds, and the runs of all nodes |
//! | `GET /api/v1/drills/preview` | what a fault of a node would stop |
//! | `GET /api/v1/drills/{id}`, `GET /api/v1/operations/{id}` | one run: timeline, the clients' lane, report |
//! | `POST /api/v1/drills`, `POST /api/v1/drills/{id}:halt` | begins a drill; takes its fault back and ends it |
//! | `GET /api/v1/moves` | planned moves of pairs, and how far they are |
//! | `POST /api/v1/moves`, `POST /api/v1/moves:cancel` | lets a pair move to another node; takes that back |
//! | `GET /api/v1/tuning` | every setting with its value for the cluster; which node has which revision in force |
//! | `PATCH /api/v1/tuning` | changes settings on all nodes, all or none; `?dry_run=1`, `reason`, `ttl_seconds` |
//! | `POST /api/v1/tuning:revert` | takes a change back |
//! | `GET /api/v1/tuning/schema`, `/history` | what settings take; who changed what, when and why |
//! | `GET /api/v1/whoami` | who the caller is, and what they may do |
//!
//! A document of the whole cluster is made by whichever node is asked: it asks the others for their parts
//! (`?scope=node`), 200 ms each, and lists under `missing` who did not answer. It is kept for a second, and
//! goes by what the nodes saw last; with `Cache-Control: no-cache` it is as the coordinator's rows are then
//! (`as_of`).
//!
//! A request that changes something has a body of at most 64 KiB of `application/json` or
//! `application/merge-patch+json`, and no `Origin` of another host; one that changes settings,
//! begins or ends a drain or removes a node names the revision that its author has seen (`If-Match`), and one
//! that begins or ends a move of a pair may. Of those with an `Idempotency-Key` that did something the node
//! keeps the last 256 answers, 4 MiB at most, and gives them to repeats.
//!
//! With a file of tokens (`tokens_file`) everything but health, metrics and the console's files wants
//! one of them (`Authorization: Bearer`), with the role that the table of routes names (`api::routes`): a
//! viewer's for figures, a reader's for entries and keys, an operator's to change something, an admin's for
//! drills. A viewer sees the tree without its keys. A stream ends when its token is revoked. Nodes show each
//! other a proof that they know a secret of the coordinator. Who sends tokens that are not known, or changes
//! something, too often is answered 429.
//!
//! Errors are RFC 9457 `application/problem+json` with `code` and `request_id`; every response carries the id
//! in `x-request-id`. Only loopback addresses can be bound, unless HTTP is served over TLS and asks for
//! tokens. Only requests with one `Host`, which names the node, are answered (`host`), so that a web page
//! cannot read a node through a name that it points at it.

mod access;
mod api;
mod as_of;
mod balance_metrics;
mod body_limit;
mod certificate;
mod client_metrics;
mod clock;
mod connections;
mod console;
mod coordination;
mod coordinator_watch;
mod disk_watch;
mod drain_events;
mod drill;
mod drill_permission;
mod event_kind;
mod event_log;
mod events_seen;
mod exposition;
mod file_watch;
mod freshness;
#[cfg(test)]
mod full_cluster;
mod health;
mod heat_history;
mod history;
mod host;
mod idempotency;
mod known_nodes;
#[cfg(test)]
mod large_cluster;
mod metrics;
mod missing_pairs;
mod move_events;
mod move_metrics;
mod newest_change;
mod one_look;
mod operation_metrics;
mod peer_names;
mod peer_secret;
mod peers;
mod problem;
mod rates;
mod request_limits;
mod response_cache;
mod selector_history;
mod server;
mod server_figures;
mod setting;
mod shared;
mod source;
mod status_page;
mod store;
mod sync_history;
#[cfg(test)]
mod test_cluster;
#[cfg(test)]
mod test_members;
#[cfg(test)]
mod test_snapshot;
mod tls;
mod tokens;
mod tree_check;
mod tuning_end;
mod words;

pub use cell_node::TokensError;
pub use certificate::{certificates_end, exposed, is_self_issued};
pub use event_kind::EVENT_KINDS;
pub use server::{HttpServer, WebError};
pub use setting::{SETTINGS, TOKENS_FILE};
pub use source::{CoordinatorPlace, Sources, StatusSource};
