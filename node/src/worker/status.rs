//! What a worker reports about itself: to clients, and to the snapshot that `web` reads.

use std::sync::Arc;

use cell_cluster::{RenewalFigures, pairs_left};
use cell_fabric::ConnectionId;
use cell_pair::{CheckOutcome, NoRoom};
use cell_protocol::report::{PAIRS_MAX, PLACE_BYTES_MAX, VIOLATION_BYTES_MAX, WARNING_BYTES_MAX};
use cell_protocol::tree::TREE_ROWS_MAX;
use cell_protocol::{
    CheckReport, MeganodeRow, MeganodeUse, PairActivity, PairStatus, PairStatuses, ReadOnlyReason, Refusal,
    Reply, RequestHeader, StatusReport, TreeReport, TreeRows,
};
use cell_recovery::{RecoveryStage, SlotUse};
use cell_terms::{Csn, Epoch};
use cell_wal::{FlushChoice, FlushWay};

use super::{Worker, WorkerPhase};
use crate::command::Command;
use crate::counters::WorkerCounts;
use crate::directory::MeganodeAt;
use crate::pairs::{Dependence, OwnedPair};
use crate::snapshot::{self, NodeSnapshot, NodeState, PairRecovery, PairSnapshot, RecoveryProgress};
use crate::split::SplitCounts;
use crate::warning;

impl Worker {
    /// One that says where the coordinator of its node is.
    #[must_use]
    pub(crate) fn coordinated_at(self, coordinator: Arc<str>) -> Worker {
        Worker { coordinator, ..self }
    }

    pub(super) fn status(&mut self, connection: ConnectionId, header: RequestHeader) {
        let pairs: Vec<PairStatus> = match self.pairs.is_empty() {
            true => self.recovering_statuses(),
            false => self.pairs.iter().map(|pair| self.pair_status(pair)).take(PAIRS_MAX).collect(),
        };
        let warnings = warning::lines(&self.warnings(), WARNING_BYTES_MAX);
        let coordinator = self.coordinator.clone();
        let reply = Reply::Status(StatusReport {
            node: self.identity.node,
            incarnation: self.identity.incarnation,
            uptime_ms: self.now_ns.saturating_sub(self.started_ns) / 1_000_000,
            workers: 1,
            connections: u32::try_from(self.connections.len()).unwrap_or(u32::MAX),
            pairs: PairStatuses::List(&pairs),
            warnings: &warnings,
            coordinator: &coordinator[..coordinator.floor_char_boundary(PLACE_BYTES_MAX)],
        });
        self.reply(connection, header, Dependence::NOTHING, &reply);
    }

    fn pair_status(&self, owned: &OwnedPair) -> PairStatus {
        let pair = &owned.pair;
        let reason = match pair.no_room() {
            Some(NoRoom::DiskFull) => Some(ReadOnlyReason::DiskFull),
            Some(NoRoom::Region | NoRoom::Slot) => Some(ReadOnlyReason::RegionFull),
            Some(NoRoom::LogBusy) | None => None,
        };
        let figures = pair.figures();
        PairStatus {
            pair: pair.id(),
            epoch: pair.epoch(),
            state: reason.map_or(PairActivity::Serving, PairActivity::ReadOnly),
            worker: 0,
            durable: pair.durable(),
            visible: pair.visible(),
            checkpoint: owned.checkpointing.last_base(),
            entries: figures.entries,
            node_bytes_used: figures.tree_nodes * figures.tree_node_bytes,
            node_bytes: figures.node_region_bytes,
            extent_bytes_used: figures.extents_allocated_bytes,
            extent_bytes: figures.extent_region_bytes,
            log_bytes: owned.log_bytes_since_checkpoint(),
            sessions: self.sessions.len() as u64,
        }
    }

