// Events: what happened, as lanes over time and as rows, with filters and export.

import type { EventRow, EventsDocument } from "../../api/types";
import { Select } from "../../parts/choice";
import { EventTable } from "../../parts/event_table";
import { dayAndTime, plural, whole } from "../../parts/format";
import { PageFrame } from "../../parts/page";
import { Panel } from "../../parts/panel";
import { Empty } from "../../parts/states";
import { arrivedEvents, useTopic } from "../../state/live";
import { useResource } from "../../state/resource";
import { useStore } from "../../state/store";
import { setQuery, usePlace } from "../../state/url";
import { Export } from "./export";
import { Lanes } from "./lanes";

const LIMIT = 200;
/** More are not given at once. What is sought in the text or by severity is sought in so many. */
const LIMIT_MAX = 1000;
const KINDS = ["node_state", "held_back", "lease", "member_joined", "member_left", "incident", "takeover", "move", "drain", "balance", "split", "checkpoint", "read_only", "setting", "drill"];

export function Events() {
  const { query } = usePlace();
  const filter = { kind: query.get("kind") ?? "", node: query.get("node") ?? "", severity: query.get("severity") ?? "", find: query.get("find") ?? "" };
  const isSought = filter.severity !== "" || filter.find !== "";
  const limit = isSought ? LIMIT_MAX : Math.min(LIMIT_MAX, Math.max(LIMIT, Number(query.get("limit")) || LIMIT));
  useTopic("events"); // new ones come by the stream
  const status = useTopic("status");
  const server = `${filter.kind ? `&kind=${filter.kind}` : ""}${filter.node ? `&node=${filter.node}` : ""}`;
  const listed = useResource<EventsDocument>(`events?limit=${limit}${server}`, 15_000);
  const arrived = useStore(arrivedEvents);
  const events = merged(listed.data?.events ?? [], arrived).filter((event) => fits(event, filter));
  const since = listed.data?.complete_since_unix_ms;
  const nodes = status.data?.nodes.map((node) => String(node.node)) ?? [];
  return (
    <PageFrame title="Events" says="What the nodes did by themselves, and what was done to them.">
      <Panel title="Events" window={`${plural(events.length, "event")}, newest first${since ? `, complete since ${dayAndTime(since)}` : ""}`} source={{ ...listed, data: listed.data && { missing: listed.data.missing } }} actions={<Export events={events} />}>
        <div class="row">
          <Select label="Kind" value={filter.kind} options={[["", "all"], ...KINDS.map((kind) => [kind, kind.replaceAll("_", " ")] as const)]} onChange={(kind) => setQuery({ kind })} />
          <Select label="Node" value={filter.node} options={[["", "all"], ...nodes.map((node) => [node, `node ${node}`] as const)]} onChange={(node) => setQuery({ node })} />
          <Select label="Severity" value={filter.severity} options={[["", "all"], ["warning", "warning and critical"], ["critical", "critical"]] as const} onChange={(severity) => setQuery({ severity })} />
          <label class="field"><span>Text</span><input type="search" value={filter.find} placeholder="pair 4" onInput={(event) => setQuery({ find: event.currentTarget.value })} /></label>
        </div>
        <Cut document={listed.data} limit={limit} />
        {events.length === 0 && <Empty>No event fits. Splits, checkpoints, takeovers and changes of settings are told here as they happen.</Empty>}
        {events.length > 0 && <><Lanes events={events} /><EventTable events={events} withDay withDetails caption="All events that fit" /></>}
      </Panel>
    </PageFrame>
  );
}

/** Says that the nodes keep more than was listed, and asks for more. */
function Cut({ document, limit }: { document: EventsDocument | null; limit: number }) {
  const isCut = document?.truncated ?? (document?.events.length ?? 0) >= limit;
  if (!document || !isCut) return null;
  return (
    <p class="notice notice-info" role="status">
      The list is cut: these are of the newest {whole(document.events.length)}{document.total ? ` of ${whole(document.total)}` : ""} events of this kind and node.{" "}
      {limit < LIMIT_MAX
        ? <button class="button button-small" type="button" onClick={() => setQuery({ limit: Math.min(LIMIT_MAX, limit + LIMIT) })}>Show {LIMIT} more</button>
        : "More are not given at once: choose a kind or a node."}
    </p>
  );
}

/** Both lists without doubles, newest first. */
function merged(listed: EventRow[], arrived: EventRow[]): EventRow[] {
  const all = new Map([...listed, ...arrived].map((event) => [event.id, event]));
  return [...all.values()].sort((a, b) => b.at_unix_ms - a.at_unix_ms);
}

function fits(event: EventRow, filter: { kind: string; node: string; severity: string; find: string }): boolean {
  if (filter.find && !`${event.text} ${event.kind} ${JSON.stringify(event.details ?? {})}`.toLowerCase().includes(filter.find.toLowerCase())) return false;
  if (filter.kind && event.kind !== filter.kind) return false;
  if (filter.node && String(event.node) !== filter.node) return false;
  if (filter.severity === "critical") return event.severity === "critical";
  return filter.severity !== "warning" || event.severity !== "info";
}
