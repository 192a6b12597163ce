//! What a request takes besides its body, in words: for the table of routes.

/// What a request takes besides its body.
#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) takes: Takes,
    pub(crate) is_required: bool,
    pub(crate) meaning: &'static str,
    /// A value that is taken.
    pub(crate) example: &'static str,
}

/// Where a parameter stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the path.
    Path,
    /// In the query.
    Query,
    /// Among the headers.
    Header,
}

/// What a parameter's value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// A whole number within bounds.
    Integer(u64, u64),
    /// `0` or `1`.
    Flag,
    /// Bytes as hexadecimal digits, two a byte.
    Hex,
    /// One of these.
    Choice(&'static [&'static str]),
    /// Any text, or what the meaning says.
    Text,
}

pub(super) const fn query(
    name: &'static str,
    takes: Takes,
    meaning: &'static str,
    example: &'static str,
) -> Parameter {
    Parameter { name, place: Place::Query, takes, is_required: false, meaning, example }
}

pub(super) const fn needed(
    name: &'static str,
    takes: Takes,
    meaning: &'static str,
    example: &'static str,
) -> Parameter {
    Parameter { is_required: true, ..query(name, takes, meaning, example) }
}

pub(super) const fn path(
    name: &'static str,
    takes: Takes,
    meaning: &'static str,
    example: &'static str,
) -> Parameter {
    Parameter { place: Place::Path, ..needed(name, takes, meaning, example) }
}

pub(super) const fn header(
    name: &'static str,
    is_required: bool,
    meaning: &'static str,
    example: &'static str,
) -> Parameter {
    Parameter { place: Place::Header, is_required, ..query(name, Takes::Text, meaning, example) }
}

pub(super) const SCOPE: Parameter = query(
    "scope",
    Takes::Choice(&["cluster", "node"]),
    "node: the part of the node that is asked, alone.",
    "node",
);
pub(super) const NOT_KEPT: Parameter = header(
    "Cache-Control",
    false,
    "no-cache: as the coordinator's rows are when it is asked for; else it may be of a second or two ago.",
    "no-cache",
);
pub(super) const ROWS: Parameter =
    query("limit", Takes::Integer(1, 65_536), "At most so many rows; 512 if nothing is said.", "100");
pub(super) const IF_MATCH: Parameter =
    header("If-Match", true, "The revision that was seen, as the ETag of /api/v1/tuning has it.", "\"0\"");
pub(super) const IF_SEEN: Parameter = header(
    "If-Match",
    false,
    "The revision of the move that was seen; without it whatever the move is by now.",
    "\"1.1.1.1.2\"",
);
pub(super) const IF_PREVIEWED: Parameter = header(
    "If-Match",
    false,
    "The revision of the preview (dry_run=1), as its ETag has it; needed unless this is one.",
    "\"7.1\"",
);
pub(super) const REPEAT: Parameter =
    header("Idempotency-Key", false, "A repeat with the same key is not done again.", "a-key-of-my-own");
pub(super) const DRY_RUN: Parameter = query("dry_run", Takes::Flag, "1: check it, and change nothing.", "1");
pub(super) const REASON: Parameter =
    query("reason", Takes::Text, "Why, for the history; at most 500 bytes.", "a%20reason");
