//! Whether the threads by which a lease is renewed wait for a processor: looked at before the lease ends.
//!
//! Two threads renew a lease that is held over the coordinator's socket: one of the holder asks, and one here
//! answers. On a machine that is too busy either may get its turn too late, while the coordinator itself goes
//! on: it may have a higher priority, other limits, or more luck. Its own gaps ([`crate::providers::ticks`])
//! say nothing of that. Linux does, of each thread:
//!
//! 1. after each renewal it is noted how long the two have waited for a processor so far;
//! 2. when the lease's time is up they are looked at again. If the two have waited for more than half of the
//!    lease's length since, the renewal was held up, and the lease is kept for its length. If the holder's
//!    thread waits for its turn at that moment, the lease is kept for a tenth of it, and looked at again. All
//!    that for four lengths at most (`CoordinatorStore::keep`);
//! 3. a holder that is stopped, ends, or is gone has nobody that waits. Nor has one that hangs, or is cut
//!    off: it sleeps. Their leases end as ever.
//!
//! That a lease is kept for longer is always safe: its holder goes by its own clock and its own renewals.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use cell_terms::Incarnation;

use crate::local_socket::PeerProcess;
use crate::thread_look::{SystemThread, Thread, ThreadState};

/// The name of the thread of a process that asks for its lease's renewals.
pub(crate) const LEASE_THREAD: &str = "lease";

/// How the threads fared that renew a lease, since it was renewed or they were last looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// How long they have waited for a processor, waits that are over.
    pub(crate) lasted_ns: u64,
    /// The holder's waits now.
    pub(crate) goes_on: bool,
}

/// The threads that renew leases. By default nobody's are looked at.
#[derive(Default)]
pub struct Renewers {
    process_of: Option<PeerProcess>,
    leases: Mutex<BTreeMap<Incarnation, Renewer>>,
}

/// Who renews one lease.
struct Renewer {
    /// None: its process has no such thread, or it is not seen from here.
    holder: Option<Box<dyn Thread>>,
    /// The thread here that answers.
    server: Box<dyn Thread>,
    server_id: ThreadId,
    /// How long both had waited in their lives when the lease was renewed, or they were last looked at.
    waited_ns: [u64; 2],
}

impl Renewers {
    /// Of the peers' processes by this.
    pub(crate) fn of(process_of: PeerProcess) -> Renewers {
        Renewers { process_of: Some(process_of), ..Renewers::default() }
    }

    fn leases(&self) -> MutexGuard<'_, BTreeMap<Incarnation, Renewer>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calling thread has granted or renewed a lease for the peer of this connection.
    pub(crate) fn renewed(&self, lease: Incarnation, stream: &UnixStream) {
        let Some(process_of) = self.process_of else { return };
        if !self.renewed_again(lease) {
            let process = process_of(stream).ok().filter(|process| *process != 0);
            let holder = process.and_then(|process| SystemThread::find(process, LEASE_THREAD));
            let holder = holder.map(|thread| -> Box<dyn Thread> { Box::new(thread) });
            self.insert(lease, holder, Box::new(SystemThread::own()));
        }
    }

    /// False: not by the calling thread.
    fn renewed_again(&self, lease: Incarnation) -> bool {
        let mut leases = self.leases();
        let own = std::thread::current().id();
        let renewer = leases.get_mut(&lease).filter(|renewer| renewer.server_id == own);
        renewer.map(Renewer::waited_since).is_some()
    }

    /// A lease is renewed from now on by these, the second of which calls this.
    pub(crate) fn insert(
        &self,
        lease: Incarnation,
        holder: Option<Box<dyn Thread>>,
        server: Box<dyn Thread>,
    ) {
        let server_id = std::thread::current().id();
        let mut renewer = Renewer { holder, server, server_id, waited_ns: [0; 2] };
        renewer.waited_since();
        self.leases().insert(lease, renewer);
    }

    /// What its threads have waited for since this was last asked, or the lease was renewed.
    pub(crate) fn take_waits(&self, lease: Incarnation) -> Waits {
        self.leases().get_mut(&lease).map(Renewer::take_waits).unwrap_or_default()
    }

    #[cfg(test)]
    pub(crate) fn is_known(&self, lease: Incarnation) -> bool {
        self.leases().contains_key(&lease)
    }

    /// These leases have ended.
    pub(crate) fn forget(&self, ended: &[Incarnation]) {
        let mut leases = self.leases();
        for lease in ended {
            leases.remove(lease);
        }
    }
}

impl Renewer {
    /// How long the two have waited since this was last asked.
    fn waited_since(&mut self) -> u64 {
        let holder = self.holder.as_ref().and_then(|thread| thread.waited_ns());
        let mut since_ns = 0;
        for (before_ns, now_ns) in self.waited_ns.iter_mut().zip([holder, self.server.waited_ns()]) {
            if let Some(now_ns) = now_ns {
                since_ns += now_ns.saturating_sub(*before_ns);
                *before_ns = now_ns;
            }
        }
        since_ns
    }

