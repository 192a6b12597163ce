//! What servers report, on stderr or in a file.

use std::fs::File;
use std::sync::Arc;

use cell_terms::setting::TextForm;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::exit::Failure;
use crate::output::message::is_colored;

/// The setting that says what is let through.
pub(crate) const FILTER: &str = "tracing_filter";

/// What it takes.
pub(crate) const DIRECTIVES: TextForm = TextForm {
    max: 1024,
    takes: "a level (off, error, warn, info, debug, trace) or directives such as `info,cell_node=debug`",
    check: |text| check_words(text).and_then(|()| read(text).map(drop)),
};

/// Changes what a running log lets through.
pub(crate) struct Filter(reload::Handle<EnvFilter, Registry>);

impl Filter {
    /// Lets through what this filter says; one that is none changes nothing.
    pub(crate) fn set(&self, filter: &str) {
        if let Ok(filter) = read(filter) {
            let _ = self.0.reload(filter); // fails only for a log that has ended
        }
    }
}

/// Reads a filter, in the directives of `EnvFilter`.
fn read(filter: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(filter).map_err(|error| error.to_string())
}

/// Only nothing at all has no directive; `EnvFilter` leaves empty ones out, and takes one without a level for
/// all levels. A word that is no level it takes for the name of a target, of which everything is reported,
/// and of all others nothing but errors: `inof` would silence a node, and so would a space before `info`.
fn check_words(filter: &str) -> Result<(), String> {
    if filter.is_empty() {
        return Ok(());
    }
    for directive in filter.split(',') {
        if directive.is_empty() {
            return Err("a directive is empty".to_owned());
        }
        if directive.trim() != directive {
            return Err(format!("no spaces stand around `{}`", directive.trim()));
        }
        if !directive.contains(['=', '[']) && directive.parse::<LevelFilter>().is_err() {
            return Err(format!("`{directive}` is no level; of a target it is `{directive}=debug`"));
        }
        if directive.starts_with('=') {
            return Err(format!("`{directive}` has no target before its `=`"));
        }
        if directive.ends_with(['=', ']']) {
            let of = directive.trim_end_matches('=');
            return Err(format!("`{directive}` has no level; it is `{of}=debug`"));
        }
    }
    Ok(())
}

/// Starts to report what the filter lets through, into a file if there is one.
///
/// What cannot be written, as on a disk that is full, is left out: it must not end a node.
pub(crate) fn start(filter: &str, file: Option<File>) -> Result<Filter, Failure> {
    let wrong = |error| Failure::usage(format!("`{FILTER}` cannot be `{filter}`: {error}"));
    let (filter, handle) = reload::Layer::new(read(filter).map_err(wrong)?);
    let is_colored = file.is_none() && is_colored();
    let writer =
        file.map_or_else(|| BoxMakeWriter::new(std::io::stderr), |file| BoxMakeWriter::new(Arc::new(file)));
    let lines = fmt::layer().with_writer(writer).with_ansi(is_colored).log_internal_errors(false).compact();
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(Filter(handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_levels_targets_and_spans_and_nothing_else() {
        for taken in ["info", "OFF", "3", "", "warn,cell_node=debug", "cell_web::api=trace", "[put]=info"] {
            assert_eq!((DIRECTIVES.check)(taken), Ok(()), "{taken}");
        }
        for (garbage, why) in [
            ("garbage", "`garbage` is no level; of a target it is `garbage=debug`"),
            ("inof,cell_node=debug", "`inof` is no level"),
            ("info;debug", "`info;debug` is no level"),
            ("cell_node=loud", "error parsing level filter"),
            ("warn, info", "no spaces stand around `info`"),
            ("=,", "`=` has no target before its `=`"),
            ("=debug", "`=debug` has no target"),
            ("?=info", "invalid filter directive"),
            (",", "a directive is empty"),
            ("info,", "a directive is empty"),
            ("info,,cell_node=debug", "a directive is empty"),
            ("cell_node=", "`cell_node=` has no level; it is `cell_node=debug`"),
            ("info,cell_node[put]", "`cell_node[put]` has no level; it is `cell_node[put]=debug`"),
            ("[put]=", "`[put]=` has no level; it is `[put]=debug`"),
        ] {
            let refusal = (DIRECTIVES.check)(garbage).unwrap_err();
            assert!(refusal.contains(why), "{refusal}");
        }
    }
}
