//! A range of keys as it is given on the command line.

use std::borrow::Cow;
use std::ops::Bound;

use cell_client::ScanRange;
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
