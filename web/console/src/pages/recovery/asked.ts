// The drill that was asked for in this tab, until it is known what has become of it. It outlives the page: who asked goes on.

import { asProblem, ask, idempotencyKey } from "../../api/client";
import type { ApiProblem } from "../../api/problem";
import { createStore } from "../../state/store";

// longer than a node waits for another one that begins a drill: that one asks coordinator and agents
const BEGIN_TIMEOUT_MS = 30_000;

export interface AskedDrill {
  kind: string; node: number; body: Record<string, unknown>;
  /** Under which it is started once, however often it is asked for. */
  key: string;
  sinceMs: number;
  /** Why it has not started; null: that is not said. */
  problem: ApiProblem | null;
  /** The run that has started; null: none. */
  run: string | null;
}

export const askedDrill = createStore<AskedDrill | null>(null);

export function askForDrill(kind: string, node: number, body: Record<string, unknown>): void {
  void send({ kind, node, body, key: idempotencyKey(), sinceMs: Date.now(), problem: null, run: null });
}

/** The same request: where it is under way after all, it is the same drill. */
export function askAgain(drill: AskedDrill): void {
  void send({ ...drill, sinceMs: Date.now(), problem: null });
}

export const forgetAsked = (): void => askedDrill.set(null);

async function send(drill: AskedDrill): Promise<void> {
  askedDrill.set(drill);
  const answered = (what: Partial<AskedDrill>) => {
    if (askedDrill.get() === drill) askedDrill.set({ ...drill, ...what });
  };
  try {
    const options = { method: "POST", body: drill.body, headers: { "idempotency-key": drill.key }, timeoutMs: BEGIN_TIMEOUT_MS };
    const { document } = await ask<{ operation: string }>("drills", options);
    answered({ run: document.operation });
  } catch (error) {
    answered({ problem: asProblem(error) });
  }
}
