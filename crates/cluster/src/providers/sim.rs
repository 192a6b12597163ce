//! A coordinator in memory whose clock is given and whose failures are ordered: for tests and the simulator.
//!
//! It is as strict as the real ones: the same [`CoordinatorStore`] behind the same trait. What it permits:
//! calls that never arrive, calls that time out before or after they were carried out, links that are cut,
//! restarts, power cuts, a process that stands still. A power cut takes what was not synced: with the rule
//! that a change is synced before it is answered that is at most the change of the call that it interrupts
//! ([`Fault::PowerCut`]), which may also have become durable without an answer. What it does not model: a
//! lost table, and a store that stopped.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use cell_terms::mutant::{Mutant, planted};

use crate::coordinator::{Coordinator, initialise};
use crate::error::ClusterError;
use crate::providers::store::CoordinatorStore;
use crate::providers::ticks::Gap;
use crate::request::{CoordinatorRequest, Response};

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
    /// Power goes while the call is carried out: see [`Sim::cut_power`]. The caller gets no answer.
    PowerCut {
        /// Whether what it changes had reached stable storage.
        durable: bool,
    },
}

/// How a coordinator is away, from some call on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// Its process stands still.
    Still,
    /// The caller's link is cut; all others reach it.
    Cut,
}

/// The coordinator. Clones are the same one.
#[derive(Clone)]
pub struct Sim {
    state: Arc<Mutex<SimState>>,
}

struct SimState {
    store: CoordinatorStore,
    /// The store as it is on stable storage, where that is not the present one.
    synced: Option<CoordinatorStore>,
    powered: bool,
    /// Since when its process stands still, if it does.
    still_ns: Option<u64>,
    /// After how many calls it is away, and how.
    away_at: Option<(u64, Away)>,
    /// Since when it has been, if it ever was by that.
    away_ns: Option<u64>,
    now_ns: u64,
    /// Calls that are still to be carried out, and after how many.
    late: VecDeque<(u64, CoordinatorRequest)>,
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
        let state = SimState {
            store: CoordinatorStore::new(generation),
            synced: None,
            powered: true,
            still_ns: None,
            away_at: None,
            away_ns: None,
            now_ns: 0,
            late: VecDeque::new(),
            calls: 0,
        };
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

    /// A restart of the coordinator's process: leases count as just granted, watchers have to list again.
    /// What was written and not synced is still there.
    pub fn restart(&self) {
        let mut state = self.state();
        state.store = CoordinatorStore::restore(state.store.image(), state.now_ns);
    }

    /// The coordinator's host loses its power: what was not synced is lost, and so are the calls that were on
    /// their way. Calls do not reach it until [`Sim::power_on`].
    pub fn cut_power(&self) {
        let mut state = self.state();
        if let Some(synced) = state.synced.take() {
            state.store = synced;
        }
        state.late.clear();
        (state.powered, state.still_ns) = (false, None);
    }

    /// The coordinator's host is back: leases count as just granted, watchers have to list again.
    pub fn power_on(&self) {
        self.restart();
        self.state().powered = true;
    }

    /// The coordinator's process stands still: calls time out, and are carried out when it goes on.
    pub fn stand_still(&self) {
        let mut state = self.state();
        let now_ns = state.now_ns;
        if state.powered {
            state.still_ns.get_or_insert(now_ns);
        }
    }

    /// The coordinator's process goes on, and has noticed for how long it stood still.
    pub fn go_on(&self) {
        let mut state = self.state();
        let ended_ns = state.now_ns;
        if let Some(since_ns) = state.still_ns.take() {
            let lasted_ns = ended_ns.saturating_sub(since_ns);
            state.store.stood_still(Gap { lasted_ns, began_ns: since_ns, ended_ns });
        }
    }

    /// After so many calls it is away, in this way: whose link meets that ([`SimLink::meet`]) finds it so.
    pub fn go_away_after(&self, calls: u64, away: Away) {
        self.state().away_at = Some((calls, away));
    }

    /// Since when it has been away by [`Sim::go_away_after`], if it ever was: whoever wants it back calls
    /// [`Sim::go_on`], or mends the link.
    #[must_use]
    pub fn away_since_ns(&self) -> Option<u64> {
        self.state().away_ns
    }

    /// How it is away from now on, if it is from now on.
    fn goes_away(&self) -> Option<Away> {
        let mut state = self.state();
        let calls = state.calls;
        let (_, away) = state.away_at.take_if(|(after, _)| *after <= calls)?;
        state.away_ns = Some(state.now_ns);
        Some(away)
    }

    /// Whether calls are answered: it has power and does not stand still. While it does not, no lease ends.
    #[must_use]
    pub fn answers(&self) -> bool {
        let state = self.state();
        state.powered && state.still_ns.is_none()
    }

    /// Whether the coordinator's host has power.
    #[must_use]
    pub fn is_powered(&self) -> bool {
        self.state().powered
    }

