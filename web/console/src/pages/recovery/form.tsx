// Choosing a fault: what it is, whom it strikes, and what that stops. Nothing happens before its name is typed.

import { useState } from "preact/hooks";
import { asProblem, ask, idempotencyKey } from "../../api/client";
import type { ApiProblem } from "../../api/problem";
import { isAbsent, type DrillPreview, type DrillsDocument } from "../../api/types";
import { Select } from "../../parts/choice";
import { Dialog } from "../../parts/dialog";
import { count, inWords, plural, share } from "../../parts/format";
import { Loading, ProblemNote } from "../../parts/states";
import { useTopic } from "../../state/live";
import { useWhyNot } from "../../state/permission";
import { useResource, type Resource } from "../../state/resource";
import { setQuery, useParam } from "../../state/url";
import { ParameterFields, useParameters, type DrillValues } from "./parameters";
import { isRunning } from "./running";

// longer than a node waits for another one that begins a drill: that one asks coordinator and agents
const BEGIN_TIMEOUT_MS = 30_000;

export function DrillForm({ drills, onBegun }: { drills: DrillsDocument; onBegun(): void }) {
  const status = useTopic("status");
  const kind = useParam("kind") ?? drills.kinds[0]?.kind ?? "kill";
  const nodes = status.data?.nodes.filter((node) => !isAbsent(node)).map((node) => String(node.node)) ?? [];
  const node = useParam("node") ?? nodes[nodes.length - 1] ?? "";
  const chosen = drills.kinds.find((one) => one.kind === kind);
  const { values, wrong } = useParameters(chosen);
  const whyNot = useWhyNot("admin");
  // what was asked for stays what it was while the dialog is open, whatever the page behind it shows
  const [asked, askFor] = useState<Asked | null>(null);
  const delay = "delay_ms" in values && !wrong.includes("delay_ms") ? `&delay_ms=${values.delay_ms}` : "";
  const preview = useResource<DrillPreview>(drills.allowed && node ? `drills/preview?kind=${kind}&node=${node}${delay}` : null, 5000);
  if (!drills.allowed) return <NotAllowed why={drills.why_not} />;
  const running = drills.runs.some(isRunning);
  return (
    <div class="stack">
      <div class="row">
        <Select label="Fault" value={kind} options={drills.kinds.map((one) => [one.kind, one.kind] as const)} onChange={(value) => setQuery({ kind: value })} />
        <Select label="Node" value={node} options={nodes.map((one) => [one, `node ${one}`] as const)} onChange={(value) => setQuery({ node: value })} />
      </div>
      {chosen && <ParameterFields kind={chosen} values={values} wrong={wrong} />}
      <p>
        <button
          class="button button-danger" type="button" disabled={running || whyNot !== null || wrong.length > 0 || !preview.data}
          onClick={() => preview.data && askFor({ preview: preview.data, values })}
        >Run this drill…</button>
      </p>
      {whyNot && <p class="notice notice-info">{whyNot}</p>}
      <p class="quiet">
        {chosen?.meaning} To recover at once, halt the drill: what stands still goes on, what is cut off is let back, a slow disk is as before, and a killed node is started.
        {running && " A drill is under way; wait for its end or halt it."}
      </p>
      <Blast preview={preview} />
      {asked && <Confirm {...asked} onClose={() => askFor(null)} onBegun={onBegun} />}
    </div>
  );
}

function NotAllowed({ why }: { why: string | null }) {
  return (
    <div class="notice notice-info">
      <p><strong>Drills are off here.</strong> {why}</p>
      <p>Next: start a cluster for drills. <code class="command">cell dev --nodes 3 --allow-drills</code></p>
      <p>On several hosts: run each node by an agent. <code class="command">cell agent --allow-drills</code></p>
    </div>
  );
}

function Blast({ preview }: { preview: Resource<DrillPreview> }) {
  const { data, problem } = preview;
  if (!data) return problem ? <ProblemNote problem={problem} /> : <Loading what="what it would stop" />;
  return (
    <div class="notice notice-warning blast">
      <p><strong>What it stops.</strong> {data.sentence}</p>
      <p>
        {plural(data.pairs.length, "pair")} ({data.pairs.join(", ") || "none"}), {inWords(count(data.entries))} entries, {inWords(share(data.key_share))} of all keys.
        Survivors: {data.survivors.length > 0 ? data.survivors.map((one) => `node ${one}`).join(", ") : "none"}.
      </p>
    </div>
  );
}

interface Asked { preview: DrillPreview; values: DrillValues }

interface ConfirmProps extends Asked { onClose(): void; onBegun(): void }

function Confirm({ preview, values, onClose, onBegun }: ConfirmProps) {
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const [isSent, setSent] = useState(false);
  const [key] = useState(idempotencyKey);
  const run = async (event: Event) => {
    event.preventDefault();
    setSent(true);
    setProblem(null);
    try {
      const body = { kind: preview.kind, node: preview.node, confirm: typed, preview: preview.revision, ...values };
      const options = { method: "POST", body, headers: { "idempotency-key": key }, timeoutMs: BEGIN_TIMEOUT_MS };
      const { document } = await ask<{ operation: string }>("drills", options);
      setQuery({ run: document.operation }, true);
      onBegun();
      onClose();
    } catch (error) {
      setProblem(asProblem(error));
      setSent(false);
    }
  };
  return (
    <Dialog title={`Run the drill "${preview.kind}" on node ${preview.node}?`} onClose={onClose}>
      <form class="stack" onSubmit={run}>
        <p>{preview.sentence}</p>
        <p>{plural(preview.pairs.length, "pair")}, {inWords(count(preview.entries))} entries, {inWords(share(preview.key_share))} of all keys.</p>
        <label class="field">
          <span>Type <code>{preview.confirm}</code> to confirm</span>
          <input type="text" name="confirm" autocomplete="off" spellcheck={false} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
        {problem && <ProblemNote problem={problem} />}
        <p class="row">
          <button class="button button-danger" type="submit" disabled={typed !== preview.confirm || isSent}>{preview.kind === "kill" ? "Kill it" : "Run it"}</button>
          <button class="button" type="button" onClick={onClose}>Leave it</button>
        </p>
      </form>
    </Dialog>
  );
}
