// One drill: how far it is, its Gantt chart, how clients fared, and its report.

import { useState } from "preact/hooks";
import { TwinButton, useTwin } from "../../parts/twin";
import { asProblem, ask, idempotencyKey } from "../../api/client";
import type { ApiProblem } from "../../api/problem";
import type { DrillRun, RecoveryRow } from "../../api/types";
import { Gantt, GanttTable } from "../../parts/gantt";
import { clockTime } from "../../parts/format";
import { Panel, type Source } from "../../parts/panel";
import { ProblemNote } from "../../parts/states";
import { laneOf, LaneNote } from "./lane";
import { Report } from "./report";
import { isRunning } from "./running";
import { timelineOf } from "./timeline";

const STATES: Record<string, string> = {
  beginning: "nothing is done yet.",
  running: "the fault is on.", healing: "the fault was taken back; the drill waits until every pair is served.",
  verifying: "every acknowledged key is read back in three ways.", passed: "nothing acknowledged was lost.", failed: "something acknowledged is missing or wrong.",
  inconclusive: "too little happened to show anything.", halted: "the fault was taken back.",
};

interface RunProps {
  run: DrillRun; source: Source;
  /** The servers' time. This browser's clock may stand elsewhere. */
  nowUnixMs: number;
  underWay: RecoveryRow[]; onChange(): void;
}

export function RunView({ run, source, nowUnixMs, underWay, onChange }: RunProps) {
  const [isTable] = useTwin("drill");
  const elapsed = (run.ended_unix_ms ?? nowUnixMs) - run.begun_unix_ms;
  const timeline = timelineOf(run, elapsed, isRunning(run) ? underWay : []);
  const title = `Drill: ${run.kind} of node ${run.node}`;
  const begins = run.state === "beginning";
  const from = timeline.injected === null ? 0 : -Math.min(timeline.injected, timeline.to * 0.08);
  return (
    <Panel
      title={title} id="drill-run" window={`${begins ? "asked for" : "begun"} ${clockTime(run.begun_unix_ms)}${run.who ? ` by ${run.who}` : ""}, times count from the fault`} source={source}
      actions={<>
        <TwinButton name="drill" of="the drill" />
        {isRunning(run) && <Halt run={run} onDone={onChange} />}
      </>}
    >
      <p role="status" class="drill-state"><b>{run.state}</b>: {STATES[run.state] ?? ""}{run.waits_for && ` It waits for ${run.waits_for}.`}{run.halted_by && ` Halted by ${run.halted_by}.`}</p>
      {run.timeline.length === 0 && !begins && <p class="quiet">Clients write and read for a moment before the fault.</p>}
      {run.timeline.length > 0 && <Gantt title={title} rows={timeline.rows} from={from} to={timeline.to} lane={laneOf(run, timeline.injected ?? 0)} />}
      {isTable && <div class="twin"><GanttTable title={title} rows={timeline.moments} /></div>}
      {run.lane.length > 1 && <LaneNote lane={run.lane} injected={timeline.injected} />}
      {run.report && <Report report={run.report} />}
    </Panel>
  );
}

function Halt({ run: { id, state }, onDone }: { run: DrillRun; onDone(): void }) {
  const begins = state === "beginning";
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const halt = async () => {
    try {
      await ask(`drills/${encodeURIComponent(id)}:halt`, { method: "POST", body: {}, headers: { "idempotency-key": idempotencyKey() } });
      onDone();
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  return (
    <>
      {problem && <ProblemNote problem={problem} />}
      <button
        class="button button-small button-danger" type="button" onClick={() => void halt()}
        title={begins ? "It does nothing, and ends." : "Recover now: the fault is taken back, and a node that was killed is started at once."}
      >{begins ? "Call it off" : "Halt and heal"}</button>
    </>
  );
}
