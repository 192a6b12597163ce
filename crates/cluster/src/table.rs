//! The region table: which pairs there are, who owns them, and what their recoveries need.
//!
//! Every change is one transaction, conditional on the row as it was read (and so on the pair's epoch) and on
//! the writer's own lease. A change whose outcome is unknown is looked for in the row and made again if it is
//! not there: every edit says whether the row already shows it.

use std::sync::Arc;

use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Csn, Durability, Epoch, Incarnation, NodeId, PairId, REGION_ID_BITS, RegionId};

use crate::attempts::Attempts;
use crate::claim::{Claim, ClaimReason, NewPair, Ownership, claimed_row, first_row, ownership_of};
use crate::coordinator::{Coordinator, parse, readable, text};
use crate::error::ClusterError;
use crate::finding::{self, Finding};
use crate::host::HostId;
use crate::layout::{KEY_LAYOUT, Layout};
use crate::missing::Missing;
use crate::request::{KeyCondition, KeyValue, Revision, Transaction, TransactionOutcome};
use crate::row::{CheckpointRow, EpochRow, KEY_PAIRS, PairGeometry, PairRow, PairState, ServingAddress};

/// The next pair's id. Ids of pairs, and so of regions, are never reused.
const KEY_PAIR_NEXT: &str = "counter/pair";
/// Pair `n` has regions `2n` and `2n + 1`.
const PAIRS_MAX: u32 = 1 << (REGION_ID_BITS - 1);

/// The table. Clones share the coordinator.
#[derive(Clone)]
pub struct Table {
    coordinator: Arc<dyn Coordinator>,
    host: Option<HostId>,
    dates: MoveDates,
}

/// When what is written of a planned move happens, as [`crate::MoveTimes`] has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveDates {
    /// Now.
    pub at_ms: u64,
    /// When the pair that is handed over was frozen.
    pub frozen_ms: u64,
}

impl Table {
    /// The table that `coordinator` holds, for a process that does not say on which host it runs.
    #[must_use]
    pub fn new(coordinator: Arc<dyn Coordinator>) -> Table {
        Table { coordinator, host: None, dates: MoveDates::default() }
    }

    /// The same table, for a process of this host: the rows of what it owns name the host, and it may claim
    /// by [`ClaimReason::HostLock`] what a process of this host owned.
    #[must_use]
    pub fn on_host(self, host: Option<HostId>) -> Table {
        Table { host, ..self }
    }

    /// The same table, for a step of a move that is to be dated.
    #[must_use]
    pub fn dated(&self, dates: MoveDates) -> Table {
        Table { dates, ..self.clone() }
    }

    /// When what is written happens.
    pub(crate) fn dates(&self) -> MoveDates {
        self.dates
    }

    /// The host of this process, if it said so.
    #[must_use]
    pub fn host(&self) -> Option<HostId> {
        self.host
    }

    /// The coordinator underneath.
    #[must_use]
    pub fn coordinator(&self) -> &Arc<dyn Coordinator> {
        &self.coordinator
    }

    /// A pair's row.
    ///
    /// # Errors
    /// [`ClusterError::PairUnknown`].
    pub fn pair(&self, pair: PairId) -> Result<PairRow, ClusterError> {
        self.read(pair).map(|(row, _)| row)
    }

