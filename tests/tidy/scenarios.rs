//! Every failure that must be survived has tests, or a line that says why not: `docs/design/scenarios.md` has
//! them all, and the tests that it names are there.

use std::collections::BTreeMap;
use std::fs;

use toml::Table;

use crate::demand_none;
use crate::tree::{Source, root, sources};

const DOCUMENT: &str = "docs/design/scenarios.md";
/// How many there are.
const SCENARIOS: usize = 26;
/// What a reason for the lack of a test begins with.
const NO_TEST: &str = "No test: ";

/// A row: its number, and what shows it.
#[derive(Debug, PartialEq, Eq)]
struct Row<'a> {
    number: usize,
    /// Scenario and what must happen.
    says: [&'a str; 2],
    tests: Vec<&'a str>,
    reason: Option<&'a str>,
}

/// The rows of the table; none where a line of it is none.
fn rows(text: &str) -> Vec<Option<Row<'_>>> {
    let lines = text.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    lines.take_while(|line| line.starts_with('|')).map(row).collect()
}

fn row(line: &str) -> Option<Row<'_>> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [number, scenario, outcome, shown] = cells[..] else { return None };
    let (named, reason) = match shown.split_once(NO_TEST) {
        Some((named, reason)) => (named, Some(reason)),
        None => (shown, None),
    };
    // Odd pieces between backticks are code; what names a test has its program before it.
    let tests = named.split('`').skip(1).step_by(2).filter(|code| code.starts_with("cell-")).collect();
    Some(Row { number: number.parse().ok()?, says: [scenario, outcome], tests, reason })
}

