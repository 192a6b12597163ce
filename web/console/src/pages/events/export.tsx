// The events that are shown, as a file: JSON lines or CSV.

import type { EventRow } from "../../api/types";

const COLUMNS = ["id", "at_unix_ms", "node", "kind", "severity", "text"] as const;

const quoted = (value: unknown): string => {
  // a leading sign would be taken for a formula by spreadsheets
  const text = String(value).replace(/^([=+\-@])/, "'$1");
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

export const jsonLines = (events: EventRow[]): string => events.map((event) => `${JSON.stringify(event)}\n`).join("");

export const csv = (events: EventRow[]): string =>
  [COLUMNS.join(","), ...events.map((event) => COLUMNS.map((name) => (name === "at_unix_ms" || name === "node" ? String(event[name]) : quoted(event[name]))).join(","))].join("\r\n") + "\r\n";

function save(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}

export function Export({ events }: { events: EventRow[] }) {
  return (
    <>
      <button class="button button-small" type="button" disabled={events.length === 0} onClick={() => save("cell-events.jsonl", "application/x-ndjson", jsonLines(events))}>Save as JSON lines</button>
      <button class="button button-small" type="button" disabled={events.length === 0} onClick={() => save("cell-events.csv", "text/csv", csv(events))}>Save as CSV</button>
    </>
  );
}
