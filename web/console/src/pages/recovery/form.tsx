// Choosing a fault: what it is, whom it strikes, and what that stops. Nothing happens before its name is typed.

import { useEffect, useState } from "preact/hooks";
import { isAbsent, type DrillPreview, type DrillRun, type DrillsDocument } from "../../api/types";
import { Select } from "../../parts/choice";
import { Dialog } from "../../parts/dialog";
import { count, duration, inWords, plural, share } from "../../parts/format";
import { Loading, ProblemNote } from "../../parts/states";
import { useNow } from "../../state/clock";
import { useTopic } from "../../state/live";
import { useWhyNot } from "../../state/permission";
import { useResource, type Resource } from "../../state/resource";
import { useStore } from "../../state/store";
import { setQuery, useParam } from "../../state/url";
import { askAgain, askedDrill, askForDrill, forgetAsked, type AskedDrill } from "./asked";
import { ParameterFields, useParameters, type DrillValues } from "./parameters";
import { isRunning } from "./running";

export function DrillForm({ drills, onBegun }: { drills: DrillsDocument; onBegun(): void }) {
  const status = useTopic("status");
  const kind = useParam("kind") ?? drills.kinds[0]?.kind ?? "kill";
  const nodes = status.data?.nodes.filter((node) => !isAbsent(node)).map((node) => String(node.node)) ?? [];
  const node = useParam("node") ?? nodes[nodes.length - 1] ?? "";
  const chosen = drills.kinds.find((one) => one.kind === kind);
  const { values, wrong } = useParameters(chosen);
  const whyNot = useWhyNot("admin");
  // what is to be confirmed stays what it was while the dialog is open, whatever the page behind it shows
  const [toConfirm, confirm] = useState<ToConfirm | null>(null);
  const asked = useStore(askedDrill);
  const begun = asked?.run ?? null;
  useEffect(() => {
    if (begun === null) return;
    forgetAsked();
    setQuery({ run: begun }, true);
    onBegun();
  }, [begun]);
  const delay = "delay_ms" in values && !wrong.includes("delay_ms") ? `&delay_ms=${values.delay_ms}` : "";
  const preview = useResource<DrillPreview>(drills.allowed && node ? `drills/preview?kind=${kind}&node=${node}${delay}` : null, 5000);
  if (!drills.allowed) return <NotAllowed why={drills.why_not} />;
  const running = drills.runs.some(isRunning);
  const isAsked = asked !== null && asked.problem === null;
  return (
    <div class="stack">
      <div class="row">
        <Select label="Fault" value={kind} options={drills.kinds.map((one) => [one.kind, one.kind] as const)} onChange={(value) => setQuery({ kind: value })} />
        <Select label="Node" value={node} options={nodes.map((one) => [one, `node ${one}`] as const)} onChange={(value) => setQuery({ node: value })} />
      </div>
      {chosen && <ParameterFields kind={chosen} values={values} wrong={wrong} />}
      <p>
        <button
          class="button button-danger" type="button" disabled={running || isAsked || whyNot !== null || wrong.length > 0 || !preview.data}
          onClick={() => preview.data && confirm({ preview: preview.data, values })}
        >Run this drill…</button>
      </p>
      {asked && <AskedNote drill={asked} runs={drills.runs} />}
      {whyNot && <p class="notice notice-info">{whyNot}</p>}
      <p class="quiet">
        {chosen?.meaning} To recover at once, halt the drill: what stands still goes on, what is cut off is let back, a slow disk is as before, and a killed node is started.
        {running && " A drill is under way; wait for its end or halt it."}
      </p>
      <Blast preview={preview} />
      {toConfirm && <Confirm {...toConfirm} onClose={() => confirm(null)} />}
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

/** What was asked for, and what it waits for; or why it has not started. */
function AskedNote({ drill, runs }: { drill: AskedDrill; runs: DrillRun[] }) {
  const now = useNow();
  const name = `${drill.kind} of node ${drill.node}`;
  if (drill.problem) {
    return (
      <div class="stack">
        <p><strong>{drill.problem.status === 0 ? "Whether the drill has begun is not known:" : "The drill has not begun:"}</strong> {name}, as you asked for it.</p>
        <ProblemNote problem={drill.problem} />
        <p class="row">
          <button class="button button-danger" type="button" onClick={() => askAgain(drill)}>Ask again</button>
          <button class="button" type="button" onClick={forgetAsked}>Leave it</button>
        </p>
      </div>
    );
  }
  const begins = runs.find((run) => run.state === "beginning" && run.kind === drill.kind && run.node === drill.node);
  return (
    <div class="notice notice-info">
      <p role="status"><strong>Asked for:</strong> {name}, by {begins?.who ?? "you"}. It waits for {begins?.waits_for ?? "the node that is to run it"}.</p>
      <p class="quiet">{duration(Math.max(0, now - drill.sinceMs))} so far. It begins, or this says why not, within half a minute; you can go on meanwhile.</p>
    </div>
  );
}

interface ToConfirm { preview: DrillPreview; values: DrillValues }

interface ConfirmProps extends ToConfirm { onClose(): void }

function Confirm({ preview, values, onClose }: ConfirmProps) {
  const [typed, setTyped] = useState("");
  const run = (event: Event) => {
    event.preventDefault();
    askForDrill(preview.kind, preview.node, { kind: preview.kind, node: preview.node, confirm: typed, preview: preview.revision, ...values });
    setQuery({ run: null }); // the page shows what begins
    onClose();
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
        <p class="row">
          <button class="button button-danger" type="submit" disabled={typed !== preview.confirm}>{preview.kind === "kill" ? "Kill it" : "Run it"}</button>
          <button class="button" type="button" onClick={onClose}>Leave it</button>
        </p>
      </form>
    </Dialog>
  );
}
