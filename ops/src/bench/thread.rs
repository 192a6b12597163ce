//! One thread of a workload: a client of its own, some operations in flight, each timed from its start to its
//! end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use cell_client::{ClientError, Condition, Operation, Output, Ticket};
use cell_protocol::{Bound, Scan};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::distribution::Pick;
use super::report::PhaseResult;
use super::workload::{Kind, SCAN_RECORDS_MAX, Workload, fill_value, key};
use crate::load::acknowledged::LineSet;
use crate::store::Store;

/// What the threads of a run share.
pub(crate) struct Shared {
    /// Operations still to be started, of all threads.
    left: AtomicU64,
    /// Number of the next record to be inserted.
    next_record: AtomicU64,
    /// Records up to this number are there: reads pick among them.
    there: AtomicU64,
    inserted: Mutex<LineSet>,
    /// Raised by a signal, or by a thread that failed.
    pub(crate) stop: AtomicBool,
    /// Operations that ended, for the progress bar.
    pub(crate) done: AtomicU64,
}

impl Shared {
    /// For so many operations over so many records.
    pub(crate) fn new(operations: u64, records: u64) -> Shared {
        Shared {
            left: AtomicU64::new(operations),
            next_record: AtomicU64::new(records),
            there: AtomicU64::new(records),
            inserted: Mutex::new(LineSet::from_parts(records, &[]).expect("no ranges")),
            stop: AtomicBool::new(false),
            done: AtomicU64::new(0),
        }
    }

    /// Numbers of records that may be there are below this one.
    pub(crate) fn records(&self) -> u64 {
        self.next_record.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
            && self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok()
    }

    /// Record numbers are lines of the set, from 1.
    fn record_inserted(&self, record: u64) {
        let mut inserted = self.inserted.lock().unwrap_or_else(PoisonError::into_inner);
        inserted.insert(record + 1);
        self.there.store(inserted.contiguous(), Ordering::Relaxed);
    }
}

/// An operation in flight.
struct InFlight {
    kind: Kind,
    started: Instant,
    step: Step,
}

enum Step {
    /// The one request of the operation.
    Only,
    /// An insert of this record.
    Insert { record: u64 },
    /// A scan that still wants so many records.
    Scan { left: u64 },
    /// The read of a read-modify-write of this record.
    ReadToModify { record: u64 },
}

/// A thread's state.
pub(crate) struct Thread<'a> {
    store: Store,
    shared: &'a Shared,
    workload: Workload,
    pick: Pick,
    random: Xoshiro256PlusPlus,
    value: Vec<u8>,
    in_flight: HashMap<Ticket, InFlight>,
    phase: PhaseResult,
}

