//! LMDB as a rival: an ordered store in a file that all processes of a host map. A build has it with the
//! feature `lmdb` alone; `no_lmdb.rs` stands for it in all others.

use std::path::Path;

use ::lmdb::{Cursor, Database, Environment, Error, RoTransaction, Transaction, WriteFlags};

use crate::data::Batch;
use crate::options::BenchError;
use crate::shared_file::{Keys, ReadTransaction, SharedFile};

/// Room in the file for an entry, pages that are half full and freed ones included; and at least so much.
/// It is address space: the file grows as it is written.
const ENTRY_ROOM: u64 = 1024;
const ROOM_MIN: u64 = 1 << 30;

/// LMDB's file in a folder, open in this process.
struct Lmdb {
    environment: Environment,
    database: Database,
}

/// Opens what is in the folder, with room for so many entries.
///
/// # Errors
/// LMDB's.
pub(crate) fn open(folder: &Path, entries: u64) -> Result<Option<Box<dyn SharedFile>>, BenchError> {
    Ok(Some(Box::new(Lmdb::open(folder, entries)?)))
}

fn failed(error: Error) -> BenchError {
    BenchError::Io(std::io::Error::other(format!("LMDB: {error:?}")))
}

impl Lmdb {
    fn open(folder: &Path, entries: u64) -> Result<Self, BenchError> {
        let bytes = (entries * ENTRY_ROOM).max(ROOM_MIN).next_multiple_of(1 << 20);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let environment = Environment::new().set_map_size(bytes).open(folder).map_err(failed)?;
        let database = environment.open_db(None).map_err(failed)?;
        Ok(Self { environment, database })
    }

    /// Writes the entries `[first, last)` of a batch in one transaction, which ends on stable storage.
    fn write(&self, batch: &Batch, first: usize, last: usize) -> Result<(), Error> {
        let mut transaction = self.environment.begin_rw_txn()?;
        for index in first..last {
            let (key, value) = (batch.keys.get(index), batch.values.get(index));
            transaction.put(self.database, &key, &value, WriteFlags::empty())?;
        }
        transaction.commit()
    }

    /// Hands each key to `read`, with a transaction of its own.
    fn read_each(
        &self,
        how: ReadTransaction,
        keys: Keys<'_, '_>,
        mut read: impl FnMut(&RoTransaction<'_>, &[u8]) -> Result<u64, Error>,
    ) -> Result<u64, Error> {
        let mut bytes = 0;
        match how {
            ReadTransaction::Started => {
                for key in keys {
                    bytes += read(&self.environment.begin_ro_txn()?, key)?;
                }
            }
            ReadTransaction::Renewed => {
                let mut resting = self.environment.begin_ro_txn()?.reset();
                for key in keys {
                    let transaction = resting.renew()?;
                    bytes += read(&transaction, key)?;
                    resting = transaction.reset();
                }
            }
        }
        Ok(bytes)
    }
}

impl SharedFile for Lmdb {
    fn insert(&self, batch: &Batch) -> Result<(), BenchError> {
        self.write(batch, 0, batch.keys.len()).map_err(failed)
    }

    fn put_durably(&self, batch: &Batch, together: usize) -> Result<u64, BenchError> {
        let count = batch.keys.len();
        for first in (0..count).step_by(together) {
            self.write(batch, first, (first + together).min(count)).map_err(failed)?;
        }
        Ok(count as u64)
    }

    fn get(&self, how: ReadTransaction, keys: Keys<'_, '_>, out: &mut Vec<u8>) -> Result<u64, BenchError> {
        let got = self.read_each(how, keys, |transaction, key| match transaction.get(self.database, &key) {
            Ok(value) => {
                out.clear();
                out.extend_from_slice(value);
                Ok(out.len() as u64)
            }
            Err(Error::NotFound) => Ok(0),
            Err(error) => Err(error),
        });
        got.map_err(failed)
    }

    fn scan(
        &self,
        how: ReadTransaction,
        keys: Keys<'_, '_>,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<u64, BenchError> {
        let scanned = self.read_each(how, keys, |transaction, start| {
            out.clear();
            let mut cursor = transaction.open_ro_cursor(self.database)?;
            for item in cursor.iter_from(start).take(limit) {
                let (key, value) = item?;
                out.extend_from_slice(key);
                out.extend_from_slice(value);
            }
            Ok(out.len() as u64)
        });
        scanned.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Choice, Dataset};
    use crate::rival::{Rival, Standard};

    #[test]
    fn lmdb_same_data_agrees_with_the_standard_map() {
        let folder = tempfile::tempdir().unwrap();
        let data = Dataset { entries: 3_000, seed: 5 };
        let batch = data.batch(0, data.entries);
        let lmdb = Lmdb::open(folder.path(), data.entries).unwrap();
        let mut standard = Standard::new();
        lmdb.insert(&batch).unwrap();
        standard.insert(&batch);
        let commits = || lmdb.environment.info().unwrap().last_txnid();
        for (together, wanted) in [(1, 20), (8, 3), (256, 1)] {
            let before = commits();
            assert_eq!(lmdb.put_durably(&data.batch(0, 20), together).unwrap(), 20);
            assert_eq!(commits() - before, wanted, "{together} a commit");
        }
        let mut out = Vec::new();
        for choice in [Choice::Uniform, Choice::Zipf, Choice::Missing] {
            let probes = data.probes(choice, 500, 1);
            let keys = || (0..probes.len()).map(|index| probes.get(index));
            let [got, scanned] =
                [standard.get(&mut keys(), &mut out), standard.scan(&mut keys(), 50, &mut out)];
            for how in [ReadTransaction::Started, ReadTransaction::Renewed] {
                assert_eq!(lmdb.get(how, &mut keys(), &mut out).unwrap(), got, "{how:?}");
                assert_eq!(lmdb.scan(how, &mut keys(), 50, &mut out).unwrap(), scanned, "{how:?}");
            }
        }
    }
}
