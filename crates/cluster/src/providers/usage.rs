//! How much there is of each kind of key, and whether there may be more. A key's kind is what is before its
//! first slash; keys without one are of one kind.

use std::collections::BTreeMap;

use crate::request::{CoordinatorRefusal, KIND_BYTES_MAX, KIND_ROWS_MAX, KINDS_MAX, KeyValue, Quota};

/// Rows and their bytes, by kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage(BTreeMap<String, Used>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    rows: usize,
    bytes: usize,
}

impl Used {
    fn of(entry: &KeyValue) -> Used {
        Used { rows: 1, bytes: entry.key.len() + entry.value.len() }
    }

    fn plus(self, other: Used) -> Used {
        Used { rows: self.rows + other.rows, bytes: self.bytes + other.bytes }
    }

    fn minus(self, other: Used) -> Used {
        Used { rows: self.rows.saturating_sub(other.rows), bytes: self.bytes.saturating_sub(other.bytes) }
    }
}

fn kind(key: &str) -> &str {
    key.split_once('/').map_or("", |(kind, _)| kind)
}

impl Usage {
    pub(crate) fn of<'a>(entries: impl IntoIterator<Item = &'a KeyValue>) -> Usage {
        let mut usage = Usage::default();
        entries.into_iter().for_each(|entry| usage.replaced(None, Some(entry)));
        usage
    }

    /// A key was written, rewritten or removed.
    pub(crate) fn replaced(&mut self, old: Option<&KeyValue>, new: Option<&KeyValue>) {
        let Some(entry) = new.or(old) else { return };
        let before = self.0.get(kind(&entry.key)).copied().unwrap_or_default();
        let [old, new] = [old, new].map(|entry| entry.map_or_else(Used::default, Used::of));
        match before.plus(new).minus(old) {
            Used { rows: 0, .. } => {
                self.0.remove(kind(&entry.key));
            }
            used => {
                self.0.insert(kind(&entry.key).to_owned(), used);
            }
        }
    }

    /// Whether a transaction leaves no kind with more than it may have. One that makes nothing more is always
    /// taken.
    pub(crate) fn admit<'a>(
        &self,
        changes: impl Iterator<Item = (Option<&'a KeyValue>, Option<&'a KeyValue>)>,
    ) -> Result<(), CoordinatorRefusal> {
        let mut after: BTreeMap<&str, (Used, Used)> = BTreeMap::new();
        for (old, new) in changes {
            let Some(entry) = new.or(old) else { continue };
            let (added, taken) = after.entry(kind(&entry.key)).or_default();
            *added = new.map_or(*added, |new| added.plus(Used::of(new)));
            *taken = old.map_or(*taken, |old| taken.plus(Used::of(old)));
        }
        let mut kinds = self.0.len();
        for (kind, (added, taken)) in after {
            let before = self.0.get(kind).copied().unwrap_or_default();
            let used = before.plus(added).minus(taken);
            kinds += usize::from(before.rows == 0 && used.rows > 0);
            let quota = |what, limit| Err(CoordinatorRefusal::Quota { what, limit });
            if used.rows > KIND_ROWS_MAX && used.rows > before.rows {
                return quota(Quota::Rows, KIND_ROWS_MAX);
            }
            if used.bytes > KIND_BYTES_MAX && used.bytes > before.bytes {
                return quota(Quota::Bytes, KIND_BYTES_MAX);
            }
        }
        if kinds > KINDS_MAX && kinds > self.0.len() {
            return Err(CoordinatorRefusal::Quota { what: Quota::Kinds, limit: KINDS_MAX });
        }
        Ok(())
    }
}
