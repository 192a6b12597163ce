// What was edited, together: check it, say why and for how long, apply all or none.

import { useEffect, useState } from "preact/hooks";
import { ask, isProblem } from "../../api/client";
import type { ApiProblem } from "../../api/problem";
import type { TuningAnswer, TuningDocument } from "../../api/types";
import { Select } from "../../parts/choice";
import { plural } from "../../parts/format";
import { Table } from "../../parts/table";
import { ProblemNote } from "../../parts/states";
import type { Resource } from "../../state/resource";
import { differences, type Draft } from "./draft";

const LIVES = [["", "until it is changed"], ["60", "1 minute"], ["600", "10 minutes"], ["3600", "1 hour"], ["86400", "1 day"]] as const;

interface BarProps { draft: Draft; tuning: Resource<TuningDocument>; mayChange: boolean; onApplied(answer: TuningAnswer): void }

export function ChangeBar({ draft, tuning, mayChange, onApplied }: BarProps) {
  const [reason, setReason] = useState("");
  const [life, setLife] = useState<string>("");
  const [answer, setAnswer] = useState<TuningAnswer | null>(null);
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const [isSent, setSent] = useState(false);

  // what was checked is no more what would be sent
  useEffect(() => setAnswer(null), [draft.values, reason, life]);

  const send = async (isDry: boolean) => {
    setSent(true);
    setAnswer(null);
    setProblem(null);
    const query = new URLSearchParams();
    if (isDry) query.set("dry_run", "1");
    if (reason) query.set("reason", reason);
    if (life) query.set("ttl_seconds", life);
    const headers: Record<string, string> = { "if-match": draft.base?.etag ?? "" };
    if (!isDry) headers["idempotency-key"] = draft.key(query.toString());
    try {
      const { document } = await ask<TuningAnswer>(`tuning?${query}`, {
        method: "PATCH", body: draft.values, contentType: "application/merge-patch+json", headers,
      });
      if (isDry) setAnswer(document);
      else {
        onApplied(document);
        draft.clear();
        tuning.reload();
      }
    } catch (error) {
      if (!isProblem(error)) throw error;
      setProblem(error);
      draft.setErrors(error.errors);
      if (error.status === 412) tuning.reload();
    } finally {
      setSent(false);
    }
  };
  return (
    <section class="panel change-bar" aria-label="Changes">
      <header class="panel-head"><h2>{plural(draft.names.length, "change")}, not applied yet</h2></header>
      <Changes draft={draft} />
      {problem?.status === 412 ? <Stale draft={draft} tuning={tuning} onSeen={() => setProblem(null)} /> : problem && <ProblemNote problem={problem} />}
      {answer?.dry_run && <p class="notice notice-info" role="status">Checked: the nodes would take {plural(answer.changes.length, "change")}. Nothing was changed.</p>}
      <div class="row">
        <label class="field field-wide"><span>Reason, for the history</span><input type="text" value={reason} onInput={(event) => setReason(event.currentTarget.value)} placeholder="shorter tails for the batch at night" /></label>
        <Select label="Holds" value={life} options={LIVES} onChange={setLife} />
        <button class="button" type="button" disabled={isSent || !mayChange} onClick={() => void send(true)}>Check only</button>
        <button class="button button-main" type="button" disabled={isSent || !mayChange || problem?.status === 412} onClick={() => void send(false)}>Apply {draft.names.length > 1 ? "all or none" : "it"}</button>
        <button class="button" type="button" onClick={draft.clear}>Discard</button>
      </div>
    </section>
  );
}

function Changes({ draft }: { draft: Draft }) {
  const before = new Map(draft.base?.settings.map((setting) => [setting.name, setting]));
  return (
    <Table
      caption="Changes" rows={draft.names} rowKey={(name) => name}
      columns={[
        { name: "setting", cell: (name) => <code>{name}</code> },
        { name: "now", cell: (name) => before.get(name)?.value ?? "–" },
        { name: "then", cell: (name) => <b>{draft.values[name] ?? `back to ${before.get(name)?.default ?? "its default"}`}</b> },
        { name: "undo", isUnnamed: true, cell: (name) => <button class="button button-quiet button-small" type="button" onClick={() => draft.leave(name)} aria-label={`Undo ${name}`}>Undo</button> },
      ]}
    />
  );
}

/** Somebody else was faster: what changed, and whether ours still holds. */
function Stale({ draft, tuning, onSeen }: { draft: Draft; tuning: Resource<TuningDocument>; onSeen(): void }) {
  const changed = draft.base && tuning.data ? differences(draft.base.settings, tuning.data.settings) : [];
  const isKnown = tuning.etag !== null && tuning.etag !== draft.base?.etag;
  const goOn = () => {
    if (tuning.etag && tuning.data) draft.rebase(tuning.etag, tuning.data.settings);
    onSeen();
  };
  return (
    <div class="notice notice-warning" role="alert">
      <p><strong>Settings changed while you were editing.</strong> Nothing of yours was applied.</p>
      {!isKnown && <p>Reading what changed…</p>}
      {isKnown && changed.length > 0 && <ul>{changed.map((one) => <li key={one.name}><code>{one.name}</code> is {one.new} ({one.old} before){one.name in draft.values && ": you are changing it, too"}</li>)}</ul>}
      {isKnown && changed.length === 0 && <p>The values are again as you saw them.</p>}
      {isKnown && <p><button class="button" type="button" onClick={goOn}>I have seen it: keep my changes</button></p>}
    </div>
  );
}
