//! `/api/v1/tree/…`: where keys live, and how full the meganodes are.

mod axis;
mod buckets;
mod check;
mod heat;
mod locate;
mod meganode;
mod part;

pub(crate) use buckets::get_buckets;
pub(crate) use check::{check_operation, post_check};
pub(crate) use heat::get_heat;
pub(crate) use locate::{get_locate, place};
pub(crate) use meganode::{get_meganode, get_tree_node};
#[cfg(test)]
pub(crate) use part::tests::shape as test_shape;

use cell_node::LookError;

use crate::problem::Problem;

/// A look that failed for now.
fn explain(error: LookError) -> Problem {
    let next = match error {
        LookError::Busy => "ask again when the node serves",
        _ => "ask again",
    };
    Problem::unavailable(format!("The meganode cannot be looked at: {error}.")).next(next)
}
