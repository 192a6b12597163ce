//! What servers report, on stderr or in a file.

use std::fs::File;
use std::sync::Arc;

use tracing_subscriber::EnvFilter;

use crate::exit::Failure;
use crate::output::message::is_colored;

/// Starts to report what the filter lets through, in the directives of `EnvFilter`, into a file if there is
/// one.
///
/// What cannot be written, as on a disk that is full, is left out: it must not end a node.
pub(crate) fn start(filter: &str, file: Option<File>) -> anyhow::Result<()> {
    let wrong = |error| Failure::usage(format!("`tracing_filter` cannot be `{filter}`: {error}"));
    let filter = EnvFilter::try_new(filter).map_err(wrong)?;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).log_internal_errors(false);
    match file {
        Some(file) => subscriber.with_writer(Arc::new(file)).with_ansi(false).compact().init(),
        None => subscriber.with_writer(std::io::stderr).with_ansi(is_colored()).compact().init(),
    }
    Ok(())
}
