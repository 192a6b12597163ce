// What a drill proved. PASS: every acknowledged key was read back, and every history can be true.

import type { DrillReport, Level } from "../../api/types";
import { Sign } from "../../parts/badge";
import { bytes, inWords, milliseconds, whole } from "../../parts/format";
import { Table } from "../../parts/table";

const LEVELS: Record<string, Level> = { PASS: "ok", FAIL: "critical", INCONCLUSIVE: "warning" };
const SAYS: Record<string, string> = {
  PASS: "Nothing acknowledged was lost, and every key's history is linearizable.",
  FAIL: "Something acknowledged is missing or wrong.",
  INCONCLUSIVE: "Nothing wrong was found, but too little happened to the node's keys to show anything.",
};

type Entry = [name: string, words: string];

const number = (report: DrillReport, name: string): number | null => (typeof report[name] === "number" ? (report[name] as number) : null);

/** By how much a slow disk was slower; nothing of other faults. */
function slower(report: DrillReport): Entry[] {
  const delay = number(report, "delay_ms");
  return delay === null ? [] : [["each write later by", inWords(milliseconds(delay))]];
}

export function Report({ report }: { report: DrillReport }) {
  const verdict = String(report.verdict ?? "INCONCLUSIVE").toUpperCase();
  const level = LEVELS[verdict] ?? "warning";
  const counts = (names: string[]): Entry[] => names.map((name) => [name.replaceAll("_", " "), whole(number(report, name))]);
  const times = (names: string[]): Entry[] => names.map((name) => [name.replace(/_ms/, "").replaceAll("_", " "), inWords(milliseconds(number(report, name)))]);
  return (
    <section class={`verdict verdict-${level}`} aria-label="Report of the drill">
      <Sign level={level} />
      <h3 class="report-verdict">{verdict}</h3>
      <div class="report-says">
        <p>{SAYS[verdict]}</p>
        {(report.reasons?.length ?? 0) > 0 && <ul>{report.reasons!.map((reason) => <li key={reason}>{reason}</li>)}</ul>}
      </div>
      <div class="report-figures">
        <List title="Keys with an acknowledged write" entries={counts(["acknowledged", "found", "lost", "stale", "phantom"])} />
        <List title="Histories" entries={counts(["histories", "not_linearizable", "undecided", "operations", "unknown", "refused", "writes_during_fault"])} />
        <List title="From the fault on" entries={times(["detected_ms", "lease_ended_ms", "claimed_ms", "first_served_ms", "served_ms", "all_back_ms"])} />
        <List title="What clients saw" entries={[...slower(report), ...times(["unavailable_ms_max", "unavailable_ms_p99"]), ["replayed", inWords(bytes(number(report, "replayed_bytes")))]]} />
      </div>
      <Ways ways={report.ways} />
      <Keys title="Keys that are wrong" rows={report.wrong} />
      <Keys title="Longest waits" rows={report.slowest} />
      <details class="report-raw"><summary>The whole report as JSON</summary><pre class="json">{JSON.stringify(report, null, 2)}</pre></details>
    </section>
  );
}

function List({ title, entries }: { title: string; entries: Entry[] }) {
  return (
    <div>
      <h4>{title}</h4>
      <dl class="facts">{entries.map(([name, words]) => [<dt key={name}>{name}</dt>, <dd key={`${name}=`} class="number">{words}</dd>])}</dl>
    </div>
  );
}

/** Each acknowledged key is read back in three ways. */
function Ways({ ways }: { ways: DrillReport["ways"] }) {
  const rows = Object.entries(ways ?? {});
  if (rows.length === 0) return null;
  return (
    <div class="report-raw">
      <Table
        caption="Read back, by way" isCaptionShown rows={rows} rowKey={([way]) => way}
        columns={[
          { name: "way", cell: ([way]) => way.replaceAll("_", " ") },
          ...(["found", "lost", "stale", "phantom"] as const).map((name) => ({
            name, isNumber: true, cell: ([, counts]: (typeof rows)[number]) => whole(counts[name]),
          })),
        ]}
      />
    </div>
  );
}

function Keys({ title, rows = [] }: { title: string; rows?: NonNullable<DrillReport["slowest"]> }) {
  if (rows.length === 0) return null;
  const hasTimes = rows.some((row) => row.ms !== undefined);
  return (
    <div class="report-raw">
      <Table
        caption={title} isCaptionShown rows={rows} rowKey={(row) => `${row.key} ${row.what}`}
        columns={[
          { name: "key", cell: (row) => <code>{row.key}</code> },
          { name: "what", cell: (row) => <span class="event-text">{row.what}</span> },
          ...(hasTimes ? [{ name: "waited", isNumber: true, cell: (row: (typeof rows)[number]) => inWords(milliseconds(row.ms)) }] : []),
        ]}
      />
    </div>
  );
}
