// Phases on a time axis: a row for each pair, signs for moments. The same as a table below.

import { inWords, microseconds, milliseconds } from "./format";
import { Table } from "./table";
import { ticks } from "./ticks";

export interface Phase {
  /** One of the words of `PHASES`. */
  kind: string; from: number; to: number;
  /** It goes on still. */
  isOpen?: boolean;
}

export interface Moment { name: string; at: number }

export interface GanttRow { name: string; note?: string; phases: Phase[]; moments: Moment[] }

export const PHASES: [string, string][] = [
  ["unnoticed", "not noticed yet"], ["lease", "waits for the lease's end"], ["cut", "logs are cut"], ["replay", "logs are replayed"],
  ["publish", "is published"], ["served", "served again"],
];

const words = new Map(PHASES);

/** A piece of time: the part of the operations in it that succeeded, and how long the slow ones took. */
export interface LaneColumn { at: number; width: number; part: number; p99Us: number | null }

/** A few that failed are not an outage. */
const laneClass = (part: number): string => (part >= 0.99 ? "lane-good" : part >= 0.9 ? "lane-some" : "lane-bad");

interface GanttProps { title: string; rows: GanttRow[]; from: number; to: number; lane?: LaneColumn[] }

export function Gantt({ title, rows, from, to, lane = [] }: GanttProps) {
  const width = Math.max(1, to - from);
  const left = (at: number) => `${((Math.min(Math.max(at, from), to) - from) / width) * 100}%`;
  const span = (phase: Phase) => `${((Math.min(phase.to, to) - Math.max(phase.from, from)) / width) * 100}%`;
  const seen = lane.filter((one) => one.at + one.width > from && one.at < to);
  const slowest = Math.max(0, ...seen.map((one) => one.p99Us ?? 0));
  return (
    <div class="stack-tight">
      <div class="gantt" role="img" aria-label={`${title}. The table below has the same figures.`}>
        {rows.map((row) => (
          <div key={row.name} class={row.moments.length > 0 ? "gantt-row gantt-moments" : "gantt-row"}>
            <span class="gantt-name">{row.name}</span>
            <span class="gantt-track">
              {row.phases.map((phase) => (
                <span
                  key={phase.kind} class={`gantt-phase gantt-${phase.kind}${phase.isOpen ? " is-open" : ""}`}
                  style={{ left: left(phase.from), width: span(phase) }} title={`${words.get(phase.kind) ?? phase.kind}, ${inWords(milliseconds(phase.to - phase.from))}`}
                />
              ))}
              {row.moments.map((moment) => (
                <span key={moment.name} class={`gantt-moment${moment.at > from + width * 0.8 ? " is-right" : ""}`} style={{ left: left(moment.at) }}><i>{moment.name.replaceAll("_", " ")}</i></span>
              ))}
              {row.note && <span class="gantt-note">{row.note}</span>}
            </span>
          </div>
        ))}
        {seen.length > 0 && (
          <div class="gantt-row gantt-lane">
            <span class="gantt-name">succeeded</span>
            <span class="gantt-track">
              {seen.map((one) => (
                <span
                  key={one.at} class={laneClass(one.part)} title={`${Math.round(one.part * 100)} % succeeded`}
                  style={{ left: left(one.at), width: span({ kind: "", from: one.at, to: one.at + one.width }), height: `${Math.max(2, one.part * 100)}%` }}
                />
              ))}
            </span>
          </div>
        )}
        {slowest > 0 && (
          <div class="gantt-row gantt-lane">
            <span class="gantt-name">p99 to {inWords(microseconds(slowest))}</span>
            <span class="gantt-track">
              {seen.filter((one) => one.p99Us !== null).map((one) => (
                <span
                  key={one.at} class="lane-latency" title={`p99 ${inWords(microseconds(one.p99Us))}`}
                  style={{ left: left(one.at), width: span({ kind: "", from: one.at, to: one.at + one.width }), height: `${Math.max(2, (one.p99Us! / slowest) * 100)}%` }}
                />
              ))}
            </span>
          </div>
        )}
        <div class="gantt-row gantt-axis">
          <span class="gantt-name" />
          <span class="gantt-track">
            {ticks(to).filter((at) => at <= to * 0.96).map((at) => <span key={at} class="gantt-tick" style={{ left: left(at) }}>{inWords(milliseconds(at))}</span>)}
            {from < 0 && <span class="gantt-tick" style={{ left: left(0) }}>0</span>}
          </span>
        </div>
      </div>
      <ul class="legend">
        {PHASES.map(([kind, says]) => <li key={kind}><span class={`gantt-chip gantt-${kind}`} />{says}</li>)}
      </ul>
    </div>
  );
}

interface MomentRow { name: string; what: string; at: number }

/** Every moment of every row, in the order of time. */
export function GanttTable({ title, rows, since = "after the fault" }: { title: string; rows: MomentRow[]; since?: string }) {
  return (
    <Table
      caption={title} rows={[...rows].sort((a, b) => a.at - b.at)} rowKey={(row) => `${row.name} ${row.what}`}
      columns={[
        { name: since, isNumber: true, cell: (row) => inWords(milliseconds(row.at)) },
        { name: "what", cell: (row) => row.what.replaceAll("_", " ") },
        { name: "where", cell: (row) => row.name },
      ]}
    />
  );
}
