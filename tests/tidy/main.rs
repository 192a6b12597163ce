//! Holds the code to the map, and the map to the code: the crate graph, where unsafe may live, the shape of
//! files.

mod circles;
mod clocks;
mod crates;
mod errors;
mod functions;
mod map;
mod mutants;
mod names;
mod scenarios;
mod source;
mod tree;
mod walks;
mod walls;

/// Fails with every violation at once, one a line.
fn demand_none(what: &str, violations: &[String]) {
    assert!(violations.is_empty(), "{what}:\n  {}", violations.join("\n  "));
}
