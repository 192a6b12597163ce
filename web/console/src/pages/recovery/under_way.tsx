// How far each recovery is.

import type { RecoveryRow } from "../../api/types";
import { Figure } from "../../parts/figure";
import { bytes, bytesRate, inWords, milliseconds } from "../../parts/format";
import { NodeName } from "../../parts/node_name";
import { Table } from "../../parts/table";

export function UnderWay({ rows }: { rows: RecoveryRow[] }) {
  if (rows.length === 0) return <p class="quiet">None. Every pair is in its owner's hands.</p>;
  return (
    <Table
      caption="Recoveries under way" rows={rows} rowKey={(row) => row.pair}
      columns={[
        { name: "pair", cell: (row) => `pair ${row.pair}` },
        { name: "by", cell: (row) => <NodeName node={row.node} /> },
        { name: "stage", cell: (row) => row.stage },
        { name: "how far", cell: (row) => <progress max={Math.max(1, row.bytes_total)} value={row.bytes_done} aria-label={`Pair ${row.pair}`} /> },
        { name: "done", isNumber: true, cell: (row) => `${inWords(bytes(row.bytes_done))} of ${inWords(bytes(row.bytes_total))}` },
        { name: "rate", isNumber: true, cell: (row) => <Figure value={bytesRate(row.bytes_per_second)} /> },
        { name: "left", isNumber: true, cell: (row) => <Figure value={milliseconds(row.bytes_per_second > 0 ? ((row.bytes_total - row.bytes_done) / row.bytes_per_second) * 1000 : null)} /> },
      ]}
    />
  );
}