    /// The pairs that are being recovered, as the control thread names them.
    fn recovering_statuses(&self) -> Vec<PairStatus> {
        let view = self.progress.view(self.now_ns);
        let permille = view.bytes_done.saturating_mul(1_000) / view.bytes_total.max(1);
        let permille = u16::try_from(permille.min(1_000)).unwrap_or(1_000);
        let status = |recovery: &PairRecovery| {
            let row = self.cluster.pairs.iter().find(|row| row.pair == recovery.pair);
            PairStatus {
                pair: recovery.pair,
                epoch: row.map_or(Epoch(0), |row| row.epoch),
                state: PairActivity::Recovering { permille },
                worker: 0,
                durable: Csn::ZERO,
                visible: Csn::ZERO,
                checkpoint: Csn::ZERO,
                entries: 0,
                node_bytes_used: 0,
                node_bytes: 0,
                extent_bytes_used: 0,
                extent_bytes: 0,
                log_bytes: 0,
                sessions: 0,
            }
        };
        let recovers = self.phase == WorkerPhase::Recovering;
        let recoveries = self.cluster.recoveries.iter().filter(|_| recovers);
        recoveries.take(PAIRS_MAX).map(status).collect()
    }

    /// The shape of the tree: routers first, then the meganodes of entries in key order.
    pub(super) fn tree(&mut self, connection: ConnectionId, header: RequestHeader, from: u32) {
        let places = self.pairs.all().flat_map(|at| {
            let slots = self.pairs.pair(at).used_slots();
            slots.into_iter().map(move |slot| MeganodeAt { pair: at, slot })
        });
        let mut rows: Vec<MeganodeRow> = places.map(|there| self.meganode_row(there)).collect();
        rows.sort_by_key(|row| (row.used != MeganodeUse::Router, row.low, row.pair, row.slot));
        let all = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(rows.len());
        let rows = &rows[from..rows.len().min(from + TREE_ROWS_MAX)];
        let root = self.pairs.iter().map(|owned| owned.pair.root()).find(|root| !root.pointer.is_null());
        let counts = self.splits.counts();
        let reply = Reply::Tree(TreeReport {
            meganodes: all,
            root: root.unwrap_or_default().to_word(),
            splits: [counts.begun, counts.finished, counts.aborted, counts.under_way],
            rows: TreeRows::List(rows),
        });
        self.reply(connection, header, Dependence::NOTHING, &reply);
    }

    fn meganode_row(&self, there: MeganodeAt) -> MeganodeRow {
        let pair = self.pairs.pair(there.pair);
        let figures = pair.meganode_figures(there.slot);
        let used = match figures.used {
            SlotUse::Router => MeganodeUse::Router,
            SlotUse::Leaf | SlotUse::Free if figures.hidden => MeganodeUse::Adopted,
            SlotUse::Leaf | SlotUse::Free => MeganodeUse::Leaf,
        };
        let mut row = MeganodeRow {
            pair: pair.id(),
            slot: there.slot,
            used,
            height: figures.height,
            nodes: u32::try_from(figures.nodes).unwrap_or(u32::MAX),
            nodes_all: u32::try_from(figures.nodes_all).unwrap_or(u32::MAX),
            entries: figures.entries,
            ..MeganodeRow::default()
        };
        let range = self.pairs.directory.of(there).map(|range| &*range.low);
        let split = pair.split_table().target_of(there.slot);
        let low = range.or(split.map(|(_, split)| &*split.low)).unwrap_or_default();
        let sent = low.len().min(row.low.len());
        row.low[..sent].copy_from_slice(&low[..sent]);
        row.low_len = u16::try_from(low.len()).unwrap_or(u16::MAX);
        row
    }

    pub(super) fn check(&mut self, connection: ConnectionId, header: RequestHeader) {
        if self.is_awaiting_pairs() {
            return self.refuse(connection, header, Refusal::Recovering);
        }
        if self.checking {
            return self.refuse(connection, header, Refusal::Busy);
        }
        self.pairs.iter_mut().for_each(|owned| owned.pair.begin_check());
        self.checking = true;
        self.commands.push(Command::Check { connection, header });
    }

    /// The trees have been walked: writes that waited go on.
    pub(super) fn structure_checked(&mut self) {
        self.pairs.iter_mut().for_each(|owned| owned.pair.end_check());
    }

