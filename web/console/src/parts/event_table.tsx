// Events as rows: when, how grave, where, what.

import type { EventRow, Level } from "../api/types";
import { Badge } from "./badge";
import { clockTime, dayAndTime } from "./format";
import { Table } from "./table";

export const levelOf = (severity: EventRow["severity"]): Level | "info" => severity;

export function EventTable({ events, withDay = false, caption = "Events" }: { events: EventRow[]; withDay?: boolean; caption?: string }) {
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
        { name: "what", cell: (event) => <span class="event-text">{event.text}</span> },
      ]}
    />
  );
}
