//! One thread of a workload: a client of its own, some operations in flight, each timed from its start to its
//! end. Where one is in flight, which begins when the one before has ended, it is done by the call of a
//! program that waits for it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cell_client::{ClientError, Condition, EntryValue, Item, Operation, Output, ScanPage, Ticket};
use cell_protocol::{Bound, Scan};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::distribution::{Pick, Picker};
use super::report::PhaseResult;
use super::workload::{Kind, SCAN_RECORDS_MAX, Workload, fill_value, key};
use crate::load::acknowledged::LineSet;
use crate::store::Store;

/// A thread takes over one in so many of the operations that are left at a time, up to so many, and as many
/// have ended when it says so: a word that all threads write at each operation would be waited for at each.
const PART: u64 = 64;
const TOGETHER_MAX: u64 = 64;
/// Operations that have ended are reported after so long, however few they are.
const REPORT_AFTER: Duration = Duration::from_millis(10);

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
    /// Threads that were to stop are left behind, with what is in flight.
    pub(crate) is_left: AtomicBool,
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
            is_left: AtomicBool::new(false),
        }
    }

    /// Numbers of records that may be there are below this one.
    pub(crate) fn records(&self) -> u64 {
        self.next_record.load(Ordering::Relaxed)
    }

    /// Takes over some of the operations that are left; none if there are none.
    fn take_some(&self) -> u64 {
        let part = |left: u64| (left / PART).clamp(1, TOGETHER_MAX);
        let rest = |left: u64| left.checked_sub(part(left));
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        taken.map_or(0, part)
    }

    /// Record numbers are lines of the set, from 1.
    fn record_inserted(&self, record: u64) {
        let mut inserted = self.inserted.lock().unwrap_or_else(PoisonError::into_inner);
        inserted.insert(record + 1);
        self.there.store(inserted.contiguous(), Ordering::Relaxed);
    }
}

/// A thread's operations that have ended, on their way to [`Shared::done`].
struct Ended<'a> {
    done: &'a AtomicU64,
    count: u64,
    reported_at: Instant,
}

impl Ended<'_> {
    /// One more has ended, at this time.
    fn add(&mut self, at: Instant) {
        self.count += 1;
        if self.count >= TOGETHER_MAX || at.saturating_duration_since(self.reported_at) >= REPORT_AFTER {
            self.report();
            self.reported_at = at;
        }
    }

    fn report(&mut self) {
        self.done.fetch_add(std::mem::take(&mut self.count), Ordering::Relaxed);
    }
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.report();
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
    /// A scan that has found so many records, and still wants so many.
    Scan { found: u64, left: u64 },
    /// The get of a value of a scan that did not fit its page.
    Large(Box<PageOfScan>),
    /// The read of a read-modify-write of this record.
    ReadToModify { record: u64 },
}

/// A page of a scan whose values that did not fit it are fetched, one at a time.
struct PageOfScan {
    page: ScanPage,
    /// So many of them were asked for.
    fetched: usize,
    /// Records that were found so far.
    found: u64,
    /// Records that are wanted behind it.
    left: u64,
}

/// An operation as it was drawn; of an insert, its kind alone.
struct Drawn {
    kind: Kind,
    key: [u8; 24],
    /// Of a scan.
    records: u64,
}

