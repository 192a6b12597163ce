//! An error says its cause, or has it as its source, and not both: whoever prints an error with its causes
//! would say the same twice.

use crate::demand_none;
use crate::tree::sources;

const ATTRIBUTE: &str = "#[error(";

/// The text of an attribute up to the parenthesis that ends it, and what follows.
fn split_attribute(text: &str) -> (&str, &str) {
    let (mut depth, mut quoted, mut escaped) = (1, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'(' if !quoted => depth += 1,
            b')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (&text[..at], &text[at..]);
        }
    }
    (text, "")
}

/// The names of the fields that are an error's source; of tuples it is the first.
fn source_fields(body: &str) -> Vec<String> {
    let mut fields: Vec<String> = Vec::new();
    for mark in ["#[source]", "#[from]"] {
        for (_, rest) in body.match_indices(mark).map(|(at, _)| body.split_at(at + mark.len())) {
            let rest = rest.trim_start().trim_start_matches("pub ");
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let named = rest[end..].starts_with(": ");
            fields.push(if named { rest[..end].to_owned() } else { "0".to_owned() });
        }
    }
    if body.lines().any(|line| line.trim_start().starts_with("source: ")) {
        fields.push("source".to_owned());
    }
    fields
}

/// Messages that have a field which is the source, too.
fn repeated(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let starts: Vec<_> = text.match_indices(ATTRIBUTE).map(|(at, _)| at + ATTRIBUTE.len()).collect();
    for (number, start) in starts.iter().enumerate() {
        let end = starts.get(number + 1).copied().unwrap_or(text.len());
        let (message, body) = split_attribute(&text[*start..end]);
        let body = body.split("\n}\n").next().unwrap_or_default();
        let says = |field: &String| ["}", ":"].iter().any(|end| message.contains(&format!("{{{field}{end}")));
        found.extend(
            source_fields(body).iter().filter(|field| says(field)).map(|_| message.trim().to_owned()),
        );
    }
    found
}

#[test]
fn errors_do_not_say_their_source() {
    let mut violations = Vec::new();
    for source in sources() {
        if source.path != "tests/tidy/errors.rs" {
            let found = repeated(&source.text).into_iter();
            violations.extend(found.map(|message| format!("{}: {message}", source.path)));
        }
    }
    demand_none("errors that say their source", &violations);
}

#[test]
fn repeated_finds_fields_by_name_and_by_number() {
    let of = |variant: &str| repeated(&format!("enum E {{\n    {variant}\n}}\n")).len();
    assert_eq!(of("#[error(\"a (b): {0}\")]\n    A(#[from] B),"), 1);
    assert_eq!(of("#[error(\"a: {why:?}\")]\n    A {\n        #[source]\n        why: B,\n    },"), 1);
    assert_eq!(of("#[error(\"a: {source}\")]\n    A {\n        source: B,\n    },"), 1);
    assert_eq!(of("#[error(\"a {what}\")]\n    A {\n        what: C,\n        source: B,\n    },"), 0);
    assert_eq!(of("#[error(transparent)]\n    A(#[from] B),\n    #[error(\"{0}\")]\n    B(C),"), 0);
}
