// Writes and reads by key over time, as the nodes keep them: of the last ten minutes, or of the last hour.

import type { HeatDocument } from "../../api/types";
import type { Axis } from "./axis";

export type HeatOf = "writes" | "reads";
export type HeatBack = "10m" | "1h";

/** Ranges at most: as many as can be distinguished. */
const COLUMNS = 256;
const STEP_SECONDS = { "10m": 10, "1h": 60 } as const;
export const BACK_WORDS = { "10m": "10 min", "1h": "hour" } as const;

export const heatPath = (from: string | null, to: string | null, back: HeatBack): string =>
  `tree/heat?columns=${COLUMNS}&step=${STEP_SECONDS[back]}${from ? `&from=${from}` : ""}${to ? `&to=${to}` : ""}`;

/** What a document is about, which may be what was asked for before. */
export const backOf = (heat: HeatDocument): HeatBack => (heat.step_ms > 1000 * STEP_SECONDS["10m"] ? "1h" : "10m");

/** A step; null: nothing is known of it. */
export interface HeatRow { at: number; writes: (number | null)[] | null; reads: (number | null)[] | null }

/** Newest first. */
export const rowsOf = ({ times_unix_ms, writes, reads }: HeatDocument): HeatRow[] =>
  times_unix_ms.map((at, index) => ({ at, writes: writes[index] ?? null, reads: reads[index] ?? null })).reverse();

const larger = (most: number, rate: number | null): number => Math.max(most, rate ?? 0);

export const strongest = (rates: (number | null)[] | null): number => (rates ?? []).reduce(larger, 0);

/** Of all keys; null: of some nothing is known. */
export const sumOf = (rates: (number | null)[]): number | null =>
  rates.reduce<number | null>((sum, rate) => (sum === null || rate === null ? null : sum + rate), 0);

/** Rows, newest first, that may be of now: a step begins with nothing, and the one before it is what was just seen. */
const NOW_ROWS = 2;

/** A second, over all keys, in the newest step in which all are known; null: none of now is. */
export function nowOf(rows: HeatRow[], of: HeatOf): number | null {
  for (const row of rows.slice(0, NOW_ROWS)) {
    const sum = row[of] && sumOf(row[of]);
    if (sum !== null) return sum;
  }
  return null;
}

export interface Stretch { left: number; right: number }

/**
 * Where ranges stand on the axis. One that begins at a bucket's low key begins there; those that begin within a bucket
 * share it evenly, because nobody knows how its entries lie.
 */
export function stretches(axis: Axis, lows: string[]): Stretch[] {
  const { buckets } = axis;
  let index = 0;
  const bucketOf = lows.map((low) => {
    while (index + 1 < buckets.length && buckets[index + 1]!.bucket.low.hex <= low) index += 1;
    return index;
  });
  const isInside = (at: number) => lows[at]! > (buckets[bucketOf[at]!]?.bucket.low.hex ?? "");
  const inside = new Map<number, number[]>();
  lows.forEach((_, at) => {
    if (isInside(at)) inside.set(bucketOf[at]!, [...(inside.get(bucketOf[at]!) ?? []), at]);
  });
  const lefts = lows.map((_, at) => {
    const { left = 0, right = 1 } = buckets[bucketOf[at]!] ?? {};
    const within = inside.get(bucketOf[at]!) ?? [];
    return left + ((right - left) * (within.indexOf(at) + 1)) / (within.length + 1);
  });
  return lefts.map((left, at) => ({ left, right: lefts[at + 1] ?? 1 }));
}
