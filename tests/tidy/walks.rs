//! Documents that lead through the code name functions, as `path/to/file.rs:function`: each of them is there.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::demand_none;
use crate::tree::{Source, root, sources};

/// Pieces between backticks of one line that name a function, or mean to: a Rust file, a colon, a name.
fn references(line: &str) -> impl Iterator<Item = (&str, &str)> {
    // Odd pieces between backticks are code.
    line.split('`').skip(1).step_by(2).filter_map(|code| {
        let (file, function) = code.split_once(".rs:")?;
        Some((&code[..file.len() + 3], function))
    })
}

/// Whether a source has a function or a method of that name.
fn has_function(source: &Source, function: &str) -> bool {
    source.text.match_indices(&format!("fn {function}")).any(|(at, found)| {
        let before = source.text[..at].chars().next_back();
        let after = source.text[at + found.len()..].chars().next();
        before.is_none_or(|character| !character.is_alphanumeric() && character != '_')
            && matches!(after, Some('(' | '<'))
    })
}

/// What is wrong with a reference.
fn fault(by_path: &BTreeMap<&str, &Source>, file: &str, function: &str) -> Option<String> {
    let Some(source) = by_path.get(file) else { return Some(format!("{file} is not there")) };
    (!has_function(source, function)).then(|| format!("{file} has no fn {function}"))
}

/// The documents that lead through the code: those at the top, and the pages of `docs/design`.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["ARCHITECTURE.md", "CONTRIBUTING.md"].map(PathBuf::from).into();
    let pages = fs::read_dir(root().join("docs/design")).expect("the pages of the design are there");
    let names = pages.map(|page| page.expect("its entries too").file_name());
    found.extend(names.map(|name| PathBuf::from("docs/design").join(name)));
    found.retain(|document| document.extension().is_some_and(|extension| extension == "md"));
    found.sort();
    found
}

#[test]
fn walks_name_functions_that_are_there() {
    let sources = sources();
    let by_path: BTreeMap<&str, &Source> =
        sources.iter().map(|source| (source.path.as_str(), source)).collect();
    let mut violations = Vec::new();
    let mut count = 0;
    for document in documents() {
        let text = fs::read_to_string(root().join(&document))
            .unwrap_or_else(|error| panic!("{} cannot be read: {error}", document.display()));
        for (index, line) in text.lines().enumerate() {
            for (file, function) in references(line) {
                count += 1;
                let fault = fault(&by_path, file, function);
                violations
                    .extend(fault.map(|fault| format!("{}:{}: {fault}", document.display(), index + 1)));
            }
        }
    }
    assert!(count > 50, "the walks have {count} references: are they written in another form?");
    demand_none("references to functions that are not there", &violations);
}

#[test]
fn documents_lines_are_at_most_120_wide() {
    let mut violations = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(root().join(&document)).expect("it is there");
        for (index, line) in text.lines().enumerate() {
            let width = line.chars().count();
            // A table's row cannot be broken.
            if width > 120 && !line.starts_with('|') {
                violations.push(format!("{}:{}: {width} characters", document.display(), index + 1));
            }
        }
    }
    demand_none("lines too wide", &violations);
}

#[test]
fn references_are_found_and_wrong_ones_reported() {
    let line = "1. `a/b.rs:put` calls `c.rs:Store::get`, see `d.rs`, `e.rs:` and x.rs:f.";
    let found: Vec<_> = references(line).collect();
    assert_eq!(found, [("a/b.rs", "put"), ("c.rs", "Store::get"), ("e.rs", "")]);
    let text = "pub(crate) fn put<T>(t: T) {}\nfn puts() {}\n".to_owned();
    let source = Source { path: "a/b.rs".into(), text };
    let by_path = BTreeMap::from([("a/b.rs", &source)]);
    let names = ["put", "puts", "pu", "ut", "", "Store::put"];
    let good = names.map(|name| fault(&by_path, "a/b.rs", name).is_none());
    assert_eq!(good, [true, true, false, false, false, false]);
    assert!(fault(&by_path, "b.rs", "put").is_some_and(|fault| fault.contains("not there")));
}
