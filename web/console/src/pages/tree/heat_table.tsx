// The heat strip as rows: how much there was, and which range was the hottest.

import { Figure } from "../../parts/figure";
import { clockTime, keyText, perSecond, shortened } from "../../parts/format";
import { Table } from "../../parts/table";
import { textOfHex } from "../data/hex";
import type { HeatOf, HeatRow } from "./heat";

const sum = (rates: number[]): number => rates.reduce((all, rate) => all + rate, 0);

function hottestKey(row: HeatRow, of: HeatOf): string {
  const rates = row[of];
  const index = rates.indexOf(Math.max(...rates));
  return shortened(keyText({ text: textOfHex(row.lows[index] ?? "") }), 28);
}

export function HeatTable({ rows }: { rows: HeatRow[] }) {
  return (
    <div class="twin">
      <Table
        caption="Heat of the last minute" rows={rows} rowKey={(row) => row.at}
        columns={[
          { name: "time", cell: (row) => clockTime(row.at) },
          { name: "writes", isNumber: true, cell: (row) => <Figure value={perSecond(sum(row.writes))} /> },
          { name: "most writes from key", cell: (row) => <span class="mono">{hottestKey(row, "writes")}</span> },
          { name: "writes there", isNumber: true, cell: (row) => <Figure value={perSecond(Math.max(0, ...row.writes))} /> },
          { name: "reads", isNumber: true, cell: (row) => <Figure value={perSecond(sum(row.reads))} /> },
          { name: "most reads from key", cell: (row) => <span class="mono">{hottestKey(row, "reads")}</span> },
          { name: "reads there", isNumber: true, cell: (row) => <Figure value={perSecond(Math.max(0, ...row.reads))} /> },
        ]}
      />
    </div>
  );
}
