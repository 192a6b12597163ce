// Who changed what, when and why; each change can be taken back, after it was shown what that would do.

import { useRef, useState } from "preact/hooks";
import { ask, idempotencyKey, isProblem } from "../../api/client";
import type { ApiProblem } from "../../api/problem";
import type { SettingChange, TuningAnswer, TuningHistory, TuningHistoryRow } from "../../api/types";
import { dayAndTime } from "../../parts/format";
import { Panel } from "../../parts/panel";
import { Table } from "../../parts/table";
import { ProblemNote } from "../../parts/states";
import { useResource } from "../../state/resource";
import { setQuery, useParam } from "../../state/url";

const STEP = 50;
/** More are not kept. */
const LIMIT_MAX = 200;

interface HistoryProps {
  revision: string | null; etag: string | null; mayChange: boolean; onReverted(answer: TuningAnswer): void; onStale(): void;
}

export function HistoryPanel({ revision, etag, mayChange, onReverted, onStale }: HistoryProps) {
  const limit = Math.min(LIMIT_MAX, Math.max(STEP, Number(useParam("history")) || STEP));
  // the revision makes it ask anew after each change
  const history = useResource<TuningHistory>(revision === null ? null : `tuning/history?limit=${limit}&seen=${revision}`);
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const [checked, setChecked] = useState<{ row: TuningHistoryRow; answer: TuningAnswer } | null>(null);
  const key = useRef({ of: "", key: "" });
  const rows = history.data?.changes ?? [];

  const revert = async (row: TuningHistoryRow, isDry: boolean) => {
    setProblem(null);
    const headers: Record<string, string> = { "if-match": etag ?? "" };
    const of = `${row.revision} ${etag}`;
    if (key.current.of !== of) key.current = { of, key: idempotencyKey() };
    if (!isDry) headers["idempotency-key"] = key.current.key;
    try {
      const { document } = await ask<TuningAnswer>(`tuning:revert${isDry ? "?dry_run=1" : ""}`, { method: "POST", body: { revision: row.revision }, headers });
      setChecked(isDry ? { row, answer: document } : null);
      if (!isDry) onReverted(document);
    } catch (error) {
      if (!isProblem(error)) throw error;
      setChecked(null);
      setProblem(error);
      onStale();
    }
  };
  return (
    <Panel title="History" window="newest first" source={revision === null ? undefined : history}>
      {problem && <ProblemNote problem={problem} />}
      {checked && <Checked {...checked} onRevert={() => void revert(checked.row, false)} onLeave={() => setChecked(null)} />}
      {history.data && rows.length === 0 && <p class="quiet">Nothing was changed here yet.</p>}
      {rows.length > 0 && <Rows rows={rows} mayChange={mayChange} onRevert={(row) => void revert(row, true)} />}
      {rows.length >= limit && limit < LIMIT_MAX && (
        <p><button class="button button-small" type="button" onClick={() => setQuery({ history: limit + STEP })}>Show older changes</button></p>
      )}
      {rows.length >= LIMIT_MAX && <p class="quiet">The newest {LIMIT_MAX} changes are shown.</p>}
    </Panel>
  );
}

/** What a revert would do; nothing was done yet. */
function Checked({ row, answer, onRevert, onLeave }: { row: TuningHistoryRow; answer: TuningAnswer; onRevert(): void; onLeave(): void }) {
  return (
    <div class="notice notice-warning" role="status">
      <p><strong>Taking back revision {row.revision} would set:</strong></p>
      <ul>{answer.changes.map((change) => <li key={change.name}><Change change={change} /></li>)}</ul>
      {answer.changes.length === 0 && <p>Nothing: these values are in force already.</p>}
      <p class="row">
        <button class="button button-main" type="button" onClick={onRevert}>Take it back</button>
        <button class="button" type="button" onClick={onLeave}>Leave it</button>
      </p>
    </div>
  );
}

function Change({ change: { name, old, old_end, new: value } }: { change: SettingChange }) {
  return (
    <>
      <code>{name}</code> {old ?? "default"}{old_end && <span class="quiet"> (until {dayAndTime(old_end.expires_unix_ms)})</span>} → <b>{value ?? "default"}</b>
    </>
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
          cell: (row) => row.changes.map((change) => <div key={change.name} class="event-text"><Change change={change} /></div>),
        },
        { name: "why", cell: (row) => <span class="event-text">{row.reason ?? <span class="quiet">no reason given</span>}</span> },
        { name: "holds", isMinor: true, cell: (row) => (row.expires_unix_ms === null ? "until changed" : `until ${dayAndTime(row.expires_unix_ms)}`) },
        {
          name: "revert", isUnnamed: true,
          cell: (row) => row.reverted_by
            ? <span class="quiet">taken back by {row.reverted_by}</span>
            : <button class="button button-small" type="button" disabled={!mayChange} onClick={() => onRevert(row)} aria-label={`Revert revision ${row.revision}`}>Revert…</button>,
        },
      ]}
    />
  );
}
