// Events as rows: when, how grave, where, what.

import type { EventRow, Level } from "../api/types";
import { Badge } from "./badge";
import { clockTime, dayAndTime } from "./format";
import { Table } from "./table";

export const levelOf = (severity: EventRow["severity"]): Level | "info" => severity;

interface EventTableProps { events: EventRow[]; withDay?: boolean; withDetails?: boolean; caption?: string }

export function EventTable({ events, withDay = false, withDetails = false, caption = "Events" }: EventTableProps) {
  return (
    <Table
      caption={caption} rows={events} rowKey={(event) => event.id}
      columns={[
        {
          name: "time",
          cell: (event) => <time dateTime={new Date(event.at_unix_ms).toISOString()}>{withDay ? dayAndTime(event.at_unix_ms) : clockTime(event.at_unix_ms)}</time>,
        },
        { name: "severity", cell: (event) => <Badge level={levelOf(event.severity)}>{event.severity}</Badge> },
        { name: "node", cell: (event) => `node ${event.node}` },
        { name: "kind", isMinor: true, cell: (event) => <span class="tag">{event.kind.replaceAll("_", " ")}</span> },
        { name: "what", cell: (event) => <><span class="event-text">{event.text}</span>{withDetails && <Details details={event.details} />}</> },
      ]}
    />
  );
}

function Details({ details }: { details: EventRow["details"] | null | undefined }) {
  const entries = Object.entries(details ?? {});
  if (entries.length === 0) return null;
  return (
    <details class="event-details">
      <summary>Details</summary>
      <dl class="facts">
        {entries.map(([name, value]) => [<dt key={name}>{name.replaceAll("_", " ")}</dt>, <dd key={`${name}=`} class="mono">{typeof value === "string" ? value : JSON.stringify(value)}</dd>])}
      </dl>
    </details>
  );
}
