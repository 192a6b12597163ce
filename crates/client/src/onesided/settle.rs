//! Whether what an operation has read may be told: clock, watermark and trust, looked at after its last read.

use cell_protocol::{Bound, Entry, EntryValue, Found, PageWriter, Reply, ReplyHeader, Request, ValuesWriter};
use cell_terms::Csn;
use cell_terms::mutant::{Mutant, planted};

use super::fetch::Fetched;
use super::regions::PairAt;
use super::task::{GiveUp, LaneAnswer, Task, TaskKind, TaskState, scan_of};
use super::{Ended, Reader};
use crate::output::{FoundValues, ScanPage};
use crate::{Item, Output};

/// The first wait for a watermark; it doubles each time.
const WAIT_SHORTEST_NS: u64 = 20_000;
/// Waits for a watermark before the server is asked: 5 ms together.
const WAITS_MAX: u32 = 8;

/// What is to be done with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SettleDecision {
    /// It is answered.
    Answer,
    /// It took too long.
    Overrun,
    /// Something that it depends on is not known to be durable.
    NotCovered,
    /// The lease may not hold any more.
    NotTrusted,
}

impl Reader {
    /// The time, after all reads that were reported: looks at every operation whose reads are all here.
    ///
    /// What is begun here comes last and is looked at by the next call, because its loads in place are
    /// younger than this time:
    ///
    /// 1. the client reads its clock: the lease still holds for a moment;
    /// 2. it is stopped, the lease ends, and a successor changes what is the truth;
    /// 3. it goes on: an operation that waited is begun, and is answered in place by memory of nobody's;
    /// 4. by the time of step 1 it would be told.
    pub(crate) fn settle(&mut self, now_ns: u64) {
        if planted(Mutant::ClockBeforeLoads) {
            self.begin_held(now_ns);
        }
        self.look_at_waiting(now_ns);
        let mut settling = std::mem::take(&mut self.scratch);
        std::mem::swap(&mut settling, &mut self.settling);
        for &slot in &settling {
            self.settle_one(slot, now_ns);
        }
        settling.clear();
        self.scratch = settling;
        self.begin_held(now_ns);
    }

    /// Those whose wait is over are looked at again.
    fn look_at_waiting(&mut self, now_ns: u64) {
        let tasks = &self.tasks;
        let due = |slot: &mut u16| tasks[usize::from(*slot)].due_ns <= now_ns;
        self.settling.extend(self.waiting.extract_if(.., due));
    }

    fn settle_one(&mut self, slot: u16, now_ns: u64) {
        match self.decide(slot, now_ns) {
            SettleDecision::Answer => {
                let task = &self.tasks[usize::from(slot)];
                let ended = answer(task).map_or(Ended::Server, Ended::Done);
                self.end(slot, ended);
            }
            SettleDecision::Overrun => {
                self.context.counters.clock += 1;
                let outcome = self.tasks[usize::from(slot)].begin_again(slot, now_ns, &mut self.context);
                self.stepped(slot, outcome);
            }
            SettleDecision::NotCovered => self.wait_for_watermark(slot, now_ns),
            SettleDecision::NotTrusted => {
                self.context.counters.trust += 1;
                self.wait_for_trust(slot, now_ns);
            }
        }
    }

    fn decide(&mut self, slot: u16, now_ns: u64) -> SettleDecision {
        let task = &mut self.tasks[usize::from(slot)];
        let regions = &self.context.regions;
        if !task.in_time {
            let taken_ns = now_ns.saturating_sub(task.begun_ns);
            if taken_ns >= task.ns_max && !planted(Mutant::ClockUnchecked) {
                return SettleDecision::Overrun;
            }
            task.in_time = true;
        }
        if !task.needs.iter().all(|&(pair, csn)| regions.covers(pair, csn)) {
            return SettleDecision::NotCovered;
        }
        let workers = &self.workers;
        let trusted = |(pair, _): &(PairAt, Csn)| {
            workers.get(regions.pair(*pair).link.index()).is_some_and(|worker| worker.trust.holds(now_ns))
        };
        if task.needs.iter().all(trusted) || planted(Mutant::TrustUnchecked) {
            SettleDecision::Answer
        } else {
            SettleDecision::NotTrusted
        }
    }