    pub(super) fn checked(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        outcome: &CheckOutcome,
    ) {
        self.structure_checked();
        self.checking = false;
        self.counts.damage_checked += outcome.violations;
        let mut text = outcome.first_violation.as_str();
        while text.len() > VIOLATION_BYTES_MAX {
            text = &text[..text.floor_char_boundary(VIOLATION_BYTES_MAX)];
        }
        let reply = Reply::Checked(CheckReport {
            meganodes: outcome.meganodes,
            tree_nodes: outcome.tree_nodes,
            entries: outcome.entries,
            extent_bytes: outcome.extent_bytes,
            violations: outcome.violations,
            duration_us: outcome.duration_us,
            first_violation: text,
        });
        self.reply(connection, header, Dependence::NOTHING, &reply);
    }

    /// Splits of meganodes since the start.
    #[must_use]
    pub fn split_counts(&self) -> SplitCounts {
        self.splits.counts()
    }

    /// Everything at once, for the console, `/metrics` and `/readyz`.
    #[must_use]
    pub fn snapshot(&self) -> NodeSnapshot {
        NodeSnapshot {
            node: self.identity.node,
            incarnation: self.identity.incarnation,
            state: self.node_state(),
            warnings: self.warnings(),
            restarted_because: self.restarted_because.clone(),
            durability: self.options.pair.durability,
            uptime_ms: self.now_ns.saturating_sub(self.started_ns) / 1_000_000,
            lease_remaining_ms: self.lease_until_ns.saturating_sub(self.now_ns) / 1_000_000,
            connections: self.connections.len() as u64,
            // The process's, not the worker's: the shell knows.
            memory: Default::default(),
            memory_ready_bytes: 0,
            memory_ready_bytes_given: 0,
            log_flush: FlushChoice::new(FlushWay::PerWrite, "nothing else was decided yet"),
            renewals: RenewalFigures::default(),
            cpu_ns: [0; 2],
            counters: Vec::new(),
            latencies: self.latencies.last(),
            latency_histograms: self.latencies.histograms(),
            splits: self.splits.counts(),
            backing: self.pairs.iter().next().map_or(["none", "none"], |owned| owned.pair.backing()),
            operations: self.operations,
            worker_counts: WorkerCounts {
                damage_checked: self.counts.damage_checked + self.tree_checker.violations(),
                ..self.counts
            },
            pairs: self.pairs.iter().map(|owned| owned.snapshot(self.now_ns)).collect(),
            tree: self.tree_sampler.shape(),
            clients: self.client_reports.snapshot(self.now_ns),
            client_totals: self.client_reports.totals(),
            cluster: self.cluster.clone(),
        }
    }

    /// What an operator should know although the node serves.
    fn warnings(&self) -> Vec<String> {
        let lived_ns = self.now_ns.saturating_sub(self.started_ns);
        let mut warnings = warning::of_restarts(self.restarted_because.as_deref(), lived_ns);
        let waits_for_room = self.phase == WorkerPhase::Recovering
            && self.progress.view(self.now_ns).stage == RecoveryStage::NoRoom;
        warnings.extend(waits_for_room.then(warning::of_no_room));
        if self.phase == WorkerPhase::Serving {
            let taken = self.cluster.recoveries.iter();
            let taken = taken.filter(|recovery| recovery.progress.stage == snapshot::NO_ROOM);
            warnings.extend(warning::of_takeovers_without_room(taken.map(|recovery| recovery.pair)));
        }
        warnings.extend(warning::of_connections(self.greetings.full_at_ns, self.now_ns));
        let waiting = self.pairs.iter().filter(|owned| owned.log_wait.is_long());
        warnings.extend(warning::of_log_waits(waiting.map(|owned| owned.pair.id())));
        let short = self.pairs.iter().filter(|owned| owned.is_disk_short()).map(|owned| owned.pair.id());
        warnings.extend(warning::of_disk(self.health.disk_free, short));
        if self.phase == WorkerPhase::Serving {
            warnings.extend(self.health.warnings(self.now_ns));
        }
        warnings.extend(warning::of_checkpoints(self.pairs.iter().filter_map(|owned| {
            let (in_a_row, why) = owned.checkpointing.failure?;
            Some((owned.pair.id(), in_a_row, why))
        })));
        warnings.extend(warning::of_damage(&self.cluster.pairs, self.identity.incarnation));
        warnings.extend(self.drain_warning());
        warnings.extend(warning::of_rows(&self.cluster.unreadable));
        warnings.extend(warning::of_files(&self.access, &self.process_warnings));
        warnings
    }

