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
