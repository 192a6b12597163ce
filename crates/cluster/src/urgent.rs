//! Threads that leases depend on run before those that are merely busy, where the system lets them: they need
//! the processor for microseconds, and who else needs it may do so for seconds.

/// By so much they are less nice than the process.
const LESS_NICE: i32 = 10;

/// Lets this thread run before others of its process. Who is not root may do that only as far as the limit
/// for it (`ulimit -e`, systemd's `LimitNICE`) goes; where it may not, nothing changes.
pub(crate) fn run_first() {
    // Of this thread alone, on Linux.
    if let Err(error) = rustix::process::nice(-LESS_NICE) {
        tracing::debug!(%error, "a thread that leases depend on has no precedence");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_first_is_of_its_own_thread_or_of_none() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let before = niceness();
        let of_thread = std::thread::spawn(move || {
            run_first();
            niceness()
        });
        let of_thread = of_thread.join().unwrap();
        assert!([before, (before - LESS_NICE).max(-20)].contains(&of_thread), "{before} {of_thread}");
        assert_eq!(niceness(), before);
    }
}
