// Heat by key over the last minute: newest on top, the stronger the more.

import { useEffect, useRef } from "preact/hooks";
import type { BucketsDocument } from "../../api/types";
import { inWords, perSecond } from "../../parts/format";
import { shownTheme } from "../../state/theme";
import { useStore } from "../../state/store";
import type { Axis } from "./axis";
import { HEAT_SECONDS, rateAt, type HeatOf, type HeatRow } from "./heat";

const SECOND_PIXELS = 2;

export const hottest = (rows: HeatRow[], of: HeatOf): number => Math.max(1, ...rows.map((row) => Math.max(0, ...row[of])));

interface StripProps { document: BucketsDocument; axis: Axis; rows: HeatRow[]; of: HeatOf }

export function HeatStrip({ document, axis, rows, of }: StripProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useStore(shownTheme);
  const top = hottest(rows, of);
  useEffect(() => {
    if (canvas.current) paint(canvas.current, axis, rows, of, top);
  }, [document, axis, of, theme]);
  const all = rows[0]?.[of].reduce((sum, rate) => sum + rate, 0) ?? 0;
  const seconds = rows.length === 0 ? 0 : Math.min(HEAT_SECONDS, Math.round((rows[0]!.at - rows[rows.length - 1]!.at) / 1000) + 1);
  return (
    <div class="band band-heat">
      <canvas ref={canvas} role="img" aria-label={`${of} by key over the last ${seconds} s: ${inWords(perSecond(all))} now, hottest range ${inWords(perSecond(top))}`} />
      <span class="band-label">{of} of the last {seconds} s, newest on top; strongest is {inWords(perSecond(top))}</span>
    </div>
  );
}

/** Rows this far apart have seconds between them from which nothing came. */
const GAP_MS = 2500;

/** A row reaches from its time back to that of the one before; a gap stays empty. */
function paint(canvas: HTMLCanvasElement, axis: Axis, rows: HeatRow[], of: HeatOf, top: number): void {
  const width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
  canvas.width = width;
  canvas.height = HEAT_SECONDS * SECOND_PIXELS;
  const context = canvas.getContext("2d");
  if (!context) return;
  const colour = getComputedStyle(document.documentElement).getPropertyValue("--heat").trim();
  const newest = rows[0]?.at ?? 0;
  const place = (at: number) => Math.round(((newest - at) / 1000) * SECOND_PIXELS);
  rows.forEach((row, index) => {
    const before = rows[index + 1]?.at ?? 0;
    const y = place(row.at);
    const height = row.at - before > GAP_MS ? SECOND_PIXELS : place(before) - y;
    for (const { bucket, left, right } of axis.buckets) {
      const rate = rateAt(row, of, bucket.low.hex);
      if (rate <= 0) continue;
      // a root, because rates of ranges differ by orders of magnitude
      context.fillStyle = `rgba(${colour}, ${(0.08 + 0.92 * Math.sqrt(rate / top)).toFixed(3)})`;
      context.fillRect(left * width, y, Math.max(1, (right - left) * width - 1), height);
    }
  });
}
