// The overview's tables: operations, nodes, pairs that nobody serves, recoveries, last events.

import type { RecoveryRow, Status } from "../../api/types";
import { Badge, StateBadge } from "../../parts/badge";
import { EventTable } from "../../parts/event_table";
import { Figure } from "../../parts/figure";
import { bytes, bytesRate, count, inWords, microseconds, milliseconds, perSecond } from "../../parts/format";
import { NodeName } from "../../parts/node_name";
import { Panel, type Source } from "../../parts/panel";
import { Spark } from "../../parts/spark";
import { Table } from "../../parts/table";
import type { Histories } from "../../state/series";

export function Unserved({ status }: { status: Status }) {
  const { unserved } = status.pairs;
  if (unserved.length === 0) return null;
  return (
    <div class="notice notice-critical" role="alert">
      <p><strong>Keys of these pairs are not available.</strong></p>
      <ul>
        {unserved.slice(0, 8).map((one) => <li key={one.pair}>Pair {one.pair} is {one.what}. Next: {one.next}</li>)}
      </ul>
      {unserved.length > 8 && <p>And {unserved.length - 8} more.</p>}
    </div>
  );
}

export function Operations({ status, histories, source }: { status: Status; histories: Histories; source: Source }) {
  return (
    <Panel title="Operations" window="last second; latencies as the server measures them" source={source} saysMissing={false}>
      <Table
        caption="Operations of all nodes" rows={status.operations} rowKey={(row) => row.operation}
        columns={[
          { name: "operation", cell: (row) => row.operation },
          { name: "rate", isNumber: true, cell: (row) => <Figure value={perSecond(row.per_second)} /> },
          { name: "p50", isNumber: true, cell: (row) => <Figure value={microseconds(row.p50_us)} /> },
          { name: "p99", isNumber: true, cell: (row) => <Figure value={microseconds(row.p99_us)} /> },
          {
            name: "5 min", isMinor: true,
            cell: (row) => <Spark label={`${row.operation}, rate`} values={histories.values(`ops_${row.operation}`)} />,
          },
        ]}
      />
    </Panel>
  );
}

export function NodeStrip({ status, source }: { status: Status; source: Source }) {
  return (
    <Panel title="Nodes" source={source} saysMissing={false} actions={<a href="/console/nodes">All about nodes</a>}>
      <Table
        caption="Nodes" rows={status.nodes} rowKey={(row) => row.node}
        columns={[
          { name: "node", cell: (row) => <NodeName node={row.node} /> },
          { name: "state", cell: (row) => <StateBadge state={row.state} /> },
          { name: "pairs", isNumber: true, cell: (row) => row.pairs.length },
          { name: "operations", isNumber: true, cell: (row) => <Figure value={perSecond(row.operations_per_second)} /> },
          { name: "entries", isNumber: true, isMinor: true, cell: (row) => inWords(count(row.entries)) },
          { name: "lease", isNumber: true, isMinor: true, cell: (row) => <Figure value={milliseconds(row.lease_remaining_ms)} /> },
        ]}
      />
      <p class="quiet">
        Coordinator: {status.coordinator.reachable ? "reachable" : <Badge level="critical">not reachable</Badge>}, revision {status.coordinator.revision}
        {status.coordinator.seen_ms_ago !== null && <>, seen {inWords(milliseconds(status.coordinator.seen_ms_ago))} ago</>}.
      </p>
    </Panel>
  );
}

export function Recoveries({ rows }: { rows: RecoveryRow[] }) {
  if (rows.length === 0) return null;
  return (
    <div class="notice notice-warning" role="status">
      <p><strong>Recovery is under way.</strong> <a href="/console/recovery">Follow it</a></p>
      <ul>
        {rows.map((row) => (
          <li key={row.pair}>
            Pair {row.pair} on node {row.node}: {row.stage}, {inWords(bytes(row.bytes_done))} of {inWords(bytes(row.bytes_total))} at {inWords(bytesRate(row.bytes_per_second))}
          </li>
        ))}
      </ul>
    </div>
  );
}

export function LastEvents({ status, source }: { status: Status; source: Source }) {
  return (
    <Panel title="Last events" window="newest first" source={source} saysMissing={false} actions={<a href="/console/events">All events</a>}>
      {status.events.length === 0 ? <p class="quiet">Nothing has happened since the nodes started.</p> : <EventTable events={status.events} />}
    </Panel>
  );
}
