//! Stands for `lmdb.rs` in a build without the feature `lmdb`.

use std::path::Path;

use crate::options::BenchError;
use crate::shared_file::SharedFile;

/// There is no LMDB here.
pub(crate) fn open(_folder: &Path, _entries: u64) -> Result<Option<Box<dyn SharedFile>>, BenchError> {
    Ok(None)
}
