//! How the embedded store lies in sled: in small pieces, because sled writes a page that has become large to
//! a file of its own (see [`crate::providers::sled_table`]). A page holds some twenty rows, so with pieces of
//! 4 KiB it stays below the 128 KiB at which that happens.
//!
//! | key | value |
//! |---|---|
//! | `m` | [`StoreMeta`] as JSON |
//! | `l`, lease (8 bytes, big-endian) | the lease's time to live in nanoseconds, as JSON |
//! | `v`, key, number of the piece (2 bytes, big-endian) | 1 for the last piece, 0 for others; then up to 4,096 bytes of the [`KeyValue`] as JSON |

use std::collections::{BTreeMap, HashMap};

use cell_terms::Incarnation;
use cell_terms::mutant::{Mutant, planted};
use serde::de::DeserializeOwned;

use crate::coordinator::{parse, text};
use crate::error::ClusterError;
use crate::providers::store::{Delta, STORE_FORMAT_VERSION, StoreImage, StoreMeta};
use crate::request::{KEY_BYTES_MAX, KeyValue};

pub(crate) const KEY_META: &[u8] = b"m";
const PREFIX_PIECE: u8 = b'v';
const PREFIX_LEASE: u8 = b'l';

/// Bytes of a row in one piece.
const PIECE_BYTES: usize = 4096;
/// What sled keeps in a page of leaves: 16 rows, one more before it splits, and fewer than 4 of a page that
/// is merged into it.
const PAGE_ROWS_MAX: usize = 16 + 1 + 4;
/// What a row takes in a page, besides key and piece: far more than it does.
const PAGE_ROW_OVERHEAD: usize = 64;
/// A page of so many bytes is written to a file of its own: a quarter of a segment, less headers.
const PAGE_BYTES_INLINE: usize = (512 << 10) / 4 - 64;
const _: () = assert!(PAGE_ROWS_MAX * (PIECE_BYTES + KEY_BYTES_MAX + PAGE_ROW_OVERHEAD) <= PAGE_BYTES_INLINE);

/// Writes rows as pieces, and reads them.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// How many pieces those rows have that have more than one.
    counts: HashMap<String, u16>,
}

impl Pieces {
    /// What a change does to sled's keys.
    pub(crate) fn batch(&mut self, delta: &Delta) -> sled::Batch {
        let mut batch = meta_batch(&delta.meta);
        for id in &delta.ended {
            batch.remove(lease_key(*id));
        }
        for (id, ttl_ns) in &delta.granted {
            batch.insert(lease_key(*id), text(ttl_ns).as_bytes());
        }
        for key in &delta.removed {
            let count = self.counts.remove(key).unwrap_or(1);
            (0..count).for_each(|number| batch.remove(piece_key(key, number)));
        }
        for entry in &delta.written {
            self.put(entry, &mut batch);
        }
        batch
    }

    /// What is stored; none: nothing yet.
    pub(crate) fn load(&mut self, database: &sled::Db) -> Result<Option<StoreImage>, ClusterError> {
        let Some(meta) = load_meta(database)? else { return Ok(None) };
        if meta.format != STORE_FORMAT_VERSION {
            return Err(ClusterError::Format { found: meta.format, known: STORE_FORMAT_VERSION });
        }
        let mut rows: BTreeMap<Vec<u8>, BTreeMap<u16, sled::IVec>> = BTreeMap::new();
        for piece in database.scan_prefix([PREFIX_PIECE]) {
            let (key, value) = piece.map_err(ClusterError::Store)?;
            let (key, number) = key[1..].split_last_chunk().ok_or(ClusterError::RowIncomplete)?;
            rows.entry(key.to_vec()).or_default().insert(u16::from_be_bytes(*number), value);
        }
        let mut image = StoreImage { meta, keys: Vec::new(), leases: load_leases(database)? };
        for pieces in rows.into_values() {
            let entry: KeyValue = parse_bytes("a key of the store", &join(&pieces)?)?;
            if pieces.len() > 1 {
                let count = u16::try_from(pieces.len()).map_err(|_| ClusterError::RowIncomplete)?;
                self.counts.insert(entry.key.clone(), count);
            }
            image.keys.push(entry);
        }
        Ok(Some(image))
    }

    fn put(&mut self, entry: &KeyValue, batch: &mut sled::Batch) {
        let row = text(entry);
        let size = if planted(Mutant::RowsUncut) { row.len() } else { PIECE_BYTES };
        let mut count = 0;
        let mut pieces = row.as_bytes().chunks(size).peekable();
        while let Some(piece) = pieces.next() {
            let last = u8::from(pieces.peek().is_none());
            batch.insert(piece_key(&entry.key, count), [&[last], piece].concat());
            count += 1;
        }
        let before = self.counts.remove(&entry.key).unwrap_or(1);
        (count..before).for_each(|number| batch.remove(piece_key(&entry.key, number)));
        if count > 1 {
            self.counts.insert(entry.key.clone(), count);
        }
    }
}

/// The row that these pieces make: all of them, the last one marked as such.
fn join(pieces: &BTreeMap<u16, sled::IVec>) -> Result<Vec<u8>, ClusterError> {
    let mut row = Vec::new();
    for (expected, (number, value)) in pieces.iter().enumerate() {
        let (last, piece) = value.split_first().ok_or(ClusterError::RowIncomplete)?;
        let is_last = expected + 1 == pieces.len();
        if usize::from(*number) != expected || *last != u8::from(is_last) {
            return Err(ClusterError::RowIncomplete);
        }
        row.extend_from_slice(piece);
    }
    Ok(row)
}

