// One meganode: its levels, a map of its slot, and one of its tree nodes.

import type { Meganode } from "../../api/types";
import { Figure } from "../../parts/figure";
import { keyText, share, whole } from "../../parts/format";
import { Panel } from "../../parts/panel";
import { HiddenNote } from "../../parts/states";
import { Table } from "../../parts/table";
import { TwinButton, useTwin } from "../../parts/twin";
import { useResource } from "../../state/resource";
import { setQuery, urlWith, useParam } from "../../state/url";
import { SlotMap } from "./slot_map";
import { TreeNodeCard } from "./tree_node";

export function MeganodeView({ id }: { id: string }) {
  const meganode = useResource<Meganode>(`tree/meganodes/${encodeURIComponent(id)}`, 2000);
  const index = useParam("tree_node");
  const close = <button class="button button-small" type="button" onClick={() => setQuery({ meganode: null, tree_node: null }, true)}>Close</button>;
  return (
    <Panel title={`Meganode ${id}`} id="meganode" window="as its owner sees it" source={meganode} actions={close}>
      {meganode.data && (
        <div class="columns">
          <div class="stack">
            <Facts meganode={meganode.data} />
            <Levels meganode={meganode.data} />
          </div>
          <div class="stack">
            <SlotMap meganode={meganode.data} chosen={index === null ? null : Number(index)} />
            {index !== null && meganode.data.keys_left_out && <HiddenNote why="What a tree node has is for the role reader." />}
            {index !== null && !meganode.data.keys_left_out && <TreeNodeCard key={`${id}/${index}`} meganode={id} index={index} />}
          </div>
        </div>
      )}
    </Panel>
  );
}

function Facts({ meganode }: { meganode: Meganode }) {
  return (
    <dl class="facts">
      <dt>Keys</dt>{meganode.low ? <dd class="mono">{keyText(meganode.low)} to {keyText(meganode.high ?? null)}</dd> : <dd>not shown</dd>}
      <dt>Owner</dt><dd>node {meganode.node}, pair {meganode.pair}, slot {meganode.slot}</dd>
      <dt>Use</dt><dd>{meganode.use}</dd>
      <dt>Entries</dt><dd>{whole(meganode.entries)}</dd>
      <dt>Height</dt><dd>{meganode.height} levels</dd>
      <dt>Tree nodes</dt>
      <dd>{whole(meganode.tree_nodes)} of {whole(meganode.tree_nodes_all)}, <Figure value={share(meganode.tree_nodes_all ? meganode.tree_nodes / meganode.tree_nodes_all : null)} /></dd>
      <dt>Right neighbour</dt>
      <dd>{meganode.right ? <a href={urlWith({ meganode: meganode.right, tree_node: null })}>{meganode.right}</a> : "none: the last meganode"}</dd>
    </dl>
  );
}

function Levels({ meganode }: { meganode: Meganode }) {
  const rows = [...meganode.levels].sort((a, b) => b.level - a.level);
  const [isTable] = useTwin("fill");
  return (
    <div class="stack-tight">
      <p class="row row-between"><b>Levels, from the root down</b><TwinButton name="fill" of="how full" /></p>
      <Table
        caption="Levels, from the root down" rows={rows} rowKey={(row) => row.level}
        columns={[
          { name: "level", cell: (row) => (row.level === 0 ? "0, leaves" : String(row.level)) },
          { name: "tree nodes", isNumber: true, cell: (row) => whole(row.nodes) },
          { name: "entries", isNumber: true, cell: (row) => whole(row.entries) },
          { name: "how full: 0 to 100 %", cell: (row) => <Histogram counts={row.fill_histogram} /> },
        ]}
      />
      {isTable && <FillTable rows={rows} />}
    </div>
  );
}

/** The histograms as numbers: tree nodes of a level by how full they are. */
function FillTable({ rows }: { rows: Meganode["levels"] }) {
  const tenths = Array.from({ length: Math.max(0, ...rows.map((row) => row.fill_histogram.length)) }, (_, tenth) => tenth);
  return (
    <div class="twin">
      <Table
        caption="Tree nodes by how full they are" rows={tenths} rowKey={(tenth) => tenth}
        columns={[
          { name: "full", unit: "%", cell: (tenth) => `${tenth * 10} to ${tenth * 10 + 10}` },
          ...rows.map((row) => ({ name: `level ${row.level}`, isNumber: true, cell: (tenth: number) => whole(row.fill_histogram[tenth] ?? 0) })),
        ]}
      />
    </div>
  );
}

function Histogram({ counts }: { counts: number[] }) {
  const top = Math.max(1, ...counts);
  const words = counts.map((count, tenth) => (count > 0 ? `${tenth * 10} to ${tenth * 10 + 10} %: ${whole(count)}` : "")).filter(Boolean).join("; ");
  return (
    <svg class="histogram" viewBox="0 0 100 24" role="img" aria-label={words || "none"}>
      <title>{words || "none"}</title>
      {counts.map((count, tenth) => {
        const height = count === 0 ? 0 : Math.max(1.5, (count / top) * 23);
        return <rect key={tenth} x={tenth * 10 + 0.5} y={24 - height} width="9" height={height} />;
      })}
      <line x1="0" y1="23.5" x2="100" y2="23.5" />
    </svg>
  );
}

