//! Reading what users bring: files that may be compressed, lines, records of a key and a value.

pub(crate) mod ahead;
pub(crate) mod content;
pub(crate) mod format;
pub(crate) mod head;
pub(crate) mod line;
pub(crate) mod open;
pub(crate) mod record;
pub(crate) mod source;
