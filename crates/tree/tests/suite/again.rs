//! A check after a check looks at what has changed.

#[test]
fn changed_nodes_are_checked_again_and_all_that_stands_between_nodes() {
    assert!(crate::harness::again::changed_nodes_are_checked_again());
}
