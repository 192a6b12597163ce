//! What an operation gives when it succeeds.

use cell_protocol::{CheckReport, Found, Page, Reply, StatusReport, TableReport, TreeReport, Values};
use cell_terms::Version;

use crate::{ClientError, Ticket};

/// The end of a submitted operation. Each ticket has exactly one.
#[derive(Debug)]
pub struct Completion {
    /// The operation.
    pub ticket: Ticket,
    /// How long it took, from submission.
    pub elapsed_ns: u64,
    /// What came of it.
    pub outcome: Result<Output, ClientError>,
}

/// An entry's value, with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The version.
    pub version: Version,
    /// The value.
    pub value: Vec<u8>,
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Of a search: whether there is an entry.
    Exists(bool),
    /// Of a get: the entry, if there is one.
    Value(Option<Item>),
    /// Of a put: the entry's version. It is durable.
    Written(Version),
    /// Of a delete: whether there was an entry. That it is gone is durable.
    Deleted(bool),
    /// Of a multi-get.
    Values(FoundValues),
    /// Of a scan.
    Page(ScanPage),
    /// Of a status request.
    Status(NodeStatus),
    /// Of a question for the tree's shape.
    Tree(TreeShape),
    /// Of a question for the region table.
    Table(RegionTable),
    /// Of a check.
    Checked(CheckResult),
}

macro_rules! kept {
    ($(#[$doc:meta])* $name:ident, $variant:ident($view:ident), $(#[$view_doc:meta])* $method:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name(Box<[u8]>);

        impl $name {
            /// Keeps a message that was decoded as this reply.
            pub(crate) fn keep(message: &[u8]) -> $name {
                $name(message.into())
            }

            $(#[$view_doc])*
            #[must_use]
            pub fn $method(&self) -> $view<'_> {
                match Reply::decode(&self.0) {
                    Ok((_, Reply::$variant(view))) => view,
                    other => unreachable!("was decoded before it was kept, now it is {other:?}"),
                }
            }
        }
    };
}

kept!(
    /// The answer to a multi-get.
    FoundValues, Values(Values),
    /// What was found, in the order of the keys.
    values
);
kept!(
    /// A page of a scan.
    ScanPage, Page(Page),
    /// The entries, and where the scan goes on.
    page
);
kept!(
    /// A node's status.
    NodeStatus, Status(StatusReport),
    /// The report.
    report
);
kept!(
    /// The shape of a tree, or a part of it.
    TreeShape, Tree(TreeReport),
    /// The report.
    report
);
kept!(
    /// The region table, or a part of it.
    RegionTable, Table(TableReport),
    /// The report.
    report
);
kept!(
    /// The result of a check.
    CheckResult, Checked(CheckReport),
    /// The report.
    report
);

impl FoundValues {
    /// What was found for each key: see [`Found`].
    pub fn iter(&self) -> impl Iterator<Item = Found<'_>> {
        self.values().iter()
    }
}
