//! Processor time of processes, to the nanosecond, from the scheduler's own account.

use std::fs;

use rustix::process::Pid;

/// What all threads of a process have used so far, in nanoseconds; zero where the kernel does not tell.
pub fn time_ns(process: Pid) -> u64 {
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    let threads = fs::read_dir(tasks).into_iter().flatten().flatten();
    let used = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    used.sum()
}

/// What all threads of this process have used so far, in nanoseconds; exact for the thread that asks, too.
pub fn own_time_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_this_process_grows_with_work() {
        let this = rustix::process::getpid();
        let before = time_ns(this);
        let mut sum = 0u64;
        while time_ns(this) < before + 1_000_000 {
            sum = std::hint::black_box(sum.wrapping_mul(31) + 7);
        }
        assert!(before > 0);
    }
}
