//! The store on sled, hosted by one process of a single-machine cluster.
//!
//! A failed write or sync stops the store for good, loudly: what is on stable storage is not known, and the
//! next start reads what is there. A disk that is full does not: sessions are refused first, then every
//! change, and all the while leases that live are renewed and what is there is read; when there is room again
//! changes go on (`room`, `store_folder`).
//!
//! One change at a time is on its way to the disk; leases are renewed meanwhile, so that a disk that takes
//! its time ends nobody's lease. Nor does a process that stood still ([`crate::providers::ticks`]), nor a
//! machine that is too busy for renewals ([`crate::renewers`]).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cell_durable::{Syncer, SystemSyncer, create_folders};
use cell_terms::Incarnation;
use cell_terms::mutant::{Mutant, planted};

use crate::clock::{BootClock, Clock};
use crate::coordinator::{Coordinator, initialise};
use crate::error::ClusterError;
use crate::local_socket::PeerProcess;
use crate::lock::FolderLock;
use crate::providers::ids::{random_generation, random_step};
use crate::providers::room::RoomLeft;
use crate::providers::store::{CoordinatorStore, Delta};
use crate::providers::store_folder::{self, StoreFolder};
use crate::providers::ticks::{Ticker, Ticks};
use crate::renewers::Renewers;
use crate::request::{CoordinatorRefusal, CoordinatorRequest, LivingLease, Response};

/// The first lease after a start has an id that is above the lowest that it may be by less than this part of
/// the ids that its cluster has left, at random.
const LEASE_STEP_PART: u64 = 1 << 10;

/// Called once with why the store has stopped.
type OnStop = Box<dyn FnOnce(&ClusterError) + Send>;

/// A coordinator in this process.
pub struct Embedded {
    /// Locked for a change from before it is decided until it counts; taken before `store`.
    disk: Mutex<StoreFolder>,
    /// Locked for as long as memory takes.
    store: Mutex<CoordinatorStore>,
    stopped: AtomicBool,
    on_stop: Mutex<Option<OnStop>>,
    clock: Arc<dyn Clock>,
    ticks: Arc<Ticks>,
    ticker: Option<Ticker>,
    renewers: Renewers,
    folder: PathBuf,
}

impl Embedded {
    /// Opens the table in `folder`, or begins one there with a random generation. All leases count as just
    /// granted. Ids of leases go on from further on, by a random step: a folder that was restored from a
    /// backup while no node ran gives none again that was given since.
    ///
    /// # Errors
    /// [`ClusterError::Held`] if a process has it open, [`ClusterError::Format`] if another version wrote it.
    pub fn open(folder: &Path) -> Result<Embedded, ClusterError> {
        let mut embedded = Embedded::open_with_clock(folder, Arc::new(BootClock))?;
        embedded.ticker = Some(Ticker::start(embedded.ticks.clone(), embedded.clock.clone())?);
        Ok(embedded)
    }

    /// [`Embedded::open`] with a clock of the caller's, who ticks: see [`Embedded::tick`].
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub fn open_with_clock(folder: &Path, clock: Arc<dyn Clock>) -> Result<Embedded, ClusterError> {
        Embedded::open_with(folder, clock, Arc::new(SystemSyncer))
    }

