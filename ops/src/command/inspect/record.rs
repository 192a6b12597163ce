//! Log records in words.

use cell_recovery::{ExtentRecord, NodeRecord, SlotUse, SplitRecord, WriteCompletion, WriteOutcome};
use cell_terms::RegionKind;
use cell_tree::{Change, TreeNodeState};

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
            Ok(NodeRecord::Split(record)) => split_words(&record),
            Ok(NodeRecord::RootSet(root)) => format!("root is {root}"),
            Ok(NodeRecord::SlotUse { slot, used }) => format!("{slot} holds {}", use_words(used)),
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
        Change::Truncate { node, high, right } => {
            format!("{node:?} truncated at {}, right {right}", display_key(high))
        }
        Change::Fill { node, .. } => format!("{node:?} fill"),
        Change::Mark { node, state } => {
            let state = match state {
                TreeNodeState::Free => "free",
                TreeNodeState::Hidden => "hidden",
                TreeNodeState::Valid => "valid",
            };
            format!("{node:?} mark {state}")
        }
    }
}

fn use_words(used: SlotUse) -> &'static str {
    match used {
        SlotUse::Free => "nothing",
        SlotUse::Leaf => "a meganode",
        SlotUse::Router => "a router",
    }
}

fn split_words(record: &SplitRecord<'_>) -> String {
    match record {
        SplitRecord::Start { slot, key, target, target_slot } => {
            format!("split of {slot} at {} into {target_slot} of {target} starts", display_key(key))
        }
        SplitRecord::Adopt { name, slot, low, high, right, kept } => {
            let high = high.map_or("the end".into(), |high| display_key(high).to_string());
            let keys = format!("{} to {high}", display_key(low));
            format!("{name}: {slot} adopts {keys}, right {right}, {} bytes of completions", kept.len())
        }
        SplitRecord::Adopted { name, slot, nodes, entries } => {
            format!("{name}: {slot} has adopted {entries} entries in {nodes} tree nodes")
        }
        SplitRecord::Merge { slot, key, target, target_slot } => {
            format!("merge of {slot} from {} on into {target_slot} of {target} starts", display_key(key))
        }
        SplitRecord::Absorb { name, slot, low, high, right, kept } => {
            let high = high.map_or("the end".into(), |high| display_key(high).to_string());
            let keys = format!("{} to {high}", display_key(low));
            format!("{name}: {slot} takes over {keys}, right {right}, {} bytes of completions", kept.len())
        }
        SplitRecord::Retired { name, slot } => format!("{name}: {slot} is retired"),
        SplitRecord::Linked { name } => format!("{name}: linked"),
        SplitRecord::Applied { name, slot, right, boundary, high, freed } => {
            let (boundary, freed) = (boundary.nodes().len(), freed.len());
            let high = display_key(high);
            format!(
                "{name}: {slot} is truncated at {high}, right {right}: {boundary} nodes truncated, {freed} freed"
            )
        }
        SplitRecord::Opened { name } => format!("{name}: opened"),
        SplitRecord::Finished { name } => format!("{name}: finished"),
        SplitRecord::Aborted { name } => format!("{name}: aborted"),
        SplitRecord::Discarded { name, slot } => format!("{name}: {slot} is discarded"),
    }
}

fn completion_words(completion: &WriteCompletion) -> String {
    let outcome = match completion.outcome {
        WriteOutcome::Written { version, .. } => format!("written {version}"),
        WriteOutcome::Deleted => "deleted".into(),
        WriteOutcome::NotFound => "not found".into(),
        WriteOutcome::ConditionFailed { .. } => "condition failed".into(),
    };
    format!("{} {} {outcome}, floor {}", completion.session, completion.number, completion.floor.0)
}
