//! The rules. Some are held while the world turns (`model`, `serving`), these here:
//!
//! - after each recovery, before the pair is served: every structural invariant of the tree, every extent's
//!   checksum, by the production check; then what the memory holds is read entry by entry and goes into the
//!   history as reads of all keys, so that a lost or half applied write, a phantom, or a read of what was
//!   later lost shows up there;
//! - each answer against what was asked: bytes that somebody wrote to that key, versions that only grow,
//!   pages in order, without gaps, within their range;
//! - at the end: each key's history is linearizable (Wing and Gong), with writes of unknown outcome taking
//!   effect once or never. An unacknowledged batch that somebody had read, a write applied twice, a retried
//!   condition decided twice, a lost delete are all histories that are not;
//! - at the end, and again after all processes were started anew: each pair of the region table is served by
//!   its owner (`finale`).
//!
//! Of runs with async durability, whose crashes may lose what was acknowledged, all is held but what depends
//! on the history: no phantom, no damage, no refusal, no operation that is never answered.
//!
//! Not checked: order across keys (the store promises none), none durability.

use std::collections::BTreeSet;

use cell_client::{ClientError, Completion, Fate, Output, ScanPage};
use cell_memory::extent::{ExtentReader, ExtentShape};
use cell_pair::{CheckTarget, check};
use cell_protocol::{Bound, EntryValue, Found, Refusal};
use cell_recovery::{Recovered, SlotUse, SourceSplit, SourceState, SplitName};
use cell_terms::Version;
use cell_tests::checker;
use cell_tests::linearizability::{Call, Outcome, WrittenValue};
use cell_tree::{LeafSnapshot, Meganode, NodeIndex, TreeNodeState};

use crate::action::{Action, Range};
use crate::client::Asked;
use crate::coverage::{Coverage, Event};
use crate::model::{Broken, Model, Started, broken};

/// Values above this many bytes go in chunks.
const STREAM_BYTES: usize = 63 << 10;

/// An entry as a recovery found it.
pub type Entry = (Vec<u8>, Version, Vec<u8>);

/// Keys from the low one on, below the high one.
type Fences = (Vec<u8>, Option<Vec<u8>>);

/// What a recovered pair holds, by key.
pub struct Snapshot {
    entries: Vec<Entry>,
    /// The ranges that it holds: what is not among the entries is not there.
    ranges: Vec<Fences>,
    /// What it has adopted and shows nobody yet: whether it is the truth, its source knows.
    hidden: Vec<(SplitName, Fences, Vec<Entry>)>,
    /// Splits whose upper half has surely left this pair.
    truncated: Vec<SplitName>,
    /// Tree nodes in use.
    pub tree_nodes: u64,
}

/// Looks at a recovered pair before anybody is served.
///
/// # Errors
/// It breaks a rule.
pub fn examine(recovered: &Recovered) -> Result<Snapshot, Broken> {
    let mut snapshot = Snapshot {
        entries: Vec::new(),
        ranges: Vec::new(),
        hidden: Vec::new(),
        truncated: recovered
            .splits
            .sources()
            .filter(|(_, source)| is_truncated(source))
            .map(|(name, _)| name)
            .collect(),
        tree_nodes: 0,
    };
    examine_pair(recovered, &mut snapshot)?;
    let names = snapshot.truncated.clone();
    snapshot.show(&names);
    if let Some(twice) = snapshot.entries.windows(2).find(|two| two[0].0 == two[1].0) {
        return Err(broken(format_args!("{:x?} is in two meganodes after a recovery", twice[0].0)));
    }
    let beyond = |version: &Version| {
        let own = version.pair == recovered.pair;
        own && (version.csn > recovered.csn_cut || version.epoch >= recovered.epoch)
    };
    let hidden = snapshot.hidden.iter().flat_map(|(_, _, entries)| entries);
    if let Some((key, version, _)) =
        snapshot.entries.iter().chain(hidden).find(|(_, version, _)| beyond(version))
    {
        return Err(broken(format_args!("{key:x?} has version {version}, beyond the cut")));
    }
    Ok(snapshot)
}

fn is_truncated(source: &SourceSplit) -> bool {
    matches!(source.state, SourceState::Applied | SourceState::Finished)
}

