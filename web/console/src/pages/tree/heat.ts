// Writes and reads by key over time, kept in this tab: the nodes keep no history of single ranges.

import { useRef } from "preact/hooks";
import type { Bucket, BucketsDocument } from "../../api/types";

export type HeatOf = "writes" | "reads";

export interface HeatRow { at: number; lows: string[]; writes: number[]; reads: number[] }

/** How far back it is kept. */
export const HEAT_SECONDS = 60;

/** One row for each document that came, newest first. Another range of keys begins anew. */
export function useHeat(document: BucketsDocument): HeatRow[] {
  const rows = useRef<HeatRow[]>([]);
  const shape = useRef("");
  const here = `${document.low.hex} ${document.high?.hex ?? ""}`;
  if (shape.current !== here) {
    shape.current = here;
    rows.current = [];
  }
  if (rows.current[0]?.at !== document.at_unix_ms) {
    const list = (read: (bucket: Bucket) => number | null) => document.buckets.map((bucket) => read(bucket) ?? 0);
    const row: HeatRow = {
      at: document.at_unix_ms, lows: document.buckets.map((bucket) => bucket.low.hex),
      writes: list((bucket) => bucket.writes_per_second), reads: list((bucket) => bucket.reads_per_second),
    };
    const oldest = row.at - HEAT_SECONDS * 1000;
    rows.current = [row, ...rows.current].filter((one) => one.at > oldest);
  }
  return rows.current;
}

/** The rate of the range that held this key then. */
export function rateAt(row: HeatRow, of: HeatOf, low: string): number {
  let [first, last] = [0, row.lows.length - 1];
  while (first < last) {
    const middle = (first + last + 1) >> 1;
    if (row.lows[middle]! <= low) first = middle;
    else last = middle - 1;
  }
  return row[of][first] ?? 0;
}
