// Pairs with their two regions.

import type { RegionRow } from "../../api/types";
import { StateBadge } from "../../parts/badge";
import { Fill } from "../../parts/fill";
import { bytes, inWords } from "../../parts/format";
import { NodeName } from "../../parts/node_name";
import { Table } from "../../parts/table";
import { Empty } from "../../parts/states";
import { setQuery, useParam } from "../../state/url";
import { Segments } from "../../parts/choice";

const fill = (region: RegionRow): number | null => (region.bytes === 0 || region.used_bytes === null ? null : region.used_bytes / region.bytes);

export function PairTable({ regions, isStale }: { regions: RegionRow[]; isStale: boolean }) {
  const only = useParam("state") === "troubled";
  const rows = [...regions].sort((a, b) => a.pair - b.pair || a.region - b.region).filter((region) => !only || region.what !== null);
  return (
    <div class="stack-tight">
      <Segments label="Show" value={only ? "troubled" : "all"} options={[["all", "All"], ["troubled", "Only with trouble"]] as const} onChange={(value) => setQuery({ state: value === "all" ? null : value })} />
      {rows.length === 0 && <Empty>{only ? "No pair is in trouble." : "No region is told of."}</Empty>}
      {rows.length > 0 && <Rows rows={rows} isStale={isStale} />}
    </div>
  );
}

function Rows({ rows, isStale }: { rows: RegionRow[]; isStale: boolean }) {
  return (
    <Table
      caption="Regions" rows={rows} rowKey={(region) => region.region}
      columns={[
        { name: "region", cell: (region) => region.region },
        { name: "kind", cell: (region) => region.kind },
        { name: "pair", isNumber: true, cell: (region) => region.pair },
        { name: "owner", cell: (region) => (region.node === null ? <b>nobody</b> : <NodeName node={region.node} />) },
        { name: "epoch", isNumber: true, cell: (region) => region.epoch },
        { name: "state", cell: (region) => <StateBadge state={region.state} isStale={isStale} /> },
        { name: "used", isNumber: true, cell: (region) => inWords(bytes(region.used_bytes)) },
        { name: "of", isNumber: true, cell: (region) => inWords(bytes(region.bytes)) },
        { name: "full", cell: (region) => <Fill part={fill(region)} /> },
        { name: "what", cell: (region) => <span class="event-text">{region.what ?? ""}</span> },
      ]}
    />
  );
}