    fn state(&self) -> std::sync::MutexGuard<'_, SimState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_off(&self, calls: u64, request: &CoordinatorRequest) {
        let mut state = self.state();
        let due = state.calls + calls;
        state.late.push_back((due, request.clone()));
    }

    /// What a call is answered; none: the coordinator has no power.
    fn carry_out(&self, request: &CoordinatorRequest) -> Option<Response> {
        let mut state = self.state();
        if !state.powered {
            return None;
        }
        let due = |state: &SimState| state.late.iter().position(|(calls, _)| *calls <= state.calls);
        while let Some((_, late)) = due(&state).and_then(|at| state.late.remove(at)) {
            state.serve(&late);
        }
        Some(state.serve(request))
    }

    /// Carries a call out, and power goes before it is answered.
    fn carry_out_in_power_cut(&self, request: &CoordinatorRequest, durable: bool) {
        let before = self.state().store.clone();
        if self.carry_out(request).is_none() {
            return;
        }
        if durable {
            self.state().synced = None;
        } else {
            self.state().synced.get_or_insert(before);
        }
        self.cut_power();
    }
}

impl SimState {
    fn serve(&mut self, request: &CoordinatorRequest) -> Response {
        self.calls += 1;
        let before = planted(Mutant::CoordinatorUnsynced).then(|| self.store.clone());
        let mut changed = false;
        let served = self.store.serve(request, self.now_ns, |_| {
            changed = true;
            Ok::<(), Infallible>(())
        });
        if changed {
            self.synced = before; // with the defect each change is synced by the next one
        }
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

    /// A member is about to call: if the coordinator is to be away from this call on, it is. Who looks at the
    /// coordinator from outside does not say so, and is not kept from looking.
    pub fn meet(&self) {
        match self.sim.goes_away() {
            Some(Away::Still) => self.sim.stand_still(),
            Some(Away::Cut) => self.set_cut(true),
            None => {}
        }
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
    fn clock_ns(&self) -> Option<u64> {
        Some(self.sim.now_ns())
    }

    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        let timed_out = || ClusterError::OutcomeUnknown(io::ErrorKind::TimedOut.into());
        let not_reached = || ClusterError::NotReached(io::ErrorKind::ConnectionRefused.into());
        match self.next_fault() {
            _ if !self.sim.is_powered() => Err(not_reached()),
            Fault::None | Fault::AnswerLost | Fault::Late if !self.sim.answers() => {
                self.sim.put_off(0, request); // the system has taken it in
                Err(timed_out())
            }
            _ if !self.sim.answers() => Err(timed_out()),
            Fault::None => self.sim.carry_out(request).ok_or_else(not_reached),
            Fault::NotReached => Err(not_reached()),
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
            Fault::PowerCut { durable } => {
                self.sim.carry_out_in_power_cut(request, durable);
                Err(timed_out())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Transaction;

    fn put(link: &SimLink, key: &str) -> Result<(), ClusterError> {
        link.transact(Transaction::new().put(key, "")).map(drop)
    }

    #[test]
    fn cut_power_between_calls_loses_nothing_acknowledged() {
        let sim = Sim::new(7);
        let link = sim.link();
        put(&link, "k/1").unwrap();
        put(&link, "k/2").unwrap();
        sim.cut_power();
        assert!(matches!(put(&link, "k/3"), Err(ClusterError::NotReached(_))));
        sim.power_on();
        let keys: Vec<_> = link.list("k/").unwrap().entries.into_iter().map(|entry| entry.key).collect();
        assert_eq!(keys, ["k/1", "k/2"]);
    }

    #[test]
    fn stand_still_ends_no_lease_and_carries_out_afterwards_what_came_meanwhile() {
        let sim = Sim::new(7);
        let link = sim.link();
        let lease = link.grant(500).unwrap().lease;
        sim.stand_still();
        sim.advance(1_500_000_000);
        assert!(matches!(put(&link, "k/1"), Err(ClusterError::OutcomeUnknown(_))));
        assert!(!sim.answers());
        sim.go_on();
        assert_eq!(link.remaining_ns(lease).unwrap(), Some(500_000_000));
        assert!(link.read("k/1").unwrap().is_some());
        sim.advance(500_000_000);
        assert_eq!(link.remaining_ns(lease).unwrap(), None);
    }

    #[test]
    fn power_cut_within_a_call_has_either_outcome_and_loses_the_calls_on_their_way() {
        for durable in [false, true] {
            let sim = Sim::new(7);
            let link = sim.link();
            let lease = link.grant(1000).unwrap().lease;
            sim.advance(900_000_000);
            link.plan([Fault::Delayed { calls: 3 }, Fault::PowerCut { durable }]);
            put(&link, "late").unwrap_err();
            assert!(matches!(put(&link, "cut"), Err(ClusterError::OutcomeUnknown(_))));
            assert!(!sim.is_powered());
            sim.power_on();
            assert_eq!(link.read("cut").unwrap().is_some(), durable);
            for _ in 0..9 {
                assert_eq!(link.read("late").unwrap(), None, "it was lost with its connection");
            }
            assert_eq!(link.remaining_ns(lease).unwrap(), Some(1_000_000_000), "as just granted");
        }
    }
}
