// Writes and reads by key over time, kept in this tab: the nodes keep no history of single ranges.

import { useEffect, useRef } from "preact/hooks";
import type { BucketsDocument } from "../../api/types";

export interface HeatRow { at: number; lows: string[]; rates: number[] }

export const HEAT_ROWS = 60;

export type HeatOf = "writes" | "reads";

/** One row for each document that came. */
export function useHeat(document: BucketsDocument, of: HeatOf): HeatRow[] {
  const rows = useRef<HeatRow[]>([]);
  const shape = useRef("");
  const seen = useRef<number>(0);
  useEffect(() => {
    rows.current = [];
    seen.current = 0;
  }, [of]);
  const here = `${document.low.hex} ${document.high?.hex ?? ""}`;
  if (shape.current !== here) {
    shape.current = here;
    rows.current = [];
  }
  if (seen.current !== document.at_unix_ms) {
    seen.current = document.at_unix_ms;
    const rate = (bucket: BucketsDocument["buckets"][number]) => (of === "writes" ? bucket.writes_per_second : bucket.reads_per_second) ?? 0;
    const row = { at: document.at_unix_ms, lows: document.buckets.map((bucket) => bucket.low.hex), rates: document.buckets.map(rate) };
    rows.current = [row, ...rows.current].slice(0, HEAT_ROWS);
  }
  return rows.current;
}

/** The rate of the range that held this key then. */
export function rateAt(row: HeatRow, low: string): number {
  let [first, last] = [0, row.lows.length - 1];
  while (first < last) {
    const middle = (first + last + 1) >> 1;
    if (row.lows[middle]! <= low) first = middle;
    else last = middle - 1;
  }
  return row.rates[first] ?? 0;
}
