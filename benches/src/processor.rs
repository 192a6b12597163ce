//! Processor time of processes, to the nanosecond, from the scheduler's own account; a clock that processes
//! share; which core a thread has; what processes write.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::param::clock_ticks_per_second;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Fields of `/proc/PID/stat` between a process's name and its times, `utime` and `stime`.
const STAT_SKIPPED: usize = 11;

/// What all threads of a process that live have used so far, in nanoseconds; zero where the kernel does not
/// say. It is less than before where one has ended meanwhile.
pub fn time_ns(process: Pid) -> u64 {
    threads(process).filter_map(|thread| thread_ns(&thread)).sum()
}

/// What processes have used so far. Of their threads that live the kernel says exactly, of those that have
/// ended in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    threads_ns: u64,
    ticks_ns: u64,
}

impl Used {
    /// What a process has used; nothing where the kernel does not say.
    pub fn of(process: Pid) -> Used {
        Used { threads_ns: time_ns(process), ticks_ns: ticks_ns(process).unwrap_or(0) }
    }

    /// What was used since, in nanoseconds: to two ticks exact where threads have ended.
    pub fn since_ns(self, before: Used) -> u64 {
        let threads_ns = self.threads_ns.saturating_sub(before.threads_ns);
        threads_ns.max(self.ticks_ns.saturating_sub(before.ticks_ns))
    }
}

impl std::iter::Sum for Used {
    fn sum<I: Iterator<Item = Used>>(all: I) -> Used {
        all.fold(Used::default(), |sum, one| Used {
            threads_ns: sum.threads_ns + one.threads_ns,
            ticks_ns: sum.ticks_ns + one.ticks_ns,
        })
    }
}

/// What all threads of a process have used, those that have ended too, in whole ticks of each mode.
fn ticks_ns(process: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The name before it, in brackets, may hold anything.
    let mut fields = text.rsplit_once(") ")?.1.split(' ').skip(STAT_SKIPPED);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let (user, system) = (next()?, next()?);
    Some((user + system) * (1_000_000_000 / clock_ticks_per_second().max(1)))
}

/// What a process has sent to disks so far, in bytes; zero where the kernel does not say.
pub fn written_bytes(process: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/io", process.as_raw_nonzero())).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("write_bytes: "));
    lines.next().and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// What [`time_ns`] says of those threads that have this name.
pub fn time_of_threads_ns(process: Pid, name: &str) -> u64 {
    let has_name = |thread: &PathBuf| {
        fs::read_to_string(thread.join("comm")).is_ok_and(|known| known.trim_end() == name)
    };
    threads(process).filter(has_name).filter_map(|thread| thread_ns(&thread)).sum()
}

/// How often the threads of a process that live have gone to sleep so far; zero where the kernel does not
/// say.
pub fn sleeps(process: Pid) -> u64 {
    threads(process).filter_map(|thread| thread_sleeps(&thread)).sum()
}

fn thread_sleeps(thread: &Path) -> Option<u64> {
    let text = fs::read_to_string(thread.join("status")).ok()?;
    let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    count.trim().parse().ok()
}

fn threads(process: Pid) -> impl Iterator<Item = PathBuf> {
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    fs::read_dir(tasks).into_iter().flatten().flatten().map(|thread| thread.path())
}

fn thread_ns(thread: &Path) -> Option<u64> {
    let text = fs::read_to_string(thread.join("schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// What all threads of this process have used so far, in nanoseconds; exact for the thread that asks, too.
pub fn own_time_ns() -> u64 {
    clock_ns(ClockId::ProcessCPUTime)
}

/// What a clock says that is the same to all processes of the machine, in nanoseconds.
pub fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// What the thread that asks has used so far, in nanoseconds.
pub fn thread_time_ns() -> u64 {
    clock_ns(ClockId::ThreadCPUTime)
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// Binds a thread, or the one that asks, to a core.
///
/// # Errors
/// There is no such core, or no leave to choose.
pub fn bind(thread: Option<Pid>, core: usize) -> rustix::io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(thread, &cores)
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

    #[test]
    fn whole_time_has_that_of_threads_that_have_ended() {
        let works = std::thread::spawn(|| {
            while thread_time_ns() < 100_000_000 {}
            thread_time_ns()
        });
        let worked = works.join().expect("it ends");
        let this = rustix::process::getpid();
        let used = Used::of(this).since_ns(Used::default());
        assert!(used > worked / 2, "{used} of {worked}");
        assert!(Used::of(this).ticks_ns > worked / 2);
    }

    #[test]
    fn sleeps_are_those_of_all_threads() {
        let this = rustix::process::getpid();
        let before = sleeps(this);
        let (give, take) = std::sync::mpsc::channel::<()>();
        let sleeper = std::thread::spawn(move || take.recv());
        // It has slept once it waits.
        while sleeps(this) == before {
            std::thread::yield_now();
        }
        drop(give);
        assert!(sleeper.join().expect("it ends").is_err());
    }

    #[test]
    fn time_of_threads_is_that_of_those_with_the_name() {
        let this = rustix::process::getpid();
        let busy = std::thread::Builder::new().name("busy".to_owned());
        let busy = busy.spawn(move || {
            while time_of_threads_ns(this, "busy") == 0 {}
            assert!(time_of_threads_ns(this, "busy") < time_ns(this));
        });
        busy.expect("it begins").join().expect("it ends");
        assert_eq!(time_of_threads_ns(this, "nobody"), 0);
    }
}
