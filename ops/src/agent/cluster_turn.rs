//! Whose turn it is to do a drill to a cluster over several hosts: a row of the coordinator, under a lease
//! that the agent renews as long as the drill is connected.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cell_cluster::{ClusterError, Coordinator};
use cell_drill::wire::Refused;
use cell_drill::{ANY_KIND, ClaimRow};
use cell_terms::Incarnation;
use cell_terms::text::with_causes;

use crate::dev::scale_wire::{away, refuse};

/// The turn outlasts an agent for so long.
const LEASE_MS: u64 = 20_000;
/// The lease is renewed so often.
const RENEWED_EVERY: Duration = Duration::from_secs(5);
/// A drill that has ended is known to have within such a time; and so long a coordinator may be silent.
pub(super) const NOTICED_WITHIN: Duration = Duration::from_secs(3);
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(50);

/// The turn of one connection, once it has taken it. Dropping it ends the turn.
pub(super) struct ClusterTurn {
    coordinator: Arc<dyn Coordinator>,
    /// The first node of the agent.
    first: u16,
    noticed_within: Duration,
    held: Option<(Sender<()>, Lease)>,
}

/// A lease that ends with this, and with it all that hangs on it.
struct Lease {
    coordinator: Arc<dyn Coordinator>,
    now: LeaseNow,
}

/// Another lease follows one that has ended too early; none: the turn is over.
#[derive(Clone)]
struct LeaseNow(Arc<Mutex<Option<Incarnation>>>);

impl LeaseNow {
    fn lock(&self) -> MutexGuard<'_, Option<Incarnation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    fn new(coordinator: &Arc<dyn Coordinator>, lease: Incarnation) -> Lease {
        Lease { coordinator: coordinator.clone(), now: LeaseNow(Arc::new(Mutex::new(Some(lease)))) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let lease = self.now.lock().take();
        if let Some(Err(error)) = lease.map(|lease| self.coordinator.end_lease(lease)) {
            tracing::debug!(%error, "the turn of a drill lasts until its lease has ended");
        }
    }
}

/// What keeps a turn.
struct Keeping {
    coordinator: Arc<dyn Coordinator>,
    lease: LeaseNow,
    row: ClaimRow,
    /// Whether the row hangs on the lease.
    has_row: bool,
}

impl Keeping {
    /// Renews the lease, or takes the row anew under another one where it has ended; whether the turn lasts.
    fn go_on(&mut self) -> bool {
        let lease = *self.lease.lock();
        let Some(lease) = lease else { return false };
        let kept = match self.coordinator.keep_alive(lease) {
            Err(ClusterError::LeaseEnded { .. }) => self.begin_anew(),
            kept => kept,
        };
        let kept = kept.and_then(|()| self.take_row());
        if let Err(error) = kept {
            tracing::warn!(%error, "another drill may begin beside the one that runs");
        }
        true
    }

    fn begin_anew(&mut self) -> Result<(), ClusterError> {
        self.has_row = false;
        let granted = self.coordinator.grant(LEASE_MS)?.lease;
        let mut now = self.lease.lock();
        if now.is_some() {
            *now = Some(granted);
            self.row.kept_by = self.row.kept_by.map(|_| granted.0);
            return Ok(());
        }
        drop(now);
        self.coordinator.end_lease(granted)
    }

    fn take_row(&mut self) -> Result<(), ClusterError> {
        let lease = *self.lease.lock();
        let Some(lease) = lease.filter(|_| !self.has_row) else { return Ok(()) };
        match self.row.take(&*self.coordinator, lease)? {
            None => self.has_row = true,
            Some(other) => {
                tracing::warn!(node = other.node, "another drill has begun beside the one that runs");
            }
        }
        Ok(())
    }
}

impl ClusterTurn {
    /// None yet.
    pub(super) fn new(coordinator: &Arc<dyn Coordinator>, first: u16) -> ClusterTurn {
        let coordinator = coordinator.clone();
        ClusterTurn { coordinator, first, noticed_within: NOTICED_WITHIN, held: None }
    }

