//! Reads. Those of one key that arrive together are carried out together: searched with their cache misses
//! overlapping, then their extents fetched likewise.

use cell_fabric::ConnectionId;
use cell_pair::{BATCH, Located, PairError, value_len};
use cell_protocol::{
    Bound, EncodeError, Found, Keys, PAGE_LEAVES_MAX, PageWriter, Refusal, Reply, RequestHeader, Scan,
    ValuesWriter, reply::VALUE_INLINE_BYTES_MAX,
};
use cell_terms::Csn;
use cell_terms::mutant::{Mutant, planted};
use cell_tree::{Aim, KeyRange, ReadError, ScanDirection};

use super::Worker;
use super::read_queue::QueuedRead;
use crate::directory::{Directory, MeganodeAt, Range};
use crate::outbox::PairAt;
use crate::pairs::{Dependence, Pairs};

/// How many entries a page without a limit is expected to have: what is asked for ahead.
const PAGE_ENTRIES_EXPECTED: u32 = 256;

/// Why a read has no answer.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum AnswerError {
    /// The pair is damaged.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// A reply could not be encoded although sizes were checked.
    #[error("a reply could not be encoded")]
    Reply,
}

impl From<EncodeError> for AnswerError {
    fn from(_: EncodeError) -> AnswerError {
        AnswerError::Reply
    }
}

impl Worker {
    pub(super) fn queue_read(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        key: &[u8],
        wants_value: bool,
    ) {
        if self.is_awaiting_pairs() {
            return self.refuse(connection, header, Refusal::Recovering);
        }
        if let Some(refusal) = self.key_refusal(key) {
            return self.refuse(connection, header, refusal);
        }
        self.reads.keys.extend_from_slice(key);
        let key_end = self.reads.keys.len();
        let arrival = self.arrival;
        self.reads.items.push(QueuedRead { connection, header, arrival, key_end, wants_value });
        if self.reads.items.len() == BATCH {
            self.carry_out_reads();
        }
    }

    /// Carries out the reads that were gathered.
    pub(super) fn carry_out_reads(&mut self) {
        if self.reads.items.is_empty() {
            return;
        }
        let mut reads = std::mem::take(&mut self.reads);
        let arrival_of_other = self.arrival;
        let mut located = [Located::default(); BATCH];
        let mut places = [None; BATCH];
        let mut keys: [&[u8]; BATCH] = [&[]; BATCH];
        let mut start = 0;
        for (key, item) in keys.iter_mut().zip(&reads.items) {
            *key = &reads.keys[start..item.key_end];
            start = item.key_end;
        }
        let searched = self.pairs.locate(&keys[..reads.items.len()], &mut places, &mut located);
        for (((item, located), place), key) in reads.items.iter().zip(&located).zip(places).zip(keys) {
            self.arrival = item.arrival;
            if let Err(error) = searched {
                self.broken(item.connection, item.header, error);
                continue;
            }
            let Some(MeganodeAt { pair, .. }) = place else {
                self.refuse_elsewhere(item.connection, item.header, Aim::At(key));
                continue;
            };
            if item.wants_value {
                self.operations.get += 1;
                self.answer_get(item.connection, item.header, pair, located, &mut reads.value);
            } else {
                self.operations.search += 1;
                self.answer_search(item.connection, item.header, pair, located);
            }
        }
        self.arrival = arrival_of_other;
        reads.items.clear();
        reads.keys.clear();
        self.reads = reads;
    }

    fn answer_search(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        pair: PairAt,
        located: &Located,
    ) {
        let reply = if located.entry.is_some() { Reply::Exists } else { Reply::NotFound };
        match self.pairs.pair(pair).search_depends_on(located) {
            Ok(csn) => self.reply(connection, header, Dependence::on(pair, csn), &reply),
            Err(error) => self.broken(connection, header, error),
        }
    }

    fn answer_get(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        pair: PairAt,
        located: &Located,
        value: &mut Vec<u8>,
    ) {
        let Some(entry) = located.entry else {
            let csn = if planted(Mutant::MissNotHeld) { Csn::ZERO } else { located.csn_removed };
            return self.reply(connection, header, Dependence::on(pair, csn), &Reply::NotFound);
        };
        match self.pairs.pair(pair).read(&entry, value) {
            Ok(head) if value.len() <= VALUE_INLINE_BYTES_MAX => {
                let reply = Reply::Value { version: head.version, value };
                let csn = if planted(Mutant::HitNotHeld) { Csn::ZERO } else { head.csn };
                self.reply(connection, header, Dependence::on(pair, csn), &reply);
            }
            Ok(head) => self.begin_value(connection, header, pair, head, std::mem::take(value)),
            Err(error) => self.broken(connection, header, error),
        }
    }

