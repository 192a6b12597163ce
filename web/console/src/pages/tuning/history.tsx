// Who changed what, when and why; each change can be taken back.

import { useState } from "preact/hooks";
import { ask, isProblem } from "../../api/client";
import type { ApiProblem } from "../../api/problem";
import type { TuningAnswer, TuningHistory, TuningHistoryRow } from "../../api/types";
import { clockTime, dayAndTime } from "../../parts/format";
import { Panel } from "../../parts/panel";
import { Table } from "../../parts/table";
import { ProblemNote } from "../../parts/states";
import { useResource } from "../../state/resource";

interface HistoryProps { revision: string | null; etag: string | null; mayChange: boolean; onChanged(): void }

export function HistoryPanel({ revision, etag, mayChange, onChanged }: HistoryProps) {
  // the revision makes it ask anew after each change
  const history = useResource<TuningHistory>(revision === null ? null : `tuning/history?limit=50&seen=${revision}`);
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const revert = async (row: TuningHistoryRow) => {
    setProblem(null);
    try {
      await ask<TuningAnswer>("tuning:revert", { method: "POST", body: { revision: row.revision }, headers: { "if-match": etag ?? "" } });
    } catch (error) {
      if (isProblem(error)) setProblem(error);
    }
    onChanged();
  };
  return (
    <Panel title="History" window="newest first" source={revision === null ? undefined : history}>
      {problem && <ProblemNote problem={problem} />}
      {history.data?.changes.length === 0 && <p class="quiet">Nothing was changed here yet.</p>}
      {(history.data?.changes.length ?? 0) > 0 && <Rows rows={history.data!.changes} mayChange={mayChange} onRevert={(row) => void revert(row)} />}
    </Panel>
  );
}

function Rows({ rows, mayChange, onRevert }: { rows: TuningHistoryRow[]; mayChange: boolean; onRevert(row: TuningHistoryRow): void }) {
  return (
    <Table
      caption="Changes of settings" rows={rows} rowKey={(row) => row.revision}
      columns={[
        { name: "revision", cell: (row) => row.revision },
        { name: "when", cell: (row) => dayAndTime(row.at_unix_ms) },
        { name: "who", cell: (row) => row.who },
        {
          name: "what",
          cell: (row) => row.changes.map((change) => <div key={change.name} class="event-text"><code>{change.name}</code> {change.old ?? "default"} → <b>{change.new ?? "default"}</b></div>),
        },
        { name: "why", cell: (row) => <span class="event-text">{row.reason ?? <span class="quiet">no reason given</span>}</span> },
        { name: "holds", isMinor: true, cell: (row) => (row.expires_unix_ms === null ? "until changed" : `until ${clockTime(row.expires_unix_ms)}`) },
        {
          name: "revert", isUnnamed: true,
          cell: (row) => row.reverted_by
            ? <span class="quiet">taken back by {row.reverted_by}</span>
            : <button class="button button-small" type="button" disabled={!mayChange} onClick={() => onRevert(row)} aria-label={`Revert revision ${row.revision}`}>Revert</button>,
        },
      ]}
    />
  );
}
