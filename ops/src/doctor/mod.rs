//! What `cell doctor` looks at: whether this host can run a node as its settings say. Nothing is changed but
//! files of its own in the log root, which are removed.

mod disk;
mod finding;
mod host;
mod reach;

use std::path::Path;

use cell_terms::setting::Settings;

use crate::folders::Folders;

pub(crate) use finding::{Finding, Health};

/// Looks at everything. `beside` is the log root under another path, through a mount of its own.
pub(crate) fn look(settings: &Settings, beside: Option<&Path>) -> Vec<Finding> {
    let clocks = host::Clocks::read();
    let mut findings = match Folders::of_settings(settings) {
        Ok(folders) => disk::look(&folders, beside),
        Err(failure) => vec![Finding::bad("log root", failure.what, "see the setting log_root")],
    };
    findings.extend(host::look());
    findings.extend(reach::look(settings));
    findings.push(host::clock_since(clocks));
    findings
}