    pub(super) fn multi_get(&mut self, connection: ConnectionId, header: RequestHeader, keys: &Keys<'_>) {
        if self.is_awaiting_pairs() {
            return self.refuse(connection, header, Refusal::Recovering);
        }
        if let Some(refusal) = keys.iter().find_map(|key| self.key_refusal(key)) {
            return self.refuse(connection, header, refusal);
        }
        if let Some(elsewhere) = keys.iter().find(|key| self.pairs.find(key).is_none()) {
            return self.refuse_elsewhere(connection, header, Aim::At(elsewhere));
        }
        self.operations.get += keys.len() as u64;
        let mut message = std::mem::take(&mut self.scratch);
        message.clear();
        let first = keys.iter().next().and_then(|key| self.pairs.find(key));
        let first = first.map_or(self.pairs.first(), |there| there.pair);
        let reply_header = self.reply_header(header, first);
        let mut needs = Vec::new();
        match answer_keys(&self.pairs, &reply_header, keys, &mut message, &mut needs) {
            Ok(()) if needs.len() > 1 => {
                // The reply's header is that of the first key's pair.
                needs.sort_by_key(|need: &Dependence| need.pair != first);
                self.pairs.push_joint(connection, self.arrival, needs, std::mem::take(&mut message));
            }
            Ok(()) => {
                let depends_on = needs.first().copied().unwrap_or(Dependence::on(first, Csn::ZERO));
                self.push_encoded(connection, depends_on, &message);
            }
            Err(error) => self.broken(connection, header, error),
        }
        self.scratch = message;
    }

    pub(super) fn scan(&mut self, connection: ConnectionId, header: RequestHeader, scan: &Scan<'_>) {
        if self.is_awaiting_pairs() {
            return self.refuse(connection, header, Refusal::Recovering);
        }
        let Some(pair) = first_range(&self.pairs.directory, scan).map(|range| range.at.pair) else {
            return self.refuse_elsewhere(connection, header, first_aim(scan));
        };
        self.operations.scan += 1;
        let mut message = std::mem::take(&mut self.scratch);
        message.clear();
        let most = u32::try_from(self.options.scan_page_entries_max).unwrap_or(u32::MAX);
        let limit = if scan.limit_entries == 0 { most } else { scan.limit_entries.min(most) };
        let reply_header = self.reply_header(header, pair);
        match fill_page(&self.pairs, &reply_header, scan, limit, &mut message) {
            Ok((csn, leaves)) => {
                // The leaf where it begins is looked at by every scan.
                let looked_at = leaves.saturating_sub(1) * self.options.tree_node_bytes;
                self.reads.vain_bytes += looked_at.saturating_sub(message.len());
                self.push_encoded(connection, Dependence::on(pair, csn), &message);
            }
            Err(error) => self.broken(connection, header, error),
        }
        self.scratch = message;
    }

    /// What this turn has cost so far: bytes of the replies that [`Worker::release`] will give, and of leaves
    /// at which scans have looked and found less.
    #[must_use]
    pub fn turn_bytes(&self) -> usize {
        self.pairs.ready.bytes() + self.reads.vain_bytes
    }

    fn push_encoded(&mut self, connection: ConnectionId, depends_on: Dependence, message: &[u8]) {
        let arrival = self.arrival;
        let list = self.pairs.list(depends_on);
        list.push(connection, depends_on.pair, arrival, |bytes| bytes.extend_from_slice(message));
    }

    pub(super) fn key_refusal(&self, key: &[u8]) -> Option<Refusal> {
        let max = self.options.key_bytes_max();
        if (1..=max).contains(&key.len()) {
            return None;
        }
        let clamp = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        Some(Refusal::KeyInvalid { len: clamp(key.len()), max: clamp(max) })
    }

    /// The pair's memory is not what it must be. The answer is a clear refusal, never a guess.
    pub(super) fn broken(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        error: impl std::fmt::Display,
    ) {
        tracing::error!(%error, %connection, "a request met memory that breaks an invariant");
        self.counts.damage_met += 1;
        self.refuse(connection, header, Refusal::Internal);
    }
}

impl Pairs {
    /// Searches up to [`BATCH`] keys, those of one meganode together, and asks for their extents. A key that
    /// no pair of this worker has gets no place.
    fn locate(
        &self,
        keys: &[&[u8]],
        places: &mut [Option<MeganodeAt>; BATCH],
        located: &mut [Located; BATCH],
    ) -> Result<(), PairError> {
        let Some(first) = keys.first().and_then(|key| self.find(key)) else {
            return self.locate_scattered(keys, places, located);
        };
        let mut together = true;
        for (key, place) in keys.iter().zip(places.iter_mut()) {
            *place = self.find(key);
            together &= *place == Some(first);
        }
        if together {
            return self.pair(first.pair).locate_batch(first.slot, keys, located);
        }
        self.locate_scattered(keys, places, located)
    }

