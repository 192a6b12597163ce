//! What servers report on stderr.

use tracing_subscriber::EnvFilter;

use crate::exit::Failure;
use crate::output::message::is_colored;

/// Starts to report what the filter lets through, in the directives of `EnvFilter`.
pub(crate) fn start(filter: &str) -> anyhow::Result<()> {
    let wrong = |error| Failure::usage(format!("`tracing_filter` cannot be `{filter}`: {error}"));
    let filter = EnvFilter::try_new(filter).map_err(wrong)?;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    subscriber.with_ansi(is_colored()).compact().init();
    Ok(())
}
