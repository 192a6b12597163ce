// The events that are shown, as a file: JSON lines or CSV.

import type { EventRow } from "../../api/types";
import { jsonLines, save } from "../../parts/save";

const COLUMNS = ["id", "at_unix_ms", "node", "kind", "severity", "text"] as const;

const quoted = (value: unknown): string => {
  // a leading sign would be taken for a formula by spreadsheets
  const text = String(value).replace(/^([=+\-@])/, "'$1");
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

export const csv = (events: EventRow[]): string =>
  [COLUMNS.join(","), ...events.map((event) => COLUMNS.map((name) => (name === "at_unix_ms" || name === "node" ? String(event[name]) : quoted(event[name]))).join(","))].join("\r\n") + "\r\n";

export function Export({ events }: { events: EventRow[] }) {
  return (
    <>
      <button class="button button-small" type="button" disabled={events.length === 0} onClick={() => save("cell-events.jsonl", "application/x-ndjson", jsonLines(events))}>Save as JSON lines</button>
      <button class="button button-small" type="button" disabled={events.length === 0} onClick={() => save("cell-events.csv", "text/csv", csv(events))}>Save as CSV</button>
    </>
  );
}
