//! The crate graph is that of ARCHITECTURE.md ("The map"): floors, who may use whom, and which outside crates
//! stay behind which walls.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use toml::{Table, Value};

use crate::demand_none;
use crate::source::code;
use crate::tree::{root, sources};

/// Crate, folder, floor, and the crates that it may use (`None`: all of lower floors).
const MAP: &[(&str, &str, u8, Option<&[&str]>)] = &[
    ("terms", "crates/terms", 1, None),
    ("random", "crates/random", 1, Some(&[])),
    ("linearizability", "crates/linearizability", 1, Some(&[])),
    ("resolver", "crates/resolver", 1, Some(&[])),
    ("durable", "crates/durable", 2, Some(&["terms"])),
    ("selector", "crates/selector", 2, Some(&["terms"])),
    ("placement", "crates/placement", 2, Some(&["terms", "random"])),
    ("tree", "crates/tree", 2, None),
    ("memory", "crates/memory", 2, None),
    ("wal", "wal", 3, Some(&["terms", "random", "memory", "durable"])),
    ("cluster", "crates/cluster", 3, Some(&["terms", "durable", "resolver"])),
    ("protocol", "crates/protocol", 3, Some(&["terms"])),
    ("fabric", "crates/fabric", 3, Some(&["terms", "random", "memory"])),
    ("recovery", "recovery", 4, Some(&["terms", "wal", "cluster", "memory", "tree"])),
    (
        "client",
        "crates/client",
        4,
        Some(&["terms", "random", "resolver", "fabric", "protocol", "selector", "tree", "memory"]),
    ),
    ("settings", "crates/settings", 4, Some(&["terms"])),
    ("pair", "crates/pair", 5, Some(&["terms", "memory", "tree", "wal", "recovery"])),
    (
        "drill",
        "crates/drill",
        6,
        Some(&["terms", "resolver", "cluster", "client", "fabric", "linearizability"]),
    ),
    ("node", "node", 6, None),
    ("web", "web", 7, None),
    ("ops", "ops", 8, None),
    ("test-kit", "tests/kit", 6, Some(&["terms", "cluster", "memory", "wal", "recovery", "pair"])),
    ("tests", "tests", 8, None),
    ("simulator", "tests/simulator", 10, None),
    ("paper", "benches/paper", 9, Some(&["terms", "selector"])),
    ("benches", "benches", 10, None),
];

/// What tests on lower floors may use as well: the one write path of a pair, and a process with pairs in a
/// box.
const TESTS_MAY_USE: &[&str] = &["pair", "test-kit"];

/// Outside crates that only some of ours may see.
const WALLS: &[(&str, &[&str])] = &[
    ("sled", &["cluster"]),
    ("io-uring", &["wal", "benches"]),
    ("axum", &["web"]),
    ("tower-http", &["web"]),
    ("tokio", &["web", "ops", "client", "benches"]), // in client: `aio/` alone, see below
    ("anyhow", &["ops"]),
    ("masstree", &["benches"]),
    ("lmdb-rkv", &["benches"]), // by a feature that no build has by default
    ("mimalloc", &["simulator"]),
    ("clap", &["ops", "benches", "paper", "simulator"]),
    ("indicatif", &["ops"]),
    ("zstd", &["wal", "ops"]),
];

