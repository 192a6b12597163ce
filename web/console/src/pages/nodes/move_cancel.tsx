// Ending a move of which nothing is handed over yet: the one that was shown, or none.

import { useState } from "preact/hooks";
import { asProblem, ask, idempotencyKey } from "../../api/client";
import type { ApiProblem } from "../../api/problem";
import type { MoveAnswer, MoveRow } from "../../api/types";
import { Dialog } from "../../parts/dialog";
import { ProblemNote } from "../../parts/states";

interface CancelProps { row: MoveRow; onClose(): void; onDone(): void }

export function CancelMove({ row, onClose, onDone }: CancelProps) {
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const [isSent, setSent] = useState(false);
  const [key] = useState(idempotencyKey);
  const cancel = async (event: Event) => {
    event.preventDefault();
    setSent(true);
    setProblem(null);
    try {
      const headers = { "if-match": `"${row.revision}"`, "idempotency-key": key };
      await ask<MoveAnswer>("moves:cancel", { method: "POST", body: { pair: row.pair }, headers });
      onDone();
      onClose();
    } catch (error) {
      setProblem(asProblem(error));
      setSent(false);
    }
  };
  return (
    <Dialog title={`Cancel the move of pair ${row.pair}?`} onClose={onClose}>
      <form class="stack" onSubmit={cancel}>
        <p>Pair {row.pair} stays at node {row.from}, which serves it all the time. What node {row.to} has copied is thrown away.</p>
        {problem && <ProblemNote problem={problem} />}
        <p class="row">
          <button class="button button-main" type="submit" disabled={isSent}>Cancel the move</button>
          <button class="button" type="button" onClick={onClose}>Let it go on</button>
        </p>
      </form>
    </Dialog>
  );
}
