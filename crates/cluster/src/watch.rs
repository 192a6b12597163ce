//! What a member follows of the coordinator: pairs, members, incidents and notices, kept up with one
//! call a look.

use std::collections::BTreeMap;
use std::sync::Arc;

use cell_terms::{Incarnation, PairId, SessionId};

use crate::coordinator::{Coordinator, parse};
use crate::error::ClusterError;
use crate::incident::{self, IncidentRow, KEY_INCIDENTS};
use crate::member::{KEY_MEMBERS, MemberRow};
use crate::notice::NOTICE_PREFIX;
use crate::request::{CoordinatorRefusal, KeyChange, Revision};
use crate::row::{KEY_PAIRS, PairRow};
use crate::session::parse_key;
use crate::store::ChangesPage;
use crate::tuning::{KEY_TUNING, TuningRow};

/// The rows as they were at a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// The revision.
    pub revision: Revision,
    /// The region table.
    pub pairs: BTreeMap<PairId, PairRow>,
    /// The members whose leases live.
    pub members: BTreeMap<Incarnation, MemberRow>,
    /// The incidents, by who died.
    pub incidents: BTreeMap<Incarnation, IncidentRow>,
    /// The texts of notices, by their keys.
    pub notices: BTreeMap<String, String>,
    /// The settings that are in force on all nodes.
    pub tuning: TuningRow,
}

/// What a look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Whether anything of the view changed.
    pub changed: bool,
    /// Sessions that ended since the last look.
    pub ended: Vec<SessionId>,
    /// There was a gap: sessions may have ended in it of which nothing is reported.
    pub missed: bool,
}

/// The watch.
pub struct Watch {
    coordinator: Arc<dyn Coordinator>,
    view: ClusterView,
    /// What was taken in and not returned yet.
    pending: Look,
    /// Nothing is known yet, or what was kept of changes does not reach back.
    lost: bool,
}

impl Watch {
    /// A watch that has seen nothing.
    #[must_use]
    pub fn new(coordinator: Arc<dyn Coordinator>) -> Watch {
        Watch { coordinator, view: ClusterView::default(), pending: Look::default(), lost: true }
    }

    /// The rows as of the last look.
    #[must_use]
    pub fn view(&self) -> &ClusterView {
        &self.view
    }

    /// Looks at all that changed: a plan that takes many changes is seen whole, and not taken for one that
    /// lacks shares.
    ///
    /// # Errors
    /// See [`Coordinator::call`]. No change is lost, and no session that ended: what was taken in before the
    /// error is returned by the next look.
    pub fn look(&mut self) -> Result<Look, ClusterError> {
        if self.lost {
            return self.begin();
        }
        loop {
            let (revision, changes) = match self.coordinator.changes_since(self.view.revision) {
                Err(ClusterError::Refused(CoordinatorRefusal::Compacted { .. })) => {
                    self.pending.missed = true;
                    return self.begin();
                }
                answer => answer?,
            };
            let mut page = ChangesPage::default();
            for change in &changes {
                page.add(change);
                self.pending.changed |= self.view.take(change)?;
                let ended = change.value.is_none().then(|| parse_key(&change.key)).flatten();
                self.pending.ended.extend(ended);
            }
            self.view.revision = revision;
            if !page.is_full() {
                return Ok(std::mem::take(&mut self.pending));
            }
        }
    }

    /// Everything, from the start. A change that comes between two listings is seen again by the next look.
    fn begin(&mut self) -> Result<Look, ClusterError> {
        let mut view = ClusterView::default();
        let mut first = None;
        for prefix in [KEY_PAIRS, KEY_MEMBERS, KEY_INCIDENTS, NOTICE_PREFIX, KEY_TUNING] {
            let listing = self.coordinator.list(prefix)?;
            first.get_or_insert(listing.revision);
            for entry in listing.entries {
                let revision = entry.revision;
                view.take(&KeyChange { revision, key: entry.key.clone(), value: Some(entry) })?;
            }
        }
        view.revision = first.unwrap_or(0);
        (self.view, self.lost) = (view, false);
        Ok(Look { changed: true, ..std::mem::take(&mut self.pending) })
    }
}

impl ClusterView {
    /// Takes one change in; whether it is about the view.
    fn take(&mut self, change: &KeyChange) -> Result<bool, ClusterError> {
        let KeyChange { key, value, .. } = change;
        let text = value.as_ref().map(|entry| entry.value.as_str());
        if key == KEY_TUNING {
            self.tuning = text.map(|text| parse("the tuning", text)).transpose()?.unwrap_or_default();
            return Ok(true);
        }
        let Some((prefix, id)) = key.split_once('/') else { return Ok(false) };
        match (format!("{prefix}/").as_str(), text) {
            (KEY_PAIRS, Some(text)) => {
                let row: PairRow = parse("a row of the region table", text)?;
                self.pairs.insert(row.pair, row);
            }
            (KEY_PAIRS, None) => {} // pairs are never removed
            (KEY_MEMBERS, Some(text)) => {
                let row: MemberRow = parse("a member", text)?;
                self.members.insert(row.incarnation, row);
            }
            (KEY_INCIDENTS, text) => self.take_incident(key, text)?,
            (KEY_MEMBERS, None) => {
                let id = u64::from_str_radix(id, 16).map(Incarnation).unwrap_or_default();
                self.members.remove(&id);
            }
            (NOTICE_PREFIX, Some(text)) => drop(self.notices.insert(key.clone(), text.to_owned())),
            (NOTICE_PREFIX, None) => drop(self.notices.remove(key)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A row of an incident, or of one of its shares.
    fn take_incident(&mut self, key: &str, text: Option<&str>) -> Result<(), ClusterError> {
        let Some((dead, pair)) = incident::parse_key(key) else { return Ok(()) };
        match (pair, text) {
            (None, Some(text)) => {
                let mut row: IncidentRow = parse("an incident", text)?;
                row.plan = self.incidents.remove(&dead).map(|old| old.plan).unwrap_or_default();
                self.incidents.insert(dead, row);
            }
            (None, None) => drop(self.incidents.remove(&dead)),
            // A share without its incident comes again: the listing began before the incident did.
            (Some(pair), text) => {
                let Some(incident) = self.incidents.get_mut(&dead) else { return Ok(()) };
                match text {
                    Some(text) => incident.set_share(parse("a share of an incident", text)?),
                    None => incident.remove_share(pair),
                }
            }
        }
        Ok(())
    }

    /// Whether an incarnation lives, as of this view. One that never entered does not.
    #[must_use]
    pub fn lives(&self, incarnation: Incarnation) -> bool {
        self.members.contains_key(&incarnation)
    }
}
