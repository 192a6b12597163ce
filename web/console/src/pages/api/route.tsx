// One route: parameters, answers, and for GET a try.

import { useState } from "preact/hooks";
import { exchange, isProblem } from "../../api/client";
import { Table } from "../../parts/table";
import { useInList } from "../../state/url";
import { Fields } from "./fields";
import { resolved, type OpenApi, type Parameter, type RouteObject } from "./openapi";

const SHOWN_MAX = 20_000;

export function Route({ route, root }: { route: RouteObject; root: OpenApi }) {
  const [isOpen, open] = useInList("open", `${route.method} ${route.path}`);
  return (
    <details class="route" open={isOpen} onToggle={(event) => { if (event.currentTarget.open !== isOpen) open(event.currentTarget.open); }}>
      <summary>
        <span class={`method method-${route.method.toLowerCase()}`}>{route.method}</span> <code>{route.path}</code>{" "}
        <span class="quiet">{route.operation.summary}</span>
      </summary>
      <div class="stack route-body">
        {route.operation.description && <p class="prose">{route.operation.description}</p>}
        {route.parameters.length > 0 && <Parameters parameters={route.parameters} />}
        {Object.entries(route.operation.requestBody?.content ?? {}).map(([type, body]) => (
          <div key={type} class="stack-tight">
            <p>Body: <code>{type}</code>{body.example !== undefined && <>, such as <code>{JSON.stringify(body.example)}</code></>}</p>
            <Fields caption="Fields of the body" schema={body.schema} root={root} />
          </div>
        ))}
        <Responses route={route} root={root} />
        {route.method === "GET" && <Try route={route} />}
      </div>
    </details>
  );
}

function bounds({ schema = {} }: Parameter): string {
  const words = [schema.type, schema.enum && `one of ${(schema.enum as unknown[]).join(", ")}`, schema.minimum !== undefined && `at least ${schema.minimum}`, schema.maximum !== undefined && `at most ${schema.maximum}`, schema.default !== undefined && `default ${schema.default}`];
  return words.filter(Boolean).join(", ");
}

function Parameters({ parameters }: { parameters: Parameter[] }) {
  return (
    <Table
      caption="Parameters" rows={parameters} rowKey={(one) => `${one.in} ${one.name}`} isCaptionShown
      columns={[
        { name: "name", cell: (one) => <><code>{one.name}</code>{one.required && <span class="quiet"> required</span>}</> },
        { name: "in", cell: (one) => one.in },
        { name: "takes", cell: bounds },
        { name: "meaning", cell: (one) => <span class="event-text">{one.description}</span> },
      ]}
    />
  );
}

function Responses({ route, root }: { route: RouteObject; root: OpenApi }) {
  const entries = Object.entries(route.operation.responses ?? {}).map(([code, response]) => [code, resolved(root, response)] as const);
  if (entries.length === 0) return null;
  const answers = entries.filter(([code]) => code.startsWith("2")).flatMap(([, response]) => Object.values(response.content ?? {}));
  return (
    <>
      <dl class="facts">{entries.map(([code, response]) => [<dt key={code}>{code}</dt>, <dd key={`${code}=`}>{response.description}</dd>])}</dl>
      {answers.map((answer, at) => <Fields key={at} caption="Fields of the answer" schema={answer.schema} root={root} />)}
    </>
  );
}

interface Shown { status: number; type: string; text: string }

function Try({ route }: { route: RouteObject }) {
  const [shown, show] = useState<Shown | null>(null);
  const inputs = route.parameters.filter((one) => one.in === "path" || one.in === "query");
  const run = async (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    show(await answerOf(urlOf(route, inputs, (name) => String(form.get(name) ?? ""))));
  };
  return (
    <form class="stack-tight" onSubmit={run}>
      <div class="row">
        {inputs.map((one) => <label key={one.name} class="field"><span>{one.name}</span><input name={one.name} type="text" required={one.required} spellcheck={false} /></label>)}
        <button class="button" type="submit">Try it</button>
      </div>
      {shown && <div role="status"><p>Status <b>{shown.status || "none"}</b> <span class="quiet">{shown.type}</span></p><pre class="json" tabIndex={0} aria-label="Answer">{shown.text}</pre></div>}
    </form>
  );
}

function urlOf(route: RouteObject, inputs: Parameter[], value: (name: string) => string): string {
  const path = inputs.filter((one) => one.in === "path").reduce((text, one) => text.replace(`{${one.name}}`, encodeURIComponent(value(one.name))), route.path);
  const query = new URLSearchParams(inputs.filter((one) => one.in === "query" && value(one.name) !== "").map((one) => [one.name, value(one.name)]));
  return query.size > 0 ? `${path}?${query}` : path;
}

/** A stream has no end: it is cut after its first piece. */
async function answerOf(url: string): Promise<Shown> {
  try {
    return await exchange(url, {}, async (response) => {
      const type = response.headers.get("content-type") ?? "";
      const text = type.includes("event-stream") ? await firstPiece(response) : await response.text();
      return { status: response.status, type, text: pretty(text, type).slice(0, SHOWN_MAX) };
    });
  } catch (error) {
    return { status: 0, type: "", text: isProblem(error) ? error.detail : String(error) };
  }
}

async function firstPiece(response: Response): Promise<string> {
  const reader = response.body!.getReader();
  const { value } = await reader.read();
  await reader.cancel();
  return new TextDecoder().decode(value);
}

function pretty(text: string, type: string): string {
  if (!type.includes("json")) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