fn examine_pair(recovered: &Recovered, snapshot: &mut Snapshot) -> Result<(), Broken> {
    let mut entries = 0;
    for found in &recovered.meganodes {
        let target = CheckTarget {
            node: recovered.memory.node.region().clone(),
            extent: recovered.memory.extent.region().clone(),
            geometry: recovered.geometry,
            slot: found.slot,
            nodes_end: found.allocator.high_water(),
            router: found.used == SlotUse::Router,
        };
        let meganode = Meganode::new(&target.node, target.geometry, target.slot);
        let meganode = meganode.with_role(found.used.role());
        let state = if found.hidden { TreeNodeState::Hidden } else { TreeNodeState::Valid };
        meganode
            .validate_as(state, true)
            .map_err(|violation| broken(format_args!("after a recovery: {violation}")))?;
        if found.used != SlotUse::Leaf {
            continue;
        }
        let fences = (found.low.clone(), found.high.clone());
        if found.hidden {
            let split = recovered.splits.target_of(found.slot.index);
            let held = read_all(&target)?;
            snapshot.hidden.extend(split.map(|(name, _)| (name, fences, held)));
            continue;
        }
        let outcome = check(std::slice::from_ref(&target), || {});
        if outcome.violations > 0 {
            return Err(broken(format_args!("after a recovery: {}", outcome.first_violation)));
        }
        entries += outcome.entries;
        snapshot.tree_nodes += outcome.tree_nodes;
        snapshot.entries.extend(read_all(&target)?);
        snapshot.ranges.push(fences);
    }
    if entries != recovered.entries {
        return Err(broken(format_args!("{entries} entries, recovery counted {}", recovered.entries)));
    }
    Ok(())
}

/// All entries of a meganode, hidden or not, in key order.
fn read_all(target: &CheckTarget) -> Result<Vec<(Vec<u8>, Version, Vec<u8>)>, Broken> {
    let meganode = Meganode::new(&target.node, target.geometry, target.slot);
    let (mut leaf, mut reader) = (LeafSnapshot::new(), ExtentReader::new());
    let mut words = vec![0; target.geometry.node_words()];
    let mut entries = Vec::new();
    for node in (0..target.nodes_end.0).map(NodeIndex) {
        if !meganode.copy_node(node, &mut words).map_err(broken)?.snapshot_built(&mut leaf) {
            continue;
        }
        for (key, entry) in leaf.iter() {
            let shape = ExtentShape::from_bits(entry.value_len).ok_or_else(|| broken("a leaf's shape"))?;
            let view = reader.read(&target.extent, entry.offset, shape, entry.crc).map_err(broken)?;
            let version = view.header.version(target.node.spec().pair);
            entries.push((key.to_vec(), version, view.value.to_vec()));
        }
    }
    Ok(entries)
}

impl Snapshot {
    /// Splits whose upper half has surely left the pair.
    #[must_use]
    pub fn truncated(&self) -> &[SplitName] {
        &self.truncated
    }

    /// These splits' sources are truncated: what was adopted by them is the truth.
    pub fn show(&mut self, names: &[SplitName]) {
        for (name, fences, entries) in std::mem::take(&mut self.hidden) {
            if names.contains(&name) {
                self.entries.extend(entries);
                self.ranges.push(fences);
            } else {
                self.hidden.push((name, fences, entries));
            }
        }
        self.entries.sort();
    }

    fn covers(&self, key: &[u8]) -> bool {
        let within = |(low, high): &Fences| {
            low.as_slice() <= key && high.as_ref().is_none_or(|high| key < high.as_slice())
        };
        self.ranges.iter().any(within)
    }

    /// Holds a recovered pair against the model, and notes it as a read of every key that it speaks for.
    ///
    /// # Errors
    /// It has what nobody wrote, or an older version than somebody has seen.
    pub fn note(&self, model: &mut Model) -> Result<(), Broken> {
        let started = model.begin();
        let mut found: Vec<Option<WrittenValue>> = vec![None; model.keys.len()];
        for (key, version, value) in &self.entries {
            let at = model.by_bytes.get(key).copied();
            let at = at.ok_or_else(|| broken(format_args!("phantom key {key:x?} after a recovery")))?;
            let name = model.name_of(value)?;
            model.saw(at, *version, name, started)?;
            found[at] = Some(name);
        }
        let returned = model.now();
        for (key, value) in found.into_iter().enumerate() {
            if self.covers(&model.keys[key].bytes) {
                model.record(key, Call::Get, Outcome::Found(value), started, returned);
            }
        }
        Ok(())
    }

    /// Takes an entry out, for tests of the checks.
    pub fn lose_entry(&mut self) -> bool {
        self.entries.pop().is_some()
    }
}

/// What pairs hold together, wherever it is.
#[must_use]
pub fn entries_of<'s>(pairs: impl Iterator<Item = &'s Snapshot>) -> BTreeSet<&'s Entry> {
    pairs.flat_map(|pair| &pair.entries).collect()
}

