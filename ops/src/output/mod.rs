//! What users see: data on stdout, progress and errors on stderr, JSON for programs.

pub(crate) mod bar;
pub(crate) mod drill;
pub(crate) mod entry;
pub(crate) mod file;
pub(crate) mod message;
pub(crate) mod number;
pub(crate) mod table;
