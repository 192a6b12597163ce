// Heat by key over the last minute: newest on top, darker is more.

import { useEffect, useRef } from "preact/hooks";
import type { BucketsDocument } from "../../api/types";
import { inWords, perSecond } from "../../parts/format";
import { shownTheme } from "../../state/theme";
import { useStore } from "../../state/store";
import type { Axis } from "./axis";
import { HEAT_ROWS, rateAt, useHeat, type HeatOf, type HeatRow } from "./heat";

const ROW_PIXELS = 2;

export function HeatStrip({ document, axis, of }: { document: BucketsDocument; axis: Axis; of: HeatOf }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const rows = useHeat(document, of);
  const theme = useStore(shownTheme);
  const top = Math.max(1, ...rows.map((row) => Math.max(0, ...row.rates)));
  useEffect(() => {
    if (canvas.current) paint(canvas.current, axis, rows, top);
  }, [document, axis, of, theme]);
  const all = rows[0]?.rates.reduce((sum, rate) => sum + rate, 0) ?? 0;
  return (
    <div class="band band-heat">
      <canvas ref={canvas} role="img" aria-label={`${of} by key over the last minute: ${inWords(perSecond(all))} now, hottest range ${inWords(perSecond(top))}`} />
      <span class="band-label">{of} of the last {rows.length} s, newest on top; darkest is {inWords(perSecond(top))}</span>
    </div>
  );
}

function paint(canvas: HTMLCanvasElement, axis: Axis, rows: HeatRow[], top: number): void {
  const width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
  canvas.width = width;
  canvas.height = HEAT_ROWS * ROW_PIXELS;
  const context = canvas.getContext("2d");
  if (!context) return;
  const colour = getComputedStyle(document.documentElement).getPropertyValue("--heat").trim();
  rows.forEach((row, index) => {
    for (const { bucket, left, right } of axis.buckets) {
      const rate = rateAt(row, bucket.low.hex);
      if (rate <= 0) continue;
      // a root, because rates of ranges differ by orders of magnitude
      context.fillStyle = `rgba(${colour}, ${(0.08 + 0.92 * Math.sqrt(rate / top)).toFixed(3)})`;
      context.fillRect(left * width, index * ROW_PIXELS, Math.max(1, (right - left) * width - 1), ROW_PIXELS);
    }
  });
}
