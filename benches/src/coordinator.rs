//! `coordinator`: nodes whose coordinator is etcd, three members of it on this machine at their defaults. A
//! node is lost, beside the same under the embedded coordinator; and etcd is away while clients read and
//! write.

mod loss;
mod nodes;
mod outage;

use crate::data::Dataset;
use crate::etcd;
use crate::figure::Report;
use crate::options::{BenchError, Options};
use crate::put::Scratch;

/// Runs the bench.
///
/// # Errors
/// A node, a client, a drill or etcd that failed.
pub fn run(options: &Options, report: &mut Report<'_>) -> Result<(), BenchError> {
    if !etcd::is_installed() {
        report.note("SKIPPED: nodes whose coordinator is etcd: etcd is missing (apt install etcd-server)");
        return Ok(());
    }
    let folder = Scratch::new(options.dir.as_deref())?;
    let data = Dataset { entries: options.entries, seed: options.seed };
    loss::run(&folder.0, &data, options, report)?;
    outage::run(&folder.0, &data, options, report)
}