/// Takes a client's answer into the model.
///
/// # Errors
/// The answer cannot be right.
pub fn answered(
    asked: &Asked,
    completion: &Completion,
    model: &mut Model,
    coverage: &mut Coverage,
) -> Result<(), Broken> {
    coverage.saw(Event::Operations);
    let returned = model.now();
    let Asked { action, started } = asked;
    model.writing(action, -1);
    match (action, &completion.outcome) {
        (Action::Write { key, call, value, .. }, outcome) => {
            write_answered(*key, *call, value, *started, returned, outcome, model, coverage)
        }
        (_, Err(error)) => read_failed(error),
        (_, Ok(output)) => read_answered(action, *started, returned, output, model, coverage),
    }
}

/// Whether an answer says what became of the operation.
#[must_use]
pub fn is_completed(outcome: &Result<Output, ClientError>) -> bool {
    match outcome {
        Err(ClientError::Deadline { .. }) => false,
        Err(error) => error.fate() != Fate::Unknown,
        Ok(_) => true,
    }
}

/// A client ended with this unanswered.
pub fn abandoned(asked: &Asked, model: &mut Model, coverage: &mut Coverage) {
    model.writing(&asked.action, -1);
    if let Action::Write { key, call, .. } = &asked.action {
        model.record(*key, *call, Outcome::Unknown, asked.started, u64::MAX);
        coverage.saw(Event::Unknown);
    }
}

#[allow(clippy::too_many_arguments, reason = "one answer, taken apart")]
fn write_answered(
    key: usize,
    call: Call,
    value: &[u8],
    started: Started,
    returned: u64,
    outcome: &Result<Output, ClientError>,
    model: &mut Model,
    coverage: &mut Coverage,
) -> Result<(), Broken> {
    let known = match outcome {
        Ok(Output::Written(version)) => {
            let name = model.name_of(value)?;
            model.saw(key, *version, name, started)?;
            coverage.add(Event::Streams, u64::from(value.len() > STREAM_BYTES));
            Outcome::Done
        }
        Ok(Output::Deleted(true)) => Outcome::Done,
        Ok(Output::Deleted(false)) => Outcome::Refused,
        Err(ClientError::ConditionFailed { current }) => {
            coverage.saw(Event::ConditionFailed);
            match current {
                Some(version) => {
                    model.saw_version(key, *version, started)?;
                    model.glimpse(key, *version, started, returned);
                }
                None => model.record(key, Call::Get, Outcome::Found(None), started, returned),
            }
            Outcome::Refused
        }
        Err(error) if error.fate() == Fate::Unknown => {
            coverage.saw(Event::Unknown);
            Outcome::Unknown
        }
        Err(ClientError::Refused(Refusal::ReadOnly { .. })) => {
            coverage.saw(Event::ReadOnly);
            return Ok(()); // surely not done, so it has no place in the history
        }
        Err(ClientError::Deadline { .. }) => return Ok(()),
        other => return Err(broken(format_args!("a write was answered by {other:?}"))),
    };
    coverage.add(Event::Acknowledged, u64::from(known == Outcome::Done));
    model.record(key, call, known, started, returned);
    Ok(())
}

fn read_failed(error: &ClientError) -> Result<(), Broken> {
    match error {
        ClientError::Deadline { .. } => Ok(()),
        error => Err(broken(format_args!("a read was answered by {error:?}"))),
    }
}

fn read_answered(
    action: &Action,
    started: Started,
    returned: u64,
    output: &Output,
    model: &mut Model,
    coverage: &mut Coverage,
) -> Result<(), Broken> {
    let mut read = |key: usize, outcome: Outcome, model: &mut Model| {
        coverage.saw(Event::Reads);
        model.record(key, Call::Get, outcome, started, returned);
    };
    match (action, output) {
        (Action::Get(key), Output::Value(item)) => {
            let name = item.as_ref().map(|item| model.name_of(&item.value)).transpose()?;
            if let (Some(item), Some(name)) = (item, name) {
                model.saw(*key, item.version, name, started)?;
                coverage.add(Event::Streams, u64::from(item.value.len() > STREAM_BYTES));
            }
            coverage.saw(Event::Reads);
            model.record(*key, Call::Get, Outcome::Found(name), started, returned);
            Ok(())
        }
        (Action::Search(key), Output::Exists(exists)) => {
            read(*key, if *exists { Outcome::Exists } else { Outcome::Found(None) }, model);
            Ok(())
        }
        (Action::MultiGet(keys), Output::Values(values)) => {
            for (key, found) in keys.iter().zip(values.iter()) {
                match found {
                    Found::Absent => read(*key, Outcome::Found(None), model),
                    Found::Value { version, value } => {
                        let name = model.name_of(value)?;
                        model.saw(*key, version, name, started)?;
                        read(*key, Outcome::Found(Some(name)), model);
                    }
                    Found::Large { version, .. } => {
                        model.saw_version(*key, version, started)?;
                        model.glimpse(*key, version, started, returned);
                    }
                }
            }
            Ok(())
        }
        (Action::Scan(range), Output::Page(page)) => {
            coverage.saw(Event::Pages);
            page_answered(range, page, started, returned, model)
        }
        (Action::Check, Output::Checked(result)) => {
            coverage.saw(Event::Checks);
            let report = result.report();
            if report.violations > 0 {
                return Err(broken(format_args!("a check found: {}", report.first_violation)));
            }
            Ok(())
        }
        (action, output) => Err(broken(format_args!("{action:?} was answered by {output:?}"))),
    }
}

