// Heat by key over time: newest on top, the stronger the more; hatched where nothing is known.

import { useEffect, useMemo, useRef } from "preact/hooks";
import type { HeatDocument } from "../../api/types";
import { inWords, perSecond } from "../../parts/format";
import { shownTheme } from "../../state/theme";
import { useStore } from "../../state/store";
import type { Axis } from "./axis";
import { BACK_WORDS, nowOf, rowsOf, stretches, strongest, type HeatBack, type HeatOf, type HeatRow, type Stretch } from "./heat";

const ROW_PIXELS = 2;
const ROWS = 60;

interface StripProps { heat: HeatDocument | null; axis: Axis; of: HeatOf; back: HeatBack }

export function HeatStrip({ heat, axis, of, back }: StripProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useStore(shownTheme);
  const rows = useMemo(() => (heat ? rowsOf(heat) : []), [heat]);
  const top = Math.max(1, ...rows.map((row) => strongest(row[of])));
  useEffect(() => {
    if (canvas.current) paint(canvas.current, stretches(axis, heat?.lows ?? []), rows, of, top);
  }, [heat, axis, of, theme]);
  const sum = nowOf(rows, of);
  const now = sum === null ? "not known of all keys now" : `${inWords(perSecond(sum))} now`;
  const window = `the last ${BACK_WORDS[back]}`;
  return (
    <div class="band band-heat">
      <canvas ref={canvas} role="img" aria-label={`${of} by key over ${window}: ${now}, hottest range ${inWords(perSecond(top))}`} />
      <span class="band-label">
        {heat ? `${of} of ${window}, newest on top, ${heat.step_ms / 1000} s a row; strongest is ${inWords(perSecond(top))}` : `${of} of ${window}: not here yet`}
        {of === "reads" && "; one-sided reads as clients tell of them, some drawn of many, some seconds late"}
        {"; before a split its parts share evenly what the whole did"}
        {rows.some((row) => !row[of] || row[of].includes(null)) && "; hatched: not known"}
      </span>
    </div>
  );
}

function paint(canvas: HTMLCanvasElement, places: Stretch[], rows: HeatRow[], of: HeatOf, top: number): void {
  const width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
  Object.assign(canvas, { width, height: ROWS * ROW_PIXELS });
  const context = canvas.getContext("2d");
  if (!context) return;
  const style = getComputedStyle(document.documentElement);
  const colour = style.getPropertyValue("--heat").trim();
  const unknown = style.getPropertyValue("--line").trim();
  const bar = (left: number, right: number, y: number, height: number) => context.fillRect(Math.round(left * width), y, Math.max(1, Math.round(right * width) - Math.round(left * width) - 1), height);
  rows.slice(0, ROWS).forEach((row, index) => {
    const y = index * ROW_PIXELS;
    places.forEach(({ left, right }, at) => {
      const rate = row[of]?.[at] ?? null;
      if (rate === 0 || right <= left) return;
      // a root, because rates of ranges differ by orders of magnitude
      context.fillStyle = rate === null ? unknown : `rgba(${colour}, ${(0.08 + 0.92 * Math.sqrt(rate / top)).toFixed(3)})`;
      bar(left, right, y, rate === null ? ROW_PIXELS / 2 : ROW_PIXELS);
    });
  });
}
