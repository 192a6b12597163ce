// A drill's or an incident's moments as rows of a Gantt chart. Times count from the fault.

import type { DrillRun, Incident, RecoveryRow } from "../../api/types";
import type { GanttRow, Moment, Phase } from "../../parts/gantt";
import { bytes, inWords } from "../../parts/format";

/** When a pair reached each step; undefined: not yet. */
export interface Steps { claimed?: number; cut?: number; replayed?: number; serving?: number }

/** Phases of one pair until now. */
export function phasesOf(steps: Steps, detected: number | undefined, now: number): Phase[] {
  const chain: [string, number | undefined][] = [
    ["unnoticed", 0], ["lease", detected], ["cut", steps.claimed], ["replay", steps.cut], ["publish", steps.replayed], ["served", steps.serving],
  ];
  const known = chain.filter((step): step is [string, number] => step[1] !== undefined);
  return known.map(([kind, from], index) => {
    const next = known[index + 1]?.[1];
    return { kind, from, to: next ?? Math.max(from, now), isOpen: next === undefined && kind !== "served" };
  });
}

export function noteOf(row: RecoveryRow | undefined): string | undefined {
  if (!row) return undefined;
  const left = row.bytes_per_second > 0 ? (row.bytes_total - row.bytes_done) / row.bytes_per_second : null;
  const amount = `${inWords(bytes(row.bytes_done))} of ${inWords(bytes(row.bytes_total))}`;
  return `${row.stage}: ${amount}${left === null ? "" : `, ${left.toFixed(1)} s left`}`;
}

const STEPS = ["claimed", "cut", "replayed", "serving"] as const;

export interface RunTimeline { rows: GanttRow[]; moments: { name: string; what: string; at: number }[]; injected: number | null; to: number }

/** `elapsed` is how long the run has lasted, ms from its begin. */
export function timelineOf(run: DrillRun, elapsed: number, underWay: RecoveryRow[]): RunTimeline {
  const injected = run.timeline.find((moment) => moment.name === "injected")?.at_ms ?? null;
  const zero = injected ?? 0;
  const since = run.timeline.map((moment) => ({ ...moment, at: moment.at_ms - zero }));
  const first = (name: string) => since.find((moment) => moment.name === name)?.at;
  const end = first("all_back");
  const now = Math.max(...since.map((moment) => moment.at), run.ended_unix_ms === null && end === undefined ? elapsed - zero : 0, 1);
  const to = end === undefined ? now : Math.max(...since.map((moment) => moment.at)) * 1.08;
  const nodeMoments: Moment[] = since.filter((moment) => moment.pair === null).map(({ name, at }) => ({ name, at }));
  const pairs = [...new Set(since.flatMap((moment) => (moment.pair === null ? [] : [moment.pair])))].sort((a, b) => a - b);
  const rows = pairs.map((pair) => {
    const steps: Steps = {};
    for (const step of STEPS) steps[step] = since.find((moment) => moment.pair === pair && moment.name === step)?.at;
    return { name: `pair ${pair}`, note: noteOf(underWay.find((row) => row.pair === pair)), phases: phasesOf(steps, first("detected"), to), moments: [] };
  });
  return {
    rows: [{ name: `node ${run.node}`, phases: [], moments: nodeMoments }, ...rows],
    moments: since.map(({ name, at, pair }) => ({ what: name, at, name: pair === null ? `node ${run.node}` : `pair ${pair}` })),
    injected, to,
  };
}

/** The fault itself is not known here: times count from when it was detected. */
export function incidentRows(incident: Incident, now: number): { rows: GanttRow[]; to: number; moments: RunTimeline["moments"] } {
  const zero = incident.detected_ms;
  const since = (at: number | null) => (at ? at - zero : undefined);
  const to = Math.max(1, since(incident.all_back_ms) ?? now - zero);
  const name = incident.node === null ? "nobody" : `node ${incident.node}`;
  const moments = [{ name: "detected", at: 0 }, { name: "lease_ended", at: since(incident.lease_seen_ms) }, { name: "all_back", at: since(incident.all_back_ms) }]
    .filter((moment): moment is Moment => moment.at !== undefined);
  const rows = incident.shares.map((share) => {
    const steps: Steps = { claimed: since(share.claimed_ms), cut: since(share.cut_ms), replayed: since(share.replayed_ms), serving: since(share.serving_ms) };
    return { share, steps };
  });
  return {
    rows: [
      { name, phases: [], moments },
      ...rows.map(({ share, steps }) => ({ name: `pair ${share.pair}`, phases: phasesOf(steps, 0, to).filter((phase) => phase.kind !== "unnoticed"), moments: [] })),
    ],
    to: to * 1.05,
    moments: [
      ...moments.map((moment) => ({ name, what: moment.name, at: moment.at })),
      ...rows.flatMap(({ share, steps }) => STEPS.flatMap((step) => (steps[step] === undefined ? [] : [{ name: `pair ${share.pair}`, what: step, at: steps[step] }]))),
    ],
  };
}
