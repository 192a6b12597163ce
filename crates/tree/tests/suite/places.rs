//! Plans that are applied after another change.

use crate::harness;

#[test]
fn entry_that_was_planned_before_another_change_goes_where_it_belongs_now() {
    assert!(harness::places::entries_go_where_they_belong());
}