    /// [`Embedded::open`] with a clock of the caller's, and its way to put files on stable storage.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub fn open_with(
        folder: &Path,
        clock: Arc<dyn Clock>,
        syncer: Arc<dyn Syncer>,
    ) -> Result<Embedded, ClusterError> {
        let created = create_folders(&*syncer, folder);
        // Whoever reads the table can say to nodes that they are one; an earlier version left it open.
        let created = created.and_then(|()| fs::set_permissions(folder, Permissions::from_mode(0o700)));
        created.map_err(|source| ClusterError::Folder { path: folder.to_owned(), source })?;
        let (mut disk, image) = StoreFolder::open(folder, syncer, FolderLock::acquire(folder)?)?;
        let fresh = image.is_none();
        let store = match image {
            Some(mut image) => {
                // It may be a backup, since which further ids were given: those are not given again.
                image.meta.lease_next += random_step(Incarnation(image.meta.lease_next), LEASE_STEP_PART)?;
                CoordinatorStore::restore(image, clock.now_ns())
            }
            None => CoordinatorStore::new(random_generation()?),
        };
        let meta = store.meta();
        if fresh {
            disk.begin(&meta)?;
        }
        let embedded = Embedded {
            disk: Mutex::new(disk),
            store: Mutex::new(store),
            stopped: AtomicBool::new(false),
            on_stop: Mutex::new(None),
            clock,
            ticks: Arc::default(),
            ticker: None,
            renewers: Renewers::default(),
            folder: folder.to_owned(),
        };
        initialise(&embedded, meta.generation)?;
        Ok(embedded)
    }

    /// A coordinator that looks at the processes that hold its leases over its socket, before it ends one:
    /// `process_of` says which they are.
    #[must_use]
    pub fn looking_at_holders(mut self, process_of: PeerProcess) -> Embedded {
        self.renewers = Renewers::of(process_of);
        self
    }

    /// Whether there is a table in `folder` already.
    #[must_use]
    pub fn is_in(folder: &Path) -> bool {
        store_folder::has_table(folder)
    }

    /// The coordinator's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Has `notify` called when the store stops for good: its process is to end, and somebody to look at the
    /// disk.
    pub fn on_stop(&self, notify: impl FnOnce(&ClusterError) + Send + 'static) {
        *self.on_stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(notify));
    }

    /// The process that hosts the store is at work. From the first tick on, one that comes long after the one
    /// before it shows that it stood still.
    pub fn tick(&self) {
        self.ticks.tick(self.clock.now_ns());
    }

    fn store(&self) -> MutexGuard<'_, CoordinatorStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews a lease that has not run out. A change that is on its way to the disk does not depend on when a
    /// living lease ends.
    fn renew(&self, lease: Incarnation) -> bool {
        let mut store = self.store();
        // The clock is read under the lock: what ended a lease was decided at an earlier time.
        let stopped = self.stopped.load(Ordering::SeqCst) && !planted(Mutant::StoppedRenews);
        !stopped && store.renew(lease, self.clock.now_ns())
    }

    /// A lease that has not run out; none: it has, or there is none. It is asked for by those who do not know
    /// whether theirs is there, and must not wait for a slow disk until it is not.
    fn living_lease_of(&self, lease: Incarnation) -> Option<LivingLease> {
        let store = self.store();
        let living = store.living_lease(lease, self.clock.now_ns());
        living.filter(|_| !self.stopped.load(Ordering::SeqCst))
    }

    fn carry_out(
        &self,
        disk: &mut StoreFolder,
        request: &CoordinatorRequest,
        now_ns: u64,
    ) -> Result<Response, ClusterError> {
        if let Some(gap) = self.ticks.take_gap(now_ns) {
            self.store().stood_still(gap);
        }
        self.keep(now_ns);
        let expiry = self.store().begin_expiry(now_ns);
        let ended = expiry.ended.clone();
        match self.change(disk, expiry, now_ns, false) {
            // Nobody sees that a lease has ended before that is durable; nor is anything built on its life.
            Err(ClusterError::Refused(_) | ClusterError::OutcomeUnknown(_)) if !request.is_read() => {
                return Err(ClusterError::Refused(CoordinatorRefusal::NoRoom));
            }
            Ok(()) => self.renewers.forget(&ended),
            Err(ClusterError::Refused(_) | ClusterError::OutcomeUnknown(_)) => {}
            Err(error) => return Err(error),
        }
        let (response, delta) = self.store().prepare(request, now_ns);
        let ended = delta.ended.clone();
        self.change(disk, delta, now_ns, request.is_dispensable())?;
        self.renewers.forget(&ended);
        Ok(response)
    }

    /// Keeps leases that are over and could not be renewed in time.
    fn keep(&self, now_ns: u64) {
        let over = self.store().over(now_ns);
        for lease in over {
            // Renewals of others do not wait for what is read of this one's threads.
            let waits = self.renewers.take_waits(lease);
            self.store().starved(lease, waits, now_ns);
        }
        let kept = self.store().keep(now_ns);
        for lease in kept {
            tracing::warn!(%lease, "this machine was too busy for a lease to be renewed in time: it is kept");
        }
    }

    /// Makes a change durable, then lets it count.
    fn change(
        &self,
        disk: &mut StoreFolder,
        delta: Delta,
        now_ns: u64,
        is_dispensable: bool,
    ) -> Result<(), ClusterError> {
        if delta.needs_storage() {
            let left = disk.make_ready(now_ns, || self.store().image())?;
            if is_dispensable && left != RoomLeft::Enough {
                return Err(ClusterError::Refused(CoordinatorRefusal::NoRoom));
            }
            disk.write(&delta)?;
        }
        self.store().commit(delta);
        Ok(())
    }

    fn stop(&self, error: &ClusterError) {
        self.stopped.store(true, Ordering::SeqCst);
        tracing::error!(error = error as &dyn std::error::Error, "the coordinator stops for good");
        let notify = self.on_stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(notify) = notify {
            notify(error);
        }
    }
}