    /// A drill begins, of this node or of all. Where who runs it has taken the claim of this number before,
    /// the turn keeps that one, unless another agent keeps it already.
    ///
    /// # Errors
    /// Another one runs, or the coordinator does not say whether one does.
    pub(super) fn take(&mut self, node: Option<u16>, claim: Option<u64>) -> Result<(), Refused> {
        if self.held.is_some() {
            return Ok(());
        }
        let until = Instant::now() + self.noticed_within;
        let granted = loop {
            match self.coordinator.grant(LEASE_MS) {
                Ok(granted) => break granted,
                Err(error) if Instant::now() >= until => return Err(silent(&error)),
                Err(_) => thread::sleep(AGAIN),
            }
        };
        let lease = Lease::new(&self.coordinator, granted.lease);
        let own = ClaimRow {
            id: format!("drill-{}-{:016x}", self.first, RandomState::new().build_hasher().finish()),
            runner: self.first.into(),
            kind: ANY_KIND.to_owned(),
            node: node.unwrap_or(self.first),
            ..ClaimRow::default()
        };
        let row = loop {
            match take_row(&*self.coordinator, granted.lease, &own, claim) {
                Ok(Ok(row)) => break row,
                Ok(Err(other)) if Instant::now() >= until => return Err(is_running(&other)),
                Err(error) if Instant::now() >= until => return Err(silent(&error)),
                Ok(Err(_)) | Err(_) => thread::sleep(AGAIN),
            }
        };
        let (coordinator, lease_now) = (self.coordinator.clone(), lease.now.clone());
        let ends = renew(Keeping { coordinator, lease: lease_now, row, has_row: true })?;
        self.held = Some((ends, lease));
        Ok(())
    }
}

/// Has the row of a turn hang on its lease: `own`, or that of the claim by which who runs the drill has taken
/// it before. `Err` in it: another drill has it, or another agent keeps that of this claim.
fn take_row(
    coordinator: &dyn Coordinator,
    lease: Incarnation,
    own: &ClaimRow,
    claim: Option<u64>,
) -> Result<Result<ClaimRow, ClaimRow>, ClusterError> {
    let Some(other) = own.take(coordinator, lease)? else { return Ok(Ok(own.clone())) };
    let is_claim = claim.is_some() && other.number() == claim;
    let is_own = is_claim && other.keep_under(coordinator, lease)?;
    Ok(if is_own { Ok(ClaimRow { kept_by: Some(lease.0), ..other }) } else { Err(other) })
}

/// Keeps a turn on a thread of its own, until what is returned is dropped.
fn renew(mut turn: Keeping) -> Result<Sender<()>, Refused> {
    let (ends, ended) = channel::<()>();
    let renew = move || {
        while ended.recv_timeout(RENEWED_EVERY) == Err(RecvTimeoutError::Timeout) && turn.go_on() {}
    };
    let started = thread::Builder::new().name("drill-turn".into()).spawn(renew);
    started.map_err(|error| refuse(format!("the agent has no thread for a drill: {error}"), "try again"))?;
    Ok(ends)
}

fn is_running(other: &ClaimRow) -> Refused {
    refuse(
        format!("a drill of node {} is running, started at node {}", other.node, other.runner),
        "wait until it has ended, or stop it; without its agent or node its turn ends by itself, within 20 s",
    )
}

fn silent(error: &ClusterError) -> Refused {
    let why = with_causes(error);
    away(format!("the coordinator does not say whether a drill runs: {why}"), "wait until it answers")
}

#[cfg(test)]
mod tests {
    use cell_cluster::{Fault, Sim};

    use super::*;

    fn turn(link: &cell_cluster::SimLink, first: u16, noticed_within: Duration) -> ClusterTurn {
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        ClusterTurn { noticed_within, ..ClusterTurn::new(&coordinator, first) }
    }

    /// Two agents of two hosts.
    #[test]
    fn turn_is_of_one_connection_in_the_cluster_until_that_ends_or_its_agent_has() {
        let sim = Sim::new(1);
        let link = sim.link();
        let (mut first, mut second) = (turn(&link, 1, Duration::ZERO), turn(&link, 5, Duration::ZERO));
        assert_eq!(first.take(Some(2), None), Ok(()));
        assert_eq!(first.take(Some(2), None), Ok(()), "it is its own");
        let refused = second.take(None, None).unwrap_err().what;
        assert_eq!(refused, "a drill of node 2 is running, started at node 1");
        drop(first);
        assert_eq!(second.take(None, None), Ok(()));
        // An agent that is killed ends nothing.
        std::mem::forget(second);
        let mut third = turn(&link, 1, Duration::ZERO);
        let refused = third.take(Some(1), None).unwrap_err().what;
        assert_eq!(refused, "a drill of node 5 is running, started at node 5");
        sim.advance(LEASE_MS * 1_100_000);
        assert_eq!(third.take(Some(1), None), Ok(()));
    }

