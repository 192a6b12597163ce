//! A router and a meganode of entries are not taken for one another, by whatever pointer a reader came.
#![allow(clippy::unwrap_used, reason = "a test's helper may give up")]

#[test]
fn router_is_no_meganode_of_entries_to_any_reader() {
    assert!(crate::harness::role::routers_are_no_meganodes_of_entries());
}
