// One row a pair: appended, durable, checkpointed, and what lies between; and what its syncs cost.

import type { WalRow } from "../../api/types";
import { Badge } from "../../parts/badge";
import { Figure } from "../../parts/figure";
import { bytes, microseconds, perSecond, seconds, whole } from "../../parts/format";
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
        { name: "checkpointed", unit: "CSN", isNumber: true, cell: (row) => grouped(row.csn_checkpointed) },
        { name: "log since", isNumber: true, cell: (row) => <Figure value={bytes(row.log_bytes_since_checkpoint)} /> },
        ...(rows.some((row) => row.segments !== undefined) ? [{ name: "segments", isNumber: true, cell: (row: WalRow) => whole(row.segments) }] : []),
        { name: "replay would take", isNumber: true, cell: (row) => <Figure value={seconds(row.replay_seconds_estimate)} /> },
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