/// The folder of each package of the workspace.
fn packages() -> BTreeMap<String, String> {
    let read = |path: &str| -> Table {
        let text = fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        text.parse().unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let workspace = read("Cargo.toml");
    let members = workspace["workspace"]["members"].as_array().expect("members is a list");
    let folders = members.iter().filter_map(|member| member.as_str());
    let named = folders.map(|folder| {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        let name = manifest["package"]["name"].as_str().expect("a package has a name");
        (name.to_owned(), folder.to_owned())
    });
    named.collect()
}

/// The files in which a test may stand that is listed as `BINARY TEST`, and its function.
fn places(packages: &BTreeMap<String, String>, name: &str) -> Option<(Vec<String>, String)> {
    let (binary, test) = name.split_once(' ')?;
    let (package, program) = match binary.split_once("::") {
        Some((package, program)) => (package, Some(program)),
        None => (binary, None),
    };
    let folder = packages.get(package)?;
    let (modules, function) = match test.rsplit_once("::") {
        Some((modules, function)) => (modules.replace("::", "/"), function),
        None => (String::new(), test),
    };
    let bases = match program {
        None => vec![format!("{folder}/src")],
        // Such a program is a folder of its own, or one file and what lies beside it.
        Some(program) => {
            let own = [format!("{folder}/tests/{program}"), format!("{folder}/{program}")];
            own.into_iter().chain([format!("{folder}/tests"), folder.clone()]).collect()
        }
    };
    // A module `tests` is part of its file as a rule.
    let inner = modules.strip_suffix("tests").map(|outer| outer.trim_end_matches('/').to_owned());
    let mut files = Vec::new();
    for base in &bases {
        for modules in inner.iter().chain([&modules]) {
            match (modules.is_empty(), program) {
                (true, None) => files.extend(["lib", "main"].map(|file| format!("{base}/{file}.rs"))),
                (true, Some(program)) => {
                    files.extend([program, "main"].map(|file| format!("{base}/{file}.rs")));
                }
                (false, _) => {
                    files.extend([format!("{base}/{modules}.rs"), format!("{base}/{modules}/mod.rs")]);
                }
            }
        }
    }
    Some((files, function.to_owned()))
}

/// Whether a source has a test of that name: a function with the attribute among the lines before it.
fn has_test(source: &Source, function: &str) -> bool {
    let opening = format!("fn {function}(");
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let declares = |line: &str| {
        line.strip_prefix("pub(crate) ").unwrap_or(line).starts_with(&opening)
            || line.starts_with(&format!("async {opening}"))
    };
    let is_test = |at: usize| {
        let mut before = lines[..at].iter().rev().take_while(|line| !line.is_empty() && **line != "}");
        before.any(|line| *line == "#[test]" || line.starts_with("#[tokio::test"))
    };
    lines.iter().enumerate().any(|(at, line)| declares(line) && is_test(at))
}

/// What is wrong with a name.
fn fault(packages: &BTreeMap<String, String>, all: &[Source], name: &str) -> Option<String> {
    let Some((files, function)) = places(packages, name) else {
        return Some(format!("`{name}` is not `BINARY TEST` of a package of this workspace"));
    };
    let mut found = all.iter().filter(|source| files.contains(&source.path));
    let is_there = found.any(|source| has_test(source, &function));
    (!is_there).then(|| format!("none of {files:?} has a test {function}"))
}

#[test]
fn scenarios_each_name_tests_that_are_there_or_say_why_not() {
    let text = fs::read_to_string(root().join(DOCUMENT)).expect("the table is there");
    let (packages, all) = (packages(), sources());
    let rows = rows(&text);
    let mut violations = Vec::new();
    if rows.len() != SCENARIOS {
        violations.push(format!("{DOCUMENT} has {} rows, of {SCENARIOS}", rows.len()));
    }
    for (row, number) in rows.iter().zip(1..) {
        let Some(row) = row else {
            violations.push(format!("row {number} is no row of four cells"));
            continue;
        };
        if row.number != number || row.says.contains(&"") {
            violations.push(format!("row {number} is {row:?}"));
        }
        if row.tests.is_empty() && row.reason.is_none_or(str::is_empty) {
            violations.push(format!("row {number} names no test, and does not say why"));
        }
        let faults = row.tests.iter().filter_map(|name| fault(&packages, &all, name));
        violations.extend(faults.map(|fault| format!("row {number}: {fault}")));
    }
    demand_none("scenarios without what shows them", &violations);
}

#[test]
fn rows_and_names_are_read_as_they_are_written() {
    let text = "x\n| # | a | b | c |\n|---|---|---|---|\n| 1 | s | o | `cell-a::suite b::c` (`kill`), `cell-a d` |\n\
                | 2 | s | o | No test: why |\n| 3 | s |\n\n| 4 | s | o | `cell-a e` |\n";
    let named =
        Row { number: 1, says: ["s", "o"], tests: vec!["cell-a::suite b::c", "cell-a d"], reason: None };
    let reasoned = Row { number: 2, says: ["s", "o"], tests: Vec::new(), reason: Some("why") };
    assert_eq!(rows(text), [Some(named), Some(reasoned), None]);

    let packages = BTreeMap::from([("cell-a".to_owned(), "crates/a".to_owned())]);
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let all = [
        source("crates/a/src/b.rs", "#[test]\n#[ignore]\nfn c() {}\n\nfn helper() {}\n"),
        source("crates/a/tests/suite/d/mod.rs", "    #[test]\n    fn e(x in 0..1) {}\n"),
        source("crates/a/tests/f.rs", "#[test]\nfn g() {}\n"),
        source("crates/a/src/lib.rs", "#[test]\nfn h() {}\n"),
    ];
    for name in ["cell-a b::tests::c", "cell-a::suite d::e", "cell-a::f g", "cell-a tests::h"] {
        assert_eq!(fault(&packages, &all, name), None, "{name}");
    }
    for name in ["cell-a b::tests::helper", "cell-a b::d", "cell-b b::c", "cell-a", "cell-a::suite b::c"] {
        assert!(fault(&packages, &all, name).is_some(), "{name}");
    }
}
