//! Whether what an operation has read may be returned: clock, watermark and trust, looked at after its last
//! read.

use cell_protocol::{ClientCounts, Entry, EntryValue, Found};
use cell_terms::Csn;
use cell_terms::mutant::{Mutant, planted};

use super::fetch::Fetched;
use super::operation::{LookupResult, ReadKind, ReadOperation, ReadState};
use super::place::PairAt;
use super::verdict::Validation;
use super::{Ended, Reader};
use crate::output::{FoundValues, ScanPage};
use crate::{Item, Output};

/// The first wait for a watermark; it doubles each time.
const WAIT_SHORTEST_NS: u64 = 20_000;
/// Waits for a watermark before the server is asked: 5 ms together.
const WAITS_MAX: u32 = 8;

impl Reader {
    /// The time, after all reads that were reported: looks at every operation whose reads are all here.
    ///
    /// What is started here comes last and is looked at by the next call, because its loads in place are
    /// younger than this time:
    ///
    /// 1. the client reads its clock: the lease still holds for a moment;
    /// 2. it is stopped, the lease ends, and a successor changes what is the truth;
    /// 3. it goes on: an operation that waited is started, and is answered in place by memory without an
    ///    owner;
    /// 4. by the time of step 1 it would be returned.
    pub(crate) fn validate(&mut self, now_ns: u64) {
        if planted(Mutant::ClockBeforeLoads) {
            self.begin_held(now_ns);
            self.look_for_batched(now_ns);
        }
        self.end_in_place(now_ns);
        self.look_at_waiting(now_ns);
        let mut validating = std::mem::take(&mut self.scratch);
        std::mem::swap(&mut validating, &mut self.validating);
        for &slot in &validating {
            self.validate_one(slot, now_ns);
        }
        validating.clear();
        self.scratch = validating;
        self.begin_held(now_ns);
    }

    /// Counts by the connection that leads to the first pair that an operation depends on.
    #[inline]
    fn count(&mut self, slot: u16, which: impl Fn(&mut ClientCounts) -> &mut u64) {
        if let Some((pair, _)) = self.operations[usize::from(slot)].needs.first() {
            self.context.count(*pair, which);
        }
    }

    /// Those whose wait is over are looked at again.
    fn look_at_waiting(&mut self, now_ns: u64) {
        let operations = &self.operations;
        let due = |slot: &mut u16| operations[usize::from(*slot)].due_ns <= now_ns;
        self.validating.extend(self.waiting.extract_if(.., due));
    }

    fn validate_one(&mut self, slot: u16, now_ns: u64) {
        match self.decide(slot, now_ns) {
            Validation::Answer => {
                self.on_one_sided_search(slot, now_ns);
                self.count(slot, |counts| &mut counts.one_sided);
                let operation = &mut self.operations[usize::from(slot)];
                let ended = answer(operation).map_or(Ended::Server, Ended::Done);
                self.end(slot, ended);
            }
            Validation::Overrun => {
                self.context.counters.clock += 1;
                self.count(slot, |counts| &mut counts.slow);
                let outcome = self.operations[usize::from(slot)].begin_again(slot, now_ns, &mut self.context);
                self.on_step(slot, outcome);
            }
            Validation::NotCovered => self.wait_for_watermark(slot, now_ns),
            Validation::NotTrusted => {
                self.context.counters.trust += 1;
                self.count(slot, |counts| &mut counts.trust);
                self.wait_for_trust(slot, now_ns);
            }
        }
    }

    fn decide(&mut self, slot: u16, now_ns: u64) -> Validation {
        let operation = &self.operations[usize::from(slot)];
        // Once looked at in time, it is: what it waits for since reads nothing.
        let taken_ns = if operation.in_time { 0 } else { now_ns.saturating_sub(operation.started_ns) };
        let validation = self.verdict(taken_ns, operation.ns_max, &operation.needs, now_ns);
        self.operations[usize::from(slot)].in_time |= validation != Validation::Overrun;
        validation
    }

    /// The rules by which one-sided answers are returned, at a time after the last load. `taken_ns`: since
    /// before the first one.
    pub(super) fn verdict(
        &self,
        taken_ns: u64,
        ns_max: u64,
        needs: &[(PairAt, Csn)],
        now_ns: u64,
    ) -> Validation {
        if taken_ns >= ns_max && !planted(Mutant::ClockUnchecked) {
            return Validation::Overrun;
        }
        let (regions, workers) = (&self.context.regions, &self.workers);
        if !needs.iter().all(|&(pair, csn)| regions.covers(pair, csn)) {
            return Validation::NotCovered;
        }
        let trusted = |(pair, _): &(PairAt, Csn)| {
            workers.get(regions.pair(*pair).link.index()).is_some_and(|worker| worker.trust.holds(now_ns))
        };
        if needs.iter().all(trusted) || planted(Mutant::TrustUnchecked) {
            Validation::Answer
        } else {
            Validation::NotTrusted
        }
    }