    /// As [`Pairs::locate`], for keys of several meganodes.
    fn locate_scattered(
        &self,
        keys: &[&[u8]],
        places: &mut [Option<MeganodeAt>; BATCH],
        located: &mut [Located; BATCH],
    ) -> Result<(), PairError> {
        for (key, place) in keys.iter().zip(places.iter_mut()) {
            *place = self.find(key);
        }
        // Keys that nobody has are left out; the others are searched together, wherever they are.
        let mut members = [0; BATCH];
        let mut among: [&[u8]; BATCH] = [&[]; BATCH];
        let mut count = 0;
        for (at, key) in keys.iter().enumerate().filter(|(at, _)| places[*at].is_some()) {
            (members[count], among[count]) = (at, key);
            count += 1;
        }
        let Some(first) = places.iter().flatten().next() else { return Ok(()) };
        let mut meganodes = [self.pair(first.pair).meganode(first.slot); BATCH];
        for (meganode, member) in meganodes.iter_mut().zip(&members[..count]) {
            if let Some(place) = places[*member] {
                *meganode = self.pair(place.pair).meganode(place.slot);
            }
        }
        let mut found = [Err(ReadError::NotHere); BATCH];
        cell_tree::search_across(&meganodes[..count], &among[..count], &mut found[..count]);
        for (member, found) in members[..count].iter().zip(found) {
            let (Some(place), found) = (places[*member], found?) else { continue };
            located[*member] = self.pair(place.pair).located(place.slot, &found);
        }
        Ok(())
    }
}

fn answer_keys(
    pairs: &Pairs,
    header: &cell_protocol::ReplyHeader,
    keys: &Keys<'_>,
    message: &mut Vec<u8>,
    needs: &mut Vec<Dependence>,
) -> Result<(), AnswerError> {
    let mut writer = ValuesWriter::begin(header, keys, message)?;
    let mut need = |pair, csn| match needs.iter_mut().find(|need| need.pair == pair) {
        Some(need) => need.csn = need.csn.max(csn),
        None => needs.push(Dependence::on(pair, csn)),
    };
    let mut value = Vec::new();
    let mut located = [Located::default(); BATCH];
    let mut places = [None; BATCH];
    let mut keys = keys.iter();
    loop {
        let mut batch: [&[u8]; BATCH] = [&[]; BATCH];
        let count = batch.iter_mut().zip(&mut keys).map(|(slot, key)| *slot = key).count();
        if count == 0 {
            break;
        }
        pairs.locate(&batch[..count], &mut places, &mut located)?;
        for (located, place) in located[..count].iter().zip(places) {
            let Some(MeganodeAt { pair: at, .. }) = place else { return Err(AnswerError::Reply) };
            let pair = pairs.pair(at);
            let found = match &located.entry {
                None => {
                    let is_held = !planted(Mutant::MultiGetMissNotHeld);
                    need(at, if is_held { located.csn_removed } else { Csn::ZERO });
                    Found::Absent
                }
                Some(entry) if value_len(entry) as usize > writer.value_bytes_max() => {
                    let head = pair.head(entry)?;
                    let is_held = !planted(Mutant::MultiGetLargeNotHeld);
                    need(at, if is_held { head.csn } else { Csn::ZERO });
                    Found::Large { version: head.version, value_len: value_len(entry) }
                }
                Some(entry) => {
                    let head = pair.read(entry, &mut value)?;
                    let is_held = !planted(Mutant::MultiGetHitNotHeld);
                    need(at, if is_held { head.csn } else { Csn::ZERO });
                    Found::Value { version: head.version, value: &value }
                }
            };
            writer.push(found)?;
        }
    }
    writer.finish();
    Ok(())
}

/// Where a scan begins.
fn first_aim<'s>(scan: &Scan<'s>) -> Aim<'s> {
    match (scan.reverse, scan.start, scan.end) {
        (false, Bound::Included(key) | Bound::Excluded(key), _) if !key.is_empty() => Aim::At(key),
        (false, ..) => Aim::First,
        (true, _, Bound::Unbounded) => Aim::Last,
        (true, _, Bound::Included([]) | Bound::Excluded([])) => Aim::First,
        (true, _, Bound::Included(key)) => Aim::At(key),
        (true, _, Bound::Excluded(key)) => Aim::Below(key),
    }
}

/// The meganode where a scan begins, if this worker has it.
fn first_range<'d>(directory: &'d Directory, scan: &Scan<'_>) -> Option<&'d Range> {
    match first_aim(scan) {
        Aim::First => directory.range(&[]),
        Aim::Last => directory.last().filter(|range| range.high.is_none()),
        Aim::At(key) => directory.range(key),
        Aim::Below(key) => directory.range_below(key),
    }
}

