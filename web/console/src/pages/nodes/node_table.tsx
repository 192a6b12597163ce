// One row a node.

import { isAbsent, type NodeRow } from "../../api/types";
import { StateBadge } from "../../parts/badge";
import { Figure } from "../../parts/figure";
import { age, dayAndTime, digits, duration, inWords, count, microseconds, milliseconds, perSecond } from "../../parts/format";
import { NodeName } from "../../parts/node_name";
import { Table } from "../../parts/table";
import { STALE_AFTER_MS } from "../../state/live";

/** A node that is absent has no figures: a dash is no zero. */
const ifThere = <T,>(node: NodeRow, shown: T): T | string => (isAbsent(node) ? "–" : shown);

/** One that has not its pairs yet, or not any more, has no entries to count: that is no zero either. */
const hasPairs = (node: NodeRow): boolean => !["starting", "recovering", "failed"].includes(node.state);

function Standing({ node, isStale }: { node: NodeRow; isStale: boolean }) {
  return (
    <>
      <StateBadge state={node.state} isStale={isStale || (node.age_ms ?? 0) > STALE_AFTER_MS} />
      {node.draining && <span class="tag">drains</span>}
      {node.state_detail && <div class="quiet event-text">{node.state_detail}</div>}
      {typeof node.absent_since_unix_ms === "number" && <div class="quiet">since {dayAndTime(node.absent_since_unix_ms)}</div>}
      {(node.age_ms ?? 0) > STALE_AFTER_MS && <div class="quiet">figures from {age(node.age_ms!)}</div>}
    </>
  );
}

export function NodeTable({ nodes, isStale }: { nodes: NodeRow[]; isStale: boolean }) {
  return (
    <Table
      caption="Nodes" rows={nodes} rowKey={(node) => node.node}
      columns={[
        { name: "node", cell: (node) => <><NodeName node={node.node} />{node.is_self && <> <span class="tag">answers you</span></>}</> },
        { name: "state", cell: (node) => <Standing node={node} isStale={isStale} /> },
        { name: "lease", isNumber: true, cell: (node) => ifThere(node, <Figure value={milliseconds(node.lease_remaining_ms)} />) },
        { name: "up", isNumber: true, cell: (node) => ifThere(node, duration(node.uptime_ms)) },
        { name: "pairs", cell: (node) => node.pairs.join(", ") || (hasPairs(node) && !isAbsent(node) ? "none" : "–") },
        { name: "entries", isNumber: true, cell: (node) => (hasPairs(node) ? ifThere(node, inWords(count(node.entries))) : "–") },
        { name: "operations", isNumber: true, cell: (node) => ifThere(node, <Figure value={perSecond(node.operations_per_second)} />) },
        { name: "queue", isNumber: true, cell: (node) => <Figure value={microseconds(node.queue_estimate_us)} /> },
        { name: "CPU", unit: "cores", isNumber: true, cell: (node) => (node.cpu_cores_used === null ? "–" : digits(node.cpu_cores_used)) },
      ]}
    />
  );
}

/** Where a node is reached, without the port: processes of one machine have the same. */
const placeOf = (node: NodeRow): string => node.address.replace(/:\d+$/, "");

/** Numbers in ascending order, those in a row as one range. */
function inRanges(numbers: number[]): string {
  const ranges: [number, number][] = [];
  for (const number of numbers) {
    const last = ranges.at(-1);
    if (last && last[1] + 1 === number) last[1] = number;
    else ranges.push([number, number]);
  }
  return ranges.map(([first, last]) => (first === last ? String(first) : `${first}–${last}`)).join(", ");
}

/** The nodes of each address, in words; nothing where a node is alone. */
function sharers(nodes: NodeRow[]): Map<string, string> {
  const numbers = new Map<string, number[]>();
  for (const node of nodes) {
    const known = numbers.get(placeOf(node));
    if (known) known.push(node.node);
    else numbers.set(placeOf(node), [node.node]);
  }
  const words = (of: number[]): string => (of.length > 1 ? `nodes ${inRanges([...of].sort((a, b) => a - b))}` : "–");
  return new Map([...numbers].map(([place, of]) => [place, words(of)]));
}

export function AddressTable({ nodes }: { nodes: NodeRow[] }) {
  const rows = nodes.filter((node) => !isAbsent(node));
  const shared = sharers(rows.filter((node) => node.address !== ""));
  return (
    <Table
      caption="Addresses" rows={rows} rowKey={(node) => node.node}
      columns={[
        { name: "node", cell: (node) => <NodeName node={node.node} /> },
        { name: "connections", isNumber: true, cell: (node) => node.connections },
        { name: "memory stands on", cell: (node) => (node.backing.node_region === "none" ? "no region yet" : node.backing.node_region === node.backing.extent_region ? `${node.backing.node_region} pages` : `${node.backing.node_region} pages, extents ${node.backing.extent_region}`) },
        { name: "fabric", cell: (node) => <span class="mono">{node.address}</span> },
        { name: "share the address", cell: (node) => shared.get(placeOf(node)) ?? "–" },
        { name: "HTTP", cell: (node) => <a href={`http://${node.http}/console/nodes`} target="_blank" rel="noreferrer">{node.http}</a> },
        { name: "incarnation", cell: (node) => <span class="mono">{node.incarnation}</span> },
      ]}
    />
  );
}
