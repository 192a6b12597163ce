//! The way to the coordinator behind the same filter as the node's connections.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cell_cluster::{ClockReading, ClusterError, Coordinator, CoordinatorRequest, Response};
use cell_fabric::Partition;

use crate::provider::Provider;

/// How often a call that is cut off looks whether it still is.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A coordinator that cannot be reached while the partition is on: calls take their deadline and fail. Where
/// only answers are dropped, calls are carried out and fail all the same.
pub(crate) struct Filtered<C> {
    coordinator: C,
    partition: Partition,
    deadline_ms: AtomicU64,
}

impl<C> Filtered<C> {
    /// `coordinator`, whose calls take at most `deadline`, behind `partition`.
    pub(crate) fn new(coordinator: C, partition: Partition, deadline: Duration) -> Filtered<C> {
        Filtered { coordinator, partition, deadline_ms: AtomicU64::new(milliseconds(deadline)) }
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms.load(Ordering::Relaxed))
    }

    /// Waits until nothing is dropped any more, or until the deadline.
    fn wait_until(&self, until: Instant) {
        while self.partition.is_on() && Instant::now() < until {
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Filtered<Provider> {
    /// Each call takes at most so long from now on.
    pub(crate) fn set_deadline(&self, deadline: Duration) {
        self.deadline_ms.store(milliseconds(deadline), Ordering::Relaxed);
        self.coordinator.set_deadline(deadline);
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl<C: Coordinator> Coordinator for Filtered<C> {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        self.call_timed(request).map(|(response, _)| response)
    }

    fn call_timed(
        &self,
        request: &CoordinatorRequest,
    ) -> Result<(Response, Option<ClockReading>), ClusterError> {
        let until = Instant::now() + self.deadline();
        if self.partition.blocks_outbound() {
            // What is not sent is not carried out, also when the partition ends just then.
            self.wait_until(until);
            return Err(ClusterError::NotReached(io::ErrorKind::TimedOut.into()));
        }
        let answer = self.coordinator.call_timed(request)?;
        if self.partition.blocks_inbound() {
            // It was carried out, and the answer is lost.
            self.wait_until(until);
            return Err(ClusterError::OutcomeUnknown(io::ErrorKind::TimedOut.into()));
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use cell_cluster::{Remote, Sim};
    use cell_fabric::Blocked;

    use super::*;

    const DEADLINE: Duration = Duration::from_millis(30);

    /// Renews a lease that has used more than half of its time while a filter drops something; then the
    /// filter is gone, and the lease is renewed again after as long. What both calls say.
    fn renew(blocked: Blocked) -> [Result<(), ClusterError>; 2] {
        let (sim, partition) = (Sim::new(1), Partition::default());
        let filtered = Filtered::new(sim.link(), partition.clone(), DEADLINE);
        let lease = filtered.grant(1_000).unwrap().lease;
        sim.advance(600_000_000);
        partition.set(blocked);
        let began = Instant::now();
        let first = filtered.keep_alive(lease).map(drop);
        assert!(began.elapsed() >= DEADLINE);
        partition.set(Blocked::Nothing);
        sim.advance(600_000_000);
        [first, filtered.keep_alive(lease).map(drop)]
    }

    #[test]
    fn call_behind_a_partition_takes_its_deadline_and_is_not_carried_out() {
        for blocked in [Blocked::Both, Blocked::Outbound] {
            let [refused, ended] = renew(blocked).map(Result::unwrap_err);
            assert!(matches!(refused, ClusterError::NotReached(_)), "{refused}");
            assert!(matches!(ended, ClusterError::LeaseEnded { .. }), "it was not renewed: {ended}");
        }
    }

    #[test]
    fn call_whose_answer_is_dropped_takes_its_deadline_and_is_carried_out() {
        let [unknown, renewed] = renew(Blocked::Inbound);
        let unknown = unknown.unwrap_err();
        assert!(matches!(unknown, ClusterError::OutcomeUnknown(_)), "{unknown}");
        renewed.unwrap();
    }

    /// With the deadline that it was made with it would wait for an hour.
    #[test]
    fn call_behind_a_partition_takes_the_deadline_that_is_in_force() {
        let partition = Partition::default();
        partition.set(Blocked::Both);
        let long = Duration::from_secs(3_600);
        let nowhere = Provider::Remote(Remote::new("/nowhere/coordinator.socket", long));
        let filtered = Filtered::new(nowhere, partition, long);
        filtered.set_deadline(Duration::from_millis(20));
        assert!(matches!(filtered.read("a"), Err(ClusterError::NotReached(_))));
    }
}
