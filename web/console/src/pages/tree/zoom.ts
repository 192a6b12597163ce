// Which keys are shown, and which were shown before: a step out comes back there. Both live in the address.

import { place, setQuery } from "../../state/url";

/** Ranges that are remembered, the outermost first. */
const STEPS_MAX = 8;

const steps = (): string[] => (place.get().query.get("outside") ?? "").split(",").filter(Boolean);

/** Bounds are keys in hexadecimal; null: no bound. */
export function zoomIn(from: string | null, to: string | null): void {
  const { query } = place.get();
  const here = `${query.get("from") ?? ""}-${query.get("to") ?? ""}`;
  const outside = here === "-" ? steps() : [...steps(), here].slice(-STEPS_MAX);
  setQuery({ from, to, outside: outside.join(",") }, true);
}

/** To the range from which this one was reached; without one, to all keys. */
export function zoomOut(): void {
  const outside = steps();
  const [from, to] = (outside.pop() ?? "").split("-");
  setQuery({ from: from || null, to: to || null, outside: outside.join(",") }, true);
}

export const showAll = (): void => setQuery({ from: null, to: null, outside: null }, true);
