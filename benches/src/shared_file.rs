//! A store in a folder that processes of one host have open together: each reads it itself, and one writes.

use crate::data::Batch;
use crate::options::BenchError;

/// How a read comes to the transaction that it is made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadTransaction {
    /// It is started for the read, and ended after it.
    Started,
    /// The one before is renewed, which saves what it takes to make one.
    Renewed,
}

/// Keys, one after the other.
pub(crate) type Keys<'i, 'k> = &'i mut dyn Iterator<Item = &'k [u8]>;

/// The store, open in this process.
pub(crate) trait SharedFile: Send + Sync {
    /// Writes all of a batch, in one transaction.
    fn insert(&self, batch: &Batch) -> Result<(), BenchError>;

    /// Writes a batch, so many entries a transaction, each on stable storage before the next one; returns how
    /// many entries.
    fn put_durably(&self, batch: &Batch, together: usize) -> Result<u64, BenchError>;

    /// Copies each value out; returns how many bytes.
    fn get(&self, how: ReadTransaction, keys: Keys<'_, '_>, out: &mut Vec<u8>) -> Result<u64, BenchError>;

    /// From each key on copies up to `limit` entries, keys and values; returns how many bytes.
    fn scan(
        &self,
        how: ReadTransaction,
        keys: Keys<'_, '_>,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<u64, BenchError>;
}
