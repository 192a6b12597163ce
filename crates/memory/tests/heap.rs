#![cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
//! What a process holds once it has freed what it had.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::hint::black_box;
use std::sync::Barrier;

const MIB: usize = 1 << 20;
const BLOCK_BYTES: usize = 16 * MIB;
const THREADS: usize = 4;

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
}

/// glibc kept 128 MiB of it.
#[test]
fn large_blocks_that_threads_free_go_back_to_the_system() {
    cell_memory::give_back_freed();
    // The first one that is freed had glibc keep those after it.
    drop(black_box(vec![1u8; BLOCK_BYTES]));
    let before = resident_bytes();
    let all_have_theirs = Barrier::new(THREADS);
    let small_ones: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let work = || {
            let blocks = [(); 2].map(|()| black_box(vec![1u8; BLOCK_BYTES]));
            let small = black_box(vec![1u8; 100_000]); // it lies behind them, and stays
            all_have_theirs.wait();
            drop(blocks);
            small
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let kept = resident_bytes().saturating_sub(before);
    assert!(kept < 2 * BLOCK_BYTES, "{} MiB are kept", kept / MIB);
    assert_eq!(small_ones.len(), THREADS);
}