/// Where a scan goes on behind a meganode.
enum Onward<'d> {
    /// In this one.
    To(&'d Range),
    /// Elsewhere: on another page, from this key on, or below it.
    Page(Vec<u8>),
    /// Nowhere.
    End,
}

/// `may_look`: at more leaves, for this page.
fn onward<'d>(directory: &'d Directory, range: &KeyRange<'_>, here: &Range, may_look: bool) -> Onward<'d> {
    let (fence, next) = match range.direction {
        ScanDirection::Forward => match here.high.as_deref().filter(|high| !range.is_past_end(high)) {
            Some(high) => (high, directory.range(high)),
            None => return Onward::End,
        },
        ScanDirection::Backward if here.low.is_empty() || !range.begins_below(&here.low) => {
            return Onward::End;
        }
        ScanDirection::Backward => (&*here.low, directory.range_below(&here.low)),
    };
    match next {
        Some(next) if next.at.pair == here.at.pair && may_look => Onward::To(next),
        // In another pair, of this worker or of another one, or behind enough leaves: on another page.
        Some(_) | None => Onward::Page(fence.to_vec()),
    }
}

/// The part of a range that is in a meganode.
fn clipped<'r>(range: &KeyRange<'r>, here: &'r Range) -> KeyRange<'r> {
    let mut clipped = *range;
    if range.begins_below(&here.low) && !here.low.is_empty() {
        clipped.start = std::ops::Bound::Included(&*here.low);
    }
    if let Some(high) = here.high.as_deref().filter(|high| !range.is_past_end(high)) {
        clipped.end = std::ops::Bound::Excluded(high);
    }
    clipped
}

/// Fills a page from the leaves on, [`PAGE_LEAVES_MAX`] of them at most, through the meganodes of one pair.
/// Each leaf is one consistent snapshot; what the page depends on is the highest CSN of its entries and of
/// the removals in its leaves. That CSN, and how many leaves were looked at.
fn fill_page(
    pairs: &Pairs,
    header: &cell_protocol::ReplyHeader,
    scan: &Scan<'_>,
    limit_entries: u32,
    message: &mut Vec<u8>,
) -> Result<(Csn, usize), AnswerError> {
    let mut writer = PageWriter::begin(header, limit_entries, scan.limit_bytes, message)?;
    let direction = if scan.reverse { ScanDirection::Backward } else { ScanDirection::Forward };
    let range = KeyRange { start: bound(&scan.start), end: bound(&scan.end), direction };
    let mut resume: Option<Vec<u8>> = None;
    let mut depends_on = Csn::ZERO;
    let mut here = first_range(&pairs.directory, scan);
    let (mut passed, mut leaves) = (None, PAGE_LEAVES_MAX);
    while let Some(part) = here {
        let pair = pairs.pair(part.at.pair);
        let expected = limit_entries.min(PAGE_ENTRIES_EXPECTED) as usize;
        let end = pair.scan(part.at.slot, &clipped(&range, part), expected, &mut leaves, |found| {
            let (entry, mut csn) = (found.entry(), Csn::ZERO);
            let taken =
                writer.push_with(found.key_len(), value_len(&entry), scan.keys_only, |out, has_value| {
                    found.append_key(out);
                    let head = if has_value { pair.append(&entry, out)? } else { pair.head(&entry)? };
                    csn = head.csn;
                    Ok::<_, AnswerError>(head.version)
                })?;
            if !taken {
                found.append_key(resume.insert(Vec::new()));
            }
            Ok::<_, AnswerError>(taken.then_some(csn))
        })?;
        if !planted(Mutant::ScanNotHeld) {
            depends_on = depends_on.max(end.depends_on);
        }
        if end.is_stopped || end.goes_on.is_some() {
            passed = end.goes_on;
            break;
        }
        here = match onward(&pairs.directory, &range, part, leaves > 0) {
            Onward::To(next) => Some(next),
            Onward::Page(fence) => {
                passed = Some(fence);
                None
            }
            Onward::End => None,
        };
    }
    let resume = match (&resume, &passed) {
        (Some(key), _) => Some(Bound::Included(key)),
        (None, Some(fence)) if scan.reverse => Some(Bound::Excluded(fence)),
        (None, Some(fence)) => Some(Bound::Included(fence)),
        (None, None) => None,
    };
    writer.finish(resume)?;
    Ok((depends_on, PAGE_LEAVES_MAX - leaves))
}

fn bound<'a>(bound: &Bound<'a>) -> std::ops::Bound<&'a [u8]> {
    match *bound {
        Bound::Unbounded => std::ops::Bound::Unbounded,
        Bound::Included(key) => std::ops::Bound::Included(key),
        Bound::Excluded(key) => std::ops::Bound::Excluded(key),
    }
}
