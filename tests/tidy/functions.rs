//! A function fits on a screen.

use crate::demand_none;
use crate::tree::{Source, sources};

const LINES_MAX: usize = 60;

/// The name of the function that a line begins, and how far the line is indented.
fn function(line: &str) -> Option<(&str, usize)> {
    let indent = line.len() - line.trim_start().len();
    let (before, after) = line.trim_start().split_once("fn ")?;
    let qualifiers = ["pub", "const", "async", "unsafe", "extern", "\"C\""];
    let is_item = before.split_whitespace().all(|word| {
        let word = word.split('(').next().unwrap_or(word);
        qualifiers.contains(&word) || word.ends_with(')')
    });
    let name = after.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (is_item && !name.is_empty()).then_some((name, indent))
}

/// Each function of a formatted source that has a body of several lines, with its lines.
fn lengths(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some((name, indent)) = function(line) else { continue };
        let is = |line: &str, end: &str| line.trim() == end && line.len() - line.trim_start().len() == indent;
        // A body ends with its brace; a declaration without one ends before the next function's.
        let rest = &lines[at + 1..];
        let end = rest.iter().position(|line| is(line, "}"));
        let next = rest.iter().position(|line| function(line).is_some_and(|(_, of)| of <= indent));
        let has_body = !line.trim_end().ends_with([';', '}']);
        if let Some(end) = end.filter(|end| has_body && next.is_none_or(|next| next > *end)) {
            found.push((name, end + 2));
        }
    }
    found
}

#[test]
fn functions_fit_on_a_screen() {
    let mut violations = Vec::new();
    for Source { path, text } in sources().iter().filter(|source| source.path.contains("src/")) {
        for (name, lines) in lengths(text).into_iter().filter(|(_, lines)| *lines > LINES_MAX) {
            violations.push(format!("{path}: {name} has {lines} lines"));
        }
    }
    demand_none("functions too long; look for the second role", &violations);
}

#[test]
fn lengths_are_those_of_bodies() {
    let text = "trait T {\n    fn declared(\n        &self,\n    ) -> u8;\n\n    fn two(&self) {\n    }\n}\n\n\
                pub(crate) const fn outer() {\n    fn inner() {\n        let x = 1;\n    }\n}\n\nfn one() {}\n";
    assert_eq!(lengths(text), [("two", 2), ("outer", 5), ("inner", 3)]);
}
