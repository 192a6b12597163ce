//! A public name means one thing: no two crates of the product export a type of the same name.

use std::collections::{BTreeMap, BTreeSet};

use crate::demand_none;
use crate::tree::{Source, sources};

/// The name of the type that a line declares for everybody.
fn declared(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let (kind, rest) = rest.split_once(' ')?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    matches!(kind, "struct" | "enum" | "trait" | "type" | "union").then_some(name)
}

/// Product crates that declare each public type.
fn crates_by_name(sources: &[Source]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Source { path, text } in sources {
        let Some((folder, _)) = path.split_once("/src/") else { continue };
        if folder.starts_with("tests") || folder.starts_with("benches") {
            continue;
        }
        let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for name in production.lines().filter_map(declared) {
            found.entry(name).or_default().insert(folder);
        }
    }
    found
}

#[test]
fn public_types_have_names_of_their_own() {
    let sources = sources();
    let shared = crates_by_name(&sources).into_iter().filter(|(_, crates)| crates.len() > 1);
    let violations: Vec<String> = shared.map(|(name, crates)| format!("{name} in {crates:?}")).collect();
    demand_none("one name, two ideas", &violations);
}

#[test]
fn declared_types_are_those_that_others_can_name() {
    assert_eq!(declared("pub struct Seen<'a> {"), Some("Seen"));
    assert_eq!(declared("pub enum Seen {"), Some("Seen"));
    for none in ["pub(crate) struct Seen;", "struct Seen;", "pub fn seen() {}", "    pub type Inner = u8;"] {
        assert_eq!(declared(none), None, "{none}");
    }
}