impl Coordinator for Embedded {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        if let CoordinatorRequest::KeepAlive { lease } = request
            && self.renew(*lease)
        {
            return Ok(Response::Alive);
        }
        if let CoordinatorRequest::Remaining { lease } = request
            && let Some(living) = self.living_lease_of(*lease)
        {
            return Ok(Response::Remaining(Some(living)));
        }
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stopped.load(Ordering::SeqCst) {
            return Ok(Response::Refused(CoordinatorRefusal::Stopped));
        }
        // The clock is read under the lock: a later change never sees an earlier time.
        match self.carry_out(&mut disk, request, self.clock.now_ns()) {
            Err(ClusterError::Refused(refusal)) => Ok(Response::Refused(refusal)),
            Err(error) if !matches!(error, ClusterError::OutcomeUnknown(_)) => {
                self.stop(&error);
                Err(error)
            }
            answered => answered,
        }
    }

    fn clock_ns(&self) -> Option<u64> {
        Some(self.clock.now_ns())
    }

    fn renewers(&self) -> Option<&Renewers> {
        Some(&self.renewers)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io;

    use super::*;
    use crate::clock::ManualClock;
    use crate::coordinator::text;
    use crate::providers::pieces::KEY_META;
    use crate::providers::store::{STORE_FORMAT_VERSION, StoreMeta};
    use crate::providers::store_folder::TABLE;
    use crate::providers::ticks::TICK_NS;
    use crate::request::{KeyCondition, Transaction, TransactionOutcome};
    use crate::scripted_thread::ScriptedThread;
    use crate::thread_look::ThreadState;

    #[test]
    fn open_restart_keeps_everything_acknowledged_and_the_generation() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(5));
        let open = || Embedded::open_with_clock(folder.path(), clock.clone()).unwrap();
        let first = open();
        let generation = first.generation().unwrap();
        let lease = first.grant(1000).unwrap().lease;
        first.transact(Transaction::new().put_leased("a", "1", lease).put("b", "2")).unwrap();
        drop(first);
        clock.advance(10_000_000_000);
        let second = open();
        assert_eq!(second.generation().unwrap(), generation);
        assert_eq!(second.remaining_ns(lease).unwrap(), Some(1_000_000_000), "as just granted");
        assert_eq!(second.read("a").unwrap().unwrap().value, "1");
        clock.advance(1_000_000_000);
        assert_eq!(second.read("a").unwrap(), None);
        drop(second);
        let third = open();
        assert_eq!(third.remaining_ns(lease).unwrap(), None, "an end is remembered");
        assert_eq!(third.read("b").unwrap().unwrap().value, "2");
    }

    #[test]
    fn keep_alive_while_the_disk_takes_its_time_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(5));
        let embedded = Embedded::open_with_clock(folder.path(), clock.clone()).unwrap();
        let lease = embedded.grant(1000).unwrap().lease;
        clock.advance(900_000_000);
        let busy = embedded.disk.lock().unwrap();
        assert_eq!(embedded.remaining_ns(lease).unwrap(), Some(100_000_000));
        embedded.keep_alive(lease).unwrap();
        clock.advance(900_000_000);
        embedded.keep_alive(lease).unwrap();
        drop(busy);
        assert_eq!(embedded.remaining_ns(lease).unwrap(), Some(1_000_000_000));
        clock.advance(1_000_000_000);
        let ended = embedded.keep_alive(lease);
        assert!(matches!(ended, Err(ClusterError::LeaseEnded { lease: of }) if of == lease));
    }

    /// What is left of two leases, one of which was renewed while the process stood still.
    fn left_after_a_gap() -> [Option<u64>; 2] {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(5));
        let embedded = Embedded::open_with_clock(folder.path(), clock.clone()).unwrap();
        embedded.tick();
        let leases = [(); 2].map(|()| embedded.grant(500).unwrap().lease);
        clock.advance(1_500_000_000);
        // The first call finds the gap before any tick does, and a read ends leases like any other call.
        assert!(embedded.read("no such key").unwrap().is_none());
        clock.advance(TICK_NS);
        embedded.tick();
        let _ = embedded.keep_alive(leases[0]);
        leases.map(|lease| embedded.remaining_ns(lease).unwrap())
    }

    #[test]
    fn call_after_the_process_stood_still_ends_no_lease() {
        assert_eq!(left_after_a_gap(), [Some(500_000_000), Some(500_000_000 - TICK_NS)]);
    }

    /// What happens within a sync, and what comes of it.
    type Act = Box<dyn FnOnce() -> io::Result<()> + Send>;

    /// Does something within the first sync of a file after it was armed.
    #[derive(Default)]
    struct Within(Mutex<Option<Act>>);

    impl Syncer for Within {
        fn sync_file(&self, file: &File) -> io::Result<()> {
            let act = self.0.lock().unwrap().take();
            act.map_or(Ok(()), |act| act())?;
            SystemSyncer.sync_file(file)
        }

        fn sync_folder(&self, folder: &Path) -> io::Result<()> {
            SystemSyncer.sync_folder(folder)
        }
    }

    /// Whether a lease can be renewed whose end is on its way to the disk when the process stands still, or
    /// was, and found no room there: then nobody knows whether it is on stable storage.
    fn lease_comes_back_amid_its_end() -> bool {
        let folder = tempfile::tempdir().unwrap();
        let (clock, within) = (Arc::new(ManualClock::new(5)), Arc::new(Within::default()));
        let embedded = Embedded::open_with(folder.path(), clock.clone(), within.clone()).unwrap();
        let embedded = Arc::new(embedded);
        embedded.tick();
        let lease = embedded.grant(500).unwrap().lease;
        for _ in 0..500_000_000 / TICK_NS {
            clock.advance(TICK_NS);
            embedded.tick(); // it runs out while the process is at work
        }
        let (renewed, answer) = std::sync::mpsc::channel();
        let amid = embedded.clone();
        *within.0.lock().unwrap() = Some(Box::new(move || {
            clock.advance(5_000_000_000);
            amid.tick();
            renewed.send(amid.renew(lease)).unwrap();
            Err(io::ErrorKind::StorageFull.into())
        }));
        assert_eq!(embedded.remaining_ns(lease).unwrap(), Some(0), "its end is not written down yet");
        embedded.keep_alive(lease).is_ok() || answer.recv().unwrap()
    }

    #[test]
    fn renew_of_a_lease_whose_end_is_on_its_way_to_the_disk_is_refused_after_a_gap() {
        assert!(!lease_comes_back_amid_its_end());
    }

    const LEASE_NS: u64 = 500_000_000;

    /// A lease, its holder's thread, and that which answers here.
    fn held(embedded: &Embedded) -> (Incarnation, ScriptedThread, ScriptedThread) {
        let lease = embedded.grant(LEASE_NS / 1_000_000).unwrap().lease;
        let [holder, server] = [(); 2].map(|()| ScriptedThread::asleep());
        embedded.renewers.insert(lease, Some(holder.boxed()), server.boxed());
        (lease, holder, server)
    }

    /// In which such part of its length a lease ends that is not renewed while its threads fare so in each;
    /// none: never.
    fn parts_lived(parts: u64, fare: fn(&ScriptedThread, &ScriptedThread)) -> Option<usize> {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(5));
        let embedded = Embedded::open_with_clock(folder.path(), clock.clone()).unwrap();
        let (lease, holder, server) = held(&embedded);
        (1..100).find(|_| {
            fare(&holder, &server);
            clock.advance(LEASE_NS / parts);
            embedded.remaining_ns(lease).unwrap().is_none()
        })
    }

    #[test]
    fn lease_whose_renewal_is_held_up_by_a_busy_machine_is_kept_and_ends_at_last() {
        assert_eq!(parts_lived(10, |holder, _| holder.is(ThreadState::HasWork)), Some(50));
        assert_eq!(parts_lived(1, |holder, _| holder.waits(LEASE_NS / 2 + 1)), Some(5));
        assert_eq!(parts_lived(1, |_, server| server.waits(LEASE_NS / 2 + 1)), Some(5));
    }

    #[test]
    fn lease_of_a_holder_that_sleeps_or_is_stopped_ends_in_time() {
        assert_eq!(parts_lived(1, |_, _| {}), Some(1));
        assert_eq!(parts_lived(1, |holder, _| holder.waits(LEASE_NS / 2)), Some(1), "that is no long wait");
        let stopped = |holder: &ScriptedThread, server: &ScriptedThread| {
            holder.waits(LEASE_NS);
            server.waits(LEASE_NS);
            holder.is(ThreadState::Stands);
        };
        assert_eq!(parts_lived(1, stopped), Some(1));
    }

    #[test]
    fn keep_alive_that_came_late_because_its_thread_waited_renews() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(5));
        let embedded = Embedded::open_with_clock(folder.path(), clock.clone()).unwrap();
        let (lease, holder, _) = held(&embedded);
        for _ in 0..20 {
            holder.waits(LEASE_NS);
            clock.advance(LEASE_NS + 1);
            embedded.keep_alive(lease).unwrap();
            assert_eq!(embedded.remaining_ns(lease).unwrap(), Some(LEASE_NS));
        }
        clock.advance(LEASE_NS);
        assert_eq!(embedded.remaining_ns(lease).unwrap(), None);
        assert!(!embedded.renewers.is_known(lease), "it has ended");
    }

    /// Whether a lease can be renewed whose end found no room on the disk, so that nobody knows whether it is
    /// there, because its holder's thread waits now.
    fn starved_lease_comes_back_amid_its_end() -> bool {
        let folder = tempfile::tempdir().unwrap();
        let (clock, within) = (Arc::new(ManualClock::new(5)), Arc::new(Within::default()));
        let embedded = Embedded::open_with(folder.path(), clock.clone(), within.clone()).unwrap();
        let (lease, holder, _) = held(&embedded);
        clock.advance(LEASE_NS);
        *within.0.lock().unwrap() = Some(Box::new(|| Err(io::ErrorKind::StorageFull.into())));
        assert_eq!(embedded.remaining_ns(lease).unwrap(), Some(0), "its end is not written down yet");
        holder.is(ThreadState::HasWork);
        embedded.keep_alive(lease).is_ok()
    }

    #[test]
    fn keep_alive_of_a_starved_lease_whose_end_may_be_on_the_disk_is_refused() {
        assert!(!starved_lease_comes_back_amid_its_end());
    }

    /// Its disk has failed: what it would say is not known to be true.
    fn stopped_store_renews_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let embedded = Embedded::open_with_clock(folder.path(), Arc::new(ManualClock::new(5))).unwrap();
        let lease = embedded.grant(1000).unwrap().lease;
        embedded.keep_alive(lease).unwrap();
        embedded.stop(&ClusterError::LeaseEnded { lease });
        assert!(embedded.keep_alive(lease).is_err());
    }

    #[test]
    fn keep_alive_of_a_store_that_has_stopped_is_refused() {
        stopped_store_renews_nothing();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutants_of_a_process_that_stood_still_are_caught() {
        use cell_terms::mutant::{Mutant, in_own_process, plant};
        in_own_process(|| {
            let twins: [(Mutant, fn() -> bool); 4] = [
                (Mutant::GapUnnoticed, || left_after_a_gap().iter().all(Option::is_some)),
                (Mutant::GapRevives, || !lease_comes_back_amid_its_end()),
                (Mutant::GapRevives, || !starved_lease_comes_back_amid_its_end()),
                (Mutant::KeptForEver, || {
                    parts_lived(10, |holder, _| holder.is(ThreadState::HasWork)).is_some()
                }),
            ];
            for (mutant, is_clean) in twins {
                plant(Some(mutant));
                let caught = !is_clean();
                plant(None);
                assert!(caught, "{} was not caught", mutant.name());
                println!("mutant {} caught by cell-cluster's embedded store", mutant.name());
            }
        });
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_stopped_renews_is_caught() {
        use cell_terms::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::StoppedRenews));
            let passed = std::panic::catch_unwind(stopped_store_renews_nothing).is_ok();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-cluster's store", Mutant::StoppedRenews.name());
        });
    }

    #[test]
    fn open_second_time_names_the_holder() {
        let folder = tempfile::tempdir().unwrap();
        let _first = Embedded::open(folder.path()).unwrap();
        let second = Embedded::open(folder.path()).err().unwrap();
        assert!(matches!(second, ClusterError::Held { pid: Some(pid), .. } if pid == std::process::id()));
    }

    /// A database that was dropped keeps its lock until its threads have ended.
    fn open_once_free(folder: &Path) -> sled::Db {
        let tries = std::iter::repeat_with(|| {
            std::thread::yield_now();
            sled::open(folder)
        });
        tries.filter_map(Result::ok).next().unwrap()
    }

    #[test]
    fn open_other_format_is_refused_by_version() {
        let folder = tempfile::tempdir().unwrap();
        drop(Embedded::open(folder.path()).unwrap());
        for format in [1, 9] {
            let database = open_once_free(&folder.path().join(TABLE));
            let meta = StoreMeta { format, revision: 0, generation: 1, lease_next: 1 };
            database.insert(KEY_META, text(&meta).as_bytes()).unwrap();
            drop(database);
            let mut refusals = std::iter::repeat_with(|| Embedded::open(folder.path()).err().unwrap());
            let versions = refusals.find_map(|refusal| match refusal {
                ClusterError::Format { found, known } => Some((found, known)),
                _ => None,
            });
            assert_eq!(versions, Some((format, STORE_FORMAT_VERSION)));
        }
    }

    /// Each start takes a part of the ids: clients took the nodes after the last one for another cluster's.
    #[test]
    fn open_and_grant_give_ids_of_one_cluster_until_they_are_used_up() {
        let folder = tempfile::tempdir().unwrap();
        let first = Embedded::open(folder.path()).unwrap();
        let (lease, meta) = (first.grant(1000).unwrap().lease, first.store().meta());
        drop(first);
        let database = open_once_free(&folder.path().join(TABLE));
        let lease_next = lease.0 + lease.left_in_cluster() - 2;
        database.insert(KEY_META, text(&StoreMeta { lease_next, ..meta }).as_bytes()).unwrap();
        drop(database);
        // One that was dropped keeps sled's lock for a moment.
        let again = || std::iter::repeat_with(|| Embedded::open(folder.path())).find_map(Result::ok).unwrap();
        for _ in 0..2 {
            assert_eq!(again().grant(1000).unwrap().lease.cluster(), lease.cluster());
        }
        assert!(matches!(again().grant(1000), Err(ClusterError::IdsUsedUp { what: "leases" })));
    }

    #[test]
    fn open_other_row_format_is_refused_by_version() {
        let folder = tempfile::tempdir().unwrap();
        let first = Embedded::open(folder.path()).unwrap();
        first.transact(Transaction::new().put("cluster/format", "1")).unwrap();
        drop(first);
        let refused = Embedded::open(folder.path()).err().unwrap();
        assert!(matches!(refused, ClusterError::Format { found: 1, .. }));
    }

    #[test]
    fn transact_many_keys_all_are_there_after_restart() {
        let folder = tempfile::tempdir().unwrap();
        let first = Embedded::open(folder.path()).unwrap();
        for i in 0..300_u32 {
            let key = format!("k{i}");
            let outcome = first.transact(
                Transaction::new()
                    .when(KeyCondition::Absent { key: key.clone() })
                    .put(key, "x".repeat(usize::try_from(i).unwrap() * 10)),
            );
            assert!(matches!(outcome.unwrap(), TransactionOutcome::Applied { .. }));
        }
        drop(first);
        let second = Embedded::open(folder.path()).unwrap();
        assert_eq!(second.list("k").unwrap().entries.len(), 300);
    }
}
