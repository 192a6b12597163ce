//! A map that drifts is worse than none: the folders that README.md and ARCHITECTURE.md name are those that
//! exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use toml::{Table, Value};

use crate::demand_none;
use crate::tree::root;

fn members() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace has a manifest");
    let manifest: Table = text.parse().expect("it is TOML");
    let members = manifest["workspace"]["members"].as_array().expect("members is a list");
    members.iter().filter_map(|member| member.as_str().map(str::to_owned)).collect()
}

/// Folders named in the first cells of the table under `## The map`.
fn folders_of_map(document: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(document))
        .unwrap_or_else(|error| panic!("{document} cannot be read: {error}"));
    let section = text.split("\n## The map").nth(1).unwrap_or_else(|| panic!("{document} has no map"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    // Odd pieces between backticks are the names.
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned)).collect()
}

#[test]
fn documents_maps_are_the_folders_map() {
    let members = members();
    let mut violations = Vec::new();
    for document in ["README.md", "ARCHITECTURE.md"] {
        let named: BTreeSet<String> =
            folders_of_map(document).into_iter().map(|name| name.trim_end_matches('/').to_owned()).collect();
        let covered = |folder: &&String| named.iter().any(|name| Path::new(folder).starts_with(name));
        let lacking = members.iter().filter(|folder| !covered(folder));
        violations.extend(lacking.map(|folder| format!("{document} lacks {folder}")));
        violations.extend(
            named
                .iter()
                .filter(|folder| !root().join(folder).is_dir())
                .map(|folder| format!("{document} names {folder}, which is not there")),
        );
    }
    demand_none("maps that drifted", &violations);
}

/// Crate and files of each row under `## Inside the crates`.
fn rows_of_files(text: &str) -> Vec<(&str, Vec<&str>)> {
    let section = text.split("\n## Inside the crates").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let row = |line| {
        let mut cells = str::split(line, '|').skip(1).map(str::trim);
        let (folder, files) = (cells.next()?, cells.next()?);
        Some((folder, files.split('`').skip(1).step_by(2).collect::<Vec<_>>()))
    };
    section.lines().filter_map(row).filter(|(_, files)| !files.is_empty()).collect()
}

#[test]
fn files_that_the_architecture_names_are_there() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is there");
    let rows = rows_of_files(&text);
    assert!(rows.len() > 30, "the table was found: {} rows", rows.len());
    let mut violations = Vec::new();
    for (name, files) in rows {
        let folder = [root().join("crates").join(name), root().join(name)].into_iter().find(|at| at.is_dir());
        let folder = folder.unwrap_or_else(|| panic!("{name} is no crate")).join("src");
        let is_there = |file: &&&str| match file.strip_suffix('/') {
            Some(inner) => folder.join(inner).is_dir(),
            None => folder.join(format!("{file}.rs")).is_file() || folder.join(file).is_dir(),
        };
        let lost = files.iter().filter(|file| !is_there(file));
        violations.extend(lost.map(|file| format!("{name}: {file}")));
    }
    demand_none("files of the code map that are not there", &violations);
}

#[test]
fn toolchain_is_pinned_to_the_workspaces_version() {
    let read = |name: &str| -> Table {
        let text = fs::read_to_string(root().join(name)).expect("it is there");
        text.parse().expect("it is TOML")
    };
    let pinned = read("rust-toolchain.toml");
    let channel = pinned["toolchain"]["channel"].as_str().expect("a channel is named").to_owned();
    let workspace = read("Cargo.toml");
    let wanted = workspace["workspace"]["package"]["rust-version"].as_str().map(str::to_owned);
    assert!(wanted.is_some_and(|wanted| channel.starts_with(&wanted)), "{channel}");
    assert!(matches!(pinned["toolchain"].get("components"), Some(Value::Array(_))));
}
