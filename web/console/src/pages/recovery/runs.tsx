// Drills so far.

import type { DrillRun } from "../../api/types";
import { StateBadge } from "../../parts/badge";
import { dayAndTime, duration } from "../../parts/format";
import { Table } from "../../parts/table";
import { urlWith } from "../../state/url";

export function Runs({ runs, chosen }: { runs: DrillRun[]; chosen: DrillRun | null }) {
  return (
    <Table
      caption="Drills so far" rows={[...runs].sort((a, b) => b.begun_unix_ms - a.begun_unix_ms)} rowKey={(run) => run.id} isChosen={(run) => run.id === chosen?.id}
      columns={[
        { name: "begun", cell: (run) => <a href={urlWith({ run: run.id })}>{dayAndTime(run.begun_unix_ms)}</a> },
        { name: "fault", cell: (run) => run.kind },
        { name: "node", cell: (run) => `node ${run.node}` },
        ...(runs.some((run) => run.who) ? [{ name: "who", cell: (run: DrillRun) => run.who ?? "–" }] : []),
        { name: "state", cell: (run) => <StateBadge state={run.state} /> },
        { name: "lasted", isNumber: true, cell: (run) => (run.ended_unix_ms === null ? "–" : duration(run.ended_unix_ms - run.begun_unix_ms)) },
      ]}
    />
  );
}
