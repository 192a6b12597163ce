// Nodes that are to be emptied: by whom, since when, what is left, and what keeps it from going on.

import type { DrainRow, DrainsDocument } from "../../api/types";
import { Badge } from "../../parts/badge";
import { bytes, dayAndTime, inWords } from "../../parts/format";
import { NodeName } from "../../parts/node_name";
import { Panel } from "../../parts/panel";
import { Table } from "../../parts/table";
import { useResource } from "../../state/resource";

const STATES: Record<DrainRow["state"], ["ok" | "info" | "warning", string]> = {
  draining: ["info", "is being emptied"], drained: ["ok", "empty: it can be stopped"], removed: ["info", "removed for good"],
};

export function DrainsPanel() {
  const drains = useResource<DrainsDocument>("drains", 2000);
  const rows = drains.data?.drains ?? [];
  if (rows.length === 0) return null;
  return (
    <Panel title="Nodes that drain" window="to be emptied; cell node drain and undrain begin and end it" source={drains}>
      <Table
        caption="Nodes that drain" rows={rows} rowKey={(row) => row.node}
        columns={[
          { name: "node", cell: (row) => <NodeName node={row.node} /> },
          { name: "state", cell: (row) => <Standing row={row} /> },
          { name: "pairs left", isNumber: true, cell: (row) => row.pairs_left },
          { name: "bytes left", isNumber: true, cell: (row) => (row.bytes_left === null ? "–" : inWords(bytes(row.bytes_left))) },
          { name: "since", cell: (row) => dayAndTime(row.since_unix_ms) },
          { name: "by", cell: (row) => <>{row.who}{row.why && <div class="quiet event-text">{row.why}</div>}</> },
        ]}
      />
    </Panel>
  );
}

function Standing({ row }: { row: DrainRow }) {
  const [level, words] = row.stall ? (["warning", "does not come on"] as const) : STATES[row.state];
  return <><Badge level={level}>{words}</Badge>{row.stall && <div class="quiet event-text">{row.stall}</div>}</>;
}
