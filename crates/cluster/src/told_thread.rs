//! A thread that fares as a test says.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::thread_look::{Thread, ThreadState};

/// Clones are the same one.
#[derive(Clone)]
pub(crate) struct ToldThread(Arc<Mutex<Told>>);

#[derive(Clone, Copy)]
struct Told {
    state: Option<ThreadState>,
    waited_ns: Option<u64>,
}

impl ToldThread {
    /// One that sleeps, and has waited for nothing in its life.
    pub(crate) fn asleep() -> ToldThread {
        let told = Told { state: Some(ThreadState::Sleeps), waited_ns: Some(0) };
        ToldThread(Arc::new(Mutex::new(told)))
    }

    pub(crate) fn boxed(&self) -> Box<dyn Thread> {
        Box::new(self.clone())
    }

    pub(crate) fn is(&self, state: ThreadState) {
        self.told().state = Some(state);
    }

    pub(crate) fn waits(&self, for_ns: u64) {
        let mut told = self.told();
        told.waited_ns = told.waited_ns.map(|waited_ns| waited_ns + for_ns);
    }

    pub(crate) fn is_gone(&self) {
        *self.told() = Told { state: None, waited_ns: None };
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().expect("no test panics within")
    }
}

impl Thread for ToldThread {
    fn state(&self) -> Option<ThreadState> {
        self.told().state
    }

    fn waited_ns(&self) -> Option<u64> {
        self.told().waited_ns
    }
}
