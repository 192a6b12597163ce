// Who owned each pair, made of the incidents that the cluster remembers.

import type { RecoveriesDocument, RegionRow } from "../../api/types";
import { duration } from "../../parts/format";
import { nodeColour } from "../../parts/node_name";
import { Table } from "../../parts/table";
import { useTwin } from "../../parts/twin";

interface Piece {
  from: number; to: number;
  /** Null: nobody served it. Undefined: who did is not known. */
  node: number | null | undefined;
  /** It is known that this owner came, or went, but not when. */
  isBeginUnknown?: boolean; isEndUnknown?: boolean;
}

/** Time before the first incident that is shown, as a part of all. */
const LEAD_MS = 10_000;
/** When a later owner took over is not known: it has this part of the axis at its end. */
const END_SHARE = 0.08;

export function Owners({ document, regions }: { document: RecoveriesDocument; regions: RegionRow[] }) {
  const { incidents, now_boottime_ms: now } = document;
  if (incidents.length === 0) return <p class="quiet">No pair has changed hands in the cluster's memory.</p>;
  const begin = Math.min(...incidents.map((incident) => incident.detected_ms)) - LEAD_MS;
  const pairs = [...new Set(incidents.flatMap((incident) => incident.shares.map((share) => share.pair)))].sort((a, b) => a - b);
  const [isTable] = useTwin("owners");
  const all = pairs.flatMap((pair) => piecesOf(pair, document, regions, begin).map((piece) => ({ pair, ...piece })));
  const place = (at: number) => `${((at - begin) / (now - begin)) * 100}%`;
  return (
    <div class="stack-tight">
      <div class="gantt" role="img" aria-label={pairs.map((pair) => `pair ${pair}: ${words(piecesOf(pair, document, regions, begin))}`).join("; ")}>
        {pairs.map((pair) => (
          <div key={pair} class="gantt-row">
            <span class="gantt-name">pair {pair}</span>
            <span class="gantt-track">
              {piecesOf(pair, document, regions, begin).map((piece) => (
                <span
                  key={piece.from} class={piece.node === null ? "owner is-nobody" : piece.node === undefined ? "owner is-unreported" : "owner"} title={ownerName(piece.node)}
                  style={{ left: place(piece.from), width: `${((piece.to - piece.from) / (now - begin)) * 100}%`, background: typeof piece.node === "number" ? nodeColour(piece.node) : undefined }}
                >{piece.to - piece.from > (now - begin) * 0.06 && typeof piece.node === "number" ? ownerName(piece.node) : ""}</span>
              ))}
            </span>
          </div>
        ))}
        <div class="row row-between quiet"><span>{duration(now - begin)} ago</span><span>now</span></div>
      </div>
      {isTable && (
        <div class="twin">
          <Table
            caption="Owners over time" rows={all} rowKey={(row) => `${row.pair} ${row.from}`}
            columns={[
              { name: "pair", cell: (row) => `pair ${row.pair}` },
              { name: "from", cell: (row) => (row.isBeginUnknown ? "not told" : `${duration(now - row.from)} ago`) },
              { name: "to", cell: (row) => (row.isEndUnknown ? "not told" : row.to >= now ? "now" : `${duration(now - row.to)} ago`) },
              { name: "owner", cell: (row) => (row.node === null ? <b>nobody</b> : ownerName(row.node)) },
            ]}
          />
        </div>
      )}
    </div>
  );
}

const ownerName = (node: number | null | undefined): string => (node === null ? "nobody" : node === undefined ? "not told" : `node ${node}`);

const words = (pieces: Piece[]): string => pieces.map((piece) => ownerName(piece.node)).join(", then ");

/**
 * From the first incident on: the dead node's, nobody's until it is served, the survivor's; at the end the owner of
 * now. Who had it before an incident is named by that incident, also where the survivor's name went with its
 * incarnation. Whoever serves it since, it is not nobody's for longer than an incident says.
 */
function piecesOf(pair: number, { incidents, now_boottime_ms: now }: RecoveriesDocument, regions: RegionRow[], begin: number): Piece[] {
  const mine = incidents.flatMap((incident) => incident.shares.filter((share) => share.pair === pair).map((share) => ({ incident, share })))
    .sort((a, b) => a.incident.detected_ms - b.incident.detected_ms);
  const row = regions.find((region) => region.pair === pair);
  const isServed = row?.state === "served";
  const pieces: Piece[] = [];
  let [at, node]: [number, Piece["node"]] = [begin, mine[0]?.incident.node ?? undefined];
  mine.forEach(({ incident, share }, index) => {
    pieces.push({ from: at, to: incident.detected_ms, node: node ?? incident.node ?? undefined });
    const next = mine[index + 1]?.incident.detected_ms;
    if (share.serving_ms > 0 || (next === undefined && !isServed)) {
      [at, node] = [share.serving_ms || now, share.survivor_node ?? undefined];
      pieces.push({ from: incident.detected_ms, to: at, node: null });
    } else {
      // It was served again, and when is not noted.
      [at, node] = [incident.detected_ms, undefined];
      if (next !== undefined) {
        pieces.push({ from: at, to: next, node });
        at = next;
      }
    }
  });
  const owner = row?.node ?? undefined;
  if (owner === undefined || owner === node) pieces.push({ from: at, to: now, node });
  else if (node === undefined && mine.at(-1)?.share.serving_ms) pieces.push({ from: at, to: now, node: owner }); // the survivor's name is gone
  else {
    const turn = Math.max(at, now - (now - begin) * END_SHARE);
    pieces.push({ from: at, to: turn, node, isEndUnknown: true }, { from: turn, to: now, node: owner, isBeginUnknown: true });
  }
  return pieces.filter((piece) => piece.to > piece.from);
}
