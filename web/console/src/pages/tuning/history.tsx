// Who changed what, when and why; each change can be taken back, after it was shown what that would do. What is done
// then is done for the revision that was shown: if settings changed since, nothing is.

import { useRef, useState } from "preact/hooks";
import { ask, idempotencyKey, isProblem } from "../../api/client";
import type { ApiProblem } from "../../api/problem";
import type { SettingChange, TuningAnswer, TuningHistory, TuningHistoryRow } from "../../api/types";
import { dayAndTime } from "../../parts/format";
import { Panel } from "../../parts/panel";
import { jsonLines, save } from "../../parts/save";
import { Table } from "../../parts/table";
import { ProblemNote } from "../../parts/states";
import { useResource, useShownUntilNext } from "../../state/resource";
import { setQuery, useParam } from "../../state/url";

const STEP = 50;
/** A node lists no more at a time; a file has all. */
const LIMIT_MAX = 200;

interface HistoryProps {
  revision: string | null; etag: string | null; mayChange: boolean; onReverted(answer: TuningAnswer): void; onStale(): void;
}

export function HistoryPanel({ revision, etag, mayChange, onReverted, onStale }: HistoryProps) {
  const limit = Math.min(LIMIT_MAX, Math.max(STEP, Number(useParam("history")) || STEP));
  // the revision makes it ask anew after each change; the last rows stay until the next ones are there
  const history = useShownUntilNext(useResource<TuningHistory>(revision === null ? null : `tuning/history?limit=${limit}&seen=${revision}`));
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const [checked, setChecked] = useState<{ row: TuningHistoryRow; answer: TuningAnswer } | null>(null);
  const key = useRef({ of: "", key: "" });
  const rows = history.data?.changes ?? [];

  /** `shown`: what a check has shown, for whose revision it is done; without it, it is checked. */
  const revert = async (row: TuningHistoryRow, shown: TuningAnswer | null) => {
    setProblem(null);
    const condition = shown ? `"${shown.revision}"` : etag ?? "";
    const headers: Record<string, string> = { "if-match": condition };
    const of = `${row.revision} ${condition}`;
    if (key.current.of !== of) key.current = { of, key: idempotencyKey() };
    if (shown) headers["idempotency-key"] = key.current.key;
    try {
      const { document } = await ask<TuningAnswer>(`tuning:revert${shown ? "" : "?dry_run=1"}`, { method: "POST", body: { revision: row.revision }, headers });
      setChecked(shown ? null : { row, answer: document });
      if (shown) onReverted(document);
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
      {checked && <Checked {...checked} onRevert={() => void revert(checked.row, checked.answer)} onLeave={() => setChecked(null)} />}
      {history.data && rows.length === 0 && <p class="quiet">Nothing was changed here yet.</p>}
      {rows.length > 0 && <Rows rows={rows} mayChange={mayChange} onRevert={(row) => void revert(row, null)} />}
      {rows.length >= limit && limit < LIMIT_MAX && (
        <p><button class="button button-small" type="button" onClick={() => setQuery({ history: limit + STEP })}>Show older changes</button></p>
      )}
      {rows.length >= LIMIT_MAX && <p class="quiet">The newest {LIMIT_MAX} changes are shown.</p>}
      {rows.length > 0 && <SaveHistory onProblem={setProblem} />}
    </Panel>
  );
}

/** Every change that is kept, page by page, as JSON lines: to be kept elsewhere. */
function SaveHistory({ onProblem }: { onProblem(problem: ApiProblem | null): void }) {
  const [isRead, setRead] = useState(false);
  const run = async () => {
    setRead(true);
    onProblem(null);
    try {
      const rows: TuningHistoryRow[] = [];
      for (let next: string | null = ""; next !== null;) {
        const { document }: { document: TuningHistory } = await ask<TuningHistory>(`tuning/history?limit=${LIMIT_MAX}${next && `&before=${next}`}`);
        rows.push(...document.changes);
        next = document.next ?? null;
      }
      save("cell-settings-history.jsonl", "application/x-ndjson", jsonLines(rows));
    } catch (error) {
      if (!isProblem(error)) throw error;
      onProblem(error);
    } finally {
      setRead(false);
    }
  };
  return <p><button class="button button-small" type="button" disabled={isRead} onClick={() => void run()}>Save all changes as JSON lines</button></p>;
}

/** What a revert would do; nothing was done yet. */
function Checked({ row, answer, onRevert, onLeave }: { row: TuningHistoryRow; answer: TuningAnswer; onRevert(): void; onLeave(): void }) {
  return (
    <div class="notice notice-warning" role="status">
      <p><strong>Taking back revision {row.revision} would set:</strong></p>
      <ul>{answer.changes.map((change) => <li key={change.name}><Change change={change} /></li>)}</ul>
      {answer.changes.length === 0 && <p>Nothing: these values are in force already.</p>}
      <p class="row">
        <button class="button button-main" type="button" disabled={answer.changes.length === 0} onClick={onRevert}>Take it back</button>
        <button class="button" type="button" onClick={onLeave}>Leave it</button>
      </p>
    </div>
  );
}

function Change({ change: { name, old, old_end, new: value, new_expires_unix_ms: end } }: { change: SettingChange }) {
  const until = (time: number) => <span class="quiet"> (until {dayAndTime(time)})</span>;
  return (
    <>
      <code>{name}</code> {old ?? "default"}{old_end && until(old_end.expires_unix_ms)} → <b>{value ?? "default"}</b>{end && until(end)}
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
