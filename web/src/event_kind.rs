//! Kinds of events: the one list that the API, its document, the command's help and the console go by; and
//! how much they matter.

use serde::{Deserialize, Serialize};

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// As it should be.
    Info,
    /// Something is lost that comes back.
    Warning,
    /// Something is not served.
    Critical,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $word:literal,)+) => {
        /// What an event is about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum EventKind {
            $($(#[$doc])* $name,)+
        }

        impl EventKind {
            /// Its word in documents.
            pub(crate) const fn word(self) -> &'static str {
                match self {
                    $(EventKind::$name => $word,)+
                }
            }
        }

        /// The words of all kinds of events.
        pub const EVENT_KINDS: &[&str] = &[$($word),+];
    };
}

kinds! {
    /// A node serves, or does something else.
    NodeState "node_state",
    /// A node's processes ended the same way again and again, so that its supervisor waited.
    HeldBack "held_back",
    /// A node refuses writes.
    ReadOnly "read_only",
    /// A node's lease was nearly lost.
    Lease "lease",
    /// A node came.
    MemberJoined "member_joined",
    /// A node went.
    MemberLeft "member_left",
    /// What becomes of a dead node's pairs.
    Incident "incident",
    /// A pair came to another owner, or cannot.
    Takeover "takeover",
    /// A pair is to move to another node, moves, or does not after all.
    Move "move",
    /// A node is to be emptied, is empty, or was removed.
    Drain "drain",
    /// Another node balances.
    Balance "balance",
    /// Meganodes were split.
    Split "split",
    /// A copy of a pair was written, or was not.
    Checkpoint "checkpoint",
    /// The cluster's settings changed.
    Setting "setting",
    /// A fault on purpose.
    Drill "drill",
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The console's own list.
    const PAGE: &str = include_str!("../console/src/pages/events/page.tsx");

    #[test]
    fn kinds_of_the_document_and_of_the_console_are_these() {
        let document = crate::api::openapi::document();
        let parameters = document["paths"]["/api/v1/events"]["get"]["parameters"].as_array().unwrap();
        let kind = parameters.iter().find(|parameter| parameter["name"] == "kind").unwrap();
        assert_eq!(kind["schema"]["enum"], serde_json::json!(EVENT_KINDS));
        let list = PAGE.split_once("const KINDS = [").and_then(|(_, rest)| rest.split_once(']')).unwrap().0;
        let mut of_console: Vec<_> = list.split(',').map(|word| word.trim().trim_matches('"')).collect();
        let mut all = EVENT_KINDS.to_vec();
        of_console.sort_unstable();
        all.sort_unstable();
        assert_eq!(of_console, all, "give the console's page of events the same kinds");
    }
}
