//! Ports for servers of tests: blocks that no two tests share, in this process or another, below the range
//! from which the kernel picks ports for outgoing connections.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};

/// `cell dev --port P` uses P .. P+379, see `ops/src/dev/plan.rs`.
const BLOCK: u16 = 400;
const FIRST: u16 = 11_000;
const BLOCKS: u16 = 50;
/// Offsets in a block that a one-node cluster listens on.
const USED: [u16; 3] = [0, 80, 200];

/// A block of ports, held as long as this value lives.
#[derive(Debug)]
pub struct Ports {
    /// The first port.
    pub first: u16,
    _lock: File,
}

impl Ports {
    /// Takes a free block.
    ///
    /// # Panics
    /// If all are taken.
    pub fn take() -> Self {
        let offset = u16::try_from(std::process::id() % u32::from(BLOCKS)).unwrap_or(0);
        for turn in 0..BLOCKS {
            let first = FIRST + (offset + turn) % BLOCKS * BLOCK;
            let lock = lock_file(first);
            let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
            if locked && USED.iter().all(|used| TcpListener::bind(("127.0.0.1", first + used)).is_ok()) {
                return Self { first, _lock: lock };
            }
        }
        panic!("all {BLOCKS} blocks of test ports are taken");
    }
}

fn lock_file(first: u16) -> File {
    let path: PathBuf = std::env::temp_dir().join(format!("cell-test-ports-{first}"));
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .unwrap_or_else(|error| panic!("{} cannot be opened: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_twice_gives_blocks_apart() {
        let (left, right) = (Ports::take(), Ports::take());
        assert!(left.first.abs_diff(right.first) >= BLOCK);
    }
}