    /// Of a node that is to be emptied. A pair that a move may still bring here is one that is left.
    fn drain_warning(&self) -> Option<String> {
        let (cluster, node) = (&self.cluster, self.identity.node);
        if cluster.drains.is_empty() {
            return None;
        }
        let moves = cluster.moves_that_bring();
        let left = pairs_left(node, &cluster.pairs, &moves, |of| cluster.lives(of));
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        warning::of_drain(&cluster.drains, node, left.max(self.pairs.iter().count()))
    }

    fn node_state(&self) -> NodeState {
        match self.phase {
            WorkerPhase::Recovering => {
                let view = self.progress.view(self.now_ns);
                NodeState::Recovering(RecoveryProgress {
                    stage: view.stage.name(),
                    bytes_done: view.bytes_done,
                    bytes_total: view.bytes_total,
                    bytes_per_second: view.bytes_per_second,
                })
            }
            WorkerPhase::Stopping => NodeState::Stopping,
            WorkerPhase::Failed(kind) => NodeState::Failed(kind),
            WorkerPhase::Serving if self.silent => NodeState::Silent,
            WorkerPhase::Serving => match self.pairs.iter().find_map(|owned| owned.pair.no_room()) {
                Some(NoRoom::DiskFull) => NodeState::ReadOnly(snapshot::ReadOnlyReason::DiskFull),
                Some(NoRoom::Region | NoRoom::Slot) => {
                    NodeState::ReadOnly(snapshot::ReadOnlyReason::RegionFull)
                }
                Some(NoRoom::LogBusy) | None => NodeState::Serving,
            },
        }
    }
}

impl OwnedPair {
    fn snapshot(&self, now_ns: u64) -> PairSnapshot {
        let pair = &self.pair;
        let figures = pair.figures();
        PairSnapshot {
            pair: pair.id(),
            epoch: pair.epoch(),
            csn_appended: pair.appended(),
            csn_durable: pair.durable(),
            csn_checkpointed: self.checkpointing.last_base(),
            entries: figures.entries,
            tree_nodes: figures.tree_nodes,
            tree_node_bytes: figures.tree_node_bytes,
            extent_live_bytes: figures.extents_live_bytes,
            extent_allocated_bytes: figures.extents_allocated_bytes,
            extent_slots_free_bytes: figures.extents_slots_free_bytes,
            extent_free_bytes: figures.extents_free_bytes,
            extent_region_bytes: figures.extent_region_bytes,
            node_region_bytes: figures.node_region_bytes,
            granted_bytes: figures.granted_bytes,
            populated_bytes: figures.populated_bytes,
            huge_page_bytes: figures.huge_page_bytes,
            grace_bytes: figures.grace_bytes,
            log_bytes_since_checkpoint: self.log_bytes_since_checkpoint(),
            log_bytes_pending: pair.log_bytes_pending(),
            batches: self.batches.batches,
            log_bytes: self.batches.log_bytes,
            log_segments: pair.log_segments(),
            completions: figures.completions,
            replies_held: self.held.len() as u64,
            checkpoints: self.batches.checkpoints,
            compactions: figures.compactions.done,
            compaction_nodes_freed: figures.compactions.nodes_freed,
            packings: figures.packings.done,
            packed_bytes: figures.packings.moved_bytes,
            checkpoint_running: self.checkpointing.is_running(),
            checkpoints_failed: self.checkpointing.failures,
            checkpoint_failure: self.checkpointing.failure.map(|(_, why)| why),
            checkpoint_age_ms: now_ns.saturating_sub(self.checkpointing.last_ns) / 1_000_000,
            sync_us: self.batches.sync_us(now_ns),
            sync_waiting_ms: self.log_wait.waited_ms(),
            sync_buckets: self.batches.sync_buckets,
        }
    }
}
