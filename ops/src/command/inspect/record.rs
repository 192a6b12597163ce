//! Log records in words.

use cell_recovery::{Completion, ExtentRecord, NodeRecord, Outcome};
use cell_terms::RegionKind;
use cell_tree::{Change, NodeState};

use crate::encoding::display_key;

/// What a record says; or why it cannot be read.
pub(super) fn in_words(kind: RegionKind, payload: &[u8]) -> String {
    match kind {
        RegionKind::Node => match NodeRecord::decode(payload) {
            Ok(NodeRecord::Tree { slot, completion, change }) => {
                let completed = completion.map_or(String::new(), |c| format!("; {}", completion_words(&c)));
                format!("{slot} {}{completed}", change_words(&change))
            }
            Ok(NodeRecord::Outcome(completion)) => completion_words(&completion),
            Err(error) => format!("UNREADABLE: {error}"),
        },
        RegionKind::Extent => match ExtentRecord::decode(payload) {
            Ok(record) => format!("extent at {:?}, {} bytes", record.offset, record.extent.len()),
            Err(error) => format!("UNREADABLE: {error}"),
        },
    }
}

fn change_words(change: &Change<'_>) -> String {
    match change {
        Change::Put { node, key, entry } => {
            let key = display_key(key);
            format!("{node:?} put {key} -> {:?}, {} bytes", entry.offset, entry.value_len)
        }
        Change::Remove { node, key } => format!("{node:?} remove {}", display_key(key)),
        Change::Link { node, separator, child } => {
            format!("{node:?} link {child:?} from {}", display_key(separator))
        }
        Change::Cut { node, high, right } => format!("{node:?} cut at {}, right {right}", display_key(high)),
        Change::Fill { node, .. } => format!("{node:?} fill"),
        Change::Mark { node, state } => {
            let state = match state {
                NodeState::Free => "free",
                NodeState::Hidden => "hidden",
                NodeState::Valid => "valid",
            };
            format!("{node:?} mark {state}")
        }
    }
}

fn completion_words(completion: &Completion) -> String {
    let outcome = match completion.outcome {
        Outcome::Written { version, .. } => format!("written {version}"),
        Outcome::Deleted => "deleted".into(),
        Outcome::NotFound => "not found".into(),
        Outcome::ConditionFailed { .. } => "condition failed".into(),
    };
    format!("{} {} {outcome}, floor {}", completion.session, completion.number, completion.floor.0)
}
