// The m that is tried instead of the measured one. It lives in the address.

import { useRestingParam } from "../../state/url";

export const [M_MIN, M_MAX, M_STEP] = [1, 16, 0.1];

export interface Tried {
  /** Null: nothing is tried. */
  m: number | null;
  /** What is tried, else what was measured; null: neither is known. */
  shown: number | null;
  set(m: number | null): void;
}

export function useTriedM(measured: number | null): Tried {
  const [text, setText] = useRestingParam("m");
  const typed = Number(text);
  const m = text !== null && Number.isFinite(typed) && typed > 0 ? inBounds(typed) : null;
  return { m, shown: m ?? measured, set: (next) => setText(next === null ? null : String(Number(inBounds(next).toFixed(1)))) };
}

const inBounds = (m: number): number => Math.min(M_MAX, Math.max(M_MIN, m));
