// The overview's tables: operations, nodes, pairs that nobody serves, recoveries, last events.

import { isAbsent, type OperationRow, type RecoveryRow, type Status } from "../../api/types";
import { Badge, StateBadge } from "../../parts/badge";
import { EventTable } from "../../parts/event_table";
import { Figure } from "../../parts/figure";
import { bytes, bytesRate, count, inWords, microseconds, milliseconds, perSecond } from "../../parts/format";
import { NodeName } from "../../parts/node_name";
import { Panel, type Source } from "../../parts/panel";
import { Spark } from "../../parts/spark";
import { Table } from "../../parts/table";
import type { Histories } from "../../state/series";
import type { Range } from "./range";

export function Unserved({ status }: { status: Status }) {
  const { all, served, unknown, unserved } = status.pairs;
  if (unserved.length === 0) return null;
  const isAlarm = all - served > unknown; // a node may have been too late with its answer
  return (
    <div class={`notice ${isAlarm ? "notice-critical" : "notice-warning"}`} role={isAlarm ? "alert" : "status"}>
      <p><strong>{isAlarm ? "Keys of these pairs are not available, or not known to be." : "Keys of these pairs are not known to be available."}</strong></p>
      <ul>
        {unserved.slice(0, 8).map((one) => <li key={one.pair}>Pair {one.pair} is {one.what}. Next: {one.next}</li>)}
      </ul>
      {unserved.length > 8 && <p>And {unserved.length - 8} more.</p>}
    </div>
  );
}

interface OperationsProps { status: Status; histories: Histories; range: Range; source: Source }

/** What clients do themselves passes the servers by: it has a rate, but no latency of a server. */
const ONE_SIDED = "one-sided search";

const seriesOf = (operation: string): string => (operation === ONE_SIDED ? "searches_one_sided" : `ops_${operation}`);

export function Operations({ status, histories, range, source }: OperationsProps) {
  const oneSided: OperationRow = { operation: ONE_SIDED, per_second: status.searches.one_sided_per_second, p50_us: null, p99_us: null };
  return (
    <Panel title="Operations" window={`last second${status.missing?.length ? ", nodes that answered" : ""}; latencies as the server measures them`} source={source} saysState={false}>
      <Table
        caption="Operations of all nodes" rows={[...status.operations, oneSided]} rowKey={(row) => row.operation}
        columns={[
          { name: "operation", cell: (row) => row.operation },
          { name: "rate", isNumber: true, cell: (row) => <Figure value={perSecond(row.per_second)} /> },
          { name: "p50", isNumber: true, cell: (row) => <Figure value={microseconds(row.p50_us)} /> },
          { name: "p99", isNumber: true, cell: (row) => <Figure value={microseconds(row.p99_us)} /> },
          ...(status.operations.some((row) => row.p999_us !== undefined)
            ? [{ name: "p99.9", isNumber: true, cell: (row: OperationRow) => <Figure value={microseconds(row.p999_us)} /> }]
            : []),
          ...(status.operations.some((row) => row.max_us !== undefined)
            ? [{ name: "max", isNumber: true, isMinor: true, cell: (row: OperationRow) => <Figure value={microseconds(row.max_us)} /> }]
            : []),
          {
            name: range.short, isMinor: true,
            cell: (row) => <Spark label={`${row.operation}, rate`} values={histories.values(seriesOf(row.operation))} />,
          },
        ]}
      />
    </Panel>
  );
}

/** What the coordinator is and where, before how it is; nothing if the node was not told. */
function coordinatorPlace({ coordinator }: Status): string {
  if (coordinator.provider === null) return "";
  const words = { embedded: "embedded in the node's process", socket: "at", tls: "at", etcd: "etcd at" }[coordinator.provider];
  return `${[words, coordinator.addresses.join(", ")].filter((word) => word !== "").join(" ")}, `;
}

export function NodeStrip({ status, source }: { status: Status; source: Source }) {
  return (
    <Panel title="Nodes" source={source} saysState={false} actions={<a href="/console/nodes">All about nodes</a>}>
      <Table
        caption="Nodes" rows={status.nodes} rowKey={(row) => row.node}
        columns={[
          { name: "node", cell: (row) => <NodeName node={row.node} /> },
          { name: "state", cell: (row) => <StateBadge state={row.state} isStale={source.isStale} /> },
          { name: "pairs", isNumber: true, cell: (row) => (isAbsent(row) ? "–" : row.pairs.length) },
          { name: "operations", isNumber: true, cell: (row) => (isAbsent(row) ? "–" : <Figure value={perSecond(row.operations_per_second)} />) },
          { name: "entries", isNumber: true, isMinor: true, cell: (row) => (isAbsent(row) ? "–" : inWords(count(row.entries))) },
          { name: "lease", isNumber: true, isMinor: true, cell: (row) => (isAbsent(row) ? "–" : <Figure value={milliseconds(row.lease_remaining_ms)} />) },
        ]}
      />
      <p class="quiet">
        Coordinator: {coordinatorPlace(status)}{status.coordinator.reachable ? "reachable" : <Badge level="critical">not reachable</Badge>}, revision {status.coordinator.revision}
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
    <Panel title="Last events" window="newest first" source={source} saysState={false} actions={<a href="/console/events">All events</a>}>
      {status.events.length === 0 ? <p class="quiet">Nothing has happened since the nodes started.</p> : <EventTable events={status.events} />}
    </Panel>
  );
}
