//! What `cell doctor` looks at: whether this host can run a node as its settings say. Nothing is changed but
//! files of its own in the log root, which are removed.

mod disk;
mod finding;
mod host;
mod peers;
mod reach;

use std::path::Path;

use cell_terms::setting::Settings;

use crate::folders::Folders;

pub(crate) use finding::{Finding, Health};

/// What is looked at besides what the settings name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Besides<'a> {
    /// The log root under another path, through a mount of its own.
    pub(crate) log_root: Option<&'a Path>,
    /// Other nodes' fabric.
    pub(crate) peers: &'a [String],
    /// What those are shown.
    pub(crate) token: Option<&'a str>,
}

/// Looks at everything.
pub(crate) fn look(settings: &Settings, besides: Besides<'_>) -> Vec<Finding> {
    let clocks = host::Clocks::read();
    let mut findings = match Folders::of_settings(settings) {
        Ok(folders) => disk::look(&folders, besides.log_root),
        Err(failure) => vec![Finding::bad("log root", failure.what, "see the setting log_root")],
    };
    findings.extend(host::look());
    findings.extend(reach::look(settings));
    findings.extend(peers::look(settings, besides.peers, besides.token));
    findings.push(host::clock_since(clocks));
    findings
}