    /// The watermark is read again, at once and then at growing intervals; then the server is asked, which
    /// holds its answer until it is durable.
    fn wait_for_watermark(&mut self, slot: u16, now_ns: u64) {
        let task = &mut self.tasks[usize::from(slot)];
        let at_once = task.waits == 0;
        let due = at_once || now_ns >= task.due_ns;
        if due {
            if task.waits > WAITS_MAX {
                return self.end(slot, Ended::Server);
            }
            self.context.counters.watermark += 1;
            task.due_ns = now_ns.saturating_add(WAIT_SHORTEST_NS << task.waits.min(WAITS_MAX));
            task.waits += 1;
            let needs = std::mem::take(&mut task.needs);
            for &(pair, csn) in &needs {
                if !self.context.regions.covers(pair, csn) {
                    self.context.ask_header(pair);
                }
            }
            self.tasks[usize::from(slot)].needs = needs;
        }
        self.tasks[usize::from(slot)].state = TaskState::Waiting;
        self.waiting.push(slot);
    }

    /// A lease that is renewed held all the time, so what was read stands once the owner says so.
    fn wait_for_trust(&mut self, slot: u16, now_ns: u64) {
        let task = &mut self.tasks[usize::from(slot)];
        if task.waits > WAITS_MAX {
            return self.end(slot, Ended::Server);
        }
        task.waits += 1;
        task.state = TaskState::Waiting;
        task.due_ns = now_ns.saturating_add(WAIT_SHORTEST_NS << task.waits.min(WAITS_MAX));
        self.waiting.push(slot);
    }
}

/// The answer of an operation that may be told. `None`: it cannot be put as the server would.
fn answer(task: &Task) -> Option<Output> {
    match task.kind {
        TaskKind::Get => match task.answers().next()? {
            LaneAnswer::Absent => Some(Output::Value(None)),
            LaneAnswer::Entry(fetched) => {
                let value = value_of(task, &fetched)?.to_vec();
                Some(Output::Value(Some(Item { version: fetched.version, value })))
            }
            LaneAnswer::Exists => None,
        },
        TaskKind::Search => Some(Output::Exists(task.answers().next()? != LaneAnswer::Absent)),
        TaskKind::MultiGet => values(task).ok().map(Output::Values),
        TaskKind::Scan => page(task).ok().map(Output::Page),
    }
}

fn value_of<'a>(task: &'a Task, fetched: &Fetched) -> Option<&'a [u8]> {
    fetched.value.map(|(begin, end)| &task.bytes[begin..end])
}

fn values(task: &Task) -> Result<FoundValues, GiveUp> {
    let Ok((_, Request::MultiGet(keys))) = Request::decode(task.request()) else { return Err(GiveUp) };
    let mut message = Vec::new();
    let mut writer = ValuesWriter::begin(&ReplyHeader::default(), &keys, &mut message).map_err(|_| GiveUp)?;
    for answer in task.answers() {
        let found = match answer {
            LaneAnswer::Absent => Found::Absent,
            LaneAnswer::Exists => return Err(GiveUp),
            LaneAnswer::Entry(fetched) => match value_of(task, &fetched) {
                Some(value) => Found::Value { version: fetched.version, value },
                None => Found::Large { version: fetched.version, value_len: fetched.value_len },
            },
        };
        writer.push(found).map_err(|_| GiveUp)?;
    }
    writer.finish();
    debug_assert!(matches!(Reply::decode(&message), Ok((_, Reply::Values(_)))));
    Ok(FoundValues::keep(&message))
}

fn page(task: &Task) -> Result<ScanPage, GiveUp> {
    let scan = scan_of(task.request()).ok_or(GiveUp)?;
    let (limit_entries, limit_bytes) = task.page.limits();
    let mut message = Vec::new();
    let writer = PageWriter::begin(&ReplyHeader::default(), limit_entries, limit_bytes, &mut message);
    let mut writer = writer.map_err(|_| GiveUp)?;
    for (entry, answer) in task.page.entries.iter().zip(task.answers()) {
        let LaneAnswer::Entry(fetched) = answer else { return Err(GiveUp) };
        let value = match value_of(task, &fetched) {
            Some(value) => EntryValue::Inline(value),
            None if scan.keys_only => EntryValue::Omitted { value_len: fetched.value_len },
            None => EntryValue::Large { value_len: fetched.value_len },
        };
        let entry = Entry { key: task.page.key(entry), version: fetched.version, value };
        if !writer.push(&entry).map_err(|_| GiveUp)? {
            return Err(GiveUp);
        }
    }
    writer.finish(task.page.resume.as_deref().map(Bound::Included)).map_err(|_| GiveUp)?;
    Ok(ScanPage::keep(&message))
}
