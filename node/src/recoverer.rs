//! The threads that take pairs over, while the control thread goes on serving the worker. What becomes of
//! each pair is reported as it happens. Which pair is next, and what a step is, `takeovers` says.
//!
//! A takeover is reading, replaying and waiting by turns: for the disk, for the coordinator. A few of them go
//! on side by side, so that one computes while another waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use cell_recovery::{Environment, Leftovers};

use crate::bring_up::{BringUp, step_to_the_end};
use crate::error::NodeError;
use crate::messages::{RecoveredPair, TakeoverReport, Work};
use crate::takeovers::{TakeoverJob, TakeoverQueue, TakeoverRun};

/// What is to be done, for all threads.
#[derive(Default)]
struct Queue {
    jobs: Mutex<TakeoverQueue>,
    arrived: Condvar,
    stop: AtomicBool,
}

impl Queue {
    fn push(&self, jobs: Vec<TakeoverJob>) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).push(jobs);
        self.arrived.notify_all();
    }

    /// The smallest job that is there.
    fn now(&self) -> Option<TakeoverJob> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_stopped() { None } else { jobs.take_smallest() }
    }

    /// The smallest job, as soon as there is one; none once it is time to stop.
    fn next(&self) -> Option<TakeoverJob> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.is_stopped() {
                return None;
            }
            if let Some(job) = jobs.take_smallest() {
                return Some(job);
            }
            jobs = self.arrived.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn stop(&self) {
        // Under the lock: nobody is between its look at `stop` and its wait.
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        self.stop.store(true, Ordering::Release);
        drop(jobs);
        self.arrived.notify_all();
    }
}

/// The running threads.
pub(crate) struct Recoverer {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

impl Recoverer {
    pub(crate) fn start(
        bring_up: Arc<BringUp>,
        environment: Environment,
        reports: Sender<Work>,
    ) -> Result<Recoverer, NodeError> {
        // Side by side as many as the memory plan permits; no more than there are cores.
        let side_by_side_max = bring_up.plan.takeovers_max;
        let mut recoverer = Recoverer { queue: Arc::default(), threads: Vec::new() };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        for _ in 0..cores.min(side_by_side_max) {
            let (bring_up, environment) = (bring_up.clone(), environment.clone());
            let runner =
                Runner { bring_up, environment, reports: reports.clone(), queue: recoverer.queue.clone() };
            let thread = std::thread::Builder::new().name("cell-recovery".into());
            recoverer.threads.push(thread.spawn(move || runner.run()).map_err(NodeError::Thread)?);
        }
        Ok(recoverer)
    }

