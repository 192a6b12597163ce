// How long syncs took, over time: a column a time, a row a range of times, the stronger the more. p50, p99 and max as lines.

import { useEffect, useRef } from "preact/hooks";
import type { SyncTimes } from "../../api/types";
import { clockTime, inWords, microseconds, whole } from "../../parts/format";
import { Table, type Column } from "../../parts/table";
import { useTwin } from "../../parts/twin";
import { shownTheme } from "../../state/theme";
import { useStore } from "../../state/store";

const ROW_PIXELS = 16;

type Values = (number | null)[];

interface HeatProps {
  syncs: SyncTimes;
  /** Of the lines. */
  times: number[]; p50: Values; p99: Values; max: Values;
}

const LINES = [["p50", "--series-1", []], ["p99", "--series-2", [6, 3]], ["max", "--series-4", [2, 3]]] as const;

export function SyncHeatMap(props: HeatProps) {
  const { syncs } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const theme = useStore(shownTheme);
  const [isTable] = useTwin("syncs");
  const rows = usedBuckets(syncs);
  useEffect(() => {
    if (canvas.current && rows) paint(canvas.current, props, rows);
  }, [syncs, props.p50, theme]);
  if (!rows) return <p class="quiet">No sync in this time.</p>;
  const words = `Syncs took up to ${wordsOf(syncs.ends_us, rows.last)}; most often ${wordsOf(syncs.ends_us, rows.most)}.`;
  return (
    <div class="stack-tight">
      <ul class="legend">
        {LINES.map(([name, colour, dash]) => (
          <li key={name}>
            <svg class="legend-line" viewBox="0 0 20 4" aria-hidden="true"><line x1="0" y1="2" x2="20" y2="2" stroke={`var(${colour})`} stroke-width="2" stroke-dasharray={dash.join(" ")} /></svg>{name}
          </li>
        ))}
      </ul>
      <div class="sync-heat">
        <ol class="sync-heat-axis" aria-hidden="true">
          {range(rows.first, rows.last).reverse().map((row) => <li key={row}>{wordsOf(syncs.ends_us, row)}</li>)}
        </ol>
        <canvas ref={canvas} role="img" aria-label={words} />
      </div>
      <p class="row row-between quiet"><span>{clockTime(syncs.times_unix_ms[0]!)}</span><span>{clockTime(syncs.times_unix_ms[syncs.times_unix_ms.length - 1]!)}</span></p>
      {isTable && <HeatTable syncs={syncs} rows={rows} />}
    </div>
  );
}

interface Rows { first: number; last: number; most: number }

const range = (first: number, last: number): number[] => Array.from({ length: last - first + 1 }, (_, index) => first + index);

/** The ranges in which there was a sync; null: there was none. */
function usedBuckets({ ends_us, rows }: SyncTimes): Rows | null {
  const sums = [...ends_us, Infinity].map((_, bucket) => rows.reduce((sum, row) => sum + (row[bucket] ?? 0), 0));
  const first = sums.findIndex((sum) => sum > 0);
  if (first < 0) return null;
  return { first, last: sums.findLastIndex((sum) => sum > 0), most: sums.indexOf(Math.max(...sums)) };
}

function wordsOf(ends: number[], bucket: number): string {
  const end = ends[bucket];
  return end !== undefined ? `to ${inWords(microseconds(end))}` : `from ${inWords(microseconds(ends[bucket - 1]))}`;
}

function paint(canvas: HTMLCanvasElement, { syncs, times, ...lines }: HeatProps, { first, last }: Rows): void {
  const scale = devicePixelRatio;
  const width = Math.max(1, Math.round(canvas.clientWidth * scale));
  const height = (last - first + 1) * ROW_PIXELS * scale;
  Object.assign(canvas, { width, height });
  canvas.style.height = `${height / scale}px`;
  const context = canvas.getContext("2d");
  if (!context) return;
  const style = getComputedStyle(document.documentElement);
  const colour = style.getPropertyValue("--heat").trim();
  const top = Math.max(1, ...syncs.rows.flat());
  const column = width / syncs.times_unix_ms.length;
  syncs.rows.forEach((row, at) => row.slice(first, last + 1).forEach((count, index) => {
    if (count === 0) return;
    context.fillStyle = `rgba(${colour}, ${(0.08 + 0.62 * Math.sqrt(count / top)).toFixed(3)})`;
    context.fillRect(at * column, height - (index + 1) * ROW_PIXELS * scale, Math.ceil(column), ROW_PIXELS * scale);
  }));
  const [begin, end] = [syncs.times_unix_ms[0]!, syncs.times_unix_ms[syncs.times_unix_ms.length - 1]!];
  for (const [name, lineColour, dash] of LINES) {
    context.strokeStyle = style.getPropertyValue(lineColour).trim();
    context.lineWidth = 1.5 * scale;
    context.setLineDash(dash.map((part) => part * scale));
    context.beginPath();
    lines[name].forEach((value, at) => {
      if (value === null || times[at]! < begin || times[at]! > end) return;
      const y = height - (placeOf(syncs.ends_us, value) - first) * ROW_PIXELS * scale;
      context.lineTo(((times[at]! - begin) / Math.max(1, end - begin)) * width, y);
    });
    context.stroke();
  }
}

/** In which range a time lies, with the part of it. Ranges double, so the part is a logarithm. */
function placeOf(ends: number[], us: number): number {
  const bucket = ends.findIndex((end) => us <= end);
  if (bucket <= 0) return bucket < 0 ? ends.length : us / (ends[0] ?? us);
  const from = ends[bucket - 1]!;
  return bucket + Math.min(1, Math.log2(us / from) / Math.log2((ends[bucket] ?? from * 2) / from));
}

function HeatTable({ syncs, rows }: { syncs: SyncTimes; rows: Rows }) {
  const step = Math.max(1, Math.ceil(syncs.times_unix_ms.length / 60));
  const times = syncs.times_unix_ms.map((_, index) => index).filter((index) => (syncs.times_unix_ms.length - 1 - index) % step === 0).reverse();
  const columns: Column<number>[] = [
    { name: "time", cell: (at) => clockTime(syncs.times_unix_ms[at]!) },
    ...range(rows.first, rows.last).map((bucket) => ({ name: wordsOf(syncs.ends_us, bucket), isNumber: true, cell: (at: number) => whole(syncs.rows[at]?.[bucket]) })),
  ];
  return <div class="twin"><Table caption="Syncs by how long they took" rows={times} rowKey={(at) => at} columns={columns} /></div>;
}