fn manifest(folder: &str) -> Table {
    let path = root().join(folder).join("Cargo.toml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names in `[dependencies]` and the like, of every target and whatever they are renamed to.
fn dependencies(manifest: &Table, kinds: &[&str]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = std::iter::once(manifest)
        .chain(targets.into_iter().flat_map(Table::values).filter_map(Value::as_table));
    for table in tables {
        for kind in kinds {
            for (name, value) in table.get(*kind).and_then(Value::as_table).into_iter().flatten() {
                let renamed = value.get("package").and_then(Value::as_str);
                names.insert(renamed.unwrap_or(name).to_owned());
            }
        }
    }
    names
}

fn floors() -> BTreeMap<&'static str, u8> {
    MAP.iter().map(|(name, _, floor, _)| (*name, *floor)).collect()
}

#[test]
fn workspace_members_are_the_maps_crates() {
    let workspace = manifest("");
    let members: BTreeSet<&str> = workspace["workspace"]["members"]
        .as_array()
        .expect("members is a list")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(members, MAP.iter().map(|(_, folder, ..)| *folder).collect());
    for (name, folder, ..) in MAP {
        let package = manifest(folder);
        assert_eq!(package["package"]["name"].as_str(), Some(format!("cell-{name}").as_str()));
        let inherits = package.get("lints").and_then(|lints| lints.get("workspace"));
        assert_eq!(inherits.and_then(Value::as_bool), Some(true), "{folder} does not take the lints");
    }
}

#[test]
fn crates_use_only_lower_floors_and_what_they_need() {
    let floors = floors();
    let mut violations = Vec::new();
    for (name, folder, floor, allowed) in MAP {
        let manifest = manifest(folder);
        let linked = dependencies(&manifest, &["dependencies", "build-dependencies"]);
        for used in linked.iter().filter_map(|used| used.strip_prefix("cell-")) {
            let listed = allowed.is_none_or(|list| list.contains(&used));
            if floors.get(used).is_none_or(|used_floor| used_floor >= floor) || !listed {
                violations.push(format!("{name} uses {used}"));
            }
        }
        // A crate's own tests may stand beside it.
        let tested = dependencies(&manifest, &["dev-dependencies"]);
        for used in tested.iter().filter_map(|used| used.strip_prefix("cell-")) {
            let is_above = floors.get(used).is_none_or(|used_floor| used_floor > floor);
            if is_above && !TESTS_MAY_USE.contains(&used) {
                violations.push(format!("{name}'s tests use {used}"));
            }
        }
    }
    demand_none("dependencies against the map of ARCHITECTURE.md", &violations);
}

#[test]
fn product_never_links_tests_or_benches() {
    let mut violations = Vec::new();
    for (name, folder, floor, _) in MAP.iter().filter(|(_, _, floor, _)| *floor <= 7) {
        let used =
            dependencies(&manifest(folder), &["dependencies", "build-dependencies", "dev-dependencies"]);
        for outside in ["cell-tests", "cell-simulator", "cell-paper", "cell-benches"] {
            if used.contains(outside) {
                violations.push(format!("{name} (floor {floor}) uses {outside}"));
            }
        }
        // Their own tests may.
        if dependencies(&manifest(folder), &["dependencies", "build-dependencies"]).contains("cell-test-kit")
        {
            violations.push(format!("{name} (floor {floor}) is linked to cell-test-kit"));
        }
    }
    demand_none("tests and benches linked by the product", &violations);
}

#[test]
fn outside_crates_stay_behind_their_walls() {
    let mut violations = Vec::new();
    for (name, folder, ..) in MAP {
        let used = dependencies(&manifest(folder), &["dependencies", "build-dependencies"]);
        for (outside, inside) in WALLS {
            if used.contains(*outside) && !inside.contains(name) && *name != "tests" {
                violations.push(format!("{name} uses {outside}, which only {inside:?} may"));
            }
        }
    }
    demand_none("outside crates where they do not belong", &violations);
}

#[test]
fn runtime_of_the_client_stays_in_its_shell() {
    let (inside, outside): (Vec<_>, Vec<_>) = sources()
        .into_iter()
        .filter(|source| source.path.starts_with("crates/client/src/"))
        .filter(|source| source.text.lines().any(|line| code(line).contains("tokio::")))
        .map(|source| source.path)
        .partition(|path| path.starts_with("crates/client/src/aio/"));
    assert!(!inside.is_empty());
    demand_none("files of the client outside of `aio` that name a runtime", &outside);
}

#[test]
fn default_build_is_the_product_alone() {
    let workspace = manifest("");
    let defaults = workspace["workspace"]["default-members"].as_array().expect("default-members is a list");
    assert_eq!(defaults.iter().filter_map(Value::as_str).collect::<Vec<_>>(), ["ops"]);
}
