//! Keeps memory ready for takeovers: a thread touches it a little at a time while nobody takes any, and
//! leaves it alone during a takeover and right after.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use cell_memory::{Budget, MemoryError, make_ready, ready_bytes, ready_bytes_given};

/// Between two steps of 2 MiB, which take 0.5 ms, or ten times that in a virtual machine.
const STEP: Duration = Duration::from_millis(25);
/// Between two looks at a full stock, and before the first step and after each takeover.
const REST: Duration = Duration::from_secs(5);

/// The thread; it ends with this.
pub(crate) struct ReadyMemory {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ReadyMemory {
    /// Starts it, if anything is to be kept ready.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(wanted: u64, budget: Budget) -> std::io::Result<ReadyMemory> {
        if wanted == 0 {
            return Ok(ReadyMemory { stop: None, thread: None });
        }
        let (stop, stopped) = channel();
        let run = move || {
            let mut keeper = Keeper { wanted, budget, given: 0, reported: false };
            let mut pace = REST;
            while stopped.recv_timeout(pace) == Err(RecvTimeoutError::Timeout) {
                pace = keeper.step();
            }
        };
        let thread = std::thread::Builder::new().name("cell-ready".to_owned()).spawn(run)?;
        Ok(ReadyMemory { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for ReadyMemory {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it holds nothing
        }
    }
}

struct Keeper {
    wanted: u64,
    budget: Budget,
    /// What was given to takeovers at the last look.
    given: u64,
    reported: bool,
}

impl Keeper {
    /// One step; says when the next one is due.
    fn step(&mut self) -> Duration {
        let given = ready_bytes_given();
        if given != std::mem::replace(&mut self.given, given) {
            self.reported = false;
            return REST;
        }
        match make_ready(self.wanted, &self.budget) {
            Ok(true) => STEP,
            made => {
                self.report(made.err().as_ref());
                REST
            }
        }
    }

    /// Reports once what there is, and why it is not all.
    fn report(&mut self, error: Option<&MemoryError>) {
        if std::mem::replace(&mut self.reported, true) {
            return;
        }
        let (bytes, wanted) = (ready_bytes(), self.wanted);
        match error {
            None => tracing::info!(bytes, wanted, "memory is ready for takeovers"),
            Some(error) => {
                tracing::info!(bytes, wanted, %error, "less memory is ready for takeovers than was asked for");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_fills_a_step_at_a_time_and_then_rests() {
        let budget = Budget::new(1 << 60, 0);
        let mut keeper = Keeper { wanted: 5 << 20, budget: budget.clone(), given: 0, reported: false };
        assert_eq!([keeper.step(), keeper.step(), keeper.step()], [STEP, STEP, REST]);
        assert_eq!(ready_bytes(), 4 << 20);
        keeper.given = 1; // and now it is not: somebody took some
        assert_eq!((keeper.step(), keeper.reported), (REST, false));
        let mut greedy = Keeper { wanted: 1 << 50, budget, given: 0, reported: false };
        assert_eq!(greedy.step(), REST, "the machine has less");
    }

    #[test]
    fn thread_ends_with_its_handle_and_there_is_none_for_nothing() {
        assert!(ReadyMemory::start(0, Budget::unlimited()).unwrap().thread.is_none());
        drop(ReadyMemory::start(1, Budget::unlimited()).unwrap());
    }
}
