//! Walls within crates, and around one: what some files may name, and no other.

use crate::demand_none;
use crate::source::code;
use crate::tree::{Source, sources};

/// Where the unit tests of a file begin.
const TESTS: &str = "#[cfg(test)]\nmod tests {";

struct Wall {
    /// What is named.
    what: &'static str,
    /// The crate that it counts for; empty: all.
    crate_folder: &'static str,
    /// Files and folders of it that may.
    may: &'static [&'static str],
    why: &'static str,
}

const WALLS: [Wall; 3] = [
    Wall {
        what: "crate::providers",
        crate_folder: "crates/cluster/src/",
        // Of them it is the words of an error, and of a setting.
        may: &["providers/", "error.rs", "settings.rs"],
        why: "the typed rows know no provider of a coordinator",
    },
    Wall {
        what: "rustls",
        crate_folder: "crates/fabric/src/",
        may: &["tls/", "tls_failure.rs"],
        why: "TLS is between sockets and the table of connections, in one place",
    },
    Wall {
        what: "to_socket_addrs",
        crate_folder: "",
        may: &["crates/resolver/"],
        why: "the system's resolver may hang: names are looked up by cell-resolver, within a time",
    },
];

fn passed(wall: &Wall, sources: &[Source]) -> Vec<String> {
    let mut violations = Vec::new();
    for Source { path, text } in sources {
        let Some(file) = path.strip_prefix(wall.crate_folder) else { continue };
        if wall.may.iter().any(|permitted| file.starts_with(permitted)) {
            continue;
        }
        let production = text.split(TESTS).next().unwrap_or_default();
        if let Some(index) = production.lines().position(|line| code(line).contains(wall.what)) {
            violations.push(format!("{path}:{}: {}", index + 1, wall.why));
        }
    }
    violations
}

#[test]
fn walls_within_crates_stand() {
    let sources = sources();
    let violations: Vec<String> = WALLS.iter().flat_map(|wall| passed(wall, &sources)).collect();
    demand_none("walls within crates", &violations);
}

#[test]
fn wall_that_is_passed_is_found_and_comments_and_tests_pass_none() {
    let named = |path: &str, text: &str| {
        let source = Source { path: path.to_owned(), text: text.to_owned() };
        passed(&WALLS[0], &[source]).len()
    };
    let line = "use crate::providers::sim::Sim;\n";
    assert_eq!(named("crates/cluster/src/table.rs", line), 1);
    assert_eq!(named("crates/cluster/src/providers/sim.rs", line), 0);
    assert_eq!(named("crates/node/src/table.rs", line), 0);
    assert_eq!(named("crates/cluster/src/table.rs", &format!("// {line}{TESTS}\n    {line}}}\n")), 0);
}