    /// A node that runs a drill has its claim before it asks an agent for a turn, and was refused for it.
    #[test]
    fn turn_of_a_claim_keeps_that_one_past_its_nodes_lease_and_takes_it_away_in_the_end() {
        let sim = Sim::new(1);
        let link = sim.link();
        let lease = link.grant(1_000).unwrap().lease;
        let (id, kind) = ("drill-2-000000000000002a".to_owned(), "kill".to_owned());
        let claim = ClaimRow { id, runner: 2, kind, node: 1, ..ClaimRow::default() };
        assert_eq!(claim.take(&link, lease).unwrap(), None);
        let (mut held, mut other) = (turn(&link, 1, Duration::ZERO), turn(&link, 5, Duration::ZERO));
        for strange in [None, Some(43)] {
            let refused = other.take(Some(1), strange).unwrap_err().what;
            assert_eq!(refused, "a drill of node 1 is running, started at node 2");
        }
        assert_eq!(held.take(Some(1), Some(42)), Ok(()));
        sim.advance(2_000_000_000);
        assert!(other.take(None, None).is_err(), "the node's lease has ended, and its drill has not");
        claim.release(&link);
        assert!(other.take(None, None).is_err(), "its node has ended it, and the agent still heals");
        drop(held);
        assert_eq!(other.take(None, None), Ok(()));
    }

    /// Whoever named the claim of a drill that ran had its row hang on their own lease: with their connection
    /// the row went, and a second drill ran beside the first.
    #[test]
    fn turn_of_a_claim_that_another_agent_keeps_is_refused_and_ends_nothing() {
        let link = Sim::new(1).link();
        let lease = link.grant(1_000_000).unwrap().lease;
        let (id, kind) = ("drill-2-000000000000002a".to_owned(), "kill".to_owned());
        let claim = ClaimRow { id, runner: 2, kind, node: 1, ..ClaimRow::default() };
        assert_eq!(claim.take(&link, lease).unwrap(), None);
        let mut held = turn(&link, 1, Duration::ZERO);
        assert_eq!(held.take(Some(1), Some(42)), Ok(()));
        let mut second = turn(&link, 5, Duration::ZERO);
        let refused = second.take(Some(1), Some(42)).unwrap_err().what;
        assert_eq!(refused, "a drill of node 1 is running, started at node 2");
        drop(second);
        assert!(turn(&link, 5, Duration::ZERO).take(None, None).is_err(), "the first one still runs");
        drop(held);
        assert_eq!(turn(&link, 5, Duration::ZERO).take(None, None), Ok(()));
    }

    #[test]
    fn turn_of_a_claim_whose_answer_is_lost_has_it() {
        let link = Sim::new(1).link();
        let lease = link.grant(1_000_000).unwrap().lease;
        let (id, kind) = ("drill-2-000000000000002a".to_owned(), "kill".to_owned());
        let claim = ClaimRow { id, runner: 2, kind, node: 1, ..ClaimRow::default() };
        assert_eq!(claim.take(&link, lease).unwrap(), None);
        // A lease, its own row in vain, who has it, and that one under its lease.
        link.plan([Fault::None, Fault::None, Fault::None, Fault::AnswerLost]);
        assert_eq!(turn(&link, 1, Duration::from_secs(120)).take(Some(1), Some(42)), Ok(()));
    }

    /// A coordinator that was away for long ends no drill: its row is taken again.
    #[test]
    fn turn_whose_lease_has_ended_is_taken_again_until_it_is_over() {
        let sim = Sim::new(1);
        let link = sim.link();
        let coordinator: Arc<dyn Coordinator> = Arc::new(link.clone());
        let granted = link.grant(LEASE_MS).unwrap().lease;
        let lease = Lease::new(&coordinator, granted);
        let (id, kind) = ("drill-1".to_owned(), ANY_KIND.to_owned());
        let kept_by = Some(granted.0);
        let row = ClaimRow { id, runner: 1, kind, node: 2, kept_by, ..ClaimRow::default() };
        assert_eq!(row.take(&link, granted).unwrap(), None);
        let mut kept = Keeping { coordinator, lease: lease.now.clone(), row, has_row: true };
        sim.advance(LEASE_MS * 1_100_000);
        assert!(kept.go_on());
        let mut second = turn(&link, 5, Duration::ZERO);
        let refused = second.take(None, None).unwrap_err().what;
        assert_eq!(refused, "a drill of node 2 is running, started at node 1");
        assert_eq!(kept.row.kept_by, lease.now.lock().map(|lease| lease.0), "it is not another agent's");
        drop(lease);
        assert!(!kept.go_on());
        assert_eq!(second.take(None, None), Ok(()));
    }

    #[test]
    fn turn_is_taken_once_the_coordinator_answers_again() {
        let link = Sim::new(1).link();
        link.plan([Fault::NotReached, Fault::None, Fault::NotReached]);
        assert_eq!(turn(&link, 1, Duration::from_secs(120)).take(Some(1), None), Ok(()));
        link.plan([Fault::NotReached]);
        let refused = turn(&link, 1, Duration::ZERO).take(Some(1), None).unwrap_err().what;
        assert!(refused.starts_with("the coordinator does not say whether a drill runs: "), "{refused}");
    }
}
