// How the drill's own clients fared: what they tried, what succeeded, how long it took.

import type { DrillRun } from "../../api/types";
import type { LaneColumn } from "../../parts/gantt";
import { inWords, microseconds, milliseconds, share, whole } from "../../parts/format";
import { Table } from "../../parts/table";

type LanePoint = DrillRun["lane"][number];

/** Of those that ended, the part that succeeded; none did where all that was under way waits. */
const rate = ({ attempted, succeeded, failed }: LanePoint): number | null => {
  if (succeeded + failed > 0) return succeeded / (succeeded + failed);
  return attempted === 0 ? null : 0;
};

/** Columns of the Gantt chart's lane; times count from the fault. */
export function laneOf(run: DrillRun, injected: number): LaneColumn[] {
  return run.lane.flatMap((point, index) => {
    const part = rate(point);
    const next = run.lane[index + 1]?.at_ms ?? point.at_ms + (point.at_ms - (run.lane[index - 1]?.at_ms ?? point.at_ms));
    return part === null ? [] : [{ at: point.at_ms - injected, width: next - point.at_ms, part, p99Us: point.p99_us }];
  });
}

export function LaneNote({ lane, injected }: { lane: LanePoint[]; injected: number | null }) {
  const zero = injected ?? 0;
  const worst = lane.reduce<number | null>((least, point) => Math.min(least ?? 1, rate(point) ?? 1), null);
  return (
    <details>
      <summary>Clients: the height of a column is the part that succeeded of the operations that ended, lowest {inWords(share(worst))}; below it their p99. Figures</summary>
      <div class="twin">
        <Table
          caption="Clients of the drill" rows={lane} rowKey={(point) => point.at_ms}
          columns={[
            { name: "after the fault", isNumber: true, cell: (point) => inWords(milliseconds(point.at_ms - zero)) },
            { name: "under way", isNumber: true, cell: (point) => whole(point.attempted) },
            { name: "succeeded", isNumber: true, cell: (point) => whole(point.succeeded) },
            { name: "failed", isNumber: true, cell: (point) => whole(point.failed) },
            { name: "p99", isNumber: true, cell: (point) => inWords(microseconds(point.p99_us)) },
          ]}
        />
      </div>
    </details>
  );
}
