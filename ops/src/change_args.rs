//! Arguments of the commands that have the admin API change something: whether it is only tried, why it is
//! done, and whether its end is waited for. `mut_arg` gives a command its own words for them in `--help`.

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use ureq::http::Method;

use crate::api::Api;
use crate::args::parse_time;
use crate::exit::{Exit, Failure};

/// How something is changed.
#[derive(Clone, Debug, Args)]
pub(crate) struct TryArgs {
    /// Check it and say what it would do
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Why, for those who look at it later
    #[arg(long, value_name = "WORDS")]
    pub(crate) reason: Option<String>,
}

/// The same of what takes a while.
#[derive(Clone, Debug, Args)]
pub(crate) struct TryOrWaitArgs {
    #[command(flatten)]
    pub(crate) of: TryArgs,
    /// Wait until it is done, for so long at most
    #[arg(
        long,
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        value_parser = parse_time,
        conflicts_with = "dry_run"
    )]
    wait: Option<Option<Duration>>,
}

impl TryArgs {
    /// What the request's query says of it.
    pub(crate) fn query(&self) -> Vec<String> {
        let reason = self.reason.as_ref().map(|reason| format!("reason={}", escaped(reason)));
        self.dry_run.then(|| "dry_run=1".to_owned()).into_iter().chain(reason).collect()
    }

    /// Makes a change as its preview shows it: if it would be another one by then, nothing is done. One that
    /// is only tried is its preview.
    ///
    /// # Errors
    /// No node answers, or it refuses the change.
    pub(crate) fn change(&self, api: &Api, path: &str, body: &Value) -> Result<Value, Failure> {
        let tried = TryArgs { dry_run: true, ..self.clone() };
        let preview = api.send(&Method::POST, &with_query(path, &tried.query()), &[], Some(body))?;
        if self.dry_run {
            return Ok(preview.document);
        }
        let revision = preview.etag.ok_or_else(|| {
            let what = "the node names no revision of what would be done";
            Failure::new(Exit::Error, what).next("take the `cell` of the node's version")
        })?;
        let headers = [("if-match", revision.as_str())];
        Ok(api.send(&Method::POST, &with_query(path, &self.query()), &headers, Some(body))?.document)
    }
}

impl TryOrWaitArgs {
    /// For how long its end is waited for, if it is; `unless_named`: where no time is given with `--wait`.
    pub(crate) fn patience(&self, unless_named: Duration) -> Option<Duration> {
        self.wait.map(|named| named.unwrap_or(unless_named))
    }
}

/// A path with a query, if there is one.
pub(crate) fn with_query(path: &str, query: &[String]) -> String {
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{path}{mark}{}", query.join("&"))
}

/// Text as the value of a query's parameter.
fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        how: TryOrWaitArgs,
    }

    const MINUTE: Duration = Duration::from_secs(60);

    fn parsed(arguments: &[&str]) -> Result<TryOrWaitArgs, clap::Error> {
        Command::try_parse_from([&["test"], arguments].concat()).map(|command| command.how)
    }

    #[test]
    fn wait_has_a_time_of_its_own_or_the_commands() {
        let patience = |arguments: &[&str]| parsed(arguments).unwrap().patience(MINUTE);
        assert_eq!(patience(&[]), None);
        assert_eq!(patience(&["--wait"]), Some(MINUTE));
        assert_eq!(patience(&["--wait=5s"]), Some(Duration::from_secs(5)));
        assert!(parsed(&["--wait=soon"]).is_err());
        assert!(parsed(&["--wait", "--dry-run"]).is_err(), "there would be nothing to wait for");
    }

    #[test]
    fn query_has_what_was_given() {
        let path = |arguments: &[&str]| with_query("/p", &parsed(arguments).unwrap().of.query());
        assert_eq!(path(&[]), "/p");
        assert_eq!(path(&["--dry-run", "--reason", "a b"]), "/p?dry_run=1&reason=a%20b");
    }

    #[test]
    fn escaped_leaves_nothing_that_a_query_means_otherwise() {
        assert_eq!(escaped("more room & 50%+ü"), "more%20room%20%26%2050%25%2B%C3%BC");
    }
}