impl<'a> Thread<'a> {
    /// A thread with its own stream of random numbers.
    pub(crate) fn new(
        store: Store,
        shared: &'a Shared,
        workload: Workload,
        pick: Pick,
        seed: u64,
        value_bytes: usize,
    ) -> Thread<'a> {
        Thread {
            store,
            shared,
            workload,
            pick,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            value: vec![0; value_bytes],
            in_flight: HashMap::new(),
            phase: PhaseResult::default(),
        }
    }

    /// Runs operations of the workload until none are left.
    pub(crate) fn run(mut self, depth: usize) -> anyhow::Result<PhaseResult> {
        loop {
            while self.in_flight.len() < depth && self.shared.take() {
                self.start_next()?;
            }
            if self.in_flight.is_empty() {
                self.phase.one_sided = self.store.one_sided_counters();
                self.phase.selectors.extend(self.store.selector_report());
                return Ok(self.phase);
            }
            self.end_one()?;
        }
    }

    /// Inserts the records of this thread: every `stride`-th from `first`.
    pub(crate) fn load(
        mut self,
        first: u64,
        stride: u64,
        records: u64,
        depth: usize,
    ) -> anyhow::Result<PhaseResult> {
        let mut record = first;
        loop {
            while self.in_flight.len() < depth
                && record < records
                && !self.shared.stop.load(Ordering::Relaxed)
            {
                self.put(Kind::Insert, Step::Only, record, Condition::Always, Instant::now())?;
                record += stride;
            }
            if self.in_flight.is_empty() {
                return Ok(self.phase);
            }
            self.end_one()?;
        }
    }

    fn start_next(&mut self) -> anyhow::Result<()> {
        let kind = self.workload.next(&mut self.random);
        let started = Instant::now();
        let there = self.shared.there.load(Ordering::Relaxed);
        if kind == Kind::Insert {
            let record = self.shared.next_record.fetch_add(1, Ordering::Relaxed);
            return self.put(kind, Step::Insert { record }, record, Condition::Always, started);
        }
        let record = self.pick.next(&mut self.random, there);
        match kind {
            Kind::Update => self.put(kind, Step::Only, record, Condition::Always, started),
            Kind::Scan => {
                let left = self.random.random_range(1..=SCAN_RECORDS_MAX);
                self.scan(Bound::Included(&key(record)), left, started)
            }
            Kind::ReadModifyWrite => {
                let step = Step::ReadToModify { record };
                self.submit(kind, step, &Operation::Get { key: &key(record) }, started)
            }
            _ => self.submit(kind, Step::Only, &Operation::Get { key: &key(record) }, started),
        }
    }

    fn put(
        &mut self,
        kind: Kind,
        step: Step,
        record: u64,
        condition: Condition,
        started: Instant,
    ) -> anyhow::Result<()> {
        let mut value = std::mem::take(&mut self.value);
        fill_value(&mut self.random, &mut value);
        let operation = Operation::Put { key: &key(record), value: &value, condition };
        let submitted = self.submit(kind, step, &operation, started);
        self.value = value;
        submitted
    }

    fn scan(&mut self, start: Bound<'_>, left: u64, started: Instant) -> anyhow::Result<()> {
        let limit_entries = u32::try_from(left).unwrap_or(u32::MAX);
        let scan = Scan { start, limit_entries, ..Scan::default() };
        self.submit(Kind::Scan, Step::Scan { left }, &Operation::Scan(scan), started)
    }

    fn submit(
        &mut self,
        kind: Kind,
        step: Step,
        operation: &Operation<'_>,
        started: Instant,
    ) -> anyhow::Result<()> {
        let ticket = self.store.submit(operation)?;
        self.in_flight.insert(ticket, InFlight { kind, started, step });
        Ok(())
    }

    fn end_one(&mut self) -> anyhow::Result<()> {
        let Some(completion) = self.store.poll(true) else { return Ok(()) };
        let ended = Instant::now();
        let operation =
            self.in_flight.remove(&completion.ticket).expect("every completion has one submission");
        match (operation.step, completion.outcome) {
            (Step::ReadToModify { record }, Ok(Output::Value(Some(item)))) => {
                let condition = Condition::IfVersion(item.version);
                self.put(operation.kind, Step::Only, record, condition, operation.started)
            }
            (Step::Scan { left }, Ok(Output::Page(page))) => {
                let left = left.saturating_sub(page.len() as u64);
                if left > 0 && !page.is_done() {
                    return self.scan(page.resume(), left, operation.started);
                }
                self.finish(operation.kind, ended - operation.started, false);
                Ok(())
            }
            (step, Ok(output)) => {
                if let Step::Insert { record } = step {
                    self.shared.record_inserted(record);
                }
                let missed = matches!(output, Output::Value(None));
                self.finish(operation.kind, ended - operation.started, missed);
                Ok(())
            }
            (_, Err(ClientError::ConditionFailed { .. })) => {
                self.finish(operation.kind, ended - operation.started, true);
                Ok(())
            }
            (_, Err(error)) => Err(self.store.failure(&error)),
        }
    }

    fn finish(&mut self, kind: Kind, latency: std::time::Duration, missed: bool) {
        let latencies = self.phase.kinds.entry(kind).or_default();
        latencies.record(latency);
        latencies.missed += u64::from(missed);
        self.shared.done.fetch_add(1, Ordering::Relaxed);
    }
}
