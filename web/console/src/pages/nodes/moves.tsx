// Planned moves of pairs: which are under way and how far, what became of the last ones, and a form to begin one.

import { useState } from "preact/hooks";
import type { MoveRow, MovesDocument, NodeRow, RegionRow } from "../../api/types";
import { Badge } from "../../parts/badge";
import { bytes, dayAndTime, duration, inWords, share } from "../../parts/format";
import { NodeName } from "../../parts/node_name";
import { Panel } from "../../parts/panel";
import { Table } from "../../parts/table";
import { useWhyNot } from "../../state/permission";
import { useResource } from "../../state/resource";
import { CancelMove } from "./move_cancel";
import { MoveForm } from "./move_form";

/** Of those that are over, so many are shown, the last ones. */
const OVER_MAX = 20;

const STAGES: Record<MoveRow["stage"], string> = {
  wanted: "asked for", copying: "copying", ready: "copied, to be handed over next", handed: "handed over, served in a moment",
};
const OUTCOMES: Record<NonNullable<MoveRow["outcome"]>, ["ok" | "info" | "warning", string]> = {
  moved: ["ok", "moved"], cancelled: ["info", "cancelled"], given_up: ["warning", "given up: it stayed"], back: ["warning", "went back"],
};

interface MovesPanelProps { nodes: NodeRow[]; regions: RegionRow[] }

export function MovesPanel({ nodes, regions }: MovesPanelProps) {
  // what the node itself saw last: it is there while the coordinator is away
  const moves = useResource<MovesDocument>("moves?scope=node", 1000);
  const [begun, noteBegun] = useState<MoveRow | null>(null);
  const rows = moves.data ? withBegun(moves.data.moves, begun) : [];
  const now = (moves.data?.at_unix_ms ?? 0) + moves.ageMs;
  return (
    <Panel title="Pairs that move" window="planned moves: a pair is read and written while it is copied" source={moves}>
      {moves.data && (
        <div class="stack">
          <UnderWay rows={rows.filter((row) => row.outcome === null)} now={now} onChange={moves.reload} />
          <Over rows={rows.filter((row) => row.outcome !== null)} />
          <MoveForm nodes={nodes} regions={regions} rows={rows} onBegun={(row) => { noteBegun(row); moves.reload(); }} />
        </div>
      )}
    </Panel>
  );
}

/** A move that was started here is shown until the node has seen it, too. */
function withBegun(rows: MoveRow[], begun: MoveRow | null): MoveRow[] {
  if (!begun || rows.some((row) => row.pair === begun.pair && row.number >= begun.number)) return rows;
  return [begun, ...rows.filter((row) => row.pair !== begun.pair)];
}

const part = (row: MoveRow): number | null => (row.bytes_total > 0 ? Math.min(1, row.bytes_done / row.bytes_total) : null);

function Progress({ row }: { row: MoveRow }) {
  const done = part(row);
  if (catchesUp(row)) return <progress max={1} aria-label={`Copy of pair ${row.pair}`} />;
  if (done === null) return <span class="quiet">not known yet</span>;
  return <progress max={1} value={done} aria-label={`Copy of pair ${row.pair}`} />;
}

/** How much of what is still being written there is shows when it is read: then it is no part of a whole. */
const catchesUp = (row: MoveRow): boolean => row.stage === "copying" && row.bytes_done > 0 && row.bytes_done >= row.bytes_total;

const copied = (row: MoveRow): string => {
  if (catchesUp(row)) return `${inWords(bytes(row.bytes_done))} copied, catching up`;
  return part(row) === null ? "–" : `${inWords(bytes(row.bytes_done))} of ${inWords(bytes(row.bytes_total))}, ${inWords(share(part(row)))}`;
};

function UnderWay({ rows, now, onChange }: { rows: MoveRow[]; now: number; onChange(): void }) {
  const [chosen, choose] = useState<MoveRow | null>(null);
  const whyNot = useWhyNot("operator");
  if (rows.length === 0 && !chosen) return <p class="quiet">No pair is on its way.</p>;
  return (
    <>
      <Table
        caption="Moves under way" rows={rows} rowKey={(row) => row.pair}
        columns={[
          { name: "pair", cell: (row) => `pair ${row.pair}` },
          { name: "from", cell: (row) => <NodeName node={row.from} /> },
          { name: "to", cell: (row) => <NodeName node={row.to} /> },
          { name: "stage", cell: (row) => STAGES[row.stage] ?? row.stage },
          { name: "how far", cell: (row) => <Progress row={row} /> },
          { name: "copied", isNumber: true, cell: copied },
          { name: "for", isNumber: true, cell: (row) => (row.wanted_unix_ms === null ? "–" : duration(Math.max(0, now - row.wanted_unix_ms))) },
          { name: "why", cell: (row) => <span class="event-text">{row.why}</span> },
          {
            name: "cancel", isUnnamed: true,
            cell: (row) => (row.stage === "handed"
              ? <span class="quiet">too late to cancel</span>
              : <button class="button button-small" type="button" disabled={whyNot !== null} aria-label={`Cancel the move of pair ${row.pair}`} onClick={() => choose(row)}>Cancel…</button>),
          },
        ]}
      />
      {chosen && <CancelMove row={chosen} onClose={() => choose(null)} onDone={onChange} />}
    </>
  );
}

function Outcome({ row }: { row: MoveRow }) {
  const [level, words] = OUTCOMES[row.outcome!] ?? ["info", String(row.outcome)];
  return <Badge level={level}>{words + (row.cancelled_by ? ` by ${row.cancelled_by}` : "")}</Badge>;
}

const took = ({ wanted_unix_ms: begin, over_unix_ms: end }: MoveRow): string => (begin === null || end === null ? "–" : duration(Math.max(0, end - begin)));

function Over({ rows }: { rows: MoveRow[] }) {
  if (rows.length === 0) return null;
  const last = [...rows].sort((a, b) => (b.over_unix_ms ?? 0) - (a.over_unix_ms ?? 0)).slice(0, OVER_MAX);
  return (
    <Table
      caption={rows.length > OVER_MAX ? `The last ${OVER_MAX} moves that are over` : "Moves that are over, the last one of each pair"} isCaptionShown
      rows={last} rowKey={(row) => row.pair}
      columns={[
        { name: "pair", cell: (row) => `pair ${row.pair}` },
        { name: "from", cell: (row) => <NodeName node={row.from} /> },
        { name: "to", cell: (row) => <NodeName node={row.to} /> },
        { name: "what became of it", cell: (row) => <Outcome row={row} /> },
        { name: "when", cell: (row) => (row.over_unix_ms === null ? "–" : dayAndTime(row.over_unix_ms)) },
        { name: "took", isNumber: true, cell: took },
        { name: "why", cell: (row) => <span class="event-text">{row.because ?? row.why}</span> },
      ]}
    />
  );
}
