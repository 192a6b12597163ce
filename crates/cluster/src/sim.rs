//! A coordinator in memory whose clock is given and whose failures are ordered: for tests and the simulator.
//!
//! It is as strict as the real ones: the same [`Store`] behind the same trait. What it permits: calls that
//! never arrive, calls that time out before or after they were carried out, links that are cut, restarts.
//! What it does not model: a lost table, and a store that stopped.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::coordinator::{Coordinator, initialise};
use crate::error::ClusterError;
use crate::request::{Request, Response};
use crate::store::Store;

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It goes through.
    None,
    /// The coordinator is not reached, and the caller knows.
    NotReached,
    /// The call times out; it was not carried out.
    Lost,
    /// The call times out; it was carried out.
    AnswerLost,
    /// The call times out, and is carried out before the next call of anybody.
    Late,
    /// The call times out, and is carried out when so many more calls of anybody have been.
    Delayed {
        /// How many.
        calls: u64,
    },
}

/// The coordinator. Clones are the same one.
#[derive(Clone)]
pub struct Sim {
    state: Arc<Mutex<State>>,
}

struct State {
    store: Store,
    now_ns: u64,
    /// Calls that are still to be carried out, and after how many.
    late: VecDeque<(u64, Request)>,
    calls: u64,
}

/// One member's way to the coordinator, with its faults.
#[derive(Clone)]
pub struct SimLink {
    sim: Sim,
    faults: Arc<Mutex<Faults>>,
}

#[derive(Default)]
struct Faults {
    cut: bool,
    planned: VecDeque<Fault>,
}

impl Sim {
    /// An initialised, empty table.
    #[must_use]
    pub fn new(generation: u32) -> Sim {
        let state = State { store: Store::new(generation), now_ns: 0, late: VecDeque::new(), calls: 0 };
        let sim = Sim { state: Arc::new(Mutex::new(state)) };
        initialise(&sim.link(), generation).expect("a link without faults reaches an empty store");
        sim
    }

    /// A member's way here.
    #[must_use]
    pub fn link(&self) -> SimLink {
        SimLink { sim: self.clone(), faults: Arc::default() }
    }

    /// Moves the clock; a time before the present is ignored.
    pub fn set_now(&self, now_ns: u64) {
        let mut state = self.state();
        state.now_ns = state.now_ns.max(now_ns);
    }

    /// Moves the clock on.
    pub fn advance(&self, by_ns: u64) {
        self.state().now_ns += by_ns;
    }

    /// The clock.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.state().now_ns
    }

    /// Calls that arrived.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// A restart of the coordinator: leases count as just granted, watchers have to list again.
    pub fn restart(&self) {
        let mut state = self.state();
        state.store = Store::restore(state.store.image(), state.now_ns);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_off(&self, calls: u64, request: &Request) {
        let mut state = self.state();
        let due = state.calls + calls;
        state.late.push_back((due, request.clone()));
    }

    fn carry_out(&self, request: &Request) -> Response {
        let mut state = self.state();
        let due = |state: &State| state.late.iter().position(|(calls, _)| *calls <= state.calls);
        while let Some((_, late)) = due(&state).and_then(|at| state.late.remove(at)) {
            state.serve(&late);
        }
        state.serve(request)
    }
}

impl State {
    fn serve(&mut self, request: &Request) -> Response {
        self.calls += 1;
        let served = self.store.serve(request, self.now_ns, |_| Ok::<(), Infallible>(()));
        served.unwrap_or_else(|never| match never {})
    }
}

impl SimLink {
    /// Cuts the link, or mends it.
    pub fn set_cut(&self, cut: bool) {
        self.faults().cut = cut;
    }

    /// What happens to the next calls, in order; those after go through.
    pub fn plan(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults().planned.extend(faults);
    }

    /// Forgets the faults that were planned, and mends the link.
    pub fn mend(&self) {
        *self.faults() = Faults::default();
    }

    /// The coordinator at the other end.
    #[must_use]
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    fn faults(&self) -> std::sync::MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_fault(&self) -> Fault {
        let mut faults = self.faults();
        if faults.cut { Fault::Lost } else { faults.planned.pop_front().unwrap_or(Fault::None) }
    }
}

impl Coordinator for SimLink {
    fn call(&self, request: &Request) -> Result<Response, ClusterError> {
        let timed_out = || ClusterError::OutcomeUnknown(io::ErrorKind::TimedOut.into());
        match self.next_fault() {
            Fault::None => Ok(self.sim.carry_out(request)),
            Fault::NotReached => Err(ClusterError::NotReached(io::ErrorKind::ConnectionRefused.into())),
            Fault::Lost => Err(timed_out()),
            Fault::AnswerLost => {
                self.sim.carry_out(request);
                Err(timed_out())
            }
            Fault::Late => {
                self.sim.put_off(0, request);
                Err(timed_out())
            }
            Fault::Delayed { calls } => {
                self.sim.put_off(calls, request);
                Err(timed_out())
            }
        }
    }
}
