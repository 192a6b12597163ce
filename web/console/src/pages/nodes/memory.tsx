// Where a node's memory goes, as a bar of its limit.

import { isAbsent, type Memory, type NodeRow } from "../../api/types";
import { bytes, inWords, share } from "../../parts/format";
import { NodeName } from "../../parts/node_name";

const PARTS: [keyof Memory, string, string][] = [
  ["regions_bytes", "regions", "--series-1"], ["ready_bytes", "ready for takeovers", "--series-3"],
  ["logs_bytes", "logs", "--series-2"], ["process_bytes", "process", "--series-4"],
];

export function MemoryBars({ nodes }: { nodes: NodeRow[] }) {
  return (
    <div class="stack-tight">
      {nodes.filter((node) => !isAbsent(node)).map((node) => <Bar key={node.node} node={node} />)}
      <ul class="legend">
        {PARTS.map(([name, says, colour]) => <li key={name}><span class="node-chip" style={{ background: `var(${colour})` }} />{says}</li>)}
        <li><span class="node-chip memory-free" />available</li>
      </ul>
    </div>
  );
}

function Bar({ node: { node, memory } }: { node: NodeRow }) {
  const used = PARTS.reduce((sum, [name]) => sum + memory[name], 0);
  const limit = memory.limit_bytes || used + memory.available_bytes || 1;
  const words = PARTS.map(([name, says]) => `${says} ${inWords(bytes(memory[name]))}`).join(", ");
  return (
    <div class="memory-row">
      <NodeName node={node} />
      <span class="memory-track" role="img" aria-label={`Node ${node}: ${words}, available ${inWords(bytes(memory.available_bytes))}`}>
        {PARTS.map(([name, says, colour]) => (
          <span key={name} style={{ width: `${(memory[name] / limit) * 100}%`, background: `var(${colour})` }} title={`${says}: ${inWords(bytes(memory[name]))}`} />
        ))}
      </span>
      <span class="number">{inWords(bytes(used))} of {inWords(bytes(limit))} <span class="quiet">{inWords(share(used / limit))}</span></span>
    </div>
  );
}
