// One row a pair: appended, durable, checkpointed, and what lies between; its logs' segments; what its syncs cost.

import type { LogSegments, WalRow } from "../../api/types";
import { Badge } from "../../parts/badge";
import { Figure } from "../../parts/figure";
import { Fill } from "../../parts/fill";
import { bytes, inWords, microseconds, perSecond, seconds, whole } from "../../parts/format";
import { NodeName } from "../../parts/node_name";
import { Table } from "../../parts/table";

const grouped = (csn: string): string => csn.replace(/\B(?=(\d{3})+$)/g, ",");

export function LogTable({ rows }: { rows: WalRow[] }) {
  return (
    <Table
      caption="Logs by pair" rows={[...rows].sort((a, b) => a.pair - b.pair)} rowKey={(row) => row.pair}
      columns={[
        { name: "pair", cell: (row) => row.pair },
        { name: "owner", cell: (row) => <NodeName node={row.node} /> },
        { name: "epoch", isNumber: true, cell: (row) => row.epoch },
        { name: "appended", unit: "CSN", isNumber: true, cell: (row) => grouped(row.csn_appended) },
        { name: "durable", unit: "CSN", isNumber: true, cell: (row) => grouped(row.csn_durable) },
        { name: "lag", isNumber: true, cell: (row) => <Figure value={bytes(row.lag_bytes)} /> },
        { name: "lag", unit: "commits", isNumber: true, cell: (row) => whole(row.lag_csn) },
        ...(rows.some((row) => row.lag_seconds !== undefined)
          ? [{ name: "lag", unit: "time", isNumber: true, cell: (row: WalRow) => <Figure value={seconds(row.lag_seconds)} /> }]
          : []),
        { name: "checkpointed", unit: "CSN", isNumber: true, cell: (row) => (row.csn_checkpointed === null ? <span class="quiet">none yet</span> : grouped(row.csn_checkpointed)) },
        ...(hasSegments(rows) ? [{ name: "kept from", unit: "CSN", isNumber: true, cell: (row: WalRow) => (row.segments ? grouped(row.segments.csn_oldest) : "") }] : []),
        { name: "log since", isNumber: true, cell: (row) => <Figure value={bytes(row.log_bytes_since_checkpoint)} /> },
        { name: "replay would take", isNumber: true, cell: (row) => <Figure value={seconds(row.replay_seconds_estimate)} /> },
      ]}
    />
  );
}

const LOGS = ["node", "extent"] as const;

interface SegmentRow { pair: number; log: string; at: number; segments: LogSegments }

/** Whether there are logs at all. */
export const hasSegments = (rows: WalRow[]): boolean => rows.some((row) => row.segments);

/** Of all logs together. */
export function segmentWords(rows: WalRow[]): string {
  const sum = (read: (segments: LogSegments) => number[]) => rows.reduce((all, { segments }) => all + (segments ? read(segments).reduce((one, other) => one + other, 0) : 0), 0);
  return `${inWords(bytes(sum(({ bytes: files }) => files)))} on disk in all; a checkpoint releases what it covers`;
}

export function SegmentTable({ rows }: { rows: WalRow[] }) {
  const pairs = [...rows].sort((a, b) => a.pair - b.pair);
  const logs = pairs.flatMap(({ pair, segments }): SegmentRow[] => (segments ? LOGS.map((log, at) => ({ pair, log, at, segments })) : []));
  return (
    <Table
      caption="Log segments by log" rows={logs} rowKey={({ pair, log }) => `${pair} ${log}`}
      columns={[
        { name: "log", cell: ({ pair, log }) => `pair ${pair}, ${log}s` },
        { name: "in use", isNumber: true, cell: ({ segments, at }) => whole(segments.in_use[at]) },
        { name: "prepared", isNumber: true, cell: ({ segments, at }) => whole(segments.spare[at]) },
        { name: "released", isNumber: true, isMinor: true, cell: ({ segments, at }) => whole(segments.released[at]) },
        { name: "on disk", isNumber: true, cell: ({ segments, at }) => <Figure value={bytes(segments.bytes[at])} /> },
        { name: "current", unit: "number", isNumber: true, isMinor: true, cell: ({ segments, at }) => whole(segments.current[at]) },
        { name: "current filled", isNumber: true, cell: ({ segments, at }) => <Fill part={segments.current_fill[at]} /> },
      ]}
    />
  );
}

export function SyncTable({ rows }: { rows: WalRow[] }) {
  return (
    <Table
      caption="Syncs by pair" rows={[...rows].sort((a, b) => a.pair - b.pair)} rowKey={(row) => row.pair}
      columns={[
        { name: "pair", cell: (row) => row.pair },
        { name: "sync p50", isNumber: true, cell: (row) => <Figure value={microseconds(row.sync_us.p50)} /> },
        { name: "p99", isNumber: true, cell: (row) => <Figure value={microseconds(row.sync_us.p99)} /> },
        { name: "max", isNumber: true, cell: (row) => <Figure value={microseconds(row.sync_us.max)} /> },
        { name: "batches", isNumber: true, cell: (row) => <Figure value={perSecond(row.batches_per_second)} /> },
        { name: "a batch", isNumber: true, cell: (row) => <Figure value={bytes(row.bytes_per_batch)} /> },
        { name: "checkpoint", cell: (row) => (row.checkpoint_running ? <Badge level="info">running</Badge> : `${row.checkpoints} done`) },
      ]}
    />
  );
}
