//! Ports for servers of tests: blocks that no two tests share, whichever process, user or checkout they
//! belong to, and outside of the range from which the kernel takes ports for outgoing connections. Those
//! would take a port of a node while the node is down.
//!
//! Whoever listens on the last port of a block has the block. So the kernel keeps the books: it gives a port
//! to one process, and takes it back with the process. `tests/browser/cluster.mjs` takes blocks by the same
//! rule.

use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// `cell dev --port P` listens on P + i and P + 80 + i, see `ops/src/dev/plan.rs`.
const BLOCK: u16 = 300;
const LOWEST: u16 = 10_000;
/// The highest first port that `cell dev` takes.
const HIGHEST: u16 = 65_000;
/// How long is waited for a block that others have.
const PATIENCE: Duration = Duration::from_secs(120);
/// Where the kernel says which ports it takes for outgoing connections.
const OUTGOING: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// A block of ports, held as long as this value lives.
#[derive(Debug)]
pub struct Ports {
    /// The first port.
    pub first: u16,
    _last: TcpListener,
}

impl Ports {
    /// Takes a free block.
    ///
    /// # Panics
    /// If none becomes free, or outgoing connections have all ports.
    #[allow(clippy::disallowed_methods, reason = "others give their blocks back in real time")]
    pub fn take() -> Self {
        let blocks = blocks(&outgoing());
        assert!(!blocks.is_empty(), "outgoing connections have all ports: change {OUTGOING}");
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Neighbours in time begin at different blocks.
            let offset = usize::try_from(std::process::id()).unwrap_or(0) % blocks.len();
            let in_turn = blocks[offset..].iter().chain(&blocks[..offset]);
            if let Some(ports) = in_turn.copied().find_map(Self::take_block) {
                return ports;
            }
            assert!(Instant::now() < deadline, "all {} blocks of test ports are taken", blocks.len());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The block of this first port, unless somebody has it or listens on one of its ports.
    fn take_block(first: u16) -> Option<Self> {
        let last = bind(first + BLOCK - 1)?;
        is_unused(first).then_some(Self { first, _last: last })
    }
}

/// Whether nobody listens on a port of this block, its last one apart.
fn is_unused(first: u16) -> bool {
    (first..first + BLOCK - 1).all(|port| bind(port).is_some())
}

fn bind(port: u16) -> Option<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).ok()
}

/// The ports of outgoing connections.
fn outgoing() -> RangeInclusive<u16> {
    let text = std::fs::read_to_string(OUTGOING).unwrap_or_default();
    let mut bounds = text.split_whitespace().filter_map(|bound| bound.parse().ok());
    match (bounds.next(), bounds.next()) {
        (Some(low), Some(high)) => low..=high,
        _ => 32_768..=60_999, // what Linux has unless it is changed
    }
}

/// The first ports of all blocks that lie outside of these.
fn blocks(outgoing: &RangeInclusive<u16>) -> Vec<u16> {
    let is_outside = |first: &u16| *first > *outgoing.end() || first + BLOCK <= *outgoing.start();
    (LOWEST..=HIGHEST).step_by(usize::from(BLOCK)).filter(is_outside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_twice_gives_blocks_apart() {
        let (left, right) = (Ports::take(), Ports::take());
        assert!(left.first.abs_diff(right.first) >= BLOCK);
    }

    #[test]
    fn take_block_that_is_taken_or_in_use_is_refused() {
        let Ports { first, _last } = Ports::take();
        assert!(Ports::take_block(first).is_none());
        assert!(is_unused(first));
        let _used = bind(first + 7).expect("nobody listens there");
        assert!(!is_unused(first));
    }

    #[test]
    fn blocks_lie_outside_of_the_ports_of_outgoing_connections() {
        let linux = blocks(&(32_768..=60_999));
        assert!(linux.len() > 80, "{linux:?}");
        assert!(linux.iter().all(|first| first + BLOCK <= 32_768 || *first > 60_999), "{linux:?}");
        assert!(blocks(&(1_024..=65_535)).is_empty());
        assert_eq!(blocks(&(10_300..=65_535)), [10_000]);
    }
}
