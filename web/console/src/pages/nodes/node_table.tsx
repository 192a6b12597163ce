// One row a node.

import type { NodeRow } from "../../api/types";
import { StateBadge } from "../../parts/badge";
import { Figure } from "../../parts/figure";
import { digits, duration, inWords, count, microseconds, milliseconds, perSecond } from "../../parts/format";
import { NodeName } from "../../parts/node_name";
import { Table } from "../../parts/table";

export function NodeTable({ nodes }: { nodes: NodeRow[] }) {
  return (
    <Table
      caption="Nodes" rows={nodes} rowKey={(node) => node.node}
      columns={[
        { name: "node", cell: (node) => <><NodeName node={node.node} />{node.is_self && <> <span class="tag">answers you</span></>}</> },
        { name: "state", cell: (node) => <><StateBadge state={node.state} />{node.state_detail && <div class="quiet event-text">{node.state_detail}</div>}</> },
        { name: "lease", isNumber: true, cell: (node) => <Figure value={milliseconds(node.lease_remaining_ms)} /> },
        { name: "up", isNumber: true, cell: (node) => duration(node.uptime_ms) },
        { name: "pairs", cell: (node) => node.pairs.join(", ") || "none" },
        { name: "entries", isNumber: true, cell: (node) => inWords(count(node.entries)) },
        { name: "operations", isNumber: true, cell: (node) => <Figure value={perSecond(node.operations_per_second)} /> },
        { name: "queue", isNumber: true, cell: (node) => <Figure value={microseconds(node.queue_estimate_us)} /> },
        { name: "CPU", unit: "cores", isNumber: true, cell: (node) => (node.cpu_cores_used === null ? "–" : digits(node.cpu_cores_used)) },
      ]}
    />
  );
}

export function AddressTable({ nodes }: { nodes: NodeRow[] }) {
  return (
    <Table
      caption="Addresses" rows={nodes} rowKey={(node) => node.node}
      columns={[
        { name: "node", cell: (node) => <NodeName node={node.node} /> },
        { name: "connections", isNumber: true, cell: (node) => node.connections },
        { name: "memory stands on", cell: (node) => (node.backing.node_region === node.backing.extent_region ? `${node.backing.node_region} pages` : `${node.backing.node_region} pages, extents ${node.backing.extent_region}`) },
        { name: "fabric", cell: (node) => <span class="mono">{node.address}</span> },
        { name: "HTTP", cell: (node) => <a href={`http://${node.http}/console/nodes`} target="_blank" rel="noreferrer">{node.http}</a> },
        { name: "incarnation", cell: (node) => <span class="mono">{node.incarnation}</span> },
      ]}
    />
  );
}