    /// Takes jobs on, all that are known: the smallest of them comes first.
    pub(crate) fn push(&self, jobs: Vec<TakeoverJob>) {
        self.queue.push(jobs);
    }
}

impl Drop for Recoverer {
    /// Breaks off what they are at: nothing is appended once this returns.
    fn drop(&mut self) {
        self.queue.stop();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

struct Runner {
    bring_up: Arc<BringUp>,
    environment: Environment,
    reports: Sender<Work>,
    queue: Arc<Queue>,
}

impl Runner {
    fn run(&self) {
        let mut leftovers: Vec<Leftovers> = Vec::new();
        // What is left on the disk is removed once no pair waits.
        while let Some(job) = self.queue.now().or_else(|| {
            leftovers.drain(..).for_each(|left| left.remove(&self.environment));
            self.queue.next()
        }) {
            let (pair, dead) = (job.claim.pair, job.dead);
            match self.take_over(job) {
                Ok(mut mine) => {
                    leftovers.extend(mine.recovered.leftovers.take());
                    self.report(TakeoverReport::Taken { mine: Box::new(mine) });
                }
                Err(error) => self.report(TakeoverReport::Refused { pair, dead, error }),
            }
        }
    }

    fn report(&self, report: TakeoverReport) {
        let _ = self.reports.send(Work::Takeover(report)); // the control thread ends last
    }

    fn take_over(&self, job: TakeoverJob) -> Result<RecoveredPair, NodeError> {
        let (pair, dead) = (job.claim.pair, job.dead);
        self.bring_up.check_geometry(&self.environment.table.pair(pair)?)?;
        let (mut device, buffers) = self.bring_up.device()?;
        let populate = self.bring_up.populate()?;
        let mut environment = self.environment.clone();
        environment.options.threads = self.bring_up.threads.load(Ordering::Relaxed);
        let run = TakeoverRun::begin(&environment, job, self.bring_up.publish());
        let (recovered, times) = step_to_the_end(run, device.as_mut(), || !self.queue.is_stopped())?;
        self.report(TakeoverReport::Times { pair, dead, times });
        let taken = self.bring_up.take_whole(&recovered);
        Ok(RecoveredPair { recovered, device, buffers, populate, taken })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::ErrorKind;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, AtomicUsize};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use cell_cluster::{ClaimReason, Coordinator, Missing, MoveName, PairRow, PairState, Sim, SimLink};
    use cell_fabric::{FabricError, Partition, Poller, RegionDevice, RegionKey, RegionTaker};
    use cell_memory::Region;
    use cell_recovery::{ClaimRequest, Progress};
    use cell_terms::setting::{Settings, Source};
    use cell_terms::{Epoch, Incarnation, NodeId, PairId, RegionId, RegionKind};
    use cell_wal::folder::list_segments;
    use cell_wal::{DiskDelay, LogName, LogRoot};

    use super::*;
    use crate::bring_up::ServedReads;
    use crate::memory_plan::MemoryPlan;
    use crate::messages::ToWorker;
    use crate::moves::{CopyJob, CopyOrders};
    use crate::options::NodeOptions;
    use crate::populate;
    use crate::settings::WorkerOptions;

    const NODE: NodeId = NodeId(0);
    const LEASE_MS: u64 = 500;

    /// A device that locks nothing: what it has, and which threads it was asked by.
    #[derive(Debug, Default)]
    struct FakeDevice {
        held: Mutex<BTreeSet<(RegionId, Epoch)>>,
        threads: Mutex<Vec<String>>,
        /// Stopped once a region was taken.
        orders: Mutex<Option<Arc<CopyOrders>>>,
    }

    impl FakeDevice {
        fn held(&self) -> usize {
            self.held.lock().unwrap().len()
        }

        fn threads(&self) -> Vec<String> {
            std::mem::take(&mut self.threads.lock().unwrap())
        }
    }

    impl RegionDevice for FakeDevice {
        fn take(&self, region: &Region) -> Result<RegionKey, FabricError> {
            assert!(self.held.lock().unwrap().insert((region.spec().id, region.spec().epoch)));
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            self.threads.lock().unwrap().push(thread);
            self.orders.lock().unwrap().iter().for_each(|orders| orders.stop());
            Ok(RegionKey(1))
        }

        fn give_back(&self, region: RegionId, epoch: Epoch, _key: RegionKey) {
            assert!(self.held.lock().unwrap().remove(&(region, epoch)));
        }
    }

    fn settings() -> Settings {
        let mut settings = Settings::new(&[
            crate::SETTINGS,
            cell_memory::SETTINGS,
            cell_wal::SETTINGS,
            cell_fabric::SETTINGS,
            cell_cluster::SETTINGS,
        ]);
        for (name, value) in [
            ("memory_limit_bytes", "600MiB"),
            ("node_region_bytes", "4MiB"),
            ("slot_bytes", "1MiB"),
            ("extent_region_bytes", "4MiB"),
            ("log_segment_bytes", "1MiB"),
            ("huge_pages", "small"),
            ("memory_check", "false"),
        ] {
            settings.set(name, value, Source::Flag).unwrap();
        }
        settings
    }

    /// What a node of this folder brings its pairs up with, where this device reads its memory for peers.
    fn bring_up(folder: &Path, link: &SimLink, device: &Arc<FakeDevice>) -> Arc<BringUp> {
        let mut settings = settings();
        let plan = MemoryPlan::new(&mut settings, Some(8 << 30)).unwrap();
        let address: std::net::SocketAddr = "127.0.0.1:7000".parse().unwrap();
        let options = NodeOptions {
            node: NODE,
            folder: folder.join("log"),
            home: folder.join("home"),
            listen: address,
            beyond_loopback: false,
            advertised: None,
            http_address: String::new(),
            tls: None,
            access: Arc::default(),
            process_warnings: Arc::default(),
            partition: Partition::default(),
            disk_delay: DiskDelay::default(),
            restarted_because: None,
            settings: settings.clone(),
        };
        Arc::new(BringUp {
            log_root: LogRoot::open(&options.folder).unwrap(),
            worker_options: WorkerOptions::from_settings(&settings),
            home: "/home".to_owned(),
            options,
            reads: ServedReads { ordered: false, whole: true },
            taker: RegionTaker::of(device.clone()),
            plan,
            budget: plan.budget(),
            coordinator: Arc::new(link.clone()),
            incarnation: link.grant(LEASE_MS).unwrap().lease,
            advertised: address.to_string(),
            to_worker: ToWorker { inbound: channel().0, waker: Poller::new().unwrap().waker() },
            progress: Arc::new(Progress::new(0)),
            threads: AtomicUsize::new(1),
            move_bytes_per_second: AtomicU64::new(0),
            start_populate: populate::start,
        })
    }

    fn only_row(bring_up: &BringUp) -> PairRow {
        let (mut rows, _) = bring_up.environment().table.pairs().unwrap();
        assert_eq!(rows.len(), 1);
        rows.remove(0)
    }

    /// A takeover of what a dead incarnation owned, by a new one of this node.
    fn takeover_of(pair: PairId, dead: Incarnation, link: &SimLink) -> TakeoverJob {
        let incarnation = link.grant(3_600_000).unwrap().lease;
        let reason = ClaimReason::LeaseEnded;
        TakeoverJob {
            claim: ClaimRequest { pair, incarnation, node: NODE, reason },
            replay_bytes: 0,
            dead,
            progress: Arc::new(Progress::new(0)),
            kept: None,
        }
    }

    /// The pair that was taken over, as soon as it is.
    fn taken(work: &Receiver<Work>) -> Box<RecoveredPair> {
        loop {
            match work.recv_timeout(Duration::from_secs(600)).unwrap() {
                Work::Takeover(TakeoverReport::Taken { mine }) => return mine,
                Work::Takeover(TakeoverReport::Refused { error, .. }) => panic!("{error}"),
                _ => {}
            }
        }
    }

    /// To lock gigabytes takes seconds, in which the worker would serve nobody.
    #[test]
    fn device_takes_a_pair_on_the_thread_that_takes_it_over_and_gives_it_back_if_nobody_serves_it() {
        let (folder, sim, device) = (tempfile::tempdir().unwrap(), Sim::new(3), Arc::default());
        let link = sim.link();
        let bring_up = bring_up(folder.path(), &link, &device);
        let environment = bring_up.environment();
        let own = std::thread::current().name().unwrap_or_default().to_owned();
        let created = bring_up.grow(&environment).unwrap();
        assert_eq!((device.held(), device.threads()), (2, vec![own; 2]), "node and extent region");
        drop(created);
        assert_eq!(device.held(), 0, "nobody serves it");
        let pair = only_row(&bring_up).pair;
        sim.advance(2 * LEASE_MS * 1_000_000);
        let (reports, work) = channel();
        let recoverer = Recoverer::start(bring_up.clone(), environment, reports).unwrap();
        recoverer.push(vec![takeover_of(pair, bring_up.incarnation, &link)]);
        let taken = taken(&work);
        assert_eq!((device.held(), device.threads()), (2, vec!["cell-recovery".to_owned(); 2]));
        // It is on its way to the worker: what the device has goes along.
        let served = bring_up.serve(*taken);
        assert_eq!(device.held(), 2);
        drop(served);
        assert_eq!(device.held(), 0);
    }

    /// Nobody would give it back before the next owner, or a checkpoint.
    #[test]
    fn what_the_last_owner_left_is_removed_once_no_pair_waits() {
        let (folder, sim, device) = (tempfile::tempdir().unwrap(), Sim::new(3), Arc::default());
        let link = sim.link();
        let bring_up = bring_up(folder.path(), &link, &device);
        let environment = bring_up.environment();
        let created = bring_up.grow(&environment).unwrap();
        let row = only_row(&bring_up);
        let log = LogName { region: row.pair.region(RegionKind::Node), epoch: row.epoch };
        let storage = environment.storage.clone();
        let segments = || list_segments(&*storage, log).unwrap().len();
        // A thread prepares the spare, which comes into the folder at any time.
        while segments() < 2 {
            std::thread::yield_now();
        }
        drop(created);
        sim.advance(2 * LEASE_MS * 1_000_000);
        let (reports, work) = channel();
        let recoverer = Recoverer::start(bring_up.clone(), environment, reports).unwrap();
        recoverer.push(vec![takeover_of(row.pair, bring_up.incarnation, &link)]);
        taken(&work);
        drop(recoverer); // its threads have ended
        assert_eq!(segments(), 1, "the one that was written to");
    }

    /// Each node that looked found the logs missing, and the second one was believed. Nothing is read either:
    /// what comes of it could not be served.
    #[test]
    fn log_root_that_is_away_is_no_damage_of_a_pair() {
        let (folder, sim, device) = (tempfile::tempdir().unwrap(), Sim::new(3), Arc::default());
        let link = sim.link();
        let bring_up = bring_up(folder.path(), &link, &device);
        let environment = bring_up.environment();
        drop(bring_up.grow(&environment).unwrap());
        let pair = only_row(&bring_up).pair;
        sim.advance(2 * LEASE_MS * 1_000_000);
        std::fs::rename(folder.path().join("log"), folder.path().join("away")).unwrap();
        std::fs::create_dir(folder.path().join("log")).unwrap();
        let (reports, work) = channel();
        let recoverer = Recoverer::start(bring_up.clone(), environment, reports).unwrap();
        recoverer.push(vec![takeover_of(pair, bring_up.incarnation, &link)]);
        loop {
            match work.recv_timeout(Duration::from_secs(600)).unwrap() {
                Work::Takeover(TakeoverReport::Taken { .. }) => panic!("there are no logs to be read"),
                Work::Takeover(TakeoverReport::Refused { .. }) => break,
                _ => {}
            }
        }
        let row = only_row(&bring_up);
        assert!(row.findings.is_empty(), "nobody has read its data");
        let PairState::Unavailable { missing: Missing::Unreadable { file, .. } } = row.state else {
            panic!("{:?}", row.state);
        };
        assert_eq!(file, "log-root-id");
        assert!(row.history.iter().all(|of| of.cut.is_none()), "{:?}", row.history);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_takeover_root_unasked_is_caught() {
        use cell_terms::mutant::{Mutant, plant};
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::TakeoverRootUnasked));
            let passed = std::panic::catch_unwind(log_root_that_is_away_is_no_damage_of_a_pair).is_ok();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-node's takeovers", Mutant::TakeoverRootUnasked.name());
        });
    }

