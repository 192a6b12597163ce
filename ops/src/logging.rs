//! What servers report, on stderr or in a file.

use std::fs::File;
use std::sync::Arc;

use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::exit::Failure;
use crate::output::message::is_colored;

/// The setting that says what is let through.
pub(crate) const FILTER: &str = "tracing_filter";

/// Changes what a running log lets through.
pub(crate) struct Filter(reload::Handle<EnvFilter, Registry>);

impl Filter {
    /// Lets through what this filter says; one that [`check`] refuses changes nothing.
    pub(crate) fn set(&self, filter: &str) {
        if let Ok(filter) = check(filter) {
            let _ = self.0.reload(filter); // fails only for a log that has ended
        }
    }
}

/// Reads a filter, in the directives of `EnvFilter`.
pub(crate) fn check(filter: &str) -> Result<EnvFilter, Failure> {
    let wrong = |error| Failure::usage(format!("`{FILTER}` cannot be `{filter}`: {error}"));
    EnvFilter::try_new(filter).map_err(wrong)
}

/// Starts to report what the filter lets through, into a file if there is one.
///
/// What cannot be written, as on a disk that is full, is left out: it must not end a node.
pub(crate) fn start(filter: &str, file: Option<File>) -> Result<Filter, Failure> {
    let (filter, handle) = reload::Layer::new(check(filter)?);
    let is_colored = file.is_none() && is_colored();
    let writer =
        file.map_or_else(|| BoxMakeWriter::new(std::io::stderr), |file| BoxMakeWriter::new(Arc::new(file)));
    let lines = fmt::layer().with_writer(writer).with_ansi(is_colored).log_internal_errors(false).compact();
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(Filter(handle))
}