/// A thread's state.
pub(crate) struct Thread<'a> {
    store: Store,
    shared: &'a Shared,
    workload: Workload,
    picker: Picker,
    random: Xoshiro256PlusPlus,
    value: Vec<u8>,
    in_flight: HashMap<Ticket, InFlight>,
    /// Operations that it has taken over and not started.
    taken: u64,
    /// When an operation ended whose place no other one has taken.
    place_free: Option<Instant>,
    ended: Ended<'a>,
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
            picker: Picker::new(pick),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            value: vec![0; value_bytes],
            in_flight: HashMap::new(),
            taken: 0,
            place_free: None,
            ended: Ended { done: &shared.done, count: 0, reported_at: Instant::now() },
            phase: PhaseResult::default(),
        }
    }

    /// Runs operations of the workload until none are left.
    pub(crate) fn run(mut self, depth: usize) -> anyhow::Result<PhaseResult> {
        if depth == 1 {
            self.run_one_by_one()?;
        } else {
            self.run_in_flight(depth)?;
        }
        self.phase.one_sided = self.store.one_sided_counters();
        self.phase.selectors.extend(self.store.selector_report());
        Ok(self.phase)
    }

    fn run_in_flight(&mut self, depth: usize) -> anyhow::Result<()> {
        loop {
            while self.in_flight.len() < depth && self.takes_one() {
                self.start_next()?;
            }
            if self.in_flight.is_empty() {
                return Ok(());
            }
            self.end_one()?;
        }
    }

    /// One operation begins when the one before has ended, so the clock is read once for each. Where no
    /// records are added, all that were taken over are drawn together: so draws cost less, because they do
    /// not wait for each other, and are in no operation's time.
    fn run_one_by_one(&mut self) -> anyhow::Result<()> {
        let (mut drawn, draws_ahead) = (VecDeque::new(), !self.workload.inserts());
        let mut started = Instant::now();
        while self.takes_one() {
            let next = match drawn.pop_front() {
                Some(next) => next,
                None => {
                    let next = self.draw();
                    if draws_ahead {
                        drawn.extend((0..self.taken).map(|_| self.draw()));
                        started = Instant::now();
                    }
                    next
                }
            };
            let missed = self.do_one(&next)?;
            let ended = Instant::now();
            self.finish(next.kind, started, ended, missed);
            started = ended;
        }
        Ok(())
    }

    /// Whether there is one more operation to be started.
    fn takes_one(&mut self) -> bool {
        if self.shared.stop.load(Ordering::Relaxed) {
            return false;
        }
        if self.taken == 0 {
            self.taken = self.shared.take_some();
        }
        let takes = self.taken > 0;
        self.taken -= u64::from(takes);
        takes
    }

    /// Draws an operation: what [`Thread::start_next`] draws.
    fn draw(&mut self) -> Drawn {
        let kind = self.workload.next(&mut self.random);
        let mut drawn = Drawn { kind, key: [0; 24], records: 0 };
        if kind != Kind::Insert {
            let there = self.shared.there.load(Ordering::Relaxed);
            drawn.key = key(self.picker.next(&mut self.random, there));
        }
        if kind == Kind::Scan {
            drawn.records = self.random.random_range(1..=SCAN_RECORDS_MAX);
        }
        drawn
    }

    /// Does an operation and waits for its end; whether it was answered otherwise than hoped.
    fn do_one(&mut self, Drawn { kind, key: picked, records }: &Drawn) -> anyhow::Result<bool> {
        match kind {
            Kind::Insert => {
                let record = self.shared.next_record.fetch_add(1, Ordering::Relaxed);
                self.put_and_wait(&key(record), Condition::Always)?;
                self.shared.record_inserted(record);
                Ok(false)
            }
            Kind::Update => self.put_and_wait(picked, Condition::Always),
            Kind::Scan => self.scan_and_wait(picked, *records),
            Kind::ReadModifyWrite => match self.get(picked)? {
                Some(item) => self.put_and_wait(picked, Condition::IfVersion(item.version)),
                None => Ok(true),
            },
            Kind::Read => Ok(self.get(picked)?.is_none()),
        }
    }

    fn get(&mut self, key: &[u8]) -> anyhow::Result<Option<Item>> {
        let item = self.store.get(key)?;
        self.phase.searches += 1;
        Ok(item)
    }

    fn page(&mut self, start: Bound<'_>, left: u64) -> anyhow::Result<ScanPage> {
        let page = self.store.scan_page(scan_of(start, left))?;
        self.phase.searches += 1;
        Ok(page)
    }

    fn put_and_wait(&mut self, key: &[u8], condition: Condition) -> anyhow::Result<bool> {
        fill_value(&mut self.random, &mut self.value);
        Ok(self.store.put(key, &self.value, condition)?.is_err())
    }

    fn scan_and_wait(&mut self, start: &[u8], mut left: u64) -> anyhow::Result<bool> {
        let mut page = self.page(Bound::Included(start), left)?;
        let mut found = 0;
        loop {
            found += whole(&page);
            for key in large_keys(&page) {
                found += u64::from(self.get(key)?.is_some());
            }
            left = left.saturating_sub(page.len() as u64);
            if left == 0 || page.is_done() {
                return Ok(self.scan_misses(found));
            }
            page = self.page(page.resume(), left)?;
        }
    }

    /// A scan has ended that found so many entries; whether it found none.
    fn scan_misses(&mut self, found: u64) -> bool {
        self.phase.kinds.entry(Kind::Scan).or_default().entries += found;
        found == 0
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
        let started = self.place_free.take().unwrap_or_else(Instant::now);
        let kind = self.workload.next(&mut self.random);
        let there = self.shared.there.load(Ordering::Relaxed);
        if kind == Kind::Insert {
            let record = self.shared.next_record.fetch_add(1, Ordering::Relaxed);
            return self.put(kind, Step::Insert { record }, record, Condition::Always, started);
        }
        let record = self.picker.next(&mut self.random, there);
        match kind {
            Kind::Update => self.put(kind, Step::Only, record, Condition::Always, started),
            Kind::Scan => {
                let left = self.random.random_range(1..=SCAN_RECORDS_MAX);
                self.scan(Bound::Included(&key(record)), 0, left, started)
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

    fn scan(&mut self, start: Bound<'_>, found: u64, left: u64, started: Instant) -> anyhow::Result<()> {
        let step = Step::Scan { found, left };
        self.submit(Kind::Scan, step, &Operation::Scan(scan_of(start, left)), started)
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
        let is_search = matches!(completion.outcome, Ok(Output::Value(_) | Output::Page(_)));
        self.phase.searches += u64::from(is_search);
        match (operation.step, completion.outcome) {
            (Step::ReadToModify { record }, Ok(Output::Value(Some(item)))) => {
                let condition = Condition::IfVersion(item.version);
                self.put(operation.kind, Step::Only, record, condition, operation.started)
            }
            (Step::Scan { found, left }, Ok(Output::Page(page))) => {
                let (found, left) = (found + whole(&page), left.saturating_sub(page.len() as u64));
                self.go_on_with(PageOfScan { page, fetched: 0, found, left }, operation.started, ended)
            }
            (Step::Large(mut page), Ok(Output::Value(item))) => {
                page.found += u64::from(item.is_some());
                self.go_on_with(*page, operation.started, ended)
            }
            (step, Ok(output)) => {
                if let Step::Insert { record } = step {
                    self.shared.record_inserted(record);
                }
                let missed = matches!(output, Output::Value(None));
                self.end(operation.kind, operation.started, ended, missed);
                Ok(())
            }
            (_, Err(ClientError::ConditionFailed { .. })) => {
                self.end(operation.kind, operation.started, ended, true);
                Ok(())
            }
            (_, Err(error)) => Err(self.store.failure(&error)),
        }
    }

    /// Of a scan: the next value that did not fit the page, or what is behind it, or its end.
    fn go_on_with(&mut self, mut page: PageOfScan, started: Instant, ended: Instant) -> anyhow::Result<()> {
        let large = large_keys(&page.page).nth(page.fetched).map(<[u8]>::to_vec);
        if let Some(key) = large {
            page.fetched += 1;
            let step = Step::Large(Box::new(page));
            return self.submit(Kind::Scan, step, &Operation::Get { key: &key }, started);
        }
        if page.left > 0 && !page.page.is_done() {
            return self.scan(page.page.resume(), page.found, page.left, started);
        }
        let missed = self.scan_misses(page.found);
        self.end(Kind::Scan, started, ended, missed);
        Ok(())
    }

    /// An operation in flight has ended: the next one begins now.
    fn end(&mut self, kind: Kind, started: Instant, ended: Instant, missed: bool) {
        self.place_free = Some(ended);
        self.finish(kind, started, ended, missed);
    }

    fn finish(&mut self, kind: Kind, started: Instant, ended: Instant, missed: bool) {
        let latencies = self.phase.kinds.entry(kind).or_default();
        latencies.record(ended.saturating_duration_since(started));
        latencies.missed += u64::from(missed);
        self.phase.last_ended = Some(ended);
        self.ended.add(ended);
    }
}

/// The request for the next of so many records from here on.
fn scan_of(start: Bound<'_>, left: u64) -> Scan<'_> {
    let limit_entries = u32::try_from(left).unwrap_or(u32::MAX);
    Scan { start, limit_entries, ..Scan::default() }
}

/// Keys of the entries of a page whose values did not fit it.
fn large_keys(page: &ScanPage) -> impl Iterator<Item = &[u8]> {
    page.iter().filter(|entry| matches!(entry.value, EntryValue::Large { .. })).map(|entry| entry.key)
}

/// Entries of a page that are there with their values.
fn whole(page: &ScanPage) -> u64 {
    (page.len() - large_keys(page).count()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_taken_once_each_whatever_their_number() {
        for operations in [0, 1, 63, 64, 65, 4_097, 1_000_000] {
            let shared = Shared::new(operations, 0);
            let parts: Vec<u64> =
                std::iter::from_fn(|| Some(shared.take_some()).filter(|taken| *taken > 0)).collect();
            assert_eq!(parts.iter().sum::<u64>(), operations);
            assert!(parts.iter().all(|part| *part <= TOGETHER_MAX), "{parts:?}");
            assert!(parts.last().is_none_or(|last| *last == 1), "the last ones are shared out: {parts:?}");
        }
    }

    #[test]
    fn operations_that_have_ended_are_reported_in_parts_in_time_and_at_the_end() {
        let (done, begin) = (AtomicU64::new(0), Instant::now());
        let mut ended = Ended { done: &done, count: 0, reported_at: begin };
        let reported = || done.load(Ordering::Relaxed);
        (1..TOGETHER_MAX).for_each(|_| ended.add(begin));
        assert_eq!(reported(), 0);
        ended.add(begin);
        assert_eq!(reported(), TOGETHER_MAX);
        ended.add(begin + REPORT_AFTER);
        assert_eq!(reported(), TOGETHER_MAX + 1);
        ended.add(begin + REPORT_AFTER);
        drop(ended);
        assert_eq!(reported(), TOGETHER_MAX + 2);
    }
}
