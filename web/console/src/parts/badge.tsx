// States by sign and word; colour only repeats what they say.

import type { Level } from "../api/types";

type Shown = Level | "info" | "unknown";

const SIGN: Record<Shown, string> = { ok: "✓", info: "i", warning: "!", critical: "✕", unknown: "?" };

export function Sign({ level }: { level: Shown }) {
  return <span class={`sign sign-${level}`} aria-hidden="true">{SIGN[level]}</span>;
}

export function Badge({ level, children }: { level: Shown; children: string }) {
  return <span class={`badge badge-${level}`}><Sign level={level} />{children}</span>;
}

const BAD = new Set(["failed", "down", "dead", "unserved", "missing", "damaged", "lost", "unreachable"]);
const GOOD = new Set(["serving", "served", "owned", "published", "passed", "live", "ok"]);

/** A state's word, with what it means for an operator. What was good when it was told is not known later. */
export function StateBadge({ state, isStale = false }: { state: string; isStale?: boolean }) {
  const good = isStale ? "unknown" : "ok";
  const level: Shown = GOOD.has(state) ? good : BAD.has(state) ? "critical" : "warning";
  return <Badge level={level}>{state.replaceAll("_", " ")}</Badge>;
}
