//! The file with a log root's id.

use crate::error::StorageError;
use crate::storage::{Access, Storage};

pub(crate) const ID_FILE: &str = "log-root-id";
/// The id in hexadecimal, and a newline.
const ID_FILE_BYTES: usize = 33;

/// The id. None: what lies in its file is no id.
///
/// # Errors
/// ENOENT, or what the disk says.
pub(crate) fn read_id(storage: &dyn Storage) -> Result<Option<u128>, StorageError> {
    let mut text = [0; ID_FILE_BYTES + 1];
    let count = storage.open(ID_FILE, Access::Read)?.read_at(0, &mut text)?;
    let id = parse_id(&text[..count]);
    if id.is_none() {
        tracing::warn!(file = ID_FILE, "this is no id of a log root: remove the file, and a new one is made");
    }
    Ok(id)
}

/// The id that a file with these bytes has.
pub(crate) fn parse_id(bytes: &[u8]) -> Option<u128> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() == ID_FILE_BYTES)?;
    u128::from_str_radix(text.trim_end(), 16).ok()
}
