// A check of the whole tree by its nodes, while they serve: it is started here, how far it is, what it found.

import { useEffect, useState } from "preact/hooks";
import { asProblem, ask, idempotencyKey } from "../../api/client";
import type { ApiProblem } from "../../api/problem";
import type { TreeCheck, TreeCheckPart } from "../../api/types";
import { count, inWords, microseconds, plural, whole } from "../../parts/format";
import { NodeName } from "../../parts/node_name";
import { Panel } from "../../parts/panel";
import { ProblemNote } from "../../parts/states";
import { Table } from "../../parts/table";
import { useWhyNot } from "../../state/permission";
import { useResource } from "../../state/resource";
import { setQuery, useParam } from "../../state/url";

const EVERY_MS = 500;

export function CheckPanel() {
  const id = useParam("check");
  const [over, setOver] = useState<string | null>(null);
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const [isSent, setSent] = useState(false);
  const whyNot = useWhyNot("operator");
  const check = useResource<TreeCheck>(id ? `operations/${id}` : null, id === over ? 0 : EVERY_MS);
  const isDone = check.data?.done ?? false;
  useEffect(() => { if (isDone) setOver(id); }, [isDone, id]);
  const begin = async () => {
    setSent(true);
    setProblem(null);
    try {
      const headers = { "idempotency-key": idempotencyKey() };
      const { document } = await ask<{ operation: string }>("tree:check", { method: "POST", body: {}, headers });
      setQuery({ check: document.operation });
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setSent(false);
    }
  };
  const isUnderWay = check.data !== null && !isDone;
  return (
    <Panel title="Whether it keeps its rules" window={isUnderWay ? "under way" : "asks once"} source={id ? check : undefined}>
      <p class="row">
        <button class="button" type="button" disabled={whyNot !== null || isSent || isUnderWay} onClick={begin}>Check the tree</button>
        <span class="quiet">Each node looks at its own tree nodes, a few at a time, while it serves.</span>
      </p>
      {whyNot && <p class="notice notice-info">{whyNot}</p>}
      {problem && <ProblemNote problem={problem} />}
      {check.data && <Result check={check.data} />}
    </Panel>
  );
}

function Result({ check }: { check: TreeCheck }) {
  return (
    <div class="stack">
      {check.done ? <Verdict check={check} /> : <Progress check={check} />}
      <Table
        caption="The check by node" rows={check.nodes} rowKey={(part) => part.node}
        columns={[
          { name: "node", cell: (part) => <NodeName node={part.node} /> },
          { name: "pairs", cell: (part) => part.pairs.join(", ") || "–" },
          { name: "tree nodes", isNumber: true, cell: (part) => whole(part.tree_nodes) },
          { name: "entries", isNumber: true, cell: (part) => whole(part.entries) },
          { name: "violations", isNumber: true, cell: (part) => whole(part.violations) },
          { name: "took", isNumber: true, cell: (part) => (part.duration_us === null ? "not over" : inWords(microseconds(part.duration_us))) },
        ]}
      />
      <Found parts={check.nodes} />
    </div>
  );
}

function Progress({ check }: { check: TreeCheck }) {
  return (
    <p class="row" role="status">
      <progress max={Math.max(1, check.tree_nodes_all)} value={check.tree_nodes} aria-label="The check of the tree" />
      {whole(check.tree_nodes)} of {whole(check.tree_nodes_all)} tree nodes, {plural(check.violations, "violation")} so far
    </p>
  );
}

function Verdict({ check }: { check: TreeCheck }) {
  const looked = `${whole(check.tree_nodes)} tree nodes with ${inWords(count(check.entries))} entries in ${inWords(microseconds(check.duration_us))}`;
  return (
    <>
      <p class={`notice ${check.violations > 0 ? "notice-critical" : "notice-info"}`} role="status">
        <strong>{check.violations === 0 ? "No violations." : `${plural(check.violations, "violation")}.`}</strong> {looked}.
      </p>
      {check.unchecked_pairs.length > 0 && (
        <p class="notice notice-warning"><strong>Partial.</strong> Nobody that answers serves {check.unchecked_pairs.map((pair) => `pair ${pair}`).join(", ")}.</p>
      )}
    </>
  );
}

function Found({ parts }: { parts: TreeCheckPart[] }) {
  const rows = parts.flatMap((part) => part.found.map((fault) => ({ node: part.node, ...fault })));
  if (rows.length === 0) return null;
  return (
    <Table
      caption="Violations" rows={rows} rowKey={(row) => `${row.pair}.${row.slot}.${row.index} ${row.what}`}
      columns={[
        { name: "node", cell: (row) => <NodeName node={row.node} /> },
        { name: "tree node", cell: (row) => <a href={`/console/tree?meganode=${row.pair}.${row.slot}&tree_node=${row.index}`}>{row.pair}.{row.slot}, {row.index}</a> },
        { name: "what", cell: (row) => row.what },
      ]}
    />
  );
}
