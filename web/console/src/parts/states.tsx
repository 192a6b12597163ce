// What stands in place of data, or above it: loading, empty, partial, stale, unauthorised, error.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { ApiProblem } from "../api/problem";
import { token } from "../api/token";
import type { Missing, NodesDocument } from "../api/types";
import { useResource } from "../state/resource";
import { age } from "./format";

export function Loading({ what }: { what: string }) {
  return <p class="state state-loading" role="status">Loading {what}…</p>;
}

/** Nothing is there yet. `command` is what fills it; its HOST:PORT is where this node is reached. */
export function Empty({ children, command }: { children: ComponentChildren; command?: string }) {
  return (
    <div class="state state-empty">
      <p>{children}</p>
      {command && <p><Command words={command} /></p>}
    </div>
  );
}

function Command({ words }: { words: string }) {
  const nodes = useResource<NodesDocument>("nodes").data?.nodes;
  const address = nodes?.find((node) => node.is_self)?.address;
  return <code class="command">{address ? words.replace("HOST:PORT", address) : words}</code>;
}

export function MissingNote({ missing }: { missing?: Missing[] }) {
  if (!missing || missing.length === 0) return null;
  return (
    <div class="notice notice-warning" role="status">
      <strong>Partial.</strong>{" "}
      {missing.map((one) => (
        <span key={one.node}>Node {one.node} ({one.address}) is missing: {one.why}. </span>
      ))}
      The rest is shown.
    </div>
  );
}

export function StaleNote({ ageMs }: { ageMs: number }) {
  return (
    <div class="notice notice-warning" role="status">
      <strong>Stale.</strong> Nothing new has come: these figures are from {age(ageMs)}.
    </div>
  );
}

export function ProblemNote({ problem }: { problem: ApiProblem }) {
  if (problem.isUnauthorised) return <TokenForm problem={problem} />;
  const unsaid = problem.errors.filter((error) => !problem.detail.includes(error.detail)); // of one error the sentence says it
  return (
    <div class="notice notice-critical" role="alert">
      <p><strong>{problem.status === 403 ? "Not permitted. " : "Error. "}</strong>{problem.detail}</p>
      {unsaid.length > 0 && (
        <ul>{unsaid.map((error) => <li key={error.pointer}><code>{error.pointer}</code> {error.detail}</li>)}</ul>
      )}
      {problem.next && <p>Next: {problem.next}</p>}
      <p class="quiet">
        <code>{problem.code}</code>
        {problem.requestId && <> · request <code>{problem.requestId}</code></>}
      </p>
    </div>
  );
}

/** What this caller may not see is not there, and this says why. */
export function HiddenNote({ why }: { why: string }) {
  return <p class="notice notice-info" role="status">{why}</p>;
}

/** Asks for a bearer token. It is kept for this tab alone. */
export function TokenForm({ problem }: { problem?: ApiProblem }) {
  const [typed, setTyped] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    if (typed.trim() !== "") token.set(typed.trim());
  };
  return (
    <form class="notice notice-info" onSubmit={submit}>
      <p><strong>This node wants a token.</strong> {problem?.detail}</p>
      <p class="row">
        <label class="field">
          <span>Token</span>
          <input type="password" autocomplete="off" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
        <button class="button button-main" type="submit">Use it in this tab</button>
      </p>
      <p class="quiet">It is kept until the tab is closed. A viewer's token suffices for reading.</p>
    </form>
  );
}
