//! Processes of the system: signals, what the kernel says of them, and waiting for their end. All by system
//! calls and `/proc`: a bare Debian has neither `kill` nor `ps`.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait;

/// Sends a signal to a process that lives.
///
/// # Panics
/// If there is none.
pub fn signal(process: Pid, signal: Signal) {
    kill_process(process, signal).expect("a process that lives can be signalled");
}

/// SIGSTOP; waits until every thread stands still.
///
/// # Panics
/// If one goes on.
pub fn stop(process: Pid) {
    signal(process, Signal::STOP);
    wait::until("each thread stands still", || states(process).into_iter().all(|state| state == 'T'));
}

/// Whether these processes have ended; their parent need not have noticed.
pub fn have_ended(processes: &[Pid]) -> bool {
    processes.iter().all(|process| states(*process).into_iter().all(|state| state == 'Z'))
}

/// Waits until these processes have ended.
///
/// # Panics
/// If one lives on.
#[track_caller]
pub fn wait_ended(processes: &[Pid]) {
    wait::until(&format!("{processes:?} have ended"), || have_ended(processes));
}

/// A process by its number, as programs print it.
///
/// # Panics
/// If it is no process's number.
pub fn by_number(number: u64) -> Pid {
    i32::try_from(number).ok().and_then(Pid::from_raw).expect("a process's number")
}

/// The states of a process's threads, as the kernel abbreviates them; none of one that is gone.
fn states(process: Pid) -> Vec<char> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()));
    let texts = tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    // The name before it, in brackets, may hold anything.
    texts.filter_map(|text| text.rsplit_once(") ")?.1.chars().next()).collect()
}

/// Processes that `parent` started, of all its threads.
pub fn children(parent: Pid) -> Vec<Pid> {
    let tasks = format!("/proc/{}/task", parent.as_raw_nonzero());
    let threads = fs::read_dir(tasks).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers: Vec<i32> = lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    numbers.into_iter().filter_map(Pid::from_raw).collect()
}

/// Resident memory of a process that it shares with nobody: without regions, which it takes ahead of need.
///
/// # Panics
/// If there is no such process.
pub fn anonymous_bytes(process: Pid) -> u64 {
    let path = format!("/proc/{}/status", process.as_raw_nonzero());
    let text = fs::read_to_string(&path).expect("the process lives");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux 4.5 or later");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
    kib * 1024
}

/// Resident memory of a process, shared mappings included.
pub fn resident_bytes(process: Pid) -> u64 {
    let path = format!("/proc/{}/statm", process.as_raw_nonzero());
    let text = fs::read_to_string(path).unwrap_or_default();
    let pages: u64 = text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
