//! The end of a lease by its holder: the last that a node does which ends in order.
//!
//! The end of a lease says to everybody that all trust granted under it has passed: from then on others serve
//! the node's pairs. So the worker has ended, and sends nothing any more; nothing renews the lease; and after
//! the last reply the longest trust that it may have granted has passed.

use std::time::Duration;

use cell_cluster::{Coordinator, boottime_ns};
use cell_terms::Incarnation;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::setting::Settings;
use cell_terms::text::with_causes;

use crate::worker::trust_passed_ns;

/// For how long, after a node's last reply, clients may believe what they read in its memory: as long as it
/// grants at most, which is never longer than the lease, by clocks that go slower.
pub(crate) fn trust_ns(settings: &Settings) -> u64 {
    let longest_ms = settings.integer("trust_max_ms").min(settings.integer("lease_ms"));
    trust_passed_ns(longest_ms.saturating_mul(1_000_000))
}

/// Ends it once `passed_ns` is there, for which `wait_until` waits: all trust has passed then.
pub(crate) fn end(
    coordinator: &dyn Coordinator,
    lease: Incarnation,
    passed_ns: u64,
    wait_until: impl FnOnce(u64),
) {
    if !planted(Mutant::LeaseEndedEarly) {
        wait_until(passed_ns);
    }
    if let Err(error) = coordinator.end_lease(lease) {
        tracing::warn!(error = with_causes(&error), %lease, "the lease may end by itself alone, later");
    }
}

/// Waits until the clock is there.
pub(crate) fn wait_until(until_ns: u64) {
    loop {
        let left_ns = until_ns.saturating_sub(boottime_ns());
        if left_ns == 0 {
            return;
        }
        std::thread::park_timeout(Duration::from_nanos(left_ns));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use cell_cluster::{ClusterError, CoordinatorRequest, Fault, Response, Sim, SimLink, Transaction};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Notes when a lease was asked to end.
    struct Noting {
        sim: Sim,
        link: SimLink,
        asked_ns: AtomicU64,
    }

    impl Coordinator for Noting {
        fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
            if matches!(request, CoordinatorRequest::End { .. }) {
                self.asked_ns.store(self.sim.now_ns(), Ordering::SeqCst);
            }
            self.link.call(request)
        }
    }

    fn ends_after_the_trust() -> bool {
        let sim = Sim::new(1);
        let coordinator = Noting { link: sim.link(), asked_ns: AtomicU64::new(0), sim: sim.clone() };
        let lease = coordinator.grant(60_000).unwrap().lease;
        coordinator.transact(Transaction::new().put_leased("member", "", lease)).unwrap();
        let passed_ns = sim.now_ns() + SECOND;
        end(&coordinator, lease, passed_ns, |until_ns| sim.advance(until_ns - sim.now_ns()));
        assert_eq!(coordinator.remaining_ns(lease).unwrap(), None, "it does not last for a minute");
        assert_eq!(coordinator.read("member").unwrap(), None);
        coordinator.asked_ns.load(Ordering::SeqCst) >= passed_ns
    }

    #[test]
    fn lease_ends_once_all_trust_has_passed() {
        assert!(ends_after_the_trust());
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_lease_ended_early_is_caught() {
        use cell_terms::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::LeaseEndedEarly));
            let passed = ends_after_the_trust();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-node's end of a lease", Mutant::LeaseEndedEarly.name());
        });
    }

    #[test]
    fn lease_that_cannot_be_ended_ends_by_itself() {
        let sim = Sim::new(1);
        let link = sim.link();
        let lease = link.grant(60_000).unwrap().lease;
        link.plan([Fault::NotReached]);
        end(&link, lease, 0, |_| {});
        assert!(link.remaining_ns(lease).unwrap().is_some());
    }

    #[test]
    fn trust_is_no_longer_than_the_lease_and_passes_by_slow_clocks_too() {
        let mut settings = Settings::new(&[crate::SETTINGS, cell_cluster::SETTINGS]);
        let longest = |settings: &Settings| {
            [settings.integer("trust_max_ms"), settings.integer("lease_ms")].map(|of| of * 1_000_000)
        };
        let [trust_ns_max, lease_ns] = longest(&settings);
        assert!(trust_ns_max < lease_ns && trust_ns(&settings) > trust_ns_max);
        let long = (lease_ns / 1_000_000 * 2).to_string();
        settings.set("trust_max_ms", &long, cell_terms::setting::Source::Flag).unwrap();
        assert_eq!(trust_ns(&settings), trust_passed_ns(lease_ns));
        assert_eq!(trust_passed_ns(lease_ns), lease_ns / 2 * 3, "by a clock that goes two thirds as fast");
    }

    #[test]
    fn wait_until_returns_when_the_clock_is_there() {
        let until_ns = boottime_ns() + 1_000_000;
        wait_until(until_ns);
        assert!(boottime_ns() >= until_ns);
        wait_until(0);
    }
}
