//! A range of keys as it is given on the command line.

use std::borrow::Cow;
use std::ops::Bound;

use cell_client::ScanRange;
use cell_terms::mutant::{Mutant, planted};
use clap::Args;

use crate::args::EncodingArgs;
use crate::exit::Failure;

/// Which keys.
#[derive(Clone, Debug, Args)]
pub(crate) struct RangeArgs {
    /// Keys that begin with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "after", "to"], help_heading = "Range")]
    prefix: Option<String>,
    /// Keys from this one on, itself included
    #[arg(long, value_name = "KEY", conflicts_with = "after", help_heading = "Range")]
    from: Option<String>,
    /// Keys after this one
    #[arg(long, value_name = "KEY", help_heading = "Range")]
    after: Option<String>,
    /// Keys before this one, itself excluded
    #[arg(long, value_name = "KEY", help_heading = "Range")]
    to: Option<String>,
}

impl RangeArgs {
    /// Whether any end of it was given; otherwise it is all keys.
    pub(crate) const fn is_given(&self) -> bool {
        self.prefix.is_some() || self.from.is_some() || self.after.is_some() || self.to.is_some()
    }

    /// The range, for a command that changes what is in it. An empty bound is mostly a variable of a shell
    /// that is not set, and would make the range all keys.
    ///
    /// # Errors
    /// A bound is empty or does not decode.
    pub(crate) fn bounded_range(&self, encoding: EncodingArgs) -> Result<ScanRange, Failure> {
        let bounds = [
            ("--prefix", &self.prefix),
            ("--from", &self.from),
            ("--after", &self.after),
            ("--to", &self.to),
        ];
        for (flag, bound) in bounds {
            if let Some(text) = bound
                && encoding.decode(flag, text)?.is_empty()
                && !planted(Mutant::EmptyBoundTaken)
            {
                return Err(Failure::usage(format!("{flag} is empty, which bounds nothing"))
                    .next("is a variable of the shell not set? leave the bound out; --all is every entry"));
            }
        }
        self.range(encoding)
    }

    /// The range.
    pub(crate) fn range(&self, encoding: EncodingArgs) -> Result<ScanRange, Failure> {
        let decode = |name: &str, text: &str| encoding.decode(name, text).map(Cow::into_owned);
        if let Some(prefix) = &self.prefix {
            return Ok(ScanRange::prefix(&decode("--prefix", prefix)?));
        }
        let start = match (&self.from, &self.after) {
            (Some(key), _) => Bound::Included(decode("--from", key)?),
            (None, Some(key)) => Bound::Excluded(decode("--after", key)?),
            (None, None) => Bound::Unbounded,
        };
        let end = match &self.to {
            Some(key) => Bound::Excluded(decode("--to", key)?),
            None => Bound::Unbounded,
        };
        Ok(ScanRange { start, end, ..ScanRange::default() })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        range: RangeArgs,
        #[command(flatten)]
        encoding: EncodingArgs,
    }

    fn line(arguments: &[&str]) -> Line {
        Line::parse_from([&["test"], arguments].concat())
    }

    fn empty_bounds_are_refused() -> bool {
        let empty = [
            &["--prefix", ""][..],
            &["--from", ""],
            &["--after", ""],
            &["--from", "a", "--to", ""],
            &["--from", "", "--to", "b"],
            &["--hex", "--prefix", ""],
            &["--base64", "--after", ""],
            &["--escaped", "--from", ""],
        ];
        empty.iter().all(|arguments| {
            let line = line(arguments);
            assert!(line.range.range(line.encoding).is_ok(), "who reads may: {arguments:?}");
            line.range.bounded_range(line.encoding).is_err_and(|failure| failure.next.is_some())
        })
    }

    #[test]
    fn bounded_range_takes_no_empty_bound() {
        assert!(empty_bounds_are_refused());
        for arguments in
            [&["--prefix", "a"][..], &["--from", " "], &["--hex", "--after", "00"], &["--to", "b"]]
        {
            let line = line(arguments);
            assert!(line.range.bounded_range(line.encoding).is_ok(), "{arguments:?}");
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_empty_bound_taken_is_caught() {
        cell_terms::mutant::in_own_process(|| {
            cell_terms::mutant::plant(Some(Mutant::EmptyBoundTaken));
            let refused = empty_bounds_are_refused();
            cell_terms::mutant::plant(None);
            assert!(!refused);
            println!("mutant {} caught by cell-ops' bounds", Mutant::EmptyBoundTaken.name());
        });
    }
}
