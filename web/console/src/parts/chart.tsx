// Lines over time by uPlot, with names and last values in words above, marks of changed settings, and the same
// figures as a table.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { Mark } from "../api/types";
import { shownTheme } from "../state/theme";
import { useStore } from "../state/store";
import { byUnit, clockTime, inWords } from "./format";
import { Table } from "./table";
import { slugOf, TwinButton, useTwin } from "./twin";

export interface Line {
  name: string; values: (number | null)[];
  /** A custom property of CSS, such as `--server`. */
  colour: string;
  /** Lines differ by more than colour. */
  dash?: number[];
}

interface ChartProps {
  title: string; unit: string; times: number[]; lines: Line[]; marks?: Mark[]; height?: number;
  /** Charts with the same word show one cursor. */
  sync?: string;
  /** The top of the axis at least. */
  topMin?: number;
}

const colourOf = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Steps of an axis of bytes: round in KiB and MiB. */
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);

function drawMarks(marks: Mark[]): uPlot.Plugin {
  return {
    hooks: {
      draw: (plot) => {
        const { ctx, bbox } = plot;
        ctx.save();
        ctx.strokeStyle = colourOf("--mark");
        ctx.fillStyle = colourOf("--mark");
        ctx.setLineDash([3, 3]);
        for (const mark of marks) {
          const x = plot.valToPos(mark.at_unix_ms / 1000, "x", true);
          if (x < bbox.left || x > bbox.left + bbox.width) continue;
          ctx.beginPath();
          ctx.moveTo(x, bbox.top);
          ctx.lineTo(x, bbox.top + bbox.height);
          ctx.stroke();
          ctx.fillRect(x - 3, bbox.top, 6, 6);
        }
        ctx.restore();
      },
    },
  };
}

function optionsFor(props: ChartProps, width: number, marks: Mark[]): uPlot.Options {
  const figure = byUnit(props.unit);
  const axis = { stroke: colourOf("--muted"), grid: { stroke: colourOf("--grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  return {
    width,
    height: props.height ?? 160,
    legend: { show: false },
    padding: [8, 28, 0, 0],
    cursor: { y: false, points: { size: 6 }, sync: props.sync ? { key: props.sync } : undefined, drag: { x: false, y: false } },
    scales: { x: { time: true }, y: { range: (_, __, top) => [0, Math.max(props.topMin ?? 0, top || 1) * 1.05] } },
    axes: [
      { ...axis, grid: { show: false }, space: 70, size: 28, values: (_, ticks) => ticks.map((tick) => clockTime(tick * 1000)) },
      { ...axis, size: 68, ...(/^(bytes|B)/.test(props.unit) ? { incrs: POWERS } : {}), values: (_, ticks) => ticks.map((tick) => (tick === 0 ? "0" : inWords(figure(tick)))) },
    ],
    series: [
      {},
      ...props.lines.map((line) => ({
        label: line.name, stroke: colourOf(line.colour), width: 1.5, dash: line.dash, points: { show: false },
      })),
    ],
    plugins: marks.length > 0 ? [drawMarks(marks)] : [],
  };
}

export function Chart(props: ChartProps) {
  const name = slugOf(props.title);
  const [isTable] = useTwin(name);
  return (
    <figure class="chart">
      <figcaption class="chart-head">
        <span class="chart-title">{props.title}</span>
        <TwinButton name={name} of={props.title} />
      </figcaption>
      {isTable ? <Twin {...props} /> : isEmpty(props.lines) ? <p class="state">No figure is known of this time.</p> : <Plot {...props} />}
      {(props.marks?.length ?? 0) > 0 && <MarkList marks={props.marks!} />}
    </figure>
  );
}

const isEmpty = (lines: Line[]): boolean => lines.every((line) => line.values.every((value) => value === null));

function Plot(props: ChartProps) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const theme = useStore(shownTheme);
  const { times, lines, marks = [] } = props;
  // drawn anew when figures came, not each time that something beside them changed
  const data = useMemo(() => dataOf(times, lines), [times, ...lines.map((line) => line.values)]);
  const shape = `${theme} ${props.unit} ${lines.map((line) => `${line.name}${line.colour}`).join()} ${marks.map((mark) => mark.at_unix_ms).join()}`;

  useEffect(() => {
    const element = holder.current;
    if (!element) return;
    const options = optionsFor(props, Math.max(element.clientWidth, 120), marks);
    options.hooks = { setCursor: [(at) => setCursor(at.cursor.idx ?? null)] };
    const made = new uPlot(options, data, element);
    plot.current = made;
    const resize = new ResizeObserver(() => made.setSize({ width: Math.max(element.clientWidth, 120), height: props.height ?? 160 }));
    resize.observe(element);
    return () => {
      resize.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [data]);

  const at = cursor !== null && cursor < times.length ? cursor : null;
  return (
    <>
      <Legend lines={lines} unit={props.unit} at={at} time={at === null ? null : times[at]!} />
      <div class="plot" ref={holder} role="img" aria-label={`${props.title}: ${spoken(lines, props.unit)}`} />
    </>
  );
}

const dataOf = (times: number[], lines: Line[]): uPlot.AlignedData =>
  [times.map((time) => time / 1000), ...lines.map((line) => line.values)] as uPlot.AlignedData;

const lastOf = (values: (number | null)[]): number | null => {
  for (let index = values.length - 1; index >= Math.max(0, values.length - 5); index--) {
    const value = values[index];
    if (value !== null && value !== undefined) return value;
  }
  return null;
};

function spoken(lines: Line[], unit: string): string {
  return lines.map((line) => `${line.name} ${inWords(byUnit(unit)(lastOf(line.values)))}`).join(", ");
}

function Legend({ lines, unit, at, time }: { lines: Line[]; unit: string; at: number | null; time: number | null }) {
  const figure = byUnit(unit);
  return (
    <ul class="legend">
      {lines.map((line) => (
        <li key={line.name}>
          <svg class="legend-line" viewBox="0 0 20 4" aria-hidden="true">
            <line x1="0" y1="2" x2="20" y2="2" stroke={`var(${line.colour})`} stroke-width="2" stroke-dasharray={line.dash?.join(" ")} />
          </svg>
          {line.name} <b>{inWords(figure(at === null ? lastOf(line.values) : line.values[at]))}</b>
        </li>
      ))}
      <li class="quiet">{time === null ? "last" : `at ${clockTime(time)}`}</li>
    </ul>
  );
}

export function MarkList({ marks }: { marks: Mark[] }) {
  return (
    <p class="quiet chart-marks">
      Settings changed: {marks.slice(-3).map((mark) => `${clockTime(mark.at_unix_ms)} ${mark.names.join(", ")}`).join("; ")}
    </p>
  );
}

interface TwinRow { time: number; index: number }

/** The same figures in rows, newest first; at most sixty. */
function Twin({ title, unit, times, lines }: ChartProps) {
  const step = Math.max(1, Math.ceil(times.length / 60));
  const rows: TwinRow[] = times.map((time, index) => ({ time, index })).filter(({ index }) => (times.length - 1 - index) % step === 0).reverse();
  const figure = byUnit(unit);
  return (
    <div class="twin">
      <Table
        caption={title} rows={rows} rowKey={(row) => row.time}
        columns={[
          { name: "time", cell: (row: TwinRow) => clockTime(row.time) },
          ...lines.map((line) => ({
            name: line.name, isNumber: true, cell: (row: TwinRow) => inWords(figure(line.values[row.index])),
          })),
        ]}
      />
    </div>
  );
}
