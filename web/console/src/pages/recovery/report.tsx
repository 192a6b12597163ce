// What a drill proved. PASS: every acknowledged key was read back, and every history can be true.

import type { DrillReport, Level } from "../../api/types";
import { Sign } from "../../parts/badge";
import { bytes, inWords, milliseconds, whole } from "../../parts/format";

const LEVELS: Record<string, Level> = { PASS: "ok", FAIL: "critical", INCONCLUSIVE: "warning" };
const SAYS: Record<string, string> = {
  PASS: "Nothing acknowledged was lost, and every key's history is linearizable.",
  FAIL: "Something acknowledged is missing or wrong.",
  INCONCLUSIVE: "Nothing wrong was found, but too little happened to the node's keys to show anything.",
};

type Entry = [name: string, words: string];

const number = (report: DrillReport, name: string): number | null => (typeof report[name] === "number" ? (report[name] as number) : null);

export function Report({ report }: { report: DrillReport }) {
  const verdict = String(report.verdict ?? "INCONCLUSIVE").toUpperCase();
  const level = LEVELS[verdict] ?? "warning";
  const counts = (names: string[]): Entry[] => names.map((name) => [name.replaceAll("_", " "), whole(number(report, name))]);
  const times = (names: string[]): Entry[] => names.map((name) => [name.replace(/_ms/, "").replaceAll("_", " "), inWords(milliseconds(number(report, name)))]);
  return (
    <section class={`verdict verdict-${level}`} aria-label="Report of the drill">
      <Sign level={level} />
      <h3 class="report-verdict">{verdict}</h3>
      <p>{SAYS[verdict]} {(report.reasons ?? []).join(" ")}</p>
      <div class="report-figures">
        <List title="Keys with an acknowledged write" entries={counts(["acknowledged", "found", "lost", "stale", "phantom"])} />
        <List title="Histories" entries={counts(["histories", "not_linearizable", "undecided", "operations", "unknown", "refused", "writes_during_fault"])} />
        <List title="From the fault on" entries={times(["detected_ms", "lease_ended_ms", "claimed_ms", "first_served_ms", "served_ms", "all_back_ms"])} />
        <List title="What clients saw" entries={[...times(["unavailable_ms_max", "unavailable_ms_p99"]), ["replayed", inWords(bytes(number(report, "replayed_bytes")))]]} />
      </div>
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
