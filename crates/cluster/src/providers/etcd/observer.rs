//! The thread of a process that holds a lease: it ends the leases of others that nobody renews, and has etcd
//! forget its oldest revisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;

use crate::error::ClusterError;
use crate::etcd_error::EtcdError;
use crate::providers::etcd::ask::Asker;
use crate::providers::etcd::gateway::{
    self as gw, HeaderAnswer, OUT_OF_RANGE, PATH_COMPACT, PATH_RANGE, PATH_TXN, RangeAnswer, TxnAnswer,
};
use crate::providers::etcd::leases::Leases;
use crate::providers::etcd::route::Repeats;
use crate::request::Revision;
use crate::urgent;

/// A running thread. Dropping it ends it.
pub(super) struct Observer {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Observer {
    pub(super) fn start(
        asker: Arc<Asker>,
        leases: Arc<Leases>,
        compaction: Option<Duration>,
    ) -> Result<Observer, ClusterError> {
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = stopping.clone();
        let mut compactor = compaction.map(Compactor::new);
        let thread = std::thread::Builder::new().name("etcd-leases".to_owned()).spawn(move || {
            // A starved observer has gaps, and those who are dead keep their leases for longer.
            urgent::run_first();
            while !stop.load(Ordering::SeqCst) {
                let looked = leases.look(&asker);
                if let Err(error) = &looked {
                    tracing::debug!(error = error as &dyn std::error::Error, "leases were not looked at");
                }
                if let Some(compactor) = &mut compactor {
                    compactor.step(&asker);
                }
                std::thread::park_timeout(Duration::from_nanos(leases.look_after_ns(looked.is_ok())));
            }
        });
        Ok(Observer { stopping, thread: Some(thread.map_err(ClusterError::Thread)?) })
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Has etcd forget what is older than an interval. All members of a cluster do; one of them is first each
/// time, and the others see that in the row.
struct Compactor {
    every_ns: u64,
    due_ns: u64,
    /// The row's revision when it was looked at last, and etcd's.
    seen: Option<(Revision, Revision)>,
}

impl Compactor {
    fn new(every: Duration) -> Compactor {
        Compactor { every_ns: u64::try_from(every.as_nanos()).unwrap_or(u64::MAX), due_ns: 0, seen: None }
    }

    fn step(&mut self, asker: &Asker) {
        let now_ns = asker.clock.now_ns();
        if now_ns < self.due_ns {
            return;
        }
        self.due_ns = now_ns.saturating_add(self.every_ns);
        if let Err(error) = self.compact(asker) {
            tracing::warn!(error = &error as &dyn std::error::Error, "etcd's history was not compacted");
        }
    }

    /// What was seen an interval ago is as old as what may be forgotten.
    fn compact(&mut self, asker: &Asker) -> Result<(), ClusterError> {
        let key = asker.keys.compacted();
        let until_ns = asker.deadline_from_now();
        let found: RangeAnswer = asker.ask(PATH_RANGE, &gw::range_of_key(&key), Repeats::Reads, until_ns)?;
        let row = found.kvs.first().map_or(0, |stored| stored.mod_revision);
        let Some((_, oldest)) = self.seen.replace((row, found.header.revision)).filter(|seen| seen.0 == row)
        else {
            return Ok(()); // the first look, or another member was faster
        };
        let unchanged = if row == 0 { gw::is_absent(&key) } else { gw::is_of_revision(&key, row) };
        let claim = gw::txn(vec![unchanged], vec![gw::put(&key, &oldest.to_string())], Vec::new());
        let claimed: TxnAnswer = asker.ask(PATH_TXN, &claim, Repeats::Never, until_ns)?;
        if !claimed.succeeded {
            return Ok(());
        }
        let question = json!({"revision": oldest.to_string()});
        let until_ns = asker.deadline_from_now();
        match asker.ask::<HeaderAnswer>(PATH_COMPACT, &question, Repeats::Harmless, until_ns) {
            // Somebody else had it forget more, or an answer to this was lost.
            Ok(_) | Err(ClusterError::Etcd(EtcdError::Complaint { code: OUT_OF_RANGE, .. })) => {
                tracing::debug!(oldest, "etcd's history was compacted");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::providers::etcd::fake::{FakeEtcd, FakeFault};

    fn asker(etcd: &FakeEtcd) -> Arc<Asker> {
        let (gateway, clock) = (Box::new(etcd.clone()), Arc::new(ManualClock::new(1)));
        Asker::new(gateway, "cell", None, clock, Duration::from_millis(300))
    }

    /// All members of a cluster look once an interval, and one of them is first each time.
    #[test]
    fn compact_forgets_what_was_there_an_interval_ago_and_one_of_several_does_it() {
        let etcd = FakeEtcd::new(1);
        let (first, second) = (asker(&etcd), asker(&etcd));
        let [mut own, mut other] = [(); 2].map(|()| Compactor::new(Duration::from_secs(60)));
        let mut look = |is_own: bool| {
            let (compactor, asker) = if is_own { (&mut own, &first) } else { (&mut other, &second) };
            compactor.compact(asker).unwrap();
            etcd.set("written", "meanwhile");
            etcd.revisions().1
        };
        let before = etcd.revisions().0;
        assert_eq!((look(true), look(false)), (0, 0), "nobody knows yet what is old");
        assert_eq!(look(true), before, "what came since the look before stays");
        assert_eq!(look(false), before, "another one was first");
        let since = etcd.revisions().0;
        assert_eq!(look(true), before, "it was first itself, and has not looked since");
        let forgotten = look(false);
        assert!((before + 1..since).contains(&forgotten), "{forgotten} of {before} to {since}");
    }

    #[test]
    fn compact_of_what_somebody_else_had_forgotten_is_no_failure() {
        let etcd = FakeEtcd::new(1);
        let asker = asker(&etcd);
        let mut compactor = Compactor::new(Duration::from_secs(60));
        compactor.compact(&asker).unwrap();
        let words =
            r#"{"error":"e","message":"etcdserver: mvcc: required revision has been compacted","code":11}"#;
        // The row, the claim, and then the compaction itself.
        etcd.plan([None, None, Some(FakeFault::Complains(400, words))]);
        compactor.compact(&asker).unwrap();
    }
}
