//! What Linux says of a thread: whether it could work, and how long it has waited for a processor.

use std::fs;
use std::path::PathBuf;

/// What a thread is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadState {
    /// It has something to do: it runs, or waits for a processor, or for a page of its memory.
    HasWork,
    /// It waits for what others do, or for a time.
    Sleeps,
    /// It does nothing whatever happens: it is stopped, or ends.
    Stands,
}

/// A thread that can be looked at.
pub(crate) trait Thread: Send {
    /// What it is about; none: it is gone, or nobody says.
    fn state(&self) -> Option<ThreadState>;

    /// For how long it has waited for a processor in its life, a wait that goes on not counted; none: as
    /// above.
    fn waited_ns(&self) -> Option<u64>;
}

/// A thread of this machine.
#[derive(Debug)]
pub(crate) struct SystemThread {
    /// `/proc/PID/task/TID`.
    folder: PathBuf,
}

/// A process that is on its way out has this flag; its threads may be busy with giving memory back.
const EXITING: u64 = 4;

impl SystemThread {
    /// The thread that calls this.
    pub(crate) fn own() -> SystemThread {
        let thread = rustix::thread::gettid().as_raw_nonzero();
        SystemThread { folder: format!("/proc/self/task/{thread}").into() }
    }

    /// A thread of that process with this name.
    pub(crate) fn find(process: u32, name: &str) -> Option<SystemThread> {
        let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
        let mut threads = threads.map(|thread| SystemThread { folder: thread.path() });
        threads
            .find(|thread| thread.stat().and_then(|stat| name_of(&stat).map(|is| is == name)) == Some(true))
    }

    fn stat(&self) -> Option<String> {
        fs::read_to_string(self.folder.join("stat")).ok()
    }
}

impl Thread for SystemThread {
    fn state(&self) -> Option<ThreadState> {
        state_of(&self.stat()?)
    }

    fn waited_ns(&self) -> Option<u64> {
        waited_of(&fs::read_to_string(self.folder.join("schedstat")).ok()?)
    }
}

/// Of `stat`, whose second column is the name in brackets; a name may have brackets and blanks.
fn name_of(stat: &str) -> Option<&str> {
    Some(stat.split_once('(')?.1.rsplit_once(") ")?.0)
}

/// Of `stat`: its third column, and what its ninth says of the process.
fn state_of(stat: &str) -> Option<ThreadState> {
    let mut columns = stat.rsplit_once(") ")?.1.split(' ');
    let letter = columns.next()?;
    let flags: u64 = columns.nth(5)?.parse().ok()?;
    Some(match letter {
        _ if flags & EXITING != 0 => ThreadState::Stands,
        "R" | "D" => ThreadState::HasWork,
        "S" | "I" => ThreadState::Sleeps,
        _ => ThreadState::Stands,
    })
}

/// Of `schedstat`: nanoseconds on a processor, nanoseconds in wait for one, how often.
fn waited_of(schedstat: &str) -> Option<u64> {
    schedstat.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;
    use crate::clock::boottime_ns;

    fn stat(name: &str, state: &str, flags: u64) -> String {
        format!("2977 ({name}) {state} 2971 2971 27382 0 -1 {flags} 106 0 0 0 0 0 0 0 20 0 1 0 5453540\n")
    }

    #[test]
    fn state_of_is_the_third_column_whatever_the_name_is() {
        for name in ["lease", "a b", "x) R 1", ""] {
            for (letter, state) in [
                ("R", ThreadState::HasWork),
                ("D", ThreadState::HasWork),
                ("S", ThreadState::Sleeps),
                ("T", ThreadState::Stands),
                ("t", ThreadState::Stands),
                ("Z", ThreadState::Stands),
            ] {
                assert_eq!(state_of(&stat(name, letter, 0x40_0040)), Some(state), "{name} {letter}");
                assert_eq!(name_of(&stat(name, letter, 0)), Some(name));
            }
            assert_eq!(state_of(&stat(name, "R", 0x40_0044)), Some(ThreadState::Stands), "it ends");
        }
        assert_eq!([state_of(""), state_of("1 (a) R"), state_of("1 (a) R 1 2 3 4 5 x")], [None; 3]);
        assert_eq!(name_of("1 lease R"), None);
    }

    #[test]
    fn waited_of_is_the_second_number() {
        assert_eq!(waited_of("12 1524259 1\n"), Some(1_524_259));
        assert_eq!([waited_of(""), waited_of("12"), waited_of("12 many 1")], [None; 3]);
    }

    /// Looks until that is so, past the end that a busy machine may need.
    fn until(condition: impl Fn() -> bool) -> bool {
        let give_up_ns = boottime_ns() + 120_000_000_000;
        while !condition() {
            if boottime_ns() > give_up_ns {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    #[test]
    fn look_at_threads_of_this_process_says_who_has_work() {
        let (ready, announced) = mpsc::channel();
        let (wake, sleeping) = mpsc::channel::<()>();
        let spinning = Arc::new(AtomicBool::new(true));
        let goes_on = spinning.clone();
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let busy = named("look-busy").spawn(move || {
            while goes_on.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let idle = named("look-idle").spawn(move || {
            ready.send(SystemThread::own()).unwrap();
            let _ = sleeping.recv();
        });
        let own = announced.recv().unwrap();
        let find = |name| SystemThread::find(std::process::id(), name);
        let is = |thread: &SystemThread, state| thread.state() == Some(state);
        assert!(until(|| is(&own, ThreadState::Sleeps)));
        assert!(own.waited_ns().is_some(), "this kernel has no scheduler statistics");
        assert!(until(|| find("look-idle").is_some_and(|found| is(&found, ThreadState::Sleeps))));
        assert!(until(|| find("look-busy").is_some_and(|found| is(&found, ThreadState::HasWork))));
        assert!(find("no such name").is_none() && SystemThread::find(0, "look-idle").is_none());
        spinning.store(false, Ordering::Relaxed);
        drop(wake);
        busy.unwrap().join().unwrap();
        idle.unwrap().join().unwrap();
        assert!(until(|| own.state().is_none() && own.waited_ns().is_none()), "it is gone");
    }

    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// How a node fares that is stopped: it has nothing to do with how busy the machine is.
    #[test]
    fn look_at_a_stopped_process_says_that_it_stands() {
        let child = Killed(Command::new("sleep").arg("1000").spawn().unwrap());
        let process = child.0.id();
        assert!(until(|| SystemThread::find(process, "sleep").is_some()), "it is another program by now");
        let thread = SystemThread::find(process, "sleep").unwrap();
        let is = |state| thread.state() == Some(state);
        assert!(until(|| is(ThreadState::Sleeps)));
        let id = Pid::from_raw(process.cast_signed()).unwrap();
        kill_process(id, Signal::STOP).unwrap();
        assert!(until(|| is(ThreadState::Stands)));
        kill_process(id, Signal::CONT).unwrap();
        assert!(until(|| is(ThreadState::Sleeps)));
        kill_process(id, Signal::KILL).unwrap();
        assert!(
            until(|| is(ThreadState::Stands) || thread.state().is_none()),
            "nobody has waited for it yet"
        );
    }
}
