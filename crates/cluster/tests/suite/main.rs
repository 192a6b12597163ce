//! The integration tests of this crate: one program, so that it is linked once.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

mod balance;
#[path = "../../../fabric/src/tls/test_certificates.rs"]
#[allow(dead_code, reason = "what is replaced and what ends is tested where TLS is")]
mod certificates;
mod conformance;
mod drains;
mod etcd;
mod full_disk;
mod incident;
mod joining;
mod lease;
mod moves;
mod mutants;
mod pages;
#[path = "../../../../tests/src/ports.rs"]
#[allow(unreachable_pub, reason = "this crate cannot use that of the whole-system tests, which stands on it")]
mod ports;
mod power;
mod process;
mod races;
#[path = "../../../../tests/src/reaper.rs"]
#[allow(unreachable_pub, dead_code, reason = "as for the ports; this crate mounts nothing")]
mod reaper;
mod table;
mod test_tls;
mod tls;
mod tuning;
mod unreadable;
mod versions;
