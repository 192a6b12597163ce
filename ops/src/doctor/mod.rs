//! What `cell doctor` looks at: whether this host can run a node as its settings say. Nothing is changed but
//! files of its own in the log root, and a row in a coordinator of Cell's own, which are removed.

mod coordinator;
mod disk;
mod finding;
mod host;
mod left_over;
mod peers;
mod reach;
mod root_id;
mod trouble;

use std::path::Path;
use std::thread;

use cell_terms::setting::Settings;

use crate::exit::Exit;
use crate::folders::Folders;
use crate::signal::{Hangup, on_signals};

pub(crate) use finding::{Finding, Health};
pub(crate) use left_over::is_of_doctor;

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
        Ok(folders) => {
            let mut findings = disk::look(&folders, besides.log_root);
            findings.extend(root_id::look(settings, folders.log_root()));
            findings
        }
        Err(failure) => vec![Finding::bad("log root", failure.what, "see the setting log_root")],
    };
    findings.extend(host::look());
    findings.extend(reach::look(settings));
    findings.extend(peers::look(settings, besides.peers, besides.token));
    findings.push(host::clock_since(clocks));
    findings
}

/// Has a signal that ends this process take its files in the log root with it. A log root that hangs keeps no
/// second signal from ending it at once.
pub(crate) fn leave_nothing_on_signals(settings: &Settings) -> anyhow::Result<()> {
    let Ok(folders) = Folders::of_settings(settings) else { return Ok(()) };
    let root = folders.log_root().to_owned();
    on_signals(Hangup::Stops, move || {
        let root = root.clone();
        thread::spawn(move || end(&root));
    })
}

fn end(root: &Path) {
    disk::remove_own(root);
    std::process::exit(i32::from(Exit::Interrupted as u8))
}