/// A page says of every key in what it covers whether it is there.
fn page_answered(
    range: &Range,
    page: &ScanPage,
    started: Started,
    returned: u64,
    model: &mut Model,
) -> Result<(), Broken> {
    let covered = covered(range, page);
    let limit = range.limit_entries as usize;
    if limit > 0 && page.len() > limit {
        return Err(broken(format_args!("a page of {} entries, {limit} were wanted", page.len())));
    }
    let mut found = std::collections::BTreeMap::new();
    let mut last: Option<Vec<u8>> = None;
    for entry in page.iter() {
        let ordered = last.as_ref().is_none_or(|last| (last.as_slice() < entry.key) != range.reverse);
        if !ordered || last.as_deref() == Some(entry.key) || !covered.contains(entry.key) {
            return Err(broken(format_args!("page of {range:?}: {:x?} after {last:x?}", entry.key)));
        }
        last = Some(entry.key.to_vec());
        let key = model.by_bytes.get(entry.key).copied();
        let key = key.ok_or_else(|| broken(format_args!("phantom key {:x?} in a page", entry.key)))?;
        let name = match entry.value {
            EntryValue::Inline(value) => Some(model.name_of(value)?),
            EntryValue::Large { .. } | EntryValue::Omitted { .. } => None,
        };
        match name {
            Some(name) => model.saw(key, entry.version, name, started)?,
            None => model.saw_version(key, entry.version, started)?,
        }
        found.insert(key, (name, entry.version));
    }
    let from = model.by_bytes.range::<[u8], _>((covered.lower(), std::ops::Bound::Unbounded));
    let within: Vec<usize> = from.take_while(|(key, _)| covered.ends_after(key)).map(|(_, at)| *at).collect();
    for key in within {
        match found.get(&key) {
            Some((Some(name), _)) => {
                model.record(key, Call::Get, Outcome::Found(Some(*name)), started, returned)
            }
            Some((None, version)) => model.glimpse(key, *version, started, returned),
            None => model.record(key, Call::Get, Outcome::Found(None), started, returned),
        }
    }
    Ok(())
}

/// The part of a range that a page speaks for.
fn covered(range: &Range, page: &ScanPage) -> Range {
    // Where the scan goes on is where this page ends, the other way round.
    let rest = match page.resume() {
        Bound::Unbounded => return range.clone(),
        Bound::Included(key) => (key.to_vec(), false),
        Bound::Excluded(key) => (key.to_vec(), true),
    };
    let mut covered = range.clone();
    if range.reverse {
        covered.start = Some(rest);
    } else {
        covered.end = Some(rest);
    }
    covered
}

/// What follows a page, if anything does.
#[must_use]
pub fn next_range(range: &Range, page: &ScanPage) -> Option<Range> {
    let rest = match page.resume() {
        Bound::Unbounded => return None,
        Bound::Included(key) => (key.to_vec(), true),
        Bound::Excluded(key) => (key.to_vec(), false),
    };
    let mut next = range.clone();
    if range.reverse {
        next.end = Some(rest);
    } else {
        next.start = Some(rest);
    }
    Some(next)
}

/// Whether every key's history fits together.
///
/// # Errors
/// The key whose history does not.
pub fn linearizable(model: &mut Model) -> Result<(), Broken> {
    if model.forgets {
        return Ok(());
    }
    model.settle_glimpses();
    for (number, key) in model.keys.iter().enumerate() {
        checker::check(&key.operations, None).map_err(|violation| {
            broken(format_args!("key {number} ({:x?}): {violation:?}\n{}", key.bytes, history(key)))
        })?;
    }
    Ok(())
}

/// The last writes and reads of a key, for people.
fn history(key: &crate::model::Key) -> String {
    let mut operations = key.operations.clone();
    operations.sort_by_key(|operation| operation.invoked);
    let lines = operations.iter().map(|operation| {
        let returned =
            if operation.returned == u64::MAX { "never".to_owned() } else { operation.returned.to_string() };
        format!("  {}..{returned} {:?} -> {:?}", operation.invoked, operation.call, operation.outcome)
    });
    lines.collect::<Vec<_>>().join("\n")
}
