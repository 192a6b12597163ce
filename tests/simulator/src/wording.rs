//! What happens, in words, for whoever looks for the cause of a failure.

use cell_client::{Completion, Output};

use crate::action::Action;
use crate::client::Asked;

/// An answer and what it answers.
#[must_use]
pub fn answer(asked: &Asked, completion: &Completion) -> String {
    let action = match &asked.action {
        Action::Write { key, call, value, .. } => format!("{call:?} of key {key}, {} bytes", value.len()),
        other => format!("{other:?}"),
    };
    let outcome = match &completion.outcome {
        Ok(Output::Value(item)) => {
            format!("{:?}", item.as_ref().map(|item| (item.version, item.value.len())))
        }
        Ok(Output::Page(page)) => {
            format!("{} entries, done {}, goes on {:x?}", page.len(), page.is_done(), page.resume())
        }
        Ok(Output::Values(values)) => format!("{} values", values.len()),
        other => format!("{other:?}"),
    };
    format!("[{}] {action} -> {outcome} after {} us", asked.started.at, completion.elapsed_ns / 1_000)
}