/// The store's numbers, in a batch of their own.
pub(crate) fn meta_batch(meta: &StoreMeta) -> sled::Batch {
    let mut batch = sled::Batch::default();
    batch.insert(KEY_META, text(meta).as_bytes());
    batch
}

fn load_meta(database: &sled::Db) -> Result<Option<StoreMeta>, ClusterError> {
    let meta = database.get(KEY_META).map_err(ClusterError::Store)?;
    meta.map(|meta| parse_bytes("the store's numbers", &meta)).transpose()
}

fn load_leases(database: &sled::Db) -> Result<Vec<(Incarnation, u64)>, ClusterError> {
    let mut leases = Vec::new();
    for row in database.scan_prefix([PREFIX_LEASE]) {
        let (key, value) = row.map_err(ClusterError::Store)?;
        let id = key.get(1..).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes);
        let id = id.ok_or(ClusterError::RowIncomplete)?;
        leases.push((Incarnation(id), parse_bytes("a lease of the store", &value)?));
    }
    Ok(leases)
}

fn parse_bytes<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, ClusterError> {
    let text = std::str::from_utf8(bytes).unwrap_or("\u{fffd}"); // not JSON either way
    parse(what, text)
}

fn piece_key(key: &str, number: u16) -> Vec<u8> {
    [&[PREFIX_PIECE], key.as_bytes(), &number.to_be_bytes()].concat()
}

fn lease_key(lease: Incarnation) -> Vec<u8> {
    [&[PREFIX_LEASE][..], &lease.0.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> sled::Db {
        sled::Config::new().temporary(true).open().unwrap()
    }

    fn entry(key: &str, value: String) -> KeyValue {
        KeyValue { key: key.to_owned(), value, revision_created: 1, revision: 2, lease: None }
    }

    fn delta(written: Vec<KeyValue>, removed: &[&str]) -> Delta {
        let mut delta = crate::providers::store::CoordinatorStore::new(7).prepare_expiry(0);
        delta.removed = removed.iter().map(|key| (*key).to_owned()).collect();
        delta.written = written;
        delta
    }

    fn keys(database: &sled::Db) -> Vec<Vec<u8>> {
        database.scan_prefix([PREFIX_PIECE]).keys().map(|key| key.unwrap().to_vec()).collect()
    }

    #[test]
    fn batch_row_in_pieces_and_the_numbers_are_pinned() {
        let (database, mut pieces) = (open(), Pieces::default());
        database.apply_batch(pieces.batch(&delta(vec![entry("a", "x".into())], &[]))).unwrap();
        let row = br#"{"key":"a","value":"x","revision_created":1,"revision":2}"#;
        assert_eq!(database.get(b"va\0\0").unwrap().unwrap(), [&[1][..], row].concat());
        let meta = br#"{"format":2,"revision":0,"generation":7,"lease_next":30064771073}"#;
        assert_eq!(database.get(b"m").unwrap().unwrap(), &meta[..]);
    }

    #[test]
    fn batch_row_that_grows_and_shrinks_leaves_no_piece_behind() {
        let (database, mut pieces) = (open(), Pieces::default());
        // Keys of which one ends as another's piece would, and text of which a piece ends within a letter.
        let names = ["a", "a\0", "a\0\0", "a\0\u{1}"];
        for (round, length) in [0, 3_000, 9_000, 30_000, 4_000, 12_000, 1].into_iter().enumerate() {
            let rows = names.map(|name| entry(name, "\u{e4}".repeat(length + round % 2)));
            database.apply_batch(pieces.batch(&delta(rows.to_vec(), &[]))).unwrap();
            let mut again = Pieces::default();
            let mut loaded = again.load(&database).unwrap().unwrap().keys;
            loaded.sort_by(|one, other| one.key.cmp(&other.key));
            assert_eq!(loaded, rows);
            assert_eq!(again.counts, pieces.counts);
            pieces = again; // as after a restart
            let longest = database.iter().values().map(|value| value.unwrap().len()).max().unwrap();
            assert!(longest <= 1 + PIECE_BYTES);
        }
        let large = entry("a", "x".repeat(30_000));
        database.apply_batch(pieces.batch(&delta(vec![large], &["a\0", "a\0\0"]))).unwrap();
        database.apply_batch(pieces.batch(&delta(vec![], &["a", "a\0\u{1}"]))).unwrap();
        assert_eq!(keys(&database), Vec::<Vec<u8>>::new());
        assert!(pieces.counts.is_empty());
    }

    #[test]
    fn load_row_that_lacks_a_piece_is_refused() {
        let rows = vec![entry("a", "x".repeat(10_000))];
        for lacking in 0..3 {
            let (database, mut pieces) = (open(), Pieces::default());
            database.apply_batch(pieces.batch(&delta(rows.clone(), &[]))).unwrap();
            assert_eq!(keys(&database).len(), 3);
            database.remove(piece_key("a", lacking)).unwrap();
            assert!(
                matches!(Pieces::default().load(&database), Err(ClusterError::RowIncomplete)),
                "{lacking}"
            );
        }
    }
}