    /// The watermark is read again, at once and then at growing intervals; then the server is asked, which
    /// holds its answer until it is durable.
    fn wait_for_watermark(&mut self, slot: u16, now_ns: u64) {
        let operation = &mut self.operations[usize::from(slot)];
        let at_once = operation.waits == 0;
        let due = at_once || now_ns >= operation.due_ns;
        if due {
            if operation.waits > WAITS_MAX {
                return self.fall_back(slot, now_ns);
            }
            self.context.counters.watermark += 1;
            operation.due_ns = now_ns.saturating_add(WAIT_SHORTEST_NS << operation.waits.min(WAITS_MAX));
            operation.waits += 1;
            let needs = std::mem::take(&mut operation.needs);
            for &(pair, csn) in &needs {
                if !self.context.regions.covers(pair, csn) {
                    self.context.ask_header(pair);
                }
            }
            self.operations[usize::from(slot)].needs = needs;
            self.count(slot, |counts| &mut counts.watermark);
        }
        self.operations[usize::from(slot)].state = ReadState::Waiting;
        self.waiting.push(slot);
    }

    /// A lease that is renewed held all the time, so what was read stands once the owner says so.
    fn wait_for_trust(&mut self, slot: u16, now_ns: u64) {
        let operation = &mut self.operations[usize::from(slot)];
        if operation.waits > WAITS_MAX {
            return self.fall_back(slot, now_ns);
        }
        operation.waits += 1;
        operation.state = ReadState::Waiting;
        operation.due_ns = now_ns.saturating_add(WAIT_SHORTEST_NS << operation.waits.min(WAITS_MAX));
        self.waiting.push(slot);
    }
}

/// The answer of an operation that may be returned. `None`: it is not what was asked for, and the server is
/// to be asked.
fn answer(read: &mut ReadOperation) -> Option<Output> {
    match read.kind() {
        ReadKind::Get => found_item(read).map(Output::Value),
        ReadKind::Search => Some(Output::Exists(read.results().next()? != LookupResult::Absent)),
        ReadKind::MultiGet => found_values(read).map(Output::Values),
        ReadKind::Scan => scan_page(read).map(Output::Page),
    }
}

fn found_item(read: &mut ReadOperation) -> Option<Option<Item>> {
    let found = read.results().next()?;
    match found {
        LookupResult::Absent => Some(None),
        LookupResult::Entry(fetched) => {
            let value = take_value(read, &fetched)?;
            Some(Some(Item { version: fetched.version, value }))
        }
        LookupResult::Exists => None,
    }
}

/// A get's value: all that was read, where that was copied in place.
fn take_value(read: &mut ReadOperation, fetched: &Fetched) -> Option<Vec<u8>> {
    match fetched.value? {
        (0, end) if end == read.bytes.len() && read.is_in_place => Some(std::mem::take(&mut read.bytes)),
        (begin, end) => Some(read.bytes[begin..end].to_vec()),
    }
}

fn value_of<'a>(read: &'a ReadOperation, fetched: &Fetched) -> Option<&'a [u8]> {
    fetched.value.map(|(begin, end)| &read.bytes[begin..end])
}

fn found_values(read: &ReadOperation) -> Option<FoundValues> {
    let mut values = FoundValues::with_capacity(read.results().len(), read.bytes.len());
    for result in read.results() {
        values.push(match result {
            LookupResult::Absent => Found::Absent,
            LookupResult::Exists => return None,
            LookupResult::Entry(fetched) => match value_of(read, &fetched) {
                Some(value) => Found::Value { version: fetched.version, value },
                None => Found::Large { version: fetched.version, value_len: fetched.value_len },
            },
        });
    }
    Some(values)
}

fn scan_page(read: &mut ReadOperation) -> Option<ScanPage> {
    if let Some(page) = read.page_in_place.take() {
        return Some(page);
    }
    let (plan, keys_only) = (&read.page, read.is_keys_only());
    let mut page = ScanPage::with_capacity(plan.entries.len(), plan.keys.len() + read.bytes.len());
    for (entry, result) in plan.entries.iter().zip(read.results()) {
        let LookupResult::Entry(fetched) = result else { return None };
        let value = match value_of(read, &fetched) {
            Some(value) => EntryValue::Inline(value),
            None if keys_only => EntryValue::Omitted { value_len: fetched.value_len },
            None => EntryValue::Large { value_len: fetched.value_len },
        };
        page.push(&Entry { key: plan.key(entry), version: fetched.version, value });
    }
    Some(page.ending(plan.resume()))
}
