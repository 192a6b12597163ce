//! What is wrong with the settings and files of a node's process although it serves, for as long as it is so.
//! Whoever looks after one of them says here how it stands.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WarningSubject {
    /// The configuration that was read again.
    Configuration,
    /// The certificates in use, and files that were to take their place.
    Certificates,
    /// Who else may read or write the files of TLS and tokens.
    Files,
    /// Who reaches the node without protection.
    Network,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct ProcessWarnings(Mutex<BTreeMap<WarningSubject, Vec<String>>>);

impl ProcessWarnings {
    /// Says what is wrong with one of them now, in sentences of a line each without their ends; what was said
    /// of it before is over.
    pub fn set(&self, subject: WarningSubject, warnings: Vec<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(subject, warnings);
    }

    /// All that is wrong.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().flatten().cloned().collect()
    }
}
