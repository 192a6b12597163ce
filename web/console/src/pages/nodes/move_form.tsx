// Choosing a pair and where it is to go. What it would be is shown first, and done as it was shown, or not at all.

import { useState } from "preact/hooks";
import { asProblem, ask, idempotencyKey } from "../../api/client";
import type { ApiProblem } from "../../api/problem";
import { isAbsent, type MoveAnswer, type MoveRow, type NodeRow, type RegionRow } from "../../api/types";
import { Select } from "../../parts/choice";
import { Dialog } from "../../parts/dialog";
import { bytes, inWords } from "../../parts/format";
import { ProblemNote } from "../../parts/states";
import { useWhyNot } from "../../state/permission";
import { setQuery, useParam } from "../../state/url";

interface MoveFormProps { nodes: NodeRow[]; regions: RegionRow[]; rows: MoveRow[]; onBegun(row: MoveRow): void }

export function MoveForm({ nodes, regions, rows, onBegun }: MoveFormProps) {
  const typed = useParam("move") ?? "";
  const pair = /^\d{1,9}$/.test(typed) ? Number(typed) : null;
  const owner = regions.find((region) => region.pair === pair)?.node ?? null;
  const targets = nodes.filter((node) => !isAbsent(node) && node.node !== owner).map((node) => String(node.node));
  const wanted = useParam("to");
  const to = wanted !== null && targets.includes(wanted) ? wanted : (targets[0] ?? "");
  const [reason, setReason] = useState("");
  const [shown, show] = useState<Shown | null>(null);
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const [isAsking, setAsking] = useState(false);
  const whyNot = useWhyNot("operator");
  const isMoving = rows.some((row) => row.pair === pair && row.outcome === null);
  const look = async (event: Event) => {
    event.preventDefault();
    setAsking(true);
    setProblem(null);
    try {
      const { document } = await ask<MoveAnswer>("moves?dry_run=1", { method: "POST", body: { pair, to: Number(to) } });
      show({ row: document.move, reason });
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setAsking(false);
    }
  };
  return (
    <form class="stack-tight" onSubmit={look} aria-label="Move a pair">
      <div class="row">
        <label class="field">
          <span>Pair to move</span>
          <input type="text" inputMode="numeric" autocomplete="off" list="pairs-known" value={typed} placeholder="1" onInput={(event) => setQuery({ move: event.currentTarget.value })} />
        </label>
        <datalist id="pairs-known">{[...new Set(regions.map((region) => region.pair))].map((one) => <option key={one} value={String(one)} />)}</datalist>
        <Select label="To" value={to} options={targets.map((node) => [node, `node ${node}`] as const)} onChange={(value) => setQuery({ to: value })} />
        <label class="field field-wide"><span>Reason, for those who look at moves</span><input type="text" maxLength={400} value={reason} onInput={(event) => setReason(event.currentTarget.value)} placeholder="more room" /></label>
        <button class="button" type="submit" disabled={pair === null || to === "" || isAsking || whyNot !== null}>Show what it would do…</button>
      </div>
      {whyNot && <p class="notice notice-info">{whyNot}</p>}
      {typed !== "" && pair === null && <p class="quiet">A pair is a number.</p>}
      {pair !== null && <p class="quiet">{owner === null ? `Who has pair ${pair} is not told here.` : `Node ${owner} has pair ${pair}.`}{isMoving && " It is on its way already."}</p>}
      {problem && <ProblemNote problem={problem} />}
      {shown && <Confirm {...shown} regions={regions} onClose={() => show(null)} onBegun={onBegun} />}
    </form>
  );
}

/** What would be done, and the reason that goes with it. */
interface Shown { row: MoveRow; reason: string }

interface ConfirmProps extends Shown { regions: RegionRow[]; onClose(): void; onBegun(row: MoveRow): void }

/** What both regions hold; null where that is not known of one of them. */
function held(regions: RegionRow[], pair: number): number | null {
  const used = regions.filter((region) => region.pair === pair).map((region) => region.used_bytes);
  if (used.length === 0 || used.includes(null)) return null;
  return used.reduce<number>((sum, one) => sum + (one ?? 0), 0);
}

function Confirm({ row, reason, regions, onClose, onBegun }: ConfirmProps) {
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const [isSent, setSent] = useState(false);
  const [key] = useState(idempotencyKey);
  const begin = async () => {
    setSent(true);
    setProblem(null);
    try {
      const query = reason.trim() === "" ? "" : `?reason=${encodeURIComponent(reason.trim())}`;
      const headers = { "if-match": `"${row.revision}"`, "idempotency-key": key };
      const { document } = await ask<MoveAnswer>(`moves${query}`, { method: "POST", body: { pair: row.pair, to: row.to }, headers });
      onBegun(document.move);
      onClose();
    } catch (error) {
      const found = asProblem(error);
      setProblem(found);
      setSent(found.status === 412); // what is shown is not so any more
    }
  };
  const size = held(regions, row.pair);
  return (
    <Dialog title={`Move pair ${row.pair} from node ${row.from} to node ${row.to}?`} onClose={onClose}>
      <div class="stack">
        <p>
          Node {row.to} copies pair {row.pair} from its image and log{size !== null && <>, which held {inWords(bytes(size))} when that was told last</>}.
          Node {row.from} serves it meanwhile, and keeps its log until the move is over. Then the pair is handed over: its keys wait for a moment, and no operation fails.
        </p>
        <p class="quiet">Until the handing the move can be cancelled. Nothing has been done yet.</p>
        {problem && <ProblemNote problem={problem} />}
        <p class="row">
          <button class="button button-main" type="button" disabled={isSent} onClick={() => void begin()}>Move it</button>
          <button class="button" type="button" onClick={onClose}>Leave it</button>
        </p>
      </div>
    </Dialog>
  );
}
