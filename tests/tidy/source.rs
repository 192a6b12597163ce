//! The shape of files: width, length, names, module docs, where unsafe may live, what must not be left
//! behind.

use crate::demand_none;
use crate::tree::{Source, sources};

const WIDTH_MAX: usize = 110;
const LINES_MAX: usize = 600;
const NAMES_BANNED: [&str; 5] = ["utils", "common", "types", "helpers", "manager"];
/// Folders whose crates may hold unsafe code.
const UNSAFE_HOMES: [&str; 3] = ["crates/memory/", "crates/fabric/", "wal/"];

/// What must not be left behind, in pieces so that this file does not hold it.
fn leftovers() -> Vec<String> {
    [("dbg", "!("), ("todo", "!("), ("unimplemented", "!("), ("TO", "DO"), ("FIX", "ME"), ("XX", "X")]
        .iter()
        .map(|(left, right)| format!("{left}{right}"))
        .collect()
}

/// The part of a line that is code: nothing of a comment, and no string's content (good enough for a linter).
pub(crate) fn code(line: &str) -> String {
    let mut kept = String::new();
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if quoted => drop(characters.next()),
            '"' => quoted = !quoted,
            '/' if !quoted && characters.peek() == Some(&'/') => break,
            _ if !quoted => kept.push(character),
            _ => {}
        }
    }
    kept
}

fn each_line(sources: &[Source], mut check: impl FnMut(&Source, &str) -> Option<String>) -> Vec<String> {
    let mut violations = Vec::new();
    for source in sources {
        for (index, line) in source.text.lines().enumerate() {
            if let Some(what) = check(source, line) {
                violations.push(format!("{}:{}: {what}", source.path, index + 1));
            }
        }
    }
    violations
}

#[test]
fn lines_are_at_most_110_wide() {
    let violations = each_line(&sources(), |_, line| {
        let width = line.chars().count();
        // rustfmt, whose width is the same, leaves strings alone, and a table's row cannot be broken.
        let breakable = !line.contains('"') && !line.trim_start().starts_with("//! |");
        (width > WIDTH_MAX && breakable).then(|| format!("{width} characters"))
    });
    demand_none("lines too wide", &violations);
}

#[test]
fn files_before_their_tests_are_at_most_600_lines() {
    let violations: Vec<String> = sources()
        .iter()
        .filter_map(|source| {
            let lines = source.text.lines().take_while(|line| !line.starts_with("mod tests")).count();
            (lines > LINES_MAX).then(|| format!("{}: {lines} lines; look for the second role", source.path))
        })
        .collect();
    demand_none("files too long", &violations);
}

#[test]
fn files_and_folders_have_names_that_say_their_role() {
    let violations: Vec<String> = sources()
        .iter()
        .filter(|source| {
            let mut parts = source.path.trim_end_matches(".rs").split('/');
            parts.any(|part| NAMES_BANNED.contains(&part) || part.trim_end_matches('s') == "util")
        })
        .map(|source| source.path.clone())
        .collect();
    demand_none("names that say nothing", &violations);
}

#[test]
fn sources_each_open_with_a_module_doc() {
    let violations: Vec<String> = sources()
        .iter()
        .filter(|source| {
            let mut lines = source.text.lines().filter(|line| !line.trim().is_empty());
            let first = lines.find(|line| !line.starts_with("#!["));
            first.is_none_or(|line| !line.starts_with("//! ") || line.contains("placeholder"))
        })
        .map(|source| source.path.clone())
        .collect();
    demand_none("sources without a module doc", &violations);
}

#[test]
fn unsafe_lives_in_memory_fabric_and_wal_alone() {
    let word = concat!("uns", "afe");
    let starts = [" {", " fn", " impl", " extern", " trait"].map(|after| format!("{word}{after}"));
    let violations = each_line(&sources(), |source, line| {
        let at_home = UNSAFE_HOMES.iter().any(|home| source.path.starts_with(home));
        let code = code(line);
        let found = starts.iter().any(|start| code.contains(start))
            || (code.contains("allow") && code.contains(&format!("{word}_code")));
        (found && !at_home).then(|| code.trim().to_owned())
    });
    demand_none("unsafe code outside memory, fabric and wal", &violations);
}

/// Issue 11, finding 4: data lay in folders whose names were never synced.
#[test]
fn folders_for_data_are_made_in_one_way() {
    // The one way, its rehearsal, and what lies below a log root, whose callers sync it; the others hold no
    // data, but manual pages and messages for people.
    let homes = [
        "crates/durable/src/folders.rs",
        "crates/durable/src/power_cut.rs",
        "wal/src/real.rs",
        "ops/src/command/man.rs",
        "ops/src/dev/messages.rs",
    ];
    let mut violations = Vec::new();
    for source in sources().iter().filter(|source| {
        let product = source.path.contains("src/") && !source.path.starts_with("tests/");
        product && !source.path.starts_with("benches/") && !homes.contains(&source.path.as_str())
    }) {
        let lines = source.text.lines().take_while(|line| !line.starts_with("mod tests"));
        let found =
            lines.filter(|line| code(line).contains("create_dir") || code(line).contains("DirBuilder"));
        violations.extend(found.map(|line| format!("{}: {}", source.path, line.trim())));
    }
    demand_none("folders that are made without cell_durable::create_folders", &violations);
}

#[test]
fn sources_leave_nothing_undone() {
    let leftovers = leftovers();
    let violations = each_line(&sources(), |_, line| {
        leftovers.iter().find(|leftover| line.contains(leftover.as_str())).cloned()
    });
    demand_none("left behind", &violations);
}

#[test]
fn lint_exceptions_each_give_a_reason() {
    let mut violations = Vec::new();
    for source in &sources() {
        let lines: Vec<&str> = source.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let opening = line.trim_start();
            if !(opening.starts_with("#[allow(") || opening.starts_with("#![allow(")) {
                continue;
            }
            let attribute: String = lines[index..]
                .iter()
                .scan(false, |done, line| {
                    let taken = (!*done).then(|| (*line).to_owned());
                    *done |= line.contains(")]");
                    taken
                })
                .collect();
            let commented = index > 0 && lines[index - 1].trim_start().starts_with("//");
            if !attribute.contains("reason") && !attribute.contains("//") && !commented {
                violations.push(format!("{}:{}: {opening}", source.path, index + 1));
            }
        }
    }
    demand_none("lint exceptions without a reason", &violations);
}

#[test]
fn code_of_a_line_comments_and_strings_are_left_out() {
    assert_eq!(code("let a = \"b // c\"; // d"), "let a = ; ");
    assert_eq!(code("let a = \"\\\"x\"; e()"), "let a = ; e()");
}
