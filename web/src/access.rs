//! Who asks, and what they may. What each route wants is in `api::routes`.

use cell_node::{Grants, TokenRole};

/// Who sent a request. Every request that reaches a handler of the API has one in its extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The name that stands in the history of what they change.
    pub(crate) name: String,
    pub(crate) grants: Grants,
}

impl Caller {
    /// Another node of the cluster.
    pub(crate) fn peer() -> Caller {
        Caller { name: "peer".to_owned(), grants: Grants::ALL }
    }

    /// Whoever asks for what everybody may see: health, metrics, the console's files.
    pub(crate) fn anonymous() -> Caller {
        Caller { name: "anonymous".to_owned(), grants: Grants::default() }
    }

    /// Whoever reaches a node that serves loopback only and knows no tokens.
    pub(crate) fn local() -> Caller {
        Caller { name: "admin".to_owned(), grants: Grants::ALL }
    }

    /// The words of the roles that they have, the one that permits most last.
    pub(crate) fn roles(&self) -> Vec<&'static str> {
        self.grants.roles().map(TokenRole::word).collect()
    }
}