    /// A row that nobody can serve stayed in the table.
    #[test]
    fn log_root_that_is_away_gets_no_new_pair() {
        let (folder, sim, device) = (tempfile::tempdir().unwrap(), Sim::new(3), Arc::default());
        let link = sim.link();
        let bring_up = bring_up(folder.path(), &link, &device);
        let environment = bring_up.environment();
        std::fs::rename(folder.path().join("log"), folder.path().join("away")).unwrap();
        let Err(error) = bring_up.grow(&environment) else { panic!("it has no log root") };
        assert!(matches!(error, NodeError::Wal(_)), "{error}");
        assert!(environment.table.pairs().unwrap().0.is_empty());
        std::fs::rename(folder.path().join("away"), folder.path().join("log")).unwrap();
        drop(bring_up.grow(&environment).unwrap());
        only_row(&bring_up);
    }

    /// A pair that had got its row was in the table as served, and by nobody: there was no thread for it.
    #[test]
    fn node_that_has_no_thread_for_a_pair_gets_none() {
        let (folder, sim, device) = (tempfile::tempdir().unwrap(), Sim::new(3), Arc::default());
        let link = sim.link();
        let able = Arc::into_inner(bring_up(folder.path(), &link, &device)).unwrap();
        let environment = able.environment();
        let created = able.grow(&environment).unwrap();
        let pair = created.recovered.pair;
        drop(created);
        let unable = Arc::new(BringUp { start_populate: || Err(ErrorKind::WouldBlock.into()), ..able });
        let Err(error) = unable.grow(&environment) else { panic!("there is no thread") };
        assert!(matches!(error, NodeError::Thread(_)), "{error}");
        let before = only_row(&unable);
        sim.advance(2 * LEASE_MS * 1_000_000);
        let (reports, work) = channel();
        let recoverer = Recoverer::start(unable.clone(), environment, reports).unwrap();
        recoverer.push(vec![takeover_of(pair, unable.incarnation, &link)]);
        let report = work.recv_timeout(Duration::from_secs(600)).unwrap();
        let Work::Takeover(TakeoverReport::Refused { error, .. }) = report else { panic!("it is refused") };
        assert!(matches!(error, NodeError::Thread(_)), "{error}");
        let after = only_row(&unable);
        assert_eq!((after.epoch, after.state), (before.epoch, before.state), "nobody has claimed it");
    }

    /// What was taken for it stayed locked for as long as the process lived.
    #[test]
    fn copy_that_fails_gives_back_what_a_device_has_taken_of_it() {
        let (folder, sim, device) = (tempfile::tempdir().unwrap(), Sim::new(3), Arc::default());
        let link = sim.link();
        let bring_up = bring_up(folder.path(), &link, &device);
        let environment = bring_up.environment();
        let source = bring_up.grow(&environment).unwrap();
        let orders = Arc::new(CopyOrders::default());
        *device.orders.lock().unwrap() = Some(orders.clone());
        let row = only_row(&bring_up);
        let job = CopyJob {
            name: MoveName { pair: row.pair, number: 1 },
            row: Box::new(row),
            incarnation: link.grant(3_600_000).unwrap().lease,
            node: NodeId(1),
            progress: Arc::new(Progress::new(0)),
            orders,
        };
        let before = device.threads().len();
        assert!(bring_up.copy(&environment, job).is_err(), "it was stopped");
        assert_eq!((before, device.threads().len()), (2, 2), "it was taken");
        assert_eq!(device.held(), 2, "the source's alone");
        drop(source);
        assert_eq!(device.held(), 0);
    }
}
