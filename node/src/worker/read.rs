//! Reads. Those of one key that arrive together are carried out together: searched with their cache misses
//! overlapping, then their extents fetched likewise.

use cell_fabric::ConnectionId;
use cell_protocol::{
    Bound, Entry, EntryValue, Found, Keys, PageWriter, Refusal, Reply, RequestHeader, Scan, ValuesWriter,
    reply::VALUE_INLINE_BYTES_MAX,
};
use cell_terms::Csn;
use cell_terms::mutant::{Mutant, planted};

use super::Worker;
use crate::store::{BATCH, Located, ScanDirection, ScanRange, Store, StoreError, value_len};

/// How many entries a page without a limit is expected to have: what is asked for ahead.
const PAGE_ENTRIES_EXPECTED: u32 = 256;

/// Reads of one key that wait to be carried out together.
#[derive(Debug, Default)]
pub(super) struct ReadQueue {
    keys: Vec<u8>,
    items: Vec<Item>,
    value: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    connection: ConnectionId,
    header: RequestHeader,
    key_end: usize,
    wants_value: bool,
}

impl Worker {
    pub(super) fn queue_read(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        key: &[u8],
        wants_value: bool,
    ) {
        if self.store.is_none() {
            return self.refuse(connection, header, Refusal::Recovering);
        }
        if let Some(refusal) = self.key_refusal(key) {
            return self.refuse(connection, header, refusal);
        }
        self.reads.keys.extend_from_slice(key);
        self.reads.items.push(Item { connection, header, key_end: self.reads.keys.len(), wants_value });
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
        let mut located = [Located::default(); BATCH];
        let mut searched = Ok(());
        if let Some(store) = &self.store {
            let mut keys: [&[u8]; BATCH] = [&[]; BATCH];
            let mut start = 0;
            for (key, item) in keys.iter_mut().zip(&reads.items) {
                *key = &reads.keys[start..item.key_end];
                start = item.key_end;
            }
            searched = store.locate_batch(&keys[..reads.items.len()], &mut located);
        }
        for (item, located) in reads.items.iter().zip(&located) {
            if let Err(error) = searched {
                self.broken(item.connection, item.header, error);
            } else if item.wants_value {
                self.counters.operations.get += 1;
                self.answer_get(item.connection, item.header, located, &mut reads.value);
            } else {
                self.counters.operations.search += 1;
                self.answer_search(item.connection, item.header, located);
            }
        }
        reads.items.clear();
        reads.keys.clear();
        self.reads = reads;
    }

    fn answer_search(&mut self, connection: ConnectionId, header: RequestHeader, located: &Located) {
        let Some(store) = &self.store else { return };
        let reply = if located.entry.is_some() { Reply::Exists } else { Reply::NotFound };
        match store.search_depends_on(located) {
            Ok(depends_on) => self.reply(connection, header, depends_on, &reply),
            Err(error) => self.broken(connection, header, error),
        }
    }

    fn answer_get(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        located: &Located,
        value: &mut Vec<u8>,
    ) {
        let Some(store) = &self.store else { return };
        let Some(entry) = located.entry else {
            let csn = if planted(Mutant::MissNotHeld) { Csn::ZERO } else { located.csn_removed };
            return self.reply(connection, header, csn, &Reply::NotFound);
        };
        match store.read(&entry, value) {
            Ok(head) if value.len() <= VALUE_INLINE_BYTES_MAX => {
                let reply = Reply::Value { version: head.version, value };
                let csn = if planted(Mutant::HitNotHeld) { Csn::ZERO } else { head.csn };
                self.reply(connection, header, csn, &reply);
            }
            Ok(head) => self.begin_value(connection, header, head, std::mem::take(value)),
            Err(error) => self.broken(connection, header, error),
        }
    }

    pub(super) fn multi_get(&mut self, connection: ConnectionId, header: RequestHeader, keys: &Keys<'_>) {
        let Some(store) = &self.store else {
            return self.refuse(connection, header, Refusal::Recovering);
        };
        if let Some(refusal) = keys.iter().find_map(|key| self.key_refusal(key)) {
            return self.refuse(connection, header, refusal);
        }
        self.counters.operations.get += keys.len() as u64;
        let mut message = std::mem::take(&mut self.scratch);
        message.clear();
        let answered = answer_keys(store, &self.reply_header(header), keys, &mut message);
        self.finish_page(connection, header, answered, message);
    }

    pub(super) fn scan(&mut self, connection: ConnectionId, header: RequestHeader, scan: &Scan<'_>) {
        let Some(store) = &self.store else {
            return self.refuse(connection, header, Refusal::Recovering);
        };
        self.counters.operations.scan += 1;
        let mut message = std::mem::take(&mut self.scratch);
        message.clear();
        let most = u32::try_from(self.options.scan_page_entries_max).unwrap_or(u32::MAX);
        let limit = if scan.limit_entries == 0 { most } else { scan.limit_entries.min(most) };
        let page = fill_page(store, &self.reply_header(header), scan, limit, &mut message);
        self.finish_page(connection, header, page, message);
    }

