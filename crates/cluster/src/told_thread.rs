//! A thread that fares as a test says.

use std::sync::{Arc, Mutex};

use crate::thread_look::{Thread, ThreadLook, ThreadState};

/// Clones are the same one.
#[derive(Clone)]
pub(crate) struct ToldThread(Arc<Mutex<Option<ThreadLook>>>);

impl ToldThread {
    /// One that sleeps, and has waited for nothing in its life.
    pub(crate) fn asleep() -> ToldThread {
        ToldThread(Arc::new(Mutex::new(Some(ThreadLook { state: ThreadState::Sleeps, waited_ns: 0 }))))
    }

    pub(crate) fn boxed(&self) -> Box<dyn Thread> {
        Box::new(self.clone())
    }

    pub(crate) fn is(&self, state: ThreadState) {
        self.change(|look| look.state = state);
    }

    pub(crate) fn waits(&self, for_ns: u64) {
        self.change(|look| look.waited_ns += for_ns);
    }

    pub(crate) fn is_gone(&self) {
        *self.0.lock().expect("no test panics within") = None;
    }

    fn change(&self, change: impl FnOnce(&mut ThreadLook)) {
        change(self.0.lock().expect("no test panics within").as_mut().expect("it is there"));
    }
}

impl Thread for ToldThread {
    fn look(&self) -> Option<ThreadLook> {
        *self.0.lock().expect("no test panics within")
    }
}