    /// Every pair, by id, and the revision from which to watch.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn pairs(&self) -> Result<(Vec<PairRow>, Revision), ClusterError> {
        let listing = self.coordinator.list(KEY_PAIRS)?;
        let rows = listing.entries.iter().map(|entry| parse_row(&entry.value));
        Ok((rows.collect::<Result<_, _>>()?, listing.revision))
    }

    /// The sizes of the pairs, which all have the same; none: there is no pair.
    ///
    /// # Errors
    /// See [`Coordinator::call`]; no row reads.
    pub fn geometry(&self) -> Result<Option<PairGeometry>, ClusterError> {
        let listing = self.coordinator.list(KEY_PAIRS)?;
        let mut readable = readable::<PairRow>("a row of the region table", &listing.entries);
        match (readable.next(), listing.entries.first()) {
            (Some(row), _) => Ok(Some(row.geometry)),
            (None, Some(entry)) => parse_row(&entry.value).map(|row| Some(row.geometry)),
            (None, None) => Ok(None),
        }
    }

    /// Refuses a table that is older than the log folders: `found` is each region that has some, with its
    /// highest epoch. Nothing is served, and nothing initialised, when this fails.
    ///
    /// # Errors
    /// [`ClusterError::LogWithoutRow`], [`ClusterError::TableOlder`].
    pub fn check_logs_found(&self, found: &[(RegionId, Epoch)]) -> Result<(), ClusterError> {
        let (rows, _) = self.pairs()?;
        for (region, epoch) in found {
            let row = rows.iter().find(|row| row.node_region == *region || row.extent_region == *region);
            let row = row.ok_or(ClusterError::LogWithoutRow { region: *region })?;
            if *epoch > row.epoch {
                return Err(ClusterError::TableOlder { pair: row.pair, table: row.epoch, found: *epoch });
            }
        }
        Ok(())
    }

    /// How the first pairs share the key space; one range where nobody laid it out.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn layout(&self) -> Result<Layout, ClusterError> {
        match self.coordinator.read(KEY_LAYOUT)? {
            Some(entry) => parse("the layout", &entry.value),
            None => Ok(Layout::single()),
        }
    }

    /// Writes the layout and its pairs, pair `n` for node `n - 1`, if there is neither a layout nor a pair:
    /// one transaction with one winner. The pairs belong to nobody yet; each node claims its own.
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`] of the writer; [`ClusterError::CounterWentBack`] if there is neither and
    /// yet a pair.
    pub fn lay_out(
        &self,
        layout: &Layout,
        geometry: PairGeometry,
        writer: Incarnation,
    ) -> Result<(), ClusterError> {
        let pairs = layout.pairs();
        let mut first = Transaction::new()
            .when(KeyCondition::LeaseAlive { lease: writer })
            .when(KeyCondition::Absent { key: KEY_LAYOUT.to_owned() })
            .when(KeyCondition::Absent { key: KEY_PAIR_NEXT.to_owned() })
            .put(KEY_LAYOUT, text(layout))
            .put(KEY_PAIR_NEXT, (pairs + 1).to_string());
        for pair in (1..=pairs).map(PairId) {
            let new = NewPair { incarnation: writer, node: NodeId(pair.0 - 1), geometry };
            let row = PairRow { owner: None, epoch: Epoch(0), ..first_row(pair, &new, None) };
            first = first.when(no_such_pair(pair)).put(PairRow::key(pair), text(&row));
        }
        let mut attempts = Attempts::default();
        while attempts.left() {
            match self.coordinator.transact(first.clone()) {
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease: writer });
                }
                // Neither a layout nor a counter, and a pair.
                Ok(TransactionOutcome::Refused { condition: 3.. }) => {
                    return Err(ClusterError::CounterWentBack { what: "pair" });
                }
                Ok(_) => return Ok(()), // this writer's, or another's
                Err(ClusterError::OutcomeUnknown(error)) => attempts.unanswered(&error),
                Err(error) => return Err(error),
            }
        }
        Err(attempts.given_up("the empty table"))
    }

    /// Creates a pair in state [`PairState::New`], epoch 1, owned by the caller. Two threads of one
    /// incarnation must not create pairs at the same time: after a lost answer a pair is recognised by its
    /// owner.
    ///
    /// # Errors
    /// [`ClusterError::LeaseEnded`], [`ClusterError::IdsUsedUp`]; [`ClusterError::CounterWentBack`] if there
    /// is a pair of the next id.
    pub fn create_pair(&self, new: &NewPair) -> Result<Claim, ClusterError> {
        let mut tried = None;
        let mut attempts = Attempts::default();
        while attempts.left() {
            let (counter, applied) = match self.look_for(tried, new.incarnation) {
                // A caller that gave up now would not know of the pair.
                Err(ClusterError::NotReached(error) | ClusterError::OutcomeUnknown(error))
                    if tried.is_some() =>
                {
                    attempts.unanswered(&error);
                    continue;
                }
                looked => looked?,
            };
            if let Some(claim) = applied {
                return Ok(claim);
            }
            let pair = match &counter {
                Some(entry) => PairId(parse("the next pair's id", &entry.value)?),
                None => PairId(1),
            };
            if pair.0 >= PAIRS_MAX {
                return Err(ClusterError::IdsUsedUp { what: "pairs" });
            }
            let unchanged = match &counter {
                Some(entry) => {
                    KeyCondition::Revision { key: KEY_PAIR_NEXT.to_owned(), revision: entry.revision }
                }
                None => KeyCondition::Absent { key: KEY_PAIR_NEXT.to_owned() },
            };
            let row = first_row(pair, new, self.host);
            let create = Transaction::new()
                .when(KeyCondition::LeaseAlive { lease: new.incarnation })
                .when(unchanged)
                .when(no_such_pair(pair))
                .put(KEY_PAIR_NEXT, (pair.0 + 1).to_string())
                .put(PairRow::key(pair), text(&row));
            match self.coordinator.transact(create) {
                Ok(TransactionOutcome::Applied { .. }) => {
                    return Ok(Claim { ownership: ownership_of(&row, new.incarnation), row });
                }
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease: new.incarnation });
                }
                Ok(TransactionOutcome::Refused { condition: 1 }) => attempts.outrun(),
                Ok(TransactionOutcome::Refused { .. }) => {
                    return Err(ClusterError::CounterWentBack { what: "pair" });
                }
                Err(ClusterError::OutcomeUnknown(error)) => {
                    attempts.unanswered(&error);
                    tried = Some(pair);
                }
                Err(error) => return Err(error),
            }
        }
        Err(attempts.given_up("the next pair's id"))
    }

    /// The counter of pairs, and the pair that was tried, if it is there.
    fn look_for(
        &self,
        tried: Option<PairId>,
        incarnation: Incarnation,
    ) -> Result<(Option<KeyValue>, Option<Claim>), ClusterError> {
        // The counter first: a write that takes effect after this moves it on, and the next transaction
        // fails. The other way round it could come between, and there would be two.
        let counter = self.coordinator.read(KEY_PAIR_NEXT)?;
        let created = tried.map_or(Ok(None), |pair| self.created(pair, incarnation))?;
        Ok((counter, created))
    }

    fn created(&self, pair: PairId, incarnation: Incarnation) -> Result<Option<Claim>, ClusterError> {
        match self.read(pair) {
            Ok((row, _)) if row.owner == Some(incarnation) && row.epoch == Epoch(1) => {
                Ok(Some(Claim { ownership: ownership_of(&row, incarnation), row }))
            }
            Ok(_) | Err(ClusterError::PairUnknown { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Raises a pair's epoch and makes the caller its owner. An incarnation that has served the pair cannot
    /// claim it again: the trust that it granted ends with its own lease.
    ///
    /// # Errors
    /// [`ClusterError::OwnerLives`] without a reason to cut; [`ClusterError::Contended`] when others were
    /// faster; [`ClusterError::LeaseEnded`].
    pub fn claim(
        &self,
        pair: PairId,
        incarnation: Incarnation,
        node: NodeId,
        reason: ClaimReason,
    ) -> Result<Claim, ClusterError> {
        let mut tried = None;
        let mut attempts = Attempts::default();
        while attempts.left() {
            let (row, revision) = self.read(pair)?;
            if tried == Some(row.epoch) && row.owner == Some(incarnation) {
                return Ok(Claim { ownership: ownership_of(&row, incarnation), row });
            }
            if tried.is_some_and(|epoch| row.epoch >= epoch) {
                return Err(ClusterError::Superseded { pair, epoch: row.epoch, owner: row.owner });
            }
            let previous = row.owner.filter(|owner| *owner != incarnation);
            // The lock shows processes of the caller's own node alone.
            if reason == ClaimReason::HostLock && previous.is_some() && row.node != node {
                return Err(ClusterError::Superseded { pair, epoch: row.epoch, owner: row.owner });
            }
            let has_served = row.owner == Some(incarnation) && row.is_published();
            if has_served && !planted(Mutant::ServedClaimedAgain) {
                return Err(ClusterError::State { pair });
            }
            let reason = reason.on_host(self.host, row.host);
            let claimed = PairRow { host: self.host, ..claimed_row(row, incarnation, node, reason) };
            let mut transaction = Transaction::new()
                .when(KeyCondition::LeaseAlive { lease: incarnation })
                .when(unchanged(pair, revision));
            if let (ClaimReason::LeaseEnded, Some(lease)) = (reason, previous) {
                transaction = transaction.when(KeyCondition::LeaseEnded { lease });
            }
            match self.coordinator.transact(transaction.put(PairRow::key(pair), text(&claimed))) {
                Ok(TransactionOutcome::Applied { .. }) => {
                    return Ok(Claim { ownership: ownership_of(&claimed, incarnation), row: claimed });
                }
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease: incarnation });
                }
                Ok(TransactionOutcome::Refused { condition: 1 }) => {
                    attempts.outrun();
                    tried = tried.or(Some(claimed.epoch));
                }
                Ok(TransactionOutcome::Refused { .. }) => {
                    let owner = previous.expect("the third condition is about a previous owner");
                    let remaining_ns = self.coordinator.remaining_ns(owner)?.unwrap_or(0);
                    return Err(ClusterError::OwnerLives { pair, owner, remaining_ns });
                }
                Err(ClusterError::OutcomeUnknown(error)) => {
                    attempts.unanswered(&error);
                    tried = tried.or(Some(claimed.epoch));
                }
                Err(error) => return Err(error),
            }
        }
        Err(attempts.given_up("a pair that was to be claimed"))
    }

    /// Records where the logs of an earlier epoch end. Before this, the caller has synced what it read.
    ///
    /// # Errors
    /// [`ClusterError::CutRecorded`] if an earlier recovery recorded another one: take that.
    pub fn record_cut(&self, ownership: Ownership, epoch: Epoch, cut: Csn) -> Result<PairRow, ClusterError> {
        let pair = ownership.pair;
        self.change(ownership, &[], |row| {
            let state_wrong = ClusterError::State { pair };
            let at = row.history.iter().position(|old| old.epoch == epoch);
            let at = at.filter(|_| epoch < ownership.epoch).ok_or(state_wrong)?;
            match row.history[at].cut {
                Some(recorded) if recorded == cut => Ok(()),
                Some(recorded) => Err(ClusterError::CutRecorded { pair, epoch, recorded, found: cut }),
                None => {
                    if let Some(earlier) = row.history[..at].iter().find(|old| old.cut.is_none()) {
                        return Err(ClusterError::CutMissing { pair, epoch: earlier.epoch });
                    }
                    row.history[at].cut = Some(cut);
                    Ok(())
                }
            }
        })
    }

    /// Publishes the pair under its owner: from here on it is served. Before this, the new epoch's log files
    /// are created and synced.
    ///
    /// # Errors
    /// [`ClusterError::TrustRemains`]: an earlier owner's lease has not ended; wait and publish again.
    /// [`ClusterError::CutMissing`]: an earlier epoch has no cut.
    pub fn publish(
        &self,
        ownership: Ownership,
        durability: Durability,
        place: &ServingAddress,
    ) -> Result<PairRow, ClusterError> {
        let pair = ownership.pair;
        let mut trusted = self.pair(pair)?.trusted;
        if planted(Mutant::TrustNotAwaited) {
            trusted.clear();
        }
        self.change(ownership, &trusted, |row| {
            if row.is_published() {
                let same = row.place.as_ref() == Some(place) && row.state == PairState::Serving;
                return if same { Ok(()) } else { Err(ClusterError::State { pair }) };
            }
            if let Some(uncut) = row.epochs_needed().find(|old| old.cut.is_none()) {
                return Err(ClusterError::CutMissing { pair, epoch: uncut.epoch });
            }
            row.history.push(EpochRow { epoch: ownership.epoch, durability, cut: None });
            row.state = PairState::Serving;
            row.served_by = Some(row.node);
            finding::settle(&mut row.findings, &mut row.refuted, row.node);
            row.place = Some(place.clone());
            row.trusted.retain(|owner| !trusted.contains(owner));
            Ok(())
        })
    }

    /// How long until the trust that earlier owners granted has surely run out, if nobody renews it: their
    /// leases' remaining time. None: it has, and [`Table::publish`] will not be refused for it.
    ///
    /// # Errors
    /// See [`Coordinator::call`].
    pub fn trust_remaining_ns(&self, claim: &Claim) -> Result<Option<u64>, ClusterError> {
        let mut longest = None;
        for owner in claim.row.trusted.iter().filter(|_| !planted(Mutant::TrustNotAwaited)) {
            longest = longest.max(self.coordinator.remaining_ns(*owner)?);
        }
        Ok(longest)
    }

    /// Records a checkpoint whose file is synced and whose CSNs are all durable. Epochs wholly below it are
    /// dropped from the history: their files can be unlinked afterwards.
    ///
    /// # Errors
    /// [`ClusterError::CheckpointOlder`] if it would go back.
    pub fn record_checkpoint(
        &self,
        ownership: Ownership,
        checkpoint: &CheckpointRow,
    ) -> Result<PairRow, ClusterError> {
        let pair = ownership.pair;
        self.change(ownership, &[], |row| {
            if checkpoint.epoch != ownership.epoch || !row.is_published() {
                return Err(ClusterError::State { pair });
            }
            match &row.checkpoint {
                Some(old) if old == checkpoint => return Ok(()),
                Some(old) if (old.epoch, old.csn) > (checkpoint.epoch, checkpoint.csn) => {
                    return Err(ClusterError::CheckpointOlder { pair });
                }
                _ => {}
            }
            row.history.retain(|old| old.epoch >= checkpoint.epoch);
            row.checkpoint = Some(checkpoint.clone());
            Ok(())
        })
    }

    /// Says that the claimer looked at the pair's data and found damage. If another member had found some, it
    /// is believed: the pair is reported, and keeps its owner, who may claim it again. Else the fault may be
    /// the claimer's own, and it gives the pair up, so that another member looks. Whether it is believed.
    ///
    /// # Errors
    /// [`ClusterError::State`] if it is served.
    pub fn report_damage(&self, ownership: Ownership, missing: &Missing) -> Result<bool, ClusterError> {
        let reported = self.change(ownership, &[], |row| {
            if row.is_published() {
                return Err(ClusterError::State { pair: ownership.pair });
            }
            let (incarnation, node) = (ownership.incarnation, row.node);
            finding::add(&mut row.findings, Finding { incarnation, node, missing: missing.clone() });
            row.state = PairState::Unavailable { missing: missing.clone() };
            if !row.is_damage_believed() {
                (row.owner, row.host) = (None, None);
            }
            Ok(())
        });
        Ok(unless_free(reported, ownership)?.is_some_and(|row| row.owner.is_some()))
    }

    /// Says what keeps the claimer from serving the pair, and gives it up, so that others may try: they may
    /// have the memory, or read the disk.
    ///
    /// # Errors
    /// [`ClusterError::State`] if it is served.
    pub fn decline(&self, ownership: Ownership, missing: &Missing) -> Result<(), ClusterError> {
        self.set_free(ownership, &PairState::Unavailable { missing: missing.clone() }, |row| {
            if row.is_published() { Err(ClusterError::State { pair: ownership.pair }) } else { Ok(()) }
        })
    }

    /// Gives the pair up: the owner has stopped appending and answering for it, and all that it wrote is
    /// durable. Its trust lasts as long as its lease.
    ///
    /// # Errors
    /// See [`ClusterError::Superseded`].
    pub fn release(&self, ownership: Ownership) -> Result<(), ClusterError> {
        self.set_free(ownership, &PairState::Released, |row| {
            if row.is_published() {
                row.trusted.push(ownership.incarnation);
            }
            Ok(())
        })
    }

    /// Gives a pair up that its owner has served, and goes on living: from here on others may take it over,
    /// and its logs end at `cut`. Before this the owner has stopped appending and answering for it, all that
    /// it appended is durable, and all trust in its registrations has ended: its lease says nothing of the
    /// pair any more.
    ///
    /// # Errors
    /// [`ClusterError::State`] if it was not served; see [`ClusterError::Superseded`].
    pub fn leave(&self, ownership: Ownership, cut: Csn) -> Result<(), ClusterError> {
        self.set_free(ownership, &PairState::Released, |row| {
            let served = row.history.iter_mut().find(|served| served.epoch == ownership.epoch);
            served.ok_or(ClusterError::State { pair: ownership.pair })?.cut = Some(cut);
            Ok(())
        })
    }

    /// Edits a row in the name of its owner, and makes the pair nobody's, in this state: others may take it
    /// over.
    fn set_free(
        &self,
        ownership: Ownership,
        state: &PairState,
        edit: impl Fn(&mut PairRow) -> Result<(), ClusterError>,
    ) -> Result<(), ClusterError> {
        let freed = self.change(ownership, &[], |row| {
            edit(row)?;
            (row.owner, row.host, row.place) = (None, None, None);
            row.state = state.clone();
            Ok(())
        });
        unless_free(freed, ownership).map(drop)
    }

    pub(crate) fn read(&self, pair: PairId) -> Result<(PairRow, Revision), ClusterError> {
        let entry = self.coordinator.read(&PairRow::key(pair))?.ok_or(ClusterError::PairUnknown { pair })?;
        Ok((parse_row(&entry.value)?, entry.revision))
    }

    /// Edits a row in the name of its owner, once the leases of `ended` have ended.
    fn change(
        &self,
        ownership: Ownership,
        ended: &[Incarnation],
        edit: impl Fn(&mut PairRow) -> Result<(), ClusterError>,
    ) -> Result<PairRow, ClusterError> {
        let Ownership { pair, epoch, incarnation } = ownership;
        let mut attempts = Attempts::default();
        while attempts.left() {
            let (row, revision) = self.read(pair)?;
            if row.epoch != epoch || row.owner != Some(incarnation) {
                return Err(ClusterError::Superseded { pair, epoch: row.epoch, owner: row.owner });
            }
            let mut changed = row.clone();
            edit(&mut changed)?;
            if changed == row {
                return Ok(row);
            }
            let mut transaction = Transaction::new()
                .when(KeyCondition::LeaseAlive { lease: incarnation })
                .when(unchanged(pair, revision));
            for lease in ended {
                transaction = transaction.when(KeyCondition::LeaseEnded { lease: *lease });
            }
            match self.coordinator.transact(transaction.put(PairRow::key(pair), text(&changed))) {
                Ok(TransactionOutcome::Applied { .. }) => return Ok(changed),
                Ok(TransactionOutcome::Refused { condition: 0 }) => {
                    return Err(ClusterError::LeaseEnded { lease: incarnation });
                }
                Ok(TransactionOutcome::Refused { condition: 1 }) => attempts.outrun(),
                Err(ClusterError::OutcomeUnknown(error)) => attempts.unanswered(&error),
                Ok(TransactionOutcome::Refused { condition }) => {
                    let owner = ended.get(condition - 2).copied().unwrap_or(incarnation);
                    return Err(ClusterError::TrustRemains { pair, owner });
                }
                Err(error) => return Err(error),
            }
        }
        Err(attempts.given_up("a pair's row"))
    }
}

/// What setting a pair free has come to; none: it is free already. Nobody but its owner sets it free, so that
/// this was an earlier try, whose answer was lost.
fn unless_free(
    freed: Result<PairRow, ClusterError>,
    ownership: Ownership,
) -> Result<Option<PairRow>, ClusterError> {
    match freed {
        Err(ClusterError::Superseded { epoch, owner: None, .. }) if epoch == ownership.epoch => Ok(None),
        other => other.map(Some),
    }
}

/// That nobody has written a pair's row since it was read.
pub(crate) fn unchanged(pair: PairId, revision: Revision) -> KeyCondition {
    if planted(Mutant::TableUnconditional) {
        return KeyCondition::LeaseEnded { lease: Incarnation(0) }; // there never was one
    }
    KeyCondition::Revision { key: PairRow::key(pair), revision }
}

/// That a pair's id has not been used, whatever the counter of ids says.
fn no_such_pair(pair: PairId) -> KeyCondition {
    if planted(Mutant::PairOverwritten) {
        return KeyCondition::LeaseEnded { lease: Incarnation(0) }; // there never was one
    }
    KeyCondition::Absent { key: PairRow::key(pair) }
}

fn parse_row(value: &str) -> Result<PairRow, ClusterError> {
    parse("a row of the region table", value)
}