    /// Queues an encoded reply, or says what is broken.
    fn finish_page(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        depends_on: Result<Csn, StoreError>,
        message: Vec<u8>,
    ) {
        match depends_on {
            Ok(csn) => self.outbox.list(csn).push(connection, |bytes| bytes.extend_from_slice(&message)),
            Err(error) => self.broken(connection, header, error),
        }
        self.scratch = message;
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
    pub(super) fn broken(&mut self, connection: ConnectionId, header: RequestHeader, error: StoreError) {
        tracing::error!(%error, %connection, "a request met memory that breaks an invariant");
        self.refuse(connection, header, Refusal::Internal);
    }
}

fn answer_keys(
    store: &Store,
    header: &cell_protocol::ReplyHeader,
    keys: &Keys<'_>,
    message: &mut Vec<u8>,
) -> Result<Csn, StoreError> {
    let mut writer = ValuesWriter::begin(header, keys, message).map_err(|_| StoreError::Reply)?;
    let mut depends_on = Csn::ZERO;
    let mut value = Vec::new();
    let mut located = [Located::default(); BATCH];
    let mut keys = keys.iter();
    loop {
        let mut batch: [&[u8]; BATCH] = [&[]; BATCH];
        let count = batch.iter_mut().zip(&mut keys).map(|(slot, key)| *slot = key).count();
        if count == 0 {
            break;
        }
        store.locate_batch(&batch[..count], &mut located)?;
        for located in &located[..count] {
            let found = match &located.entry {
                None => {
                    depends_on = depends_on.max(located.csn_removed);
                    Found::Absent
                }
                Some(entry) if value_len(entry) as usize > writer.value_bytes_max() => {
                    let head = store.head(entry)?;
                    depends_on = depends_on.max(head.csn);
                    Found::Large { version: head.version, value_len: value_len(entry) }
                }
                Some(entry) => {
                    let head = store.read(entry, &mut value)?;
                    depends_on = depends_on.max(head.csn);
                    Found::Value { version: head.version, value: &value }
                }
            };
            writer.push(found).map_err(|_| StoreError::Reply)?;
        }
    }
    writer.finish();
    Ok(depends_on)
}

/// Fills a page from the leaves on. Each leaf is one consistent snapshot; what the page depends on is the
/// highest CSN
/// of its entries and of the removals in its leaves.
fn fill_page(
    store: &Store,
    header: &cell_protocol::ReplyHeader,
    scan: &Scan<'_>,
    limit_entries: u32,
    message: &mut Vec<u8>,
) -> Result<Csn, StoreError> {
    let mut writer =
        PageWriter::begin(header, limit_entries, scan.limit_bytes, message).map_err(|_| StoreError::Reply)?;
    let direction = if scan.reverse { ScanDirection::Backward } else { ScanDirection::Forward };
    let range = ScanRange { start: bound(&scan.start), end: bound(&scan.end), direction };
    let mut resume: Option<Vec<u8>> = None;
    let mut value = Vec::new();
    let expected = limit_entries.min(PAGE_ENTRIES_EXPECTED) as usize;
    let depends_on = store.scan(&range, expected, |key, entry| {
        let value_len = value_len(entry);
        let (head, entry_value) = if scan.keys_only {
            (store.head(entry)?, EntryValue::Omitted { value_len })
        } else if value_len as usize > cell_protocol::scan::PAGE_BYTES_MAX - key.len() {
            (store.head(entry)?, EntryValue::Large { value_len })
        } else if !writer.is_empty() && !writer.fits(key.len(), value_len as usize) {
            resume = Some(key.to_vec());
            return Ok(None);
        } else {
            (store.read(entry, &mut value)?, EntryValue::Inline(&value))
        };
        let taken = writer.push(&Entry { key, version: head.version, value: entry_value });
        if !taken.map_err(|_| StoreError::Reply)? {
            resume = Some(key.to_vec());
            return Ok(None);
        }
        Ok(Some(head.csn))
    })?;
    let resume = resume.as_deref().map(Bound::Included);
    writer.finish(resume).map_err(|_| StoreError::Reply)?;
    Ok(depends_on)
}

fn bound<'a>(bound: &Bound<'a>) -> std::ops::Bound<&'a [u8]> {
    match *bound {
        Bound::Unbounded => std::ops::Bound::Unbounded,
        Bound::Included(key) => std::ops::Bound::Included(key),
        Bound::Excluded(key) => std::ops::Bound::Excluded(key),
    }
}
