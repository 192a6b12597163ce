//! A thread that fares as a test says.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::thread_look::{Thread, ThreadState};

/// Clones are the same one.
#[derive(Clone)]
pub(crate) struct ScriptedThread(Arc<Mutex<Script>>);

#[derive(Clone, Copy)]
struct Script {
    state: Option<ThreadState>,
    waited_ns: Option<u64>,
}

impl ScriptedThread {
    /// One that sleeps, and has waited for nothing in its life.
    pub(crate) fn asleep() -> ScriptedThread {
        let script = Script { state: Some(ThreadState::Sleeps), waited_ns: Some(0) };
        ScriptedThread(Arc::new(Mutex::new(script)))
    }

    pub(crate) fn boxed(&self) -> Box<dyn Thread> {
        Box::new(self.clone())
    }

    pub(crate) fn is(&self, state: ThreadState) {
        self.script().state = Some(state);
    }

    pub(crate) fn waits(&self, for_ns: u64) {
        let mut script = self.script();
        script.waited_ns = script.waited_ns.map(|waited_ns| waited_ns + for_ns);
    }

    pub(crate) fn is_gone(&self) {
        *self.script() = Script { state: None, waited_ns: None };
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().expect("no test panics within")
    }
}

impl Thread for ScriptedThread {
    fn state(&self) -> Option<ThreadState> {
        self.script().state
    }

    fn waited_ns(&self) -> Option<u64> {
        self.script().waited_ns
    }
}
