// The heat strip as rows: how much there was, and which range was the hottest.

import type { HeatDocument } from "../../api/types";
import { Figure } from "../../parts/figure";
import { clockTime, keyText, perSecond, shortened } from "../../parts/format";
import { Table } from "../../parts/table";
import { textOfHex } from "../data/hex";
import { BACK_WORDS, rowsOf, strongest, sumOf, type HeatBack, type HeatOf, type HeatRow } from "./heat";

export function HeatTable({ heat, back }: { heat: HeatDocument; back: HeatBack }) {
  const sum = (row: HeatRow, of: HeatOf) => <Figure value={perSecond(row[of] && sumOf(row[of]))} />;
  const most = (row: HeatRow, of: HeatOf) => <Figure value={perSecond(row[of] && strongest(row[of]))} />;
  const key = (row: HeatRow, of: HeatOf) => {
    const index = row[of]?.indexOf(strongest(row[of])) ?? -1;
    return <span class="mono">{index < 0 ? "" : shortened(keyText({ text: textOfHex(heat.lows[index] ?? "") }), 28)}</span>;
  };
  return (
    <div class="twin">
      <Table
        caption={`Heat of the last ${BACK_WORDS[back]}: writes, and reads by servers; before a split its parts share evenly what the whole did`} rows={rowsOf(heat)} rowKey={(row) => row.at}
        columns={[
          { name: "from", cell: (row) => clockTime(row.at) },
          { name: "writes", isNumber: true, cell: (row) => sum(row, "writes") },
          { name: "most writes from key", cell: (row) => key(row, "writes") },
          { name: "writes there", isNumber: true, cell: (row) => most(row, "writes") },
          { name: "reads by servers", isNumber: true, cell: (row) => sum(row, "reads") },
          { name: "most of them from key", cell: (row) => key(row, "reads") },
          { name: "reads there", isNumber: true, cell: (row) => most(row, "reads") },
        ]}
      />
    </div>
  );
}