    fn take_waits(&mut self) -> Waits {
        let lasted_ns = self.waited_since();
        match self.holder.as_ref().and_then(|thread| thread.state()) {
            Some(ThreadState::HasWork) => Waits { lasted_ns, goes_on: true },
            Some(ThreadState::Sleeps) => Waits { lasted_ns, goes_on: false },
            // Whatever it waited for, it waits no more.
            Some(ThreadState::Stands) | None => Waits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;
    use crate::coordinator::Coordinator;
    use crate::local_socket::own_user;
    use crate::scripted_thread::ScriptedThread;
    use crate::{CoordinatorServer, Embedded, FirstLease, LeaseTerms, Remote};

    const MS: u64 = 1_000_000;
    const LEASE: Incarnation = Incarnation(7);

    #[test]
    fn take_waits_is_of_both_threads_since_the_last_time_or_renewal() {
        let [holder, server] = [ScriptedThread::asleep(), ScriptedThread::asleep()];
        let renewers = Renewers::default();
        assert_eq!(renewers.take_waits(LEASE), Waits::default(), "nobody is known");
        holder.waits(90 * MS);
        server.waits(90 * MS);
        renewers.insert(LEASE, Some(holder.boxed()), server.boxed());
        assert_eq!(renewers.take_waits(LEASE), Waits::default(), "that was before");
        holder.waits(50 * MS);
        server.waits(60 * MS);
        assert_eq!(renewers.take_waits(LEASE), Waits { lasted_ns: 110 * MS, goes_on: false });
        assert_eq!(renewers.take_waits(LEASE), Waits::default());
        holder.waits(70 * MS);
        assert!(renewers.renewed_again(LEASE));
        assert_eq!(renewers.take_waits(LEASE), Waits::default(), "it was renewed in spite of that");
        server.is_gone();
        holder.waits(10 * MS);
        holder.is(ThreadState::HasWork);
        assert_eq!(renewers.take_waits(LEASE), Waits { lasted_ns: 10 * MS, goes_on: true });
        renewers.forget(&[LEASE]);
        assert!(!renewers.is_known(LEASE), "it has ended");
    }

    #[test]
    fn take_waits_of_a_holder_that_is_stopped_or_gone_is_nothing_whatever_it_waited_for() {
        let [holder, server] = [ScriptedThread::asleep(), ScriptedThread::asleep()];
        let renewers = Renewers::default();
        renewers.insert(LEASE, Some(holder.boxed()), server.boxed());
        holder.waits(1_000 * MS);
        holder.is(ThreadState::Stands);
        assert_eq!(renewers.take_waits(LEASE), Waits::default());
        holder.is(ThreadState::Sleeps);
        holder.waits(1_000 * MS);
        holder.is_gone();
        server.waits(1_000 * MS);
        assert_eq!(renewers.take_waits(LEASE), Waits::default());
        renewers.insert(LEASE, None, server.boxed());
        server.waits(1_000 * MS);
        assert_eq!(renewers.take_waits(LEASE), Waits::default(), "of whom nothing is known");
    }

    #[test]
    fn renewed_is_by_another_thread_when_another_one_answers() {
        let [holder, server] = [ScriptedThread::asleep(), ScriptedThread::asleep()];
        let renewers = Renewers::default();
        renewers.insert(LEASE, Some(holder.boxed()), server.boxed());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!renewers.renewed_again(LEASE))).join().unwrap();
        });
        assert!(renewers.renewed_again(LEASE));
    }

    /// The threads of real processes: here, both of this one.
    #[test]
    fn renewed_over_the_socket_knows_the_holders_thread_until_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let embedded = Embedded::open_with_clock(folder.path(), Arc::new(ManualClock::new(1))).unwrap();
        let embedded = Arc::new(embedded.looking_at_holders(|_| Ok(std::process::id())));
        let path = folder.path().join("coordinator.socket");
        let _server = CoordinatorServer::start(embedded.clone(), &path, |_| Ok(own_user())).unwrap();
        let remote = Arc::new(Remote::new(&path, Duration::from_secs(120)));
        let terms = LeaseTerms::new(60_000, 0.05);
        let lease = FirstLease::ask(remote, terms).unwrap().granted().unwrap();
        let look = || {
            let renewers = embedded.renewers().unwrap();
            let leases = renewers.leases();
            let renewer = leases.get(&lease.incarnation())?;
            renewer.holder.as_ref()?.waited_ns().zip(renewer.server.waited_ns())
        };
        let patience_ns = crate::clock::boottime_ns() + 120_000 * MS;
        let patient = || assert!(crate::clock::boottime_ns() < patience_ns);
        while look().is_none() {
            patient(); // it is noted once the answer is out
        }
        let incarnation = lease.incarnation();
        drop(lease);
        let holder_is_there = || {
            let leases = embedded.renewers().unwrap().leases();
            leases.get(&incarnation).and_then(|renewer| renewer.holder.as_ref()?.state()).is_some()
        };
        while holder_is_there() {
            patient();
        }
    }
}
