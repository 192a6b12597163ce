//! No file of a crate imports, by a detour or none, what imports it: a file can then be understood, moved and
//! tested with those that it stands on, and nothing else. What a crate's root or a folder's `mod.rs` gives on
//! counts as the file that it comes from.

use std::collections::{BTreeMap, BTreeSet};

use crate::demand_none;
use crate::source::code;
use crate::tree::{Source, sources};

/// A module's path within its crate; empty for the root.
type Module = Vec<String>;

/// The files of a crate, by module, without comments, strings and unit tests.
type Files = BTreeMap<Module, String>;

fn crate_of(path: &str) -> Option<(&str, Module)> {
    let (home, file) = path.split_once("/src/")?;
    let mut module: Module = file.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    Some((home, module))
}

/// What the compiler sees of a file outside its unit tests.
fn production(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| code(line) + " ").collect()
}

/// The paths of a `use`, with its braces spread out.
fn spread(prefix: &str, text: &str, found: &mut Vec<String>) {
    let (mut depth, mut begin) = (0_usize, 0);
    let mut pieces = Vec::new();
    for (at, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                pieces.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&text[begin..]);
    for piece in pieces.into_iter().map(str::trim).filter(|piece| !piece.is_empty()) {
        match piece.split_once('{') {
            Some((head, rest)) => {
                let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
                spread(&format!("{prefix}{head}"), inner, found);
            }
            None => found.push(format!("{prefix}{}", piece.split(" as ").next().unwrap_or(piece).trim())),
        }
    }
}

/// A path from the crate's root, if it leads into the crate.
fn absolute(files: &Files, of: &Module, path: &str) -> Option<Module> {
    let steps: Module = path.split("::").map(str::to_owned).collect();
    let mut base = of.clone();
    match steps.first().map(String::as_str)? {
        "crate" => Some(steps[1..].to_vec()),
        "self" => Some([base, steps[1..].to_vec()].concat()),
        "super" => {
            let ups = steps.iter().take_while(|step| *step == "super").count();
            base.truncate(base.len().saturating_sub(ups));
            Some([base, steps[ups..].to_vec()].concat())
        }
        first => {
            base.push(first.to_owned());
            files.contains_key(&base).then(|| [of.clone(), steps].concat())
        }
    }
}

/// What a file imports, and what it gives on.
struct Imports {
    taken: Vec<Module>,
    given_on: BTreeMap<String, Module>,
}

fn imports(files: &Files, of: &Module, text: &str) -> Imports {
    let (mut taken, mut given_on) = (Vec::new(), BTreeMap::new());
    for statement in text.split(';') {
        let Some((before, path)) = statement.rsplit_once("use ") else { continue };
        let is_public = before.trim_end().ends_with("pub") || before.trim_end().ends_with(')');
        let mut paths = Vec::new();
        spread("", path, &mut paths);
        for target in paths.iter().filter_map(|path| absolute(files, of, path)) {
            match target.last().filter(|_| is_public) {
                Some(name) => drop(given_on.insert(name.clone(), target.clone())),
                None => taken.push(target),
            }
        }
    }
    // Paths that are written out where they are used.
    for start in ["crate::", "super::"] {
        for (at, _) in text.match_indices(start) {
            let path: String =
                text[at..].chars().take_while(|c| c.is_alphanumeric() || matches!(c, ':' | '_')).collect();
            taken.extend(absolute(files, of, path.trim_end_matches(':')));
        }
    }
    Imports { taken, given_on }
}

/// The file that a path leads to.
fn resolve(all: &BTreeMap<Module, Imports>, path: &[String], detours: usize) -> Option<Module> {
    let file = (0..=path.len()).rev().map(|end| path[..end].to_vec()).find(|file| all.contains_key(file))?;
    let next = path.get(file.len()).and_then(|name| all[&file].given_on.get(name));
    match next.filter(|_| detours < 5) {
        Some(target) => {
            let rest = &path[file.len() + 1..];
            resolve(all, &[target.as_slice(), rest].concat(), detours + 1)
        }
        None => Some(file),
    }
}

/// Which files can be reached from which, each by at least one import.
fn reached(edges: &BTreeMap<Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<Module> {
    let (mut found, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        for to in &edges[file] {
            if found.insert(to.clone()) {
                next.push(to);
            }
        }
    }
    found
}

/// The circles of a crate: sets of files of which each reaches each other one.
fn circles(files: &Files) -> BTreeSet<BTreeSet<Module>> {
    let all: BTreeMap<Module, Imports> =
        files.iter().map(|(of, text)| (of.clone(), imports(files, of, text))).collect();
    let edges: BTreeMap<Module, BTreeSet<Module>> = all
        .iter()
        .map(|(of, imports)| {
            let targets = imports.taken.iter().filter_map(|path| resolve(&all, path, 0));
            (of.clone(), targets.filter(|target| target != of).collect())
        })
        .collect();
    let reach: BTreeMap<&Module, BTreeSet<Module>> =
        edges.keys().map(|of| (of, reached(&edges, of))).collect();
    let around = reach.keys().filter(|of| reach[**of].contains(**of));
    around.map(|of| reach[*of].iter().filter(|to| reach[to].contains(*of)).cloned().collect()).collect()
}

fn by_crate(sources: &[Source]) -> BTreeMap<&str, Files> {
    let mut crates: BTreeMap<&str, Files> = BTreeMap::new();
    for source in sources {
        if let Some((home, module)) = crate_of(&source.path) {
            crates.entry(home).or_default().insert(module, production(&source.text));
        }
    }
    crates
}

#[test]
fn there_are_no_circles_of_imports() {
    let sources = sources();
    let mut violations = Vec::new();
    for (home, files) in by_crate(&sources) {
        for circle in circles(&files) {
            let names: Vec<String> = circle.iter().map(|file| file.join("::")).collect();
            violations.push(format!("{home}: {}", names.join(", ")));
        }
    }
    demand_none("circles of imports", &violations);
}

#[test]
fn circle_by_a_detour_is_found_and_a_tree_is_none() {
    let file = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let round = [
        file("x/src/lib.rs", "mod a;\nmod b;\npub use b::{B, C};\n"),
        file("x/src/a.rs", "use crate::C;\npub struct A;\n"),
        file("x/src/b.rs", "pub struct B(crate::a::A);\npub struct C; // crate::B\n"),
        file("y/src/lib.rs", "mod a;\nmod b;\n"),
        file("y/src/a.rs", "use crate::b::{self, B};\n#[cfg(test)]\nmod tests {}\n"),
        file(
            "y/src/b.rs",
            "pub struct B(&'static str = \"crate::a::A\");\n#[cfg(test)]\nmod tests { use crate::a; }\n",
        ),
    ];
    let crates = by_crate(&round);
    let names = |home: &str| {
        let found = circles(&crates[home]);
        found
            .iter()
            .map(|circle| circle.iter().map(|file| file.join("::")).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("x"), [["a", "b"]]);
    assert!(names("y").is_empty());
}
