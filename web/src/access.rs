//! Who asks, and what they may: three roles, each with the rights of those before it.

use serde::Serialize;

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Reads everything.
    Viewer,
    /// Changes settings, begins checks.
    Operator,
    /// Does faults.
    Admin,
}

impl Role {
    /// As it is written.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}

/// Who sent a request. Every request that reaches a handler of the API has one in its extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The name that stands in the history of what they change.
    pub(crate) name: String,
    pub(crate) role: Role,
}

impl Caller {
    /// Another node of the cluster.
    pub(crate) fn peer() -> Caller {
        Caller { name: "peer".to_owned(), role: Role::Admin }
    }

    /// Whoever asks for what everybody may see: health, metrics, the console's files.
    pub(crate) fn anonymous() -> Caller {
        Caller { name: "anonymous".to_owned(), role: Role::Viewer }
    }

    /// Whoever reaches a node that serves loopback only and knows no tokens.
    pub(crate) fn local() -> Caller {
        Caller { name: "admin".to_owned(), role: Role::Admin }
    }
}
